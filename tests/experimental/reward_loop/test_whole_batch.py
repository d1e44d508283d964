# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Managers that score a whole batch in one call, as recipes use them."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
import torch
from loop_parts import make_config, make_row

from verl.errors import ConfigError, RewardError
from verl.experimental.reward_loop.compute_reward import compute_reward, compute_reward_async
from verl.experimental.reward_loop.reward_manager import NaiveRewardManager as SingleRowManager
from verl.protocol import DataProto
from verl.workers.reward_manager import (
    AbstractRewardManager,
    BatchRewardManager,
    DAPORewardManager,
    NaiveRewardManager,
    PrimeRewardManager,
    get_reward_manager_cls,
    register,
)
from verl.workers.reward_manager.prime import (
    parallel_compute_score_async,
    run_reward_scoring,
    single_compute_score,
)


def letters() -> type:
    """A tokenizer class that travels by value, as `make_right`'s function does."""

    class Letters:
        def decode(self, ids: list[int], skip_special_tokens: bool = True) -> str:
            return "".join(chr(96 + token) for token in ids)

    return Letters


Letters = letters()


def batch() -> DataProto:
    """Two rows: "ab" with truth "ab", and "c" with truth "x"."""
    rows = [make_row("q", truth) for truth in ("ab", "x")]
    columns = {}
    for key in ("data_source", "reward_model", "extra_info"):
        columns[key] = np.empty(2, dtype=object)
        columns[key][:] = [row[key] for row in rows]
    return DataProto.from_dict(
        tensors={
            "prompts": torch.tensor([[0, 5], [5, 5]]),
            "responses": torch.tensor([[1, 2, 0], [3, 0, 0]]),
            "attention_mask": torch.tensor([[0, 1, 1, 1, 0], [1, 1, 1, 0, 0]]),
        },
        non_tensors=columns,
    )


def make_right() -> Any:
    """A function that travels by value: a scoring process must not import this module, and torch with it."""

    def right(data_source: str, solution_str: str, ground_truth: str, extra_info: dict[str, Any]) -> float:
        return float(solution_str == ground_truth)

    return right


right = make_right()


@pytest.mark.parametrize("cls", [NaiveRewardManager, PrimeRewardManager])
def test_the_score_stands_on_the_last_response_token(cls: type) -> None:
    manager = cls(tokenizer=Letters(), num_examine=1, compute_score=right, reward_fn_key="data_source")
    assert manager(batch()).tolist() == [[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
    scores, extras = compute_reward(batch(), manager)
    assert scores.sum() == 1.0 and extras == {"acc": [1.0, 0.0]}


def test_keys_that_differ_between_rows_are_filled_up() -> None:
    def answer(solution_str: str, **_: Any) -> Any:
        return {"score": 1.0, "only": "first"} if solution_str == "ab" else {"score": 0.0, "other": 2}

    result = NaiveRewardManager(Letters(), 0, answer)(batch(), return_dict=True)
    assert result["reward_extra_info"] == {"score": [1.0, 0.0], "only": ["first", None], "other": [None, 2]}


def test_dapo_penalises_long_answers() -> None:
    buffer = {"enable": True, "len": 2, "penalty_factor": 1.0, "log": True}
    manager = DAPORewardManager(Letters(), 0, right, max_resp_len=3, overlong_buffer_cfg=buffer)
    result = manager(batch(), return_dict=True)
    assert result["reward_tensor"].sum(-1).tolist() == [0.5, 0.0]
    assert result["reward_extra_info"]["overlong_reward"] == [-0.5, 0.0]


def test_batch_functions_get_lists() -> None:
    def answer(
        data_sources: Any, solution_strs: Any, ground_truths: Any, extra_infos: Any, bonus: float
    ) -> list[float]:
        assert data_sources == ["sums"] * 2 and len(extra_infos) == 2
        return [float(one == other) + bonus for one, other in zip(solution_strs, ground_truths, strict=True)]

    manager = BatchRewardManager(Letters(), 0, answer, bonus=0.25)
    assert manager(batch()).sum(-1).tolist() == [1.25, 0.25] and manager.verify(batch()) == [1.25, 0.25]
    with pytest.raises(RewardError, match="1 results"):
        BatchRewardManager(Letters(), 0, lambda **_: [1.0])(batch())


def test_prime_keeps_its_scores_in_the_batch() -> None:
    data = batch()
    assert PrimeRewardManager(Letters(), 0, right).verify(data) == [1.0, 0.0]
    assert data.batch["acc"].tolist() == [1.0, 0.0]


def test_a_batch_that_was_scored_as_it_ended_is_not_scored_again() -> None:
    data = batch()
    data.batch["rm_scores"] = torch.ones(2, 3)
    manager = NaiveRewardManager(Letters(), 0, lambda **_: 1 / 0)
    assert manager(data).sum() == 6


def test_coroutine_functions_are_awaited_and_errors_are_errors() -> None:
    async def answer(**_: Any) -> float:
        return 0.25

    assert NaiveRewardManager(Letters(), 0, answer)(batch()).sum() == 0.5
    with pytest.raises(RewardError):
        NaiveRewardManager(Letters(), 0, lambda **_: None)(batch())


def test_a_manager_of_a_recipe_registers_under_its_name() -> None:
    @register("mine_in_test")
    class Mine(AbstractRewardManager):
        def __init__(
            self, tokenizer: Any, num_examine: int, compute_score: Any = None, reward_fn_key: str = "d"
        ) -> None:
            self.tokenizer = tokenizer

        def __call__(self, data: DataProto, return_dict: bool = False) -> torch.Tensor:
            return torch.ones(len(data), 3)

    assert get_reward_manager_cls("mine_in_test") is Mine and get_reward_manager_cls("naive") is NaiveRewardManager
    assert compute_reward(batch(), Mine(None, 0)) == (pytest.approx(torch.ones(2, 3)), {})
    assert compute_reward(batch(), lambda data: "scores only") == ("scores only", {})
    for extras in ({}, {"reward_extra_info": None}):
        assert compute_reward(batch(), lambda data, return_dict, e=extras: {"reward_tensor": "s", **e}) == ("s", {})


def test_the_manager_of_the_configuration_scores_a_batch_row_by_row(tmp_path: Path) -> None:
    manager = SingleRowManager(make_config(tmp_path), Letters(), right)
    scores, extras = compute_reward(data=batch(), reward_fn=manager)
    assert scores.tolist() == [[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
    assert {key: list(values) for key, values in extras.items()} == {"acc": [1.0, 0.0]}


def test_a_batch_can_be_scored_in_a_process_of_its_own(ray_cluster: None, tmp_path: Path, tiny_model_dir: Path) -> None:
    manager = NaiveRewardManager(tokenizer=Letters(), num_examine=0, compute_score=right)
    scores, extras = ray.get(compute_reward_async.remote(data=batch(), reward_fn=manager), timeout=120)
    assert scores.sum() == 1.0 and extras == {"acc": [1.0, 0.0]}
    with pytest.raises(ConfigError, match="give config and tokenizer, or reward_fn"):
        ray.get(compute_reward_async.remote(batch()), timeout=120)


def test_the_process_makes_the_manager_from_the_configuration(ray_cluster: None, tmp_path: Path) -> None:
    scorer = tmp_path / "scorer.py"
    scorer.write_text(
        "def compute_score(solution_str, ground_truth, **_):\n    return float(solution_str == ground_truth)\n"
    )
    config = make_config(tmp_path, scorer)
    scores, _ = ray.get(compute_reward_async.remote(batch(), config=config, tokenizer=Letters()), timeout=120)
    assert scores.tolist() == [[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]


def length_or_fault() -> Any:
    """A scoring function that travels by value."""

    def score(task: str, completion: str, reference: Any, extra: Any) -> float:
        if completion == "boom":
            raise ValueError("injected")
        if completion == "sleep":
            time.sleep(0.5)
        return len(completion) + reference + (extra or 0) + (task == "double") * 100

    return score


def test_one_answer_is_scored_in_the_executor_that_is_given() -> None:
    score = length_or_fault()
    with ThreadPoolExecutor(1) as executor:

        def one(completion: str, timeout: float = 30.0) -> float:
            arguments = {"reference": 2, "task": "double", "task_extra_info": 5, "executor": executor}
            return asyncio.run(single_compute_score(score, completion, timeout=timeout, **arguments))

        assert one("abc") == 3 + 2 + 5 + 100
        with pytest.raises(RewardError, match=r"double: the reward function failed .*injected"):
            one("boom")
        with pytest.raises(RewardError, match=r"no score in time.*0\.01 s"):
            one("sleep", timeout=0.01)


def test_answers_are_scored_side_by_side_in_their_order() -> None:
    score = length_or_fault()
    rows = (["a", "bcd"], [1, 2], ["single", "double"])
    assert asyncio.run(parallel_compute_score_async(score, *rows, num_processes=2)) == [2.0, 105.0]
    assert run_reward_scoring(score, *rows, extra_info=[10, 20], num_processes=2) == [12.0, 125.0]

    async def inside_a_loop() -> list[float]:
        return run_reward_scoring(score, *rows)

    assert asyncio.run(inside_a_loop()) == [2.0, 105.0]
    with pytest.raises(RewardError, match="injected"):
        run_reward_scoring(score, ["a", "boom"], [1, 1], ["t", "t"])
