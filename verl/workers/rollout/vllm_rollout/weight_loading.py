# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""What happens inside a rollout worker when weights arrive: stage them, load them into the model, never half.

A transfer touches no weight. Loading has no rollback, so it marks the worker stale before it begins and takes the mark
away only when everything is in place; a stale worker is mended by loading a whole version again.
"""

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import torch
from torch import nn

from verl.errors import TransportError
from verl.launch_info import LaunchInfo
from verl.transport.device_ipc import ipc_kind
from verl.transport.stats import text_of
from verl.transport.streams import chain
from verl.utils.import_utils import optional_import
from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import (
    DEFAULT_DEADLINE_S,
    BucketedWeightReceiver,
    ReceiverThread,
    weight_socket_handle,
)
from verl.workers.rollout.weight_transaction import WeightTransaction

VLLM_LORA_INT_ID = 123
VLLM_LORA_NAME = "123"

_NEEDED_FOR = "rollout.name=vllm"
# Staging next to what the engine still allocates; beyond this share of the free memory, load in place instead.
_STAGING_SHARE = 0.8


def load_into_module(module: nn.Module, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
    """Copy named tensors into a plain module's parameters and buffers, in place, tied ones once.

    Raises
    ------
    TransportError
        a name is unknown, a shape differs, or a parameter was not sent.
    """
    targets: dict[str, torch.Tensor] = dict(module.named_parameters(remove_duplicate=False))
    targets.update(module.named_buffers(remove_duplicate=False))
    received: set[str] = set()
    for name, tensor in weights:
        if name not in targets:
            raise TransportError("the model has no such tensor", where=name)
        _copy_in_place(name, targets[name], tensor)
        received.add(name)
    _require(received, set(dict(module.named_parameters())), _aliases(module))
    return received


def load_into_vllm(model: Any, vllm_config: Any, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
    """Load named full tensors in checkpoint form into a running vLLM model; each rank takes its own shard.

    vLLM repacks weights after loading, so they are restored layer by layer to the form its loaders know, filled, and
    processed again. What is not a parameter (buffers) is copied in place. Returns the names received.

    Raises
    ------
    TransportError
        a parameter was not sent. vLLM's own errors (unknown names, shapes) pass through; either way the model is
        closed again and must be loaded in full before it may serve.
    """
    aliases, buffers = _aliases(model), dict(model.named_buffers())
    expected = set(dict(model.named_parameters()))
    buffered: dict[str, torch.Tensor] = {}
    received: set[str] = set()

    def checkpoint_items() -> Iterator[tuple[str, torch.Tensor]]:
        for name, tensor in weights:
            received.add(name)
            if name in buffers:
                buffered[name] = tensor
            else:
                yield name, tensor

    with _layerwise_reload(model, vllm_config):
        loaded = model.load_weights(checkpoint_items())
    _refresh_heads(model)
    for name, tensor in buffered.items():
        _copy_in_place(name, buffers[name], tensor)
    missing_parts(received, getattr(model, "packed_modules_mapping", {}))
    if loaded is not None:
        _require(set(loaded) | set(buffered), expected, aliases)
    return received


@contextmanager
def _layerwise_reload(model: nn.Module, vllm_config: Any) -> Iterator[None]:
    """Open vLLM's layer-by-layer reload and close it on every path: opened twice, it crashes the engine."""
    reload = optional_import("vllm.model_executor.model_loader.reload", _NEEDED_FOR)
    config = optional_import("vllm.config", _NEEDED_FOR)
    with config.set_current_vllm_config(vllm_config), torch.no_grad():
        reload.initialize_layerwise_reload(model)
        try:
            yield
        except BaseException as error:
            try:
                reload.finalize_layerwise_reload(model, vllm_config.model_config)
            except Exception as later:
                chain(error, later)
            raise
        reload.finalize_layerwise_reload(model, vllm_config.model_config)


def _refresh_heads(model: nn.Module) -> None:
    """A tied output head shares the embedding's storage but keeps a packed copy of its own; pack it again."""
    embedding = optional_import("vllm.model_executor.layers.vocab_parallel_embedding", _NEEDED_FOR)
    for module in model.modules():
        method = getattr(module, "quant_method", None)
        if isinstance(module, embedding.ParallelLMHead) and isinstance(method, embedding.UnquantizedEmbeddingMethod):
            method.process_weights_after_loading(module)


def load_adapter(worker: Any, tensors: dict[str, torch.Tensor], peft_config: dict[str, Any]) -> None:
    """Replace the LoRA adapter that training updates.

    vLLM loads adapters from a directory, and only that road is its public interface; an adapter is small, so it is
    written to memory-backed storage for the moment of loading. vLLM then holds tensors of its own.
    """
    safetensors = optional_import("safetensors.torch", _NEEDED_FOR)
    lora = optional_import("vllm.lora.request", _NEEDED_FOR)
    with tempfile.TemporaryDirectory(prefix="adapter-", dir=LaunchInfo.from_env().ensure_run_dir()) as directory:
        (Path(directory) / "adapter_config.json").write_text(json.dumps(peft_config))
        owned = {name: tensor.contiguous() for name, tensor in tensors.items()}
        safetensors.save_file(owned, str(Path(directory) / "adapter_model.safetensors"))
        worker.add_lora(
            lora.LoRARequest(
                lora_name=VLLM_LORA_NAME, lora_int_id=VLLM_LORA_INT_ID, lora_path=directory, load_inplace=True
            )
        )


def missing_parts(received: set[str], packed: dict[str, list[str]]) -> None:
    """vLLM fuses some layers (q, k, v); a part that was not sent would leave its share of the fused one undefined."""
    for parts in packed.values():
        for name in received:
            mine = next((part for part in parts if f".{part}." in name), None)
            if mine is None:
                continue
            siblings = {name.replace(f".{mine}.", f".{part}.") for part in parts}
            if not siblings <= received:
                raise TransportError(
                    "parts of a fused layer were not sent", got=name, expected=", ".join(sorted(siblings - received))
                )


def _copy_in_place(name: str, target: torch.Tensor, value: torch.Tensor) -> None:
    if target.shape != value.shape:
        raise TransportError("the shapes differ", where=name, got=tuple(value.shape), expected=tuple(target.shape))
    target.data.copy_(value)


def _aliases(module: nn.Module) -> dict[str, str]:
    """Names of tied parameters, each with the first name of the same parameter."""
    first: dict[int, str] = {}
    named = module.named_parameters(remove_duplicate=False)
    return {name: first[id(p)] for name, p in named if first.setdefault(id(p), name) != name}


def _require(loaded: set[str], expected: set[str], aliases: dict[str, str]) -> None:
    present = {_plain_name(name) for name in loaded | {aliases[name] for name in loaded if name in aliases}}
    wanted = {_plain_name(name) for name in expected if ".lora_" not in name}
    # Scales and the like belong to the engine's own quantisation, which has no counterpart in the trainer.
    missing = sorted(name for name in wanted - present if not name.endswith(("_scale", "_zero_point")))
    if missing:
        shown = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
        raise TransportError("parameters of the model were not sent", got=f"{len(loaded)} tensors", expected=shown)


def _plain_name(name: str) -> str:
    """The name without the level that an adapter-enabled engine puts around its layers."""
    return name.replace(".base_layer.", ".")


def checkpoint_bytes(model: nn.Module) -> int:
    """Bytes of this rank's weights in checkpoint form; on CPU the live parameters are partly packed away."""
    layerwise = optional_import("vllm.model_executor.model_loader.reload.layerwise", _NEEDED_FOR)
    total = 0
    for layer in model.modules():
        for tensors in layerwise.get_layerwise_info(layer).restore_metadata:
            total += sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    return total


def available_host_bytes() -> int:
    """Free host memory, the container's limit counted where there is one."""
    free = psutil.virtual_memory().available
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if limit.is_file() and used.is_file():
        text = limit.read_text().strip()
        if text.isdigit():
            free = min(free, int(text) - int(used.read_text()))
    return free


class WorkerWeights(WeightTransaction):
    """The weights of one vLLM worker: which version serves, whether it is whole, and the transfer in progress."""

    def __init__(self, worker: Any) -> None:
        super().__init__()
        self._worker = worker
        self._checksums: dict[str, int] = {}

    @property
    def handle(self) -> str:
        info = LaunchInfo.from_env()
        return weight_socket_handle(info, info.replica_rank, self.local_rank)

    @property
    def local_rank(self) -> int:
        """Rank of this worker among those of its replica on this node, data-parallel engines counted."""
        parallel = self._worker.vllm_config.parallel_config
        local = int(self._worker.local_rank)
        dp_local = parallel.data_parallel_rank_local
        if dp_local is None:
            dp_local = parallel.data_parallel_index if parallel.data_parallel_size > 1 else 0
        base = dp_local * parallel.tensor_parallel_size * parallel.pipeline_parallel_size
        # Some vLLM workers already count the data-parallel engines before theirs, some do not.
        return local if local >= base else local + base

    def begin(
        self, version: int, use_shm: bool, deadline_s: float, stage: bool | None = None, **adapter: Any
    ) -> dict[str, Any]:
        """Expect `version`: a thread stages it, or, where it does not fit into host memory, `apply` will receive it."""
        self._drop(f"version {version} began")
        stages = stage if stage is not None else bool(adapter.get("peft_config")) or self._fits()
        self._pending = (version, {"use_shm": use_shm, "deadline_s": deadline_s, **adapter})
        if stages:
            device = torch.device("cpu")
            self._thread = ReceiverThread(
                lambda stopped: self._receiver(version, use_shm, deadline_s, device, stopped), f"weights-v{version}"
            )
        return {"pid": os.getpid(), "local_rank": self.local_rank, "handle": self.handle, "stages": stages}

    def apply(self, version: int) -> dict[str, Any]:
        """Load the staged version; the worker is stale from the first weight touched until the last is in place."""
        settings = self._settings_of(version)
        started = time.monotonic()
        if self._thread is not None:
            staged = self._thread.result(settings["deadline_s"])
            count, nbytes, digest = len(staged.tensors), staged.nbytes, staged.digest
            checksums = staged.checksums
            self._load(staged.tensors.items(), settings)
        else:
            receiver = self._receiver(version, settings["use_shm"], settings["deadline_s"], self._worker.device)
            stream = receiver.buckets()
            try:
                self._load((item for bucket in stream for item in bucket), settings)
            except BaseException as error:
                # Into the stream, so that the sender hears the reason; it comes out again.
                stream.throw(error)
            assert receiver.stats is not None
            count, nbytes, digest = receiver.stats.tensors, receiver.stats.bytes, receiver.stats.digest
            checksums = receiver.checksums
        self._commit(version, digest)
        self._checksums = checksums
        return self._report(count, nbytes, started)

    def receive_and_apply(self, use_shm: bool, **adapter: Any) -> dict[str, Any]:
        """One call for callers that know no transaction; takes the version that the sender announces."""
        self._drop("another transfer began")
        device = torch.device("cpu")
        receiver = self._receiver(None, use_shm, DEFAULT_DEADLINE_S, device)
        staged = receiver.stage()
        started = time.monotonic()
        self._load(staged.tensors.items(), adapter)
        self._commit(staged.version, staged.digest)
        self._checksums = staged.checksums
        return self._report(len(staged.tensors), staged.nbytes, started)

    def digests(self, names: list[str] | None = None) -> dict[str, str]:
        """Checksums of the tensors of the version that serves, as they arrived."""
        chosen = self._checksums if names is None else {name: self._checksums[name] for name in names}
        return {name: text_of(value) for name, value in chosen.items()}

    def _load(self, items: Iterable[tuple[str, torch.Tensor]], settings: dict[str, Any]) -> None:
        worker = self._worker
        if settings.get("peft_config") and settings.get("base_sync_done"):
            load_adapter(worker, dict(items), settings["peft_config"])
            return
        if isinstance(items, dict) or hasattr(items, "__len__"):
            # Known before anything is touched, so this one leaves the old version serving.
            missing_parts({name for name, _ in items}, getattr(worker.get_model(), "packed_modules_mapping", {}))
        self._stale = True
        load_into_vllm(worker.get_model(), worker.vllm_config, items)
        for reset in ("reset_lora_state", "reset_encoder_cache", "reset_mm_cache"):
            getattr(worker.model_runner, reset, lambda: None)()
        self._stale = False

    def _receiver(
        self,
        version: int | None,
        use_shm: bool,
        deadline_s: float,
        device: torch.device,
        stopped: Callable[[], str | None] = lambda: None,
    ) -> BucketedWeightReceiver:
        return BucketedWeightReceiver(
            self.handle,
            device,
            use_shm,
            deadline_s,
            version=version,
            rank=self.local_rank,
            ipc=ipc_kind(self._worker.device.type),
            stopped=stopped,
        )

    def _fits(self) -> bool:
        parallel = self._worker.vllm_config.parallel_config
        # Every worker of the node stages full tensors, of which it keeps its shard.
        shards = parallel.tensor_parallel_size * parallel.pipeline_parallel_size
        needed = checkpoint_bytes(self._worker.get_model()) * shards * shards
        return needed < _STAGING_SHARE * available_host_bytes()
