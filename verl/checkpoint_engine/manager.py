# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""`CheckpointEngineManager`: one weight update of all replicas as one state machine.

    CONNECT (only if members changed or failed) → TRANSFER → VERIFY → PAUSE → APPLY → RESUME

Generation goes on until PAUSE. A replica that fails keeps its old weights or refuses to generate; the same version is
pushed to it again, and it is given up when it is dead or has failed too often.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from ray.exceptions import RayActorError, RayTaskError

from verl.checkpoint_engine.base import CheckpointEngineRegistry
from verl.errors import ConfigError, PeerLost, TransportError, VerlError
from verl.transport.checksum import CorruptBytes
from verl.utils.ray_utils import auto_await
from verl.utils.trace import span
from verl.waits import bounded
from verl.workers.rollout.replica import RolloutReplica

logger = logging.getLogger(__name__)

TRANSFER_DEADLINE_S = 1800.0
CONTROL_DEADLINE_S = 600.0
_PING_DEADLINE_S = 20.0

Timings = dict[str, float]


class CheckpointEngineManager:
    """Pushes the trainer's weights to every replica.

    Parameters
    ----------
    config : the `rollout.checkpoint_engine` section.
    trainer : worker group of the actor; rank 0's engine is the master.
    replicas : standalone replicas with `workers` (checkpoint-engine workers) and servers.
    partial_rollout : abort requests in flight at the pause; otherwise they finish under the old weights first.
    min_replicas : how many must serve the new version; None means all. Those that cannot are dropped.
    max_retries : further pushes of the same version to replicas that failed.
    """

    def __init__(
        self,
        config: Any,
        trainer: Any,
        replicas: list[RolloutReplica],
        *,
        partial_rollout: bool = True,
        min_replicas: int | None = None,
        max_retries: int = 2,
        transfer_deadline_s: float = TRANSFER_DEADLINE_S,
        on_drop: Callable[[RolloutReplica, BaseException], None] | None = None,
    ) -> None:
        self.config = config
        self.backend = config.backend
        self.trainer = trainer
        self.replicas = list(replicas)
        self.partial_rollout = partial_rollout
        self.min_replicas = min_replicas
        self.max_retries = max_retries
        self.transfer_deadline_s = transfer_deadline_s
        self.on_drop = on_drop
        self.dropped: list[RolloutReplica] = []
        self._connected: tuple[int, ...] | None = None

    def add_replicas(self, replicas: list[RolloutReplica]) -> None:
        """Replicas that join with the next update."""
        self.replicas.extend(replica for replica in replicas if replica not in self.replicas)

    def remove_replicas(self, replicas: list[RolloutReplica]) -> None:
        """Replicas that get no more weights."""
        self.replicas = [replica for replica in self.replicas if replica not in replicas]

    @auto_await
    async def sleep_replicas(self) -> None:
        """Let every replica give up its device memory."""
        await asyncio.gather(*(replica.sleep() for replica in self.replicas))

    @auto_await
    async def wake_up_replicas(self) -> None:
        """Take the device memory back."""
        await asyncio.gather(*(replica.wake_up() for replica in self.replicas))

    @auto_await
    async def update_weights(self, global_steps: int | None = None) -> Timings:
        """Publish the trainer's weights as version `global_steps`; returns seconds per state, bytes and attempts.

        Raises
        ------
        CorruptBytes
            bytes were damaged on the way; not retried.
        PeerLost, TransportError
            the trainer failed, or fewer than `min_replicas` serve the version after all retries.
        """
        if self.backend == "naive":
            return await self._update_colocated(global_steps)
        version = 0 if global_steps is None else int(global_steps)
        timings: Timings = {}
        waiting = list(self.replicas)
        for attempt in range(1, self.max_retries + 2):
            update = _Update(self, version, waiting, timings)
            failures = await update.run()
            timings["attempts"] = float(attempt)
            if not failures:
                break
            waiting = await self._sort_out(version, update, failures, last=attempt > self.max_retries)
            if not waiting:
                break
        timings["replicas"] = float(len(self.replicas))
        return timings

    async def _update_colocated(self, global_steps: int | None) -> Timings:
        started = time.monotonic()
        results = await self.trainer.call_async(
            "update_weights", global_steps=global_steps, deadline_s=self.transfer_deadline_s
        )
        stats = next((item for item in results or [] if isinstance(item, dict)), {})
        return {"transfer_s": time.monotonic() - started, "bytes": float(stats.get("bytes", 0)), "attempts": 1.0}

    async def _sort_out(
        self, version: int, update: "_Update", failures: dict[RolloutReplica, BaseException], *, last: bool
    ) -> list[RolloutReplica]:
        """After a failed attempt: those to try again. Raises when it makes no sense to go on."""
        self._connected = None
        causes = [*failures.values(), *([update.trainer_error] if update.trainer_error else [])]
        corrupt = next((cause for cause in causes if isinstance(cause, CorruptBytes)), None)
        if corrupt is not None:
            raise corrupt
        lost_trainers = self.trainer.dead_peers()
        if lost_trainers:
            raise PeerLost(f"{lost_trainers[0]} died during the update to version {version}") from causes[-1]
        alive = {replica: await _answers(replica) for replica in failures}
        give_up = [replica for replica in failures if last or alive[replica] is not None]
        if last and update.trainer_error is not None and all(alive[replica] is None for replica in failures):
            raise _whole_story(version, failures, update.trainer_error)
        remaining = len(self.replicas) - len(give_up)
        needed = len(self.replicas) + len(self.dropped) if self.min_replicas is None else self.min_replicas
        if remaining < max(1, needed) and give_up:
            raise _whole_story(version, {r: alive[r] or failures[r] for r in give_up}, update.trainer_error)
        for replica in give_up:
            self._drop(replica, alive[replica] or failures[replica])
        for replica in (again := [replica for replica in failures if replica not in give_up]):
            logger.warning("version %d goes to %s again: %s", version, replica.server_id, failures[replica])
            await _tell_abort(replica, version, failures[replica])
        return again

    def _drop(self, replica: RolloutReplica, cause: BaseException) -> None:
        logger.error("%s is given up: %s", replica.server_id, cause)
        self.replicas.remove(replica)
        self.dropped.append(replica)
        if self.on_drop is not None:
            self.on_drop(replica, cause)

    # Connecting

    async def connect(self, replicas: list[RolloutReplica]) -> None:
        """Join trainer ranks and the workers of `replicas` in one group; kept until the members change or fail."""
        members = tuple(replica.replica_rank for replica in replicas)
        if members == self._connected and not _rebuilds(self.config):
            return
        self._connected = None
        workers = [worker for replica in replicas for worker in replica.workers]
        if not workers:
            raise ConfigError(
                "the replicas have no checkpoint-engine workers",
                where="actor_rollout_ref.rollout.checkpoint_engine.backend",
                got=self.backend,
                remedy="pass CheckpointEngineWorker to set_standalone_worker_cls before the replicas start",
            )
        trainer_size = self.trainer.world_size
        metadata = [
            *await self._trainer_engine("prepare"),
            *await _on_workers(workers, "execute_checkpoint_engine", [("prepare",)] * len(workers), {}),
        ]
        engine_cls = CheckpointEngineRegistry.get(self.backend)
        for_trainer, for_rollout = engine_cls.build_topology(trainer_size, len(workers), metadata)
        await _all(
            self._trainer_engine("init_process_group", for_trainer),
            _on_workers(workers, "execute_checkpoint_engine", [("init_process_group",)] * len(workers), for_rollout),
        )
        self._connected = members

    async def build_process_group(self, rollout: Any = None) -> None:
        """Connect all replicas now instead of at the first update."""
        await self.connect(self.replicas)

    async def _trainer_engine(self, method: str, kwargs: dict[str, list[Any]] | None = None) -> list[Any]:
        return await self.trainer.call_async(
            "execute_checkpoint_engine",
            [method] * self.trainer.world_size,
            deadline_s=CONTROL_DEADLINE_S,
            **(kwargs or {}),
        )


class _Update:
    """One attempt to bring one version to some replicas; a replica that fails drops out of the later states."""

    def __init__(
        self, manager: CheckpointEngineManager, version: int, replicas: list[RolloutReplica], timings: Timings
    ) -> None:
        self.trainer_error: BaseException | None = None
        self._manager = manager
        self._version = version
        self._replicas = list(replicas)
        self._timings = timings
        self._failures: dict[RolloutReplica, BaseException] = {}
        self._applied: set[RolloutReplica] = set()

    async def run(self) -> dict[RolloutReplica, BaseException]:
        """All states in order; returns the replicas that do not serve the version, each with its error."""
        async with self._state("connect"):
            try:
                await self._manager.connect(self._replicas)
            except ConfigError:
                raise
            except VerlError as error:
                return dict.fromkeys(self._replicas, error)
        async with self._state("transfer"):
            await self._transfer()
        async with self._state("verify"):
            await self._each(self._verify)
        paused = time.monotonic()
        async with self._state("pause"):
            await self._each(self._pause)
        async with self._state("apply"):
            await self._each(self._apply)
        async with self._state("resume"):
            await self._each(self._resume)
        self._timings["paused_s"] = self._timings.get("paused_s", 0.0) + time.monotonic() - paused
        return self._failures

    @asynccontextmanager
    async def _state(self, name: str) -> AsyncIterator[None]:
        started = time.monotonic()
        with span(f"weights.{name}", version=self._version):
            try:
                yield
            finally:
                key = f"{name}_s"
                self._timings[key] = self._timings.get(key, 0.0) + time.monotonic() - started

    async def _each(self, step: Callable[[RolloutReplica], Awaitable[None]]) -> None:
        """The step on every replica that has not failed, side by side."""
        todo = [replica for replica in self._replicas if replica not in self._failures]
        outcomes = await asyncio.gather(*(step(replica) for replica in todo), return_exceptions=True)
        for replica, outcome in zip(todo, outcomes, strict=True):
            if isinstance(outcome, Exception):
                self._failures[replica] = outcome
            elif isinstance(outcome, BaseException):
                raise outcome

    async def _transfer(self) -> None:
        deadline_s = self._manager.transfer_deadline_s
        sending = self._manager.trainer.call_async("update_weights", global_steps=self._version, deadline_s=deadline_s)
        receiving = (self._receive(replica) for replica in self._replicas)
        sent, *received = await asyncio.gather(sending, *receiving, return_exceptions=True)
        for replica, outcome in zip(self._replicas, received, strict=True):
            if isinstance(outcome, BaseException):
                self._failures[replica] = outcome
        if isinstance(sent, BaseException):
            self.trainer_error = sent
            for replica in self._replicas:
                self._failures.setdefault(replica, sent)
            return
        self._compare(sent, dict(zip(self._replicas, received, strict=True)))

    async def _receive(self, replica: RolloutReplica) -> list[dict[str, Any]]:
        answers = await _on_workers(
            replica.workers,
            "update_weights",
            [(self._version,)] * len(replica.workers),
            {},
            deadline_s=self._manager.transfer_deadline_s,
        )
        if all(answer.get("applied") for answer in answers):
            self._applied.add(replica)
        return answers

    def _compare(self, sent: Any, received: dict[RolloutReplica, Any]) -> None:
        """The content digest does not depend on buckets, so both hops must agree on it with the source."""
        source = next((item for item in sent or [] if item is not None and hasattr(item, "digest")), None)
        if source is None:
            return
        self._timings["bytes"] = float(source.bytes)
        self._timings["tensors"] = float(source.tensors)
        for replica, answers in received.items():
            if replica in self._failures:
                continue
            digests = {answer["digest"] for answer in answers if "digest" in answer}
            if digests - {source.digest}:
                self._failures[replica] = CorruptBytes(
                    f"{replica.server_id} received other weights than the trainer sent",
                    got=sorted(digests),
                    expected=source.digest,
                )

    async def _verify(self, replica: RolloutReplica) -> None:
        if replica in self._applied:
            return
        state = await replica.call("weight_state", deadline_s=CONTROL_DEADLINE_S)
        staged = [worker["staged_version"] for worker in state["workers"]]
        errors = [worker["error"] for worker in state["workers"] if worker["error"]]
        if errors or set(staged) != {self._version}:
            raise TransportError(
                f"{replica.server_id} has not staged version {self._version} on all workers", got=errors or staged
            )

    async def _pause(self, replica: RolloutReplica) -> None:
        if replica in self._applied:
            return
        if not self._manager.partial_rollout:
            await replica.call("wait_for_requests_to_drain", deadline_s=self._manager.transfer_deadline_s)
        await replica.abort_all_requests()

    async def _apply(self, replica: RolloutReplica) -> None:
        if replica not in self._applied:
            await replica.call("apply_weight_update", self._version, deadline_s=CONTROL_DEADLINE_S)

    async def _resume(self, replica: RolloutReplica) -> None:
        if replica not in self._applied:
            await replica.resume_generation()


async def _on_workers(
    workers: list[Any],
    method: str,
    args: list[tuple[Any, ...]],
    kwargs: dict[str, list[Any]],
    deadline_s: float = CONTROL_DEADLINE_S,
) -> list[Any]:
    """Call each worker with its own arguments; the first failure is raised when all have answered or failed."""

    async def one(index: int) -> Any:
        mine = {key: values[index] for key, values in kwargs.items()}
        whom = f"checkpoint-engine worker {index}"
        try:
            ref = getattr(workers[index], method).remote(*args[index], **mine)
            return await bounded(ref, what=method, whom=whom, deadline_s=deadline_s)
        except RayActorError as error:
            raise PeerLost(f"{whom} has died during {method}: {error}") from error
        except RayTaskError as error:
            raise (error.cause if isinstance(error.cause, VerlError) else error) from error

    return await _all(*(one(index) for index in range(len(workers))))


async def _all(*calls: Awaitable[Any]) -> list[Any]:
    """Wait for all, then raise the first error: what is still under way must not be left behind in a collective."""
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return list(outcomes)


async def _answers(replica: RolloutReplica) -> BaseException | None:
    """None where the server and every worker of the replica answer, else the error of the one that does not."""
    try:
        await replica.call("weight_state", deadline_s=_PING_DEADLINE_S)
        await _on_workers(
            replica.workers, "get_replica_rank", [()] * len(replica.workers), {}, deadline_s=_PING_DEADLINE_S
        )
    except (VerlError, RayTaskError) as error:
        return error
    return None


async def _tell_abort(replica: RolloutReplica, version: int, cause: BaseException) -> None:
    try:
        await replica.call("abort_weight_update", version, str(cause), deadline_s=_PING_DEADLINE_S)
    except (VerlError, RayTaskError) as error:
        logger.warning("%s could not be told to forget version %d: %s", replica.server_id, version, error)


def _rebuilds(config: Any) -> bool:
    options = (config.get("engine_kwargs") or {}).get(config.backend) or {}
    return bool(options.get("rebuild_group"))


def _whole_story(
    version: int, failures: dict[RolloutReplica, BaseException], trainer_error: BaseException | None
) -> VerlError:
    """One error that names every replica and why it does not serve the version."""
    lines = [f"{replica.server_id}: {cause}" for replica, cause in failures.items()]
    if trainer_error is not None:
        lines.append(f"trainer: {trainer_error}")
    kind = PeerLost if any(isinstance(cause, PeerLost) for cause in failures.values()) else TransportError
    error = kind(f"version {version} could not be published; " + "; ".join(lines))
    error.__cause__ = next(iter(failures.values()))
    return error
