# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Schemas, functions as tools, and tools from YAML."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf

from verl.errors import ConfigError, UnsupportedError
from verl.tools.function_tool import FunctionTool, schema_of
from verl.tools.gsm8k_tool import Gsm8kTool
from verl.tools.schemas import (
    OpenAIFunctionCallSchema,
    OpenAIFunctionParsedSchema,
    OpenAIFunctionToolSchema,
    ToolResponse,
)
from verl.tools.utils.mcp_clients.utils import TokenBucket, mcp2openai
from verl.tools.utils.tool_registry import initialize_tools_from_config, tool_schemas_from_config

SCHEMA = {
    "type": "function",
    "function": {
        "name": "calc",
        "description": "checks",
        "parameters": {
            "type": "object",
            "properties": {"answer": {"type": "array", "items": {"type": "string"}}},
            "required": ["answer"],
        },
    },
}


def add(a: int, b: float = 1.5, names: list[str] | None = None) -> dict[str, Any]:
    """Adds two numbers."""
    return {"sum": a + b, "names": names}


async def greet(name: str) -> str:
    return f"grüße {name}"


def test_a_schema_reaches_the_template_whole_and_with_nothing_added() -> None:
    assert OpenAIFunctionToolSchema.model_validate(SCHEMA).for_template() == SCHEMA


@pytest.mark.parametrize(("text", "failed"), [('{"a": 1}', False), ("[1]", True), ("broken", True), ("null", True)])
def test_arguments_that_are_no_object_are_a_failed_call(text: str, failed: bool) -> None:
    call, has_failed = OpenAIFunctionCallSchema.from_openai_function_parsed_schema(
        OpenAIFunctionParsedSchema(name="f", arguments=text)
    )
    assert has_failed is failed and call.arguments == ({} if failed else {"a": 1})


def test_a_response_knows_what_it_holds() -> None:
    assert ToolResponse().is_empty() and ToolResponse(text="x").is_text_only()
    assert not ToolResponse(text="x", image=["i"]).is_text_only()
    with pytest.raises(ValueError, match=r"write \[image\]"):
        ToolResponse(image="single")


def test_a_functions_signature_is_its_schema() -> None:
    function = schema_of(add).function
    assert (function.name, function.description) == ("add", "Adds two numbers.")
    assert {name: item.type for name, item in function.parameters.properties.items()} == {
        "a": "integer",
        "b": "number",
        "names": "array",
    }
    assert function.parameters.required == ["a"]

    def untyped(x) -> None: ...

    with pytest.raises(ConfigError, match="'x' of untyped"):
        schema_of(untyped)


def test_functions_run_as_tools() -> None:
    async def run() -> list[str | None]:
        answers = []
        for function, arguments in ((add, {"a": 2}), (greet, {"name": "你"})):
            tool = FunctionTool({}, function=function)
            instance, _ = await tool.create()
            response, _, _ = await tool.execute(instance, arguments)
            answers.append(response.text)
        return answers

    assert asyncio.run(run()) == ['{"sum": 3.5, "names": null}', "grüße 你"]
    with pytest.raises(ConfigError, match="no function is named"):
        FunctionTool({})


def test_a_call_that_does_not_improve_costs_something() -> None:
    async def run() -> list[Any]:
        tool = Gsm8kTool({}, OpenAIFunctionToolSchema.model_validate(SCHEMA))
        instance, _ = await tool.create(create_kwargs={"ground_truth": "42"})
        rewards = [(await tool.execute(instance, {"answer": answer}))[1] for answer in ("41", "42", "42")]
        await tool.release(instance)
        return [*rewards, instance in tool._instance_dict]

    assert asyncio.run(run()) == [-0.05, 0.0, -0.05, False]


def write(tmp_path: Path, *entries: dict[str, Any]) -> str:
    path = tmp_path / "tools.yaml"
    OmegaConf.save(OmegaConf.create({"tools": list(entries)}), path)
    return str(path)


def test_tools_come_from_yaml_and_a_written_schema_needs_no_tool(tmp_path: Path) -> None:
    native = {"class_name": "verl.tools.gsm8k_tool.Gsm8kTool", "config": {"type": "native"}, "tool_schema": SCHEMA}
    path = write(tmp_path, native)
    (tool,) = initialize_tools_from_config(path)
    assert isinstance(tool, Gsm8kTool) and tool.name == "calc"
    # The class is not even imported where its schema stands in the file.
    absent = write(tmp_path, native | {"class_name": "not.installed.Tool"})
    assert tool_schemas_from_config(absent) == [SCHEMA]
    assert tool_schemas_from_config(None) is None


def test_a_wrong_tool_file_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        initialize_tools_from_config(str(tmp_path / "absent.yaml"))
    with pytest.raises(ConfigError, match="lists no tools"):
        initialize_tools_from_config(write(tmp_path))
    entry = {"class_name": "verl.tools.gsm8k_tool.Gsm8kTool", "config": {"type": "magic"}}
    with pytest.raises(ConfigError, match=r"unknown tool type.*native, mcp"):
        initialize_tools_from_config(write(tmp_path, entry))
    with pytest.raises(ConfigError, match=r"no\.such\.Tool"):
        initialize_tools_from_config(write(tmp_path, entry | {"class_name": "no.such.Tool", "config": {}}))


def test_mcp_without_its_package_says_which_setting_needs_it(tmp_path: Path) -> None:
    pytest.importorskip("mcp")
    try:
        import fastmcp  # noqa: F401
    except ImportError:
        config = {"type": "mcp", "rate_limit": 1.0}
        entry = {"class_name": "verl.tools.mcp_base_tool.MCPBaseTool", "config": config,
                 "mcp": {"mcp_servers_config_path": str(tmp_path / "servers.json")}}  # fmt: skip
        with pytest.raises(ConfigError, match="fastmcp") as error:
            initialize_tools_from_config(write(tmp_path, entry))
        assert isinstance(error.value.__cause__, UnsupportedError)


def test_mcp_schemas_and_rates() -> None:
    tool = SimpleNamespace(name="find", description=None, inputSchema={"properties": {"q": {"type": "string"}}})
    schema = OpenAIFunctionToolSchema.model_validate(mcp2openai(tool))
    assert schema.function.name == "find" and schema.function.parameters.required == []
    bucket = TokenBucket(2)
    assert [bucket.acquire() for _ in range(3)] == [True, True, False]


def test_a_message_of_a_conversation_may_hold_a_tools_answer_and_calls() -> None:
    from verl.workers.rollout.schemas import Message

    call = {"id": "1", "function": {"name": "add", "arguments": {"a": 1}}}
    message = Message(role="assistant", content="", tool_calls=[call])
    assert message.tool_calls[0].function.name == "add"
    assert Message(role="tool", content=ToolResponse(text="2")).content.text == "2"
