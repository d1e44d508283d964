# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Rows for reinforcement learning: messages and what the scorer needs; tokens are made in the agent loop."""

import asyncio
import logging
import re
import uuid
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch.utils.data import Dataset

from verl.errors import ConfigError, DataError, UnsupportedError
from verl.protocol.columns import object_column
from verl.tools.utils.tool_registry import tool_schemas_from_config
from verl.utils.chat_template import render_prompt
from verl.utils.dataset.files import key_of, read_rows, require_column, resolve_data_files
from verl.utils.dataset.vision_utils import fetch_media
from verl.utils.import_utils import load_extern_object
from verl.utils.plain import to_plain

if TYPE_CHECKING:
    import datasets

__all__ = ["RLHFDataset", "collate_fn", "create_rl_dataset", "get_dataset_class"]

logger = logging.getLogger(__name__)

TEXT_ONLY = "train on text prompts, with tools that answer in text; rows with media may be validated on"

# The token of the message text that stands for one entry of the media column.
_PLACEHOLDER = re.compile("(<image>|<video>)")


def collate_fn(data_list: list[dict[str, Any]]) -> dict[str, Any]:
    """Rows to columns: tensors are stacked, everything else becomes a 1-D object array of one entry a row."""
    keys = dict.fromkeys(key for row in data_list for key in row)
    return {key: _column([row.get(key) for row in data_list]) for key in keys}


def _column(values: list[Any]) -> torch.Tensor | np.ndarray:
    if all(isinstance(value, torch.Tensor) for value in values):
        return torch.stack(values)
    return object_column(values)


class RLHFDataset(Dataset):
    """Prompts from parquet, JSON or JSON lines files.

    A row holds all other columns of the file and `raw_prompt` (messages, media as content parts), `index`,
    `tools_kwargs`, `interaction_kwargs`, `extra_info` (a dict), `dummy_tensor` (uint8, empty: a batch needs one).
    """

    def __init__(
        self,
        data_files: str | Sequence[str],
        tokenizer: Any,
        config: Any,
        processor: Any | None = None,
        max_samples: int = -1,
    ) -> None:
        self.data_files = data_files
        self.tokenizer = tokenizer
        self.processor = processor
        self.config = config
        self.max_samples = max_samples
        self.prompt_key = config.get("prompt_key", "prompt")
        self.image_key = config.get("image_key", "images")
        self.video_key = config.get("video_key", "videos")
        self.max_prompt_length = config.get("max_prompt_length", 1024)
        self.truncation = config.get("truncation", "error")
        self.need_tools_kwargs = config.get("need_tools_kwargs", False)
        self.apply_chat_template_kwargs = dict(config.get("apply_chat_template_kwargs", None) or {})
        self.image_patch_size = config.get("image_patch_size", 14)
        self.tool_schemas = tool_schemas_from_config(config.get("tool_config_path", None))
        self._read_files_and_tokenize()

    def _read_files_and_tokenize(self) -> None:
        # Here and not above: agent workers need this class for its media hook only, and the library takes 2 s to load.
        import datasets

        self.files = resolve_data_files(
            self.data_files,
            where=key_of(self.data_files, self.config),
            cache_dir=self.config.get("cache_dir", None),
            use_shm=self.config.get("use_shm", False),
        )
        self.dataframe = datasets.Dataset(read_rows(self.files))
        self._check_columns()
        self.dataframe = self._choose(self.dataframe)
        if self.config.get("filter_overlong_prompts", False):
            self.dataframe = self.maybe_filter_out_long_prompts(self.dataframe)

    def _check_columns(self) -> None:
        require_column(self.dataframe.column_names, self.prompt_key, self.files, "data.prompt_key", "the messages")

    def _choose(self, dataframe: "datasets.Dataset") -> "datasets.Dataset":
        total = len(dataframe)
        if self.max_samples == 0:
            raise ConfigError("max_samples is 0, which leaves no row", expected="-1 for all, or a positive number")
        if self.max_samples < 0 or self.max_samples >= total:
            return dataframe
        if self.config.get("shuffle", False):
            generator = np.random.default_rng(self.config.get("seed", None))
            rows = generator.choice(total, size=self.max_samples, replace=False).tolist()
        else:
            rows = list(range(self.max_samples))
        logger.info("%d of %d rows are used (max_samples)", self.max_samples, total)
        return dataframe.select(rows)

    def maybe_filter_out_long_prompts(self, dataframe: "datasets.Dataset | None" = None) -> "datasets.Dataset":
        """Keep the rows whose prompt, tools and template options included, fits `data.max_prompt_length` tokens."""
        dataframe = self.dataframe if dataframe is None else dataframe
        workers = self.config.get("filter_overlong_prompts_workers", 1) or 1
        kept = dataframe.filter(
            lambda row, index: self.prompt_length(row, index) <= self.max_prompt_length,
            with_indices=True,
            num_proc=workers if workers > 1 else None,
            # Given, so that the library does not hash the tokenizer and all rows to find a name for its cache.
            new_fingerprint=uuid.uuid4().hex,
        )
        if len(kept) < len(dataframe):
            logger.info("%d of %d prompts are longer than %d tokens and left out",
                        len(dataframe) - len(kept), len(dataframe), self.max_prompt_length)  # fmt: skip
        if len(kept) == 0:
            raise DataError(
                "every prompt is too long",
                where=", ".join(self.files),
                expected=f"at most {self.max_prompt_length} tokens",
                remedy="raise data.max_prompt_length",
            )
        return kept

    def media_column(self) -> str | None:
        """The column that holds an image or a video in some row, without decoding it."""
        for key in (self.image_key, self.video_key):
            if key in self.dataframe.column_names:
                column = self.dataframe.with_format("arrow")[key]
                column = column[:] if hasattr(column, "source") else column
                lists = pa.types.is_list(column.type) or pa.types.is_large_list(column.type)
                number = pc.sum(pc.list_value_length(column)).as_py() if lists else len(column) - column.null_count
                if number:
                    return key
        return None

    def prompt_length(self, row: dict[str, Any], index: int) -> int:
        """Tokens that the rollout will send for a row of the file."""
        messages = self._build_messages(row, index)
        images, videos = fetch_media(messages, self.image_patch_size)
        return len(
            render_prompt(
                self.tokenizer,
                self.processor,
                messages,
                tools=self.tool_schemas,
                images=images,
                videos=videos,
                template_kwargs=self.apply_chat_template_kwargs,
            )
        )

    def resume_dataset_state(self) -> None:
        """Read the files again after unpickling without the rows."""
        if not hasattr(self, "dataframe"):
            self._read_files_and_tokenize()

    def __len__(self) -> int:
        return len(self.dataframe)

    def __getitem__(self, item: int) -> dict[str, Any]:
        row = to_plain(self.dataframe[int(item)])
        messages = self._build_messages(row, item)
        extra_info = row.get("extra_info") or {}
        row = {key: value for key, value in row.items() if key not in (self.prompt_key, self.image_key, self.video_key)}
        tools_kwargs = {
            name: kwargs for name, kwargs in (extra_info.get("tools_kwargs") or {}).items() if kwargs is not None
        }
        if extra_info.get("need_tools_kwargs", self.need_tools_kwargs) and not tools_kwargs:
            logger.warning("row %s of %s needs tools_kwargs and has none", item, row.get("data_source"))
        return row | {
            "raw_prompt": messages,
            "extra_info": extra_info,
            "index": extra_info.get("index") or 0,
            "tools_kwargs": tools_kwargs,
            "interaction_kwargs": extra_info.get("interaction_kwargs") or {},
            "dummy_tensor": torch.zeros(0, dtype=torch.uint8),
        }

    def _build_messages(self, example: dict[str, Any], index: int) -> list[dict[str, Any]]:
        """Messages of a row; where it has a media column, `<image>` and `<video>` become its media, in order."""
        messages = to_plain(example[self.prompt_key])
        if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
            raise DataError(
                "the prompt is no list of messages",
                where=f"row {index}, column {self.prompt_key}",
                got=type(messages).__name__,
                expected='[{"role": ..., "content": ...}, ...]',
            )
        media = {
            token: _media_parts(example[key], kind)
            for token, key, kind in (("<image>", self.image_key, "image"), ("<video>", self.video_key, "video"))
            if key in example
        }
        wanted = Counter(token for message in messages for token in _placeholders(message))
        for token, parts in media.items():
            if wanted[token] != len(parts):
                raise DataError(
                    f"the text has {wanted[token]} {token} and the row {len(parts)} of them", where=f"row {index}"
                )
        return [_with_media(message, media) for message in messages]

    @classmethod
    async def process_vision_info(
        cls, messages: list[dict[str, Any]], image_patch_size: int = 14, config: Any | None = None
    ) -> tuple[list[Any] | None, list[Any] | None]:
        """Images and videos of messages, decoded; a custom data set overrides this."""
        # Decoding takes long enough to hold up the other trajectories of this process.
        return await asyncio.to_thread(fetch_media, messages, image_patch_size)

    def split(self, num_splits: int) -> list["RLHFDataset"]:
        """Equal consecutive parts; the remainder of the division is left out."""
        if not 1 <= num_splits <= len(self):
            raise ConfigError("cannot split", got=num_splits, expected=f"between 1 and {len(self)} parts")
        size = len(self) // num_splits
        return [self._part(range(start, start + size)) for start in range(0, size * num_splits, size)]

    def _part(self, rows: range) -> "RLHFDataset":
        part = object.__new__(type(self))
        part.__dict__.update(self.__dict__)
        part.dataframe = self.dataframe.select(rows)
        return part


def _placeholders(message: dict[str, Any]) -> list[str]:
    content = message.get("content")
    return _PLACEHOLDER.findall(content) if isinstance(content, str) else []


def _media_parts(column: Any, kind: str) -> list[dict[str, Any]]:
    """Content parts of a media column; None, [] and a missing column mean none."""
    items = column if isinstance(column, list | tuple) else [] if column is None else [column]
    return [item if isinstance(item, dict) and "type" in item else {"type": kind, kind: item} for item in items]


def _with_media(message: dict[str, Any], media: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    if not any(token in media for token in _placeholders(message)):
        return dict(message)
    segments = filter(None, _PLACEHOLDER.split(message["content"]))
    parts = [media[text].pop(0) if text in media else {"type": "text", "text": text} for text in segments]
    return message | {"content": parts}


class SizedDataset(Protocol):
    """What is asked of a data set: its rows by number, and how many there are."""

    def __getitem__(self, index: int, /) -> Any: ...

    def __len__(self) -> int: ...


def get_dataset_class(data_config: Any) -> type[Dataset]:
    """The class of `data.custom_cls` if that is set, else `RLHFDataset`."""
    if (data_config.get("datagen", None) or {}).get("path", None):
        raise UnsupportedError(
            "data that is generated while training",
            where="data.datagen",
            remedy="write a Dataset with on_batch_end and name it in data.custom_cls",
        )
    custom = data_config.get("custom_cls", None) or {}
    if custom.get("path", None):
        cls = load_extern_object(custom["path"], custom["name"])
        if not (isinstance(cls, type) and issubclass(cls, Dataset)):
            raise ConfigError(
                "not a torch Dataset",
                where="data.custom_cls",
                got=cls,
                expected="a subclass of torch.utils.data.Dataset",
            )
        return cls
    return RLHFDataset


def create_rl_dataset(
    data_paths: str | Sequence[str] | None,
    data_config: Any,
    tokenizer: Any,
    processor: Any | None,
    is_train: bool = True,
    max_samples: int = -1,
) -> SizedDataset:
    """The data set of a run, of the configured class; training rows with images or videos are refused."""
    # Its constructor is a convention (docs: custom data sets), not a part of torch's Dataset.
    cls: Any = get_dataset_class(data_config)
    dataset = cls(
        data_files=data_paths, tokenizer=tokenizer, processor=processor, config=data_config, max_samples=max_samples
    )
    # A class of somebody's own may belong to an engine that learns from images.
    if is_train and cls is RLHFDataset and (column := dataset.media_column()):
        raise UnsupportedError(
            "training on images or videos is not part of this package",
            where=f"column {column} of {', '.join(dataset.files)}",
            remedy=TEXT_ONLY,
        )
    return dataset
