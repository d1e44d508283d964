# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Manager, agent workers and reward workers as real Ray actors; the policy is scripted."""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import ray
import torch
from loop_parts import REWARD_FILE, make_config, make_row
from scripted_client import ScriptedClient

from verl.errors import ConfigError, PeerLost, UnsupportedError
from verl.experimental.agent_loop.jobs import jobs_of
from verl.experimental.agent_loop.manager import AgentLoopManager, _chunks
from verl.experimental.reward_loop.reward_loop import RewardLoopManager
from verl.protocol import DataProto


@pytest.fixture(scope="module")
def rewards(ray_cluster: None, tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple]:
    path = tmp_path_factory.mktemp("reward") / "reward.py"
    path.write_text(REWARD_FILE)
    config = make_config(tiny_model_dir, path)
    manager = RewardLoopManager(config)
    yield config, manager
    manager.shutdown()


@pytest.fixture(scope="module")
def agents(rewards: tuple) -> Iterator[AgentLoopManager]:
    config, reward_manager = rewards
    manager = AgentLoopManager.create(
        config, llm_client=ScriptedClient(), reward_loop_worker_handles=reward_manager.reward_loop_worker_handles
    )
    yield manager
    asyncio.run(manager.shutdown())


def batch_of(rows: list[dict], uids: list[str], **meta: object) -> DataProto:
    columns = {}
    for key in rows[0]:
        columns[key] = np.empty(len(rows), dtype=object)
        columns[key][:] = [row[key] for row in rows]
    columns["uid"] = np.array(uids, dtype=object)
    return DataProto.from_dict(
        tensors={"dummy_tensor": torch.zeros(len(rows), 1)}, non_tensors=columns, meta_info=dict(meta)
    )


def test_a_group_comes_back_as_meta_data_and_a_reference_with_scores(agents: AgentLoopManager) -> None:
    async def run():
        return await agents.generate_group(make_row("12+34=", "=43+21"), uid="0-7", n=3, policy_version=2)

    meta, payload_ref = asyncio.run(run())
    trajectories = ray.get(payload_ref, timeout=30)
    assert (meta.uid, meta.num_trajectories, meta.prompt_length) == ("0-7", 3, 6)
    assert meta.response_lengths == (6, 6, 6)
    assert meta.rewards == (1.0, 1.0, 1.0) and meta.reward_errors == (None, None, None)
    assert (meta.min_version, meta.max_version, meta.aborted, meta.dropped) == (3, 3, False, None)
    assert meta.payload_bytes == sum(trajectory.num_bytes for trajectory in trajectories)
    first = trajectories[0]
    assert first.response_ids.dtype == np.int32 and first.log_probs.dtype == np.float32
    assert first.response_mask.all() and (first.token_versions == 3).all()
    assert first.reward_extra_info == {"acc": 1.0}
    # One row object for the group: it travels once.
    assert trajectories[0].row is trajectories[1].row


def test_the_payload_survives_its_worker(rewards: tuple) -> None:
    config, reward_manager = rewards

    async def run():
        manager = await AgentLoopManager.create(
            config,
            llm_client=ScriptedClient(),
            reward_loop_worker_handles=reward_manager.reward_loop_worker_handles,
            num_workers=1,
        )
        _, payload = await manager.generate_group(make_row("1+1=", "2"), uid="u", n=2)
        await manager.shutdown()
        return await payload

    assert len(asyncio.run(run())) == 2


def test_a_dead_worker_is_named(rewards: tuple) -> None:
    config, _ = rewards

    async def run():
        manager = await AgentLoopManager.create(config, llm_client=ScriptedClient(delay_s=30.0), num_workers=1)
        facts = await manager._workers[0].handle.ready.remote()
        call = asyncio.create_task(manager.generate_group(make_row("1+1=", "2"), uid="lost", n=2))
        await asyncio.sleep(0.5)
        os.kill(facts["pid"], signal.SIGKILL)
        with pytest.raises(PeerLost, match="agent worker 0 has died while it owed the trajectories of lost"):
            await call
        with pytest.raises(PeerLost, match="no agent worker is left"):
            await manager.generate_group(make_row("1+1=", "2"), uid="next", n=1)

    asyncio.run(run())


def test_a_failing_reward_is_an_error_and_never_a_zero(agents: AgentLoopManager) -> None:
    async def run():
        return await agents.generate_group(make_row("moob", "x"), uid="bad", n=2)

    meta, payload = asyncio.run(run())
    assert meta.rewards == (None, None)
    assert all("ValueError: injected" in error for error in meta.reward_errors)
    assert "2 of 2 trajectories could not be scored" in meta.dropped
    assert all(trajectory.reward_score is None for trajectory in ray.get(payload, timeout=30))


def test_a_batch_keeps_its_order_and_groups_rows_of_one_uid(agents: AgentLoopManager) -> None:
    questions = ["1+2=", "3+4=", "5+6="]
    rows = [make_row(question, question[::-1]) for question in questions for _ in range(2)]
    uids = [f"v{index // 2}" for index in range(6)]
    batch = batch_of(rows, uids, validate=True, global_steps=5)
    assert [job.n for job in jobs_of(batch)] == [2, 2, 2]
    out = agents.generate_sequences(batch)
    assert out.non_tensor_batch["uid"].tolist() == uids
    assert out.batch["rm_scores"].sum(-1).tolist() == [1.0] * 6
    assert out.batch["prompts"].shape == (6, 16) and out.batch["responses"].shape == (6, 12)
    assert out.meta_info["temperature"] == 0.0
    # Validation asks for no log-probs.
    assert "rollout_log_probs" not in out.batch
    assert out.non_tensor_batch["acc"].tolist() == [1.0] * 6


def test_a_prompt_that_is_too_long_names_its_row(agents: AgentLoopManager) -> None:
    async def run():
        await agents.generate_group(make_row("1" * 40, "2", index=17), uid="long", n=1)

    with pytest.raises(Exception, match=r"row with index 17.*40 tokens.*at most 16"):
        asyncio.run(run())


def test_chunks_share_the_batch_among_workers() -> None:
    from verl.experimental.agent_loop.jobs import GroupJob

    jobs = [GroupJob({}, str(index), 4) for index in range(10)]
    chunks = _chunks(jobs, num_workers=2)
    assert [job.uid for chunk in chunks for job in chunk] == [str(index) for index in range(10)]
    assert max(sum(job.n for job in chunk) for chunk in chunks) <= 20
    # A group larger than the limit still goes, alone.
    assert [len(chunk) for chunk in _chunks([GroupJob({}, "a", 100), GroupJob({}, "b", 1)], 1)] == [1, 1]


def test_a_wrong_reward_path_is_an_error_at_the_start(ray_cluster: None, tiny_model_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such Python file"):
        RewardLoopManager(make_config(tiny_model_dir, tmp_path / "absent.py"))


def test_the_servers_caches_are_cleared_and_a_teacher_is_refused(agents: AgentLoopManager) -> None:
    # Without servers of its own the manager has nothing to clear.
    assert agents.clear_kv_cache() is None
    with pytest.raises(UnsupportedError, match="teacher_model_manager"):
        AgentLoopManager(agents.config, teacher_model_manager=object())
