# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Ragged trajectories to one padded batch."""

from typing import Any

import numpy as np
import pytest
import torch

from verl.errors import DataError
from verl.experimental.agent_loop.postprocess import assemble, performance_metrics
from verl.experimental.agent_loop.trajectory import Trajectory, describe_group

PAD = 9


def trajectory(prompt: list[int], response: list[int], mask: list[int] | None = None, **more: Any) -> Trajectory:
    own = np.array([1] * len(response) if mask is None else mask, dtype=bool)
    options = {
        "uid": "a",
        "log_probs": np.where(own, -0.5, 0.0).astype(np.float32),
        "token_versions": np.where(own, 4, -1).astype(np.int32),
    } | more
    return Trajectory(
        prompt_ids=np.array(prompt, dtype=np.int32),
        response_ids=np.array(response, dtype=np.int32),
        response_mask=own,
        **options,
    )


def build(*rows: Trajectory) -> Any:
    return assemble([list(rows)], pad_token_id=PAD, prompt_length=3, response_length=4, temperature=0.7)


def test_prompts_are_padded_left_and_responses_right() -> None:
    batch = build(
        trajectory([1, 2], [3, 4, 5], mask=[1, 0, 1], reward_score=0.5, num_turns=2),
        trajectory([1, 2, 3], [7], reward_score=-1.0, num_turns=4),
    )
    tensors = {key: value.tolist() for key, value in batch.batch.items()}
    assert tensors == {
        "prompts": [[9, 1, 2], [1, 2, 3]],
        "responses": [[3, 4, 5, 9], [7, 9, 9, 9]],
        "input_ids": [[9, 1, 2, 3, 4, 5, 9], [1, 2, 3, 7, 9, 9, 9]],
        "attention_mask": [[0, 1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 0, 0, 0]],
        "position_ids": [[0, 0, 1, 2, 3, 4, 0], [0, 1, 2, 3, 0, 0, 0]],
        "response_mask": [[1, 0, 1, 0], [1, 0, 0, 0]],
        "token_versions": [[4, -1, 4, -1], [4, -1, -1, -1]],
        "rollout_log_probs": [[-0.5, 0.0, -0.5, 0.0], [-0.5, 0.0, 0.0, 0.0]],
        "rm_scores": [[0.0, 0.0, 0.5, 0.0], [-1.0, 0.0, 0.0, 0.0]],
    }
    assert batch.batch["input_ids"].dtype == torch.int64 and batch.batch["token_versions"].dtype == torch.int32
    assert batch.meta_info["temperature"] == 0.7 and batch.meta_info["global_token_num"] == [5, 4]
    assert batch.non_tensor_batch["__num_turns__"].tolist() == [2, 4]
    assert batch.non_tensor_batch["min_global_steps"].tolist() == [4, 4]


def test_a_failed_scoring_is_masked_and_a_given_value_is_not() -> None:
    batch = build(
        trajectory([1], [2, 3], reward_score=1.0),
        trajectory([1], [2, 3], reward_error="boom"),
        trajectory([1], [2, 3], reward_error="boom", reward_score=-1.0),
    )
    assert batch.batch["response_mask"].sum(-1).tolist() == [2, 0, 2]
    assert batch.batch["rm_scores"].sum(-1).tolist() == [1.0, 0.0, -1.0]
    assert batch.non_tensor_batch["reward_error"].tolist() == [None, "boom", "boom"]


def test_what_nobody_scored_has_no_scores_and_what_has_no_log_probs_none() -> None:
    batch = build(trajectory([1], [2]), trajectory([1], [2], log_probs=None))
    assert "rm_scores" not in batch.batch and "rollout_log_probs" not in batch.batch
    assert batch.batch["response_mask"].sum() == 2


def test_loops_with_different_fields_make_one_batch() -> None:
    single = trajectory([1], [2], extra_fields={"stop": "x"}, row={"data_source": "s"}, reward_extra_info={"acc": 1.0})
    tools = trajectory([1], [2], extra_fields={"tool_rewards": [0.5]}, row={"data_source": "s", "k": [1, 2]})
    columns = build(single, tools).non_tensor_batch
    assert columns["stop"].tolist() == ["x", None] and columns["tool_rewards"].tolist() == [None, [0.5]]
    assert columns["k"].tolist() == [None, [1, 2]] and columns["acc"].tolist() == [1.0, None]
    assert all(column.shape == (2,) and column.dtype == object for column in columns.values())


def test_an_empty_response_is_a_row_without_tokens() -> None:
    batch = build(trajectory([1, 2], [], extra_fields={"max_global_steps": 6}, reward_score=0.5))
    assert batch.batch["responses"].tolist() == [[PAD] * 4] and batch.batch["rm_scores"].sum() == 0
    assert batch.non_tensor_batch["max_global_steps"].tolist() == [6]


def test_what_does_not_fit_is_named() -> None:
    with pytest.raises(DataError, match=r"trajectory of a.*1 prompt and 5 response tokens.*at most 3 and 4"):
        build(trajectory([1], [2] * 5))
    with pytest.raises(DataError, match="no trajectory"):
        assemble([], pad_token_id=0, prompt_length=1, response_length=1, temperature=1.0)
    with pytest.raises(DataError, match="per-token arrays of different length"):
        trajectory([1], [2, 3], log_probs=np.zeros(1, dtype=np.float32))


def test_the_slowest_trajectory_and_the_spread_are_reported() -> None:
    def timed(generate: float, tools: float, length: int) -> Trajectory:
        return trajectory([1], [2] * length, metrics={"generate_sequences": generate, "tool_calls": tools})

    timing = performance_metrics([timed(1.0, 0.0, 1), timed(2.0, 3.0, 4), timed(3.0, 0.0, 2)])
    assert timing["agent_loop/generate_sequences/min"] == 1.0 and timing["agent_loop/generate_sequences/mean"] == 2.0
    assert timing["agent_loop/slowest/tool_calls"] == 3.0 and timing["agent_loop/slowest/response_length"] == 4.0


def test_a_groups_facts() -> None:
    first = trajectory([1, 2], [3, 4], token_versions=np.array([4, 6], dtype=np.int32), reward_score=1.0)
    second = trajectory([1, 2], [3], reward_error="boom", stop_reason="aborted")
    meta = describe_group("a", [first, second], dropped="why")
    assert (meta.min_version, meta.max_version, meta.min_versions, meta.max_versions) == (4, 6, (4, 4), (6, 4))
    assert meta.rewards == (1.0, None) and meta.reward_errors == (None, "boom") and meta.aborted
    assert meta.response_lengths == (2, 1) and meta.prompt_length == 2 and meta.dropped == "why"
    assert meta.payload_bytes == (2 * 4 + 2 * 4 + 2 + 2 * 4 + 2 * 4) + (2 * 4 + 4 + 1 + 4 + 4)
