# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""A wrong sign, a forgotten mask, another denominator in any production formula is noticed by the reference checks."""

import pytest
from checks import CHECKS
from mutate import SIGN_MASK_DENOMINATOR, survivors

_NO_GRADIENT = "only compared or counted, so no gradient flows either way"
_SELECTED_AWAY = "the value is in the branch that is not taken"
# Faults that change nothing: the text of the fault and why.
EQUIVALENT = {
    "without clamp: (total - 1).clamp(min=1e-06)": _SELECTED_AWAY,
    "without clamp: (groups.size_B - 1).clamp(min=1)": _SELECTED_AWAY,
    "without detach: parameter.grad.detach()": _NO_GRADIENT,
    "without detach: log_ratio.detach() in ppo_kl=": _NO_GRADIENT,
    "without detach: x.log_ratio.detach() in divergence": _NO_GRADIENT,
    "without detach: x.log_prob.detach() in return x.old_log_prob.exp()": _NO_GRADIENT,
    'without detach: x.ratio.detach() in "actor/pg_clipfrac"': _NO_GRADIENT,
    "without detach: distance.detach() in metrics": _NO_GRADIENT,
    "without detach: x.log_prob.detach() in log_prob = x.log_prob.detach()": _NO_GRADIENT,
    "constant: 1 in rows.scatter_add_": "a longer source is allowed",
    "constant: 1 in rows = max(1, CHUNK_ELEMENTS": "how many rows go into a chunk changes no result",
    "constant: 1.0 in weights = setting(config": "equal weights vanish in the whitening",
    "constant: 0.0 in weight * normalize_in_group": "rows that take no part are not read",
    "constant: 0.0 in others_end_B": "every row that counts ends at 1 or later",
    "constant: 1 in places = candidate.flatten()": "-1 and -2 are the same after nonzero of a vector with one column",
    "constant: 0.0 in rollout_rs_threshold_lower": "not read where no lower bound applies",
    "flag: True in for weight, reward_B in zip": "lengths are checked before",
    "flag: True in return tuple(_rule(name, value)": "lengths are checked before",
    "flag: True in return [None if failed else total": "both have an entry for each row",
    "flag: True in return sum(value * weight": "lengths are checked before",
    "flag: True in for row, (source, uid) in enumerate(zip": "lengths are checked before",
    'flag: True in for name, value in zip(("mean", "std", "max", "min")': "lengths are checked before",
    "constant: 0 in joined = metric_lists[0]": "all are of one kind, which is checked before",
    "constant: 1 in number, kinds": "one more kind of vote that nobody casts",
    "without detach: values.detach() in values = values.detach().double()": _NO_GRADIENT,
    "flag: True in front_BT = torch.argsort": "the sort of so few elements is stable anyway",
}


@pytest.mark.parametrize("module", CHECKS)
def test_no_wrong_sign_mask_or_denominator_goes_unnoticed(module: str) -> None:
    _, unnoticed = survivors(module, CHECKS[module], SIGN_MASK_DENOMINATOR)
    assert unnoticed == []


@pytest.mark.long
@pytest.mark.parametrize("module", CHECKS)
def test_no_small_fault_at_all_goes_unnoticed(module: str) -> None:
    number, unnoticed = survivors(module, CHECKS[module])
    assert number > 0
    assert [fault for fault in unnoticed if not any(fault.startswith(known) for known in EQUIVALENT)] == []


def test_the_harness_can_fail() -> None:
    _, unnoticed = survivors("verl.algorithms.value_loss", [lambda module: None])
    assert unnoticed
