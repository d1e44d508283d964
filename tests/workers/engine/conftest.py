# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Engines on the tiny model in a process group of one, and batches to feed them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from verl.protocol import DataProto
from verl.utils.distributed import destroy_global_process_group, initialize_global_process_group
from verl.workers.engine import EngineRegistry, FSDPEngine

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def process_group() -> Iterator[None]:
    """This process as a group of one."""
    initialize_global_process_group()
    yield
    destroy_global_process_group()


@pytest.fixture
def make_engine(process_group: None, tiny_model_dir: Path) -> Callable[..., FSDPEngine]:
    """`make_engine(model={…}, engine={…}, optim={…}, model_type=…)`: an initialised engine on the tiny model."""

    def make(
        model: dict[str, Any] | None = None,
        engine: dict[str, Any] | None = None,
        optim: dict[str, Any] | None = None,
        checkpoint: dict[str, Any] | None = None,
        model_type: str = "language_model",
    ) -> FSDPEngine:
        built = EngineRegistry.new(
            model_type,
            "fsdp",
            model_config={"path": str(tiny_model_dir), **(model or {})},
            engine_config=engine or {},
            # Some gradients are zero but for rounding (key biases: softmax ignores them); with Adam's usual eps of
            # 1e-8 their steps would be rounding noise, and two right runs would differ.
            optimizer_config={
                "lr": 1e-2,
                "weight_decay": 0.01,
                "clip_grad": 1.0,
                "override_optimizer_config": {"eps": 1e-3},
                **(optim or {}),
            },
            checkpoint_config=checkpoint,
        )
        built.initialize()
        return built

    return make


@pytest.fixture
def make_batch() -> Callable[..., DataProto]:
    """`make_batch([(prompt, response), …])`: left-padded prompts, right-padded responses, everything a loss needs."""

    def make(lengths: list[tuple[int, int]], seed: int = 0, pad_to: tuple[int, int] | None = None, **meta: Any):
        generator = torch.Generator().manual_seed(seed)
        prompt_width, response_width = pad_to or (max(p for p, _ in lengths), max(r for _, r in lengths))
        size = (len(lengths), prompt_width + response_width)
        # Drawn for the unpadded widths, so that more padding leaves the tokens as they are.
        ids, mask = torch.zeros(size, dtype=torch.long), torch.zeros(size, dtype=torch.long)
        advantages = torch.zeros(len(lengths), response_width)
        for row, (p, r) in enumerate(lengths):
            span = slice(prompt_width - p, prompt_width + r)
            ids[row, span] = torch.randint(2, 14, (p + r,), generator=generator)
            mask[row, span] = 1
            advantages[row, :r] = torch.randn(r, generator=generator)
        tensors = {
            "prompts": ids[:, :prompt_width],
            "responses": ids[:, prompt_width:],
            "input_ids": ids,
            "attention_mask": mask,
            "position_ids": (mask.cumsum(-1) - 1).clamp(min=0),
            "response_mask": mask[:, prompt_width:],
            "advantages": advantages,
        }
        return DataProto.from_dict(tensors, meta_info={"temperature": 1.0} | meta)

    return make


@pytest.fixture
def weighted_nll() -> Callable[..., Any]:
    """A loss with the engine's contract: minus advantage times log-prob, mean over the tokens of the mini-batch."""

    def loss(model_output: Any, micro: DataProto, *, dp_size: int, batch_num_tokens: int, global_batch_size: int):
        weight = micro.batch["advantages"] * micro.batch["response_mask"]
        value = -(weight * model_output["log_probs"]).sum() / batch_num_tokens * dp_size
        return value, {"tokens": float(batch_num_tokens), "sequences": float(global_batch_size)}

    return loss


@pytest.fixture
def weights_of() -> Callable[[FSDPEngine], dict[str, torch.Tensor]]:
    """Full tensors of an engine, copied."""
    return lambda engine: {name: tensor.clone() for name, tensor in engine.get_per_tensor_param()[0]}
