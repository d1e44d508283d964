# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""NumPy out of nested values."""

from typing import Any

import numpy as np

from verl.utils.plain import to_plain


def types_of(value: Any) -> set[str]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return {type(value).__module__}.union(*map(types_of, inner))


def test_no_numpy_is_left_at_any_depth() -> None:
    nested = {
        "a": np.array([{"b": np.int64(3), "c": np.array([[1, 2], [3, 4]])}], dtype=object),
        "d": (np.float32(0.5), np.bool_(True), np.str_("x")),
        "e": [None, "text", b"bytes", 1, 2.0, True],
    }
    plain = to_plain(nested)
    assert plain == {
        "a": [{"b": 3, "c": [[1, 2], [3, 4]]}],
        "d": [0.5, True, "x"],
        "e": [None, "text", b"bytes", 1, 2.0, True],
    }
    assert types_of(plain) == {"builtins"}


def test_what_it_does_not_know_stays_the_same_object() -> None:
    thing = object()
    assert to_plain({"x": thing})["x"] is thing
