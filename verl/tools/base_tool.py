# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The contract of a tool: created per call, executed, released."""

import json
import logging
import uuid
from typing import Any

from verl.tools.schemas import OpenAIFunctionToolSchema, ToolResponse

__all__ = ["BaseTool", "OpenAIFunctionToolSchema", "ToolResponse"]

logger = logging.getLogger(__name__)


class BaseTool:
    """A tool the model may call.

    One object serves all trajectories of a process; what belongs to one call lives under its instance id.
    """

    def __init__(self, config: dict[str, Any], tool_schema: OpenAIFunctionToolSchema | None = None) -> None:
        self.config = config
        schema = tool_schema or self.get_openai_tool_schema()
        if schema is None:
            raise ValueError(
                f"{type(self).__name__} has no schema: give tool_schema or override get_openai_tool_schema"
            )
        self.tool_schema = schema
        self.name = self.tool_schema.function.name
        logger.debug("tool %s: %s", self.name, json.dumps(self.tool_schema.for_template()))

    def get_openai_tool_schema(self) -> OpenAIFunctionToolSchema | None:
        return getattr(self, "tool_schema", None)

    async def create(self, instance_id: str | None = None, **kwargs: Any) -> tuple[str, ToolResponse]:
        """Open an instance for one call; returns its id and what the model sees of it (usually nothing)."""
        return instance_id or str(uuid.uuid4()), ToolResponse()

    async def execute(
        self, instance_id: str, parameters: dict[str, Any], **kwargs: Any
    ) -> tuple[ToolResponse, float | None, dict[str, Any]]:
        """Run the tool; returns (response, step reward, metrics). `kwargs` holds `agent_data` of the trajectory."""
        return ToolResponse(text="Updated the tool state."), 0.0, {}

    async def calc_reward(self, instance_id: str, **kwargs: Any) -> float:
        """Reward of the instance's state."""
        return 0.0

    async def release(self, instance_id: str, **kwargs: Any) -> None:
        """Forget the instance."""
