# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""`FSDPEngine`: trains and evaluates a Hugging Face model sharded with FSDP2, on any platform's collective."""

import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule

from verl.errors import ConfigError, DataError, UnsupportedError
from verl.models.attention import choose_attention, wants_single_row
from verl.models.load import build_empty, load_config, load_full
from verl.models.lora import adapter_meta, adapters_disabled, add_adapters, lora_config
from verl.models.value_head import configure_value_model
from verl.platform import current_platform
from verl.protocol import DataProto
from verl.utils.checkpoint.fsdp_checkpoint_manager import FSDPCheckpointManager
from verl.utils.distributed import broadcast_object, initialize_global_process_group
from verl.utils.memory_utils import aggressive_empty_cache
from verl.utils.metric import AggregationType, Metric
from verl.utils.torch_dtypes import PrecisionType
from verl.workers.engine.base import BaseEngine, EngineRegistry, LossFunction, Metrics
from verl.workers.engine.fsdp import build, offload, state
from verl.workers.engine.fsdp.forward import ForwardOptions, PolicyScorer, ValueScorer
from verl.workers.engine.metrics import join_metrics
from verl.workers.engine.micro_batches import batch_settings, count_globally, split_rows
from verl.workers.engine.optim import build_lr_scheduler, build_optimizer, clipped_step
from verl.workers.engine.packing import Packed, pack


class FSDPEngine(BaseEngine):
    """One rank of a sharded model.

    `module` is the Hugging Face model, `root` the sharded module whose forward pass scores targets.
    `weights_id` names the current weights: it grows with each optimizer step and follows saved copies, so that
    "these log-probs came from these weights" can be told exactly.
    """

    model_type = "language_model"
    scorer_cls: type[nn.Module] = PolicyScorer

    def __init__(
        self, model_config: Any, engine_config: Any, optimizer_config: Any = None, checkpoint_config: Any = None
    ) -> None:
        self.model_config = model_config
        self.engine_config = engine_config
        self.optimizer_config = optimizer_config
        self.checkpoint_config = checkpoint_config
        self.platform = current_platform()
        self.device_type: str = self.platform.device_type
        self.optimizer: torch.optim.Optimizer | None = None
        self.lr_scheduler: torch.optim.lr_scheduler.LRScheduler | None = None
        self.weights_id = 0
        self.skipped_steps = 0
        self._steps_taken = 0
        self._shelf = offload.WeightShelf()
        self._shelf_ids: dict[int, int] = {}
        _refuse_what_is_left_out(engine_config)

    # ---- building ---------------------------------------------------------------------------------------------------

    def initialize(self) -> None:
        """Join the process group, build and shard the model, fill it from rank 0, make optimizer and schedule."""
        initialize_global_process_group()
        # A fresh value head and fresh adapters are drawn on rank 0.
        torch.manual_seed(self.engine_config.get("seed", 42))
        if self.engine_config.get("full_determinism", False):
            torch.use_deterministic_algorithms(True, warn_only=True)
        self.mesh = build.create_device_mesh(
            dist.get_world_size(), self.engine_config.get("fsdp_size", -1), self.device_type
        )
        self._build_model()
        if not self.engine_config.get("forward_only", False):
            self.optimizer = build_optimizer(self.module.parameters(), self.optimizer_config)
            self.lr_scheduler = build_lr_scheduler(self.optimizer, self.optimizer_config)
        self.checkpoint_manager = FSDPCheckpointManager(
            self.module,
            self.optimizer,
            self.lr_scheduler,
            checkpoint_config=self.checkpoint_config,
            model_config=self.model_config,
            export=lambda: state.iterate_full_tensors(self.module),
            lora_meta=adapter_meta(self.peft_config) if self.peft_config is not None else None,
        )
        if self.is_param_offload_enabled:
            self.to("cpu", optimizer=False, grad=False)

    def _build_model(self) -> None:
        config, trust = self.model_config, self.model_config.get("trust_remote_code", False)
        override = dict(config.get("override_config") or {})
        wanted = config.get("attn_implementation") or override.pop("attn_implementation", None)
        attention = choose_attention(wanted, default=self.platform.attn_implementation, device_type=self.device_type)
        self.single_row = wants_single_row(attention)
        hf_config = load_config(
            config.get("hf_config_path") or config["path"],
            attention=attention,
            trust_remote_code=trust,
            override=override,
            where="critic.model.path" if self.model_type == "value_model" else "actor_rollout_ref.model.path",
        )
        if self.model_type == "value_model":
            configure_value_model(hf_config)
        dtype = PrecisionType.to_dtype(self.engine_config.get("model_dtype", "fp32"))
        adapter = lora_config(config) if self.model_type == "language_model" else None
        full = load_full(config["path"], hf_config, self.model_type, dtype, trust) if dist.get_rank() == 0 else None
        self.module = build_empty(hf_config, self.model_type, dtype, trust)
        if adapter is not None:
            for model in (self.module, *([full] if full is not None else [])):
                add_adapters(model, adapter)
        if config.get("enable_gradient_checkpointing", False) and not self.engine_config.get("forward_only", False):
            build.enable_recompute(self.module)
        self.root = self.scorer_cls(self.module)
        build.shard(self.root, self.module, self.mesh, self.engine_config)
        self.root.to_empty(device=self.device_type)
        build.fill_from_rank_zero(self.module, build.named_tensors(full) if full is not None else None)
        self.peft_config = adapter
        # How the published checkpoint differs from memory is known where it was read; every rank exports.
        self.module._weight_conversions = broadcast_object(getattr(full, "_weight_conversions", None))
        self.module.generation_config = getattr(full, "generation_config", None)
        self.hf_config = hf_config

    # ---- modes ------------------------------------------------------------------------------------------------------

    @property
    def is_param_offload_enabled(self) -> bool:
        return bool(self.engine_config.get("param_offload", False)) and self.device_type != "cpu"

    @property
    def is_optimizer_offload_enabled(self) -> bool:
        return bool(self.engine_config.get("optimizer_offload", False)) and self.device_type != "cpu"

    @contextmanager
    def train_mode(self, **kwargs: Any) -> Iterator["FSDPEngine"]:
        """Everything on the device while the block runs; afterwards what is offloaded goes back to the host."""
        self._bring(optimizer=True)
        self.root.train()
        try:
            yield self
        finally:
            self.optimizer_zero_grad()
            self._send_back(optimizer=True)

    @contextmanager
    def eval_mode(self, **kwargs: Any) -> Iterator["FSDPEngine"]:
        """Parameters on the device while the block runs, evaluation mode."""
        self._bring(optimizer=False)
        self.root.eval()
        try:
            yield self
        finally:
            # The root group keeps its gathered parameters after a forward pass; a later change would not reach them.
            for module in self.root.modules():
                if isinstance(module, FSDPModule):
                    module.reshard()
            self._send_back(optimizer=False)

    def _bring(self, optimizer: bool) -> None:
        self.to(self.device_type, self.is_param_offload_enabled, optimizer and self.is_optimizer_offload_enabled, False)

    def _send_back(self, optimizer: bool) -> None:
        offloads = (self.is_param_offload_enabled, optimizer and self.is_optimizer_offload_enabled)
        if any(offloads):
            self.to("cpu", *offloads, grad=False)

    def to(self, device: str, model: bool = True, optimizer: bool = True, grad: bool = True) -> None:
        """Move model, optimizer state, gradients to "cpu" or to the platform's device."""
        if self.device_type == "cpu":
            return
        target = "cpu" if device == "cpu" else self.device_type
        if model:
            offload.move_model(self.root, target)
        if grad:
            offload.move_gradients(self.root, target)
        if optimizer and self.optimizer is not None:
            offload.move_optimizer(self.optimizer, target)
        if target == "cpu" and (model or optimizer or grad):
            self.platform.synchronize()
            aggressive_empty_cache()

    # ---- data parallel facts ----------------------------------------------------------------------------------------

    def get_data_parallel_rank(self) -> int:
        return dist.get_rank()

    def get_data_parallel_size(self) -> int:
        return dist.get_world_size()

    def get_data_parallel_group(self) -> dist.ProcessGroup | None:
        return dist.group.WORLD

    def is_mp_src_rank_with_outputs(self) -> bool:
        return True

    # ---- work -------------------------------------------------------------------------------------------------------

    def train_batch(self, data: DataProto, loss_function: LossFunction) -> Metrics:
        """One optimizer step over one mini-batch.

        Returns the loss function's metrics, `loss`, `grad_norm`, `lr`, and `skipped_steps` (1 where the gradient was
        not finite), joined over micro-batches and ranks: every rank returns the same numbers.
        """
        if self.optimizer is None:
            raise ConfigError(
                "this engine only evaluates", where="fsdp_config.forward_only", got=True, expected="false"
            )
        self.optimizer_zero_grad()
        parts = self.forward_backward_batch(data, loss_function)
        skipped = self.skipped_steps
        grad_norm = self.optimizer_step()
        facts = {"grad_norm": grad_norm, "lr": self.lr_scheduler_step(), "skipped_steps": self.skipped_steps - skipped}
        self.optimizer_zero_grad()
        return join_metrics(parts, self.get_data_parallel_group()) | facts

    @torch.no_grad()
    def infer_batch(self, data: DataProto, outputs: frozenset[str]) -> DataProto:
        """`[B, T]` tensors named by `outputs`, in the order of the rows, on the host."""
        facts = {f"calculate_{name}": name in outputs for name in ("entropy", "sum_pi_squared")}
        data = replace(data, meta_info=data.meta_info | facts)
        parts = self.forward_backward_batch(data, None, forward_only=True)
        order = torch.cat([rows for rows, _ in parts]).argsort()
        missing = outputs - set(parts[0][1])
        if missing:
            raise DataError(f"a {self.model_type} does not compute {sorted(missing)}", got=sorted(outputs))
        return DataProto.from_dict({name: torch.cat([out[name] for _, out in parts])[order].cpu() for name in outputs})

    def forward_backward_batch(
        self, data: DataProto, loss_function: LossFunction | None, forward_only: bool = False
    ) -> list[Any]:
        """Metrics of each micro-batch, or `(rows, outputs)` of each when `forward_only`."""
        if len(data) == 0:
            raise DataError(
                "an empty batch", where=f"rank {dist.get_rank()}", expected="at least one row on every rank"
            )
        group = self.get_data_parallel_group()
        counts = None if forward_only else count_globally(data, group)
        results: list[Any] = []
        for rows in split_rows(data, **batch_settings(data, self.engine_config, forward_only), dp_group=group):
            micro = data if len(rows) == len(data) else data.select_idxs(rows)
            output = self.forward_step(micro)
            if forward_only:
                results.append((rows, output))
                continue
            loss, metrics = loss_function(
                output,
                micro,
                dp_size=self.get_data_parallel_size(),
                batch_num_tokens=counts.num_tokens,
                global_batch_size=counts.num_sequences,
            )
            loss.backward()
            results.append({**metrics, "loss": Metric(AggregationType.SUM, loss.item())})
        return results

    def forward_step(self, micro: DataProto) -> dict[str, torch.Tensor]:
        """One micro-batch through the model: `[B, T]` for each quantity, zero at columns without a target."""
        packed = self.prepare_model_inputs(micro)
        temperature = float(micro.meta_info.get("temperature", 1.0))
        if temperature <= 0:
            raise DataError(
                "log-probs of greedy decoding do not exist", where="temperature", got=temperature, expected="above 0"
            )
        options = ForwardOptions(
            temperature=temperature,
            entropy=bool(micro.meta_info.get("calculate_entropy", False)),
            sum_pi_squared=bool(micro.meta_info.get("calculate_sum_pi_squared", False)),
            small_chunks=bool(self.engine_config.get("entropy_from_logits_with_chunking", False)),
            recompute=bool(self.engine_config.get("entropy_checkpointing", False)),
        )
        return {name: packed.unpack(value_N) for name, value_N in self.root(packed, options).items()}

    def prepare_model_inputs(self, micro: DataProto) -> Packed:
        """Pack on the host, then move; targets are the response tokens, or all tokens where there is no response."""
        batch = micro.batch
        positions = batch.get("position_ids", None)
        if positions is not None and positions.dim() != 2:
            raise UnsupportedError(
                "positions with several axes (multi-modal rotary embedding) are not supported by this engine",
                where="position_ids",
                remedy="train text models; images and video come with a later issue",
            )
        num_targets = batch["responses"].shape[1] if "responses" in batch else batch["input_ids"].shape[1]
        packed = pack(
            batch["input_ids"].cpu(),
            batch["attention_mask"].cpu(),
            num_targets,
            single_row=self.single_row,
            remove_padding=self._remove_padding(),
        )
        return packed if self.device_type == "cpu" else packed.to(self.device_type)

    def _remove_padding(self) -> bool:
        chosen = self.engine_config.get("use_remove_padding")
        return bool(self.model_config.get("use_remove_padding", True) if chosen is None else chosen)

    # ---- optimizer --------------------------------------------------------------------------------------------------

    def optimizer_zero_grad(self) -> None:
        if self.optimizer is not None:
            self.optimizer.zero_grad(set_to_none=True)

    def optimizer_step(self) -> float:
        """Clip to `clip_grad` and step; a non-finite gradient norm skips the step and is counted."""
        config = self.optimizer_config
        max_norm = config.get("grad_clip") if config.get("grad_clip") is not None else config.get("clip_grad", 1.0)
        norm, stepped = clipped_step(self.optimizer, list(self.module.parameters()), max_norm)
        if stepped:
            self._steps_taken += 1
            self.weights_id = self._steps_taken
        else:
            self.skipped_steps += 1
        return norm

    def lr_scheduler_step(self) -> float:
        """Advance the schedule, also after a skipped step, so that its length stays that of the run."""
        learning_rate: Any = self.lr_scheduler.get_last_lr()[0]
        # Where no step has been taken yet, torch takes the skipped one for a wrong order of the two calls.
        with _order_not_judged() if self._steps_taken == 0 else nullcontext():
            self.lr_scheduler.step()
        return learning_rate

    # ---- weights ----------------------------------------------------------------------------------------------------

    def get_per_tensor_param(self, **kwargs: Any) -> tuple[Iterator[tuple[str, torch.Tensor]], dict[str, Any] | None]:
        """Full tensors under their published names; adapters are merged, so the second value is always None.

        Tied tensors come once, persistent buffers as well, each in its own dtype. All ranks must exhaust the
        iterator, also after an error on one of them.
        """
        return self._export(), None

    def _export(self) -> Iterator[tuple[str, torch.Tensor]]:
        self._bring(optimizer=False)
        try:
            yield from state.iterate_full_tensors(self.module)
        finally:
            self._send_back(optimizer=False)

    def disable_adapter(self) -> AbstractContextManager[None]:
        """The base model while the block runs; without an adapter nothing changes."""
        return adapters_disabled(self.module) if self.peft_config is not None else nullcontext()

    def save_model_to_cpu(self, n: int) -> None:
        """Keep a host copy of this rank's weights under the number `n`."""
        self._shelf.save(n, self.module)
        self._shelf_ids[n] = self.weights_id

    def restore_model_from_cpu(self, n: int) -> None:
        """Put the copy `n` back into the model."""
        self._shelf.restore(n, self.module)
        self.weights_id = self._shelf_ids[n]

    def clear_cpu_model(self, n: int) -> None:
        """Forget the copy `n`."""
        self._shelf.clear(n)
        self._shelf_ids.pop(n, None)

    def save_checkpoint(
        self, local_path: str, hdfs_path: str | None = None, global_step: int = 0, max_ckpt_to_keep: int | None = None
    ) -> None:
        """Write this rank's part into `local_path`; the folder appears there when all ranks have written."""
        with self._whole():
            self.checkpoint_manager.save_checkpoint(local_path, hdfs_path, global_step, max_ckpt_to_keep)

    def load_checkpoint(
        self, local_path: str, hdfs_path: str | None = None, del_local_after_load: bool = False
    ) -> None:
        """Read what `save_checkpoint` wrote with the same number of ranks."""
        with self._whole():
            self.checkpoint_manager.load_checkpoint(local_path, hdfs_path, del_local_after_load)
        self._steps_taken += 1
        self.weights_id = self._steps_taken

    @contextmanager
    def _whole(self) -> Iterator[None]:
        self._bring(optimizer=True)
        try:
            yield
        finally:
            self._send_back(optimizer=True)


@EngineRegistry.register("language_model", backend=["fsdp", "fsdp2"], device=["cpu", "cuda", "npu"])
class FSDPEngineWithLMHead(FSDPEngine):
    """Policy and reference: log-probs, entropy, collision probability."""


@EngineRegistry.register("value_model", backend=["fsdp", "fsdp2"], device=["cpu", "cuda", "npu"])
class FSDPEngineWithValueHead(FSDPEngine):
    """Critic: values."""

    model_type = "value_model"
    scorer_cls = ValueScorer


@contextmanager
def _order_not_judged() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Detected call of `lr_scheduler.step\\(\\)` before", UserWarning)
        yield


def _refuse_what_is_left_out(config: Any) -> None:
    refusals = {
        "ulysses_sequence_parallel_size": (
            config.get("ulysses_sequence_parallel_size", 1) > 1,
            "set it to 1; lower ppo_max_token_len_per_gpu or raise fsdp_size if memory is short",
        ),
        "qat.enable": ((config.get("qat") or {}).get("enable", False), "set it to false"),
    }
    for key, (wanted, remedy) in refusals.items():
        if wanted:
            raise UnsupportedError("this setting is not supported", where=f"fsdp_config.{key}", remedy=remedy)
