# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""`GET /health` as a plain ASGI application: nothing to import, nothing to build."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

from verl.errors import VerlError

ASGI = Callable[[dict[str, Any], Callable[..., Any], Callable[..., Any]], Awaitable[None]]


def health_app(health: Callable[[], Awaitable[dict[str, Any]]]) -> ASGI:
    """200 with the facts of `health()`, 503 with its error, 404 for any other path."""

    async def app(scope: dict[str, Any], receive: Callable[..., Any], send: Callable[..., Any]) -> None:
        if scope["type"] != "http":
            return
        if scope["path"] != "/health":
            await respond(send, 404, {"error": "this server answers /health"})
            return
        try:
            await respond(send, 200, await health())
        except VerlError as error:
            await respond(send, 503, {"error": str(error)})

    return app


async def respond(send: Callable[..., Any], status: int, body: dict[str, Any]) -> None:
    """One JSON answer."""
    payload = json.dumps(body).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(payload)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": payload})
