# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Old import paths: where their names live now, or what to use instead.

`ROADS` is the one table. A key is a module, or a name in a module. Its value is the new place, or (where it contains
a space) the sentence that the `ImportError` says. `install` puts the table behind Python's import system, so that a
rarely used old path needs no file of its own, and no module needs to know what was left out of it.
"""

import importlib
import pkgutil
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any

from verl.errors import UnsupportedAttribute, UnsupportedImport

__all__ = ["ROADS", "install", "is_sentence"]

_ENGINE_WORKERS = (
    "Workers run on the engine: use verl.workers.engine_workers.ActorRolloutRefWorker, or TrainingWorker for a critic"
)
_MODEL_IN_ENGINE = (
    "The model, its loss and its optimizer live in the engine: use verl.workers.engine_workers.TrainingWorker with "
    "set_loss_fn, or register an engine with verl.workers.engine.EngineRegistry"
)
_MEGATRON = "There is no Megatron engine here: use FSDP2 (actor_rollout_ref.actor.strategy=fsdp2)"
_OTHER_ENGINE = "This engine is not here: use FSDP2 (strategy=fsdp2), or register one with verl.workers.engine"
_OTHER_ROLLOUT = (
    "This rollout backend is not here: use rollout.name=vllm or hf, or register one with "
    "verl.workers.rollout.replica.RolloutReplicaRegistry"
)
_DIFFUSION = "Diffusion models are another product and are left out: stay with upstream's package for them"
_DISTILLATION = (
    "On-policy distillation is left out: write a policy loss with verl.trainer.ppo.core_algos.register_policy_loss"
)
_QUANTIZED = "Quantization-aware training is left out: train in bf16, and let vLLM quantize (rollout.quantization)"
_TRANSFER_QUEUE = "There is no TransferQueue here: batches travel as verl.DataProto, and references as Ray objects"
_REWARD_MODEL = (
    "A reward model is no worker of the trainer: call it from reward.custom_reward_function, over HTTP if it is served"
)
_TRANSFER_BACKEND = (
    "This transfer backend is not here: use rollout.checkpoint_engine.backend=naive, nccl, gloo, shm or disk, or "
    "register one with verl.checkpoint_engine.CheckpointEngineRegistry"
)
_TORCH_PROFILER = "torch.profiler stands behind verl.utils.profiler.DistProfiler (tool=torch)"
_OWN_TOOL = "This tool is not shipped: subclass verl.tools.base_tool.BaseTool, as verl.tools.gsm8k_tool does"
_OWN_SCORER = "This scorer is not shipped: give yours as reward.custom_reward_function"
_VLLM_PATCH = (
    "vLLM is not patched here: the supported version loads these weights itself (verl.workers.rollout.vllm_rollout)"
)

ROADS: dict[str, str] = {
    # Moved modules
    "verl.utils.debug": "verl.utils.profiler",
    "verl.utils.debug.metrics": "verl.algorithms.log_prob_diff",
    "verl.utils.flops_counter": "verl.workers.engine.flops",
    "verl.utils.hdfs_io": "verl.utils.fs",
    "verl.utils.logger.aggregate_logger": "verl.utils.logger",
    "verl.utils.profiler.empty_annotations": "verl.utils.profiler.annotations",
    "verl.utils.profiler.mstx_profile": "verl.utils.profiler",
    "verl.utils.profiler.nvtx_profile": "verl.utils.profiler",
    "verl.utils.profiler.profile": "verl.utils.profiler.dist_profiler",
    "verl.utils.reward_score.math": "verl.utils.reward_score.math_reward",
    "verl.workers.config.actor": "verl.workers.config",
    "verl.workers.config.critic": "verl.workers.config",
    "verl.workers.config.engine": "verl.workers.config",
    "verl.workers.config.engine.McoreEngineConfig": _MEGATRON,
    "verl.workers.config.model": "verl.workers.config",
    "verl.workers.config.optimizer": "verl.workers.config",
    "verl.workers.config.optimizer.McoreOptimizerConfig": _MEGATRON,
    "verl.workers.config.optimizer.build_optimizer": "verl.workers.engine.optim.build_optimizer",
    "verl.workers.config.reward": "verl.workers.config",
    "verl.workers.config.rollout": "verl.workers.config",
    # Moved names
    "verl.experimental.agent_loop.agent_loop.AgentLoopWorkerBase": (
        "verl.experimental.agent_loop.worker.AgentLoopWorker"
    ),
    "verl.trainer.main_ppo.create_rl_dataset": "verl.utils.dataset.rl_dataset.create_rl_dataset",
    "verl.trainer.main_ppo.create_rl_sampler": "verl.utils.dataset.loader.make_sampler",
    "verl.trainer.ppo.ray_trainer.find_latest_ckpt_path": (
        "verl.utils.checkpoint.checkpoint_manager.find_latest_ckpt_path"
    ),
    "verl.trainer.ppo.reward.compute_reward": "verl.experimental.reward_loop.compute_reward.compute_reward",
    "verl.trainer.ppo.reward.compute_reward_async": "verl.experimental.reward_loop.compute_reward.compute_reward_async",
    "verl.utils.device.auto_set_ascend_device_name": "verl.utils.device.auto_set_device",
    "verl.utils.debug.DistProfiler": "verl.utils.profiler.dist_profiler.DistProfiler",
    "verl.utils.debug.DistProfilerExtension": "verl.single_controller.base.profiler_extension.DistProfilerExtension",
    "verl.utils.debug.GPUMemoryLogger": "verl.utils.profiler.memory.GPUMemoryLogger",
    "verl.utils.debug.ProfilerConfig": "verl.config.profiler.ProfilerConfig",
    "verl.utils.debug.log_gpu_memory_usage": "verl.utils.profiler.memory.log_gpu_memory_usage",
    "verl.utils.profiler.DistProfiler": "verl.utils.profiler.dist_profiler.DistProfiler",
    "verl.utils.profiler.DistProfilerExtension": "verl.single_controller.base.profiler_extension.DistProfilerExtension",
    "verl.utils.profiler.GPUMemoryLogger": "verl.utils.profiler.memory.GPUMemoryLogger",
    "verl.utils.profiler.ProfilerConfig": "verl.config.profiler.ProfilerConfig",
    "verl.utils.profiler.log_gpu_memory_usage": "verl.utils.profiler.memory.log_gpu_memory_usage",
    "verl.utils.profiler.performance.GPUMemoryLogger": "verl.utils.profiler.memory.GPUMemoryLogger",
    "verl.utils.profiler.performance.gather_timing": "verl.utils.profiler.across_ranks.gather_timing",
    "verl.utils.profiler.performance.log_gpu_memory_usage": "verl.utils.profiler.memory.log_gpu_memory_usage",
    "verl.utils.profiler.performance.reduce_timing": "verl.utils.profiler.across_ranks.reduce_timing",
    "verl.utils.profiler.performance.topk_reduce_ratio_min_max": (
        "verl.utils.profiler.across_ranks.topk_reduce_ratio_min_max"
    ),
    "verl.utils.profiler.profile.DistProfilerExtension": (
        "verl.single_controller.base.profiler_extension.DistProfilerExtension"
    ),
    "verl.utils.profiler.profile.mark_annotate": "verl.utils.profiler.annotations.mark_annotate",
    "verl.utils.profiler.profile.mark_end_range": "verl.utils.profiler.annotations.mark_end_range",
    "verl.utils.profiler.profile.mark_start_range": "verl.utils.profiler.annotations.mark_start_range",
    "verl.utils.vllm.utils.is_version_ge": "verl.utils.import_utils.is_version_ge",
    "verl.workers.engine.fsdp.utils.create_device_mesh": "verl.workers.engine.fsdp.build.create_device_mesh",
    "verl.workers.engine.fsdp.utils.get_sharding_strategy": "verl.utils.fsdp_utils.get_sharding_strategy",
    "verl.utils.vllm.is_version_ge": "verl.utils.import_utils.is_version_ge",
    "verl.workers.engine_workers.TrainingWorkerConfig": "verl.workers.config.TrainingWorkerConfig",
    "verl.workers.fsdp_workers.create_device_mesh": "verl.workers.engine.fsdp.build.create_device_mesh",
    "verl.workers.fsdp_workers.get_sharding_strategy": "verl.utils.fsdp_utils.get_sharding_strategy",
    "verl.workers.fsdp_workers.get_vl_model_vision_tower": "verl.utils.fsdp_utils.get_vl_model_vision_tower",
    "verl.workers.rollout.schemas.Message": "verl.tools.schemas.Message",
    "verl.workers.rollout.utils.run_unvicorn": "verl.workers.rollout.utils.run_uvicorn",
    # Left out: workers of their own for each role and engine
    "verl.experimental.separation.engine_workers": _ENGINE_WORKERS,
    "verl.experimental.separation.ray_trainer": (
        "There is one loop for all trainers: use verl.trainer.ppo.ray_trainer.RayPPOTrainer with other `steps`, or "
        "verl.experimental.fully_async_policy"
    ),
    "verl.workers.actor": _MODEL_IN_ENGINE,
    "verl.workers.critic": _MODEL_IN_ENGINE,
    "verl.workers.engine_workers.CriticWorker": "The critic is verl.workers.engine_workers.TrainingWorker",
    "verl.workers.fsdp_workers.RewardModelWorker": _REWARD_MODEL,
    "verl.workers.megatron_workers": f"{_MEGATRON} and verl.workers.engine_workers.ActorRolloutRefWorker",
    "verl.workers.roles": _ENGINE_WORKERS,
    "verl.workers.rollout.vllm_rollout.vLLMRollout": (
        "vLLM runs in a server of its own: use verl.workers.rollout.vllm_rollout.ServerAdapter"
    ),
    "verl.experimental.fully_async_policy.agent_loop": (
        "Agent loops are the same in every trainer: use verl.experimental.agent_loop.AgentLoopManager"
    ),
    "verl.trainer.sft_trainer_ray": (
        "Supervised ranks are started by torchrun, also on several nodes: torchrun … -m verl.trainer.sft_trainer"
    ),
    "verl.utils.checkpoint.checkpoint_handler": "The supervised trainer saves itself: verl.trainer.sft_trainer",
    "verl.trainer.ppo.padding_utils": "Only the engine packs and pads: see verl.workers.engine.packing",
    "verl.utils.rendezvous": "Ranks meet by verl.utils.distributed.initialize_global_process_group",
    "verl.utils.transformers_compat": "Nothing is bridged here: call transformers in the installed version",
    "verl.workers.engine.utils": "Micro-batches are the engine's own: see verl.workers.engine.micro_batches",
    "verl.workers.rollout.tokenizer": "Tokenizers are those of transformers: use verl.utils.hf_tokenizer",
    "verl.workers.sharding_manager.base": (
        "There is one sharding manager: verl.workers.sharding_manager.fsdp_ulysses.FSDPUlyssesShardingManager"
    ),
    "verl.workers.rollout.naive": _OTHER_ROLLOUT,
    # Left out: engines, backends and their patches
    "verl.experimental.agent_loop.diffusion_agent_loop": _DIFFUSION,
    "verl.experimental.reward_loop.reward_manager.visual": _DIFFUSION,
    "verl.experimental.reward_loop.reward_model": _REWARD_MODEL,
    "verl.experimental.agent_loop.prometheus_utils": "Prometheus is not set up from here: let it scrape the servers",
    "verl.experimental.reward_loop.router": _REWARD_MODEL,
    "verl.experimental.teacher_loop": _DISTILLATION,
    "verl.checkpoint_engine.hccl_checkpoint_engine": "The transfer over HCCL is verl.checkpoint_engine.collective",
    "verl.checkpoint_engine.kimi_checkpoint_engine": _TRANSFER_BACKEND,
    "verl.checkpoint_engine.mooncake_checkpoint_engine": _TRANSFER_BACKEND,
    "verl.checkpoint_engine.nccl_checkpoint_engine": "The transfer over NCCL is verl.checkpoint_engine.collective",
    "verl.checkpoint_engine.nixl_checkpoint_engine": _TRANSFER_BACKEND,
    "verl.model_merger.megatron_model_merger": _MEGATRON,
    "verl.models.mcore": _MEGATRON,
    "verl.models.registry": _MEGATRON,
    "verl.models.weight_loader_registry": _MEGATRON,
    "verl.models.transformers.qwen2_vl": (
        "Models are not patched here: transformers computes these positions itself (get_rope_index of the model class)"
    ),
    "verl.third_party.vllm": (
        "vLLM is used as installed; how deep it sleeps follows from the rollout's mode "
        "(verl.workers.rollout.vllm_rollout.vllm_server)"
    ),
    "verl.third_party.torch": "These functions are in torch.distributed.checkpoint.state_dict",
    "verl.trainer.diffusion": _DIFFUSION,
    "verl.trainer.distillation": _DISTILLATION,
    "verl.trainer.histoSpec": (
        "This package comes with the recipe's own fork: use create_rl_dataset and create_rl_sampler of "
        "verl.trainer.main_ppo"
    ),
    "verl.trainer.main_flowgrpo": _DIFFUSION,
    "verl.trainer.main_ppo_sync": "The synchronous trainer is verl.trainer.main_ppo",
    "verl.trainer.ppo.prefix_grouper_utils": "Prefix grouping is left out: leave actor.use_prefix_grouper=false",
    "verl.utils.activation_offload": (
        "Activations are not offloaded: recompute them instead (actor_rollout_ref.model.enable_gradient_checkpointing)"
    ),
    "verl.utils.checkpoint.megatron_checkpoint_manager": _MEGATRON,
    "verl.utils.dataset.dynamicgen_dataset": (
        "Data sets that grow during training are left out: subclass verl.utils.dataset.RLHFDataset (data.custom_cls)"
    ),
    "verl.utils.dataset.vision_utils.process_multi_modal_inputs_for_minicpmo": (
        "MiniCPM-o has no patch here: pass its inputs through the processor (verl.utils.hf_processor)"
    ),
    "verl.experimental.dynamic_dataset": (
        "Data sets that grow during training are left out: subclass verl.utils.dataset.RLHFDataset (data.custom_cls)"
    ),
    "verl.utils.debug.trajectory_tracker": "Trajectories are written where trainer.rollout_data_dir says",
    "verl.utils.distributed.set_numa_affinity": "Processes are not pinned here: start the job under numactl",
    "verl.utils.experimental": "Fused kernels are left out: leave model.use_fused_kernels=false",
    "verl.utils.fp8_utils": _QUANTIZED,
    "verl.utils.kernel": "Fused kernels are left out: leave model.use_fused_kernels=false",
    "verl.utils.megatron": _MEGATRON,
    "verl.utils.megatron_peft_utils": _MEGATRON,
    "verl.utils.megatron_utils": _MEGATRON,
    "verl.utils.model.get_parallel_gptmodel_from_config": _MEGATRON,
    "verl.utils.model.get_parallel_model_from_config": _MEGATRON,
    "verl.utils.model.load_mcore_dist_weights": _MEGATRON,
    "verl.utils.model.load_megatron_gptmodel_weights": _MEGATRON,
    "verl.utils.model.load_megatron_model_weights": _MEGATRON,
    "verl.utils.model.normalize_model_name": _MEGATRON,
    "verl.utils.model.normalize_pp_vpp_params": _MEGATRON,
    "verl.utils.modelopt": _QUANTIZED,
    "verl.utils.npu_flash_attn_utils": "Attention is chosen by model.override_config.attn_implementation",
    "verl.utils.profiler.precision_debugger_profile": "Ascend's precision debugger is left out: run the job under it",
    "verl.utils.profiler.profile.Profiler": _TORCH_PROFILER,
    "verl.utils.profiler.torch_profile": _TORCH_PROFILER,
    "verl.utils.qat": _QUANTIZED,
    "verl.utils.sglang": _OTHER_ROLLOUT,
    "verl.utils.transferqueue_utils": _TRANSFER_QUEUE,
    "verl.utils.trtllm": _OTHER_ROLLOUT,
    "verl.utils.vllm.npu_vllm_patch": _VLLM_PATCH,
    "verl.utils.vllm.patch": _VLLM_PATCH,
    "verl.utils.vllm.utils.TensorLoRARequest": _VLLM_PATCH,
    "verl.utils.vllm.utils.VLLMHijack": _VLLM_PATCH,
    "verl.utils.vllm.vllm_fp8_utils": _VLLM_PATCH,
    "verl.utils.vllm_omni": _DIFFUSION,
    "verl.workers.config.distillation": _DISTILLATION,
    "verl.workers.config.megatron_peft": _MEGATRON,
    "verl.workers.engine.automodel": _OTHER_ENGINE,
    "verl.workers.engine.fsdp.diffusers_impl": _DIFFUSION,
    "verl.workers.engine.megatron": _MEGATRON,
    "verl.workers.engine.mindspeed": _OTHER_ENGINE,
    "verl.workers.engine.torchtitan": _OTHER_ENGINE,
    "verl.workers.engine.veomni": _OTHER_ENGINE,
    "verl.workers.rollout.sglang_rollout": _OTHER_ROLLOUT,
    "verl.workers.rollout.trtllm_rollout": _OTHER_ROLLOUT,
    "verl.workers.rollout.vllm_rollout.vllm_omni_async_server": _DIFFUSION,
    "verl.utils.vllm.TensorLoRARequest": _VLLM_PATCH,
    "verl.utils.vllm.VLLMHijack": _VLLM_PATCH,
    # Left out: examples that upstream ships inside the package
    "verl.interactions.weather_interaction": (
        "This interaction is not shipped: subclass verl.interactions.base.BaseInteraction"
    ),
    "verl.experimental.fully_async_policy.unittest": "Tests lie outside the package, in tests/",
    "verl.utils.reward_score.jpeg_compressibility": _OWN_SCORER,
    "verl.tools.geo3k_tool": _OWN_TOOL,
    "verl.tools.image_zoom_in_tool": _OWN_TOOL,
    "verl.tools.mcp_search_tool": "This tool is not shipped: use verl.tools.mcp_base_tool.MCPBaseTool with your server",
    "verl.tools.search_tool": _OWN_TOOL,
    "verl.tools.utils.search_r1_like_utils": _OWN_TOOL,
}


def is_sentence(road: str) -> bool:
    """Whether a value of the table says what to use, instead of where the name is."""
    return " " in road


def install() -> None:
    """Let Python's import system know the table; calling it again changes nothing."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _prefixes(path: str) -> Iterator[str]:
    while "." in path:
        path = path.rpartition(".")[0]
        yield path


# Modules in which the table knows a name or a module.
_PARENTS = frozenset(prefix for key in ROADS for prefix in _prefixes(key))


class _Finder:
    """Comes first, because modules that exist are found by others but must answer for the names they lack."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        road = ROADS.get(fullname)
        if road is None and fullname not in _PARENTS:
            return None
        if road is not None:
            if is_sentence(road):
                raise UnsupportedImport(_left_out(fullname), remedy=road)
            return _moved(fullname, road)
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None:
            return _moved(fullname, None)
        if type(spec.loader) is SourceFileLoader:
            spec.loader = _ExistingModule(fullname, spec.loader.path)
        return spec


def _moved(fullname: str, road: str | None) -> ModuleSpec:
    # Not a subclass of importlib.abc.Loader: `import verl` loads no library for this table.
    loader: Any = _MovedModule(road)
    return ModuleSpec(fullname, loader, is_package=True)


class _ExistingModule(SourceFileLoader):
    """A module's own code, and then the table for the names that it does not define."""

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        # `from module import name` asks the finders for a name that a module lacks, and so gets the sentence as an
        # ImportError, only where the module says that it has parts.
        module.__dict__.setdefault("__path__", [])
        own = module.__dict__.get("__getattr__", _no_such_name(module.__name__))
        module.__getattr__ = _answer(module.__name__, own)  # type: ignore[method-assign]


class _MovedModule:
    """An old module without a file: its names are those of the new one, and those of the table."""

    def __init__(self, road: str | None) -> None:
        self.road = road

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        own = _no_such_name(module.__name__)
        if self.road is not None:
            warnings.warn(f"{module.__name__} is now {self.road}", DeprecationWarning, stacklevel=2)
            home = importlib.import_module(self.road)
            module.__doc__ = home.__doc__
            own = _names_of(home)
        module.__getattr__ = _answer(module.__name__, own)  # type: ignore[method-assign]


def _answer(module: str, own: Callable[[str], Any]) -> Callable[[str], Any]:
    def __getattr__(name: str) -> Any:
        road = ROADS.get(f"{module}.{name}")
        if road is None:
            return own(name)
        if is_sentence(road):
            # What asks a module for its names (hasattr, inspect, pickle, doctest) must be told no in Python's way.
            raise UnsupportedAttribute(_left_out(f"{module}.{name}"), remedy=road)
        return pkgutil.resolve_name(road)

    return __getattr__


def _no_such_name(module: str) -> Callable[[str], Any]:
    def missing(name: str) -> Any:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return missing


def _names_of(home: ModuleType) -> Callable[[str], Any]:
    def find(name: str) -> Any:
        if name == "__path__":
            raise AttributeError(name)
        return getattr(home, name)

    return find


def _left_out(old: str) -> str:
    return f"{old} is not part of this package"
