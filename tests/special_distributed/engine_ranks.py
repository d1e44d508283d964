# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""What every rank of the distributed engine tests runs; started by `test_two_ranks.py`, one process a rank.

`python engine_ranks.py MODEL_DIR OUT_DIR` runs all checks and leaves, per check, what it returned or how it failed.
The same functions, called in one process, give the results that two ranks must repeat.
"""

import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from verl.protocol import DataProto
from verl.utils.checkpoint import hf_export
from verl.utils.distributed import initialize_global_process_group, leave_process
from verl.workers.engine import EngineRegistry, FSDPEngine
from verl.workers.engine.fsdp import build

LENGTHS = [(3, 4), (6, 1), (1, 7), (5, 5), (2, 2), (6, 7), (4, 3), (1, 1)]
LORA = {"lora_rank": 4, "lora_alpha": 8, "target_modules": "all-linear"}
Weights = dict[str, torch.Tensor]


def make_engine(model_dir: Path, **parts: Any) -> FSDPEngine:
    """An engine on the tiny model; key biases have no gradient but rounding, hence Adam's large eps."""
    engine = EngineRegistry.new(
        parts.get("model_type", "language_model"),
        "fsdp2",
        model_config={"path": str(model_dir), **parts.get("model", {})},
        engine_config=parts.get("engine", {}),
        optimizer_config={"lr": 1e-2, "weight_decay": 0.01, "override_optimizer_config": {"eps": 1e-3}},
        checkpoint_config=parts.get("checkpoint"),
    )
    engine.initialize()
    return engine


def my_rows(**meta: Any) -> DataProto:
    """This rank's share of one batch: every n-th row, so that shares differ in tokens."""
    generator = torch.Generator().manual_seed(0)
    ids, mask = torch.zeros(8, 14, dtype=torch.long), torch.zeros(8, 14, dtype=torch.long)
    advantages = torch.zeros(8, 7)
    for row, (p, r) in enumerate(LENGTHS):
        ids[row, 7 - p : 7 + r] = torch.randint(2, 14, (p + r,), generator=generator)
        mask[row, 7 - p : 7 + r] = 1
        advantages[row, :r] = torch.randn(r, generator=generator)
    tensors = {
        "responses": ids[:, 7:],
        "input_ids": ids,
        "attention_mask": mask,
        "response_mask": mask[:, 7:],
        "advantages": advantages,
    }
    data = DataProto.from_dict(tensors, meta_info=meta)
    return data.select_idxs(list(range(dist.get_rank(), 8, dist.get_world_size())))


def loss(output: Any, micro: DataProto, *, dp_size: int, batch_num_tokens: int, global_batch_size: int) -> Any:
    """Works for log-probs and for values."""
    predicted = output["log_probs"] if "log_probs" in output else -((output["values"] - 1) ** 2)
    weight = micro.batch["response_mask"] * (1.0 if "values" in output else micro.batch["advantages"])
    return -(weight * predicted).sum() / batch_num_tokens * dp_size, {"sequences": float(global_batch_size)}


def full_weights(engine: FSDPEngine) -> Weights:
    return {name: tensor.clone() for name, tensor in engine.get_per_tensor_param()[0]}


def train(engine: FSDPEngine, steps: int = 3, **meta: Any) -> list[dict[str, float]]:
    with engine.train_mode():
        return [engine.train_batch(my_rows(**meta), loss) for _ in range(steps)]


def trained(
    model_dir: Path, meta: dict[str, Any] | None = None, **parts: Any
) -> tuple[Weights, list[dict[str, float]]]:
    engine = make_engine(model_dir, **parts)
    metrics = train(engine, **(meta or {}))
    return full_weights(engine), metrics


# ---- checks: name -> function(model_dir, out_dir) -> what the test compares ------------------------------------------


def plain(model_dir: Path, out: Path) -> Any:
    return trained(model_dir)


def hybrid_shards(model_dir: Path, out: Path) -> Any:
    return trained(model_dir, engine={"fsdp_size": 1})


def dynamic(model_dir: Path, out: Path) -> Any:
    return trained(model_dir, meta={"use_dynamic_bsz": True, "max_token_len_per_gpu": 14})


def small_micro_batches(model_dir: Path, out: Path) -> Any:
    return trained(model_dir, meta={"micro_batch_size_per_gpu": 1}, engine={"reshard_after_forward": False})


def adapter(model_dir: Path, out: Path) -> Any:
    return trained(model_dir, model=LORA)


def critic(model_dir: Path, out: Path) -> Any:
    return trained(model_dir, model_type="value_model")


def experts(model_dir: Path, out: Path) -> Any:
    """A mixture of experts, which transformers keeps in another layout than the published checkpoint."""
    folder = out / "experts"
    if dist.get_rank() == 0:
        sizes = {"vocab_size": 40, "hidden_size": 16, "intermediate_size": 24, "moe_intermediate_size": 8}
        heads = {"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 8}
        config = AutoConfig.for_model("qwen3_moe", num_experts=4, num_experts_per_tok=2, **sizes, **heads)
        torch.manual_seed(0)
        AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    dist.barrier()
    start = full_weights(make_engine(folder))
    weights, metrics = trained(folder)
    return {"start": start, "published": load_file(folder / "model.safetensors"), "trained": (weights, metrics)}


def one_rank_not_finite(model_dir: Path, out: Path) -> Any:
    """Only rank 0's loss is broken; every rank must leave its weights alone."""
    engine = make_engine(model_dir)
    before = full_weights(engine)

    def broken(output: Any, micro: DataProto, **counts: Any) -> Any:
        value, metrics = loss(output, micro, **counts)
        return (value * float("nan") if dist.get_rank() == 0 else value), metrics

    with engine.train_mode():
        metrics = engine.train_batch(my_rows(), broken)
    unchanged = all(torch.equal(tensor, before[name]) for name, tensor in full_weights(engine).items())
    return {"skipped": metrics["skipped_steps"], "unchanged": unchanged}


def resumed(model_dir: Path, out: Path) -> Any:
    """Two steps, save, one more; against load and one more."""
    contents = {"save_contents": ["model", "optimizer", "extra", "hf_model"], "load_contents": ["model", "optimizer"]}
    engine = make_engine(model_dir, checkpoint=contents)
    train(engine, steps=2)
    folder = out / "checkpoint" / "global_step_2" / "actor"
    engine.save_checkpoint(str(folder), global_step=2)
    at_save = full_weights(engine)
    train(engine, steps=1)
    straight = full_weights(engine)
    again = make_engine(model_dir, checkpoint=contents)
    again.load_checkpoint(str(folder))
    train(again, steps=1)
    return {"at_save": at_save, "straight": straight, "resumed": full_weights(again)}


def failed_save(model_dir: Path, out: Path) -> Any:
    """The last rank cannot write its files; the gathers of the exported model must not wait for it."""

    def break_it(engine: FSDPEngine) -> None:
        if dist.get_rank() == dist.get_world_size() - 1:
            engine.checkpoint_manager._write = _disk_full

    return _save_that_fails(model_dir, out / "failed_save", break_it)


def failed_export(model_dir: Path, out: Path) -> Any:
    """Rank 0 cannot write the exported model's first shard, with most of the gathers still to come."""

    def break_it(engine: FSDPEngine) -> None:
        if dist.get_rank() == 0:
            hf_export._SHARD_BYTES, hf_export._write_shard = 1000, _disk_full

    kept = hf_export._SHARD_BYTES, hf_export._write_shard
    try:
        return _save_that_fails(model_dir, out / "failed_export", break_it)
    finally:
        hf_export._SHARD_BYTES, hf_export._write_shard = kept


def _save_that_fails(model_dir: Path, root: Path, break_it: Callable[[FSDPEngine], None]) -> dict[str, Any]:
    engine = make_engine(model_dir, checkpoint={"save_contents": ["model", "hf_model"]})
    engine.save_checkpoint(str(root / "global_step_1"), max_ckpt_to_keep=1)
    break_it(engine)
    try:
        engine.save_checkpoint(str(root / "global_step_2"), max_ckpt_to_keep=1)
        message = "no error"
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
    dist.barrier()
    return {"message": message, "left": sorted(path.name for path in root.iterdir() if not path.name.startswith("."))}


def _disk_full(*arguments: Any) -> None:
    raise OSError(28, "No space left on device")


def other_order(model_dir: Path, out: Path) -> Any:
    """Rank 1 registers its buffers the other way round, and they have different sizes."""

    class Holder(nn.Module):
        def __init__(self, names: list[str]) -> None:
            super().__init__()
            for name in names:
                self.register_buffer(name, torch.zeros(4 if name == "a" else 8))

    full = Holder(["a", "b"])
    full.a.copy_(torch.arange(4.0))
    full.b.copy_(torch.arange(8.0) + 10)
    mine = Holder(["a", "b"] if dist.get_rank() == 0 else ["b", "a"])
    build.fill_from_rank_zero(mine, build.named_tensors(full) if dist.get_rank() == 0 else None)
    return {"a": mine.a, "b": mine.b}


def unequal_rows(model_dir: Path, out: Path) -> Any:
    """Ranks with different numbers of rows cannot pair their micro-batches; no rank may hang."""
    engine = make_engine(model_dir)
    data = my_rows(use_dynamic_bsz=True, max_token_len_per_gpu=14)
    mine = data.slice(0, 1) if dist.get_rank() == 0 else data
    try:
        with engine.eval_mode():
            engine.infer_batch(mine, frozenset({"log_probs"}))
    except ValueError as error:
        return str(error)
    return "no error"


CHECKS: dict[str, Callable[[Path, Path], Any]] = {
    check.__name__: check
    for check in (
        plain,
        hybrid_shards,
        dynamic,
        small_micro_batches,
        adapter,
        critic,
        experts,
        one_rank_not_finite,
        resumed,
        failed_save,
        failed_export,
        other_order,
        unequal_rows,
    )
}


def main() -> None:
    model_dir, out = Path(sys.argv[1]), Path(sys.argv[2])
    torch.set_num_threads(1)
    initialize_global_process_group(timeout_second=60)
    for name, check in CHECKS.items():
        try:
            result = {"value": check(model_dir, out)}
        except Exception:
            result = {"failure": traceback.format_exc()}
        torch.save(result, out / f"{name}-{dist.get_rank()}.pt")
    leave_process(0)


if __name__ == "__main__":
    main()
