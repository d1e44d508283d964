# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""`LocalWorkerGroup`: the contract of a worker group in one process, one thread per rank; for tests and debugging.

Batches are copied on the way in and out, as between processes. Ranks share the process: collectives need more than
one, so they work for one rank only.
"""

import asyncio
import inspect
import itertools
import os
import pickle
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import Any

from verl.errors import ConfigError
from verl.protocol import DataProto
from verl.single_controller.base.class_with_init_args import ClassWithInitArgs
from verl.single_controller.base.resource_pool import ResourcePool
from verl.single_controller.base.worker_group import Peer, RankCall, WorkerGroup
from verl.utils.net_utils import get_free_port
from verl.utils.py_functional import temp_env_vars
from verl.waits import expired, waiting_on

# Rank facts reach a worker's `__init__` through the environment, of which a process has one.
_environment = threading.Lock()


class LocalWorkerGroup(WorkerGroup):
    """Ranks as threads; built from the same arguments as a group of Ray actors."""

    def __init__(
        self,
        resource_pool: ResourcePool | None = None,
        ray_cls_with_init: ClassWithInitArgs | None = None,
        *,
        name_prefix: str | None = None,
        deadline_s: float | None = None,
        role: str | None = None,
    ) -> None:
        if ray_cls_with_init is None:
            raise ConfigError("a worker group needs a worker class")
        self._build = ray_cls_with_init
        worker_cls = getattr(ray_cls_with_init, "worker_cls", ray_cls_with_init.cls)
        super().__init__(resource_pool, role=role or name_prefix or worker_cls.__name__, deadline_s=deadline_s)
        self._size = resource_pool.world_size if resource_pool is not None else 1
        self._threads = [
            ThreadPoolExecutor(1, thread_name_prefix=f"{self.role} rank {rank}") for rank in range(self._size)
        ]
        port, self._port_holder = get_free_port("127.0.0.1", with_alive_sock=True)
        self._workers = [self._start_rank(worker_cls, rank, str(port)) for rank in range(self._size)]
        self._bind_worker_method(worker_cls)

    def _start_rank(self, worker_cls: type, rank: int, port: str) -> Any:
        env = {
            "RANK": str(rank),
            "WORLD_SIZE": str(self._size),
            "LOCAL_RANK": str(rank),
            "LOCAL_WORLD_SIZE": str(self._size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
            "WG_BACKEND": "local",
        }
        # A single rank may read the environment later too (a process group, for one); several cannot share it.
        self._call_env = env if self._size == 1 else {}
        with _environment, temp_env_vars(env):
            return worker_cls(*self._build.args, **self._build.kwargs)

    @property
    def world_size(self) -> int:
        return self._size

    @property
    def workers(self) -> list[Any]:
        """The workers themselves, in rank order."""
        return self._workers

    def _submit(self, method_name: str, calls: Sequence[RankCall]) -> list[Future]:
        futures: list[Future] = []
        for call in calls:
            target, args = self._target(method_name, call.args)
            method = getattr(self._workers[call.rank], target)
            args, kwargs = _travelled(args), _travelled(call.kwargs)
            future: Any = self._threads[call.rank].submit(_run, self._call_env, method, args, kwargs)
            # Who computes it, for the sentence of a wait that ran out.
            future.peer = Peer(self.role, call.rank, os.getpid(), "this process")
            futures.append(future)
        return futures

    def _wait(self, handles: Sequence[Future], what: str, deadline_s: float) -> list[Any]:
        with waiting_on(what, _names(handles), deadline_s):
            done, silent = wait(handles, timeout=deadline_s, return_when=FIRST_EXCEPTION)
        return _values(handles, done, silent, what, deadline_s)

    async def _wait_async(self, handles: Sequence[Future], what: str, deadline_s: float) -> list[Any]:
        wrapped = {asyncio.wrap_future(handle): handle for handle in handles}
        with waiting_on(what, _names(handles), deadline_s):
            done, silent = await asyncio.wait(wrapped, timeout=deadline_s, return_when=asyncio.FIRST_EXCEPTION)
        return _values(handles, [wrapped[task] for task in done], [wrapped[task] for task in silent], what, deadline_s)

    def is_handle(self, value: Any) -> bool:
        return isinstance(value, Future)

    def fetcher(self) -> Callable[[list[Future]], list[Any]]:
        return self._fetch

    def _fetch(self, handles: list[Future]) -> list[Any]:
        return self._wait(handles, "answer", self.deadline_s)

    def dead_peers(self) -> list[Peer]:
        return []

    def _role_classes(self) -> dict[str, type]:
        return getattr(self._build, "role_classes", {})

    def shutdown(self) -> None:
        """Let the threads end; a call that is running goes on to its end."""
        for thread in self._threads:
            thread.shutdown(wait=False, cancel_futures=True)
        if self._port_holder is not None:
            self._port_holder.close()


def _run(env: dict[str, str], method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    with temp_env_vars(env):
        value = method(*args, **kwargs)
        return _travelled(asyncio.run(_awaited(value)) if inspect.isawaitable(value) else value)


async def _awaited(value: Any) -> Any:
    return await value


def _travelled(value: Any) -> Any:
    """The value as it would arrive in another process: batches copied, the rest as it is."""
    if isinstance(value, DataProto):
        return pickle.loads(pickle.dumps(value))
    if isinstance(value, dict):
        return {key: _travelled(item) for key, item in value.items()}
    return tuple(map(_travelled, value)) if isinstance(value, tuple) else value


def _values(handles: Sequence[Any], done: Any, silent: Any, what: str, deadline_s: float) -> list[Any]:
    for handle in handles:
        error = handle.exception() if handle in done else None
        if error is not None:
            error.add_note(f"raised by {what} on {handle.peer}")
            raise error
    if silent:
        raise expired(what, _names([handle for handle in handles if handle in silent]), deadline_s)
    return [handle.result() for handle in handles]


def _names(handles: Sequence[Any]) -> str:
    names = [str(handle.peer) for handle in itertools.islice(handles, 4)]
    return ", ".join(names) + (f" and {len(handles) - 4} more" if len(handles) > 4 else "")
