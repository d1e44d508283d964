# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Tools and a user for tests of the tool agent loop."""

import asyncio
from typing import Any

from verl.interactions.base import BaseInteraction
from verl.tools.base_tool import BaseTool
from verl.tools.schemas import OpenAIFunctionToolSchema, ToolResponse


def schema(name: str) -> OpenAIFunctionToolSchema:
    parameters = {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]}
    function = {"name": name, "description": "counts", "parameters": parameters}
    return OpenAIFunctionToolSchema.model_validate({"type": "function", "function": function})


class Counter(BaseTool):
    """Answers `w<number of calls>`; remembers what was opened and released."""

    opened: list[str] = []
    released: list[str] = []
    created_with: list[Any] = []

    def get_openai_tool_schema(self) -> OpenAIFunctionToolSchema:
        return schema("calculator")

    async def create(self, instance_id: str | None = None, **kwargs: Any) -> tuple[str, ToolResponse]:
        instance_id, response = await super().create(instance_id)
        self.opened.append(instance_id)
        self.created_with.append(kwargs.get("create_kwargs"))
        return instance_id, response

    async def execute(self, instance_id: str, parameters: dict[str, Any], **kwargs: Any) -> Any:
        calls = kwargs["agent_data"].extra_fields
        calls["count"] = calls.get("count", 0) + 1
        await asyncio.sleep(0)
        return ToolResponse(text=self.config.get("answer", f"w{calls['count']}")), 0.25, {"ok": True}

    async def release(self, instance_id: str, **kwargs: Any) -> None:
        self.released.append(instance_id)


class Broken(Counter):
    """A tool whose server is down."""

    async def execute(self, instance_id: str, parameters: dict[str, Any], **kwargs: Any) -> Any:
        raise ConnectionError("server is down")


class Late(Counter):
    """A tool whose server does not answer in time."""

    async def execute(self, instance_id: str, parameters: dict[str, Any], **kwargs: Any) -> Any:
        raise TimeoutError("no answer within 5 s")


class Sloppy(Counter):
    """A tool that answers with whatever `config.answer` is, and cannot clean up."""

    async def execute(self, instance_id: str, parameters: dict[str, Any], **kwargs: Any) -> Any:
        return self.config["answer"], None, None

    async def release(self, instance_id: str, **kwargs: Any) -> None:
        raise ConnectionError("nothing to release")


class NeverOpen(Counter):
    """A tool whose instance never opens."""

    async def create(self, instance_id: str | None = None, **kwargs: Any) -> tuple[str, ToolResponse]:
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")


class Painter(Counter):
    """A tool that answers with a picture."""

    async def execute(self, instance_id: str, parameters: dict[str, Any], **kwargs: Any) -> Any:
        return ToolResponse(image=["picture"]), None, {}


class Asker(BaseInteraction):
    """Asks `w50` until it has been answered `config.turns` times."""

    finished: list[str] = []

    async def start_interaction(self, instance_id: str | None = None, **kwargs: Any) -> str:
        self.left = self.config.get("turns", 2)
        return await super().start_interaction(instance_id)

    async def generate_response(self, instance_id: str, messages: list[dict[str, Any]], **kwargs: Any) -> Any:
        self.left -= 1
        return self.left <= 0, "w50", 0.5, {}

    async def finalize_interaction(self, instance_id: str | None = None, **kwargs: Any) -> None:
        self.finished.append(str(instance_id))


class SilentAsker(Asker):
    """A user who has gone for a coffee."""

    finished: list[str] = []

    async def generate_response(self, instance_id: str, messages: list[dict[str, Any]], **kwargs: Any) -> Any:
        await asyncio.Event().wait()
