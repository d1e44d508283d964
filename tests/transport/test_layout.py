# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Packing and its inverse, for any names, dtypes, shapes and bucket sizes."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from verl.errors import TransportError
from verl.transport.checksum import CorruptBytes, DeviceChecksum, Fold, HostChecksum, new_checksum
from verl.transport.header import Segment
from verl.transport.layout import ALIGN_BYTES, Assembler, as_bytes, from_bytes, nbytes_of, place, spec_of

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int8, torch.int64, torch.bool]
DTYPES += [torch.complex128, torch.float8_e4m3fn, torch.uint8]


def tensor_of(dtype: torch.dtype, shape: tuple[int, ...], seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    raw = torch.randint(0, 256, (math.prod(shape) * dtype.itemsize,), dtype=torch.uint8, generator=generator)
    return (raw % 2 if dtype is torch.bool else raw).view(dtype).reshape(shape)


def pack(tensors: dict[str, torch.Tensor], capacity: int, kind: str = "xxh3") -> tuple[list[Any], Fold]:
    """Buckets as the senders make them: (payload, segments)."""
    buckets, fold, used = [(torch.zeros(capacity, dtype=torch.uint8), [])], Fold(), 0
    for name, tensor in tensors.items():
        spec, data, current = spec_of(name, tensor), as_bytes(name, tensor), 0
        running, checksum = new_checksum(kind), 0
        for bucket, offset, start, length in place(data.numel(), used, capacity):
            if bucket > current:
                buckets.append((torch.zeros(capacity, dtype=torch.uint8), []))
                current = bucket
            assert offset % ALIGN_BYTES == 0 and offset + length <= capacity
            buckets[-1][0][offset : offset + length] = data[start : start + length]
            checksum = running.update(data[start : start + length])
            buckets[-1][1].append(Segment(spec, start, offset, length, checksum))
            used = offset + length
        fold.add(spec, data.numel(), checksum)
    return buckets, fold


@given(
    items=st.lists(st.tuples(st.sampled_from(DTYPES), st.lists(st.integers(0, 9), max_size=3).map(tuple)), max_size=12),
    capacity=st.sampled_from([16, 32, 64, 160, 1024]),
    kind=st.sampled_from(["xxh3", "sum64"]),
)
@settings(max_examples=80, deadline=None)
def test_any_tensors_come_back_bit_for_bit_from_buckets_of_any_size(items: list[Any], capacity: int, kind: str) -> None:
    tensors = {f"t{i}": tensor_of(dtype, shape, i) for i, (dtype, shape) in enumerate(items)}
    buckets, sent = pack(tensors, capacity, kind)
    assembler, received = Assembler(kind, torch.device("cpu")), {}
    for payload, segments in buckets:
        received.update(assembler.add(payload, segments))
    assembler.finish()
    assert list(received) == list(tensors)
    for name, tensor in tensors.items():
        assert received[name].dtype == tensor.dtype and received[name].shape == tensor.shape
        assert torch.equal(as_bytes(name, received[name]), as_bytes(name, tensor))
    assert (assembler.fold.manifest, assembler.fold.content) == (sent.manifest, sent.content)
    assert assembler.fold.nbytes == sum(t.numel() * t.element_size() for t in tensors.values())


def test_the_digests_do_not_depend_on_the_bucket_size_but_on_order_names_and_bytes() -> None:
    tensors = {"a": torch.arange(100.0), "b": torch.arange(7)}
    digests = {(f.manifest, f.content) for f in (pack(tensors, c)[1] for c in (16, 64, 4096))}
    assert len(digests) == 1
    swapped = pack({"b": tensors["b"], "a": tensors["a"]}, 64)[1]
    renamed = pack({"a": tensors["a"], "c": tensors["b"]}, 64)[1]
    changed = pack({"a": tensors["a"] + 1e-6, "b": tensors["b"]}, 64)[1]
    for other in (swapped, renamed, changed):
        assert (other.manifest, other.content) not in digests


def test_a_flipped_bit_is_reported_with_the_tensor_that_has_it() -> None:
    buckets, _ = pack({"first": torch.ones(4), "second": torch.ones(100)}, 256)
    buckets[1][0][3] ^= 1
    assembler = Assembler("xxh3", torch.device("cpu"))
    assembler.add(*buckets[0])
    with pytest.raises(CorruptBytes, match=r"second\[\d+:\d+\].*not those that were sent"):
        assembler.add(*buckets[1])


@pytest.mark.parametrize("mangle", ["skip", "repeat", "truncate"])
def test_a_segment_out_of_turn_is_refused(mangle: str) -> None:
    buckets, _ = pack({"big": torch.arange(64.0)}, 64)
    assembler = Assembler("xxh3", torch.device("cpu"))
    assembler.add(*buckets[0])
    if mangle == "truncate":
        with pytest.raises(TransportError, match="ended inside a tensor"):
            assembler.finish()
        return
    with pytest.raises(TransportError, match="out of order"):
        assembler.add(*buckets[2 if mangle == "skip" else 0])


def test_a_name_that_comes_twice_is_refused() -> None:
    buckets, _ = pack({"w": torch.ones(4)}, 256)
    assembler = Assembler("xxh3", torch.device("cpu"))
    assembler.add(*buckets[0])
    with pytest.raises(TransportError, match="'w' was sent twice"):
        assembler.add(*buckets[0])


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(6.0).reshape(2, 3).t(),
        torch.arange(10.0)[::2],
        torch.tensor(3.5),
        torch.empty(0, 4),
        torch.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1)[:, :, 1:],
        torch.tensor([1 + 2j, 3 - 4j]).conj(),
        torch.ones(1).expand(5),
    ],
)
def test_any_strides_are_sent_by_value(tensor: torch.Tensor) -> None:
    spec = spec_of("t", tensor)
    again = from_bytes(spec, as_bytes("t", tensor))
    assert again.shape == tensor.shape and again.dtype == tensor.dtype and torch.equal(again, tensor)
    assert nbytes_of(spec) == tensor.numel() * tensor.element_size()


def test_what_has_no_bytes_is_refused_by_name() -> None:
    with pytest.raises(TransportError, match="router"):
        as_bytes("router", torch.empty(3, device="meta"))
    with pytest.raises(TransportError, match="only dense"):
        as_bytes("sparse", torch.eye(3).to_sparse())


def test_the_device_checksum_sees_swaps_shifts_and_single_bits() -> None:
    data = tensor_of(torch.uint8, (1003,), 1)

    def checksum(x: torch.Tensor) -> int:
        return DeviceChecksum().update(x)

    swapped = data.clone()
    swapped[0:8], swapped[8:16] = data[8:16], data[0:8]
    flipped = data.clone()
    flipped[1001] ^= 1
    others = [swapped, flipped, data.roll(8), data[:-1], torch.cat([data, torch.zeros(1, dtype=torch.uint8)])]
    assert checksum(data) not in [checksum(other) for other in others]
    whole, parts = DeviceChecksum(), DeviceChecksum()
    whole.update(data)
    assert parts.update(data[:512]) != parts.update(data[512:])


def test_the_host_checksum_is_xxh3_of_the_bytes_so_far() -> None:
    import xxhash

    data = tensor_of(torch.uint8, (100,), 2)
    running = HostChecksum()
    assert running.update(data[:40]) == xxhash.xxh3_64_intdigest(data[:40].numpy())
    assert running.update(data[40:]) == xxhash.xxh3_64_intdigest(data.numpy())
