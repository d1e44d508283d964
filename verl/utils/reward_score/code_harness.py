# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""What scoring programs has in common, wherever they run: code out of an answer, test cases, comparison."""

import json
import math
import re
from collections.abc import Sequence
from typing import Any

from verl.errors import RewardError

# Of a program with many test cases, the first ten make up its share.
MAX_SHARED_CASES = 10

__all__ = [
    "MAX_SHARED_CASES",
    "call_harness",
    "extract_code",
    "outputs_match",
    "read_tests",
    "share_passed",
    "stream_text",
]

_FENCE = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)```", re.DOTALL)

# Names that solutions of programming contests take for granted.
_PRELUDE = """\
from typing import *
from functools import *
from collections import *
from itertools import *
from heapq import *
from bisect import *
from string import *
from operator import *
from math import *
import collections, functools, itertools, heapq, bisect, string, operator, math, random, re, copy, sys, json
"""

# The child's protocol: what it prints is the result that is compared.
_CALL = """

if __name__ == "__main__":
    # No `try` around it: an error must end the program with a return code of its own, not with empty output.
    _arguments = json.loads({arguments!r})
    _target = Solution() if "Solution" in globals() else None
    _function = getattr(_target, {name!r}, None) or globals()[{name!r}]
    _result = _function(*_arguments)
    print(_result if isinstance(_result, str) else json.dumps(_result) if _result is not None else "")
"""


def extract_code(completion: str) -> str:
    """The last fenced block of an answer, or the whole answer where there is none."""
    blocks = _FENCE.findall(completion)
    return blocks[-1] if blocks else completion


def read_tests(test_cases: Any) -> dict[str, Any]:
    """Test cases as a dict with `inputs` and `outputs` of one length.

    Raises
    ------
    RewardError
        when they are no such thing: then no answer can be judged.
    """
    if isinstance(test_cases, str | bytes):
        try:
            test_cases = json.loads(test_cases)
        except json.JSONDecodeError as error:
            raise RewardError("the test cases are no JSON", got=str(error)) from error
    if not isinstance(test_cases, dict) or not {"inputs", "outputs"} <= set(test_cases):
        raise RewardError("no test cases", got=type(test_cases).__name__, expected="a dict with inputs and outputs")
    if len(test_cases["inputs"]) != len(test_cases["outputs"]) or not len(test_cases["inputs"]):
        raise RewardError(
            "test cases do not match",
            got=f"{len(test_cases['inputs'])} inputs and {len(test_cases['outputs'])} outputs",
            expected="as many of each, and at least one",
        )
    return test_cases


def call_harness(code: str, fn_name: str, case_input: Any) -> str:
    """A program that calls `fn_name` (of the module, or of a class `Solution`) and prints its result as JSON.

    `case_input` holds one JSON value a line, or the list of arguments itself.
    """
    if isinstance(case_input, str):
        arguments = [json.loads(line) for line in case_input.split("\n") if line.strip()]
    else:
        arguments = list(case_input)
    return _PRELUDE + code + _CALL.format(arguments=json.dumps(arguments), name=fn_name)


def stream_text(case: Any) -> str:
    """A case's input or output as a program reads or writes it: text as it is, a list as one entry a line."""
    if isinstance(case, str):
        return case
    return "\n".join(map(str, case)) if isinstance(case, list | tuple) else json.dumps(case)


def outputs_match(actual: str, expected: Any) -> bool:
    """Whether two outputs are the same but for space at line ends, a final newline, and how numbers are written."""
    actual = actual.rstrip()
    expected_text = expected if isinstance(expected, str) else json.dumps(expected)
    if _lines(actual) == _lines(expected_text.rstrip()):
        return True
    if _tokens_match(actual.split(), expected_text.split()):
        return True
    return _json_match(actual, expected)


def share_passed(results: Sequence[Any], continuous: bool) -> float:
    """Share of the cases that are True, or with `continuous=False` 1 for all of them and 0 otherwise."""
    passed = sum(result is True for result in results) / len(results)
    return passed if continuous else float(passed == 1.0)


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.split("\n")]


def _tokens_match(actual: list[str], expected: list[str]) -> bool:
    return len(actual) == len(expected) > 0 and all(
        a == b or _close(a, b) for a, b in zip(actual, expected, strict=True)
    )


def _close(a: str, b: str) -> bool:
    if not (set(".eE") & set(a + b)):
        # Whole numbers are compared to the last digit, however long.
        return False
    try:
        return math.isclose(float(a), float(b), rel_tol=1e-6, abs_tol=1e-9)
    except ValueError:
        return False


def _json_match(actual: str, expected: Any) -> bool:
    """Results of called functions: compared as values, a list of one equal to its element (old data sets wrap it)."""
    try:
        value = json.loads(actual)
        wanted = json.loads(expected) if isinstance(expected, str) else expected
    except (ValueError, RecursionError):
        return False
    return value == wanted or (isinstance(wanted, list) and len(wanted) == 1 and value == wanted[0])
