# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""A tokenizer that loads when it is used: reward workers usually get texts and never need one."""

from typing import Any


class LazyTokenizer:
    """Stands for the model's tokenizer; the first use of any attribute loads it (and transformers, and torch)."""

    def __init__(self, model_config: Any) -> None:
        self._model_config = model_config
        self._loaded: Any = None

    def load(self) -> Any:
        if self._loaded is None:
            from verl.utils.tokenizer import load_tokenizer_and_processor

            self._loaded, _ = load_tokenizer_and_processor(self._model_config)
        return self._loaded

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.load(), name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.load()(*args, **kwargs)

    def __len__(self) -> int:
        return len(self.load())
