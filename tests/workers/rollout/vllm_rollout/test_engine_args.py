# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Engine arguments and environment from the rollout configuration."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest
from omegaconf import DictConfig
from transformers import Qwen2Config

from verl.errors import ConfigError, UnsupportedError
from verl.workers.rollout.schemas import RolloutMode
from verl.workers.rollout.vllm_rollout.engine_args import (
    EngineSettings,
    engine_arguments,
    engine_environment,
)

MODEL = {"path": "/models/tiny", "trust_remote_code": False, "lora_rank": 0}
HF = Qwen2Config(
    vocab_size=32,
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=512,
)
Make = Callable[..., DictConfig]


def settings(replica_rank: int = 0, **facts: Any) -> EngineSettings:
    return EngineSettings(replica_rank, facts.pop("mode", RolloutMode.STANDALONE), facts.pop("device", "cpu"), **facts)


def arguments(rollout: Any, **facts: Any) -> dict[str, Any]:
    return engine_arguments(rollout, MODEL | facts.pop("model", {}), HF, settings(**facts))


def rollout_keys() -> list[str]:
    # The section as the conftest writes it; read from the file because parametrisation comes before fixtures.
    from verl.config.rollout import RolloutConfig

    return sorted(field.name for field in fields(RolloutConfig))


@pytest.mark.parametrize(
    "key", [key for key in rollout_keys() if key not in ("name", "prompt_length", "response_length")]
)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_any_optional_key_may_be_null(rollout_config: Make, key: str, device: str) -> None:
    rollout = rollout_config(**{key: None})
    args = arguments(rollout, device=device)
    assert None not in args.values()
    engine_environment(rollout, settings(device=device))


@pytest.mark.parametrize(("seed", "replica_rank", "expected"), [(None, 2, 2), (7, 2, 9), (0, 0, 0)])
def test_engine_seed_is_the_sum_of_seed_and_replica(
    rollout_config: Make, seed: int | None, replica_rank: int, expected: int
) -> None:
    assert arguments(rollout_config(seed=seed), replica_rank=replica_rank)["seed"] == expected


def test_replicas_explore_differently(rollout_config: Make) -> None:
    assert {arguments(rollout_config(seed=0), replica_rank=rank)["seed"] for rank in range(3)} == {0, 1, 2}


def test_arguments_are_those_of_the_installed_engine(rollout_config: Make) -> None:
    from vllm.engine.arg_utils import AsyncEngineArgs

    known = {field.name for field in fields(AsyncEngineArgs)}
    for facts in ({"device": "cpu"}, {"device": "cuda", "vendor": "rocm"}):
        rollout = rollout_config(expert_parallel_size=2, cudagraph_capture_sizes=[1, 2])
        assert set(arguments(rollout, model={"lora_rank": 12}, **facts)) <= known


@pytest.mark.parametrize("trusted", [True, False])
def test_the_engine_runs_a_models_own_files_only_where_they_are_trusted(rollout_config: Make, trusted: bool) -> None:
    assert arguments(rollout_config(), model={"trust_remote_code": trusted})["trust_remote_code"] is trusted


def test_engine_kwargs_have_the_last_word(rollout_config: Make) -> None:
    own = {"kv-cache-memory-bytes": 5, "enforce_eager": False, "seed": None, "block_size": 64}
    args = arguments(rollout_config(engine_kwargs={"vllm": own}))
    assert (args["kv_cache_memory_bytes"], args["enforce_eager"], args["block_size"]) == (5, False, 64)
    assert args["seed"] == 0, "null is not a word"


def test_cpu_settings_are_those_that_start_fast_and_do_not_crash(rollout_config: Make) -> None:
    args = arguments(rollout_config(max_num_batched_tokens=64))
    assert args["distributed_executor_backend"] == "uni"
    assert args["enforce_eager"] is True
    assert args["enable_chunked_prefill"] is False, "a request with a seed must not be split"
    assert args["max_num_batched_tokens"] >= args["max_model_len"]
    assert args["kv_cache_memory_bytes"] >= 64 << 20
    environment = engine_environment(rollout_config(), settings(), user={})
    assert environment["TORCHDYNAMO_DISABLE"] == "1"
    assert environment["OMP_NUM_THREADS"] == "1"
    assert environment["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"


def test_two_workers_on_cpu_have_processes_and_cores_of_their_own(rollout_config: Make) -> None:
    rollout = rollout_config(tensor_model_parallel_size=2)
    assert arguments(rollout)["distributed_executor_backend"] == "mp"
    environment = engine_environment(rollout, settings(), user={})
    assert environment["VLLM_ENABLE_V1_MULTIPROCESSING"] == "1"
    assert len(environment["VLLM_CPU_OMP_THREADS_BIND"].split("|")) == 2


def test_a_variable_that_the_user_set_wins(rollout_config: Make) -> None:
    environment = engine_environment(rollout_config(), settings(), user={"HSA_NO_SCRATCH_RECLAIM": "0"})
    assert environment["HSA_NO_SCRATCH_RECLAIM"] == "0"
    assert engine_environment(rollout_config(), settings(), user={})["HSA_NO_SCRATCH_RECLAIM"] == "1"


def test_rocm_has_no_custom_all_reduce_and_no_cpu_settings(rollout_config: Make) -> None:
    args = arguments(rollout_config(), device="cuda", vendor="rocm")
    assert args["disable_custom_all_reduce"] is True
    assert args["enable_chunked_prefill"] is True
    assert "kv_cache_memory_bytes" not in args
    assert "TORCHDYNAMO_DISABLE" not in engine_environment(rollout_config(), settings(device="cuda"), user={})


@pytest.mark.parametrize(
    ("mode", "load_format", "may_sleep"),
    [
        (RolloutMode.HYBRID, "dummy", True),
        (RolloutMode.COLOCATED, "auto", True),
        (RolloutMode.STANDALONE, "auto", False),
    ],
)
def test_random_weights_and_sleep_only_where_training_fills_them(
    rollout_config: Make, mode: RolloutMode, load_format: str, may_sleep: bool
) -> None:
    args = arguments(rollout_config(load_format="dummy"), mode=mode, device="cuda")
    assert (args["load_format"], args["enable_sleep_mode"]) == (load_format, may_sleep)


def test_longer_than_the_models_positions_is_refused(rollout_config: Make) -> None:
    with pytest.raises(ConfigError, match="max_position_embeddings = 512"):
        arguments(rollout_config(max_model_len=513))
    assert arguments(rollout_config(max_model_len=None))["max_model_len"] == 512


@pytest.mark.parametrize(
    "left_out",
    [
        {"data_parallel_size": 2},
        {"quantization": "fp8"},
        {"enable_rollout_routing_replay": True},
        {"mtp": {"enable_rollout": True}},
    ],
)
def test_what_is_left_out_names_its_key_and_a_remedy(rollout_config: Make, left_out: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedError, match=f"rollout.{next(iter(left_out))}") as caught:
        arguments(rollout_config(**left_out))
    assert caught.value.remedy


def test_an_adapter_gets_the_next_rank_that_vllm_knows(rollout_config: Make) -> None:
    args = arguments(rollout_config(), model={"lora_rank": 12})
    assert (args["enable_lora"], args["max_loras"], args["max_lora_rank"]) == (True, 1, 16)
    assert "enable_lora" not in arguments(rollout_config(), model={"lora_rank": 12, "lora": {"merge": True}})
