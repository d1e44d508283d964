# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Connections to MCP servers: which server offers which function, and calls within a rate."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

from verl.errors import ConfigError
from verl.tools.utils.mcp_clients.utils import TokenBucket, mcp2openai
from verl.utils.import_utils import optional_import
from verl.waits import bounded

__all__ = ["ClientManager", "MCPClientManager"]

CONNECT_DEADLINE_S = 60.0
_POLL_S = 0.05


class MCPClientManager:
    """One per process; `initialize` reads the servers of a JSON file (`{"mcpServers": {name: {...}}}`)."""

    rootServerName = "mcpServers"

    def __init__(self) -> None:
        self.initialized = False
        self.clients: list[Any] = []
        self.tool_client_mapping: dict[str, Any] = {}
        # A TokenBucket from `initialize` on, without which there is no tool to call.
        self.rate_limiter: Any = None

    async def initialize(self, config_path: str, rate_limit: float = 10.0) -> None:
        """Read the servers; a second call with servers known already changes nothing."""
        if self.initialized:
            return
        library = optional_import("fastmcp", needed_for="config.type=mcp")
        file = Path(config_path).expanduser()
        if not file.is_file():
            raise ConfigError("no such file", where="mcp.mcp_servers_config_path", got=config_path)
        servers = json.loads(file.read_text(encoding="utf-8")).get(self.rootServerName) or {}
        if not servers:
            raise ConfigError(
                "the file names no servers", where=str(file), expected=f"a dict under {self.rootServerName!r}"
            )
        self.clients = [library.Client({self.rootServerName: {name: server}}) for name, server in servers.items()]
        self.rate_limiter = TokenBucket(rate_limit)
        self.initialized = True

    async def call_tool(self, tool_name: str, parameters: dict[str, Any], timeout: float) -> Any:
        """The server's answer; the wait for the rate limit counts against `timeout` seconds as well."""
        client = self.get_client_with_tool_name(tool_name)
        until_s = time.monotonic() + timeout
        while not self.rate_limiter.acquire():
            await asyncio.sleep(_POLL_S)
            if time.monotonic() > until_s:
                raise TimeoutError(f"no turn within {timeout:g} s (rate limit)")

        async def call() -> Any:
            async with client:
                return await client.call_tool_mcp(tool_name, parameters)

        left_s = max(0.1, until_s - time.monotonic())
        return await bounded(call(), what="an answer", whom=f"the MCP server of {tool_name}", deadline_s=left_s)

    async def fetch_tool_schemas(self, tool_selected_list: list[str]) -> list[dict[str, Any]]:
        """Schemas of all functions the servers offer, or of those selected."""
        schemas = []
        for client in self.clients:
            for tool in await self._list(client):
                if tool_selected_list and tool.name not in tool_selected_list:
                    continue
                self.tool_client_mapping[tool.name] = client
                schemas.append(mcp2openai(tool))
        missing = set(tool_selected_list or ()) - set(self.tool_client_mapping)
        if missing:
            raise ConfigError("no MCP server offers", where="mcp.tool_selected_list", got=sorted(missing))
        return schemas

    def get_client_with_tool_name(self, tool_name: str) -> Any:
        if tool_name not in self.tool_client_mapping:
            raise ConfigError(
                "no MCP server offers this tool", got=tool_name, expected=sorted(self.tool_client_mapping)
            )
        return self.tool_client_mapping[tool_name]

    @staticmethod
    async def _list(client: Any) -> list[Any]:
        async def listing() -> list[Any]:
            async with client:
                return await client.list_tools()

        return await bounded(
            listing(), what="the list of tools", whom=f"MCP server {client}", deadline_s=CONNECT_DEADLINE_S
        )


ClientManager = MCPClientManager()
