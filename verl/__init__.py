# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""verl: reinforcement-learning post-training for language models.

`import verl` is light: torch, Ray, transformers and vLLM load only when a name that needs them is used.
"""

from typing import TYPE_CHECKING, Any

from verl import compat

if TYPE_CHECKING:
    from verl.protocol import DataProto

__version__ = "0.1.0"
__all__ = ["DataProto", "__version__"]

compat.install()


def __getattr__(name: str) -> Any:
    # Control processes (front door, task runner, message queue) never touch a tensor;
    # loading torch there would cost each of them seconds and 0.3 GB.
    if name == "DataProto":
        from verl.protocol import DataProto

        return DataProto
    raise AttributeError(f"module 'verl' has no attribute {name!r}")
