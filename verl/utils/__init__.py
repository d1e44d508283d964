# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Small helpers; the names that need transformers load only when they are used."""

import importlib
from typing import Any

# The one place where F0 answers for a higher room, so that `from verl.utils import hf_tokenizer` goes on working.
_HOMES = {
    "hf_tokenizer": "verl.utils.tokenizer",
    "hf_processor": "verl.utils.tokenizer",
    "normalize_token_ids": "verl.utils.tokenizer",
    "omega_conf_to_dataclass": "verl.utils.config",
    "validate_config": "verl.utils.config",
    "as_torch_index": "verl.utils.groupwise",
    "group_mean_std": "verl.utils.groupwise",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'verl.utils' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
