# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Socket files: only ours are removed, only ours can be entered, and a silent or dead peer has a name."""

import asyncio
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from verl.errors import PeerLost, TransportError, WaitTimeout
from verl.launch_info import LaunchInfo
from verl.transport.header import Peer
from verl.transport.sockets import Hub, Spoke, is_alive, path_of, remove_stale, unlink_quietly


@pytest.fixture
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("s")
    directory.chmod(0o700)
    yield directory


def leave_a_dead_socket(path: Path) -> None:
    """Bind in another process and kill it, as a crashed job does."""
    code = f"import socket,os,signal; socket.socket(socket.AF_UNIX).bind({str(path)!r}); os.kill(os.getpid(), 9)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == -signal.SIGKILL
    assert stat.S_ISSOCK(path.lstat().st_mode)


def test_a_socket_of_a_killed_process_does_not_stop_a_new_one(run_dir: Path) -> None:
    path = run_dir / "w.sock"
    leave_a_dead_socket(path)

    async def bind() -> None:
        hub = Hub(f"ipc://{path}")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        await hub.close()

    asyncio.run(bind())
    assert not path.exists()


def test_the_path_can_be_bound_again_at_once(run_dir: Path) -> None:
    async def often() -> None:
        for _ in range(20):
            hub = Hub(f"ipc://{run_dir}/w.sock")
            assert (run_dir / "w.sock").exists()
            await hub.close()

    asyncio.run(often())


def test_a_file_of_the_users_is_left_alone(run_dir: Path) -> None:
    path = run_dir / "w.sock"
    path.write_text("thesis")
    with pytest.raises(TransportError, match="not a socket"):
        Hub(f"ipc://{path}")
    unlink_quietly(path)
    assert path.read_text() == "thesis"


def test_a_live_listener_is_not_robbed(run_dir: Path) -> None:
    path = run_dir / "w.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        with pytest.raises(TransportError, match="another live process") as info:
            remove_stale(path)
    assert "VERL_REPLICA_RANK" in info.value.remedy and path.exists()


def test_a_dead_socket_outside_a_private_directory_is_left_alone(run_dir: Path) -> None:
    path = run_dir / "w.sock"
    leave_a_dead_socket(path)
    run_dir.chmod(0o755)
    with pytest.raises(TransportError, match="outside a private directory"):
        remove_stale(path)
    assert path.exists()


def test_removing_tolerates_a_file_that_has_gone_and_one_that_cannot_go(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = run_dir / "w.sock"
    unlink_quietly(path)
    leave_a_dead_socket(path)

    def refuse(self: Path) -> None:
        raise PermissionError(1, "no")

    monkeypatch.setattr(Path, "unlink", refuse)
    unlink_quietly(path)
    assert "could not remove the socket" in caplog.text


def test_the_directory_of_a_job_is_private_and_two_jobs_differ(tmp_path: Path) -> None:
    one, other = (LaunchInfo(job, tmp_path / job) for job in ("a", "b"))
    for info in (one, other):
        assert stat.S_IMODE(info.ensure_run_dir().stat().st_mode) == 0o700
    assert one.socket_path("w") != other.socket_path("w")


def test_a_path_that_does_not_fit_says_so(run_dir: Path) -> None:
    with pytest.raises(TransportError, match="too long"):
        path_of(f"ipc://{run_dir}/{'x' * 120}.sock")
    with pytest.raises(TransportError, match="ipc://"):
        path_of("tcp://127.0.0.1:5555")


def test_a_silent_peer_is_named_when_the_deadline_passes(run_dir: Path) -> None:
    async def wait() -> None:
        hub = Hub(f"ipc://{run_dir}/w.sock")
        try:
            with pytest.raises(WaitTimeout, match=r"waited 0\.3 s for hello from the receiver of rank 3"):
                await hub.receive("hello", "the receiver of rank 3", 0.3, [])
        finally:
            await hub.close()

    asyncio.run(wait())
    spoke = Spoke(f"ipc://{run_dir}/w.sock")
    with pytest.raises(WaitTimeout, match="for begin from the sender"):
        spoke.receive("begin", "the sender", 0.3, [])
    spoke.close()


def test_a_dead_peer_is_noticed_before_the_deadline(run_dir: Path) -> None:
    process = subprocess.Popen(["sleep", "60"])
    peer = Peer("weight sender", 2, process.pid, socket.gethostname())
    assert is_alive(peer)
    process.kill()
    spoke = Spoke(f"ipc://{run_dir}/w.sock")
    # Not waited for, so it is a zombie: dead all the same.
    with pytest.raises(PeerLost, match=rf"weight sender rank 2 \(pid {process.pid} on .*\) died while begin"):
        spoke.receive("begin", "the sender", 60, [peer])
    spoke.close()
    process.wait()
    assert not is_alive(peer)
    assert is_alive(Peer("weight sender", 2, process.pid, "another-host")), "what cannot be seen is not called dead"


def test_a_stop_ends_a_wait(run_dir: Path) -> None:
    spoke = Spoke(f"ipc://{run_dir}/w.sock", lambda: "a newer version began")
    with pytest.raises(TransportError, match="a newer version began"):
        spoke.receive("begin", "the sender", 60, [])
    spoke.close()


def test_garbage_on_the_socket_is_an_error_with_the_peers_name(run_dir: Path) -> None:
    async def talk() -> None:
        hub = Hub(f"ipc://{run_dir}/w.sock")
        context = zmq.Context()
        dealer = context.socket(zmq.DEALER)
        dealer.connect(f"ipc://{run_dir}/w.sock")
        dealer.send(b"\x80\x04K\x01.")
        try:
            with pytest.raises(TransportError, match="the stranger sent something"):
                await hub.receive("hello", "the stranger", 5, [])
            dealer.send_multipart([b"a", b"b"])
            with pytest.raises(TransportError, match="one frame"):
                await hub.receive("hello", "the stranger", 5, [])
        finally:
            dealer.close(0)
            context.term()
            await hub.close()

    asyncio.run(talk())


def test_waiting_does_not_block_the_event_loop(run_dir: Path) -> None:
    async def run() -> float:
        hub = Hub(f"ipc://{run_dir}/w.sock")
        loop = asyncio.get_running_loop()
        gaps, last, done = [], loop.time(), asyncio.Event()

        async def tick() -> None:
            nonlocal last
            while not done.is_set():
                await asyncio.sleep(0.02)
                gaps.append(loop.time() - last)
                last = loop.time()

        ticking = asyncio.create_task(tick())
        with pytest.raises(WaitTimeout):
            await hub.receive("hello", "nobody", 0.6, [])
        done.set()
        await ticking
        await hub.close()
        return len(gaps)

    assert asyncio.run(run()) >= 3, "the ticker ran while the hub waited"
