# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Programs scored in the sandbox and in limited local processes."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from local_sandbox import LocalSandbox

from verl.errors import RewardError
from verl.utils.reward_score import default_compute_score, prime_code, sandbox_fusion
from verl.utils.reward_score.code_harness import call_harness, extract_code, outputs_match, read_tests
from verl.utils.reward_score.prime_code.testing_util import run_program, run_test

ECHO = "print(input())"
SQUARE = "class Solution:\n    def square(self, x):\n        return x * x\n"


@pytest.fixture(scope="module")
def server() -> Iterator[LocalSandbox]:
    sandbox = LocalSandbox()
    yield sandbox
    sandbox.close()


def in_sandbox(server: LocalSandbox, code: str, tests: Any, **options: Any) -> Any:
    server.faults = []
    return sandbox_fusion.check_correctness(server.url, tests, code, timeout=options.pop("timeout", 60), **options)[0]


@pytest.mark.parametrize("where", ["sandbox", "local"])
def test_what_each_kind_of_program_comes_to(server: LocalSandbox, where: str) -> None:
    def judge(code: str, tests: dict[str, Any], timeout: float = 60) -> list[Any]:
        return (
            in_sandbox(server, code, tests, timeout=timeout)
            if where == "sandbox"
            else run_test(tests, code, timeout=timeout)[0]
        )

    late, failed, broken = (-3, -2, -4) if where == "sandbox" else (-1, -1, -2)
    assert judge(ECHO, {"inputs": ["5\n", "6\n"], "outputs": ["5", "7"]}) == [True, False]
    # A program that raises has not printed an empty answer.
    assert judge("raise ValueError", {"inputs": [""], "outputs": [""]}) == [failed]
    assert judge("pass", {"inputs": [""], "outputs": [""]}) == [True]
    assert judge("print('5')", {"inputs": [""], "outputs": ["5\n"]}) == [True]
    assert judge("while True: pass", {"inputs": [""], "outputs": [""]}, timeout=1) == [late]
    assert judge("def broken(:", {"inputs": ["", "", ""], "outputs": ["", "", ""]}) == [broken] * 3


@pytest.mark.parametrize("where", ["sandbox", "local"])
def test_lists_of_lines_are_what_a_program_reads_and_writes(server: LocalSandbox, where: str) -> None:
    tests = {"inputs": [["a", "b"], ["c", "d"]], "outputs": [["b", "a"], ["d", "d"]]}
    code = "first, second = input(), input()\nprint(second)\nprint(first)"
    judged = in_sandbox(server, code, tests) if where == "sandbox" else run_test(tests, code, timeout=60)[0]
    assert judged == [True, False]


def test_programs_and_arguments_may_be_longer_than_a_command_line() -> None:
    counting = "def count(numbers):\n    return len(numbers)"
    many = {"fn_name": "count", "inputs": [[list(range(50_000))]], "outputs": [50_000]}
    assert run_test(many, counting, timeout=60)[0] == [True]
    assert run_test({"inputs": ["1"], "outputs": ["1"]}, f"# {'x' * 200_000}\n{ECHO}", timeout=60)[0] == [True]


@pytest.mark.parametrize("where", ["sandbox", "local"])
def test_functions_are_called_and_an_error_in_them_is_no_empty_output(server: LocalSandbox, where: str) -> None:
    def judge(code: str, tests: dict[str, Any]) -> list[Any]:
        return in_sandbox(server, code, tests) if where == "sandbox" else run_test(tests, code, timeout=60)[0]

    tests = {"fn_name": "square", "inputs": ["3", "[4]"], "outputs": ["9", "16"]}
    failed = -2 if where == "sandbox" else -1
    assert judge(SQUARE, tests | {"inputs": ["3", "4"]}) == [True, True]
    assert judge("def square(x):\n    return str(x * x)", tests | {"inputs": ["3", "4"]}) == [True, True]
    raising = "class Solution:\n    def solve(self):\n        raise ValueError"
    silent = "class Solution:\n    def solve(self):\n        return None"
    assert judge(raising, {"fn_name": "solve", "inputs": [""], "outputs": [""]}) == [failed]
    assert judge(silent, {"fn_name": "solve", "inputs": [""], "outputs": [""]}) == [True]


def test_a_failing_sandbox_is_an_error_and_no_wrong_answer(
    server: LocalSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox_fusion.utils, "MAX_RETRIES", 1)
    monkeypatch.setattr(sandbox_fusion.utils, "INITIAL_RETRY_DELAY", 0.01)
    server.faults = ["sandbox_error"] * 8
    with pytest.raises(RewardError, match="sandbox failure: sandbox_error"):
        default_compute_score("codecontests", ECHO, {"inputs": ["1"], "outputs": ["1"]}, sandbox_fusion_url=server.url)
    server.faults = ["sandbox_error"]
    answer = f"Here:\n```python\n{ECHO}\n```"
    tests = json.dumps({"inputs": ["1", "2"], "outputs": ["1", "3"]})
    assert default_compute_score("apps", answer, tests, sandbox_fusion_url=server.url, memory_limit_mb=256) == 0.5
    assert server.requests[-1]["memory_limit_MB"] == 256


def test_the_share_counts_the_first_ten_cases() -> None:
    tests = {"inputs": [str(index) for index in range(12)], "outputs": [str(index % 11) for index in range(12)]}
    assert prime_code.compute_score(ECHO, tests, continuous=True)[0] == 1.0
    assert prime_code.compute_score(ECHO, tests)[0] == 0.0
    assert prime_code.compute_score("print(1)", {"inputs": ["", ""], "outputs": ["1", "2"]}, continuous=True)[0] == 0.5


def test_a_local_program_is_limited_and_leaves_nothing_running() -> None:
    return_code, _, stderr = run_program("x = bytearray(8 << 30)", "", 60)
    assert return_code != 0 and "MemoryError" in stderr
    return_code, stdout, _ = run_program("import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(60)", "", 10)
    assert return_code is None
    with pytest.raises(ProcessLookupError):
        __import__("os").kill(int(stdout), 0)
    assert run_program("print(input())", "grüße 你好\n", 60)[1] == "grüße 你好\n"
    assert "SECRET" not in run_program("import os; print(sorted(os.environ))", "", 60)[1]


def test_code_comes_from_the_last_fenced_block() -> None:
    assert extract_code("```python\na\n```\ntext\n```\nb\n```") == "b\n"
    assert extract_code("plain") == "plain"


@pytest.mark.parametrize(
    "tests", ["not json", {"inputs": []}, {"inputs": [1], "outputs": []}, {"inputs": [], "outputs": []}, 5]
)
def test_test_cases_that_are_none_are_an_error(tests: Any) -> None:
    with pytest.raises(RewardError):
        read_tests(tests)


@pytest.mark.parametrize(
    ("actual", "expected", "same"),
    [
        ("1 2\n", "1 2", True),
        ("1 2  \n3\n", "1 2\n3", True),
        ("0.30000000000000004", "0.3", True),
        ("1000000007", "1000000008", False),
        ("[1, 2]", "[1,2]", True),
        ("[1]", [[1]], True),
        ("true", "True", False),
        ("", "", True),
        ("a", "", False),
        ("1\n2", "1 2", True),
        # Deeper than Python recurses: wrong, and no failure of the scorer.
        ("[" * 100_000, "1", False),
    ],
)
def test_outputs_are_compared_by_their_content(actual: str, expected: Any, same: bool) -> None:
    assert outputs_match(actual, expected) is same


def test_a_harness_keeps_arguments_of_every_kind() -> None:
    code = "def f(*args):\n    return list(args)"
    _, stdout, stderr = run_program(call_harness(code, "f", '"a b"\n[1, {"k": "{}"}]\nnull'), "", 60)
    assert json.loads(stdout) == ["a b", [1, {"k": "{}"}], None], stderr
