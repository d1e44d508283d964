# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Rollout without vLLM: a thin adapter over transformers' generation, for machines where vLLM cannot be installed."""

import asyncio
import contextlib
import os
from collections.abc import Generator
from typing import Any, ClassVar

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from verl.errors import PeerLost, UnsupportedError
from verl.platform import current_platform
from verl.protocol import DataProto
from verl.waits import bounded
from verl.workers.rollout import hf_generation
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.hf_generation import Row
from verl.workers.rollout.hf_weights import ModuleWeights
from verl.workers.rollout.placement import OneNodeReplica
from verl.workers.rollout.sampling import sampling_params, wants_log_probs
from verl.workers.rollout.schemas import TokenOutput
from verl.workers.rollout.served_weights import APPLY_DEADLINE_S
from verl.workers.rollout.server import GENERATE_DEADLINE_S, RolloutServer
from verl.workers.rollout.utils import get_max_position_embeddings
from verl.workers.rollout.vllm_rollout.weight_loading import load_into_module

_STOP_REASONS = {"abort": "aborted", "stop": "completed", "length": "completed"}


class HFServer(RolloutServer):
    """A server over `model.generate`: one batch at a time, on a thread; requests of a kind share a batch."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._version = 0
        self._waiting: list[tuple[str, Row, asyncio.Future[None]]] = []
        self._running: dict[str, Row] = {}
        self._wake = asyncio.Event()
        self._loop: asyncio.Task[None] | None = None

    async def _start_engine(self) -> None:
        self._model = await asyncio.to_thread(self._load)
        limit = get_max_position_embeddings(self._model.config)
        self.max_model_len = min(limit, self.config.get("max_model_len") or limit)
        self._eos_ids = _eos_ids(self._model)
        self._module_weights = ModuleWeights(self._model, self.replica_rank)
        self._loop = asyncio.create_task(self._serve(), name="hf batches")

    def _load(self) -> Any:
        path, trust = str(self.model_config.get("path")), bool(self.model_config.get("trust_remote_code"))
        dtype = getattr(torch, str(self.config.get("dtype") or "float32"))
        config = AutoConfig.from_pretrained(path, trust_remote_code=trust)
        model: Any = AutoModelForCausalLM.from_pretrained(path, config=config, dtype=dtype, trust_remote_code=trust)
        return model.to(current_platform().device_type).eval()

    async def _stop_engine(self) -> None:
        if self._loop is not None:
            self._loop.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._loop

    async def _engine_pids(self) -> list[int]:
        if self._loop is None:
            raise PeerLost(f"{self.name} has not been launched")
        if self._loop.done():
            raise PeerLost(f"the batches of {self.name} (pid {os.getpid()}) have ended: {self._loop!r}")
        return []

    async def _answer(
        self, request_id: str, prompt_ids: list[int], params: dict[str, Any], budget: int, **media: Any
    ) -> TokenOutput:
        if media.get("image_data") or media.get("video_data"):
            raise UnsupportedError("rollout.name=hf takes text only", remedy="use rollout.name=vllm")
        hf_generation.refuse_unknown(params)
        row = Row(list(prompt_ids), dict(params), budget)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((request_id, row, done))
        self._wake.set()
        try:
            await bounded(
                done, what=f"the answer to request {request_id}", whom=self.name, deadline_s=GENERATE_DEADLINE_S
            )
        finally:
            row.aborted = True
        log_probs = row.log_probs if wants_log_probs(params) else None
        fields = {"global_steps": self._version, "finish_reason": row.finish_reason}
        return TokenOutput(row.token_ids, log_probs, stop_reason=_STOP_REASONS[row.finish_reason], extra_fields=fields)

    async def _serve(self) -> None:
        while True:
            await self._wake.wait()
            batch = self._next_batch()
            if not batch:
                self._wake.clear()
                continue
            self._running = {request_id: row for request_id, row, _ in batch}
            rows = [row for _, row, _ in batch]
            try:
                await asyncio.to_thread(hf_generation.answer, self._model, rows, self._eos_ids)
            except Exception as error:
                _settle(batch, error)
            else:
                _settle(batch, None)
            self._running = {}

    def _next_batch(self) -> list[tuple[str, Row, asyncio.Future[None]]]:
        """The longest waiting request, and those of its kind."""
        _settle([item for item in self._waiting if item[1].aborted], None)
        self._waiting = [item for item in self._waiting if not item[1].aborted]
        if not self._waiting:
            return []
        kind = self._waiting[0][1].kind
        alike = [self._waiting[0], *(item for item in self._waiting[1:] if item[1].kind == kind)]
        longest = max(row.budget for _, row, _ in alike)
        count = hf_generation.rows_per_batch(self._model, longest, int(self.config.get("max_num_seqs") or 64))
        batch = alike[:count]
        self._waiting = [item for item in self._waiting if item not in batch]
        return batch

    async def _abort_in_flight(self, reset_prefix_cache: bool) -> None:
        for _, row, _ in self._waiting:
            row.aborted = True
        for row in self._running.values():
            row.aborted = True
        self._wake.set()
        await bounded(self._idle(), what="the end of the batch", whom=self.name, deadline_s=APPLY_DEADLINE_S)

    async def _idle(self) -> None:
        while self._running or self._waiting:
            await asyncio.sleep(0.005)

    async def _go_on(self) -> None:
        """Nothing was stopped but the batch."""

    async def _abort_one(self, request_id: str) -> None:
        for name, row in [*((name, row) for name, row, _ in self._waiting), *self._running.items()]:
            if name == request_id:
                row.aborted = True
        self._wake.set()

    async def clear_kv_cache(self) -> None:
        """No cache outlives its batch."""

    async def _stamp(self, version: int) -> None:
        self._version = version

    async def _give_memory(self) -> None:
        await asyncio.to_thread(self._model.to, "cpu")

    async def _take_memory(self, tags: list[str]) -> None:
        await asyncio.to_thread(self._model.to, current_platform().device_type)

    async def collective_rpc(
        self,
        method: str,
        timeout: float | None = None,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> list[Any]:
        """Call a method of the weights in this process."""
        call = asyncio.to_thread(getattr(self._module_weights, method), *args, **(kwargs or {}))
        return [await bounded(call, what=method, whom=self.name, deadline_s=timeout or APPLY_DEADLINE_S)]


def _settle(items: list[tuple[str, Row, asyncio.Future[None]]], error: Exception | None) -> None:
    for _, _, done in items:
        if done.done():
            continue
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)


def _eos_ids(model: PreTrainedModel) -> list[int]:
    ids = model.generation_config.eos_token_id
    if ids is None:
        ids = model.config.get_text_config().eos_token_id
    return [] if ids is None else [ids] if isinstance(ids, int) else list(ids)


class HFReplica(OneNodeReplica):
    """A replica served by transformers; one device."""

    server_class: ClassVar[type[RolloutServer]] = HFServer

    async def launch_servers(self) -> None:
        if self.world_size > 1:
            raise UnsupportedError(
                "rollout.name=hf runs on one device",
                where="actor_rollout_ref.rollout.tensor_model_parallel_size",
                got=f"{self.world_size} ranks",
                remedy="set it to 1, or use rollout.name=vllm",
            )
        await super().launch_servers()


class HFRollout(BaseRollout):
    """Generation inside the process that holds the module; for scripts without Ray."""

    def __init__(self, module: PreTrainedModel, config: Any) -> None:
        super().__init__(config, None)
        self.module = module

    async def resume(self, tags: list[str]) -> None:
        """The module stays where it is."""

    async def release(self) -> None:
        """The module stays where it is."""

    async def update_weights(self, weights: Generator[tuple[str, torch.Tensor], None, None], **kwargs: Any) -> None:
        """Copy named tensors into the module."""
        load_into_module(self.module, weights)

    def generate_sequences(self, prompts: DataProto) -> DataProto:
        """Continue left-padded `input_ids` [B,P]; adds responses [B,T], response_mask and rollout_log_probs.

        `meta_info` may carry `validate`, `do_sample`, `temperature`, `pad_token_id` and `eos_token_id`.
        """
        meta = prompts.meta_info
        params = sampling_params(self.config, bool(meta.get("validate")))
        params |= {key: meta[key] for key in ("temperature",) if key in meta}
        if meta.get("do_sample") is False:
            params["temperature"] = 0.0
        budget = int(self.config.response_length)
        ids_BP, mask_BP = prompts.tensors["input_ids"], prompts.tensors["attention_mask"]
        rows = [
            Row(ids_P[mask_P.bool()].tolist(), params, budget) for ids_P, mask_P in zip(ids_BP, mask_BP, strict=True)
        ]
        eos = meta.get("eos_token_id")
        eos_ids = _eos_ids(self.module) if eos is None else [eos] if isinstance(eos, int) else list(eos)
        size = hf_generation.rows_per_batch(self.module, budget, len(rows))
        for first in range(0, len(rows), size):
            hf_generation.answer(self.module, rows[first : first + size], eos_ids)
        return _batch_of(ids_BP, mask_BP, rows, budget, int(meta.get("pad_token_id") or 0))


def _batch_of(ids_BP: torch.Tensor, mask_BP: torch.Tensor, rows: list[Row], budget: int, pad: int) -> DataProto:
    responses_BT = torch.full((len(rows), budget), pad, dtype=ids_BP.dtype)
    response_mask_BT = torch.zeros((len(rows), budget), dtype=mask_BP.dtype)
    log_probs_BT = torch.zeros((len(rows), budget))
    for index, row in enumerate(rows):
        count = len(row.token_ids)
        responses_BT[index, :count] = torch.tensor(row.token_ids, dtype=ids_BP.dtype)
        response_mask_BT[index, :count] = 1
        log_probs_BT[index, :count] = torch.tensor(row.log_probs)
    mask_BS = torch.cat([mask_BP, response_mask_BT.to(mask_BP.device)], dim=1)
    return DataProto.from_dict(
        {
            "prompts": ids_BP,
            "responses": responses_BT.to(ids_BP.device),
            "response_mask": response_mask_BT.to(ids_BP.device),
            "input_ids": torch.cat([ids_BP, responses_BT.to(ids_BP.device)], dim=1),
            "attention_mask": mask_BS,
            "position_ids": (mask_BS.cumsum(dim=1) - 1).clamp(min=0),
            "rollout_log_probs": log_probs_BT.to(ids_BP.device),
        }
    )
