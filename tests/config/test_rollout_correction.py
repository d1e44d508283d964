# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The presets by name."""

import pytest

from verl.config import RolloutCorrectionConfig as Correction
from verl.errors import ConfigError

PRESETS = {
    # name: (rollout_is, threshold, rollout_rs, rs threshold, bypass, loss type)
    "decoupled_token_is": ("token", 2.0, None, None, False, "ppo_clip"),
    "decoupled_seq_is": ("sequence", 2.0, None, None, False, "ppo_clip"),
    "decoupled_token_icepop": ("token", "0.5_5.0", None, None, False, "ppo_clip"),
    "decoupled_seq_is_rs": ("sequence", 2.0, "seq_sum_k1", "0.5_2.0", False, "ppo_clip"),
    "decoupled_geo_rs": (None, 2.0, "seq_mean_k1", "0.999_1.001", False, "ppo_clip"),
    "bypass_ppo_clip": (None, 2.0, None, None, True, "ppo_clip"),
    "bypass_ppo_clip_geo_rs": (None, 2.0, "seq_mean_k1", "0.999_1.001", True, "ppo_clip"),
    "bypass_ppo_clip_k3_rs": (None, 2.0, "seq_mean_k3", 0.01, True, "ppo_clip"),
    "bypass_pg_is": ("sequence", 2.0, None, None, True, "reinforce"),
    "bypass_pg_token_icepop": ("token", "0.5_5.0", None, None, True, "reinforce"),
    "bypass_pg_geo_rs": (None, 2.0, "seq_mean_k1", "0.999_1.001", True, "reinforce"),
    "decoupled_geo_rs_seq_tis": ("sequence", 2.0, "seq_mean_k1", "0.999_1.001", False, "ppo_clip"),
    "decoupled_geo_rs_token_tis": ("token", 2.0, "seq_mean_k1", "0.999_1.001", False, "ppo_clip"),
    "bypass_pg_geo_rs_seq_tis": ("sequence", 2.0, "seq_mean_k1", "0.999_1.001", True, "reinforce"),
    "bypass_pg_geo_rs_token_tis": ("token", 2.0, "seq_mean_k1", "0.999_1.001", True, "reinforce"),
    "decoupled_k3_rs": (None, 2.0, "seq_mean_k3", 0.01, False, "ppo_clip"),
    "decoupled_k3_rs_seq_tis": ("sequence", 2.0, "seq_mean_k3", 0.01, False, "ppo_clip"),
    "decoupled_k3_rs_token_tis": ("token", 2.0, "seq_mean_k3", 0.01, False, "ppo_clip"),
    "disabled": (None, 2.0, None, None, False, "ppo_clip"),
}


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_what_its_name_says(name: str) -> None:
    made = getattr(Correction, name)()
    parts = (made.rollout_is, made.rollout_is_threshold, made.rollout_rs, made.rollout_rs_threshold)
    assert (*parts, made.bypass_mode, made.loss_type) == PRESETS[name]


def test_several_masks_are_a_comma_list() -> None:
    assert Correction(rollout_rs="token_k1, seq_max_k3", rollout_rs_threshold="0.5_2.0,4").rollout_rs


@pytest.mark.parametrize(
    "keys", [{"rollout_rs": "seq_max_k1"}, {"rollout_is": "batch"}, {"loss_type": "ppo"}, {"rollout_rs": "token_k1,x"}]
)
def test_an_unknown_name_is_refused_with_the_known(keys: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="expected"):
        Correction(**keys)
