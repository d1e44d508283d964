# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""vLLM's OpenAI routes on the server's own engine, built at the first request: most runs never ask for them."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from verl.workers.rollout.health_app import ASGI, respond
from verl.workers.rollout.vllm_rollout import vllm_symbols


class OpenAIRoutes:
    """ASGI: `/health` answers by itself, every other path by vLLM's application.

    `admit()` lets a request in when the server is neither paused nor stale, and counts it.
    """

    def __init__(
        self,
        health: ASGI,
        engine: Any,
        model: str,
        served_model_name: str | None,
        admit: Callable[[], AbstractAsyncContextManager[None]],
    ) -> None:
        self._health = health
        self._engine = engine
        self._arguments = ["--model", model, "--served-model-name", served_model_name or model]
        self._admit = admit
        self._app: ASGI | None = None
        self._building = asyncio.Lock()

    async def __call__(self, scope: dict[str, Any], receive: Callable[..., Any], send: Callable[..., Any]) -> None:
        if scope["type"] == "http" and scope["path"] == "/health":
            await self._health(scope, receive, send)
            return
        async with self._building:
            if self._app is None:
                self._app = await self._build()
        async with self._admit():
            await self._app(scope, receive, send)

    async def _build(self) -> ASGI:
        vllm = vllm_symbols.load("http")
        arguments = vllm.make_arg_parser(vllm.FlexibleArgumentParser()).parse_args(self._arguments)
        tasks = await self._engine.get_supported_tasks()
        app = vllm.build_app(arguments, tasks, self._engine.model_config)
        await vllm.init_app_state(self._engine, app.state, arguments, tasks)
        return app


def without_tokenizer(health: ASGI) -> ASGI:
    """`/health`, and for every other path the key that brings the OpenAI routes."""

    async def app(scope: dict[str, Any], receive: Callable[..., Any], send: Callable[..., Any]) -> None:
        if scope["type"] == "http" and scope["path"] != "/health":
            key = "actor_rollout_ref.rollout.skip_tokenizer_init=false"
            await respond(send, 404, {"error": f"the OpenAI routes need the tokenizer: set {key}"})
            return
        await health(scope, receive, send)

    return app
