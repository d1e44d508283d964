# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""From a finished trajectory to its reward: the agent worker's side."""

import dataclasses
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from ray.exceptions import RayActorError, RayTaskError

from verl.errors import PeerLost
from verl.experimental.agent_loop.coalesce import Coalescer
from verl.experimental.agent_loop.trajectory import Trajectory
from verl.waits import bounded

# Each call has a deadline of its own in the reward worker (reward.timeout); this one bounds the queue before it.
SCORE_DEADLINE_S = 3600.0


class RewardClient:
    """Spreads trajectories over the reward workers, the one with the fewest in flight first."""

    def __init__(self, handles: Sequence[Any], tokenizer: Any, deadline_s: float = SCORE_DEADLINE_S) -> None:
        self._handles = list(handles)
        self._in_flight = [0] * len(self._handles)
        self._tokenizer = tokenizer
        self._deadline_s = deadline_s

    def for_group(self) -> Coalescer[dict[str, Any], dict[str, Any]]:
        """Trajectories of one group that end in the same moment go in one call."""
        return Coalescer(self._score_many)

    def fields_of(self, trajectory: Trajectory) -> dict[str, Any]:
        """What a reward worker needs: the row, the texts, and the counts; it holds no tokenizer of its own."""
        decode = self._tokenizer.decode
        return {
            "uid": trajectory.uid,
            "row": trajectory.row,
            "prompt_ids": trajectory.prompt_ids,
            "response_ids": trajectory.response_ids,
            "prompt_str": decode(trajectory.prompt_ids.tolist(), skip_special_tokens=True),
            "response_str": decode(trajectory.response_ids.tolist(), skip_special_tokens=True),
            "response_length": len(trajectory.response_ids),
            "num_turns": trajectory.num_turns,
            "extra_fields": trajectory.extra_fields,
        }

    async def score(self, trajectory: Trajectory, calls: Coalescer[dict[str, Any], dict[str, Any]]) -> Trajectory:
        """The trajectory with its reward, or with `reward_error`."""
        started_s = time.monotonic()
        answer = await calls.ask(self.fields_of(trajectory))
        metrics = trajectory.metrics | {"compute_score": time.monotonic() - started_s}
        return dataclasses.replace(
            trajectory,
            reward_score=answer["reward_score"],
            reward_error=answer.get("reward_error"),
            reward_extra_info=dict(answer.get("reward_extra_info") or {}),
            metrics=metrics,
        )

    async def _score_many(self, batch: list[dict[str, Any]]) -> AsyncIterator[tuple[int, dict[str, Any]]]:
        worker = min(range(len(self._handles)), key=self._in_flight.__getitem__)
        self._in_flight[worker] += len(batch)
        try:
            answers = await bounded(
                self._handles[worker].score_many.remote(batch),
                what=f"the rewards of {len(batch)} trajectories",
                whom=f"reward worker {worker}",
                deadline_s=self._deadline_s,
            )
        except RayActorError as error:
            raise PeerLost(f"reward worker {worker} has died ({error})") from error
        except RayTaskError as error:
            raise error.cause from error
        finally:
            self._in_flight[worker] -= len(batch)
        for item in enumerate(answers):
            yield item


def drop_reason(trajectories: Sequence[Trajectory], on_error: str | float) -> str | None:
    """Why a group cannot be trained: with `reward.on_error=drop_group` after one failure, else when all have failed.

    A failure that a given value stands in for has a score, and drops nothing.
    """
    failed = [item.reward_error for item in trajectories if item.reward_error and item.reward_score is None]
    if failed and (on_error == "drop_group" or len(failed) == len(trajectories)):
        return f"{len(failed)} of {len(trajectories)} trajectories could not be scored: {failed[0]}"
    return None


def drop_group(trajectories: Sequence[Trajectory], reason: str) -> list[Trajectory]:
    """The group with no reward left in it: whoever assembles it all the same trains on none of its tokens."""
    return [
        dataclasses.replace(
            item, reward_score=None, reward_error=item.reward_error or f"dropped with its group: {reason}"
        )
        for item in trajectories
    ]
