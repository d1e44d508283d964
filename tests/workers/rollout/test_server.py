# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Admission: what a server lets through between its pauses, whatever engine is behind it."""

import asyncio
from typing import Any

from verl.workers.rollout.schemas import TokenOutput
from verl.workers.rollout.server import RolloutServer


class Echo(RolloutServer):
    """A server whose engine repeats the prompt at once; it notes whether it was asked while it should stand still."""

    def __init__(self, config: Any, model_config: Any) -> None:
        super().__init__(config, model_config)
        self.max_model_len = 64
        self.still = False
        self.asked_while_still: list[str] = []

    async def _start_engine(self) -> None: ...

    async def _stop_engine(self) -> None: ...

    async def _engine_pids(self) -> list[int]:
        return []

    async def _answer(
        self, request_id: str, prompt_ids: list[int], params: dict[str, Any], budget: int, **media: Any
    ) -> TokenOutput:
        if self.still:
            self.asked_while_still.append(request_id)
        return TokenOutput(prompt_ids[:budget], stop_reason="completed")

    async def _abort_in_flight(self, reset_prefix_cache: bool) -> None:
        self.still = True

    async def _go_on(self) -> None:
        self.still = False

    async def _abort_one(self, request_id: str) -> None: ...

    async def clear_kv_cache(self) -> None: ...

    async def _stamp(self, version: int) -> None: ...

    async def _give_memory(self) -> None: ...

    async def _take_memory(self, tags: list[str]) -> None: ...

    async def collective_rpc(self, method: str, *args: Any, **kwargs: Any) -> list[Any]:
        return []


def test_a_pause_that_begins_as_another_ends_lets_nothing_through(rollout_config: Any, model_config: Any) -> None:
    async def run() -> tuple[list[str], TokenOutput]:
        server = Echo(rollout_config(), model_config)
        await server.abort_all_requests()
        waiting = asyncio.create_task(server.generate([1, 2], {}, "r"))
        await asyncio.sleep(0.01)
        # In one turn of the event loop: the waiting request is woken, and runs only after the next pause has begun.
        await server.resume_generation()
        await server.abort_all_requests()
        await asyncio.sleep(0.05)
        asked = list(server.asked_while_still)
        await server.resume_generation()
        return asked, await waiting

    asked, output = asyncio.run(run())
    assert asked == [] and output.token_ids == [1, 2]
