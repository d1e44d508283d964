# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The rollouter's loop: how many groups it starts, what it puts into the queue, and how it ends.

Agent loops are scripted; ledger, feed, plan and queue are the real ones.
"""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray.exceptions
from omegaconf import OmegaConf
from word_tokenizer import word_tokenizer

from verl.config.front_door import load
from verl.errors import ConfigError, PeerLost, VerlError
from verl.experimental.agent_loop.trajectory import GroupMeta
from verl.experimental.fully_async_policy.fully_async_rollouter import MAX_ATTEMPTS, FullyAsyncRollouterCore
from verl.experimental.fully_async_policy.idle_clock import IdleClock
from verl.experimental.fully_async_policy.message_queue import MessageQueueCore, QueueClosed
from verl.experimental.fully_async_policy.plan import AsyncPlan
from verl.experimental.fully_async_policy.prompt_feed import PromptFeed
from verl.experimental.fully_async_policy.staleness import StalenessLedger

Answer = Callable[[str, int], Any]
"""(uid, how often this uid was asked before) -> rewards of the group, "aborted", or an error to raise."""


class Loops:
    """Stands where the agent loops stand."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.asked: Counter[str] = Counter()
        self.versions: list[int] = []

    async def generate_group(self, row: Any, *, uid: str, n: int, policy_version: int) -> tuple[GroupMeta, Any]:
        answer = self.answer(uid, self.asked[uid])
        self.asked[uid] += 1
        self.versions.append(policy_version)
        if asyncio.iscoroutine(answer):
            answer = await answer
        if isinstance(answer, BaseException):
            raise answer
        aborted = answer == "aborted"
        rewards = (1.0,) * n if aborted else tuple(answer)
        errors = tuple(None if reward is not None else "boom" for reward in rewards)
        meta = GroupMeta(
            uid=uid, num_trajectories=n, prompt_length=1, response_lengths=(1,) * n, rewards=rewards,
            reward_errors=errors, min_versions=(policy_version,) * n, max_versions=(policy_version,) * n,
            generate_s=(0.0,) * n, aborted=aborted, dropped=None, payload_bytes=1, timings={},
        )  # fmt: skip
        return meta, f"payload of {uid}"


def good(uid: str, before: int) -> list[float]:
    return [1.0, 0.0]


def rollouter(answer: Answer, *, rows: int = 10, required: int = 2, threshold: float = 0.0, trigger: int = 1) -> Any:
    core = FullyAsyncRollouterCore.__new__(FullyAsyncRollouterCore)
    core.config = OmegaConf.create(
        {"actor_rollout_ref": {"rollout": {"n": 2}}, "async_training": {"max_version_lag": None}}
    )
    data = OmegaConf.create({"shuffle": False, "seed": 1, "dataloader_num_workers": 0, "train_batch_size": 0})
    core.feed = PromptFeed([{"x": i} for i in range(rows)], data, epochs=1)
    core.plan = AsyncPlan(required, trigger, threshold, rows // required * required, rows)
    core.ledger = StalenessLedger(core.plan.max_required_samples, max_in_flight=64)
    core.agent_loops, core.queue = Loops(answer), MessageQueueCore(max_queue_size=100)
    core.servers = SimpleNamespace(replicas=[SimpleNamespace(health=healthy)])
    core.idle, core.generated = IdleClock(time.monotonic()), 0
    core._attempts, core._room = Counter(), asyncio.Condition()
    return core


async def healthy() -> bool:
    return True


async def settled(core: Any) -> None:
    """Until nothing moves any more."""
    for _ in range(100):
        await asyncio.sleep(0.005)


async def train(core: Any, count: int) -> list[Any]:
    """What the trainer does with `count` groups."""
    samples = await core.queue.take(count, 5)
    uids = [sample.sample_id for sample in samples]
    await core.note_taken(uids)
    await core.note_trained(uids)
    return samples


def test_a_failure_ends_the_run_with_its_cause_and_leaves_no_task() -> None:
    def third_fails(uid: str, before: int) -> Any:
        return RuntimeError("injected") if uid == "0-2-2" else asyncio.sleep(3600, [1.0, 1.0])

    async def scenario() -> None:
        core = rollouter(third_fails, required=10)
        with pytest.raises(RuntimeError, match="injected"):
            await asyncio.wait_for(core.fit(), timeout=5)
        with pytest.raises(QueueClosed, match="injected") as closed:
            await core.queue.take(1)
        assert closed.value.failed
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(scenario())


def test_the_end_of_the_data_is_no_failure() -> None:
    async def scenario() -> None:
        core = rollouter(good, rows=3, required=3, threshold=1.0)
        await asyncio.wait_for(core.fit(), timeout=5)
        assert core.ledger.staleness_samples == core.generated == 3, "the end counts as no group"
        assert len(await train(core, 3)) == 3
        with pytest.raises(QueueClosed, match="all prompts are generated") as closed:
            await core.queue.take(1)
        assert not closed.value.failed

    asyncio.run(scenario())


def test_at_threshold_zero_new_groups_wait_for_the_new_weights() -> None:
    async def scenario() -> None:
        core = rollouter(good, rows=12, required=4)
        fit = asyncio.create_task(core.fit())
        for version in range(3):
            await settled(core)
            assert len(core.agent_loops.versions) == 4 * (version + 1)
            assert [sample.start_version for sample in await train(core, 4)] == [version] * 4
            await settled(core)
            assert len(core.agent_loops.versions) == 4 * (version + 1), "the queue is empty, but the weights are old"
            await core.reset_staleness(version + 1)
        await asyncio.wait_for(fit, timeout=5)

    asyncio.run(scenario())


def test_each_group_carries_the_version_under_which_it_began() -> None:
    async def scenario() -> None:
        core = rollouter(good, rows=6, required=2)
        fit = asyncio.create_task(core.fit())
        stamps = []
        for version in range(3):
            stamps += [sample.start_version for sample in await train(core, 2)]
            await core.reset_staleness(version + 1)
        await fit
        assert stamps == core.agent_loops.versions == [0, 0, 1, 1, 2, 2]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "interruption",
    ["aborted", PeerLost("rollout server 0 has died"), ray.exceptions.TaskCancelledError()],
    ids=["aborted by an update", "a lost server", "cancelled by Ray"],
)
def test_an_interruption_is_no_error_and_the_prompt_is_generated_again(interruption: Any) -> None:
    async def scenario() -> None:
        core = rollouter(lambda uid, before: interruption if uid == "0-1-1" and not before else good(uid, before))
        fit = asyncio.create_task(core.fit())
        taken = []
        for version in range(5):
            taken += await train(core, 2)
            await core.reset_staleness(version + 1)
        await asyncio.wait_for(fit, timeout=5)
        assert sorted(sample.sample_id for sample in taken) == sorted(f"0-{row}-{row}" for row in range(10))
        assert core.agent_loops.asked["0-1-1"] == 2 and core.agent_loops.asked["0-2-2"] == 1
        # Nothing of the interrupted attempt reached the trainer.
        assert core.ledger.dropped_total == 1 and core.generated == 10

    asyncio.run(scenario())


def test_beside_an_interruption_a_real_error_still_ends_the_run() -> None:
    async def fails_later() -> Any:
        await asyncio.sleep(0.1)
        raise ValueError("injected")

    def answer(uid: str, before: int) -> Any:
        if uid == "0-1-1" and not before:
            return ray.exceptions.TaskCancelledError()
        return fails_later() if uid == "0-2-2" else good(uid, before)

    async def scenario() -> None:
        core = rollouter(answer, rows=3, required=3)
        with pytest.raises(ValueError, match="injected"):
            await asyncio.wait_for(core.fit(), timeout=5)
        assert core.agent_loops.asked == {"0-0-0": 1, "0-1-1": 2, "0-2-2": 1}
        assert core.ledger.drop_reasons.total() == 1 and core.generated == 2
        with pytest.raises(QueueClosed, match="injected"):
            await core.queue.take(1)

    asyncio.run(scenario())


def test_an_interruption_that_never_ends_is_an_error_after_all() -> None:
    async def scenario() -> None:
        core = rollouter(lambda uid, before: "aborted" if uid == "0-1-1" else good(uid, before))
        with pytest.raises(VerlError, match=r"0-1-1.*again and again.*aborted"):
            await asyncio.wait_for(core.fit(), timeout=5)
        assert core.agent_loops.asked["0-1-1"] == MAX_ATTEMPTS

    asyncio.run(scenario())


def test_a_group_without_any_score_makes_room_for_another_prompt() -> None:
    async def scenario() -> None:
        core = rollouter(lambda uid, before: [None, None] if uid == "0-0-0" else good(uid, before), rows=5, required=4)
        fit = asyncio.create_task(core.fit())
        assert [sample.sample_id for sample in await train(core, 4)] == ["0-1-1", "0-2-2", "0-3-3", "0-4-4"]
        await asyncio.wait_for(fit, timeout=5)
        assert core.ledger.drop_reasons == {"reward: boom": 1} and core.agent_loops.asked["0-0-0"] == 1

    asyncio.run(scenario())


def test_the_data_options_hold_here_too(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    rows = [{"prompt": [{"role": "user", "content": f"w{i}"}], "data_source": "sums"} for i in range(10)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def sizes(train: int, val: int) -> tuple[int, int]:
        core = FullyAsyncRollouterCore.__new__(FullyAsyncRollouterCore)
        core.tokenizer, core.processor = word_tokenizer(), None
        options = [
            *(
                "data.train_batch_size=0",
                "actor_rollout_ref.hybrid_engine=False",
                "actor_rollout_ref.rollout.name=vllm",
            ),
            *("actor_rollout_ref.actor.ppo_mini_batch_size=1", f"data.train_files={file}", f"data.val_files=[{file}]"),
            *(f"data.train_max_samples={train}", f"data.val_max_samples={val}", "data.dataloader_num_workers=0"),
        ]
        core.config, _ = load(options)
        plan = asyncio.run(core.prepare())
        assert plan.prompts_per_epoch == len(core.feed.dataset)
        return len(core.feed.dataset), len(core.val_loader.dataset)

    assert (sizes(3, 2), sizes(-1, 50)) == ((3, 2), (10, 10))
    with pytest.raises(ConfigError, match="max_samples"):
        sizes(0, 2)
