# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""From the rollout configuration to vLLM's engine arguments and environment; pure, vLLM is not imported."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from verl.errors import ConfigError, UnsupportedError
from verl.workers.rollout.sampling import response_budget, sampling_params
from verl.workers.rollout.schemas import RolloutMode
from verl.workers.rollout.utils import get_max_position_embeddings
from verl.workers.rollout.vllm_rollout.utils import get_vllm_max_lora_rank

__all__ = ["EngineSettings", "engine_arguments", "engine_environment", "response_budget", "sampling_params"]

WORKER_EXTENSION = "verl.workers.rollout.vllm_rollout.utils.vLLMColocateWorkerExtension"

# rollout key -> engine argument, passed on as they are unless null.
_SAME_MEANING = {
    "dtype": "dtype",
    "max_num_seqs": "max_num_seqs",
    "max_num_batched_tokens": "max_num_batched_tokens",
    "enable_chunked_prefill": "enable_chunked_prefill",
    "enable_prefix_caching": "enable_prefix_caching",
    "logprobs_mode": "logprobs_mode",
    "enforce_eager": "enforce_eager",
    "gpu_memory_utilization": "gpu_memory_utilization",
    "disable_log_stats": "disable_log_stats",
    "skip_tokenizer_init": "skip_tokenizer_init",
    "scheduling_policy": "scheduling_policy",
    "cudagraph_capture_sizes": "cudagraph_capture_sizes",
    "tensor_model_parallel_size": "tensor_parallel_size",
    "pipeline_model_parallel_size": "pipeline_parallel_size",
}

# On CPU the cache is host memory that training wants too: room for this many longest requests, within bounds.
_CPU_CACHE_LONGEST_REQUESTS = 32
_CPU_CACHE_BYTES_MIN, _CPU_CACHE_BYTES_MAX = 64 << 20, 4 << 30


@dataclass(frozen=True)
class EngineSettings:
    """What the engine depends on beside the configuration."""

    replica_rank: int
    mode: RolloutMode
    device_type: str
    """"cpu", "cuda" (ROCm too) or "npu"."""
    vendor: str = ""
    """"rocm" where the cuda device is AMD's."""

    @property
    def on_cpu(self) -> bool:
        return self.device_type == "cpu"


def engine_arguments(rollout: Any, model: Any, hf_config: Any, settings: EngineSettings) -> dict[str, Any]:
    """Keyword arguments of `AsyncEngineArgs`; `rollout.engine_kwargs.vllm` has the last word on each of them."""
    _refuse_what_is_left_out(rollout)
    args: dict[str, Any] = {
        "model": model_path(model),
        "trust_remote_code": bool(model.get("trust_remote_code")),
        "worker_extension_cls": WORKER_EXTENSION,
        "load_format": _load_format(rollout, settings),
        "max_model_len": max_model_len(rollout, hf_config),
        "seed": (rollout.get("seed") or 0) + settings.replica_rank,
        "enable_sleep_mode": _may_sleep(rollout, settings),
        "override_generation_config": _http_defaults(rollout),
    }
    for key, name in _SAME_MEANING.items():
        if rollout.get(key) is not None:
            args[name] = rollout.get(key)
    if rollout.get("limit_images"):
        args["limit_mm_per_prompt"] = {"image": int(rollout.get("limit_images"))}
    if (rollout.get("expert_parallel_size") or 1) > 1:
        args["enable_expert_parallel"] = True
    args.update(adapter_arguments(model))
    args.update(_platform_arguments(args, hf_config, settings))
    args.update(own_engine_kwargs(rollout))
    return args


def own_engine_kwargs(rollout: Any) -> dict[str, Any]:
    """`rollout.engine_kwargs.vllm` without nulls, dashes as underscores."""
    kwargs = (rollout.get("engine_kwargs") or {}).get("vllm") or {}
    return {str(key).replace("-", "_"): value for key, value in kwargs.items() if value is not None}


def model_path(model: Any) -> str:
    """Where the weights and the tokenizer lie on this node."""
    return str(model.get("local_path") or model.get("path"))


def max_model_len(rollout: Any, hf_config: Any) -> int:
    """Longest prompt + response that the engine takes."""
    positions = get_max_position_embeddings(hf_config)
    wanted = rollout.get("max_model_len")
    if wanted is None:
        return positions
    if wanted > positions:
        raise ConfigError(
            "longer than the model's positions",
            where="actor_rollout_ref.rollout.max_model_len",
            got=wanted,
            expected=f"at most max_position_embeddings = {positions}",
            remedy="lower it, or raise the model's limit through actor_rollout_ref.model.override_config",
        )
    return int(wanted)


def engine_environment(rollout: Any, settings: EngineSettings, user: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Environment that the server process and vLLM's workers need before vLLM is imported.

    On CPU: no inductor compile at the first request (11 s), one OpenMP thread per worker (two contended threads are
    twenty times slower), and the worker inside the engine's process where there is only one. A variable that the
    user has set wins.
    """
    wanted = {"VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_COLOR": "0", "HSA_NO_SCRATCH_RECLAIM": "1"}
    if settings.on_cpu:
        wanted |= {
            "TORCHDYNAMO_DISABLE": "1",
            "OMP_NUM_THREADS": "1",
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0" if _workers(rollout) == 1 else "1",
            "VLLM_CPU_OMP_THREADS_BIND": _core_of_each_worker(_workers(rollout)),
        }
    return {key: user.get(key, value) for key, value in wanted.items()}


def _workers(rollout: Any) -> int:
    return (rollout.get("tensor_model_parallel_size") or 1) * (rollout.get("pipeline_model_parallel_size") or 1)


def _core_of_each_worker(count: int) -> str:
    if count == 1:
        return "nobind"
    cores = sorted(os.sched_getaffinity(0))
    return "|".join(str(cores[rank % len(cores)]) for rank in range(count))


def _http_defaults(rollout: Any) -> dict[str, Any]:
    """What a request over HTTP gets where it says nothing itself; our own calls always say everything."""
    fields = ("temperature", "top_k", "top_p", "repetition_penalty")
    defaults = {name: value for name, value in sampling_params(rollout).items() if name in fields}
    return defaults | {"max_new_tokens": int(rollout.response_length)}


def _load_format(rollout: Any, settings: EngineSettings) -> str:
    """Random weights ("dummy") only where training fills them before the first request."""
    wanted = rollout.get("load_format") or "auto"
    return "auto" if wanted == "dummy" and settings.mode is not RolloutMode.HYBRID else wanted


def _may_sleep(rollout: Any, settings: EngineSettings) -> bool:
    # Sleep needs vLLM's own allocator; a server with devices of its own never sleeps, and on CPU sleep does nothing.
    return (
        bool(rollout.get("free_cache_engine")) and settings.mode is not RolloutMode.STANDALONE and not settings.on_cpu
    )


def adapter_arguments(model: Any) -> dict[str, Any]:
    rank = model.get("lora_rank") or 0
    if rank <= 0 or (model.get("lora") or {}).get("merge"):
        return {}
    return {"enable_lora": True, "max_loras": 1, "max_lora_rank": get_vllm_max_lora_rank(rank)}


def _platform_arguments(args: dict[str, Any], hf_config: Any, settings: EngineSettings) -> dict[str, Any]:
    if settings.vendor == "rocm":
        # The custom all-reduce registers buffers by IPC, which expandable segments do not allow.
        return {"distributed_executor_backend": "mp", "disable_custom_all_reduce": True}
    if not settings.on_cpu:
        return {"distributed_executor_backend": "mp"}
    one_worker = args.get("tensor_parallel_size", 1) * args.get("pipeline_parallel_size", 1) == 1
    return {
        "distributed_executor_backend": "uni" if one_worker else "mp",
        "enforce_eager": True,
        # With chunked prefill a request with a seed crashes the engine (CPU generators have no offset).
        "enable_chunked_prefill": False,
        "max_num_batched_tokens": max(args.get("max_num_batched_tokens") or 0, args["max_model_len"]),
        "kv_cache_memory_bytes": _cpu_cache_bytes(args, hf_config),
    }


def _cpu_cache_bytes(args: dict[str, Any], hf_config: Any) -> int:
    text = hf_config.get_text_config()
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    head_dim = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    element = 4 if "32" in str(args.get("dtype", "")) else 2
    longest = 2 * text.num_hidden_layers * heads * head_dim * element * args["max_model_len"]
    return max(longest, min(max(_CPU_CACHE_LONGEST_REQUESTS * longest, _CPU_CACHE_BYTES_MIN), _CPU_CACHE_BYTES_MAX))


def _refuse_what_is_left_out(rollout: Any) -> None:
    key = "actor_rollout_ref.rollout"
    if (rollout.get("data_parallel_size") or 1) > 1:
        raise UnsupportedError(
            "data parallel ranks inside one replica are left out",
            where=f"{key}.data_parallel_size",
            got=rollout.get("data_parallel_size"),
            remedy="use more replicas: a larger rollout pool",
        )
    if rollout.get("quantization"):
        raise UnsupportedError(
            "quantized rollout is left out: a weight update would need the same quantization",
            where=f"{key}.quantization",
            got=rollout.get("quantization"),
            remedy="set it to null",
        )
    if rollout.get("enable_rollout_routing_replay"):
        raise UnsupportedError(
            "routing replay is left out", where=f"{key}.enable_rollout_routing_replay", remedy="set it to false"
        )
    mtp = rollout.get("mtp") or {}
    if mtp.get("enable_rollout"):
        raise UnsupportedError(
            "speculative decoding by multi-token prediction is left out",
            where=f"{key}.mtp.enable_rollout",
            remedy="set it to false",
        )
