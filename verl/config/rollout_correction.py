# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Rollout correction: importance weights, rejection, bypass; and presets with a name."""

from dataclasses import dataclass

from verl.config.checks import one_of, require
from verl.config.node import Node

REJECTION_NAMES = (
    *(f"token_k{k}" for k in (1, 2, 3)),
    *(f"seq_{how}_k{k}" for how in ("sum", "mean") for k in (1, 2, 3)),
    *(f"seq_max_k{k}" for k in (2, 3)),
)
GEOMETRIC_BAND = "0.999_1.001"

Threshold = float | str | None


@dataclass(frozen=True)
class RolloutCorrectionConfig(Node):
    """Off-policy correction between the behaviour policy (rollout) and the policy that trains.

    decoupled: the trainer computes the proximal log-probs itself; bypass: the rollout's log-probs stand for them.
    """

    rollout_is: str | None = "sequence"
    """Importance weights: null, token, sequence."""
    rollout_is_threshold: float | str = 2.0
    """A number truncates from above; "low_high" zeroes weights outside (IcePop)."""
    rollout_is_batch_normalize: bool = False
    """Divide the weights by their mean over the batch."""
    rollout_rs: str | None = None
    """Rejection masks, a comma list of token_k1 … seq_max_k3; null: none."""
    rollout_rs_threshold: Threshold = None
    """Bound per mask: for k1 "low_high" of the ratio (or the upper bound), for k2 and k3 the upper bound."""
    bypass_mode: bool = False
    """The rollout's log-probs are the old log-probs; no second forward pass."""
    loss_type: str = "ppo_clip"
    """In bypass mode: ppo_clip, or reinforce with importance weights."""

    def __post_init__(self) -> None:
        one_of(self, "rollout_is", (None, "token", "sequence"))
        one_of(self, "loss_type", ("ppo_clip", "reinforce"))
        for name in (self.rollout_rs or "").replace(" ", "").split(","):
            require(
                name == "" or name in REJECTION_NAMES, "rollout_rs", name, "names out of " + ", ".join(REJECTION_NAMES)
            )

    @classmethod
    def disabled(cls) -> "RolloutCorrectionConfig":
        """Nothing is corrected; the mismatch is still measured."""
        return cls(rollout_is=None)

    @classmethod
    def decoupled_token_is(cls, threshold: float = 2.0) -> "RolloutCorrectionConfig":
        """Truncated importance weight per token."""
        return cls(rollout_is="token", rollout_is_threshold=threshold)

    @classmethod
    def decoupled_seq_is(cls, threshold: float = 2.0) -> "RolloutCorrectionConfig":
        """Truncated importance weight per sequence."""
        return cls(rollout_is="sequence", rollout_is_threshold=threshold)

    @classmethod
    def decoupled_token_icepop(cls, threshold: float = 5.0, threshold_lower: float = 0.5) -> "RolloutCorrectionConfig":
        """Importance weight per token, zero outside the band."""
        return cls(rollout_is="token", rollout_is_threshold=f"{threshold_lower}_{threshold}")

    @classmethod
    def decoupled_seq_is_rs(
        cls, is_threshold: float = 2.0, rs_threshold: Threshold = "0.5_2.0"
    ) -> "RolloutCorrectionConfig":
        """Sequence weights, and sequences outside the ratio band rejected."""
        return cls("sequence", is_threshold, rollout_rs="seq_sum_k1", rollout_rs_threshold=rs_threshold)

    @classmethod
    def decoupled_geo_rs(cls, rs_threshold: Threshold = GEOMETRIC_BAND) -> "RolloutCorrectionConfig":
        """Sequences whose geometric mean ratio leaves the band are rejected."""
        return cls(rollout_is=None, rollout_rs="seq_mean_k1", rollout_rs_threshold=rs_threshold)

    @classmethod
    def decoupled_geo_rs_seq_tis(
        cls, is_threshold: float = 2.0, rs_threshold: Threshold = GEOMETRIC_BAND
    ) -> "RolloutCorrectionConfig":
        """Geometric rejection and truncated sequence weights."""
        return cls("sequence", is_threshold, rollout_rs="seq_mean_k1", rollout_rs_threshold=rs_threshold)

    @classmethod
    def decoupled_geo_rs_token_tis(
        cls, is_threshold: float = 2.0, rs_threshold: Threshold = GEOMETRIC_BAND
    ) -> "RolloutCorrectionConfig":
        """Geometric rejection and truncated token weights."""
        return cls("token", is_threshold, rollout_rs="seq_mean_k1", rollout_rs_threshold=rs_threshold)

    @classmethod
    def decoupled_k3_rs(cls, rs_threshold: float = 0.01) -> "RolloutCorrectionConfig":
        """Sequences whose mean k3 exceeds the bound are rejected."""
        return cls(rollout_is=None, rollout_rs="seq_mean_k3", rollout_rs_threshold=rs_threshold)

    @classmethod
    def decoupled_k3_rs_seq_tis(
        cls, is_threshold: float = 2.0, rs_threshold: float = 0.01
    ) -> "RolloutCorrectionConfig":
        """k3 rejection and truncated sequence weights."""
        return cls("sequence", is_threshold, rollout_rs="seq_mean_k3", rollout_rs_threshold=rs_threshold)

    @classmethod
    def decoupled_k3_rs_token_tis(
        cls, is_threshold: float = 2.0, rs_threshold: float = 0.01
    ) -> "RolloutCorrectionConfig":
        """k3 rejection and truncated token weights."""
        return cls("token", is_threshold, rollout_rs="seq_mean_k3", rollout_rs_threshold=rs_threshold)

    @classmethod
    def bypass_ppo_clip(cls) -> "RolloutCorrectionConfig":
        """PPO against the behaviour policy; the clipped ratio is the whole correction."""
        return cls(rollout_is=None, bypass_mode=True, loss_type="ppo_clip")

    @classmethod
    def bypass_ppo_clip_geo_rs(cls, rs_threshold: Threshold = GEOMETRIC_BAND) -> "RolloutCorrectionConfig":
        """The same, with geometric rejection."""
        return cls(None, rollout_rs="seq_mean_k1", rollout_rs_threshold=rs_threshold, bypass_mode=True)

    @classmethod
    def bypass_ppo_clip_k3_rs(cls, rs_threshold: float = 0.01) -> "RolloutCorrectionConfig":
        """The same, with k3 rejection."""
        return cls(None, rollout_rs="seq_mean_k3", rollout_rs_threshold=rs_threshold, bypass_mode=True)

    @classmethod
    def bypass_pg_is(cls, threshold: float = 2.0) -> "RolloutCorrectionConfig":
        """Policy gradient with truncated sequence weights."""
        return cls("sequence", threshold, bypass_mode=True, loss_type="reinforce")

    @classmethod
    def bypass_pg_token_icepop(cls, threshold: float = 5.0, threshold_lower: float = 0.5) -> "RolloutCorrectionConfig":
        """Policy gradient with token weights, zero outside the band."""
        return cls("token", f"{threshold_lower}_{threshold}", bypass_mode=True, loss_type="reinforce")

    @classmethod
    def bypass_pg_geo_rs(cls, rs_threshold: Threshold = GEOMETRIC_BAND) -> "RolloutCorrectionConfig":
        """Policy gradient with geometric rejection."""
        return cls(
            None,
            rollout_rs="seq_mean_k1",
            rollout_rs_threshold=rs_threshold,
            bypass_mode=True,
            loss_type="reinforce",
        )

    @classmethod
    def bypass_pg_geo_rs_seq_tis(
        cls, is_threshold: float = 2.0, rs_threshold: Threshold = GEOMETRIC_BAND
    ) -> "RolloutCorrectionConfig":
        """Policy gradient with geometric rejection and truncated sequence weights."""
        return cls("sequence", is_threshold, False, "seq_mean_k1", rs_threshold, True, "reinforce")

    @classmethod
    def bypass_pg_geo_rs_token_tis(
        cls, is_threshold: float = 2.0, rs_threshold: Threshold = GEOMETRIC_BAND
    ) -> "RolloutCorrectionConfig":
        """Policy gradient with geometric rejection and truncated token weights."""
        return cls("token", is_threshold, False, "seq_mean_k1", rs_threshold, True, "reinforce")
