# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The actors that score: light processes that hold a reward manager and the pool its function runs in."""

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Sequence
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from verl.config.legacy_reward import migrate_legacy_reward_impl
from verl.errors import ConfigError, RewardError, UnsupportedError, WaitTimeout
from verl.experimental.reward_loop.outcome import TIMEOUT, plain, to_number
from verl.experimental.reward_loop.reward_manager.base import SampleRewardManager
from verl.experimental.reward_loop.sample import RewardSample
from verl.experimental.reward_loop.score_pool import CallTimeout
from verl.experimental.reward_loop.tokenizer import LazyTokenizer
from verl.trainer.ppo.reward import load_reward_manager, reward_manager_class, score_pool_of
from verl.utils.trace import set_up_trace, span

__all__ = ["RewardLoopManager", "RewardLoopWorker", "migrate_legacy_reward_impl"]

logger = logging.getLogger(__name__)

START_DEADLINE_S = 300.0
BATCH_DEADLINE_S = 4 * 3600.0
MAX_CONCURRENCY = 16384
# A failing function fails for every sample; a few examples say it all.
MAX_SHOWN = 5


class RewardLoopWorker:
    """Scores trajectories as they come. Used as an async Ray actor (see `RewardLoopManager`).

    A failure never becomes a score of zero by itself: `reward_error` says what happened, and `reward.on_error`
    says what to do with the trajectory ("drop_sample", "drop_group", or the score to give it).
    """

    def __init__(
        self,
        config: Any,
        reward_router_address: str | None = None,
        *,
        worker_index: int = 0,
        num_workers: int = 1,
        trace_dir: str | None = None,
    ) -> None:
        if trace_dir:
            set_up_trace(trace_dir, f"reward-{worker_index}")
        self.config = config
        self.counts: Counter[str] = Counter()
        self.on_error = check_policy(config.reward.get("on_error", "drop_sample"))
        self.pool = score_pool_of(config, num_workers)
        cls = reward_manager_class(config)
        self.tokenizer: Any = LazyTokenizer(config.actor_rollout_ref.model)
        light = isinstance(cls, type) and issubclass(cls, SampleRewardManager)
        self.reward_manager = load_reward_manager(
            config,
            self.tokenizer if light else self.tokenizer.load(),
            compute_score=self._scorer(),
            **({"reward_router_address": reward_router_address} if reward_router_address else {}),
        )

    async def ready(self) -> int:
        """Load the reward function; a wrong path or name is an error here, before anything is generated."""
        await self.pool.start()
        return os.getpid()

    async def score_many(self, batch: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Score trajectories given as the fields of `RewardSample`."""
        with span("score", n=len(batch)):
            return await asyncio.gather(*(self._score(RewardSample(**fields)) for fields in batch))

    async def score(self, fields: dict[str, Any]) -> dict[str, Any]:
        """`{"reward_score", "reward_extra_info", "reward_error"}` of one trajectory."""
        return await self._score(RewardSample(**fields))

    async def compute_score(self, data: Any) -> dict[str, Any]:
        """As `score`, for a `DataProto` of one row."""
        return await self._score(RewardSample.from_data(data, self.tokenizer))

    async def compute_score_batch(self, data: Any) -> list[dict[str, Any]]:
        """As `score`, for each row of a `DataProto`."""
        return await asyncio.gather(*(self.compute_score(data[index : index + 1]) for index in range(len(data))))

    async def compute_score_disrm(self, data: Any) -> dict[str, Any]:
        raise UnsupportedError(
            "a discriminative reward model behind the reward loop",
            where="reward.reward_model.enable",
            remedy="serve the model yourself and call it from reward.custom_reward_function",
        )

    async def statistics(self) -> dict[str, int]:
        """Counts since the start: scored, errors, timeouts, kills (of scoring processes)."""
        return {"scored": 0, "errors": 0} | self.counts | {"timeouts": self.pool.timeouts, "kills": self.pool.kills}

    def _scorer(self) -> Any:
        pool = self.pool

        async def compute_score(**arguments: Any) -> float | dict[str, Any]:
            score, extras = await pool.call(**arguments)
            # As the function answered: a bare number, or its dict.
            return extras if "score" in extras else score

        scorer: Any = compute_score
        scorer.spec = pool.spec
        return scorer

    async def _score(self, sample: RewardSample) -> dict[str, Any]:
        try:
            result = await self._run(sample)
            answer = {
                "reward_score": to_number(result["reward_score"]),
                "reward_extra_info": plain(result.get("reward_extra_info", None) or {}),
                "reward_error": None,
            }
        except Exception as error:
            return self._failed(sample, error)
        self.counts["scored"] += 1
        return answer

    async def _run(self, sample: RewardSample) -> dict[str, Any]:
        if isinstance(self.reward_manager, SampleRewardManager):
            return await self.reward_manager.run_sample(sample)
        rollout = self.config.actor_rollout_ref.rollout
        data = sample.to_data(rollout.prompt_length, rollout.response_length, self.tokenizer.pad_token_id)
        result = await self.reward_manager.run_single(data)
        # A manager may answer with the bare number.
        return result if isinstance(result, dict) else {"reward_score": result}

    def _failed(self, sample: RewardSample, error: Exception) -> dict[str, Any]:
        timed_out = isinstance(error, CallTimeout | WaitTimeout)
        what = str(error) if isinstance(error, RewardError) else f"{type(error).__name__}: {error}"
        self.counts["errors"] += 1
        if self.counts["errors"] <= MAX_SHOWN:
            logger.warning(
                "scoring failed (%d so far, policy %s) for %s: %s\n  data source: %s\n  ground truth: %s\n  answer: %s",
                self.counts["errors"], self.on_error, sample.uid, what, sample.row.get("data_source"),
                sample.ground_truth, _shorten(sample.response_str),
            )  # fmt: skip
        value = self.on_error if isinstance(self.on_error, float) else None
        return {
            "reward_score": value,
            "reward_extra_info": {},
            "reward_error": f"{TIMEOUT}{what}" if timed_out else what,
        }


class RewardLoopManager:
    """The reward workers of one job.

    Construct it outside of an event loop (or in a thread): it waits until all workers have loaded their function.
    """

    def __init__(self, config: Any, rm_resource_pool: Any | None = None, *, trace_dir: str | None = None) -> None:
        if (config.reward.get("reward_model", None) or {}).get("enable", False):
            raise UnsupportedError(
                "a reward model started by the trainer",
                where="reward.reward_model.enable",
                remedy="serve the model yourself and call it from reward.custom_reward_function",
            )
        self.config = config
        count = config.reward.get("num_workers", None) or 1
        nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
        actor_cls = ray.remote(RewardLoopWorker)
        self._workers: list[Any] = [
            actor_cls.options(
                num_cpus=0,
                max_restarts=0,
                max_concurrency=MAX_CONCURRENCY,
                scheduling_strategy=NodeAffinitySchedulingStrategy(nodes[index % len(nodes)], soft=True),
            ).remote(config, worker_index=index, num_workers=count, trace_dir=trace_dir)
            for index in range(count)
        ]
        _get([worker.ready.remote() for worker in self._workers], START_DEADLINE_S, "the start of the reward workers")

    @property
    def reward_loop_worker_handles(self) -> list[Any]:
        return list(self._workers)

    def compute_rm_score(self, data: Any) -> Any:
        """`rm_scores` and extras for a whole `DataProto`, as a `DataProto`."""
        # Here: only this method, which nobody calls while trajectories are scored as they end, needs tensors.
        from verl.experimental.reward_loop.batch import scores_to_data

        parts = data.chunk(min(len(data), len(self._workers)))
        refs = [worker.compute_score_batch.remote(part) for worker, part in zip(self._workers, parts, strict=False)]
        answers = _get(refs, BATCH_DEADLINE_S, "the scores of a batch")
        return scores_to_data(data, [answer for part in answers for answer in part])

    def statistics(self) -> dict[str, int]:
        """Counts over all workers."""
        total: Counter[str] = Counter()
        for counts in _get([worker.statistics.remote() for worker in self._workers], 60.0, "the reward statistics"):
            total.update(counts)
        return dict(total)

    def shutdown(self) -> None:
        for worker in self._workers:
            ray.kill(worker)
        self._workers = []


def check_policy(policy: Any) -> str | float:
    """`reward.on_error`: a number is given as the score, the two words drop the sample or its group."""
    if isinstance(policy, bool) or policy is None:
        raise ConfigError(
            "not a policy", where="reward.on_error", got=policy, expected="drop_sample, drop_group, a number"
        )
    if isinstance(policy, int | float):
        return float(policy)
    if policy in ("drop_sample", "drop_group"):
        return policy
    raise ConfigError("not a policy", where="reward.on_error", got=policy, expected="drop_sample, drop_group, a number")


def _get(refs: list[Any], deadline_s: float, what: str) -> list[Any]:
    try:
        return ray.get(refs, timeout=deadline_s)
    except ray.exceptions.GetTimeoutError as error:
        raise WaitTimeout(f"no {what} within {deadline_s:.0f} s") from error
    except ray.exceptions.RayTaskError as error:
        raise error.cause from error


def _shorten(text: str, limit: int = 400) -> str:
    return text if len(text) <= limit else f"{text[: limit // 2]} … {text[-limit // 2 :]}"
