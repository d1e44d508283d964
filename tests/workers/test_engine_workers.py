# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Actor, reference and critic workers, called directly as one rank."""

import asyncio
import inspect
import itertools
import math
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from verl.checkpoint_engine import CheckpointEngine
from verl.config import RunConfig
from verl.config.front_door import load
from verl.errors import ConfigError
from verl.platform import current_platform
from verl.protocol import DataProto
from verl.utils.metric import reduce_metrics
from verl.workers.engine.flops import FlopsCounter
from verl.workers.engine_workers import (
    OLD_LOG_PROBS_WEIGHTS,
    WITH_METRICS,
    ActorRolloutRefWorker,
    TrainingWorker,
    WeightStream,
)
from verl.workers.utils.losses import ppo_loss

torch.set_num_threads(1)
ACTOR = "actor_rollout_ref.actor"


@pytest.fixture
def config(tiny_model_dir: Path, tmp_path: Path) -> Callable[..., RunConfig]:
    """`config("key=value", …)`: the composed configuration, typed, for 2 prompts of 4 trajectories."""

    def compose(*overrides: str) -> RunConfig:
        typed, _ = load(
            [
                f"actor_rollout_ref.model.path={tiny_model_dir}",
                f"critic.model.path={tiny_model_dir}",
                f"trainer.default_local_dir={tmp_path}",
                f"{ACTOR}.ppo_mini_batch_size=2",
                "actor_rollout_ref.rollout.n=4",
                "actor_rollout_ref.rollout.checkpoint_engine.backend=naive",
                f"{ACTOR}.use_dynamic_bsz=true",
                f"{ACTOR}.optim.lr=1e-2",
                *overrides,
            ],
            "verl.trainer.config",
            "ppo_trainer",
        )
        return typed

    return compose


@pytest.fixture
def make_worker(config: Callable[..., RunConfig]) -> Callable[..., ActorRolloutRefWorker]:
    """`make_worker("actor", "key=value", …)`: an initialised worker."""

    def make(role: str, *overrides: str) -> ActorRolloutRefWorker:
        worker = ActorRolloutRefWorker(config(*overrides).actor_rollout_ref, role)
        worker.init_model()
        return worker

    return make


def batch(rows: int = 8, seed: int = 0, **meta: Any) -> DataProto:
    generator = torch.Generator().manual_seed(seed)
    ids, mask = torch.zeros(rows, 10, dtype=torch.long), torch.zeros(rows, 10, dtype=torch.long)
    for row in range(rows):
        left, right = row % 3, 10 - row % 4
        ids[row, left:right] = torch.randint(2, 14, (right - left,), generator=generator)
        mask[row, left:right] = 1
    tensors = {
        "prompts": ids[:, :5],
        "responses": ids[:, 5:],
        "input_ids": ids,
        "attention_mask": mask,
        "position_ids": (mask.cumsum(-1) - 1).clamp(min=0),
        "response_mask": mask[:, 5:],
        "advantages": torch.randn(rows, 5, generator=generator) * mask[:, 5:],
    }
    return DataProto.from_dict(tensors, {"uid": [f"u{row // 4}" for row in range(rows)]}, {"temperature": 1.0, **meta})


def with_old_log_probs(worker: ActorRolloutRefWorker, data: DataProto) -> DataProto:
    """What the trainer's step does: recompute and carry over, with the mark of the weights."""
    result = worker.compute_log_prob(data)
    data.batch["old_log_probs"] = result.batch["old_log_probs"]
    data.meta_info |= result.meta_info
    return data


def update(worker: ActorRolloutRefWorker, data: DataProto) -> dict[str, float]:
    return reduce_metrics(worker.update_actor(data).meta_info["metrics"])


# ---- policy ----------------------------------------------------------------------------------------------------------


def test_log_probs_carry_entropy_and_the_name_of_the_weights(make_worker):
    worker = make_worker("actor")
    result = worker.compute_log_prob(batch())
    assert set(result.batch.keys()) == {"old_log_probs", "entropys"}
    assert result.batch["old_log_probs"].shape == (8, 5)
    assert result.meta_info == {OLD_LOG_PROBS_WEIGHTS: 0}


def test_log_probs_can_be_united_with_a_batch_that_has_metrics_and_bring_some_where_asked(make_worker):
    worker = make_worker("actor")
    of_a_recipe = batch(metrics=[{"generate_sequences": 1.0}] * 8)
    of_a_recipe.union(worker.compute_log_prob(of_a_recipe))
    assert of_a_recipe.meta_info["metrics"] == [{"generate_sequences": 1.0}] * 8
    (mfu,) = worker.compute_log_prob(batch(**{WITH_METRICS: True})).meta_info["metrics"]["perf/mfu/actor_infer"]
    assert 0 < mfu < float("inf")


def test_the_token_baselines_get_the_collision_probability(make_worker):
    result = make_worker("actor", f"{ACTOR}.calculate_sum_pi_squared=true").compute_log_prob(batch())
    square, mask = result.batch["sum_pi_squared"], batch().batch["response_mask"].bool()
    assert ((square[mask] > 0) & (square[mask] <= 1)).all()
    # The chosen token is one of those that are summed up.
    assert (square[mask] >= result.batch["old_log_probs"][mask].exp().square() - 1e-6).all()


def test_the_callers_meta_info_is_left_as_it_was(make_worker):
    worker, data = make_worker("actor"), batch()
    before = dict(data.meta_info)
    worker.compute_log_prob(data)
    assert data.meta_info == before


def test_the_rollouts_temperature_stands_in_for_a_missing_one(make_worker):
    worker = make_worker("actor", "actor_rollout_ref.rollout.temperature=0.5")
    stated, silent = batch(temperature=0.5), batch()
    del silent.meta_info["temperature"]
    assert torch.equal(
        worker.compute_log_prob(stated).batch["old_log_probs"], worker.compute_log_prob(silent).batch["old_log_probs"]
    )


def test_an_update_reports_verls_metric_names(make_worker):
    worker = make_worker("actor", f"{ACTOR}.use_kl_loss=true", f"{ACTOR}.entropy_coeff=0.01")
    data = with_old_log_probs(worker, batch())
    data.batch["ref_log_prob"] = data.batch["old_log_probs"] - 0.1
    metrics = update(worker, data)
    expected = (
        "pg_loss pg_clipfrac ppo_kl pg_clipfrac_lower entropy_loss kl_loss kl_coef loss grad_norm lr skipped_steps mfu"
    )
    assert set(metrics) == {f"actor/{name}" for name in expected.split()}
    assert metrics["actor/lr"] == 1e-2


def test_the_utilisation_counts_every_pass_over_the_rows_of_this_rank(make_worker, monkeypatch):
    seconds = itertools.count()
    monkeypatch.setattr("time.perf_counter", lambda: float(next(seconds)))
    found = {}
    for epochs in (1, 3):
        worker = make_worker("actor", f"{ACTOR}.ppo_epochs={epochs}")
        data = with_old_log_probs(worker, batch())
        seconds = itertools.count()
        found[epochs] = update(worker, data)["actor/mfu"]
    flops = FlopsCounter(worker.actor.engine.hf_config).training_flops(batch().batch["attention_mask"].sum(-1).tolist())
    assert found[1] == pytest.approx(flops / current_platform().peak_flops())
    assert found[3] == pytest.approx(3 * found[1])


def test_a_device_of_unknown_speed_has_no_utilisation_and_no_nan(make_worker, monkeypatch):
    monkeypatch.setattr(type(current_platform()), "peak_flops", lambda self, device_name=None: None)
    worker = make_worker("actor")
    data = with_old_log_probs(worker, batch(**{WITH_METRICS: True}))
    assert data.meta_info["metrics"] == {}
    metrics = update(worker, data)
    assert not any("mfu" in name for name in metrics)
    assert all(math.isfinite(value) for value in metrics.values())


def test_one_mini_batch_and_one_epoch_have_a_ratio_of_exactly_one(make_worker):
    """Recomputed log-probs differ by rounding (here: 1e-3) from those of the update's own pass."""
    worker = make_worker("actor")
    data = with_old_log_probs(worker, batch())
    data.batch["old_log_probs"] += 1e-3 * data.batch["response_mask"]
    metrics = update(worker, data)
    assert metrics["actor/ppo_kl"] == 0.0 and metrics["actor/pg_clipfrac"] == 0.0


def test_behaviour_log_probs_are_never_replaced(make_worker):
    """Without the mark of the present weights (bypass mode) the stored log-probs count."""
    worker, data = make_worker("actor"), batch()
    data.batch["old_log_probs"] = worker.compute_log_prob(data).batch["old_log_probs"] + 1e-3
    assert update(worker, data)["actor/ppo_kl"] == pytest.approx(1e-3, rel=0.05)


def test_log_probs_of_earlier_weights_are_never_replaced(make_worker):
    """Decoupled mode: the anchor is the version's first policy, though one mini-batch makes the whole update."""
    worker = make_worker("actor")
    worker.save_model_to_cpu(1)
    update(worker, with_old_log_probs(worker, batch()))
    worker.save_model_to_cpu(2)
    worker.restore_model_from_cpu(1)
    data = with_old_log_probs(worker, batch(seed=1))
    worker.restore_model_from_cpu(2)
    assert abs(update(worker, data)["actor/ppo_kl"]) > 1e-3


@pytest.mark.parametrize("overrides", [[f"{ACTOR}.ppo_mini_batch_size=1"], [f"{ACTOR}.ppo_epochs=2"]])
def test_several_optimizer_steps_use_the_stored_log_probs(make_worker, overrides):
    worker = make_worker("actor", *overrides)
    data = with_old_log_probs(worker, batch())
    data.batch["old_log_probs"] += 1e-3 * data.batch["response_mask"]
    result = worker.update_actor(data).meta_info["metrics"]
    assert len(result["actor/ppo_kl"]) == 2
    assert result["actor/ppo_kl"][0] == pytest.approx(1e-3, rel=0.05)
    assert len(result["actor/lr"]) == 1


def test_mini_batches_count_prompts_times_trajectories(make_worker):
    worker = make_worker("actor", f"{ACTOR}.ppo_mini_batch_size=1", f"{ACTOR}.ppo_epochs=3")
    sizes: list[int] = []

    def counting(output, micro, **counts):
        sizes.append(counts["global_batch_size"])
        return output["log_probs"].mean(), {}

    worker.set_loss_fn(counting)
    worker.update_actor(with_old_log_probs(worker, batch(rows=12)))
    assert sizes == [4] * 9


def test_shuffling_draws_every_row_once_in_an_order_of_seed_step_and_epoch(make_worker):
    worker = make_worker("actor", f"{ACTOR}.shuffle=true", f"{ACTOR}.ppo_mini_batch_size=1", f"{ACTOR}.ppo_epochs=2")
    seen: list[int] = []

    def note(output, micro, **counts):
        seen.extend(micro.batch["row"].tolist())
        return output["log_probs"].mean(), {}

    def order(step: int) -> list[int]:
        seen.clear()
        data = batch(global_step=step)
        data.batch["row"] = torch.arange(8)
        worker.update_actor(data)
        return list(seen)

    worker.set_loss_fn(note)
    first = order(1)
    assert sorted(first[:8]) == sorted(first[8:]) == list(range(8))
    assert first[:8] != first[8:] and first != list(range(8)) * 2
    assert order(2) != first and order(1) == first


def test_a_mini_batch_that_does_not_divide_over_the_ranks_is_refused(make_worker, monkeypatch):
    worker = make_worker("actor", "actor_rollout_ref.rollout.n=3", f"{ACTOR}.ppo_mini_batch_size=1")
    monkeypatch.setattr(worker.actor.engine, "get_data_parallel_size", lambda: 2)
    with pytest.raises(ConfigError, match=r"3 trajectories over 2 ranks.*multiple of 2"):
        worker.update_actor(batch(rows=3))


def test_the_update_raises_the_log_probs_of_what_was_good(make_worker):
    worker, data = make_worker("actor"), batch()
    data.batch["advantages"] = data.batch["response_mask"].float()
    before = worker.compute_log_prob(data).batch["old_log_probs"].sum()
    for _ in range(3):
        update(worker, with_old_log_probs(worker, data))
        del data.batch["old_log_probs"]
    assert worker.compute_log_prob(data).batch["old_log_probs"].sum() > before


# ---- reference -------------------------------------------------------------------------------------------------------


def test_the_reference_keeps_the_starting_weights(make_worker):
    worker, data = make_worker("actor_ref"), batch()
    start = worker.compute_ref_log_prob(data).batch["ref_log_prob"]
    torch.testing.assert_close(start, worker.compute_log_prob(data).batch["old_log_probs"], rtol=0, atol=1e-5)
    update(worker, with_old_log_probs(worker, batch()))
    assert torch.equal(worker.compute_ref_log_prob(data).batch["ref_log_prob"], start)
    assert not torch.allclose(worker.compute_log_prob(data).batch["old_log_probs"], start, atol=1e-3)


def test_with_an_adapter_the_actor_without_it_is_the_reference(make_worker):
    worker, data = make_worker("actor_ref", "actor_rollout_ref.model.lora_rank=4"), batch()
    start = worker.compute_ref_log_prob(data).batch["ref_log_prob"]
    for _ in range(2):
        fresh = with_old_log_probs(worker, batch())
        update(worker, fresh)
    assert worker.ref is None
    assert torch.equal(worker.compute_ref_log_prob(data).batch["ref_log_prob"], start)
    assert not torch.allclose(worker.compute_log_prob(data).batch["old_log_probs"], start, atol=1e-4)


# ---- critic ----------------------------------------------------------------------------------------------------------


def test_a_critic_built_from_its_section_learns_returns(config):
    worker = TrainingWorker(config("critic.optim.lr=1e-2", "critic.ppo_epochs=8", "critic.cliprange_value=1000").critic)
    worker.reset()
    data = batch()
    data.union(worker.infer_batch(data))
    data.batch["returns"] = data.batch["response_mask"] * 2.0
    metrics = worker.train_batch(data).meta_info["metrics"]
    assert {"critic/vf_loss", "critic/vf_clipfrac", "critic/vpred_mean", "grad_norm", "lr", "loss"} <= set(metrics)
    assert len(metrics["critic/vf_loss"]) == 8
    assert metrics["critic/vf_loss"][-1] < 0.5 * metrics["critic/vf_loss"][0]


def test_a_critic_does_not_take_the_mark_of_the_policys_weights_for_its_own(config):
    worker = TrainingWorker(config().critic)
    worker.reset()
    data = batch(**{OLD_LOG_PROBS_WEIGHTS: worker.engine.weights_id})
    data.batch["returns"] = data.batch["response_mask"].float()
    data = data.union(worker.infer_batch(data))
    assert "critic/vf_loss" in worker.train_batch(data).meta_info["metrics"]


def test_a_worker_without_a_model_says_what_to_call(config):
    with pytest.raises(ConfigError, match="call reset first"):
        TrainingWorker(config().critic).infer_batch(batch())


# ---- checkpoints and roles -------------------------------------------------------------------------------------------


def test_a_saved_actor_comes_back(make_worker, tmp_path):
    worker, data = make_worker("actor"), batch()
    update(worker, with_old_log_probs(worker, batch()))
    saved = worker.compute_log_prob(data).batch["old_log_probs"]
    worker.save_checkpoint(str(tmp_path / "global_step_1" / "actor"), None, 1, None)
    update(worker, with_old_log_probs(worker, batch()))
    worker.load_checkpoint(str(tmp_path / "global_step_1" / "actor"), None, False)
    assert torch.equal(worker.compute_log_prob(data).batch["old_log_probs"], saved)


def test_an_unknown_role_is_refused(config):
    with pytest.raises(ConfigError, match="actor_rollout_ref"):
        ActorRolloutRefWorker(config().actor_rollout_ref, "policy")


def test_no_method_is_a_coroutine_so_that_the_ray_actor_stays_single_threaded():
    for cls in (ActorRolloutRefWorker, TrainingWorker):
        assert not [name for name, member in inspect.getmembers(cls) if inspect.iscoroutinefunction(member)]


# ---- weights ---------------------------------------------------------------------------------------------------------


class Receiver(CheckpointEngine):
    """A real, small engine: keeps what was sent, or fails after some tensors and leaves the rest unread."""

    def __init__(self, fail_after: int | None = None) -> None:
        self.fail_after = fail_after
        self.received: dict[str, torch.Tensor] = {}
        self.version: int | None = None

    def prepare(self) -> str:
        return "ready"

    @classmethod
    def build_topology(cls, trainer_world_size: int, rollout_world_size: int, metadata: list[Any]) -> Any:
        return {}, {}

    def init_process_group(self, **kwargs: Any) -> None:
        return None

    def finalize(self) -> None:
        return None

    async def send_weights(self, weights: Any, global_steps: int | None = None) -> Any:
        self.version = global_steps
        for name, tensor in weights:
            if len(self.received) == self.fail_after:
                raise RuntimeError("the receiver has gone")
            await asyncio.sleep(0)
            self.received[name] = tensor.clone()
        return len(self.received)

    async def receive_weights(self) -> AsyncIterator[tuple[str, torch.Tensor]]:
        for item in self.received.items():
            yield item


def test_the_weights_go_to_the_checkpoint_engine_with_their_version(make_worker):
    worker = make_worker("actor")
    worker.checkpoint_engine = Receiver()
    count = worker.update_weights(global_steps=7)
    own = dict(worker.actor.engine.get_per_tensor_param()[0])
    assert worker.checkpoint_engine.version == 7 and count == len(own)
    assert all(torch.equal(worker.checkpoint_engine.received[name], tensor) for name, tensor in own.items())


def test_a_failed_transfer_still_runs_through_every_gather(make_worker, monkeypatch):
    worker = make_worker("actor")
    worker.checkpoint_engine = Receiver(fail_after=2)
    weights, _ = worker.actor.engine.get_per_tensor_param()
    gathered: list[str] = []
    traced = ((gathered.append(item[0]), item)[1] for item in weights)
    monkeypatch.setattr(worker.actor.engine, "get_per_tensor_param", lambda: (traced, None))
    with pytest.raises(RuntimeError, match="the receiver has gone"):
        worker.update_weights(global_steps=1)
    assert len(gathered) == 26


def test_a_consumer_cannot_close_the_stream(make_worker):
    rest: list[int] = []

    def weights() -> Iterator[tuple[str, torch.Tensor]]:
        for number in range(4):
            rest.append(number)
            yield str(number), torch.zeros(1)

    stream = WeightStream(weights())
    for _ in stream:
        break
    del _
    stream.drain()
    assert rest == [0, 1, 2, 3]


def test_without_a_receiver_the_update_says_what_to_choose(make_worker):
    worker = make_worker("actor")
    with pytest.raises(ConfigError, match=r"rollout\.checkpoint_engine\.backend.*gloo"):
        worker.update_weights(global_steps=1)


def test_methods_of_the_checkpoint_engine_are_reachable_by_name(make_worker):
    worker = make_worker("actor")
    with pytest.raises(ConfigError, match="no checkpoint engine"):
        worker.execute_checkpoint_engine("prepare")
    worker.checkpoint_engine = Receiver()
    assert worker.execute_checkpoint_engine("prepare") == "ready"


def test_a_loss_can_be_replaced(make_worker):
    worker = make_worker("actor")
    worker.set_loss_fn(partial(ppo_loss, {**worker.config.actor, "entropy_coeff": 0.5, "policy_loss": {}}))
    data = with_old_log_probs(worker, batch())
    with pytest.raises(ValueError, match="entropy"):
        worker.update_actor(data)
