# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Conversations for supervised training: the loss covers what the assistant writes, and nothing else.

Shapes: S tokens of the conversation.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.data import Dataset

from verl.errors import ConfigError, DataError, UnsupportedError
from verl.utils.chat_template import apply_chat_template, extract_system_prompt_and_generation
from verl.utils.dataset.dataset_utils import DatasetPadMode
from verl.utils.dataset.files import key_of, read_rows, require_column, resolve_data_files
from verl.utils.plain import to_plain

__all__ = ["MultiTurnSFTDataset"]


class MultiTurnSFTDataset(Dataset):
    """Rows of `data.messages_key`, with `data.tools_key` and `data.enable_thinking_key` where the file has them.

    A row is `input_ids`, `attention_mask`, `position_ids`, `loss_mask` of `data.max_length` (pad_mode "right"), or
    `input_ids`, `position_ids`, `loss_mask` of its own length ("no_padding").
    """

    def __init__(
        self,
        parquet_files: str | Sequence[str],
        tokenizer: Any,
        config: Any,
        processor: Any | None = None,
        max_samples: int = -1,
    ) -> None:
        if processor is not None:
            raise UnsupportedError("supervised training on images", remedy="use a text model")
        self.tokenizer = tokenizer
        self.config = config
        self.max_length = config.get("max_length", 1024)
        self.truncation = config.get("truncation", "error")
        self.pad_mode = DatasetPadMode(config.get("pad_mode", "right"))
        self.messages_key = config.get("messages_key", "messages")
        self.tools_key = config.get("tools_key", "tools")
        self.enable_thinking_key = config.get("enable_thinking_key", "enable_thinking")
        self.ignore_input_ids_mismatch = config.get("ignore_input_ids_mismatch", False)
        self.apply_chat_template_kwargs = dict(config.get("apply_chat_template_kwargs", None) or {})
        if self.pad_mode == DatasetPadMode.LEFT_RIGHT:
            raise UnsupportedError("padding on both sides", where="data.pad_mode", remedy="use right or no_padding")
        if self.truncation not in ("error", "left", "right"):
            raise ConfigError(
                "unknown truncation", where="data.truncation", got=self.truncation, expected="error, left, right"
            )
        self.rows = self._read(parquet_files, max_samples)

    def _read(self, files: str | Sequence[str], max_samples: int) -> list[dict[str, Any]]:
        paths = resolve_data_files(files, where=key_of(files, self.config))
        table = read_rows(paths)
        require_column(table.column_names, self.messages_key, paths, "data.messages_key", "the conversations")
        if max_samples == 0:
            raise ConfigError("max_samples is 0, which leaves no row", expected="-1 for all, or a positive number")
        return (table if max_samples < 0 else table.slice(0, max_samples)).to_pylist()

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, item: int) -> dict[str, torch.Tensor]:
        ids, mask = self.tokens_and_mask(self.rows[item], item)
        return self._fit(torch.tensor(ids, dtype=torch.long), torch.tensor(mask, dtype=torch.long), item)

    def tokens_and_mask(self, row: dict[str, Any], item: int) -> tuple[list[int], list[int]]:
        """(ids, loss mask) of a conversation, turn by turn.

        A turn is what one more message adds to the rendering of those before it; of an assistant's turn the
        generation prompt is left out of the loss, and its closing token is in it.
        """
        messages = to_plain(row[self.messages_key])
        if not messages:
            raise DataError("the conversation is empty", where=f"row {item}")
        thinking = row.get(self.enable_thinking_key)
        options = self.apply_chat_template_kwargs | ({} if thinking is None else {"enable_thinking": bool(thinking)})

        def render(part: list[dict[str, Any]], prompt: bool = False) -> list[int]:
            tools = to_plain(row.get(self.tools_key)) or None
            return apply_chat_template(self.tokenizer, part, tools=tools, add_generation_prompt=prompt, **options)

        ids: list[int] = []
        mask: list[int] = []
        before: list[int] = []
        start = 0
        while start < len(messages):
            own = messages[start].get("role") == "assistant"
            end = start + 1 if own else _end_of_input(messages, start)
            whole = render(messages[:end])
            turn = _added(before, whole, lambda: render(messages[:end] + messages[start:end]))  # noqa: B023
            if turn is None or (ids + turn != whole and not self.ignore_input_ids_mismatch):
                raise DataError(
                    "the chat template renders earlier turns differently when a later one is there",
                    where=f"row {item}",
                    remedy="set data.ignore_input_ids_mismatch=True where the difference (dropped thoughts, say) is "
                    "meant: each turn then stands as it did when it was the last",
                )
            opening = 0
            if own and start:
                opening = _shared(render(messages[:start], prompt=True)[len(before) :], turn)
            elif own:
                # Nothing stands before it that could be rendered; the prompt is found inside the turn itself.
                opening = _end_of(extract_system_prompt_and_generation(self.tokenizer)[1], turn)
            ids += turn
            mask += [0] * opening + [1] * (len(turn) - opening) if own else [0] * len(turn)
            start, before = end, whole
        return ids, mask

    def _fit(self, ids: torch.Tensor, mask: torch.Tensor, item: int) -> dict[str, torch.Tensor]:
        length = len(ids)
        if length > self.max_length:
            if self.truncation == "error" and self.pad_mode != DatasetPadMode.NO_PADDING:
                raise DataError(
                    "the conversation is too long",
                    where=f"row {item}",
                    got=f"{length} tokens",
                    expected=f"at most data.max_length={self.max_length}",
                    remedy="raise data.max_length, or set data.truncation",
                )
            from_left = self.truncation == "left" and self.pad_mode != DatasetPadMode.NO_PADDING
            kept = slice(length - self.max_length, length) if from_left else slice(0, self.max_length)
            ids, mask, length = ids[kept], mask[kept], self.max_length
        position = torch.arange(length)
        if self.pad_mode == DatasetPadMode.NO_PADDING:
            return {"input_ids": ids, "position_ids": position, "loss_mask": mask}
        missing = self.max_length - length
        pad = torch.nn.functional.pad
        return {
            "input_ids": pad(ids, (0, missing), value=self.tokenizer.pad_token_id),
            "attention_mask": pad(torch.ones(length, dtype=torch.long), (0, missing)),
            "position_ids": pad(position, (0, missing)),
            "loss_mask": pad(mask, (0, missing)),
        }


def _added(before: list[int], whole: list[int], render_twice: Callable[[], list[int]]) -> list[int] | None:
    """Tokens that a turn adds to `before`, the rendering of the turns before it; None if they cannot be told.

    Where the turn changes earlier ones (a template that drops old thoughts), they are what the conversation gains
    when the turn comes a second time: by then there is nothing left to drop.
    """
    if whole[: len(before)] == before:
        return whole[len(before) :]
    turn = render_twice()[len(whole) :]
    return turn if turn and whole[-len(turn) :] == turn else None


def _end_of_input(messages: Sequence[dict[str, Any]], start: int) -> int:
    """Behind the last message before the assistant speaks: templates may join tool answers into one turn."""
    end = start
    while end < len(messages) and messages[end].get("role") != "assistant":
        end += 1
    return end


def _shared(prompt: list[int], turn: list[int]) -> int:
    """Length of the generation prompt as far as it stands at the head of the turn.

    A prompt that closes an empty thought is longer than what the template puts before an answer without one.
    """
    return next((i for i, (a, b) in enumerate(zip(prompt, turn, strict=False)) if a != b), min(len(prompt), len(turn)))


def _end_of(part: list[int], whole: list[int]) -> int:
    """Position behind the first occurrence of `part`; 0 where it does not occur."""
    for start in range(len(whole) - len(part) + 1):
        if part and whole[start : start + len(part)] == part:
            return start + len(part)
    return 0
