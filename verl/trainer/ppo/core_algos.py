# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Public path of the algorithms: `verl.algorithms`."""

from verl.algorithms.advantages import (
    ADV_ESTIMATOR_REGISTRY,
    AdvantageEstimator,
    get_adv_estimator_fn,
    register_adv_est,
)
from verl.algorithms.advantages.gae import compute_gae_advantage_return
from verl.algorithms.advantages.grpo import (
    compute_gdpo_outcome_advantage,
    compute_grpo_outcome_advantage,
    compute_grpo_passk_outcome_advantage,
    compute_grpo_vectorized_outcome_advantage,
)
from verl.algorithms.advantages.optimal_baseline import (
    compute_multi_turn_optimal_token_baseline_advantage,
    compute_optimal_token_baseline_advantage,
)
from verl.algorithms.advantages.reinforce import (
    compute_gpg_outcome_advantage,
    compute_opo_outcome_advantage,
    compute_reinforce_plus_plus_baseline_outcome_advantage,
    compute_reinforce_plus_plus_outcome_advantage,
    compute_remax_outcome_advantage,
    compute_rloo_outcome_advantage,
    compute_rloo_vectorized_outcome_advantage,
)
from verl.algorithms.advantages.reweight import compute_pf_ppo_reweight_data
from verl.algorithms.aggregate import agg_loss
from verl.algorithms.kl import (
    AdaptiveKLController,
    FixedKLController,
    compute_rewards,
    get_kl_controller,
    kl_penalty,
    kl_penalty_forward,
)
from verl.algorithms.policy_losses import (
    POLICY_LOSS_REGISTRY,
    get_policy_loss_fn,
    register_policy_loss,
)
from verl.algorithms.policy_losses.bypass import compute_policy_loss_bypass_mode
from verl.algorithms.policy_losses.covariance import (
    compute_policy_loss_clip_cov,
    compute_policy_loss_kl_cov,
)
from verl.algorithms.policy_losses.ppo import (
    compute_entropy_loss,
    compute_policy_loss,
    compute_policy_loss_vanilla,
)
from verl.algorithms.policy_losses.reinforce import (
    compute_policy_loss_gpg,
    compute_policy_loss_reinforce,
)
from verl.algorithms.policy_losses.sequence import (
    compute_policy_loss_geo_mean,
    compute_policy_loss_gspo,
)
from verl.algorithms.policy_losses.soft import (
    compute_policy_loss_cispo,
    compute_policy_loss_sapo,
)
from verl.algorithms.policy_losses.trust_region import (
    compute_policy_loss_dppo_kl,
    compute_policy_loss_dppo_tv,
)
from verl.algorithms.value_loss import compute_value_loss

__all__ = [
    "ADV_ESTIMATOR_REGISTRY",
    "POLICY_LOSS_REGISTRY",
    "AdaptiveKLController",
    "AdvantageEstimator",
    "FixedKLController",
    "agg_loss",
    "compute_entropy_loss",
    "compute_gae_advantage_return",
    "compute_gdpo_outcome_advantage",
    "compute_gpg_outcome_advantage",
    "compute_grpo_outcome_advantage",
    "compute_grpo_passk_outcome_advantage",
    "compute_grpo_vectorized_outcome_advantage",
    "compute_multi_turn_optimal_token_baseline_advantage",
    "compute_opo_outcome_advantage",
    "compute_optimal_token_baseline_advantage",
    "compute_pf_ppo_reweight_data",
    "compute_policy_loss",
    "compute_policy_loss_bypass_mode",
    "compute_policy_loss_cispo",
    "compute_policy_loss_clip_cov",
    "compute_policy_loss_dppo_kl",
    "compute_policy_loss_dppo_tv",
    "compute_policy_loss_geo_mean",
    "compute_policy_loss_gpg",
    "compute_policy_loss_gspo",
    "compute_policy_loss_kl_cov",
    "compute_policy_loss_reinforce",
    "compute_policy_loss_sapo",
    "compute_policy_loss_vanilla",
    "compute_reinforce_plus_plus_baseline_outcome_advantage",
    "compute_reinforce_plus_plus_outcome_advantage",
    "compute_remax_outcome_advantage",
    "compute_rewards",
    "compute_rloo_outcome_advantage",
    "compute_rloo_vectorized_outcome_advantage",
    "compute_value_loss",
    "get_adv_estimator_fn",
    "get_kl_controller",
    "get_policy_loss_fn",
    "kl_penalty",
    "kl_penalty_forward",
    "register_adv_est",
    "register_policy_loss",
]
