# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The address of a rollout worker: the same on both sides, never the same for two of anything."""

import asyncio
import os
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from verl.errors import TransportError
from verl.launch_info import MAX_SOCKET_PATH_BYTES, LaunchInfo
from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import (
    BucketedWeightReceiver,
    BucketedWeightSender,
    ReceiverThread,
    weight_socket_handle,
)
from verl.workers.rollout.vllm_rollout.weight_loading import WorkerWeights


def vllm_worker(local_rank: int, tp: int = 1, dp: int = 1, dp_local: int | None = None, pp: int = 1) -> Any:
    parallel = SimpleNamespace(
        tensor_parallel_size=tp,
        pipeline_parallel_size=pp,
        data_parallel_size=dp,
        data_parallel_rank_local=dp_local,
        data_parallel_index=dp_local or 0,
    )
    return SimpleNamespace(local_rank=local_rank, vllm_config=SimpleNamespace(parallel_config=parallel))


@pytest.fixture
def in_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LaunchInfo:
    info = LaunchInfo("job", tmp_path / "run", replica_rank=3)
    for name, value in info.to_env().items():
        monkeypatch.setenv(name, value)
    return info


def test_both_sides_derive_the_same_address_whatever_devices_they_see(
    in_job: LaunchInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = weight_socket_handle(in_job, 3, 1)
    for mask in ("0,1", "7", ""):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", mask)
        monkeypatch.setenv("HIP_VISIBLE_DEVICES", mask)
        assert WorkerWeights(vllm_worker(1, tp=2)).handle == expected


def test_every_worker_of_every_replica_of_every_job_has_an_address_of_its_own(tmp_path: Path) -> None:
    handles = {
        weight_socket_handle(LaunchInfo(job, tmp_path / job), replica, rank)
        for job in ("a", "b")
        for replica in range(3)
        for rank in range(8)
    }
    assert len(handles) == 2 * 3 * 8


@pytest.mark.parametrize("counted", [True, False], ids=["vllm counts the engines", "vllm does not"])
def test_data_parallel_engines_of_one_node_do_not_share_addresses(in_job: LaunchInfo, counted: bool) -> None:
    ranks = [
        WorkerWeights(vllm_worker(tp + (2 * dp if counted else 0), tp=2, dp=4, dp_local=dp)).local_rank
        for dp in range(4)
        for tp in range(2)
    ]
    assert ranks == list(range(8))


def test_the_address_fits_and_its_directory_is_private(tmp_path: Path) -> None:
    info = LaunchInfo("0123abcd", tmp_path / "run")
    handle = weight_socket_handle(info, 10_000, 127)
    assert len(os.fsencode(handle.removeprefix("ipc://"))) <= MAX_SOCKET_PATH_BYTES
    assert stat.S_IMODE(info.run_dir.stat().st_mode) == 0o700


def test_upstreams_way_to_call_it_works(tmp_path: Path) -> None:
    handle = weight_socket_handle(LaunchInfo("j", tmp_path / "run"), 0, 0)
    sender = BucketedWeightSender(zmq_handle=handle, bucket_size_mb=1, use_shm=True)
    receiver = BucketedWeightReceiver(zmq_handle=handle, device=torch.device("cpu"), use_shm=True)
    received: dict[str, torch.Tensor] = {}

    async def both() -> None:
        sending = asyncio.create_task(sender.async_send_weights([("w", torch.arange(4))]))
        await asyncio.to_thread(receiver.receive_weights, on_bucket_received=lambda tensors: received.update(tensors))
        await sending

    asyncio.run(both())
    assert received["w"].tolist() == [0, 1, 2, 3]
    for part in (BucketedWeightSender, BucketedWeightReceiver):
        assert callable(part._init_socket) and callable(part._cleanup)


def test_result_before_the_end_says_so(tmp_path: Path) -> None:
    handle = weight_socket_handle(LaunchInfo("j", tmp_path / "run"), 0, 0)
    thread = ReceiverThread(
        lambda stopped: BucketedWeightReceiver(handle, torch.device("cpu"), deadline_s=30, stopped=stopped), "r"
    )
    with pytest.raises(TransportError, match="not arrived completely"):
        thread.result(0.05)
    thread.stop("the test is over")
    assert not thread.running
