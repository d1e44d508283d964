# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Two ranks over gloo give what one rank gives."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rank_processes import run_on_ranks
from transformers import AutoModelForCausalLM

from verl.errors import CheckpointError
from verl.utils.distributed import initialize_global_process_group

SCRIPT = Path(__file__).with_name("engine_ranks.py")
_spec = importlib.util.spec_from_file_location("engine_ranks", SCRIPT)
ranks = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(ranks)


@pytest.fixture(scope="module")
def two_ranks(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with what each of two ranks left for each check."""
    out = tmp_path_factory.mktemp("two-ranks")
    run_on_ranks(SCRIPT, tiny_model_dir, out=out)
    return out


@pytest.fixture
def result(two_ranks: Path) -> Callable[..., Any]:
    """`result(check, rank=0)`: what that rank returned."""

    def load(check: str, rank: int = 0) -> Any:
        left = torch.load(two_ranks / f"{check}-{rank}.pt", weights_only=False)
        assert "failure" not in left, left["failure"]
        return left["value"]

    return load


@pytest.fixture(scope="module")
def one_rank(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Any]:
    """`one_rank(check)`: the same check in this process alone."""
    initialize_global_process_group()
    out = tmp_path_factory.mktemp("one-rank")
    return lambda check: ranks.CHECKS[check](tiny_model_dir, out)


@pytest.fixture(scope="module")
def one_rank_plain(one_rank: Callable[[str], Any]) -> Any:
    return one_rank("plain")


def assert_same_weights(got: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert got.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(got[name], tensor, rtol=0, atol=1e-6, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("check", ["plain", "hybrid_shards", "dynamic", "small_micro_batches"])
def test_two_ranks_give_the_parameters_and_metrics_of_one(result, one_rank_plain, check):
    weights, metrics = result(check)
    assert_same_weights(weights, one_rank_plain[0])
    for mine, expected in zip(metrics, one_rank_plain[1], strict=True):
        assert mine.keys() == expected.keys()
        for name, value in expected.items():
            assert mine[name] == pytest.approx(value, rel=1e-5, abs=1e-6), name


@pytest.mark.parametrize("check", ["adapter", "critic"])
def test_adapters_and_critics_train_alike_on_two_ranks(result, one_rank, check):
    # Fresh adapters and heads are drawn on rank 0 from the engine's seed.
    assert_same_weights(result(check)[0], one_rank(check)[0])


@pytest.mark.parametrize("rank", [0, 1])
def test_experts_go_out_under_their_published_names_from_every_rank(result, rank):
    left = result("experts", rank)
    assert left["start"].keys() == left["published"].keys()
    assert all(torch.equal(left["start"][name], tensor) for name, tensor in left["published"].items())


def test_experts_train_alike_on_two_ranks(result, one_rank):
    assert_same_weights(result("experts")["trained"][0], one_rank("experts")["trained"][0])


@pytest.mark.parametrize("check", ["plain", "dynamic", "adapter"])
def test_every_rank_exports_the_same_tensors_and_reports_the_same_numbers(result, check):
    (first, first_metrics), (second, second_metrics) = result(check, 0), result(check, 1)
    assert first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)
    assert first_metrics == second_metrics


@pytest.mark.parametrize("rank", [0, 1])
def test_one_rank_without_a_finite_gradient_stops_the_step_on_all(result, rank):
    assert result("one_rank_not_finite", rank) == {"skipped": 1, "unchanged": True}


def test_a_resumed_run_goes_on_as_if_it_had_not_stopped(result, two_ranks):
    left = result("resumed")
    assert all(torch.equal(left["resumed"][name], tensor) for name, tensor in left["straight"].items())
    names = {path.name for path in (two_ranks / "checkpoint" / "global_step_2" / "actor").iterdir()}
    shards = {f"{part}_world_size_2_rank_{r}.pt" for part in ("model", "optim", "extra_state") for r in (0, 1)}
    assert names == shards | {"fsdp_config.json", "huggingface"}


def test_the_exported_folder_is_the_model_for_transformers(result, two_ranks):
    folder = two_ranks / "checkpoint" / "global_step_2" / "actor" / "huggingface"
    model = AutoModelForCausalLM.from_pretrained(folder)
    saved = dict(model.named_parameters())
    at_save = result("resumed")["at_save"]
    assert saved.keys() == at_save.keys()
    assert all(torch.equal(saved[name], tensor) for name, tensor in at_save.items())


def test_another_number_of_ranks_cannot_load_it_and_is_told_so(result, two_ranks, one_rank, tiny_model_dir):
    result("resumed")
    engine = ranks.make_engine(tiny_model_dir)
    with pytest.raises(
        CheckpointError, match=r"another number of ranks.*got '2 ranks', expected 1 ranks.*model_merger"
    ):
        engine.load_checkpoint(str(two_ranks / "checkpoint" / "global_step_2" / "actor"))


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(("check", "broken"), [("failed_save", 1), ("failed_export", 0)])
def test_a_rank_that_cannot_write_fails_the_save_on_all_and_costs_no_older_checkpoint(result, check, broken, rank):
    left = result(check, rank)
    assert left["message"].startswith("CheckpointError") and "1 of 2 ranks could not write" in left["message"]
    assert ("No space left" in left["message"]) == (rank == broken)
    assert left["left"] == ["global_step_1"]


@pytest.mark.parametrize("rank", [0, 1])
def test_tensors_travel_in_the_order_of_their_names(result, rank):
    left = result("other_order", rank)
    assert left["a"].tolist() == [0, 1, 2, 3]
    assert left["b"].tolist() == [10, 11, 12, 13, 14, 15, 16, 17]


@pytest.mark.parametrize("rank", [0, 1])
def test_ranks_with_unequal_rows_are_told_instead_of_left_waiting(result, rank):
    assert "unequal numbers of rows" in result("unequal_rows", rank)
