# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Calls that the loops of one group make at the same moment travel together."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Generic, TypeVar

from verl.errors import PeerLost
from verl.workers.rollout.schemas import TokenOutput

Request = TypeVar("Request")
Answer = TypeVar("Answer")

# Loops of a group start in one turn of the event loop. What comes later than this has had work of its own to do,
# and must not wait: a finished trajectory reaches its reward within 5 ms.
WINDOW_S = 0.002


class Coalescer(Generic[Request, Answer]):
    """Gathers the requests of `WINDOW_S` seconds into one call of `send`, which yields `(index, answer)` as they come.

    A failing call fails every request in it that has no answer yet; one whose caller is cancelled goes on for the
    others.
    """

    def __init__(
        self, send: Callable[[list[Request]], AsyncIterator[tuple[int, Answer]]], window_s: float = WINDOW_S
    ) -> None:
        self._send = send
        self._window_s = window_s
        self._waiting: list[tuple[Request, asyncio.Future[Answer]]] = []
        self._calls: set[asyncio.Task[None]] = set()

    async def ask(self, request: Request) -> Answer:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        self._waiting.append((request, future))
        if len(self._waiting) == 1:
            loop.call_later(self._window_s, self._flush)
        return await future

    async def close(self) -> None:
        """Cancel what is under way: its callers are gone."""
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)

    def _flush(self) -> None:
        batch, self._waiting = self._waiting, []
        batch = [(request, future) for request, future in batch if not future.done()]
        if not batch:
            return
        call = asyncio.get_running_loop().create_task(self._call(batch))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    async def _call(self, batch: list[tuple[Request, asyncio.Future[Answer]]]) -> None:
        futures = [future for _, future in batch]
        try:
            async for index, answer in self._send([request for request, _ in batch]):
                if not futures[index].done():
                    futures[index].set_result(answer)
            self._fail(futures, PeerLost("a call ended without all of its answers"))
        except asyncio.CancelledError:
            for future in futures:
                future.cancel()
            raise
        except Exception as error:
            self._fail(futures, error)

    @staticmethod
    def _fail(futures: Sequence[asyncio.Future[Answer]], error: Exception) -> None:
        for future in futures:
            if not future.done():
                future.set_exception(error)


class GroupClient:
    """The `server_manager` of one group's loops: text requests of one moment are one `stream_group` call."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._coalescer: Coalescer[tuple[str, Sequence[int], dict[str, Any]], TokenOutput] = Coalescer(
            client.stream_group
        )

    async def generate(
        self,
        request_id: str,
        *,
        prompt_ids: Sequence[int],
        sampling_params: dict[str, Any],
        image_data: list[Any] | None = None,
        video_data: list[Any] | None = None,
        **kwargs: Any,
    ) -> TokenOutput:
        """As `LLMServerClient.generate`; pictures, videos and further arguments travel alone."""
        if image_data or video_data or kwargs:
            return await self._client.generate(
                request_id,
                prompt_ids=prompt_ids,
                sampling_params=sampling_params,
                image_data=image_data,
                video_data=video_data,
                **kwargs,
            )
        return await self._coalescer.ask((request_id, prompt_ids, dict(sampling_params)))

    async def close(self) -> None:
        await self._coalescer.close()
