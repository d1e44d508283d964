# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""A real replica behind a collective engine, and a trainer whose weights follow from a seed."""

import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf
from ray import cloudpickle

from verl.single_controller.base.decorator import Dispatch, register
from verl.single_controller.base.worker import Worker

# Ray's workers cannot import a test module, so what it defines travels by value.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

PROMPT = [3, 4, 5, 6, 7, 8, 9, 10] * 3

ROLLOUT = {
    "name": "vllm",
    "mode": "async",
    "temperature": 1.0,
    "top_k": -1,
    "top_p": 1.0,
    "prompt_length": 32,
    "response_length": 128,
    "dtype": "float32",
    "gpu_memory_utilization": 0.5,
    "enforce_eager": True,
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
    "load_format": "auto",
    "disable_log_stats": True,
    "skip_tokenizer_init": True,
    "calculate_log_probs": True,
    "engine_kwargs": {"vllm": {}},
    "checkpoint_engine": {
        "backend": "nccl",
        "update_weights_bucket_megabytes": 1,
        "engine_kwargs": {"nccl": {"deadline_s": 60.0}},
        "custom_backend_module": None,
    },
}


def seeded_model(directory: str, seed: int) -> Any:
    """The tiny model's architecture with weights of this seed, large enough that seeds answer differently."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(directory), dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(4.0)
            elif parameter.abs().sum() == 0:
                parameter.normal_(std=0.05)
    return model.eval()


def greedy(model: Any, prompt: list[int] = PROMPT, tokens: int = 24) -> list[int]:
    """Hugging Face's own greedy answer."""
    import torch

    output = model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        max_new_tokens=tokens,
        min_new_tokens=tokens,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    return output[0, len(prompt) :].tolist()


class SeededTrainer(Worker):
    """Trainer ranks without training: version v is the model of seed v, yielded as an export yields it.

    `trouble` spoils the next exports: {"raise_at": index}, {"wrong_shape_at": index, "times": 1},
    {"wait_at": index, "file": path} (writes this process's pid there, then waits to be killed).
    """

    def __init__(self, config: Any, model_dir: str) -> None:
        super().__init__()
        import transformers  # noqa: F401  (seconds that must not count as silence during the first update)

        from verl.checkpoint_engine.base import new_engine

        self.engine = new_engine(config, is_master=self.rank == 0)
        self.model_dir = model_dir
        self.trouble: dict[str, Any] = {}
        self.consumed = 0

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def set_trouble(self, trouble: dict[str, Any]) -> None:
        self.trouble = dict(trouble)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def tensors_consumed(self) -> int:
        return self.consumed

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, blocking=False)
    def update_weights(self, global_steps: int | None = None) -> Any:
        return asyncio.run(self.engine.send_weights(self._export(global_steps or 0)))

    @register(dispatch_mode=Dispatch.DP_COMPUTE, blocking=False)
    def execute_checkpoint_engine(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.engine, method)(*args, **kwargs)

    def _export(self, version: int) -> Iterator[tuple[str, Any]]:
        self.consumed = 0
        trouble = self.trouble
        if "times" in trouble:
            trouble["times"] -= 1
            self.trouble = trouble if trouble["times"] else {}
        for index, (name, parameter) in enumerate(seeded_model(self.model_dir, version).named_parameters()):
            if index == trouble.get("raise_at"):
                raise RuntimeError(f"injected at tensor {index}")
            if index == trouble.get("wait_at") and self.rank == 0:
                Path(trouble["file"]).write_text(str(os.getpid()))
                time.sleep(120)
            self.consumed += 1
            tensor = parameter.detach()
            yield name, tensor[..., :-1] if index == trouble.get("wrong_shape_at") else tensor


@pytest.fixture(scope="session")
def rollout_section() -> Callable[..., DictConfig]:
    def make(**overrides: Any) -> DictConfig:
        return OmegaConf.merge(OmegaConf.create(ROLLOUT), OmegaConf.create(overrides))

    return make


@pytest.fixture(scope="session")
def model_section(tiny_model_dir: Path) -> DictConfig:
    return OmegaConf.create({"path": str(tiny_model_dir), "trust_remote_code": False, "lora_rank": 0})


@pytest.fixture(scope="session")
def start_trainer(ray_cluster: None, tiny_model_dir: Path) -> Callable[..., Any]:
    from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup

    def start(config: DictConfig, ranks: int = 2) -> Any:
        pool = RayResourcePool(process_on_nodes=[ranks], use_gpu=False, max_colocate_count=1, name_prefix="trainer")
        return RayWorkerGroup(
            resource_pool=pool,
            ray_cls_with_init=RayClassWithInitArgs(SeededTrainer, config.checkpoint_engine, str(tiny_model_dir)),
            deadline_s=90.0,
        )

    return start


@pytest.fixture(scope="session")
def start_replica(ray_cluster: None, model_section: DictConfig, tmp_path_factory: Any) -> Callable[..., Any]:
    from verl.checkpoint_engine.worker import CheckpointEngineWorker
    from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMReplica

    def start(config: DictConfig, rank: int = 0) -> Any:
        replica = vLLMReplica(
            rank,
            config,
            model_section,
            gpus_per_node=2,
            worker_cls=CheckpointEngineWorker,
            log_dir=str(tmp_path_factory.mktemp("logs")),
        )
        asyncio.run(replica.init_standalone())
        return replica

    return start


class Questions:
    """Greedy questions to a replica, and what Hugging Face answers with the model of a seed."""

    def __init__(self, model_dir: str) -> None:
        self.model_dir = model_dir
        self._count = 0
        self._known: dict[int, list[int]] = {}

    async def ask(self, replica: Any, prompt: list[int] = PROMPT, tokens: int = 24, **params: Any) -> Any:
        self._count += 1
        options = {"temperature": 0.0, "max_tokens": tokens, "ignore_eos": True, "logprobs": True, **params}
        return await replica.call("generate", prompt, options, f"q{self._count}")

    def model(self, seed: int) -> Any:
        return seeded_model(self.model_dir, seed)

    def expected(self, seed: int) -> list[int]:
        if seed not in self._known:
            self._known[seed] = greedy(self.model(seed))
        return self._known[seed]

    async def serves(self, replica: Any, seed: int) -> bool:
        """Whether the replica answers exactly as the model of this seed, and stamps its version."""
        output = await self.ask(replica)
        return output.token_ids == self.expected(seed) and output.extra_fields["global_steps"] == seed


@pytest.fixture(scope="session")
def questions(tiny_model_dir: Path) -> Questions:
    return Questions(str(tiny_model_dir))
