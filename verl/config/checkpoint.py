# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""What a checkpoint contains."""

from dataclasses import dataclass, field
from typing import Any

from verl.config.checks import refuse, require
from verl.config.node import Node

CONTENTS = ("model", "optimizer", "extra", "hf_model")


def _default_contents() -> list[str]:
    return ["model", "optimizer", "extra"]


@dataclass(frozen=True)
class CheckpointConfig(Node):
    """Parts that are saved and loaded: model, optimizer, extra (schedule, random state), hf_model (full weights)."""

    save_contents: list[str] = field(default_factory=_default_contents)
    """Parts that a checkpoint holds."""
    load_contents: list[str] = field(default_factory=_default_contents)
    """Parts that a resume reads."""
    async_save: bool = False
    """Megatron's asynchronous save, left out."""
    mbridge_config: dict[str, Any] = field(default_factory=dict)
    """Megatron's; without effect here."""

    def __post_init__(self) -> None:
        for name in ("save_contents", "load_contents"):
            unknown = [part for part in getattr(self, name) if part not in CONTENTS]
            require(not unknown, name, unknown, "parts out of " + ", ".join(CONTENTS))
        refuse(self.async_save, "async_save", "asynchronous checkpointing (Megatron)", "set async_save=false")
