# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Tensors to bytes and back.

Three uses: pickling (Ray ships the arrays out of band, so a dense tensor is copied once, on arrival), explicit
serialisation into buffers, and a file that can hold data but no code.
"""

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch

from verl.errors import DataError
from verl.protocol import ragged
from verl.protocol.columns import offsets_of, ragged_dim_of
from verl.protocol.td import TensorDict

_MAGIC = b"verl-dataproto-1\n"
_ARRAY, _TENSOR, _PICKLE, _TUPLE, _SET = 1, 2, 3, 4, 5

# dtype name, shape, bytes
SerializedTensor = tuple[str, tuple[int, ...], memoryview]


def tensor_bytes(tensor: torch.Tensor) -> int:
    """Bytes of the elements, without offsets or storage that the tensor does not use."""
    values = tensor.values() if tensor.is_nested else tensor
    return values.numel() * values.element_size()


# ---- one tensor ---------------------------------------------------------------------------------------------------


def _as_bytes(tensor: torch.Tensor) -> np.ndarray:
    """The elements in row-major order as uint8, on the host; no copy for a contiguous CPU tensor."""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()


def _from_bytes(data: Any, dtype: str, shape: tuple[int, ...]) -> torch.Tensor:
    array = np.frombuffer(data, dtype=np.uint8) if not isinstance(data, np.ndarray) else data
    if not array.size:
        return torch.empty(shape, dtype=_dtype(dtype))
    if not array.flags.writeable:
        # A read-only buffer (Ray's object store, bytes) must never be written through the tensor: own the memory.
        array = array.copy()
    return torch.from_numpy(array).view(_dtype(dtype)).reshape(shape)


def _dtype_name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _dtype(name: str) -> torch.dtype:
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise DataError("not a torch dtype", got=name)
    return dtype


def serialize_single_tensor(obj: torch.Tensor) -> SerializedTensor:
    """(dtype name, shape, bytes) of a dense tensor; the bytes are a view for a contiguous CPU tensor."""
    return _dtype_name(obj), tuple(obj.shape), memoryview(_as_bytes(obj))  # type: ignore[arg-type]  # NumPy's stub: a Buffer from Python 3.12 on


def deserialize_single_tensor(arr: Any) -> torch.Tensor:
    """The inverse of `serialize_single_tensor`; shares writable memory, copies read-only memory."""
    dtype, shape, data = arr
    return _from_bytes(data, dtype, tuple(shape))


def _dump_tensor(tensor: torch.Tensor) -> tuple[Any, ...]:
    """("dense", dtype, shape, bytes) or ("jagged", values, offsets, ragged dimension)."""
    if tensor.is_nested:
        if tensor.layout != torch.jagged:
            raise DataError("only jagged nested tensors travel", got=str(tensor.layout), expected="torch.jagged")
        # values() of a slice still spans the whole buffer; offsets say which part is meant.
        return ("jagged", _dump_tensor(tensor.values()), _dump_tensor(offsets_of(tensor)), ragged_dim_of(tensor))
    return ("dense", _dtype_name(tensor), tuple(tensor.shape), _as_bytes(tensor))


def _load_tensor(dumped: tuple[Any, ...] | list[Any]) -> torch.Tensor:
    if dumped[0] == "jagged":
        _, values, offsets, ragged_dim = dumped
        return torch.nested.nested_tensor_from_jagged(
            _load_tensor(values), _load_tensor(offsets), jagged_dim=ragged_dim
        )
    _, dtype, shape, data = dumped
    return _from_bytes(data, dtype, tuple(shape))


# ---- a TensorDict -------------------------------------------------------------------------------------------------


def dump_state(batch: TensorDict | None) -> tuple[Any, ...] | None:
    """What pickling keeps of a batch: its size and each tensor's bytes as NumPy views; the batch is not changed.

    A large padded batch leaves its padding behind.
    """
    if batch is None:
        return None
    # A batch holds tensors; TensorDict could hold more.
    tensors: dict[str, Any] = dict(batch.items())
    runs = ragged.find_runs(tensors) if batch.batch_dims == 1 else None
    if runs is None:
        return tuple(batch.batch_size), {key: _dump_tensor(tensor) for key, tensor in tensors.items()}, None
    width_P, width_S = tensors["prompts"].shape[1], tensors["attention_mask"].shape[1]
    widths = {"T": width_S - width_P, "S": width_S, "P": width_P}
    dumped = {key: ragged.strip(key, tensor, runs, widths) or _dump_tensor(tensor) for key, tensor in tensors.items()}
    return tuple(batch.batch_size), dumped, runs


def load_state(state: tuple[Any, ...] | None) -> TensorDict | None:
    """The inverse of `dump_state`; tensors arrive on the CPU."""
    if state is None:
        return None
    batch_size, dumped, runs = state
    tensors = {
        key: ragged.restore(item, runs) if isinstance(item, ragged.Stripped) else _load_tensor(item)
        for key, item in dumped.items()
    }
    return TensorDict(tensors, batch_size=list(batch_size))


def serialize_tensordict(batch: TensorDict) -> tuple[tuple[int, ...], str | None, dict[str, tuple[str, Any]]]:
    """(batch size, device, key → (layout, serialised tensor or tensors))."""
    entries: dict[str, tuple[str, Any]] = {}
    tensor: Any
    for key, tensor in batch.items():
        if tensor.is_nested:
            parts = [serialize_single_tensor(tensor.values()), serialize_single_tensor(offsets_of(tensor))]
            entries[key] = ("jagged", (*parts, ragged_dim_of(tensor)))
        else:
            entries[key] = ("strided", serialize_single_tensor(tensor))
    return tuple(batch.batch_size), None if batch.device is None else str(batch.device), entries


def deserialize_tensordict(arr: Any) -> TensorDict:
    """The inverse of `serialize_tensordict`."""
    batch_size, device, entries = arr
    tensors = {}
    for key, (layout, payload) in entries.items():
        if layout == "jagged":
            values, offsets = (deserialize_single_tensor(part) for part in payload[:2])
            tensors[key] = torch.nested.nested_tensor_from_jagged(values, offsets, jagged_dim=payload[2])
        else:
            tensors[key] = deserialize_single_tensor(payload)
    return TensorDict(tensors, batch_size=list(batch_size), device=device)


# ---- a file -------------------------------------------------------------------------------------------------------


def save(
    path: str | Path,
    batch: TensorDict | None,
    columns: Mapping[str, np.ndarray],
    meta_info: Mapping[str, Any],
    allow_pickle: bool,
) -> None:
    """Write the three parts as msgpack after a magic line."""
    encoder = msgspec.msgpack.Encoder(enc_hook=lambda value: _encode(value, encoder, str(path), allow_pickle))
    state = None if batch is None else [batch.batch_size, dict(batch.items())]
    # Tuples and sets would silently become lists: msgpack knows one kind of sequence.
    payload = encoder.encode([state, _marked(dict(columns), encoder), _marked(dict(meta_info), encoder)])
    Path(path).write_bytes(_MAGIC + payload)


def _encode(value: Any, encoder: msgspec.msgpack.Encoder, path: str, allow_pickle: bool) -> msgspec.msgpack.Ext:
    if isinstance(value, torch.Tensor):
        return msgspec.msgpack.Ext(_TENSOR, encoder.encode(_dump_tensor(value)))
    if isinstance(value, np.ndarray) and value.dtype == object:
        rows = _marked(value.ravel().tolist(), encoder)
        return msgspec.msgpack.Ext(_ARRAY, encoder.encode(["O", value.shape, rows]))
    if isinstance(value, np.ndarray | np.generic):
        return msgspec.msgpack.Ext(_ARRAY, encoder.encode([value.dtype.str, value.shape, value.tobytes()]))
    if not allow_pickle:
        raise DataError(
            "this value cannot be saved as plain data",
            where=path,
            got=type(value).__name__,
            remedy="pop the column, or pass allow_pickle=True here and on loading",
        )
    return msgspec.msgpack.Ext(_PICKLE, pickle.dumps(value))


def _marked(value: Any, encoder: msgspec.msgpack.Encoder) -> Any:
    if isinstance(value, dict):
        return {key: _marked(item, encoder) for key, item in value.items()}
    if isinstance(value, list):
        return [_marked(item, encoder) for item in value]
    if isinstance(value, tuple | set | frozenset):
        items = [_marked(item, encoder) for item in value]
        return msgspec.msgpack.Ext(_TUPLE if isinstance(value, tuple) else _SET, encoder.encode(items))
    return value


def load(path: str | Path, allow_pickle: bool) -> tuple[TensorDict | None, dict[str, np.ndarray], dict[str, Any]]:
    """Read the three parts; a file of another kind, or pickled objects without `allow_pickle`, is refused."""
    content = memoryview(Path(path).read_bytes())
    if content[: len(_MAGIC)] != _MAGIC:
        raise DataError("not a file written by DataProto.save_to_disk", where=str(path))

    def decode(code: int, data: memoryview) -> Any:
        if code == _TENSOR:
            return _load_tensor(decoder.decode(data))
        if code == _ARRAY:
            return _load_array(*decoder.decode(data))
        if code in (_TUPLE, _SET):
            return (tuple if code == _TUPLE else set)(decoder.decode(data))
        if code == _PICKLE and allow_pickle:
            return pickle.loads(data)
        raise DataError(
            "the file holds pickled objects",
            where=str(path),
            remedy="pass allow_pickle=True if you trust whoever wrote it",
        )

    decoder = msgspec.msgpack.Decoder(ext_hook=decode, strict=False)
    state, columns, meta_info = decoder.decode(content[len(_MAGIC) :])
    batch = None if state is None else TensorDict(state[1], batch_size=state[0])
    return batch, columns, meta_info


def _load_array(dtype: str, shape: list[int], data: Any) -> Any:
    if dtype == "O":
        array = np.empty(len(data), dtype=object)
        for row, value in enumerate(data):
            array[row] = value
        return array.reshape(shape)
    array = np.frombuffer(data, dtype=np.dtype(dtype)).reshape(shape).copy()
    return array[()] if not shape else array
