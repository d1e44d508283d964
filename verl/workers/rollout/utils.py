# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Small parts of a rollout server: an HTTP listener on a free port, model limits, log redirection."""

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

from verl.errors import ConfigError, PeerLost
from verl.utils.import_utils import optional_import

T = TypeVar("T")


def get_max_position_embeddings(hf_config: Any) -> int:
    """The longest sequence that the model's positions allow, looked up in the text part of a composite model."""
    text = hf_config.get_text_config() if hasattr(hf_config, "get_text_config") else hf_config
    for name in ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length"):
        value = getattr(text, name, None)
        if value:
            return int(value)
    raise ConfigError(
        "the model's configuration does not say how long a sequence may be",
        where="max_position_embeddings",
        remedy="set actor_rollout_ref.rollout.max_model_len",
    )


def listen(host: str) -> socket.socket:
    """A listening socket on a free port of `host`; it is never closed and bound again, so no one can take the port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.bind((host, 0))
        listener.listen(2048)
    except OSError:
        listener.close()
        raise
    listener.set_inheritable(False)
    return listener


async def run_uvicorn(app: Callable[..., Any], server_args: Any, server_address: str) -> tuple[int, asyncio.Task[None]]:
    """Serve an ASGI app on a free port of `server_address`; returns the port and the serving task.

    `server_args` may carry `log_level` and `timeout_keep_alive`; cancel the task to stop the listener.
    """
    uvicorn = optional_import("uvicorn", needed_for="the HTTP endpoint of a rollout server")
    listener = listen(server_address)
    config = uvicorn.Config(
        app,
        log_level=getattr(server_args, "log_level", None) or "warning",
        timeout_keep_alive=getattr(server_args, "timeout_keep_alive", None) or 60,
        lifespan="off",
        access_log=False,
    )
    server = uvicorn.Server(config)
    # Signals belong to the process, not to one of its listeners.
    server.capture_signals = contextlib.nullcontext
    task = asyncio.create_task(_serve(server, listener), name="uvicorn")
    # The socket already listens: a caller that is early waits in its backlog, so nothing has to be polled here.
    await asyncio.sleep(0)
    if task.done():
        raise PeerLost(f"the HTTP listener on {server_address} ended at its start: {task.exception()!r}")
    return listener.getsockname()[1], task


async def _serve(server: Any, listener: socket.socket) -> None:
    try:
        await server.serve(sockets=[listener])
    finally:
        listener.close()


async def ensure_async_iterator(iterable: Any) -> AsyncIterator[Any]:
    """Iterate anything iterable, asynchronous or not."""
    if hasattr(iterable, "__aiter__"):
        async for item in iterable:
            yield item
        return
    for item in iterable:
        yield item


def qwen2_5_vl_dedup_image_tokens(prompt_ids: list[int], processor: Any) -> list[int]:
    """One placeholder per image or video: vLLM widens it again, so the processor's run of them must go."""
    kind = type(getattr(processor, "image_processor", None)).__name__
    if processor is None or "Qwen2VLImageProcessor" not in kind:
        return prompt_ids
    placeholders = {processor.image_token_id, processor.video_token_id}
    deduplicated: list[int] = []
    for token, run in groupby(prompt_ids):
        deduplicated.extend([token] if token in placeholders else run)
    return deduplicated


def redirect_output(path: str | Path) -> None:
    """Send this process's stdout and stderr, and those of its children, to a file from now on.

    Engines write thousands of lines, some from C++ and from their own children, so the redirection is at the level of
    file descriptors.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)


def tail(path: str | Path, lines: int = 12) -> str:
    """The last lines of a log, for an error message; empty where there is no log."""
    try:
        text = Path(path).read_text(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])


async def gather_or_cancel(*calls: Coroutine[Any, Any, T]) -> list[T]:
    """Results in order; the first failure cancels the others and is raised as itself."""
    tasks: list[asyncio.Task[T]] = []
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(call) for call in calls]
    except BaseExceptionGroup as error:
        raise error.exceptions[0] from error
    return [task.result() for task in tasks]
