# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
import json
import subprocess
import sys
from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from verl.utils.json_utils import dumps, to_jsonable


def strict(line: str) -> Any:
    def refuse(token: str) -> Any:
        raise ValueError(token)

    return json.loads(line, parse_constant=refuse)


def test_a_dump_of_numpy_and_torch_values_keeps_numbers_as_numbers() -> None:
    record = {
        "a": np.int64(3),
        "b": np.bool_(True),
        "c": np.array([1, 2]),
        "d": np.float32("nan"),
        "e": torch.tensor(2),
        "f": Path("x"),
        "g": {1: np.int32(1)},
        "h": b"x",
    }
    line = dumps(record)
    expected = {"a": 3, "b": True, "c": [1, 2], "d": None, "e": 2, "f": "x", "g": {"1": 1}, "h": "x"}
    assert strict(line) == expected
    assert '"a": 3' in line and '"b": true' in line


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float16(0.5), 0.5),
        (np.str_("text"), "text"),
        (np.array(7), 7),
        (np.array([[True, False]]), [[True, False]]),
        (np.array([1.0, np.nan, np.inf]), [1.0, None, None]),
        (np.array([{"x": np.int8(1)}, None], dtype=object), [{"x": 1}, None]),
        (np.longdouble(1.5), 1.5),
        (np.datetime64("2026-01-02"), "2026-01-02"),
        (torch.tensor([1.5, float("-inf")], dtype=torch.bfloat16), [1.5, None]),
        (torch.tensor(True), True),
        (torch.zeros(2, 0, requires_grad=True), [[], []]),
        (float("nan"), None),
        (-float("inf"), None),
        ((1, {2}), [1, [2]]),
        (OrderedDict(a=1), {"a": 1}),
        ({True: 1, None: 2, (1, 2): 3, np.int64(4): 5}, {"true": 1, "null": 2, "[1, 2]": 3, "4": 5}),
        (b"\xff", "\\xff"),
        (datetime(2026, 1, 2, 3, 4, 5), "2026-01-02T03:04:05"),
        (1 + 2j, "(1+2j)"),
        (2**80, 2**80),
    ],
)
def test_each_kind_of_value_has_one_json_form(value: Any, expected: Any) -> None:
    assert strict(dumps(value)) == expected


def test_enums_dataclasses_and_subclasses_are_seen_through() -> None:
    class Color(StrEnum):
        RED = "red"

    class Count(int):
        pass

    @dataclass(frozen=True)
    class Point:
        x: Any
        y: Any

    assert to_jsonable(Point(np.float64(1), Color.RED)) == {"x": 1.0, "y": "red"}
    assert type(to_jsonable(Count(3))) is int


def test_an_object_that_cannot_be_shown_does_not_stop_the_dump() -> None:
    class Broken:
        def __str__(self) -> str:
            raise RuntimeError("no")

    assert to_jsonable({"x": Broken()}) == {"x": "<Broken whose str() raises RuntimeError>"}


def test_a_value_that_contains_itself_ends() -> None:
    loop: list[Any] = [1]
    loop.append(loop)
    assert to_jsonable(loop) == [1, "<list that contains itself>"]
    twice = [0]
    assert to_jsonable([twice, twice]) == [[0], [0]]


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x), max_leaves=10))
def test_plain_values_come_back_as_they_were(value: Any) -> None:
    assert json.loads(json.dumps(to_jsonable(value))) == value


def test_the_module_loads_without_torch() -> None:
    code = "import sys, verl.utils.json_utils; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
