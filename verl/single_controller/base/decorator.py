# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""`@register`: how a call on a worker group is split over ranks and how the answers are joined.

A dispatch function takes (worker_group, *args, **kwargs) and returns (args, kwargs) in which every value is a list
with one entry per rank. A collect function takes (worker_group, outputs), one output or handle per rank.
"""

import asyncio
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar, cast

from verl.errors import ConfigError, DataError
from verl.protocol import DataProto, DataProtoFuture, pad_dataproto_to_divisor
from verl.protocol.td import TensorDict
from verl.utils.py_functional import DynamicEnum

F = TypeVar("F", bound=Callable[..., Any])
Arguments = tuple[tuple[Any, ...], dict[str, Any]]
DispatchFn = Callable[..., Arguments]
CollectFn = Callable[..., Any]

# Attribute of a decorated method that holds its modes; the name is part of verl's public surface.
MAGIC_ATTR = "attrs_3141562937"
# Key in a dispatch function's kwargs: rows that were added so that the batch divides over the ranks.
PADDING_KEY = "_verl_padding_rows"


class Dispatch(DynamicEnum):
    """Names of the dispatch modes."""

    _registry = {}
    _next_value = 0

    # Made by `init_predefined_dispatch_mode`; members that users register are not known to a type checker.
    RANK_ZERO: ClassVar["Dispatch"]
    ONE_TO_ALL: ClassVar["Dispatch"]
    ALL_TO_ALL: ClassVar["Dispatch"]
    DP_COMPUTE: ClassVar["Dispatch"]
    DP_COMPUTE_PROTO: ClassVar["Dispatch"]
    DP_COMPUTE_PROTO_WITH_FUNC: ClassVar["Dispatch"]
    DP_COMPUTE_METRIC: ClassVar["Dispatch"]
    DIRECT_ROLLOUT_METHOD: ClassVar["Dispatch"]


class Execute(DynamicEnum):
    """Which ranks run the method."""

    _registry = {}
    _next_value = 0

    # Made by `init_predefined_execute_mode`.
    ALL: ClassVar["Execute"]
    RANK_ZERO: ClassVar["Execute"]


def init_predefined_dispatch_mode() -> None:
    """Register the built-in dispatch modes."""
    for name in (
        "RANK_ZERO",
        "ONE_TO_ALL",
        "ALL_TO_ALL",
        "DP_COMPUTE",
        "DP_COMPUTE_PROTO",
        "DP_COMPUTE_PROTO_WITH_FUNC",
        "DP_COMPUTE_METRIC",
        "DIRECT_ROLLOUT_METHOD",
    ):
        Dispatch.register(name)


def init_predefined_execute_mode() -> None:
    """Register the built-in execute modes."""
    for name in ("ALL", "RANK_ZERO"):
        Execute.register(name)


init_predefined_dispatch_mode()
init_predefined_execute_mode()


# ---- splitting ----------------------------------------------------------------------------------------------------


def _split(parts: int, value: Any) -> list[Any]:
    """A batch as `parts` equal shares; anything that is not a batch goes whole to every part."""
    if isinstance(value, DataProtoFuture):
        return value.chunk(parts)
    if isinstance(value, TensorDict):
        raise DataError("a TensorDict is not dispatched", remedy="pass DataProto.from_tensordict(...)")
    if not isinstance(value, DataProto):
        return [value] * parts
    if len(value) % parts:
        raise DataError(
            "the batch does not divide over the data-parallel ranks",
            got=f"{len(value)} rows for {parts} ranks",
            remedy="use pad_dataproto_to_divisor and unpad_dataproto, or set VERL_AUTO_PADDING=1",
        )
    return value.chunk(parts)


def _split_all(parts: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    """Every argument as a list of `parts` shares; where padding is on, batches are padded first and the rows noted."""
    padded_rows = 0

    def share(value: Any) -> list[Any]:
        nonlocal padded_rows
        if isinstance(value, DataProto) and value.is_padding_enabled() and len(value) % parts:
            value, added = pad_dataproto_to_divisor(value, parts)
            if padded_rows not in (0, added):
                raise DataError("the batches of one call need different padding", got=added, expected=padded_rows)
            padded_rows = added
        return _split(parts, value)

    split_args = tuple(share(value) for value in args)
    split_kwargs = {key: share(value) for key, value in kwargs.items()}
    return split_args, split_kwargs | ({PADDING_KEY: padded_rows} if padded_rows else {})


def _per_rank(shares_of: Sequence[int], arguments: Arguments) -> Arguments:
    """Shares per data-parallel rank to shares per rank; ranks of one data-parallel rank get the same object."""
    args, kwargs = arguments
    return tuple([value[part] for part in shares_of] for value in args), {
        key: value if key == PADDING_KEY else [value[part] for part in shares_of] for key, value in kwargs.items()
    }


# ---- dispatch and collect functions -------------------------------------------------------------------------------


def dispatch_one_to_all(worker_group: Any, *args: Any, **kwargs: Any) -> Arguments:
    """Every rank gets the same arguments."""
    size = worker_group.world_size
    return tuple([value] * size for value in args), {key: [value] * size for key, value in kwargs.items()}


def dispatch_all_to_all(worker_group: Any, *args: Any, **kwargs: Any) -> Arguments:
    """The caller's arguments as they are: lists with one entry per rank, or values for every rank."""
    return args, kwargs


def collect_all_to_all(worker_group: Any, output: Any) -> Any:
    """The outputs as they are."""
    return output


def dummy_direct_rollout_call(worker_group: Any, *args: Any, **kwargs: Any) -> None:
    """The method belongs to the rollout server and is not called through the group."""
    raise ConfigError("a DIRECT_ROLLOUT_METHOD is not called through a worker group", remedy="call the rollout server")


def dispatch_dp_compute(worker_group: Any, *args: Any, **kwargs: Any) -> Arguments:
    """Every argument is already a list with one entry per rank."""
    for name, value in [*enumerate(args), *kwargs.items()]:
        if not isinstance(value, list | tuple) or len(value) != worker_group.world_size:
            raise DataError(
                "each argument must be a list with one entry per rank",
                where=f"argument {name}",
                got=type(value).__name__ if not isinstance(value, list | tuple) else len(value),
                expected=worker_group.world_size,
            )
    return args, kwargs


def collect_dp_compute(worker_group: Any, output: list[Any]) -> list[Any]:
    """One output per rank."""
    if len(output) != worker_group.world_size:
        raise DataError("one output per rank", got=len(output), expected=worker_group.world_size)
    return output


def dispatch_dp_compute_data_proto(worker_group: Any, *args: Any, **kwargs: Any) -> Arguments:
    """Batches are split over all ranks; other arguments go to every rank."""
    return _split_all(worker_group.world_size, args, kwargs)


def dispatch_dp_compute_data_proto_with_func(worker_group: Any, *args: Any, **kwargs: Any) -> Arguments:
    """The first argument is a function that every rank gets; batches among the others are split."""
    if not args or not callable(args[0]):
        raise DataError("the first argument must be a function", got=type(args[0]).__name__ if args else "nothing")
    split_args, split_kwargs = _split_all(worker_group.world_size, args[1:], kwargs)
    return ([args[0]] * worker_group.world_size, *split_args), split_kwargs


def collect_dp_compute_data_proto(worker_group: Any, output: list[Any]) -> Any:
    """The rows of all ranks in one batch, or a future of it; None where every rank returned None."""
    return _concat(worker_group, collect_dp_compute(worker_group, output))


def dispatch_nd_compute(
    dp_rank_mapping: Sequence[int], dp_size: int, worker_group: Any, *args: Any, **kwargs: Any
) -> Arguments:
    """Every argument is a list with one entry per data-parallel rank; each rank gets that of its own."""
    for name, value in [*enumerate(args), *kwargs.items()]:
        if not isinstance(value, list | tuple) or len(value) != dp_size:
            raise DataError("each argument must be a list with one entry per data-parallel rank", where=str(name))
    return _per_rank(dp_rank_mapping, (args, kwargs))


def collect_nd_compute(collect_mask: Sequence[bool], worker_group: Any, output: list[Any]) -> list[Any]:
    """The outputs of the ranks that speak for their data-parallel rank."""
    if len(output) != len(collect_mask):
        raise DataError("one output per rank", got=len(output), expected=len(collect_mask))
    return [value for value, speaks in zip(output, collect_mask, strict=True) if speaks]


def dispatch_nd_compute_dataproto(
    dp_rank_mapping: Sequence[int], dp_size: int, worker_group: Any, *args: Any, **kwargs: Any
) -> Arguments:
    """Batches are split over the data-parallel ranks; other arguments go to every rank."""
    return _per_rank(dp_rank_mapping, _split_all(dp_size, args, kwargs))


def collect_nd_compute_dataproto(collect_mask: Sequence[bool], worker_group: Any, output: list[Any]) -> Any:
    """The rows of the speaking ranks in one batch, or a future of it."""
    return _concat(worker_group, collect_nd_compute(collect_mask, worker_group, output))


def _concat(worker_group: Any, output: list[Any]) -> Any:
    if output and all(worker_group.is_handle(value) for value in output):
        return DataProtoFuture.concat(output, fetch=worker_group.fetcher())
    if all(value is None for value in output):
        return None
    wrong = sorted({type(value).__name__ for value in output if not isinstance(value, DataProto)})
    if wrong:
        raise DataError("every rank must return a DataProto", got=wrong)
    return DataProto.concat(output)


def dispatch_lazy_compute_data_proto(mesh_name: str, worker_group: Any, *args: Any, **kwargs: Any) -> Arguments:
    """As `dispatch_nd_compute_dataproto`, with the ranks' places in the mesh asked from the workers once."""
    dp_ranks = worker_group.mesh_info(mesh_name).dp_ranks
    return dispatch_nd_compute_dataproto(dp_ranks, max(dp_ranks) + 1, worker_group, *args, **kwargs)


def collect_lazy_compute_data_proto(mesh_name: str, worker_group: Any, *args: Any, **kwargs: Any) -> Any:
    """As `collect_nd_compute_dataproto`, with the speaking ranks asked from the workers once."""
    return collect_nd_compute_dataproto(worker_group.mesh_info(mesh_name).collects, worker_group, *args, **kwargs)


def make_nd_compute_dataproto_dispatch_fn(mesh_name: str) -> dict[str, Any]:
    """A dispatch mode for methods whose batch is split over the data-parallel ranks of `mesh_name`.

    The workers say where they are in the mesh by `Worker._register_dispatch_collect_info`.
    """
    return {
        "dispatch_fn": functools.partial(dispatch_lazy_compute_data_proto, mesh_name),
        "collect_fn": functools.partial(collect_lazy_compute_data_proto, mesh_name),
        "mesh_name": mesh_name,
    }


# ---- modes --------------------------------------------------------------------------------------------------------

DISPATCH_MODE_FN_REGISTRY: dict[Dispatch, dict[str, Any]] = {
    Dispatch.RANK_ZERO: {"dispatch_fn": dispatch_all_to_all, "collect_fn": collect_all_to_all},
    Dispatch.ONE_TO_ALL: {"dispatch_fn": dispatch_one_to_all, "collect_fn": collect_all_to_all},
    Dispatch.ALL_TO_ALL: {"dispatch_fn": dispatch_all_to_all, "collect_fn": collect_all_to_all},
    Dispatch.DP_COMPUTE: {"dispatch_fn": dispatch_dp_compute, "collect_fn": collect_dp_compute},
    Dispatch.DP_COMPUTE_PROTO: {
        "dispatch_fn": dispatch_dp_compute_data_proto,
        "collect_fn": collect_dp_compute_data_proto,
    },
    Dispatch.DP_COMPUTE_PROTO_WITH_FUNC: {
        "dispatch_fn": dispatch_dp_compute_data_proto_with_func,
        "collect_fn": collect_dp_compute_data_proto,
    },
    Dispatch.DP_COMPUTE_METRIC: {"dispatch_fn": dispatch_dp_compute_data_proto, "collect_fn": collect_dp_compute},
    Dispatch.DIRECT_ROLLOUT_METHOD: {"dispatch_fn": dummy_direct_rollout_call, "collect_fn": dummy_direct_rollout_call},
}


def get_predefined_dispatch_fn(dispatch_mode: Dispatch) -> dict[str, Any]:
    """The functions of a registered mode."""
    if dispatch_mode not in DISPATCH_MODE_FN_REGISTRY:
        raise ConfigError("unknown dispatch mode", got=dispatch_mode, expected=f"one of {Dispatch.names()}")
    return DISPATCH_MODE_FN_REGISTRY[dispatch_mode]


def register_dispatch_mode(dispatch_mode_name: str, dispatch_fn: DispatchFn, collect_fn: CollectFn) -> None:
    """Add a mode of one's own: afterwards `Dispatch.<NAME>` exists."""
    mode = Dispatch.register(dispatch_mode_name)
    DISPATCH_MODE_FN_REGISTRY[mode] = _pair(dispatch_fn, collect_fn)


def update_dispatch_mode(dispatch_mode: Dispatch, dispatch_fn: DispatchFn, collect_fn: CollectFn) -> None:
    """Replace the functions of a registered mode."""
    get_predefined_dispatch_fn(dispatch_mode)
    DISPATCH_MODE_FN_REGISTRY[dispatch_mode] = _pair(dispatch_fn, collect_fn)


def _pair(dispatch_fn: DispatchFn, collect_fn: CollectFn) -> dict[str, Any]:
    if not callable(dispatch_fn) or not callable(collect_fn):
        raise ConfigError("a dispatch mode is two functions", got=(dispatch_fn, collect_fn))
    return {"dispatch_fn": dispatch_fn, "collect_fn": collect_fn}


def get_predefined_execute_fn(execute_mode: Execute) -> dict[str, str]:
    """The name of the worker group's method that runs an execute mode."""
    return {"execute_fn_name": {Execute.ALL: "execute_all", Execute.RANK_ZERO: "execute_rank_zero"}[execute_mode]}


def resolve_dispatch(mode: "Dispatch | dict[str, Any]") -> dict[str, Any]:
    """The functions of a mode given by name or as a dictionary of its own."""
    if isinstance(mode, Dispatch):
        return get_predefined_dispatch_fn(mode)
    if not isinstance(mode, dict) or not {"dispatch_fn", "collect_fn"} <= mode.keys():
        raise ConfigError("a dispatch mode is a Dispatch member or a dict with dispatch_fn and collect_fn", got=mode)
    return mode


def register(
    dispatch_mode: "Dispatch | dict[str, Any]" = Dispatch.ALL_TO_ALL,
    execute_mode: Execute = Execute.ALL,
    blocking: bool = True,
    materialize_futures: bool = True,
) -> Callable[[F], F]:
    """Mark a worker's method for its worker group.

    `blocking=False`: the group returns handles or a DataProtoFuture at once. `materialize_futures=False`: the method
    itself calls `get()` on futures among its arguments.
    """
    resolve_dispatch(dispatch_mode)
    if not isinstance(execute_mode, Execute):
        raise ConfigError("execute_mode must be a member of Execute", got=execute_mode)

    def decorate(method: F) -> F:
        if inspect.iscoroutinefunction(method):

            @functools.wraps(method)
            async def run(*args: Any, **kwargs: Any) -> Any:
                if materialize_futures and _has_future(args, kwargs):
                    # Fetching waits; the actor's event loop must not.
                    args, kwargs = await asyncio.to_thread(_materialize, args, kwargs)
                return await method(*args, **kwargs)

        else:

            @functools.wraps(method)
            def run(*args: Any, **kwargs: Any) -> Any:
                if materialize_futures and _has_future(args, kwargs):
                    args, kwargs = _materialize(args, kwargs)
                return method(*args, **kwargs)

        setattr(run, MAGIC_ATTR, {"dispatch_mode": dispatch_mode, "execute_mode": execute_mode, "blocking": blocking})
        return cast(F, run)

    return decorate


def _has_future(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return any(isinstance(value, DataProtoFuture) for value in (*args, *kwargs.values()))


def _materialize(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    def value_of(value: Any) -> Any:
        return value.get() if isinstance(value, DataProtoFuture) else value

    return tuple(value_of(value) for value in args), {key: value_of(value) for key, value in kwargs.items()}
