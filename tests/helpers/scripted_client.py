# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""A policy that answers what it is told to: an untrained model cannot be made to call a tool."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from verl.workers.rollout.schemas import TokenOutput


@dataclass
class ScriptedClient:
    """Answers the turns of a trajectory (one request id) with `turns`, cut to max_tokens; the last one repeats.

    Answers of a group come `straggle_s` apart.

    Without turns it echoes the prompt backwards. Each token has log-prob -0.5 and the version `version`.
    """

    turns: list[list[int]] = field(default_factory=list)
    version: int = 3
    delay_s: float = 0.0
    straggle_s: float = 0.0
    calls: list[list[tuple[str, list[int], dict[str, Any]]]] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=dict)

    async def stream_group(
        self, requests: Sequence[tuple[str, Sequence[int], dict[str, Any]]]
    ) -> AsyncIterator[tuple[int, TokenOutput]]:
        self.calls.append([(request_id, list(prompt), dict(params)) for request_id, prompt, params in requests])
        await asyncio.sleep(self.delay_s)
        for index, request in enumerate(requests):
            yield index, self._answer(*request)
            await asyncio.sleep(self.straggle_s)

    async def generate(self, request_id: str, *, prompt_ids: Any, sampling_params: Any, **_: Any) -> TokenOutput:
        async for _, output in self.stream_group([(request_id, prompt_ids, sampling_params)]):
            return output
        raise AssertionError("no answer")

    def _answer(self, request_id: str, prompt: Sequence[int], params: dict[str, Any]) -> TokenOutput:
        turn = self.seen.get(request_id, 0)
        self.seen[request_id] = turn + 1
        tokens = self.turns[min(turn, len(self.turns) - 1)] if self.turns else list(prompt)[::-1]
        tokens = tokens[: params.get("max_tokens")]
        return TokenOutput(
            token_ids=list(tokens),
            log_probs=[-0.5] * len(tokens) if params.get("logprobs") else None,
            stop_reason="completed",
            extra_fields={
                "global_steps": self.version,
                "min_global_steps": self.version,
                "max_global_steps": self.version,
                "token_versions": [self.version] * len(tokens),
            },
        )
