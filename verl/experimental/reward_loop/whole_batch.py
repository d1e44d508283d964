# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Reward managers that score a whole `DataProto` in one synchronous call: for recipes that hold one as `reward_fn`.

Training scores each trajectory as it ends and uses none of these.
"""

import asyncio
import inspect
import logging
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any

import torch

from verl.errors import RewardError
from verl.experimental.reward_loop.outcome import split_result
from verl.experimental.reward_loop.reward_manager.dapo import OverlongPenalty
from verl.experimental.reward_loop.sample import RewardSample
from verl.experimental.reward_loop.score_pool import ScorePool, function_spec
from verl.protocol import DataProto
from verl.registry import Registry
from verl.utils.reward_score import default_compute_score

__all__ = [
    "AbstractRewardManager",
    "BatchRewardManager",
    "DAPORewardManager",
    "NaiveRewardManager",
    "PrimeRewardManager",
    "get_reward_manager_cls",
    "parallel_compute_score_async",
    "register",
    "run_reward_scoring",
    "single_compute_score",
]

logger = logging.getLogger(__name__)

WHOLE_BATCH_MANAGERS: Registry[type["AbstractRewardManager"]] = Registry("whole-batch reward manager")
Result = tuple[float, dict[str, Any]]


def register(name: str) -> Callable[[type["AbstractRewardManager"]], type["AbstractRewardManager"]]:
    """Class decorator; `get_reward_manager_cls(name)` finds the class."""
    return WHOLE_BATCH_MANAGERS.register(name)


def get_reward_manager_cls(name: str) -> type["AbstractRewardManager"]:
    return WHOLE_BATCH_MANAGERS.get(name)


class AbstractRewardManager(ABC):
    """`manager(data)` gives `token_level_scores` [B,T] of a batch; with `return_dict`, also the extras by key."""

    @abstractmethod
    def __init__(
        self,
        tokenizer: Any,
        num_examine: int,
        compute_score: Callable[..., Any] | None,
        reward_fn_key: str = "data_source",
        **kwargs: Any,
    ) -> None: ...

    @abstractmethod
    def __call__(self, data: DataProto, return_dict: bool = False) -> torch.Tensor | dict[str, Any]: ...


class _RowByRow(AbstractRewardManager):
    """Places what `score_rows` says on the last response token of each row, and shows `num_examine` rows a source."""

    def __init__(
        self,
        tokenizer: Any,
        num_examine: int,
        compute_score: Callable[..., Any] | None = None,
        reward_fn_key: str = "data_source",
    ) -> None:
        self.tokenizer = tokenizer
        self.num_examine = num_examine
        self.compute_score: Callable[..., Any] = compute_score or default_compute_score
        self.reward_fn_key = reward_fn_key

    @abstractmethod
    def score_rows(self, samples: Sequence[RewardSample]) -> list[Result]:
        """(score, extras) of each row."""

    def __call__(self, data: DataProto, return_dict: bool = False) -> torch.Tensor | dict[str, Any]:
        if "rm_scores" in data.tensors:
            # Scored already, as the trajectories ended.
            scores_BT = data.tensors["rm_scores"]
            keys = data.meta_info.get("reward_extra_keys", [])
            extras: dict[str, Any] = {key: data.non_tensor_batch[key] for key in keys}
        else:
            samples = [RewardSample.from_data(data[row : row + 1], self.tokenizer) for row in range(len(data))]
            results = self.score_rows(samples)
            self._show(samples, results)
            scores_BT, extras = _place(data, samples, results), _columns(results)
        return {"reward_tensor": scores_BT, "reward_extra_info": extras} if return_dict else scores_BT

    def arguments(self, sample: RewardSample) -> dict[str, Any]:
        return sample.arguments(self.reward_fn_key)

    def _show(self, samples: Sequence[RewardSample], results: Sequence[Result]) -> None:
        shown: dict[str, int] = defaultdict(int)
        for sample, (score, _) in zip(samples, results, strict=True):
            source = str(sample.row.get(self.reward_fn_key))
            if shown[source] < self.num_examine:
                shown[source] += 1
                logger.info(
                    "%s scores %s\n  prompt: %s\n  answer: %s", source, score, sample.prompt_str, sample.response_str
                )


def _place(data: DataProto, samples: Sequence[RewardSample], results: Sequence[Result]) -> torch.Tensor:
    scores_BT = torch.zeros(data.tensors["responses"].shape, dtype=torch.float32)
    for row, (sample, (score, _)) in enumerate(zip(samples, results, strict=True)):
        if sample.response_length:
            scores_BT[row, sample.response_length - 1] = score
    return scores_BT


def _columns(results: Sequence[Result]) -> dict[str, list[Any]]:
    keys = dict.fromkeys(key for _, extras in results for key in extras)
    return {key: [extras.get(key) for _, extras in results] for key in keys}


@register("naive")
class NaiveRewardManager(_RowByRow):
    """Calls the reward function row by row, in this process."""

    def score_rows(self, samples: Sequence[RewardSample]) -> list[Result]:
        return [self._score(sample) for sample in samples]

    def _score(self, sample: RewardSample) -> Result:
        result = self.compute_score(**self.arguments(sample))
        if inspect.isawaitable(result):
            result = _run(_awaited(result))
        return split_result(result)


@register("dapo")
class DAPORewardManager(NaiveRewardManager):
    """Less the penalty for answers that come near `max_resp_len`."""

    def __init__(
        self,
        tokenizer: Any,
        num_examine: int,
        compute_score: Callable[..., Any] | None = None,
        reward_fn_key: str = "data_source",
        max_resp_len: int | None = None,
        overlong_buffer_cfg: Any | None = None,
    ) -> None:
        super().__init__(tokenizer, num_examine, compute_score, reward_fn_key)
        self.overlong = OverlongPenalty.of(max_resp_len, overlong_buffer_cfg)

    def _score(self, sample: RewardSample) -> Result:
        score, extras = super()._score(sample)
        return (score, extras) if self.overlong is None else self.overlong.on(score, extras, sample.response_length)


@register("batch")
class BatchRewardManager(_RowByRow):
    """Calls the reward function once, with lists: `data_sources`, `solution_strs`, `ground_truths`, `extra_infos`."""

    def __init__(
        self,
        tokenizer: Any,
        num_examine: int,
        compute_score: Callable[..., Any],
        reward_fn_key: str = "data_source",
        **reward_kwargs: Any,
    ) -> None:
        super().__init__(tokenizer, num_examine, compute_score, reward_fn_key)
        self.reward_kwargs = reward_kwargs

    def verify(self, data: DataProto) -> list[Any]:
        """What the reward function returns for each row of a batch."""
        samples = [RewardSample.from_data(data[row : row + 1], self.tokenizer) for row in range(len(data))]
        return self._call(samples)

    def _call(self, samples: Sequence[RewardSample]) -> list[Any]:
        rows = [self.arguments(sample) for sample in samples]
        columns = {f"{key}s": [row[key] for row in rows] for key in rows[0]} if rows else {}
        results = self.compute_score(**columns, **self.reward_kwargs)
        if len(results) != len(samples):
            raise RewardError("the batch reward function", got=f"{len(results)} results", expected=f"{len(samples)}")
        return list(results)

    def score_rows(self, samples: Sequence[RewardSample]) -> list[Result]:
        return [split_result(result) for result in self._call(samples)]


@register("prime")
class PrimeRewardManager(_RowByRow):
    """Calls the reward function for all rows side by side, each in a process that is killed after 300 s."""

    def verify(self, data: DataProto) -> list[float]:
        """The score of each row; also kept in the batch as `acc`."""
        samples = [RewardSample.from_data(data[row : row + 1], self.tokenizer) for row in range(len(data))]
        scores = [score for score, _ in self.score_rows(samples)]
        data.tensors["acc"] = torch.tensor(scores, dtype=torch.float32)
        return scores

    def score_rows(self, samples: Sequence[RewardSample]) -> list[Result]:
        rows = [self.arguments(sample) for sample in samples]
        return _run(_score_all(self.compute_score, rows, num_processes=64, timeout_s=300.0))


async def single_compute_score(
    evaluation_func: Callable[..., Any],
    completion: str,
    reference: Any,
    task: str,
    task_extra_info: Any,
    executor: Executor,
    timeout: float = 300.0,
) -> Any:
    """What `evaluation_func(task, completion, reference, task_extra_info)` returns, called in `executor`.

    Raises
    ------
    RewardError
        where the call fails, or takes longer than `timeout` seconds: its score is not known.
    """
    call = asyncio.get_running_loop().run_in_executor(
        executor, evaluation_func, task, completion, reference, task_extra_info
    )
    try:
        return await asyncio.wait_for(call, timeout)
    except TimeoutError as error:
        # Python 3.11 has one class for both: a function of the user's may run into a timeout of its own.
        raise RewardError("no score in time", where=task, got=error, expected=f"an answer in {timeout} s") from error
    except Exception as error:
        raise RewardError(f"the reward function failed ({error!r})", where=task) from error


async def parallel_compute_score_async(
    evaluation_func: Callable[..., Any],
    completions: Sequence[str],
    references: Sequence[Any],
    tasks: Sequence[str],
    extra_info: Sequence[Any] | None = None,
    num_processes: int = 64,
) -> list[float]:
    """The score of each row, side by side in at most `num_processes` processes; see `run_reward_scoring`."""

    def evaluate(task: str, completion: str, reference: Any, extra: Any) -> Any:
        return evaluation_func(task, completion, reference, extra)

    extras = extra_info if extra_info is not None else [None] * len(tasks)
    rows = [
        {"task": task, "completion": completion, "reference": reference, "extra": extra}
        for task, completion, reference, extra in zip(tasks, completions, references, extras, strict=True)
    ]
    return [score for score, _ in await _score_all(evaluate, rows, num_processes, timeout_s=300.0)]


def run_reward_scoring(
    evaluation_func: Callable[..., Any],
    completions: Sequence[str],
    references: Sequence[Any],
    tasks: Sequence[str],
    extra_info: Sequence[Any] | None = None,
    num_processes: int = 64,
) -> list[float]:
    """`evaluation_func(task, completion, reference, task_extra_info)` for each row side by side; 300 s for each.

    A row that fails is an error: its score is not known.
    """
    return _run(
        parallel_compute_score_async(evaluation_func, completions, references, tasks, extra_info, num_processes)
    )


async def _score_all(
    function: Callable[..., Any], rows: Sequence[dict[str, Any]], num_processes: int, timeout_s: float
) -> list[Result]:
    pool = ScorePool(function_spec(function), timeout_s=timeout_s, max_processes=num_processes)
    try:
        return list(await asyncio.gather(*(pool.call(**row) for row in rows)))
    finally:
        await pool.close()


async def _awaited(result: Any) -> Any:
    return await result


def _run(coroutine: Any) -> Any:
    """The result of a coroutine, also where the caller runs inside an event loop."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()
