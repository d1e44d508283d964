# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""A typed Python function as a tool: its signature is the schema, its docstring the description."""

import asyncio
import inspect
import json
import types
import typing
from collections.abc import Callable
from typing import Any

from verl.errors import ConfigError
from verl.tools.base_tool import BaseTool
from verl.tools.schemas import OpenAIFunctionToolSchema, ToolResponse
from verl.utils.import_utils import load_class_from_fqn

__all__ = ["FunctionTool", "schema_of"]

_JSON_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", list: "array", dict: "object"}


class FunctionTool(BaseTool):
    """Calls a function, plain or coroutine; a plain one runs in a thread.

    In a tool file: `class_name: verl.tools.function_tool.FunctionTool` with `config.function: package.module.name`.
    """

    def __init__(
        self,
        config: dict[str, Any],
        tool_schema: OpenAIFunctionToolSchema | None = None,
        function: Callable[..., Any] | None = None,
    ) -> None:
        if function is None:
            if not config.get("function"):
                raise ConfigError(
                    "no function is named", where="FunctionTool.config.function", expected="package.module.name"
                )
            function = load_class_from_fqn(config["function"], "tool function")
        self.function = function
        super().__init__(config, tool_schema or schema_of(function))

    async def execute(
        self, instance_id: str, parameters: dict[str, Any], **kwargs: Any
    ) -> tuple[ToolResponse, float | None, dict[str, Any]]:
        if inspect.iscoroutinefunction(self.function):
            result = await self.function(**parameters)
        else:
            result = await asyncio.to_thread(lambda: self.function(**parameters))
        if isinstance(result, ToolResponse):
            return result, None, {}
        text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, default=str)
        return ToolResponse(text=text), None, {}


def schema_of(function: Callable[..., Any]) -> OpenAIFunctionToolSchema:
    """The schema of a function whose parameters are annotated with JSON's types; a default makes one optional."""
    hints = typing.get_type_hints(function)
    properties, required = {}, []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise ConfigError(f"the tool function {function.__name__} takes *{name}", expected="named parameters only")
        properties[name] = {"type": _json_type(function, name, hints.get(name))}
        if parameter.default is parameter.empty:
            required.append(name)
    return OpenAIFunctionToolSchema.model_validate(
        {
            "type": "function",
            "function": {
                "name": function.__name__,
                "description": inspect.getdoc(function) or "",
                "parameters": {"type": "object", "properties": properties, "required": required},
            },
        }
    )


def _json_type(function: Callable[..., Any], name: str, hint: Any) -> str:
    options = [hint]
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        options = [option for option in typing.get_args(hint) if option is not type(None)]
    kind = typing.get_origin(options[0]) or options[0]
    if len(options) != 1 or kind not in _JSON_TYPES:
        known = ", ".join(item.__name__ for item in _JSON_TYPES)
        raise ConfigError(f"the parameter {name!r} of {function.__name__} has no JSON type", got=hint, expected=known)
    return _JSON_TYPES[kind]
