# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""What travels between a rollout server and its callers."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from verl.errors import TransportError


class RolloutMode(Enum):
    """Where the engine lives."""

    HYBRID = "hybrid"
    """In the same processes' devices as training: sleeps while training."""
    COLOCATED = "colocated"
    """On the same devices, but in processes of its own (reward model)."""
    STANDALONE = "standalone"
    """On devices of its own."""


class VersionSpan(NamedTuple):
    """Output tokens `start` to `end` (excluded) were produced by policy `version`."""

    version: int
    start: int
    end: int


@dataclass
class TokenOutput:
    """Answer to one request: tokens in, tokens out.

    `log_probs[i]` belongs to `token_ids[i]`, after temperature, top-k and top-p ("processed").
    `stop_reason` is "completed", "aborted", or the engine's own word where it is neither.
    `extra_fields`: `global_steps` (policy version of the last token), `finish_reason` (the engine's word), and
    `token_versions` (list of `VersionSpan`) where more than one version took part.
    """

    token_ids: list[int]
    log_probs: list[float] | None = None
    routed_experts: Any | None = None
    stop_reason: str | None = None
    num_preempted: int | None = None
    extra_fields: dict[str, Any] = field(default_factory=dict)

    @property
    def aborted(self) -> bool:
        return self.stop_reason in ("aborted", "abort")


class StaleWeights(TransportError):
    """A weight update failed half way: the server refuses to generate until a full update succeeds."""


def version_of_each_token(output: TokenOutput) -> list[int]:
    """Policy version of each token of one server answer."""
    count = len(output.token_ids)
    spans: Sequence[VersionSpan] = output.extra_fields.get("token_versions") or ()
    versions = [int(output.extra_fields.get("global_steps", -1))] * count
    for version, start, end in spans:
        versions[start:end] = [int(version)] * (min(end, count) - start)
    return versions
