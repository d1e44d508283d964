# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Answers that are interrupted by weight updates."""

import asyncio
import copy
from collections.abc import AsyncIterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from verl.workers.rollout.partial import PartialAnswer, finish
from verl.workers.rollout.schemas import TokenOutput, VersionSpan


class ScriptedServer:
    """Answers from a list, and remembers what it was asked."""

    def __init__(self, outputs: list[TokenOutput]) -> None:
        self.outputs = list(outputs)
        self.asked: list[tuple[list[int], dict[str, Any]]] = []

    async def __call__(
        self, indices: list[int], requests: list[tuple[list[int], dict[str, Any]]]
    ) -> AsyncIterator[tuple[int, TokenOutput]]:
        self.asked += copy.deepcopy(requests)
        for position in range(len(requests)):
            yield position, self.outputs.pop(0)


def piece(tokens: list[int], stop_reason: str, version: int, log_probs: list[float] | None = None) -> TokenOutput:
    return TokenOutput(tokens, log_probs, stop_reason=stop_reason, extra_fields={"global_steps": version})


def run(server: ScriptedServer, answer: PartialAnswer) -> TokenOutput:
    (output,) = whole([answer], server)
    return output


def whole(answers: list[PartialAnswer], server: Any) -> list[TokenOutput]:
    async def collect() -> dict[int, TokenOutput]:
        return {index: output async for index, output in finish(answers, server)}

    outputs = asyncio.run(collect())
    return [outputs[index] for index in range(len(answers))]


def test_an_aborted_answer_is_continued_with_the_tokens_it_has() -> None:
    server = ScriptedServer([piece([1, 2], "aborted", 5, [-0.1, -0.2]), piece([3], "completed", 6, [-0.3])])
    output = run(server, PartialAnswer([7, 8], {}, budget=10, partial_rollout=True))
    assert output.token_ids == [1, 2, 3]
    assert output.log_probs == [-0.1, -0.2, -0.3]
    assert output.stop_reason == "completed"
    assert [prompt for prompt, _ in server.asked] == [[7, 8], [7, 8, 1, 2]]
    assert output.extra_fields["min_global_steps"] == 5
    assert output.extra_fields["max_global_steps"] == 6
    assert output.extra_fields["token_versions"] == [5, 5, 6]


def test_without_partial_rollout_an_aborted_answer_stays_aborted() -> None:
    server = ScriptedServer([piece([1, 2], "aborted", 5)])
    output = run(server, PartialAnswer([7, 8], {}, budget=10, partial_rollout=False))
    assert output.aborted
    assert len(server.asked) == 1


def test_callers_parameters_are_never_changed() -> None:
    params = {"max_new_tokens": 4, "seed": 3, "min_tokens": 3, "temperature": 1.0}
    before = copy.deepcopy(params)
    server = ScriptedServer([piece([1, 2], "aborted", 0), piece([3, 4], "completed", 1)])
    run(server, PartialAnswer([7], params, budget=4))
    assert params == before
    (_, first), (_, second) = server.asked
    assert (first["max_tokens"], second["max_tokens"]) == (4, 2)
    assert (first["min_tokens"], second["min_tokens"]) == (3, 1)
    assert first["seed"] == 3
    assert second["seed"] != 3, "with its seed again the engine would repeat the random numbers of the kept tokens"


def test_spans_of_one_piece_give_each_token_its_version() -> None:
    output = piece([1, 2, 3], "completed", 9)
    output.extra_fields["token_versions"] = [VersionSpan(8, 0, 2), VersionSpan(9, 2, 3)]
    result = run(ScriptedServer([output]), PartialAnswer([7], {}, budget=5))
    assert result.extra_fields["token_versions"] == [8, 8, 9]
    assert (result.extra_fields["min_global_steps"], result.extra_fields["max_global_steps"]) == (8, 9)


def test_an_answer_aborted_at_its_last_token_is_whole() -> None:
    server = ScriptedServer([piece([1, 2], "aborted", 0)])
    output = run(server, PartialAnswer([7], {}, budget=2))
    assert output.stop_reason == "completed"
    assert output.extra_fields["finish_reason"] == "length"


def test_an_answer_aborted_before_its_first_token_starts_again() -> None:
    server = ScriptedServer([piece([], "aborted", 3, []), piece([4], "completed", 4, [-1.0])])
    output = run(server, PartialAnswer([7], {"seed": 5}, budget=2))
    assert output.token_ids == [4]
    assert output.extra_fields["token_versions"] == [4]
    assert [params["seed"] for _, params in server.asked] == [5, 5]


@settings(deadline=None)
@given(st.lists(st.integers(0, 7), max_size=8), st.integers(1, 20))
def test_pieces_never_exceed_the_budget_and_join_without_gap(sizes: list[int], budget: int) -> None:
    class Server:
        def __init__(self) -> None:
            self.sizes = list(sizes)
            self.version = -1

        async def __call__(self, indices: list[int], requests: list[tuple[list[int], dict[str, Any]]]) -> Any:
            ((prompt, params),) = requests
            self.version += 1
            cut = self.sizes.pop(0) if self.sizes else budget
            tokens = list(range(len(prompt), len(prompt) + min(cut, params["max_tokens"])))
            stopped = "completed" if len(tokens) == params["max_tokens"] else "aborted"
            yield 0, piece(tokens, stopped, self.version)

    answer = PartialAnswer([0], {}, budget=budget)
    (output,) = whole([answer], Server())
    assert output.token_ids == list(range(1, budget + 1))
    versions = output.extra_fields["token_versions"]
    assert len(versions) == budget
    assert versions == sorted(versions)


def test_only_unfinished_answers_of_a_group_are_asked_for_again() -> None:
    outputs = [piece([1], "completed", 0), piece([2], "aborted", 0), piece([3], "completed", 1)]
    server = ScriptedServer(outputs)
    answers = [PartialAnswer([7], {}, budget=4), PartialAnswer([8], {}, budget=4)]
    first, second = whole(answers, server)
    assert (first.token_ids, second.token_ids) == ([1], [2, 3])
    assert [prompt for prompt, _ in server.asked] == [[7], [8], [8, 2]]


def test_an_answer_is_handed_over_while_its_siblings_are_still_made() -> None:
    async def server(indices: list[int], requests: list[tuple[list[int], dict[str, Any]]]) -> Any:
        for position in reversed(range(len(requests))):
            yield position, piece([9], "completed", 0)

    async def first() -> int:
        answers = [PartialAnswer([7], {}, budget=4) for _ in range(3)]
        stream = finish(answers, server)
        index, _ = await anext(stream)
        assert [answer.done for answer in answers] == [False, False, True]
        await stream.aclose()
        return index

    assert asyncio.run(first()) == 2
