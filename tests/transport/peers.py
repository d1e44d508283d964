# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Processes to send to, receive from and kill; run as a script by the `peers` fixture.

Reads one JSON job a line, forks a process for it, answers with its pid. torch is imported once, so a peer is there in
milliseconds.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from verl.transport.header import Ack, Begin, Hello, Peer, Ready
from verl.transport.receiver import BucketedWeightReceiver
from verl.transport.sender import BucketedWeightSender
from verl.transport.sockets import Spoke


def weights(count: int, numel: int, fill: float) -> Iterator[tuple[str, torch.Tensor]]:
    for index in range(count):
        yield f"w{index}", torch.full((numel,), fill + index)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def receive(job: dict) -> None:
    """Receive, and die at `die_at`: "begin", "bucket" or "commit" (all buckets are here, commit is not answered)."""
    if job.get("die_at") == "begin":
        spoke = Spoke(job["handle"])
        spoke.send(Hello(Peer.me("weight receiver", 0), -1))
        assert isinstance(spoke.receive("begin", "sender", 20, []), Begin)
        die()
    if job.get("die_at") == "silent":
        spoke = Spoke(job["handle"])
        spoke.send(Hello(Peer.me("weight receiver", 0), -1))
        spoke.receive("begin", "sender", 20, [])
        spoke.send(Ready())
        spoke.receive("bucket", "sender", 20, [])
        spoke.send(Ack(0))
        signal.pause()
    receiver = BucketedWeightReceiver(job["handle"], torch.device("cpu"), deadline_s=job.get("deadline_s", 20))
    received: dict[str, torch.Tensor] = {}
    for tensors in receiver.buckets():
        received.update(tensors)
        if job.get("die_at") == "bucket" or (job.get("die_at") == "commit" and len(received) == job["count"]):
            die()
    torch.save(received, job["out"])


def send(job: dict) -> None:
    """Send, and die before tensor `die_at` is handed over; the arena's inode goes to `inode` first."""
    sender = BucketedWeightSender(job["handle"], 1, version=job.get("version", 0), deadline_s=job.get("deadline_s", 20))

    def stream() -> Iterator[tuple[str, torch.Tensor]]:
        for index, item in enumerate(weights(job["count"], job["numel"], job["fill"])):
            if index == job.get("die_at"):
                Path(job["inode"]).write_text(str(os.fstat(sender._arena._fd).st_ino))
                die()
            yield item

    asyncio.run(sender.async_send_weights(stream()))


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        job = json.loads(line)
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            code = 1
            try:
                {"receive": receive, "send": send}[job["role"]](job)
                code = 0
            finally:
                os._exit(code)
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
