# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The benchmark of the hot functions: every one is there, runs, and is compared with its reference."""

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from verl.algorithms.advantages import ADV_ESTIMATOR_REGISTRY
from verl.algorithms.policy_losses import POLICY_LOSS_REGISTRY

DIRECTORY = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture()
def benchmark(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as it is run: with its directory on the path, and with the limits of this process kept."""
    monkeypatch.syspath_prepend(str(DIRECTORY))
    monkeypatch.setattr("resource.setrlimit", lambda *_: None)
    monkeypatch.setattr("torch.set_num_threads", lambda _: None)
    for name in ("algorithms", "cases", "references"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import algorithms

    return algorithms


def run(benchmark: ModuleType, capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict]:
    benchmark.main(["--shapes", "16x80", "--logits", "--repeat", "0", "--json", *arguments])
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_every_function_is_what_its_reference_says(benchmark: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    reports = run(benchmark, capsys)
    names = [report["name"] for report in reports]
    assert names == [*benchmark.PER_TOKEN, *benchmark.PER_LENGTH, "validation metrics"]
    assert all(report["seconds"] >= 0 and report["reference_seconds"] >= 0 for report in reports)


def test_every_registered_estimator_and_loss_has_a_case(benchmark: ModuleType) -> None:
    for kind, registry in (("advantage", ADV_ESTIMATOR_REGISTRY), ("loss", POLICY_LOSS_REGISTRY)):
        # Other tests register some of their own; the vectorized names are the same functions.
        ours = {name for name in registry if registry.get(name).__module__.startswith("verl.")}
        ours = {name for name in ours if not name.endswith("_vectorized")}
        assert ours == {name.split()[1] for name in benchmark.PER_TOKEN if name.startswith(f"{kind} ")}


@pytest.mark.parametrize(
    "case", ["advantage gae", "loss gspo", "KL k3", "rejection", "data metrics", "log-probs", "discounted return"]
)
@pytest.mark.parametrize(
    "fault", [lambda result: result * 1.01, lambda result: result * 0, lambda result: result.flip(0)], ids=str
)
def test_another_result_than_the_references_ends_the_run(
    benchmark: ModuleType,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    case: str,
    fault: object,
) -> None:
    right = benchmark.PER_TOKEN[case]

    def wrong(x: object) -> tuple[object, object]:
        ours, reference = right(x)
        return ours, lambda: fault(torch.as_tensor(reference()).double())

    monkeypatch.setitem(benchmark.PER_TOKEN, case, wrong)
    with pytest.raises(AssertionError, match=f"{case} at 16x80"):
        run(benchmark, capsys, "--only", case)


def test_a_single_wrong_number_is_noticed_where_nothing_is_cut_off(benchmark: ModuleType) -> None:
    values = torch.arange(1.0, 1001.0)
    wrong = values.clone()
    wrong[7] = float("nan")
    benchmark.agree("x", values, values * (1 + 1e-5))
    with pytest.raises(AssertionError, match="1 of 1000 numbers"):
        benchmark.agree("x", wrong, values)
    with pytest.raises(AssertionError, match=r"\(2,\) against the reference's \(1000,\)"):
        benchmark.agree("x", values[:2], values)
