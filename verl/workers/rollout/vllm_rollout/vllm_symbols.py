# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Every name of vLLM that this package uses, with what it passes to it: the one place that knows vLLM's versions.

`doctor`, the image build and a test compare the table with the vLLM that is installed.
"""

import importlib
import inspect
from dataclasses import dataclass, fields, is_dataclass
from types import SimpleNamespace
from typing import Any, Literal

from verl.errors import UnsupportedError
from verl.utils.import_utils import optional_import

# The version in requirements/cpu.lock; an accelerator image joins the list when the table has been checked in it.
SUPPORTED_VERSIONS = ("0.32",)


@dataclass(frozen=True)
class Symbol:
    """`module:name`, and the parameters, fields or methods of it that are used."""

    module: str
    name: str
    parameters: tuple[str, ...] = ()
    members: tuple[str, ...] = ()
    part: Literal["server", "http", "worker"] = "server"
    """Who uses it: the server at its start, its OpenAI routes, or our extension inside vLLM's workers."""


SYMBOLS = (
    Symbol(
        "vllm.engine.arg_utils",
        "AsyncEngineArgs",
        parameters=(
            "model",
            "dtype",
            "load_format",
            "max_model_len",
            "max_num_seqs",
            "max_num_batched_tokens",
            "enable_chunked_prefill",
            "enable_prefix_caching",
            "logprobs_mode",
            "enforce_eager",
            "gpu_memory_utilization",
            "kv_cache_memory_bytes",
            "disable_log_stats",
            "skip_tokenizer_init",
            "scheduling_policy",
            "cudagraph_capture_sizes",
            "tensor_parallel_size",
            "pipeline_parallel_size",
            "enable_expert_parallel",
            "distributed_executor_backend",
            "disable_custom_all_reduce",
            "worker_extension_cls",
            "trust_remote_code",
            "seed",
            "enable_sleep_mode",
            "override_generation_config",
            "limit_mm_per_prompt",
            "enable_lora",
            "max_loras",
            "max_lora_rank",
        ),
        members=("create_engine_config",),
    ),
    Symbol("vllm.v1.engine.async_llm", "AsyncLLM.from_vllm_config", parameters=("vllm_config", "disable_log_stats")),
    Symbol(
        "vllm.v1.engine.async_llm",
        "AsyncLLM.generate",
        parameters=("prompt", "sampling_params", "request_id", "lora_request", "priority"),
    ),
    Symbol("vllm.v1.engine.async_llm", "AsyncLLM.pause_generation", parameters=("mode", "clear_cache")),
    Symbol("vllm.v1.engine.async_llm", "AsyncLLM.abort", parameters=("request_id",)),
    Symbol("vllm.v1.engine.async_llm", "AsyncLLM.collective_rpc", parameters=("method", "timeout", "args", "kwargs")),
    Symbol("vllm.v1.engine.async_llm", "AsyncLLM.sleep", parameters=("level",)),
    Symbol("vllm.v1.engine.async_llm", "AsyncLLM.wake_up", parameters=("tags",)),
    Symbol("vllm.v1.engine.async_llm", "AsyncLLM.update_weight_version", parameters=("new_version",)),
    Symbol("vllm.v1.engine.async_llm", "AsyncLLM.shutdown", parameters=("timeout",)),
    Symbol(
        "vllm.v1.engine.async_llm",
        "AsyncLLM",
        members=(
            "resume_generation",
            "reset_prefix_cache",
            "reset_encoder_cache",
            "check_health",
            "start_profile",
            "stop_profile",
            "get_weight_version",
            "get_supported_tasks",
        ),
    ),
    Symbol("vllm.v1.engine.exceptions", "EngineDeadError"),
    Symbol(
        "vllm.sampling_params",
        "SamplingParams",
        parameters=(
            "temperature",
            "top_p",
            "top_k",
            "min_p",
            "repetition_penalty",
            "presence_penalty",
            "frequency_penalty",
            "ignore_eos",
            "seed",
            "max_tokens",
            "min_tokens",
            "logprobs",
            "stop",
            "stop_token_ids",
            "detokenize",
            "output_kind",
            "flat_logprobs",
        ),
    ),
    Symbol("vllm.sampling_params", "RequestOutputKind", members=("FINAL_ONLY",)),
    Symbol("vllm.inputs", "TokensPrompt", parameters=("prompt_token_ids", "multi_modal_data")),
    Symbol(
        "vllm.outputs",
        "CompletionOutput",
        parameters=("token_ids", "logprobs", "finish_reason", "weight_versions"),
    ),
    Symbol("vllm.logprobs", "FlatLogprobs", parameters=("logprobs", "start_indices")),
    Symbol("vllm.lora.request", "LoRARequest", parameters=("lora_name", "lora_int_id", "lora_path", "load_inplace")),
    Symbol(
        "vllm.entrypoints.launchers.app",
        "build_app",
        parameters=("args", "supported_tasks", "model_config"),
        part="http",
    ),
    Symbol(
        "vllm.entrypoints.launchers.api_server.app_state",
        "init_app_state",
        parameters=("engine_client", "state", "args", "supported_tasks"),
        part="http",
    ),
    Symbol("vllm.entrypoints.launchers.cli_args", "make_arg_parser", parameters=("parser",), part="http"),
    Symbol("vllm.utils.argparse_utils", "FlexibleArgumentParser", part="http"),
    Symbol("vllm.config", "set_current_vllm_config", parameters=("vllm_config",), part="worker"),
    Symbol("vllm.config.lora", "MaxLoRARanks", part="worker"),
    Symbol(
        "vllm.model_executor.model_loader.reload", "initialize_layerwise_reload", parameters=("model",), part="worker"
    ),
    Symbol(
        "vllm.model_executor.model_loader.reload",
        "finalize_layerwise_reload",
        part="worker",
    ),
    Symbol("vllm.model_executor.model_loader.reload.layerwise", "get_layerwise_info", part="worker"),
    Symbol("vllm.model_executor.layers.vocab_parallel_embedding", "ParallelLMHead", part="worker"),
    Symbol(
        "vllm.model_executor.layers.vocab_parallel_embedding",
        "UnquantizedEmbeddingMethod",
        members=("process_weights_after_loading",),
        part="worker",
    ),
)


def load(part: str = "server") -> SimpleNamespace:
    """The symbols of one part by name, from the vLLM that is installed.

    Raises UnsupportedError where vLLM is missing or its version is not one of the supported.
    """
    version = optional_import("vllm", needed_for="rollout.name=vllm").__version__
    if not version.startswith(tuple(f"{known}." for known in SUPPORTED_VERSIONS)):
        raise UnsupportedError(
            "this version of vLLM has not been checked",
            where="vllm.__version__",
            got=version,
            expected=" or ".join(SUPPORTED_VERSIONS),
            remedy="install a supported version, or compare vllm_symbols.SYMBOLS with yours and add it to the list",
        )
    heads = {symbol.name.split(".")[0]: symbol.module for symbol in SYMBOLS if symbol.part == part}
    return SimpleNamespace(**{name: getattr(importlib.import_module(module), name) for name, module in heads.items()})


def mismatches() -> list[str]:
    """What the installed vLLM lacks of the table, one sentence each; empty when all is there."""
    found = []
    for symbol in SYMBOLS:
        try:
            target: Any = importlib.import_module(symbol.module)
            for part in symbol.name.split("."):
                target = getattr(target, part)
        except (ImportError, AttributeError) as error:
            found.append(f"{symbol.module}.{symbol.name} is missing ({error})")
            continue
        known = _parameters(target)
        found += [f"{symbol.name} takes no {name!r}" for name in symbol.parameters if name not in known]
        found += [f"{symbol.name} has no {name!r}" for name in symbol.members if not hasattr(target, name)]
    return found


def _parameters(target: Any) -> set[str]:
    if is_dataclass(target):
        return {field.name for field in fields(target)}
    annotations = getattr(target, "__struct_fields__", None) or getattr(target, "__required_keys__", None)
    if annotations is not None:
        return {*annotations, *getattr(target, "__optional_keys__", ())}
    return set(inspect.signature(target).parameters)
