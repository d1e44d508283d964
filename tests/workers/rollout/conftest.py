# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""One vLLM server, started once, for all tests that do not break it."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

ROLLOUT = {
    "name": "vllm",
    "mode": "async",
    "temperature": 1.0,
    "top_k": -1,
    "top_p": 1.0,
    "do_sample": True,
    "repetition_penalty": 1.0,
    "ignore_eos": False,
    "seed": None,
    "prompt_length": 32,
    "response_length": 128,
    "dtype": "float32",
    "gpu_memory_utilization": 0.5,
    "enforce_eager": False,
    "cudagraph_capture_sizes": None,
    "free_cache_engine": True,
    "tensor_model_parallel_size": 1,
    "data_parallel_size": 1,
    "expert_parallel_size": 1,
    "pipeline_model_parallel_size": 1,
    "max_num_batched_tokens": 8192,
    "max_model_len": 256,
    "max_num_seqs": 64,
    "enable_chunked_prefill": True,
    "enable_prefix_caching": True,
    "logprobs_mode": "processed_logprobs",
    "scheduling_policy": "fcfs",
    "load_format": "dummy",
    "disable_log_stats": True,
    "skip_tokenizer_init": True,
    "enable_rollout_routing_replay": False,
    "quantization": None,
    "calculate_log_probs": True,
    "engine_kwargs": {"vllm": {}},
    "val_kwargs": {"temperature": 0, "top_k": -1, "top_p": 1.0, "n": 1, "do_sample": False},
    "checkpoint_engine": {"backend": "shm", "update_weights_bucket_megabytes": 64, "engine_kwargs": {}},
}


@pytest.fixture(scope="session")
def rollout_config() -> Callable[..., DictConfig]:
    """The rollout section with upstream's keys, for a tiny model; keywords replace keys."""

    def make(**overrides: Any) -> DictConfig:
        return OmegaConf.create(ROLLOUT | overrides)

    return make


@pytest.fixture(scope="session")
def model_config(tiny_model_dir: Path) -> DictConfig:
    return OmegaConf.create({"path": str(tiny_model_dir), "trust_remote_code": False, "lora_rank": 0})


@pytest.fixture(scope="session")
def replica(
    ray_cluster: None,
    rollout_config: Callable[..., DictConfig],
    model_config: DictConfig,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Any]:
    """A standalone replica behind real Ray; tests must leave it resumed and at the base weights."""
    from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMReplica

    logs = tmp_path_factory.mktemp("logs")
    replica = vLLMReplica(0, rollout_config(), model_config, gpus_per_node=1, log_dir=str(logs))
    asyncio.run(replica.init_standalone())
    yield replica
    asyncio.run(replica.shutdown())
