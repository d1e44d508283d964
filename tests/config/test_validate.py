# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Combinations that cannot work are refused, with the key to change in the message."""

import copy
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from verl.config import RolloutConfig, build_config, explain, num_replicas, validate
from verl.errors import ConfigError, UnsupportedError, VerlError

POLICY = "actor_rollout_ref"


def with_keys(config: Any, keys: dict[str, Any]) -> Any:
    config = copy.deepcopy(config)
    for key, value in keys.items():
        OmegaConf.update(config, key, value, force_add=True)
    return build_config(config)


def refused(config: Any, keys: dict[str, Any], kind: type[VerlError] = ConfigError) -> str:
    with pytest.raises(kind) as caught:
        validate(with_keys(config, keys))
    return str(caught.value)


def test_the_minimal_fully_async_run_is_accepted(minimal: Any) -> None:
    validate(build_config(minimal))


@pytest.mark.parametrize(
    ("key", "value", "advice"),
    [
        ("data.train_batch_size", 32, "set data.train_batch_size=0"),
        ("data.gen_batch_size", 4, "set data.gen_batch_size=1"),
        (f"{POLICY}.hybrid_engine", True, f"set {POLICY}.hybrid_engine=false"),
        (f"{POLICY}.rollout.calculate_log_probs", False, f"set {POLICY}.rollout.calculate_log_probs=true"),
        ("async_training.trigger_parameter_sync_step", 50, "at least 12800"),
        (f"{POLICY}.rollout.checkpoint_engine.backend", "naive", "nccl, gloo, shm or disk"),
    ],
)
def test_a_rule_of_fully_async_training_is_named(minimal: Any, key: str, value: Any, advice: str) -> None:
    assert advice in refused(minimal, {key: value})


SHARED = {
    "async_training.device_share": 0.5,
    "trainer.n_gpus_per_node": 1,
    "rollout.n_gpus_per_node": 1,
    f"{POLICY}.rollout.tensor_model_parallel_size": 1,
    f"{POLICY}.rollout.checkpoint_engine.backend": "shm",
}


def test_one_rank_of_each_half_may_share_a_device(minimal: Any) -> None:
    validate(with_keys(minimal, SHARED))
    assert "trainer.n_gpus_per_node=1" in refused(minimal, SHARED | {"trainer.n_gpus_per_node": 2})
    assert "8 ranks" in refused(minimal, SHARED | {"rollout.n_gpus_per_node": 8})
    assert "backend=shm" in refused(minimal, SHARED | {f"{POLICY}.rollout.checkpoint_engine.backend": "nccl"})


@pytest.mark.parametrize("share", [0, -0.5, 1.5])
def test_a_share_of_a_device_is_a_share(minimal: Any, share: float) -> None:
    assert "async_training.device_share" in refused(minimal, {"async_training.device_share": share})


def test_validation_on_the_trainer_is_left_out_and_says_who_validates(minimal: Any) -> None:
    message = refused(minimal, {"async_training.use_trainer_do_validate": True}, UnsupportedError)
    assert "the rollout servers validate" in message


def test_rollouts_from_disk_are_for_the_synchronous_trainers(minimal: Any) -> None:
    assert "main_ppo" in refused(minimal, {f"{POLICY}.rollout.skip.enable": True}, UnsupportedError)
    assert "repeat_last" in refused(minimal, {f"{POLICY}.rollout.skip.action": "always"})


@pytest.mark.parametrize(
    ("key", "value", "use"),
    [
        (f"{POLICY}.actor.strategy", "megatron", "strategy=fsdp2"),
        (f"{POLICY}.actor.strategy", "veomni", "strategy=fsdp2"),
        ("model_engine", "torchtitan", "model_engine=dp"),
        (f"{POLICY}.rollout.name", "sglang", "rollout.name=vllm"),
        (f"{POLICY}.rollout.name", "trtllm", "rollout.name=vllm"),
        (f"{POLICY}.rollout.checkpoint_engine.backend", "nixl", "backend=nccl"),
        (f"{POLICY}.rollout.mode", "sync", "mode=async"),
        (f"{POLICY}.model.use_liger", True, "use_liger=false"),
        ("distillation.enabled", True, "recipe"),
        ("reward.reward_model.enable", True, "reward.custom_reward_function"),
        ("algorithm.filter_groups", {"enable": True}, "recipe"),
        ("global_profiler.steps", [1, 2], "default_local_dir/trace"),
        (f"{POLICY}.rollout.quantization", "fp8", "dtype=bfloat16"),
        ("transfer_queue.enable", True, "enable=false"),
        ("trainer.default_hdfs_dir", "hdfs://x", "trainer.default_local_dir"),
        ("trainer.use_legacy_worker_impl", "enable", "use_legacy_worker_impl=disable"),
        (f"{POLICY}.actor.ppo_micro_batch_size", 8, "ppo_micro_batch_size_per_gpu"),
    ],
)
def test_what_is_left_out_says_what_to_use(minimal: Any, key: str, value: Any, use: str) -> None:
    assert use in refused(minimal, {key: value}, VerlError)


@pytest.mark.parametrize("estimator", ["optimal_token_baseline", "tir_optimal_token_baseline"])
def test_the_token_baselines_say_what_they_need(minimal: Any, estimator: str) -> None:
    keys = {"algorithm.adv_estimator": estimator, "algorithm.rollout_correction.bypass_mode": False}
    assert f"{POLICY}.actor.calculate_sum_pi_squared=true" in refused(minimal, keys)
    keys[f"{POLICY}.actor.calculate_sum_pi_squared"] = True
    validate(with_keys(minimal, keys))
    assert "bypass_mode=false" in refused(minimal, keys | {"algorithm.rollout_correction.bypass_mode": True})


def test_resampling_by_score_goes_with_gae_only(minimal: Any) -> None:
    assert "adv_estimator=gae" in refused(minimal, {"algorithm.use_pf_ppo": True})
    keys = {"algorithm.use_pf_ppo": True, "algorithm.adv_estimator": "gae", "algorithm.pf_ppo.weight_pow": 1.5}
    assert with_keys(minimal, keys).algorithm.pf_ppo.weight_pow == 1.5
    assert "reweight_method" in refused(minimal, {"algorithm.pf_ppo.reweight_method": "sqrt"})


def test_a_critic_without_a_model_is_refused_before_anything_starts(minimal: Any, tmp_path: Path) -> None:
    keys = {f"{POLICY}.model.path": str(tmp_path), "algorithm.adv_estimator": "gae"}
    assert f"often {tmp_path}. set critic.model.path" in refused(minimal, keys)
    grpo = keys | {"algorithm.adv_estimator": "grpo"}
    assert "set critic.model.path" in refused(minimal, grpo | {"critic.enable": True})
    for path in (str(tmp_path), "Qwen/Qwen2.5-7B"):
        validate(with_keys(minimal, keys | {"critic.model.path": path}))
    validate(with_keys(minimal, grpo))


def test_a_backend_of_a_recipes_own_passes(minimal: Any) -> None:
    keys = {
        f"{POLICY}.rollout.checkpoint_engine.backend": "nixl",
        f"{POLICY}.rollout.checkpoint_engine.custom_backend_module": "mine.nixl",
        f"{POLICY}.rollout.name": "my_engine",
    }
    validate(with_keys(minimal, keys))


def test_the_number_of_trajectories_has_one_truth(minimal: Any) -> None:
    assert "set only actor_rollout_ref.rollout.n" in refused(minimal, {"rollout.n": 16})
    assert with_keys(minimal, {"rollout.n": 8}).rollout.n == 8
    assert build_config(minimal).rollout.n == 8
    assert with_keys(minimal, {"rollout.n": None}).rollout.n == 8


def test_epochs_given_twice_must_agree(minimal: Any) -> None:
    assert "set only trainer.total_epochs" in refused(minimal, {"rollout.total_epochs": 5, "trainer.total_epochs": 3})
    assert with_keys(minimal, {"rollout.total_epochs": 3, "trainer.total_epochs": 3}).trainer.total_epochs == 3


def test_the_root_pool_sizes_the_rollout(minimal: Any) -> None:
    rollout = with_keys(minimal, {"rollout.nnodes": 2, "rollout.n_gpus_per_node": 4}).actor_rollout_ref.rollout
    assert (rollout.nnodes, rollout.n_gpus_per_node) == (2, 4)


def test_replicas_are_devices_over_all_parallel_sizes() -> None:
    def pool(**sizes: int) -> RolloutConfig:
        return RolloutConfig(nnodes=1, n_gpus_per_node=8, **sizes)

    assert num_replicas(pool(tensor_model_parallel_size=2, data_parallel_size=2)) == 2
    with pytest.raises(ConfigError, match=r"8 devices cannot hold replicas of 16 devices"):
        num_replicas(pool(tensor_model_parallel_size=16))
    with pytest.raises(ConfigError, match=r"replicas of 3 devices"):
        num_replicas(pool(tensor_model_parallel_size=3))


def test_a_mini_batch_must_divide_over_the_ranks(minimal: Any) -> None:
    keys = {f"{POLICY}.actor.ppo_mini_batch_size": 3, f"{POLICY}.rollout.n": 5, "trainer.n_gpus_per_node": 4}
    assert "3 prompts × 5 trajectories = 15 does not divide over 4" in refused(minimal, keys)


def test_sequence_parallel_ranks_see_the_same_trajectories(minimal: Any) -> None:
    keys = {f"{POLICY}.actor.ulysses_sequence_parallel_size": 4, "trainer.n_gpus_per_node": 4}
    validate(with_keys(minimal, keys | {f"{POLICY}.actor.ppo_mini_batch_size": 3}))
    message = refused(minimal, {f"{POLICY}.actor.ulysses_sequence_parallel_size": 3})
    assert "a divisor of 8" in message
    message = refused(minimal, keys | {f"{POLICY}.model.use_remove_padding": False})
    assert "model.use_remove_padding" in message


def test_micro_batches_by_count_name_the_actors_key(minimal: Any) -> None:
    off = {f"{POLICY}.actor.use_dynamic_bsz": False}
    assert f"{POLICY}.actor.ppo_micro_batch_size_per_gpu" in refused(minimal, off)
    validate(with_keys(minimal, off | {f"{POLICY}.actor.ppo_micro_batch_size_per_gpu": 4}))
    assert "a divisor of 256" in refused(minimal, off | {f"{POLICY}.actor.ppo_micro_batch_size_per_gpu": 3})


def test_log_prob_micro_batches_are_asked_for_only_where_log_probs_are_computed(minimal: Any) -> None:
    size = {f"{POLICY}.actor.use_dynamic_bsz": False, f"{POLICY}.actor.ppo_micro_batch_size_per_gpu": 4}
    validate(with_keys(minimal, size))
    decoupled = size | {"algorithm.rollout_correction.bypass_mode": False}
    assert f"{POLICY}.rollout.log_prob_micro_batch_size_per_gpu" in refused(minimal, decoupled)
    with_ref = size | {f"{POLICY}.actor.use_kl_loss": True}
    assert f"{POLICY}.ref.log_prob_micro_batch_size_per_gpu" in refused(minimal, with_ref)


@pytest.mark.parametrize(
    ("keys", "where"),
    [
        ({f"{POLICY}.rollout.max_model_len": 100}, "max_model_len"),
        (
            {f"{POLICY}.rollout.enable_chunked_prefill": False, f"{POLICY}.rollout.max_num_batched_tokens": 512},
            "max_num_batched_tokens",
        ),
        ({f"{POLICY}.rollout.val_kwargs.do_sample": True}, "val_kwargs.temperature"),
        ({"algorithm.rollout_correction.rollout_rs": "token_k1"}, "rollout_rs_threshold"),
        ({"algorithm.adv_estimator": "gae", "critic.enable": False}, "critic.enable"),
        ({f"{POLICY}.rollout.name": None}, "rollout.name"),
    ],
)
def test_a_contradiction_names_its_key(minimal: Any, keys: dict[str, Any], where: str) -> None:
    assert where in refused(minimal, keys)


def test_a_synchronous_batch_must_hold_whole_mini_batches(compose: Any) -> None:
    base = compose(
        "ppo_trainer",
        "verl.trainer.config",
        ["actor_rollout_ref.rollout.name=vllm", "actor_rollout_ref.actor.use_dynamic_bsz=True"],
    )
    validate(build_config(base))
    assert "a divisor of data.train_batch_size=100" in refused(base, {"data.train_batch_size": 100})


def test_the_arithmetic_is_told_in_sentences(minimal: Any) -> None:
    lines = explain(build_config(minimal))
    text = "\n".join(lines)
    assert "256 prompts × 8 = 2048 trajectories over 8 data-parallel rank(s), 256 each" in text
    assert "⌊256 × 4 × (1 + 0.1)⌋ = 1126 groups" in text
    assert "8 device(s) / (TP 2 × DP 1 × PP 1) = 4 server(s)" in text
    assert "5000 groups are generated in the whole run: 4 weight versions, and one more at the end" in text
    assert all(line.endswith(".") for line in lines)


def test_the_synchronous_arithmetic_is_told_too(compose: Any) -> None:
    config = build_config(compose("ppo_trainer", "verl.trainer.config"))
    assert "1024 prompts × 1 = 1024 trajectories in 4 mini-batches" in "\n".join(explain(config))


def test_an_estimator_whose_inputs_nobody_makes_is_refused(minimal: Any) -> None:
    with pytest.raises(UnsupportedError, match=r"algorithm\.adv_estimator.*remax"):
        validate(with_keys(minimal, {"algorithm.adv_estimator": "remax"}))


def test_gdpo_without_the_names_of_its_rewards_is_refused_before_anything_is_generated(minimal: Any) -> None:
    gdpo = {"algorithm.adv_estimator": "gdpo"}
    assert "add +algorithm.gdpo_reward_keys=" in refused(minimal, gdpo)
    validate(with_keys(minimal, gdpo | {"algorithm.gdpo_reward_keys": ["acc", "format"]}))
