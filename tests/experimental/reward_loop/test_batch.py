# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Scores of a whole batch: each on its last token, and a failure is no zero."""

import math
from typing import Any

import numpy as np
import torch

from verl.algorithms.advantages import get_adv_estimator_fn
from verl.experimental.reward_loop.batch import scores_to_data
from verl.protocol import DataProto


def answer(score: float | None, error: str | None = None, **extras: Any) -> dict[str, Any]:
    return {"reward_score": score, "reward_error": error, "reward_extra_info": extras}


def batch(lengths: list[int], width: int = 3) -> DataProto:
    mask = torch.tensor([[1] * length + [0] * (width - length) for length in lengths])
    prompts = torch.ones(len(lengths), 2, dtype=torch.int64)
    tensors = {"prompts": prompts, "responses": mask.clone(), "attention_mask": torch.cat([prompts, mask], dim=1)}
    return DataProto.from_dict(tensors=tensors)


def test_each_score_stands_on_its_last_token_and_extras_are_columns() -> None:
    scored = scores_to_data(batch([3, 1, 0]), [answer(1.0, acc=1), answer(0.5), answer(2.0, pred="x")])
    assert scored.batch["rm_scores"].tolist() == [[0.0, 0.0, 1.0], [0.5, 0.0, 0.0], [0.0, 0.0, 0.0]]
    assert scored.meta_info["reward_extra_keys"] == ["acc", "pred"]
    assert scored.non_tensor_batch["acc"].tolist() == [1, None, None]


def test_what_could_not_be_scored_is_left_out_of_its_group() -> None:
    scored = scores_to_data(batch([3, 3, 3]), [answer(1.0), answer(None, "boom"), answer(0.0)])
    assert scored.non_tensor_batch["reward_error"].tolist() == [None, "boom", None]
    assert math.isnan(scored.batch["rm_scores"][1, 2])
    advantages, _ = get_adv_estimator_fn("grpo")(
        token_level_rewards=scored.batch["rm_scores"], response_mask=torch.ones(3, 3), index=np.array([0, 0, 0])
    )
    torch.testing.assert_close(advantages[:, 0], torch.tensor([0.7071, 0.0, -0.7071]), rtol=0, atol=1e-4)


def test_a_value_given_for_a_failure_is_a_score() -> None:
    scored = scores_to_data(batch([2]), [answer(-1.0, "boom")])
    assert scored.batch["rm_scores"].tolist() == [[0.0, -1.0, 0.0]]
