# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Correction put on a batch: decoupled and bypass, by the public path."""

import math

import pytest
import torch

from verl.errors import ConfigError, DataError
from verl.protocol import DataProto
from verl.trainer.ppo.rollout_corr_helper import (
    apply_bypass_mode,
    apply_rollout_correction,
    compute_rollout_correction_and_add_to_batch,
    compute_rollout_correction_and_rejection_mask,
)


def batch() -> DataProto:
    rollout = torch.tensor([[-1.0, -1.0, -1.0], [-0.5, -0.5, -9.0]])
    shift = torch.tensor([[0.1, -0.1, 0.2], [1.5, 0.0, 9.0]])
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]])
    return DataProto.from_dict(
        tensors={"rollout_log_probs": rollout, "old_log_probs": rollout + shift, "response_mask": mask}
    )


def test_decoupled_mode_sets_weights_and_mask() -> None:
    config = {
        "rollout_is": "token",
        "rollout_is_threshold": 2.0,
        "rollout_rs": "seq_max_k2",
        "rollout_rs_threshold": 1.0,
    }
    data, metrics = compute_rollout_correction_and_add_to_batch(batch(), config)
    assert data.batch["response_mask"].tolist() == [[1, 1, 1], [0, 0, 0]]
    expected = [[1.1052, 0.9048, 1.2214], [2.0, 1.0, 0.0]]
    torch.testing.assert_close(data.batch["rollout_is_weights"], torch.tensor(expected), rtol=1e-4, atol=1e-4)
    assert metrics["rollout_corr/rollout_rs_seq_masked_fraction"] == 0.5
    assert metrics["rollout_corr/rollout_is_ratio_fraction_high"] == pytest.approx(0.2)


def test_without_a_correction_only_the_mismatch_is_measured() -> None:
    before = batch()
    data, metrics = compute_rollout_correction_and_add_to_batch(batch(), {"rollout_is": None})
    assert torch.equal(data.batch["response_mask"], before.batch["response_mask"])
    assert "rollout_is_weights" not in data.batch and "rollout_corr/k3_kl" in metrics
    assert not any("rollout_is_" in name or "rollout_rs_" in name for name in metrics)


def test_the_public_function_returns_weights_as_a_batch() -> None:
    args = [batch().batch[name] for name in ("old_log_probs", "rollout_log_probs", "response_mask")]
    weights, mask, metrics = compute_rollout_correction_and_rejection_mask(*args, rollout_is="sequence")
    assert isinstance(weights, DataProto) and weights.batch["rollout_is_weights"].shape == (2, 3)
    assert mask is args[2] and metrics["rollout_corr/rollout_is_seq_max"] == pytest.approx(2.0)
    assert compute_rollout_correction_and_rejection_mask(*args)[0] is None


def test_bypass_mode_takes_the_rollouts_log_probs_and_says_so() -> None:
    data, policy_loss = batch(), {"loss_mode": "vanilla"}
    apply_bypass_mode(
        data, rollout_corr_config={"rollout_rs": None, "loss_type": "reinforce"}, policy_loss_config=policy_loss
    )
    assert torch.equal(data.batch["old_log_probs"], data.batch["rollout_log_probs"])
    assert data.meta_info["rollout_correction"]["loss_type"] == "reinforce"
    assert policy_loss == {"loss_mode": "vanilla"}, "a configuration is never written"
    assert apply_rollout_correction is apply_bypass_mode


def test_a_missing_tensor_and_a_wrong_setting_are_named() -> None:
    with pytest.raises(DataError, match="expected old_log_probs"):
        compute_rollout_correction_and_add_to_batch(batch().select(["rollout_log_probs", "response_mask"]), {})
    with pytest.raises(ConfigError, match="rollout_rs_threshold"):
        apply_bypass_mode(batch(), {"rollout_rs": "token_k1"})


def test_statistics_have_no_largest_batch() -> None:
    # torch.quantile refuses more than 16 million elements.
    log_probs = torch.zeros(17, 1_000_000)
    shift = torch.linspace(-1.0, 1.0, 1_000_000)
    weights, _, metrics = compute_rollout_correction_and_rejection_mask(
        log_probs + shift, log_probs, torch.ones(17, 1_000_000), rollout_is="token", rollout_is_threshold=2.0
    )
    assert weights.batch["rollout_is_weights"].max() == 2.0
    assert all(math.isfinite(value) for name, value in metrics.items() if "_seq_" not in name)
