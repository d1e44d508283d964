# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""What every rank of the tests of distributed helpers runs; started by `test_helpers_on_two_ranks.py`.

`python helper_ranks.py MODEL_DIR OUT_DIR` leaves, per check, what it returned.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from transformers import AutoModelForCausalLM

from verl.protocol import DataProto
from verl.utils import fsdp_utils, ulysses
from verl.utils.distributed import initialize_global_process_group, leave_process
from verl.utils.profiler.performance import gather_timing, reduce_timing, topk_reduce_ratio_min_max
from verl.workers.engine.fsdp.build import create_device_mesh
from verl.workers.sharding_manager.fsdp_ulysses import FSDPUlyssesShardingManager

HEADS, WIDTH = 4, 3


def sequence(length: int) -> torch.Tensor:
    """[length, HEADS, WIDTH], the same on every rank."""
    return torch.randn(length, HEADS, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def there_and_back(_: Path) -> dict[str, Any]:
    """A sequence of 7 over two ranks: padded, heads exchanged for sequence, and back."""
    ulysses.set_ulysses_sequence_parallel_group(dist.group.WORLD)
    mine = ulysses.slice_input_tensor(sequence(7), dim=0).requires_grad_()
    whole = ulysses.gather_seq_scatter_heads(mine, seq_dim=0, head_dim=1, unpadded_dim_size=7)
    again = ulysses.gather_heads_scatter_seq(whole, head_dim=1, seq_dim=0)
    (again * (1 + torch.arange(4.0, dtype=torch.float64))[:, None, None]).sum().backward()
    return {"whole": whole.detach(), "again": again.detach(), "mine": mine.detach(), "grad": mine.grad}


def asynchronous(_: Path) -> dict[str, Any]:
    """Both exchanges with a result that is waited for."""
    ulysses.set_ulysses_sequence_parallel_group(dist.group.WORLD)
    mine = sequence(8).tensor_split(2)[dist.get_rank()]
    exchange = ulysses.all_to_all_tensor(mine, scatter_dim=1, gather_dim=0, async_op=True)
    gather = ulysses.all_gather_tensor(mine, async_op=True)
    return {"exchanged": exchange(), "gathered": gather()}


def loss_on_whole_outputs(_: Path) -> dict[str, Any]:
    """Packed tokens sliced, scored by a rank, joined; the gradient of the score's weight."""
    ulysses.set_ulysses_sequence_parallel_group(dist.group.WORLD)
    ids, positions = torch.arange(10, 15)[None], torch.tensor([[0, 1, 2, 0, 1]])
    mine, my_positions, added = ulysses.ulysses_pad_and_slice_inputs(ids, positions, sp_size=2, pad_value=99)
    _, all_positions, _ = ulysses.ulysses_pad_and_slice_inputs(ids, positions, sp_size=2, skip_position_ids_rmpad=True)
    weight = torch.ones(1, requires_grad=True)
    found = {"ids": mine, "positions": my_positions, "all_positions": all_positions, "added": added}
    for scaled in (True, False):
        joined = ulysses.gather_outputs_and_unpad(
            mine[0] * weight, gather_dim=0, unpad_dim=0, padding_size=added, grad_scaler=scaled
        )
        (grad,) = torch.autograd.grad(joined.sum(), weight)
        found |= {"joined": joined.detach(), f"grad_{scaled}": grad}
    return found


def rows_of_a_group(_: Path) -> dict[str, Any]:
    """Rows joined before and parted after; the group is set inside the block only."""
    ulysses.set_ulysses_sequence_parallel_group(None)
    mesh = init_device_mesh("cpu", (1, 2), mesh_dim_names=("dp", "sp"))
    rank = dist.get_rank()
    data = DataProto.from_dict({"x": torch.tensor([[2 * rank], [2 * rank + 1]])}, {"uid": [f"{rank}a", f"{rank}b"]})
    manager = FSDPUlyssesShardingManager(mesh)
    with manager, FSDPUlyssesShardingManager(None):
        inside = ulysses.get_ulysses_sequence_parallel_world_size()
        joined = manager.preprocess_data(data).batch["x"].flatten().tolist()
        mine = manager.postprocess_data(data)
    return {
        "inside": inside,
        "outside": ulysses.get_ulysses_sequence_parallel_world_size(),
        "joined": joined,
        "mine": mine.batch["x"].flatten().tolist(),
        "uid": list(mine.non_tensor_batch["uid"]),
    }


def seconds(_: Path) -> dict[str, Any]:
    """Rank 1 is slower."""
    timing = {"step": 2.0 + 4 * dist.get_rank(), "gen": 1.0}
    try:
        gather_timing({("save" if dist.get_rank() else "test"): 1.0})
        differing = "no error"
    except ValueError as error:
        differing = str(error)
    return {
        "differing": differing,
        "gathered": gather_timing(timing),
        "mean": reduce_timing(timing),
        "most": reduce_timing(timing, reduce_op=dist.ReduceOp.MAX),
        "total": reduce_timing(timing, dist.ReduceOp.SUM),
        "tail": topk_reduce_ratio_min_max(timing["step"], k=10),
    }


def model_from_rank_zero(model_dir: Path) -> dict[str, Any]:
    """Only rank 0 reads the weights; then two ranks compute, clip and collect like one."""
    mesh = create_device_mesh(world_size=2, fsdp_size=-1)
    with fsdp_utils.get_init_weight_context_manager(use_meta_tensor=True, mesh=mesh)():
        model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
    kinds = {parameter.device.type for parameter in model.parameters()}
    full_state = model.state_dict()
    fsdp_utils.apply_fsdp2(model, {"mesh": mesh}, {})
    fsdp_utils.fsdp2_load_full_state_dict(model, full_state, mesh)
    logits = model(torch.tensor([[1, 2, 3, 4]])).logits
    logits.square().sum().backward()
    norm = fsdp_utils.fsdp2_clip_grad_norm_(model.parameters(), max_norm=0.5)
    return {"kinds": kinds, "logits": logits.detach(), "norm": norm}


def memory_of_fsdp1(_: Path) -> dict[str, Any]:
    """`init_fn` gives memory to what has none, except on rank 0."""
    layer = nn.Linear(2, 2) if dist.get_rank() == 0 else nn.Linear(2, 2, device="meta")
    made = fsdp_utils.init_fn(layer)
    return {"same": made is layer, "device": made.weight.device.type}


CHECKS: tuple[Callable[[Path], dict[str, Any]], ...] = (
    there_and_back,
    asynchronous,
    loss_on_whole_outputs,
    rows_of_a_group,
    seconds,
    model_from_rank_zero,
    memory_of_fsdp1,
)


def main() -> None:
    """All checks, one file each."""
    model_dir, out = Path(sys.argv[1]), Path(sys.argv[2])
    initialize_global_process_group(timeout_second=120)
    for check in CHECKS:
        torch.save(check(model_dir), out / f"{check.__name__}-{dist.get_rank()}.pt")
        dist.barrier()
    leave_process(0)


if __name__ == "__main__":
    main()
