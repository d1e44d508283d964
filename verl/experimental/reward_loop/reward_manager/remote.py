# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Scoring spread over further actors, on any node, each with processes of its own that can be killed."""

import itertools
from collections.abc import Callable
from typing import Any

import ray
from ray.exceptions import RayActorError, RayTaskError

from verl.errors import PeerLost
from verl.experimental.reward_loop.reward_manager.base import SampleRewardManager
from verl.experimental.reward_loop.reward_manager.registry import register
from verl.experimental.reward_loop.sample import RewardSample
from verl.experimental.reward_loop.score_pool import DEFAULT_TIMEOUT_S, ScorePool, function_spec
from verl.waits import bounded

__all__ = ["RemoteRewardManager", "RewardComputeWorker"]

# The queue of a worker, not one call: each call has reward.timeout inside the worker.
DEADLINE_S = 3600.0


class RewardComputeWorker:
    """An actor with a pool of scoring processes."""

    def __init__(self, compute_score_fn: Callable[..., Any] | dict[str, Any], timeout_s: float | None = None) -> None:
        spec = compute_score_fn if isinstance(compute_score_fn, dict) else function_spec(compute_score_fn)
        self._pool = ScorePool(spec, timeout_s=timeout_s)

    async def compute_score(self, **kwargs: Any) -> tuple[float, dict[str, Any]]:
        return await self._pool.call(**kwargs)


@register("remote")
class RemoteRewardManager(SampleRewardManager):
    """As `naive`, on `reward.reward_kwargs.num_remote_workers` (default 2) actors, spread over the nodes."""

    def __init__(
        self,
        config: Any,
        tokenizer: Any,
        compute_score: Callable[..., Any],
        reward_router_address: str | None = None,
        reward_model_tokenizer: Any | None = None,
    ) -> None:
        super().__init__(config, tokenizer, compute_score, reward_router_address, reward_model_tokenizer)
        options = config.reward.get("reward_kwargs", None) or {}
        actor_cls = ray.remote(RewardComputeWorker)
        # The pool's own coroutine cannot travel; the recipe from which it was made can.
        source = getattr(compute_score, "spec", compute_score)
        self.reward_worker = [
            actor_cls.options(num_cpus=0.01, max_concurrency=1024, scheduling_strategy="SPREAD").remote(
                source, config.reward.get("timeout", DEFAULT_TIMEOUT_S)
            )
            for _ in range(options.get("num_remote_workers", 2))
        ]
        self._turns = itertools.cycle(range(len(self.reward_worker)))

    def choose_reward_worker(self) -> Any:
        return self.reward_worker[next(self._turns)]

    async def run_sample(self, sample: RewardSample) -> dict[str, Any]:
        worker = self.choose_reward_worker()
        arguments = sample.arguments(self.data_source_key) | self.reward_arguments
        try:
            score, extras = await bounded(
                worker.compute_score.remote(**arguments), what="a score", whom=f"{worker}", deadline_s=DEADLINE_S
            )
        except RayActorError as error:
            raise PeerLost(f"a remote scoring worker has died ({error})") from error
        except RayTaskError as error:
            raise error.cause from error
        return {"reward_score": score, "reward_extra_info": extras}
