# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Front door of fully asynchronous training.

python -m verl.experimental.fully_async_policy.fully_async_main key=value …
"""

import asyncio
import logging
import sys
from typing import Any

import ray

from verl.config.front_door import run_main
from verl.errors import PeerLost, WaitTimeout, first_cause
from verl.experimental.fully_async_policy.message_queue import MessageQueue, MessageQueueClient, RolloutFailed
from verl.trainer.job import run_job
from verl.utils.import_utils import load_class_from_fqn
from verl.utils.logging_utils import set_up_logging
from verl.waits import bounded

logger = logging.getLogger(__name__)

# By name: this module is the driver's too, which would load torch for classes that it only passes by.
ROLLOUTER = "verl.experimental.fully_async_policy.fully_async_rollouter.FullyAsyncRollouter"
TRAINER = "verl.experimental.fully_async_policy.fully_async_trainer.FullyAsyncTrainer"

START_DEADLINE_S = 3600.0
MESSAGE_DEADLINE_S = 300.0
# An actor whose event loop does not answer a status call for this long is stuck.
HEARTBEAT_INTERVAL_S = 15.0
HEARTBEAT_DEADLINE_S = 600.0
# After one side has failed, the other may write down what it knows before it is ended.
GRACE_S = 20.0


class FullyAsyncTaskRunnerCore:
    """Creates rollouter, trainer and queue, starts both loops, and ends both when one fails."""

    def __init__(self) -> None:
        set_up_logging("runner")
        self.phase = "starting"
        self.trainer: Any = None
        self.rollouter: Any = None
        self.queue: MessageQueueClient | None = None
        self._stop_wanted = False

    async def run(self, config: Any) -> dict[str, Any]:
        """The whole run; returns how it ended.

        Raises the first cause of a failure, after the other side was told.
        """
        try:
            await self._start(config)
        except BaseExceptionGroup as group:
            raise first_cause(group) from None
        self.phase = "running"
        return await self._run_both()

    async def _start(self, config: Any) -> None:
        self.phase = "starting processes"
        # No restarts: a lost half of the system ends the run with its name.
        self.rollouter = load_class_from_fqn(ROLLOUTER, "rollouter").remote(config)
        self.trainer = load_class_from_fqn(TRAINER, "trainer").remote(config)
        plan = await self._ask("rollouter", "prepare")
        logger.info("plan: %s", plan)
        self.queue = MessageQueueClient(MessageQueue.remote(None, plan.max_queue_size))
        self.phase = "loading models and servers"
        # Side by side; whichever fails first is the news.
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._ask("trainer", "init_workers", plan))
            tasks.create_task(self._ask("rollouter", "init_workers"))
        await self._ask("rollouter", "set_message_queue_client", self.queue)
        replicas = await self._ask("rollouter", "get_replicas")
        await self._ask("trainer", "connect", self.rollouter, replicas, self.queue)
        self.phase = "publishing the first weights"
        await self._ask("trainer", "resume")
        if self._stop_wanted:
            await self._ask("trainer", "request_stop")

    async def _run_both(self) -> dict[str, Any]:
        fits = {
            asyncio.create_task(self._watched("rollouter")): "rollouter",
            asyncio.create_task(self._watched("trainer")): "trainer",
        }
        failures: dict[str, BaseException] = {}
        pending = set(fits)
        grace = None
        while pending:
            done, pending = await asyncio.wait(pending, timeout=grace, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                break
            for task in done:
                name = fits[task]
                if task.exception() is None:
                    if name == "trainer":
                        for other in pending:
                            other.cancel()
                        return task.result()
                    continue
                failures[name] = task.exception()
                grace = GRACE_S
                await self._close_queue(f"the {name} failed: {task.exception()}")
        for task in pending:
            task.cancel()
        # The first failure is the cause, unless it only repeats what the other side said.
        first = next(iter(failures.values()))
        raise failures.get("rollouter", first) if isinstance(first, RolloutFailed) else first

    async def _watched(self, name: str) -> dict[str, Any]:
        """Run `fit` of an actor, asking it for a sign of life in between."""
        actor = getattr(self, name)
        fit = asyncio.ensure_future(_unwrapped(actor.fit.remote(), name))
        try:
            while True:
                done, _ = await asyncio.wait([fit], timeout=HEARTBEAT_INTERVAL_S)
                if done:
                    return fit.result()
                await bounded(
                    _unwrapped(actor.status.remote(), name),
                    what="a sign of life",
                    whom=f"the {name}",
                    deadline_s=HEARTBEAT_DEADLINE_S,
                )
        finally:
            fit.cancel()

    async def _close_queue(self, reason: str) -> None:
        try:
            await self.queue.close(reason, failed=True)
        except (ray.exceptions.RayError, WaitTimeout) as error:
            logger.warning("the queue could not be closed: %s", error)

    async def _ask(self, name: str, method: str, *args: Any) -> Any:
        return await bounded(
            _unwrapped(getattr(getattr(self, name), method).remote(*args), name),
            what=f"an answer to {method}",
            whom=f"the {name}",
            deadline_s=START_DEADLINE_S,
        )

    async def request_stop(self) -> None:
        """Finish the step in progress, save, and end."""
        self._stop_wanted = True
        self.phase = "stopping"
        if self.trainer is not None:
            await self._ask("trainer", "request_stop")

    async def status(self) -> dict[str, Any]:
        """One mapping for the progress line."""
        if self.phase not in ("running", "stopping"):
            return {"phase": self.phase}
        trainer, rollouter = await asyncio.gather(
            _unwrapped(self.trainer.status.remote(), "trainer"), _unwrapped(self.rollouter.status.remote(), "rollouter")
        )
        metrics = trainer["metrics"]
        waits = trainer["waits"] or rollouter["waits"]
        return {
            "phase": self.phase,
            "step": trainer["step"],
            "total_steps": trainer["total_steps"],
            "policy_version": trainer["version"],
            "reward": metrics.get("critic/score/mean"),
            "accuracy": next((value for name, value in metrics.items() if name.startswith("val-core/")), None),
            "staleness": metrics.get("fully_async/staleness/token_age_mean"),
            "tokens_per_s": metrics.get("perf/throughput"),
            "waiting_for": waits[0] if waits else None,
        }


async def _unwrapped(ref: Any, name: str) -> Any:
    """Await a remote call; Ray's wrappers give way to the error that was raised, a death to a sentence."""
    try:
        return await ref
    except ray.exceptions.ActorDiedError as error:
        raise PeerLost(f"the {name} process died ({last_line(error)})", remedy="logs/ of the run has more") from None
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        raise cause if isinstance(cause, Exception) else error from None


def last_line(error: BaseException) -> str:
    """The line of a remote traceback that says what happened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


FullyAsyncTaskRunner = ray.remote(num_cpus=0, max_concurrency=64)(FullyAsyncTaskRunnerCore)  # type: ignore[call-overload]  # not in Ray's stub


def run(config: Any, raw_config: Any) -> int:
    """Start the job on Ray and wait for its end; returns the exit code."""
    return run_job(config, FullyAsyncTaskRunner)


def main() -> None:
    """Console entry."""
    sys.exit(
        run_main(
            run,
            config_module="verl.experimental.fully_async_policy.config",
            config_name="fully_async_ppo_trainer",
        )
    )


if __name__ == "__main__":
    main()
