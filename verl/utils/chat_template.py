# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Chat templates: one rendering of a prompt, counted by the data filter and sent by the rollout alike."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, overload

from verl.errors import ConfigError, DataError
from verl.utils.plain import to_plain
from verl.utils.tokenizer import normalize_token_ids

TRUNCATIONS = ("error", "left", "right", "middle")


@overload
def apply_chat_template(
    processor: Any,
    messages: Sequence[Mapping[str, Any]],
    *,
    tokenize: Literal[True] = True,
    add_generation_prompt: bool = True,
    tools: Sequence[Mapping[str, Any]] | None = None,
    return_dict: Literal[False] = False,
    **kwargs: Any,
) -> list[int]: ...


@overload
def apply_chat_template(
    processor: Any,
    messages: Sequence[Mapping[str, Any]],
    *,
    tokenize: bool = True,
    add_generation_prompt: bool = True,
    tools: Sequence[Mapping[str, Any]] | None = None,
    return_dict: bool = False,
    **kwargs: Any,
) -> Any: ...


def apply_chat_template(
    processor: Any,
    messages: Sequence[Mapping[str, Any]],
    *,
    tokenize: bool = True,
    add_generation_prompt: bool = True,
    tools: Sequence[Mapping[str, Any]] | None = None,
    return_dict: bool = False,
    **kwargs: Any,
) -> Any:
    """Render messages with the template of a tokenizer or processor.

    Returns a flat list of ids (tokenize), the text (not tokenize), or the mapping of the tokenizer (return_dict).
    A processor without a template of its own renders with its tokenizer's.
    """
    renderer = template_owner(processor)
    rendered = renderer.apply_chat_template(
        plain_messages(messages),
        tokenize=tokenize,
        add_generation_prompt=add_generation_prompt,
        tools=to_plain(tools) if tools else None,
        **({"return_dict": return_dict} if tokenize else {}),
        **kwargs,
    )
    if not tokenize or return_dict:
        return rendered
    return normalize_token_ids(rendered)


def template_owner(processor: Any) -> Any:
    """The object whose chat template is used: the processor, else its tokenizer."""
    if getattr(processor, "chat_template", None) is None and getattr(processor, "tokenizer", None) is not None:
        return processor.tokenizer
    return processor


def plain_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Messages as plain dicts; keys that a file's other rows brought along (value None) are left out."""
    return [_without_nones(to_plain(message)) for message in messages]


def _without_nones(message: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in message.items() if value is not None or key == "content"}
    if isinstance(kept.get("content"), list):
        kept["content"] = [_without_nones(part) if isinstance(part, dict) else part for part in kept["content"]]
    return kept


def refuse_media(messages: Sequence[Mapping[str, Any]], *more: Sequence[Any] | None) -> None:
    """For a model without a processor: its template would write an image out as text."""
    parts = [part for message in messages for part in _parts(message) if part.get("type") in ("image", "video")]
    if parts or any(more):
        raise DataError(
            "images or videos in the messages need a processor, and this model has none",
            remedy="use a model that sees, or leave the columns of data.image_key and data.video_key out",
        )


def _parts(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    content = message.get("content")
    return [part for part in content if isinstance(part, Mapping)] if isinstance(content, list) else []


def render_prompt(
    tokenizer: Any,
    processor: Any | None,
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    images: Sequence[Any] | None = None,
    videos: Sequence[Any] | None = None,
    template_kwargs: Mapping[str, Any] | None = None,
) -> list[int]:
    """Token ids of a prompt exactly as the rollout sends them, generation prompt included."""
    kwargs = dict(to_plain(template_kwargs or {}))
    if processor is None:
        refuse_media(messages, images, videos)
        return apply_chat_template(tokenizer, messages, tools=tools, **kwargs)
    text = apply_chat_template(processor, messages, tokenize=False, tools=tools, **kwargs)
    media: dict[str, Any] = {"images": list(images)} if images else {}
    if videos:
        frames, metadata = zip(*videos, strict=True)
        media |= {"videos": list(frames), "video_metadata": list(metadata), "do_sample_frames": False}
    return normalize_token_ids(processor(text=[text], return_tensors="pt", **media))


def truncate_prompt(ids: list[int], max_length: int, truncation: str, *, where: str) -> list[int]:
    """Cut a prompt to `max_length` tokens.

    left keeps the last tokens, right the first, middle both ends (the first half rounded down), error raises.
    """
    if truncation not in TRUNCATIONS:
        raise ConfigError(
            "unknown truncation", where="data.truncation", got=truncation, expected=f"one of {TRUNCATIONS}"
        )
    if len(ids) <= max_length:
        return ids
    if truncation == "left":
        return ids[-max_length:]
    if truncation == "right":
        return ids[:max_length]
    if truncation == "middle":
        head = max_length // 2
        return ids[:head] + ids[len(ids) - (max_length - head) :]
    raise DataError(
        "the prompt is too long",
        where=where,
        got=f"{len(ids)} tokens",
        expected=f"at most {max_length}",
        remedy="raise data.max_prompt_length, or set data.filter_overlong_prompts=True or data.truncation",
    )


def initialize_system_prompt(tokenizer: Any, **apply_chat_template_kwargs: Any) -> list[int]:
    """The ids that the template puts before the first user message by itself (a default system text).

    Found by rendering one and two empty user messages: what two have more than one is a message, and the rest of
    one is the system part.
    """
    user = {"role": "user", "content": ""}
    one = apply_chat_template(tokenizer, [user], add_generation_prompt=False, **apply_chat_template_kwargs)
    two = apply_chat_template(tokenizer, [user, user], add_generation_prompt=False, **apply_chat_template_kwargs)
    return one[: len(one) - (len(two) - len(one))]


def extract_system_prompt_and_generation(tokenizer: Any) -> tuple[list[int], list[int]]:
    """(ids of the default system text, ids of the generation prompt)."""
    user = {"role": "user", "content": ""}
    without = apply_chat_template(tokenizer, [user], add_generation_prompt=False)
    with_prompt = apply_chat_template(tokenizer, [user], add_generation_prompt=True)
    return initialize_system_prompt(tokenizer), with_prompt[len(without) :]
