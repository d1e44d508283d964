# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The workers under their old names."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from verl.config import RunConfig
from verl.config.front_door import load
from verl.errors import UnsupportedError
from verl.platform import current_platform
from verl.protocol import DataProto
from verl.utils.memory_utils import dump_memory_snapshot
from verl.workers import engine_workers, fsdp_workers

torch.set_num_threads(1)


@pytest.fixture
def config(tiny_model_dir: Path, tmp_path: Path) -> RunConfig:
    """The composed configuration, typed, for mini-batches of 2 prompts with one answer each."""
    own = [f"actor_rollout_ref.model.path={tiny_model_dir}", f"critic.model.path={tiny_model_dir}"]
    own += ["actor_rollout_ref.actor.ppo_mini_batch_size=2", "actor_rollout_ref.actor.use_dynamic_bsz=true"]
    own += ["critic.optim.lr=1e-2", f"trainer.default_local_dir={tmp_path}"]
    return load(own, "verl.trainer.config", "ppo_trainer")[0]


def batch(**columns: torch.Tensor) -> DataProto:
    ids = torch.randint(2, 14, (4, 10), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    tensors = {"prompts": ids[:, :5], "responses": ids[:, 5:], "input_ids": ids, "attention_mask": mask}
    tensors |= {"position_ids": mask.cumsum(-1) - 1, "response_mask": mask[:, 5:], **columns}
    return DataProto.from_dict(tensors, meta_info={"temperature": 1.0, "global_step": 1})


def test_the_policys_worker_gives_what_the_engines_worker_gives(config: RunConfig) -> None:
    old = fsdp_workers.AsyncActorRolloutRefWorker(config=config.actor_rollout_ref, role="actor")
    new = engine_workers.ActorRolloutRefWorker(config.actor_rollout_ref, "actor")
    for worker in (old, new):
        worker.init_model()
    key = "old_log_probs"
    assert torch.equal(old.compute_log_prob(batch()).batch[key], new.compute_log_prob(batch()).batch[key])
    data = batch(old_log_probs=torch.zeros(4, 5), advantages=torch.ones(4, 5))
    first, second = (worker.update_actor(data).meta_info["metrics"] for worker in (old, new))
    # How fast it went is no result.
    assert first.pop("actor/mfu") and second.pop("actor/mfu") and first == second


def test_its_profiler_can_be_started(config: RunConfig) -> None:
    worker = fsdp_workers.ActorRolloutRefWorker(config.actor_rollout_ref, "actor")
    worker.start_profile(role="e2e")
    worker.stop_profile()
    assert not worker.profiler.check_enable()


def test_a_snapshot_of_memory_is_nothing_on_a_cpu(config: RunConfig, tmp_path: Path) -> None:
    if current_platform().device_type != "cpu":
        pytest.skip("the CPU's answer")
    worker = fsdp_workers.ActorRolloutRefWorker(config.actor_rollout_ref, "actor")
    assert worker.dump_memory_snapshot(tag="manual", sub_dir="here") is None
    assert dump_memory_snapshot(out_dir=str(tmp_path / "snapshots"), tag="mine") is None
    assert not (tmp_path / "snapshots").exists()


def test_the_rollout_gets_the_weights_when_it_is_awaited(config: RunConfig) -> None:
    class Adapter:
        def __init__(self) -> None:
            self.heard: list[Any] = []

        async def resume(self, tags: list[str]) -> None:
            self.heard.append(tags)

        async def update_weights(self, weights: Any, **_: Any) -> None:
            self.heard.append({name for name, _ in weights})

    worker = fsdp_workers.ActorRolloutRefWorker(config.actor_rollout_ref, "actor")
    worker.init_model()
    worker.rollout, worker.checkpoint_engine = Adapter(), None
    asyncio.run(awaited(worker.rollout_mode()))
    first, names, last = worker.rollout.heard
    assert (first, last) == (["weights"], ["kv_cache"]) and "model.embed_tokens.weight" in names


async def awaited(value: Any) -> Any:
    return await value


def test_a_worker_does_not_generate(config: RunConfig) -> None:
    worker = fsdp_workers.ActorRolloutRefWorker(config.actor_rollout_ref, "actor")
    with pytest.raises(UnsupportedError, match="AgentLoopManager"):
        worker.generate_sequences(prompts=batch())


def test_the_critic_answers_to_its_old_methods(config: RunConfig) -> None:
    old, new = fsdp_workers.CriticWorker(config=config.critic), engine_workers.TrainingWorker(config.critic)
    old.init_model()
    new.reset()
    values = old.compute_values(batch()).batch["values"]
    assert torch.equal(values, new.infer_batch(batch()).batch["values"])
    data = batch(values=values, returns=torch.ones(4, 5))
    metrics = old.update_critic(data).meta_info["metrics"]
    assert all(name.startswith("critic/") for name in metrics) and "critic/vf_loss" in metrics
    assert not torch.equal(old.compute_values(batch()).batch["values"], values)


@pytest.mark.parametrize(
    ("base", "hook"),
    [
        (fsdp_workers.ActorRolloutRefWorker, "_build_model_optimizer"),
        (fsdp_workers.AsyncActorRolloutRefWorker, "_build_rollout"),
        (fsdp_workers.CriticWorker, "_build_critic_model_optimizer"),
    ],
)
def test_an_override_that_nobody_would_call_is_refused(base: type, hook: str) -> None:
    def build(self: Any) -> None: ...

    with pytest.raises(UnsupportedError, match=f"Mine.{hook}"):
        type("Mine", (base,), {hook: build})


def test_distillation_is_refused_by_name(config: RunConfig) -> None:
    make: Callable[..., Any] = engine_workers.ActorRolloutRefWorker
    with pytest.raises(UnsupportedError, match="distillation"):
        make(config.actor_rollout_ref, "actor", distillation_config={"enabled": True})
    make(config.actor_rollout_ref, role="actor", distillation_config={"enabled": False})
