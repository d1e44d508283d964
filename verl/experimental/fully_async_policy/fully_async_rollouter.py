# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The generating half: admits prompts by the ledger, generates groups, scores them, puts them into the queue.

feed → admission (ledger) → one task per group (agent loops, rewards) → message queue
"""

import asyncio
import io
import logging
import time
from collections import Counter
from typing import Any

import ray
import torch

from verl.checkpoint_engine.worker import CheckpointEngineWorker
from verl.config.async_training import device_share
from verl.errors import CheckpointError, DataError, PeerLost, VerlError, first_cause
from verl.experimental.agent_loop.manager import AgentLoopManager
from verl.experimental.agent_loop.trajectory import GroupMeta
from verl.experimental.fully_async_policy.idle_clock import IdleClock
from verl.experimental.fully_async_policy.message_queue import MessageQueueClient
from verl.experimental.fully_async_policy.plan import AsyncPlan
from verl.experimental.fully_async_policy.prompt_feed import PromptFeed
from verl.experimental.fully_async_policy.rollout_sample import RolloutSample, ValidateMetrics
from verl.experimental.fully_async_policy.staleness import GroupState, StalenessLedger
from verl.experimental.reward_loop.reward_loop import RewardLoopManager
from verl.experimental.separation.utils import trainer_slots
from verl.trainer.ppo.validation import validate
from verl.utils.dataset.loader import make_val_loader
from verl.utils.dataset.rl_dataset import create_rl_dataset
from verl.utils.logging_utils import set_up_logging
from verl.utils.tokenizer import load_tokenizer_and_processor
from verl.utils.trace import set_up_trace, span
from verl.waits import bounded, current_waits
from verl.workers.rollout.llm_server import LLMServerManager
from verl.workers.rollout.replica import set_standalone_worker_cls

logger = logging.getLogger(__name__)

# A group that fails this often for reasons outside it (a lost server, an aborted request) ends the run.
MAX_ATTEMPTS = 5


class FullyAsyncRollouterCore:
    """Generates prompt groups ahead of the trainer, as far as the ledger allows.

    All methods are coroutines on one event loop; nothing in it blocks.
    """

    def __init__(self, config: Any) -> None:
        set_up_logging("rollouter")
        set_up_trace(f"{config.trainer.default_local_dir}/trace", "rollouter")
        self.config = config
        self.tokenizer, self.processor = load_tokenizer_and_processor(config.actor_rollout_ref.model)
        self.queue: MessageQueueClient | None = None
        self.servers: LLMServerManager | None = None
        self.agent_loops: AgentLoopManager | None = None
        self.idle = IdleClock(time.monotonic())
        self.generated = 0
        self._attempts: Counter[str] = Counter()
        self._room: asyncio.Condition | None = None

    # -- start-up --------------------------------------------------------------------------------------------------

    async def prepare(self) -> AsyncPlan:
        """Load the data sets and work out the plan of the run (groups per step, per version, in total)."""
        data = self.config.data
        dataset = create_rl_dataset(
            data.train_files, data, self.tokenizer, self.processor, is_train=True, max_samples=data.train_max_samples
        )
        validation = create_rl_dataset(
            data.val_files, data, self.tokenizer, self.processor, is_train=False, max_samples=data.val_max_samples
        )
        if not len(dataset):
            raise DataError("the training set is empty", where="data.train_files", got=data.train_files)
        self.val_loader = make_val_loader(validation, data)
        self.feed = PromptFeed(dataset, data, epochs=self.config.trainer.total_epochs)
        self.plan = AsyncPlan.of(self.config, prompts_per_epoch=len(dataset))
        return self.plan

    async def init_workers(self) -> None:
        """Start servers, reward workers and agent loop workers, the slow ones side by side."""
        self._room = asyncio.Condition()
        set_standalone_worker_cls(CheckpointEngineWorker)
        # The agent workers, which load their libraries for seconds, start beside what they will be connected to.
        self.agent_loops = await AgentLoopManager.create(
            self.config,
            servers=LLMServerManager.create(
                self.config, device_share=device_share(self.config), beside=trainer_slots(self.config)
            ),
            reward_loop_worker_handles=self._start_reward_workers(),
            trace_dir=f"{self.config.trainer.default_local_dir}/trace",
        )
        self.servers = self.agent_loops.servers
        self.ledger = StalenessLedger(
            max_outstanding=self.plan.max_required_samples,
            max_in_flight=self.plan.max_concurrent_samples(len(self.servers.replicas)),
        )

    async def _start_reward_workers(self) -> list[Any]:
        manager = await asyncio.to_thread(RewardLoopManager, self.config)
        return manager.reward_loop_worker_handles

    async def set_message_queue_client(self, client: MessageQueueClient) -> None:
        self.queue = client

    def get_replicas(self) -> list[Any]:
        """The rollout replicas, for the trainer's weight publisher."""
        return self.servers.replicas

    # -- the run ---------------------------------------------------------------------------------------------------

    async def fit(self) -> None:
        """Generate until the data or the plan ends, then close the queue; any failure closes it with its cause."""
        try:
            async with asyncio.TaskGroup() as tasks:
                await self._feed(tasks)
        except BaseException as error:
            cause = first_cause(error)
            await self.queue.close(f"the rollouter failed: {type(cause).__name__}: {cause}", failed=True)
            raise cause from None
        await self.queue.close("all prompts are generated")

    async def _feed(self, tasks: asyncio.TaskGroup) -> None:
        while await self._more_to_start():
            await self._admission()
            item = await self.feed.next()
            if item is None:
                continue
            uid, row = item
            self.ledger.submit(uid)
            self.feed.claim(uid)
            tasks.create_task(self._one_group(uid, row), name=uid)

    async def _more_to_start(self) -> bool:
        """Whether another group must be started; waits for groups in flight, since a dropped one is replaced."""

        def wanted() -> bool:
            accepted = self.ledger.submitted - self.ledger.dropped_total
            return accepted < self.plan.total_groups and not self.feed.exhausted

        async with self._room:
            await self._room.wait_for(lambda: wanted() or not self.ledger.count(GroupState.IN_FLIGHT))
            return wanted()

    async def _admission(self) -> None:
        """Wait for room in the ledger; the trainer's waits have the deadlines that bound this one."""
        lag = self.config.async_training.max_version_lag
        async with self._room:
            while not self.ledger.capacity() or self.ledger.overdue(lag):
                # Idle means that no server works; groups in flight while there is no room for more are work.
                if not self.ledger.count(GroupState.IN_FLIGHT):
                    self.idle.pause(time.monotonic())
                await self._room.wait()
            self.idle.resume(time.monotonic())

    async def _one_group(self, uid: str, row: dict[str, Any]) -> None:
        reason = await self._attempt(uid, row)
        if reason is None:
            self._attempts.pop(uid, None)
            return
        again = not reason.startswith("reward")
        self._attempts[uid] += 1
        if again and self._attempts[uid] >= MAX_ATTEMPTS:
            raise VerlError("a group failed again and again", where=uid, got=reason, expected="a finished group")

        def drop() -> None:
            self.ledger.drop(uid, reason)
            if again:
                # Same uid, same prompt, same seeds, new ledger entry; never between ledger and feed.
                self.feed.put_back([(uid, row)])

        await self._change(drop)

    async def _attempt(self, uid: str, row: dict[str, Any]) -> str | None:
        """Generate one group and queue it; returns why it has to be dropped, or None."""
        start_version = self.ledger.version
        try:
            with span("generate_group", uid=uid, version=start_version):
                meta, payload = await self.agent_loops.generate_group(
                    row, uid=uid, n=self.config.actor_rollout_ref.rollout.n, policy_version=start_version
                )
        except PeerLost as error:
            if not await self._a_server_lives():
                raise
            logger.warning("group %s is generated again: %s", uid, error)
            return "replica lost"
        except ray.exceptions.TaskCancelledError as error:
            # Ray's own class, which asyncio does not know: somebody ended the call, and nothing is wrong with it.
            logger.warning("group %s is generated again: %s", uid, error)
            return "cancelled"
        if meta.aborted:
            return "aborted by a weight update"
        if reason := self._no_score(meta):
            logger.warning("group %s is dropped: %s", uid, reason)
            return f"reward: {reason.splitlines()[0]}"
        await self._change(lambda: self.ledger.finish(uid))
        self.generated += 1
        sample = RolloutSample(
            sample_id=uid,
            epoch=int(uid.split("-")[0]),
            start_version=start_version,
            meta=meta,
            payload=(payload,),
            rollout_status=self._counters(),
        )
        await self.queue.put_sample(sample)
        return None

    @staticmethod
    def _no_score(meta: GroupMeta) -> str | None:
        """The first reward error when no trajectory has a score (`reward.on_error=drop_group` takes them all)."""
        if all(reward is None for reward in meta.rewards):
            return next((error for error in meta.reward_errors if error), "no trajectory was scored")
        return None

    async def _a_server_lives(self) -> bool:
        answers = await asyncio.gather(*(replica.health() for replica in self.servers.replicas), return_exceptions=True)
        return any(not isinstance(answer, BaseException) for answer in answers)

    async def _change(self, transition: Any) -> None:
        """Apply a ledger transition and wake whoever waits for room."""
        async with self._room:
            transition()
            self._room.notify_all()

    # -- messages from the trainer ---------------------------------------------------------------------------------

    async def note_taken(self, uids: list[str]) -> None:
        await self._change(lambda: self.ledger.take(uids))

    async def note_trained(self, uids: list[str]) -> None:
        await self._change(lambda: self.ledger.trained(uids))

    async def note_dropped(self, uids: list[str], reason: str) -> None:
        """Groups that the trainer holds but will not train."""

        def drop() -> None:
            for uid in uids:
                self.ledger.drop(uid, reason)

        await self._change(drop)

    async def regenerate(self, uids: list[str], reason: str) -> None:
        """Generate groups again whose trajectories were lost on their way to the trainer."""
        rows = [(uid, await asyncio.to_thread(self.feed.row, uid)) for uid in uids]

        def drop() -> None:
            for uid in uids:
                self.ledger.drop(uid, reason)
            self.feed.put_back(rows)

        await self._change(drop)

    async def wait_for_overdue(self, deadline_s: float) -> None:
        """Return when no group that must be trained before the next publish is still being generated."""
        lag = self.config.async_training.max_version_lag

        def ready() -> bool:
            late = set(self.ledger.overdue(lag))
            return not late & set(self.ledger.in_state(GroupState.IN_FLIGHT))

        async with self._room:
            await bounded(
                self._room.wait_for(ready),
                what=f"groups older than {lag} versions",
                whom="the rollout servers",
                deadline_s=deadline_s,
            )

    async def reset_staleness(self, version: int) -> dict[str, float]:
        """The servers serve `version` now: room is counted anew; returns how busy the last version was."""
        now = time.monotonic()
        timing = self.idle.window(now)
        await self._change(lambda: self.ledger.publish(version))
        return {f"fully_async/rollouter/{name}": value for name, value in timing.items()}

    async def do_validate(self, version: int) -> ValidateMetrics:
        """Measure the weights that are served; training prompts go on beside it."""
        started = time.monotonic()
        metrics, generations = await validate(self.val_loader, self.agent_loops, self.config, self.tokenizer, version)
        return ValidateMetrics({"rollouter/validate_time": time.monotonic() - started}, metrics, generations)

    # -- checkpoint ------------------------------------------------------------------------------------------------

    async def snapshot(self) -> tuple[dict[str, Any], bytes]:
        """Ledger and loader position at one moment; outstanding groups will be generated again on resume."""
        async with self.feed.reading, self._room:
            state = {"ledger": self.ledger.snapshot(), "feed": self.feed.position(), "fit_to": self.plan.fingerprint()}
            buffer = io.BytesIO()
            torch.save(self.feed.loader_state(), buffer)
        return state, buffer.getvalue()

    async def restore(self, state: dict[str, Any], loader: bytes) -> None:
        """Continue from a snapshot: outstanding groups first, then the next rows."""
        changed = [
            f"{key}: {state['fit_to'].get(key)} → {value}"
            for key, value in self.plan.fingerprint().items()
            if state["fit_to"].get(key) != value
        ]
        if changed:
            logger.warning("resuming with a changed set-up: %s", "; ".join(changed))
        if state["fit_to"].get("prompts_per_epoch") != self.plan.prompts_per_epoch:
            raise CheckpointError(
                "the training set has another size than when the checkpoint was written",
                where="data.train_files",
                got=self.plan.prompts_per_epoch,
                expected=state["fit_to"].get("prompts_per_epoch"),
                remedy="resume with the same files, or set trainer.resume_mode=disable",
            )
        outstanding = self.ledger.restore(state["ledger"])
        self.generated = self.ledger.trained_total
        self.feed.restore(state["feed"], torch.load(io.BytesIO(loader), weights_only=False))
        self.feed.put_back([(uid, self.feed.row(uid)) for uid in outstanding])

    # -- observation -----------------------------------------------------------------------------------------------

    async def get_statistics(self) -> dict[str, float]:
        return self._counters() | {"monitor/queue/mq_queue_size": await self.queue.get_queue_size()}

    async def status(self) -> dict[str, Any]:
        """For the progress line; cheap, and answered between any two awaits."""
        waits = current_waits()
        return {
            "in_flight": self.ledger.count(GroupState.IN_FLIGHT),
            "queued": self.ledger.count(GroupState.QUEUED),
            "room": self.ledger.capacity(),
            "generated": self.generated,
            "waits": [wait.describe() for wait in waits[:3]],
        }

    def _counters(self) -> dict[str, float]:
        ledger = self.ledger
        return {
            "monitor/active_tasks_size": ledger.count(GroupState.IN_FLIGHT),
            "monitor/queue/pending_queue_size": self.feed.num_put_back,
            "monitor/queue/mq_queue_size": ledger.count(GroupState.QUEUED),
            "count/total_generated_samples": self.generated,
            "count/staleness_samples": ledger.staleness_samples,
            "count/dropped_stale_samples": ledger.dropped_total,
            "static/max_required_samples": ledger.max_outstanding,
            "static/required_samples": self.plan.required_samples,
            "static/staleness_threshold": self.plan.staleness_threshold,
            "static/max_queue_size": self.plan.max_queue_size,
            "static/max_concurrent_samples": ledger.max_in_flight,
        }


# Control actors ask for no CPU; a long validation and many status calls share the loop.
FullyAsyncRollouter = ray.remote(num_cpus=0, max_concurrency=1000)(FullyAsyncRollouterCore)  # type: ignore[call-overload]  # not in Ray's stub
