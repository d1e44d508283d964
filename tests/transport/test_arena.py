# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Shared memory that has no name: it cannot leak, and when there is none left, the error says where."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from verl.errors import TransportError
from verl.transport.arena import SHM_DIRECTORY, Arena, free_bytes, staging_memory


def test_a_second_mapping_sees_the_same_bytes_and_nothing_appears_in_dev_shm() -> None:
    before = set(os.listdir(SHM_DIRECTORY))
    arena = Arena.create(1 << 20)
    arena.reserve(1 << 20)
    other = Arena.attach(arena.path, 1 << 20)
    arena.view(5, 4).copy_(torch.tensor([1, 2, 3, 4], dtype=torch.uint8))
    assert other.view(5, 4).tolist() == [1, 2, 3, 4]
    ours = {name for name in set(os.listdir(SHM_DIRECTORY)) - before if "verl" in name}
    assert not ours
    arena.close()
    other.close()


def test_closing_with_a_view_still_alive_is_no_crash() -> None:
    arena = Arena.create(4096)
    arena.reserve(4096)
    view = arena.view(0, 16)
    view.fill_(7)
    arena.close()
    arena.close()
    assert view.tolist() == [7] * 16
    with pytest.raises(TransportError, match="outside"):
        arena.view(0, 16)


def test_views_beyond_the_end_are_refused() -> None:
    arena = Arena.create(4096)
    with pytest.raises(TransportError, match="outside"):
        arena.view(4090, 16)
    arena.close()


def test_memory_is_taken_only_when_reserved() -> None:
    arena = Arena.create(256 << 20)
    blocks = os.fstat(arena._fd).st_blocks
    arena.reserve(1 << 20)
    assert blocks == 0 and 0 < os.fstat(arena._fd).st_blocks * 512 <= 8 << 20
    arena.close()


def test_an_owner_that_has_gone_is_named() -> None:
    process = subprocess.Popen(["sleep", "0"])
    process.wait()
    with pytest.raises(TransportError, match=rf"/proc/{process.pid}/fd/3"):
        Arena.attach(f"/proc/{process.pid}/fd/3", 4096)


@pytest.fixture
def small_tmpfs(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "shm"
    directory.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", directory], capture_output=True).returncode:
        pytest.skip("mounting a small file system needs root")
    yield directory
    subprocess.run(["umount", "-l", directory], check=True)


def test_a_full_file_system_is_an_error_that_names_it_and_not_a_dead_process(small_tmpfs: Path) -> None:
    arena = Arena.create(8 << 20, small_tmpfs)
    with pytest.raises(TransportError, match=str(small_tmpfs)) as info:
        arena.reserve(8 << 20)
    assert "full" in str(info.value) and "--shm-size" in info.value.remedy
    assert free_bytes(small_tmpfs) <= 1 << 20
    arena.close()
    assert free_bytes(small_tmpfs) == 1 << 20, "what was taken before the failure is given back"


def test_a_directory_without_shared_memory_is_named(tmp_path: Path) -> None:
    with pytest.raises(TransportError, match="missing"):
        Arena.create(4096, tmp_path / "missing")


@pytest.mark.parametrize("nbytes", [0, 1, (2 << 20) - 1, (2 << 20) + 3])
def test_staging_memory_of_any_size_can_be_written_and_outlives_what_made_it(nbytes: int) -> None:
    memory = staging_memory(nbytes, torch.device("cpu"))
    assert (memory.dtype, memory.shape) == (torch.uint8, (nbytes,))
    memory.fill_(9)
    assert memory.sum().item() == 9 * nbytes


def test_dropped_staging_memory_goes_back_to_the_system() -> None:
    def mapped() -> int:
        return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")

    before = mapped()
    memory = staging_memory(256 << 20, torch.device("cpu"))
    held = mapped() - before
    del memory
    assert held >= 256 << 20 and mapped() - before < 64 << 20
