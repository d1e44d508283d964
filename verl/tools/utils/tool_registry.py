# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Tools from the YAML file of `rollout.multi_turn.tool_config_path`."""

import asyncio
import threading
from enum import Enum
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from verl.errors import ConfigError
from verl.tools.base_tool import BaseTool
from verl.tools.schemas import OpenAIFunctionToolSchema
from verl.utils.import_utils import load_class_from_fqn

__all__ = [
    "ToolType",
    "get_tool_class",
    "initialize_mcp_tool",
    "initialize_tools_from_config",
    "tool_schemas_from_config",
]

MCP_START_DEADLINE_S = 60.0


class ToolType(Enum):
    """`config.type` of a tool."""

    NATIVE = "native"
    MCP = "mcp"


def get_tool_class(cls_name: str) -> type[BaseTool]:
    """The class behind `package.module.Class`."""
    return load_class_from_fqn(cls_name, "tool class")


async def initialize_mcp_tool(tool_cls: type[BaseTool], tool_config: Any) -> list[BaseTool]:
    """One tool object for each function that the configured MCP servers offer."""
    from verl.tools.utils.mcp_clients.McpClientManager import ClientManager

    await ClientManager.initialize(tool_config.mcp.mcp_servers_config_path, tool_config.config.rate_limit)
    selected = list(tool_config.mcp.get("tool_selected_list", None) or [])
    schemas = await ClientManager.fetch_tool_schemas(selected)
    config: Any = OmegaConf.to_container(tool_config.config, resolve=True)
    return [tool_cls(config=config, tool_schema=OpenAIFunctionToolSchema.model_validate(schema)) for schema in schemas]


def initialize_tools_from_config(tools_config_file: str) -> list[BaseTool]:
    """All tools of a tool configuration file, constructed."""
    tools: list[BaseTool] = []
    for entry in _entries(tools_config_file):
        tool_cls = get_tool_class(entry.class_name)
        if _type_of(entry) == ToolType.MCP:
            tools += _run_apart(initialize_mcp_tool(tool_cls, entry))
        else:
            tools.append(_native_tool(tool_cls, entry))
    return tools


def tool_schemas_from_config(tools_config_file: str | None) -> list[dict[str, Any]] | None:
    """The function schemas as chat templates take them, or None without tools.

    A schema that stands in the file is read there; only a tool that makes its own is constructed.
    """
    if not tools_config_file:
        return None
    schemas: list[dict[str, Any]] = []
    for entry in _entries(tools_config_file):
        if _type_of(entry) == ToolType.NATIVE and entry.get("tool_schema", None) is not None:
            tools_schema = [_schema(entry)]
        elif _type_of(entry) == ToolType.NATIVE:
            tools_schema = [_native_tool(get_tool_class(entry.class_name), entry).tool_schema]
        else:
            tools = _run_apart(initialize_mcp_tool(get_tool_class(entry.class_name), entry))
            tools_schema = [tool.tool_schema for tool in tools]
        schemas += [schema.for_template() for schema in tools_schema]
    return schemas


def _entries(tools_config_file: str) -> list[Any]:
    file = Path(tools_config_file).expanduser()
    if not file.is_file():
        raise ConfigError("no such file", where="rollout.multi_turn.tool_config_path", got=str(tools_config_file))
    tree: Any = OmegaConf.load(file)
    entries = tree.get("tools", None)
    if not entries:
        raise ConfigError("the file lists no tools", where=str(file), expected="a list under the key `tools`")
    return list(entries)


def _type_of(entry: Any) -> ToolType:
    kind = entry.get("config", OmegaConf.create({})).get("type", ToolType.NATIVE.value)
    if kind not in {item.value for item in ToolType}:
        known = ", ".join(item.value for item in ToolType)
        raise ConfigError("unknown tool type", where=str(entry.class_name), got=kind, expected=known)
    return ToolType(kind)


def _schema(entry: Any) -> OpenAIFunctionToolSchema:
    return OpenAIFunctionToolSchema.model_validate(OmegaConf.to_container(entry.tool_schema, resolve=True))


def _native_tool(tool_cls: type[BaseTool], entry: Any) -> BaseTool:
    config: Any = OmegaConf.to_container(entry.get("config", OmegaConf.create({})), resolve=True)
    return tool_cls(config=config, tool_schema=_schema(entry) if entry.get("tool_schema", None) is not None else None)


def _run_apart(coroutine: Any) -> list[BaseTool]:
    """Run a coroutine to its end from code that may itself run inside an event loop."""
    result: list[list[BaseTool]] = []
    failure: list[BaseException] = []

    def work() -> None:
        try:
            result.append(asyncio.run(asyncio.wait_for(coroutine, MCP_START_DEADLINE_S)))
        except BaseException as error:  # handed to the caller below
            failure.append(error)

    thread = threading.Thread(target=work, name="mcp-start", daemon=True)
    thread.start()
    thread.join(MCP_START_DEADLINE_S + 5)
    if failure:
        raise ConfigError(f"the MCP tools could not be started ({failure[0]})") from failure[0]
    if not result:
        raise ConfigError("the MCP servers did not answer", expected=f"an answer within {MCP_START_DEADLINE_S:.0f} s")
    return result[0]
