# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Function schemas in OpenAI's form, and what a tool answers."""

import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

__all__ = [
    "Message",
    "OpenAIFunctionCallSchema",
    "OpenAIFunctionParametersSchema",
    "OpenAIFunctionParsedSchema",
    "OpenAIFunctionPropertySchema",
    "OpenAIFunctionSchema",
    "OpenAIFunctionToolCall",
    "OpenAIFunctionToolSchema",
    "ToolResponse",
    "as_response",
]


class OpenAIFunctionPropertySchema(BaseModel):
    """One parameter; further JSON-schema keys (items, default …) are kept and reach the prompt."""

    model_config = ConfigDict(extra="allow")

    type: str | list[str] | None = None
    description: str | None = None
    enum: list[Any] | None = None


class OpenAIFunctionParametersSchema(BaseModel):
    """The parameters of a function as a JSON-schema object."""

    model_config = ConfigDict(extra="allow")

    type: str
    properties: dict[str, OpenAIFunctionPropertySchema]
    required: list[str] = Field(default_factory=list)


class OpenAIFunctionSchema(BaseModel):
    """Name, purpose and parameters of a function."""

    name: str
    description: str = ""
    parameters: OpenAIFunctionParametersSchema = Field(
        default_factory=lambda: OpenAIFunctionParametersSchema(type="object", properties={}, required=[])
    )
    strict: bool = False


class OpenAIFunctionToolSchema(BaseModel):
    """A function offered to the model."""

    type: str = "function"
    function: OpenAIFunctionSchema

    def for_template(self) -> dict[str, Any]:
        """The plain dict that chat templates render: what was given, nothing that was not."""
        return self.model_dump(exclude_unset=True, exclude_none=True)


class OpenAIFunctionParsedSchema(BaseModel):
    """A call as the model wrote it: arguments are still text."""

    name: str
    arguments: str


class OpenAIFunctionCallSchema(BaseModel):
    """A call with its arguments as a dict."""

    name: str
    arguments: dict[str, Any]

    @staticmethod
    def from_openai_function_parsed_schema(
        parsed_schema: OpenAIFunctionParsedSchema,
    ) -> tuple["OpenAIFunctionCallSchema", bool]:
        """(call, whether decoding failed); arguments that are no JSON object become an empty dict."""
        try:
            arguments = json.loads(parsed_schema.arguments)
        except json.JSONDecodeError:
            arguments = None
        failed = not isinstance(arguments, dict)
        return OpenAIFunctionCallSchema(name=parsed_schema.name, arguments={} if failed else arguments), failed


class OpenAIFunctionToolCall(BaseModel):
    """A call with the id that its answer refers to."""

    id: str
    type: Literal["function"] = "function"
    function: OpenAIFunctionCallSchema


class ToolResponse(BaseModel):
    """What a tool answers: text, images, videos, any of them."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    text: str | None = None
    image: list[Any] | None = None
    video: list[Any] | None = None

    @model_validator(mode="before")
    @classmethod
    def initialize_request(cls, values: Any) -> Any:
        """Images and videos come as lists, also when there is one."""
        for key in ("image", "video"):
            if isinstance(values, dict) and values.get(key) is not None and not isinstance(values[key], list):
                raise ValueError(
                    f"{key} must be a list, got {type(values[key]).__name__}; write [{key}] for a single one"
                )
        return values

    def is_empty(self) -> bool:
        return not self.text and not self.image and not self.video

    def is_text_only(self) -> bool:
        return bool(self.text) and not self.image and not self.video


class Message(BaseModel):
    """One message of a conversation; an assistant's may carry calls."""

    role: str
    content: str | dict[str, Any] | list[dict[str, Any]] | ToolResponse
    tool_calls: list[OpenAIFunctionToolCall] | None = None


def as_response(result: Any) -> ToolResponse:
    """One response, whatever a function handed back: a response is not wrapped again, None stays without text."""
    if isinstance(result, ToolResponse):
        return result
    return ToolResponse(text=None if result is None else result if isinstance(result, str) else str(result))
