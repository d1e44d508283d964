# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Whole transfers between a sender and receivers, in threads and in processes that are killed with SIGKILL."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from verl.errors import PeerLost, TransportError, WaitTimeout
from verl.transport.arena import Arena
from verl.transport.checksum import CorruptBytes
from verl.transport.receiver import BucketedWeightReceiver, ReceiverThread
from verl.transport.sender import BucketedWeightSender
from verl.transport.stats import StagedWeights, TransferStats

ODD = {
    "transposed": torch.arange(6.0).reshape(2, 3).t(),
    "stepped": torch.arange(10.0)[::2],
    "scalar": torch.tensor(3.5),
    "empty": torch.empty(0, 4),
    "int8": torch.arange(7, dtype=torch.int8),
    "after_int8": torch.arange(5, dtype=torch.float64),
    "fp32": torch.tensor([1 + 2**-12]),
    "bf16": torch.randn(33).bfloat16(),
    "bool": torch.tensor([True, False, True]),
    "big": torch.randn(600_000),
    "small": torch.randn(10),
}


def expect(handle: str, **options: Any) -> ReceiverThread:
    options.setdefault("deadline_s", 10)
    return ReceiverThread(
        lambda stopped: BucketedWeightReceiver(handle, torch.device("cpu"), stopped=stopped, **options), "receiver"
    )


def sender(handle: str, megabytes: int = 1, **options: Any) -> BucketedWeightSender:
    options.setdefault("deadline_s", 10)
    return BucketedWeightSender(handle, megabytes, **options)


def transfer(handle: str, tensors: Any, megabytes: int = 1, **options: Any) -> tuple[TransferStats, StagedWeights]:
    thread = expect(handle)
    items = tensors.items() if isinstance(tensors, dict) else tensors
    stats = asyncio.run(sender(handle, megabytes, **options).async_send_weights(items))
    return stats, thread.result(5)


def same(got: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> bool:
    return list(got) == list(expected) and all(
        torch.equal(got[k], expected[k]) and got[k].dtype == expected[k].dtype and got[k].shape == expected[k].shape
        for k in expected
    )


def test_odd_shapes_strides_and_dtypes_arrive_as_they_are(handle: str) -> None:
    stats, staged = transfer(handle, ODD, version=7)
    assert same(staged.tensors, ODD)
    assert (stats.version, staged.version, stats.digest) == (7, 7, staged.digest)
    assert stats.bytes == staged.nbytes == sum(t.numel() * t.element_size() for t in ODD.values())
    assert stats.buckets > 4, "2.4 MB do not fit into a buffer of half a megabyte"


def test_what_is_counted_are_tensor_bytes_once(handle: str) -> None:
    stats, _ = transfer(handle, {"w": torch.zeros(10)})
    assert (stats.bytes, stats.tensors, stats.buckets) == (40, 1, 1)


def test_an_empty_transfer_is_a_transfer(handle: str) -> None:
    stats, staged = transfer(handle, {})
    assert (stats.bytes, stats.buckets, staged.tensors) == (0, 0, {})


def test_an_asynchronous_stream_is_sent_too(handle: str) -> None:
    async def stream() -> Any:
        for name, tensor in ODD.items():
            await asyncio.sleep(0)
            yield name, tensor

    _, staged = transfer(handle, stream())
    assert same(staged.tensors, ODD)


def test_what_a_callback_keeps_is_not_overwritten_by_later_buckets(handle: str) -> None:
    kept: list[torch.Tensor] = []
    receiver = BucketedWeightReceiver(handle, torch.device("cpu"), deadline_s=10)
    weights = {f"w{i}": torch.full((100_000,), float(i)) for i in range(6)}

    async def both() -> None:
        sending = asyncio.create_task(sender(handle).async_send_weights(weights.items()))
        await asyncio.to_thread(receiver.receive_weights, lambda tensors: kept.extend(t for _, t in tensors))
        await sending

    asyncio.run(both())
    assert [tensor.unique().tolist() for tensor in kept] == [[float(i)] for i in range(6)]
    assert len({tensor.untyped_storage().data_ptr() for tensor in kept}) == 6, "each has memory of its own"


def test_two_jobs_on_one_machine_do_not_meet(tmp_path: Path) -> None:
    from verl.launch_info import LaunchInfo
    from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import weight_socket_handle

    handles = [weight_socket_handle(LaunchInfo(job, tmp_path / job), 0, 0) for job in ("one", "two")]
    assert handles[0] != handles[1]
    threads = [expect(handle) for handle in handles]

    async def both() -> None:
        await asyncio.gather(
            *(sender(handle).async_send_weights([("w", torch.arange(4) + 10 * i)]) for i, handle in enumerate(handles))
        )

    asyncio.run(both())
    assert [thread.result(5).tensors["w"].tolist() for thread in threads] == [[0, 1, 2, 3], [10, 11, 12, 13]]


def test_many_receivers_get_the_same(handle: str) -> None:
    threads = [expect(handle, rank=rank) for rank in range(3)]
    asyncio.run(sender(handle, num_receivers=3).async_send_weights(ODD.items()))
    assert all(same(thread.result(5).tensors, ODD) for thread in threads)


def test_a_socket_that_a_killed_process_left_at_the_address_is_no_obstacle(handle: str) -> None:
    path = Path(handle.removeprefix("ipc://"))
    code = f"import socket, os; socket.socket(socket.AF_UNIX).bind({str(path)!r}); os.kill(os.getpid(), 9)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == -signal.SIGKILL and path.is_socket()
    _, staged = transfer(handle, ODD)
    assert same(staged.tensors, ODD) and not path.exists()


def test_an_error_in_the_stream_reaches_caller_and_receiver(handle: str) -> None:
    def broken() -> Iterator[tuple[str, torch.Tensor]]:
        yield "a", torch.zeros(200_000)
        raise ValueError("injected at item 2")

    thread = expect(handle)
    with pytest.raises(ValueError, match="injected at item 2"):
        asyncio.run(sender(handle).async_send_weights(broken()))
    with pytest.raises(TransportError, match="aborted the transfer: ValueError: injected at item 2"):
        thread.result(5)


def test_an_error_of_the_receiver_travels_back(handle: str) -> None:
    receiver = BucketedWeightReceiver(handle, torch.device("cpu"), deadline_s=10, rank=5)

    def refuse(tensors: list[tuple[str, torch.Tensor]]) -> None:
        raise KeyError("no parameter of that name")

    async def both() -> None:
        sending = asyncio.create_task(sender(handle).async_send_weights(ODD.items()))
        with pytest.raises(KeyError):
            await asyncio.to_thread(receiver.receive_weights, refuse)
        await sending

    with pytest.raises(TransportError, match=r"weight receiver rank 5 \(pid \d+ on .*no parameter of that name"):
        asyncio.run(both())


def test_a_byte_damaged_in_the_shared_buffer_is_found_and_named_on_both_sides(handle: str) -> None:
    source = sender(handle)

    def stream() -> Iterator[tuple[str, torch.Tensor]]:
        yield "good", torch.ones(1000)
        yield "bad", torch.ones(1000)
        # Another process of this machine writes into the mapping after the sender took its checksum.
        intruder = Arena.attach(source._arena.path, source._arena.nbytes)
        intruder.view(source._base + 5000, 1).add_(1)
        intruder.close()
        yield "later", torch.ones(1000)

    thread = expect(handle)
    with pytest.raises(CorruptBytes, match=r"bad\[0:4000\].*not those that were sent"):
        asyncio.run(source.async_send_weights(stream()))
    with pytest.raises(CorruptBytes, match="bad"):
        thread.result(5)


def test_receivers_of_another_version_are_turned_away_and_named_if_nobody_else_comes(handle: str) -> None:
    stray = expect(handle, version=6)
    with pytest.raises(
        WaitTimeout, match=r"turned away: weight receiver rank 0 .* expects version 6, this is version 7"
    ):
        asyncio.run(sender(handle, version=7, deadline_s=1).async_send_weights(ODD.items()))
    with pytest.raises(TransportError, match="expects version 6"):
        stray.result(5)


def test_strays_do_not_prolong_the_wait_for_the_right_receiver(handle: str) -> None:
    async def strays() -> None:
        for _ in range(8):
            expect(handle, version=6, deadline_s=1)
            await asyncio.sleep(0.25)

    async def both() -> bool:
        task = asyncio.create_task(strays())
        with pytest.raises(WaitTimeout, match=r"waited 1\.0 s for"):
            await sender(handle, version=7, deadline_s=1).async_send_weights(ODD.items())
        return not task.done() and task.cancel()

    assert asyncio.run(both()), "strays were still coming when the deadline passed"


def test_a_stray_does_not_disturb_the_right_receiver(handle: str) -> None:
    stray = expect(handle, version=6)
    thread = expect(handle, version=7)
    asyncio.run(sender(handle, version=7).async_send_weights(ODD.items()))
    assert same(thread.result(5).tensors, ODD)
    with pytest.raises(TransportError):
        stray.result(5)


def test_a_stopped_receiver_gives_its_reason_to_the_sender(handle: str) -> None:
    thread = expect(handle)

    def stream() -> Iterator[tuple[str, torch.Tensor]]:
        yield "a", torch.zeros(300_000)
        thread.stop("version 8 began")
        yield from ODD.items()

    with pytest.raises(TransportError, match="stopped here: version 8 began"):
        asyncio.run(sender(handle).async_send_weights(stream()))
    assert thread.staged_version is None and not thread.running


def test_nobody_there_is_a_timeout_that_names_the_address(handle: str) -> None:
    with pytest.raises(WaitTimeout, match=f"waited 0.5 s for an introduction from the weight receiver at {handle}"):
        asyncio.run(sender(handle, deadline_s=0.5).async_send_weights(ODD.items()))
    with pytest.raises(WaitTimeout, match=f"waited 0.5 s for begin from the weight sender at {handle}"):
        expect(handle, deadline_s=0.5).result(5)


def test_clean_up_that_fails_does_not_hide_the_error(handle: str, monkeypatch: pytest.MonkeyPatch) -> None:
    close = Arena.close

    def broken_close(self: Arena) -> None:
        close(self)
        raise OSError("Y")

    monkeypatch.setattr(Arena, "close", broken_close)
    receiver = BucketedWeightReceiver(handle, torch.device("cpu"), deadline_s=10)

    def fail(tensors: object) -> None:
        raise ValueError("X")

    async def both() -> BaseException | None:
        sending = asyncio.create_task(sender(handle).async_send_weights(ODD.items()))
        with pytest.raises(ValueError, match="X") as info:
            await asyncio.to_thread(receiver.receive_weights, fail)
        with pytest.raises(TransportError, match="X"):
            await sending
        return info.value.__context__

    assert str(asyncio.run(both())) == "Y"


# Processes that die

COUNT, NUMEL = 6, 100_000


def wait_until_gone(pid: int) -> None:
    end = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < end, f"{pid} is still there"
        time.sleep(0.02)


def processes_mapping(inode: int) -> list[str]:
    """Pids of this machine that map or hold a file of /dev/shm by its inode."""
    holders = []
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            if any(f" {inode} /dev/shm" in line for line in maps.read_text().splitlines()):
                holders.append(maps.parent.name)
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return holders


def numbered(fill: float) -> list[tuple[str, torch.Tensor]]:
    return [(f"w{i}", torch.full((NUMEL,), fill + i)) for i in range(COUNT)]


def test_a_transfer_between_two_processes(handle: str, peers: Callable[..., int], tmp_path: Path) -> None:
    pid = peers(role="receive", handle=handle, out=str(tmp_path / "w.pt"))
    stats = asyncio.run(sender(handle).async_send_weights(ODD.items()))
    wait_until_gone(pid)
    assert same(torch.load(tmp_path / "w.pt"), ODD) and stats.tensors == len(ODD)


@pytest.mark.parametrize("die_at", ["begin", "bucket", "commit"])
def test_a_receiver_killed_at_any_message_is_named_and_leaves_nothing(
    handle: str, peers: Callable[..., int], tmp_path: Path, die_at: str
) -> None:
    pid = peers(role="receive", handle=handle, die_at=die_at, count=COUNT)
    source = sender(handle, deadline_s=30)
    inodes: list[int] = []

    def stream() -> Iterator[tuple[str, torch.Tensor]]:
        inodes.append(os.fstat(source._arena._fd).st_ino)
        yield from numbered(1.0)

    started = time.monotonic()
    with pytest.raises(PeerLost, match=rf"weight receiver rank 0 \(pid {pid} on "):
        asyncio.run(source.async_send_weights(stream()))
    assert time.monotonic() - started < 20, "a death is noticed long before the deadline of 30 s"
    assert all(not processes_mapping(inode) for inode in inodes)
    again = peers(role="receive", handle=handle, out=str(tmp_path / "w.pt"))
    asyncio.run(sender(handle).async_send_weights(numbered(2.0)))
    wait_until_gone(again)
    assert same(torch.load(tmp_path / "w.pt"), dict(numbered(2.0))), "the next transfer works at once"


@pytest.mark.parametrize("die_at", [0, 3, COUNT - 1])
def test_a_sender_killed_in_the_middle_is_named_and_leaves_nothing(
    handle: str, peers: Callable[..., int], tmp_path: Path, die_at: int
) -> None:
    thread = expect(handle, deadline_s=30)
    inode = tmp_path / "inode"
    pid = peers(role="send", handle=handle, die_at=die_at, count=COUNT, numel=NUMEL, fill=1.0, inode=str(inode))
    with pytest.raises(PeerLost, match=rf"weight sender rank 0 \(pid {pid} on "):
        thread.result(20)
    assert thread.staged_version is None
    assert not processes_mapping(int(inode.read_text())), "the kernel has freed the shared memory"
    thread = expect(handle)
    again = peers(role="send", handle=handle, count=COUNT, numel=NUMEL, fill=2.0)
    assert same(thread.result(20).tensors, dict(numbered(2.0))), "the socket of the killed sender is no obstacle"
    wait_until_gone(again)


def test_a_receiver_that_stops_answering_is_named_with_the_message_that_was_awaited(
    handle: str, peers: Callable[..., int]
) -> None:
    pid = peers(role="receive", handle=handle, die_at="silent")
    try:
        with pytest.raises(
            WaitTimeout, match=rf"waited 1.0 s for its answer to bucket 1 from weight receiver rank 0 \(pid {pid} on "
        ):
            asyncio.run(sender(handle, deadline_s=1).async_send_weights(numbered(1.0)))
    finally:
        os.kill(pid, signal.SIGKILL)
