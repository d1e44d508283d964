# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""What comes out of generation: ragged trajectories, and the few facts about a group that travel ahead of them.

No torch here: a group travels as NumPy arrays and is padded once, where a batch is assembled.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from verl.errors import DataError


@dataclass(frozen=True)
class Trajectory:
    """One answer to one prompt, perhaps over many turns; nothing is padded.

    All arrays of the response have one length; where `response_mask` is False (tool and user tokens), `log_probs`
    is 0 and `token_versions` is -1.
    """

    uid: str
    prompt_ids: np.ndarray
    """[P] int32"""
    response_ids: np.ndarray
    """[T] int32"""
    response_mask: np.ndarray
    """[T] bool, True on tokens of the policy"""
    log_probs: np.ndarray | None
    """[T] float32, of the behaviour policy after temperature and truncation; None where none were asked for"""
    token_versions: np.ndarray
    """[T] int32, policy version that produced each token"""
    reward_score: float | None = None
    """None until scored, and where scoring failed"""
    reward_error: str | None = None
    reward_extra_info: dict[str, Any] = field(default_factory=dict)
    num_turns: int = 0
    stop_reason: str | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    """generate_sequences, tool_calls, compute_score (s), num_preempted"""
    extra_fields: dict[str, Any] = field(default_factory=dict)
    row: dict[str, Any] = field(default_factory=dict)
    """The row of the data set; shared by all trajectories of a group"""
    multi_modal_data: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        lengths = {
            name: len(array)
            for name in ("response_ids", "response_mask", "log_probs", "token_versions")
            if (array := getattr(self, name)) is not None
        }
        if len(set(lengths.values())) != 1:
            raise DataError("per-token arrays of different length", where=f"trajectory of {self.uid}", got=lengths)

    @property
    def aborted(self) -> bool:
        """Cut by a weight update and not continued."""
        return self.stop_reason in ("aborted", "abort")

    @property
    def num_bytes(self) -> int:
        """Bytes of the arrays."""
        arrays = (self.prompt_ids, self.response_ids, self.response_mask, self.token_versions, self.log_probs)
        return sum(array.nbytes for array in arrays if array is not None)

    @property
    def versions(self) -> tuple[int, int]:
        """(first, last) policy version of its own tokens; what the server said where it produced none."""
        own = self.token_versions[self.response_mask]
        if own.size:
            return int(own.min()), int(own.max())
        version = self.extra_fields.get("max_global_steps", -1)
        return int(self.extra_fields.get("min_global_steps", version)), int(version)


@dataclass(frozen=True)
class GroupMeta:
    """Facts about the trajectories of one prompt; small, plain, and sent ahead of them.

    Tuples hold one entry per trajectory.
    """

    uid: str
    num_trajectories: int
    prompt_length: int
    response_lengths: tuple[int, ...]
    rewards: tuple[float | None, ...]
    reward_errors: tuple[str | None, ...]
    min_versions: tuple[int, ...]
    max_versions: tuple[int, ...]
    generate_s: tuple[float, ...]
    aborted: bool
    """Whether any trajectory was cut by a weight update and not continued"""
    dropped: str | None
    """Why the group must not be trained (its scoring failed), or None"""
    payload_bytes: int
    timings: dict[str, float]
    """generate_s, tool_s, score_s: the longest of the group"""

    @property
    def min_version(self) -> int:
        return min(self.min_versions)

    @property
    def max_version(self) -> int:
        return max(self.max_versions)


def describe_group(uid: str, trajectories: Sequence[Trajectory], dropped: str | None = None) -> GroupMeta:
    """The meta data of a finished group; `dropped` is the reason to leave it out, if there is one."""
    spans = [item.versions for item in trajectories]
    longest = (("generate_s", "generate_sequences"), ("tool_s", "tool_calls"), ("score_s", "compute_score"))
    return GroupMeta(
        uid=uid,
        num_trajectories=len(trajectories),
        prompt_length=len(trajectories[0].prompt_ids),
        response_lengths=tuple(len(item.response_ids) for item in trajectories),
        rewards=tuple(item.reward_score for item in trajectories),
        reward_errors=tuple(item.reward_error for item in trajectories),
        min_versions=tuple(first for first, _ in spans),
        max_versions=tuple(last for _, last in spans),
        generate_s=tuple(float(item.metrics.get("generate_sequences", 0.0)) for item in trajectories),
        aborted=any(item.aborted for item in trajectories),
        dropped=dropped,
        payload_bytes=sum(item.num_bytes for item in trajectories),
        timings={name: max(float(item.metrics.get(key, 0.0)) for item in trajectories) for name, key in longest},
    )
