# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""A rate, and schemas from MCP's form to OpenAI's."""

import threading
import time
from typing import Any

__all__ = ["TokenBucket", "mcp2openai"]


class TokenBucket:
    """`rate_limit` calls a second, in bursts of at most that many."""

    def __init__(self, rate_limit: float) -> None:
        self.rate_limit = float(rate_limit)
        self._tokens = self.rate_limit
        self._updated_s = time.monotonic()
        self._lock = threading.Lock()

    def acquire(self) -> bool:
        """Take one if there is one; never waits."""
        with self._lock:
            now_s = time.monotonic()
            self._tokens = min(self.rate_limit, self._tokens + (now_s - self._updated_s) * self.rate_limit)
            self._updated_s = now_s
            if self._tokens < 1:
                return False
            self._tokens -= 1
            return True


def mcp2openai(mcp_tool: Any) -> dict[str, Any]:
    """The OpenAI function schema of an MCP tool."""
    parameters = dict(getattr(mcp_tool, "inputSchema", None) or {})
    return {
        "type": "function",
        "function": {
            "name": mcp_tool.name,
            "description": mcp_tool.description or "",
            "parameters": {"type": "object", "properties": {}}
            | parameters
            | {"required": parameters.get("required", [])},
            "strict": False,
        },
    }
