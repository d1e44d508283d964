# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""What a reward function may return, made plain: a finite number, and a dict of plain extras.

No torch and no NumPy import: this runs in the processes that score.
"""

import math
from collections.abc import Mapping
from typing import Any

from verl.errors import RewardError

# How the error of a call that ran into its deadline begins.
TIMEOUT = "timeout: "


def to_number(value: Any) -> float:
    """A finite float from float, int, bool, a NumPy scalar, or an array or tensor of one element.

    Raises
    ------
    RewardError
        for None, text, lists, NaN and infinities: none of them is a score.
    """
    if hasattr(value, "item") and not isinstance(value, str | bytes):
        if getattr(value, "size", 1) != 1 and not callable(getattr(value, "size", None)):
            raise RewardError("the reward function returned an array", got=value, expected="one number")
        try:
            value = value.item()
        except (RuntimeError, ValueError) as error:
            raise RewardError("the reward function returned a tensor", got=value, expected="one number") from error
    if not isinstance(value, bool | int | float):
        raise RewardError(
            "the reward function returned no number",
            got=value,
            expected="a float, an int, a bool, or a dict with the key 'score'",
        )
    number = float(value)
    if not math.isfinite(number):
        raise RewardError("the reward function returned no finite number", got=number, expected="a finite number")
    return number


def split_result(result: Any) -> tuple[float, dict[str, Any]]:
    """(score, extras) of a return value; a bare number is also recorded as `acc`."""
    if not isinstance(result, Mapping):
        score = to_number(result)
        return score, {"acc": score}
    if "score" not in result:
        raise RewardError("the reward function returned a dict without 'score'", got=sorted(map(str, result)))
    score = to_number(result["score"])
    return score, {str(key): plain(value) for key, value in result.items()} | {"score": score}


def plain(value: Any) -> Any:
    """Python numbers, text, lists and dicts; tensors and arrays become numbers or lists, anything else its text."""
    if value is None or type(value) in (bool, int, float, str, bytes):
        return value
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return str(value)
