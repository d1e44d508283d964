# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""An answer that survives weight updates: keep the tokens of an aborted request, continue with prompt + tokens."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from verl.workers.rollout.sampling import continuation_seed
from verl.workers.rollout.schemas import TokenOutput, version_of_each_token


class PartialAnswer:
    """One answer in the making; the caller's prompt and sampling parameters are copied, never changed.

    `budget` bounds all pieces together. `partial_rollout=False` leaves an aborted answer as it is.
    """

    def __init__(
        self, prompt_ids: Sequence[int], sampling_params: dict[str, Any], *, budget: int, partial_rollout: bool = True
    ) -> None:
        self.prompt_ids = list(prompt_ids)
        self.partial_rollout = partial_rollout
        self.done = False
        self._params = {key: value for key, value in sampling_params.items() if key != "max_new_tokens"}
        self._budget = budget
        self._tokens: list[int] = []
        self._log_probs: list[float] | None = []
        self._versions: list[int] = []
        self._pieces: list[TokenOutput] = []

    def next_request(self) -> tuple[list[int], dict[str, Any]]:
        """Prompt and parameters of the next piece."""
        kept = len(self._tokens)
        params = dict(self._params, max_tokens=self._budget - kept)
        if params.get("min_tokens"):
            params["min_tokens"] = max(0, params["min_tokens"] - kept)
        if params.get("seed") is not None:
            params["seed"] = continuation_seed(params["seed"], kept)
        return self.prompt_ids + self._tokens, params

    def absorb(self, piece: TokenOutput) -> None:
        """Append what a server answered; afterwards `done` says whether the answer is whole."""
        self._pieces.append(piece)
        self._tokens += piece.token_ids
        self._versions += version_of_each_token(piece)
        if self._log_probs is None or piece.log_probs is None:
            self._log_probs = None
        else:
            self._log_probs += piece.log_probs
        self.done = not (piece.aborted and self.partial_rollout) or len(self._tokens) >= self._budget

    def result(self) -> TokenOutput:
        """The whole answer; `extra_fields` carry the version of each token and the first and last of them."""
        last = self._pieces[-1]
        spent = last.aborted and self.partial_rollout
        versions = self._versions or [int(last.extra_fields.get("global_steps", -1))]
        fields = {
            **last.extra_fields,
            "global_steps": versions[-1],
            "min_global_steps": min(versions),
            "max_global_steps": max(versions),
            "token_versions": list(self._versions),
            "num_pieces": len(self._pieces),
        }
        if spent:
            fields["finish_reason"] = "length"
        preempted = [piece.num_preempted for piece in self._pieces if piece.num_preempted is not None]
        return TokenOutput(
            token_ids=self._tokens,
            log_probs=self._log_probs,
            routed_experts=last.routed_experts,
            stop_reason="completed" if spent else last.stop_reason,
            num_preempted=sum(preempted) if preempted else None,
            extra_fields=fields,
        )


async def finish(
    answers: Sequence[PartialAnswer],
    call: Callable[[list[int], list[tuple[list[int], dict[str, Any]]]], AsyncIterator[tuple[int, TokenOutput]]],
) -> AsyncIterator[tuple[int, TokenOutput]]:
    """Call until every answer is whole; yields `(index, answer)` as soon as one is.

    `call(indices, requests)` sends the next piece of the answers at `indices` and yields `(position, output)` in any
    order; a server that is paused holds the call until it resumes.
    """
    while pending := [index for index, answer in enumerate(answers) if not answer.done]:
        async for position, output in call(pending, [answers[index].next_request() for index in pending]):
            answer = answers[pending[position]]
            answer.absorb(output)
            if answer.done:
                yield pending[position], answer.result()
