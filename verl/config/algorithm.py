# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Advantages, KL control, rollout correction."""

from dataclasses import dataclass, field

from verl.config.checks import at_least, between, one_of, refuse, require
from verl.config.node import Node
from verl.config.rollout_correction import RolloutCorrectionConfig


@dataclass(frozen=True)
class KLControlConfig(Node):
    """The coefficient of the KL penalty in the reward."""

    type: str = "fixed"
    """fixed, or adaptive (Ziegler et al. 2019)."""
    kl_coef: float = 0.001
    """Coefficient, or its start where adaptive."""
    horizon: int = 10000
    """Trajectories over which the adaptive coefficient moves, ≥ 1."""
    target_kl: float = 0.1
    """KL that the adaptive coefficient aims at, nats."""

    def __post_init__(self) -> None:
        one_of(self, "type", ("fixed", "adaptive"))
        at_least(self, 1, "horizon")


@dataclass(frozen=True)
class PfPpoConfig(Node):
    """Resampling of a batch by score (PF-PPO, arXiv 2409.06957)."""

    reweight_method: str = "pow"
    """pow (|score|^weight_pow), max_min (best and worst only), max_random (0.4 for the best, 0.1 for others)."""
    weight_pow: float = 2.0
    """Exponent of pow, ≥ 0."""

    def __post_init__(self) -> None:
        one_of(self, "reweight_method", ("pow", "max_min", "max_random"))
        at_least(self, 0, "weight_pow")


@dataclass(frozen=True)
class FilterGroupsConfig(Node):
    """Groups whose trajectories all score the same carry no signal (DAPO's dynamic sampling)."""

    enable: bool = False
    """Refused when true."""
    metric: str | None = None
    """Without effect."""
    max_num_gen_batches: int = 0
    """Without effect."""

    def __post_init__(self) -> None:
        refuse(
            self.enable, "enable", "dynamic sampling of groups", "write it as a recipe on trainer/ppo/batch_source.py"
        )


@dataclass(frozen=True)
class AlgoConfig(Node):
    """From rewards to advantages."""

    gamma: float = 1.0
    """Discount per token, 0 to 1."""
    lam: float = 1.0
    """Trade-off of GAE, 0 to 1."""
    adv_estimator: str = "gae"
    """Name in the advantage registry: gae, grpo, rloo, reinforce_plus_plus …"""
    norm_adv_by_std_in_grpo: bool = True
    """Divide by the group's standard deviation; false is Dr.GRPO."""
    use_kl_in_reward: bool = False
    """Subtract the KL penalty from the reward."""
    kl_penalty: str = "kl"
    """Estimator of that KL: kl (k1), abs, mse (k2), low_var_kl (k3); with + the gradient of k2."""
    kl_ctrl: KLControlConfig = field(default_factory=KLControlConfig)
    """Its coefficient."""
    use_pf_ppo: bool = False
    """Train on rows drawn from the batch by score, with replacement; with adv_estimator=gae."""
    pf_ppo: PfPpoConfig = field(default_factory=PfPpoConfig)
    """How that draws."""
    filter_groups: FilterGroupsConfig | None = None
    """Dynamic sampling, left out; null: off."""
    rollout_correction: RolloutCorrectionConfig | None = field(default_factory=RolloutCorrectionConfig.disabled)
    """Correction of the mismatch between the policy that generated and the one that trains; null: off."""
    gdpo_reward_keys: list[str] | None = None
    """Reward components that GDPO normalises apart."""
    gdpo_reward_weights: list[float] | None = None
    """Their weights."""

    def __post_init__(self) -> None:
        between(self, 0, 1, "gamma", "lam")
        # A group with rows drawn twice or left out is not the group whose mean and spread were meant.
        require(
            not self.use_pf_ppo or self.adv_estimator == "gae",
            "use_pf_ppo",
            f"true with adv_estimator={self.adv_estimator}",
            "adv_estimator=gae",
            remedy="set algorithm.adv_estimator=gae, or use_pf_ppo=false",
        )
        keys, weights = self.gdpo_reward_keys, self.gdpo_reward_weights
        if keys is not None and weights is not None:
            require(
                len(keys) == len(weights), "gdpo_reward_weights", len(weights), f"as many as reward keys ({len(keys)})"
            )
