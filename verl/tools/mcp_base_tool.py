# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""A tool whose work is done by a server that speaks the Model Context Protocol."""

from typing import Any

from verl.errors import ConfigError
from verl.tools.base_tool import BaseTool
from verl.tools.schemas import OpenAIFunctionToolSchema, ToolResponse
from verl.tools.utils.mcp_clients.McpClientManager import ClientManager

__all__ = ["MCPBaseTool"]

DEFAULT_TIMEOUT_S = 30.0


class MCPBaseTool(BaseTool):
    """Passes the call on to the server that offers the function; what fails is told to the model."""

    def __init__(self, config: dict[str, Any], tool_schema: OpenAIFunctionToolSchema | None = None) -> None:
        if tool_schema is None:
            raise ConfigError("an MCP tool gets its schema from its server", where=type(self).__name__)
        super().__init__(config, tool_schema)
        self.timeout_s = float(config.get("timeout", DEFAULT_TIMEOUT_S))

    async def execute(
        self, instance_id: str, parameters: dict[str, Any], **kwargs: Any
    ) -> tuple[ToolResponse, float | None, dict[str, Any]]:
        if not self.name or not isinstance(parameters, dict):
            return ToolResponse(text="Error: the arguments must be a JSON object."), 0.0, {"error": "arguments"}
        try:
            result = await ClientManager.call_tool(self.name, parameters, self.timeout_s)
        except Exception as error:
            # Whatever a remote server or its transport raises, the trajectory goes on.
            text = f"Error: the tool {self.name} failed ({type(error).__name__}: {error})"
            return ToolResponse(text=text), 0.0, {"error": type(error).__name__}
        text, metadata = self._parse_tool_result(result.content)
        return ToolResponse(text=text), None, metadata

    def _parse_tool_result(self, content: list[Any]) -> tuple[str, dict[str, Any]]:
        """(text for the model, metrics) of a server's answer; subclasses read their server's own form."""
        return "\n".join(part.text for part in content if getattr(part, "type", None) == "text"), {}
