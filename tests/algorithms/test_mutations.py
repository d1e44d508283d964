# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""A wrong sign, a forgotten mask, another denominator in any production formula is noticed by the reference checks.

Each fault is put into a copy of the module that exists in this process only, and met by the checks of that module.
"""

import pkgutil

import pytest
from checks import CHECKS
from mutate import mutants, source_of, survivors

import verl.algorithms

# What a fault divides by zero is no news.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

# The faults that change curves without a crash.
SIGN_MASK_DENOMINATOR = {"Add", "Sub", "Mult", "Div", "unary", "without mask", "masked_mean", "masked_sum"}

_NO_GRADIENT = "only compared or counted, so no gradient flows either way"
_SELECTED_AWAY = "the value is in the branch that is not taken"
_TWO_FORMS = "both forms give the same numbers, and both are checked"
_NO_GROUP = "ranks: tests/algorithms/test_micro_batches.py, with processes"
# Faults that change nothing, or nothing within one process: the text of the fault and why.
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
    "flag: True in return [list(range(start, start + size))": "both come from one list",
    "constant: 0 in reverse = [0]": "every place is written",
    "constant: 0 in heap = [(0, part)": "sums that all start one higher compare alike",
    "constant: 1 in number += 1": "only the order of the numbers counts",
    "constant: 1 in return [_State(np.where(run < 0": "NumPy takes any negative number for what is left",
    "constant: 1 in filled = np.concatenate": "any negative number stands for no item",
    "Eq: x_TB.device.type == 'cpu'": _TWO_FORMS,
    "Eq: values_BT.device.type == 'cpu'": _TWO_FORMS,
    "branch: _scan_by_token if": _TWO_FORMS,
    "branch: _next_by_token if": _TWO_FORMS,
    "branch: torch.accelerator.current_accelerator() if on_device": _NO_GROUP,
    "In: dist.get_backend(group) in ('nccl', 'hccl')": _NO_GROUP,
    "flag: True in front_BT = torch.argsort": "the sort of so few elements is stable anyway",
}


@pytest.mark.parametrize("module", CHECKS)
def test_no_small_fault_goes_unnoticed(module: str) -> None:
    unnoticed = survivors(module, CHECKS[module])
    assert [fault for fault in unnoticed if not any(fault.startswith(known) for known in EQUIVALENT)] == []


def test_every_module_of_formulas_is_swept() -> None:
    modules = {module.name for module in pkgutil.walk_packages(verl.algorithms.__path__, "verl.algorithms.")}
    formulas = {module for module in modules if any(True for _ in mutants(source_of(module)))}
    assert formulas - set(CHECKS) == set()


def test_what_is_called_equivalent_is_still_there_and_no_sign_mask_or_denominator() -> None:
    faults = [fault for module in CHECKS for fault, _ in mutants(source_of(module))]
    assert [known for known in EQUIVALENT if not any(fault.startswith(known) for fault in faults)] == []
    assert not {known.split(":")[0] for known in EQUIVALENT} & SIGN_MASK_DENOMINATOR


def test_the_harness_can_fail() -> None:
    assert survivors("verl.algorithms.value_loss", [lambda module: None])
