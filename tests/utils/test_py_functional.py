# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Helpers on plain values."""

import os
import pickle
import threading
import time
from typing import Any

import numpy as np
import pytest
from omegaconf import OmegaConf

from verl.errors import ConfigError, DataError, WaitTimeout
from verl.utils.py_functional import (
    DynamicEnum,
    NestedNamespace,
    append_to_dict,
    convert_nested_value_to_list_recursive,
    convert_to_regular_types,
    list_of_dict_to_dict_of_list,
    rename_dict,
    temp_env_var,
    timeout_limit,
    union_two_dict,
)


def test_dictionaries_unite_unless_they_disagree() -> None:
    assert union_two_dict({"a": 1}, {"a": 1, "b": np.array([1, 2])})["b"].tolist() == [1, 2]
    with pytest.raises(DataError, match="a: both"):
        union_two_dict({"a": 1}, {"a": 2})


def test_values_collect_in_lists_under_their_prefixed_keys() -> None:
    metrics: dict[str, list] = {}
    append_to_dict(metrics, {"loss": 1.0})
    append_to_dict(metrics, {"loss": 2.0, "kl": 3.0})
    append_to_dict(metrics, {"loss": 4.0}, prefix="actor/")
    assert metrics == {"loss": [1.0, 2.0], "kl": [3.0], "actor/loss": [4.0]}


def test_rows_become_columns() -> None:
    assert list_of_dict_to_dict_of_list([{"a": 1, "b": 2}, {"a": 3, "b": 4}]) == {"a": [1, 3], "b": [2, 4]}
    assert list_of_dict_to_dict_of_list([]) == {}
    with pytest.raises(DataError, match=r"row 1.*'b'"):
        list_of_dict_to_dict_of_list([{"a": 1}, {"a": 1, "b": 2}])


def test_keys_get_a_prefix_once() -> None:
    assert rename_dict({"loss": 1, "val/acc": 2}, prefix="val") == {"val/loss": 1, "val/acc": 2}
    assert rename_dict({"a": 1}) == {"a": 1}


def test_configurations_become_plain_containers() -> None:
    config = OmegaConf.create({"a": {"b": [1, {"c": 2}]}, "s": "text"})
    plain = convert_to_regular_types(config)
    assert plain == {"a": {"b": [1, {"c": 2}]}, "s": "text"}
    assert type(plain["a"]) is dict
    assert type(plain["a"]["b"]) is list


def test_arrays_inside_values_become_lists() -> None:
    value = {"a": np.array([1, 2]), "b": [np.float32(0.5), (np.bool_(True),)], "c": np.array([{"d": np.int64(1)}])}
    plain = convert_nested_value_to_list_recursive(value)
    assert plain == {"a": [1, 2], "b": [0.5, [True]], "c": [{"d": 1}]}
    assert type(plain["b"][1][0]) is bool


def test_nested_dictionaries_read_as_attributes() -> None:
    space = NestedNamespace({"actor": {"lr": 1e-6}, "n": 4})
    assert space.actor.lr == 1e-6
    assert space.n == 4
    with pytest.raises(DataError):
        NestedNamespace({1: 2})


class Colour(DynamicEnum):
    _registry = {}
    _next_value = 0


def test_an_enum_grows_and_its_members_stay_themselves() -> None:
    red = Colour.register("red")
    blue = Colour.register("BLUE")
    assert (Colour.RED, Colour["BLUE"], Colour.from_name("blue")) == (red, blue, blue)
    assert (red.value, blue.value) == (0, 1)
    assert Colour.names() == ["RED", "BLUE"]
    assert list(Colour) == Colour.values() == [red, blue]
    assert "RED" in Colour
    assert red in Colour
    assert Colour.from_name("green") is None
    assert pickle.loads(pickle.dumps(red)) is red
    with pytest.raises(ConfigError, match="already"):
        Colour.register("Red")
    assert Colour.remove("red") is red
    assert not hasattr(Colour, "RED")
    assert Colour.register("red").value == 2, "a value is never given twice"
    for name in Colour.names():
        Colour.remove(name)


def test_a_variable_is_set_for_a_while_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERL_TEST_OLD", "before")
    monkeypatch.delenv("VERL_TEST_NEW", raising=False)
    with temp_env_var("VERL_TEST_OLD", "during"), temp_env_var("VERL_TEST_NEW", "x"):
        assert (os.environ["VERL_TEST_OLD"], os.environ["VERL_TEST_NEW"]) == ("during", "x")
    assert os.environ["VERL_TEST_OLD"] == "before"
    assert "VERL_TEST_NEW" not in os.environ


@pytest.mark.parametrize("use_signals", [True, False])
def test_a_call_that_takes_too_long_raises_with_its_name(use_signals: bool) -> None:
    @timeout_limit(0.2, use_signals=use_signals)
    def slow(seconds: float) -> str:
        time.sleep(seconds)
        return "done"

    assert slow(0.0) == "done"
    with pytest.raises(WaitTimeout, match=r"waited 0\.2 s for return from .*slow"):
        slow(5.0)


@pytest.mark.parametrize("use_signals", [True, False])
def test_an_error_of_the_call_itself_stays_what_it_is(use_signals: bool) -> None:
    @timeout_limit(5, use_signals=use_signals)
    def fails(error: Exception) -> None:
        raise error

    for error in (ValueError("mine"), TimeoutError("mine too")):
        with pytest.raises(type(error), match="mine"):
            fails(error)


def test_without_signals_a_limit_works_in_any_thread() -> None:
    seen: list[Any] = []

    @timeout_limit(0.1)
    def slow() -> None:
        time.sleep(5)

    def run() -> None:
        try:
            slow()
        except WaitTimeout as error:
            seen.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(10)
    assert len(seen) == 1
