# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Pairs of a better and a worse answer, for reward models."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from verl.errors import ConfigError, DataError
from verl.utils.dataset.files import read_rows, resolve_data_files
from verl.utils.tokenizer import hf_tokenizer

__all__ = ["RMDataset"]


class RMDataset(Dataset):
    """A row is `input_ids` and `attention_mask` [2, max_length]: the chosen answer, then the rejected one.

    A text longer than `max_length` tokens loses its end; `add_eos` closes a text that was not cut.
    """

    def __init__(
        self,
        parquet_files: str | Sequence[str],
        tokenizer: Any,
        prompt_key: str = "prompt",
        chosen_key: str = "chosen",
        rejected_key: str = "rejected",
        max_length: int = 1024,
        add_eos: bool = True,
        cache_dir: str = "~/.cache/verl/rm",
        max_samples: int = -1,
        shuffle: bool = False,
        seed: int | None = None,
    ) -> None:
        self.tokenizer = hf_tokenizer(tokenizer) if isinstance(tokenizer, str) else tokenizer
        self.max_length = max_length
        self.add_eos = add_eos
        paths = resolve_data_files(parquet_files, cache_dir=cache_dir)
        table = read_rows(paths)
        missing = [key for key in (prompt_key, chosen_key, rejected_key) if key not in table.column_names]
        if missing:
            raise DataError(f"no columns {missing}", where=", ".join(paths), got=table.column_names)
        if max_samples == 0:
            raise ConfigError("max_samples is 0, which leaves no row", expected="-1 for all, or a positive number")
        rows = range(table.num_rows)
        if 0 < max_samples < table.num_rows:
            generator = np.random.default_rng(seed)
            chosen = (
                generator.choice(table.num_rows, size=max_samples, replace=False) if shuffle else rows[:max_samples]
            )
            table = table.take(list(map(int, chosen)))
        self.prompts, self.chosen, self.rejected = (
            table[key].to_pylist() for key in (prompt_key, chosen_key, rejected_key)
        )

    def __len__(self) -> int:
        return len(self.prompts)

    def __getitem__(self, item: int) -> dict[str, torch.Tensor]:
        texts = [self.prompts[item] + answer[item] for answer in (self.chosen, self.rejected)]
        rows = [self._row(text) for text in texts]
        return {
            "input_ids": torch.stack([ids for ids, _ in rows]),
            "attention_mask": torch.stack([mask for _, mask in rows]),
        }

    def _row(self, text: str) -> tuple[torch.Tensor, torch.Tensor]:
        ids = self.tokenizer.encode(text, add_special_tokens=False)
        if self.add_eos:
            ids = [*ids, self.tokenizer.eos_token_id]
        ids = ids[: self.max_length]
        missing = self.max_length - len(ids)
        padded = torch.tensor([*ids, *[self.tokenizer.pad_token_id] * missing], dtype=torch.long)
        return padded, torch.tensor([1] * len(ids) + [0] * missing, dtype=torch.long)
