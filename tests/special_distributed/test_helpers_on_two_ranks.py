# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Helpers for a recipe's own workers, on two ranks over gloo."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rank_processes import run_on_ranks
from transformers import AutoModelForCausalLM

from verl.errors import ConfigError
from verl.utils import ulysses

SCRIPT = Path(__file__).with_name("helper_ranks.py")


@pytest.fixture(scope="module")
def two_ranks(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with what each of two ranks left for each check."""
    out = tmp_path_factory.mktemp("helpers")
    run_on_ranks(SCRIPT, tiny_model_dir, out=out)
    return out


@pytest.fixture
def results(two_ranks: Path) -> Callable[[str], list[Any]]:
    """`results(check)`: what rank 0 and rank 1 returned."""
    return lambda check: [torch.load(two_ranks / f"{check}-{rank}.pt", weights_only=False) for rank in range(2)]


def whole(length: int) -> torch.Tensor:
    return torch.randn(length, 4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def test_around_attention_a_rank_has_the_whole_sequence_and_half_the_heads(results: Callable) -> None:
    for rank, found in enumerate(results("there_and_back")):
        assert torch.equal(found["whole"], whole(7)[:, 2 * rank : 2 * rank + 2])
        assert torch.equal(found["again"], found["mine"])


def test_gradients_go_back_to_the_slice_that_they_came_from(results: Callable) -> None:
    factors = 1 + torch.arange(4.0, dtype=torch.float64)[:, None, None].expand(4, 4, 3)
    first, second = results("there_and_back")
    assert torch.equal(first["grad"], factors)
    # The eighth place was padding, and what was cut off has no gradient.
    assert torch.equal(second["grad"], factors * torch.tensor([1.0, 1.0, 1.0, 0.0])[:, None, None])


def test_an_exchange_can_be_waited_for_later(results: Callable) -> None:
    for rank, found in enumerate(results("asynchronous")):
        assert torch.equal(found["exchanged"], whole(8)[:, 2 * rank : 2 * rank + 2])
        assert torch.equal(found["gathered"], whole(8))


def test_packed_tokens_are_padded_and_sliced(results: Callable) -> None:
    first, second = results("loss_on_whole_outputs")
    assert (first["ids"].tolist(), second["ids"].tolist()) == ([[10, 11, 12]], [[13, 14, 99]])
    assert (first["positions"].tolist(), second["positions"].tolist()) == ([[0, 1, 2]], [[0, 1, 0]])
    assert first["all_positions"].tolist() == [[0, 1, 2, 0, 1, 0]]
    assert first["added"] == second["added"] == 1


def test_outputs_are_joined_without_the_padding_and_gradients_scaled_where_wanted(results: Callable) -> None:
    for found, own in zip(results("loss_on_whole_outputs"), (10 + 11 + 12, 13 + 14), strict=True):
        assert found["joined"].tolist() == [10, 11, 12, 13, 14]
        assert found["grad_False"].item() == own
        assert found["grad_True"].item() == 2 * own


def test_ranks_that_share_sequences_have_each_others_rows(results: Callable) -> None:
    for rank, found in enumerate(results("rows_of_a_group")):
        assert found["joined"] == [0, 1, 2, 3]
        assert found["mine"] == [2 * rank, 2 * rank + 1]
        assert found["uid"] == [f"{rank}a", f"{rank}b"]
        assert (found["inside"], found["outside"]) == (2, 1)


def test_seconds_of_the_ranks_come_together(results: Callable) -> None:
    for found in results("seconds"):
        assert found["gathered"] == {"step": [2.0, 6.0], "gen": [1.0, 1.0]}
        assert found["mean"] == {"step": 4.0, "gen": 1.0}
        assert found["most"] == {"step": 6.0, "gen": 1.0}
        assert found["total"] == {"step": 8.0, "gen": 2.0}
        assert found["tail"] == (0.5, 2.0, 6.0)
        # As many numbers, of other things: their mean would be nonsense.
        assert "different things" in found["differing"] and "['save', 'test']" in found["differing"]


def test_a_model_that_only_rank_zero_read_computes_like_one(results: Callable, tiny_model_dir: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(tiny_model_dir, dtype=torch.float32)
    logits = model(torch.tensor([[1, 2, 3, 4]])).logits
    logits.square().sum().backward()
    norm = torch.cat([p.grad.flatten().double() for p in model.parameters()]).norm()
    first, second = results("model_from_rank_zero")
    assert (first["kinds"], second["kinds"]) == ({"cpu"}, {"meta"})
    for found in (first, second):
        assert torch.allclose(found["logits"], logits, atol=1e-5)
        assert torch.allclose(found["norm"].double(), norm)


def test_memory_is_made_for_what_has_none(results: Callable) -> None:
    first, second = results("memory_of_fsdp1")
    assert first == {"same": True, "device": "cpu"}
    assert second["device"] == "cpu"


def test_without_a_group_nothing_is_exchanged() -> None:
    x = torch.randn(4, 2)
    assert ulysses.gather_seq_scatter_heads(x, seq_dim=0, head_dim=1) is x
    assert ulysses.gather_heads_scatter_seq(x, head_dim=1, seq_dim=0) is x
    assert ulysses.gather_outputs_and_unpad(x, gather_dim=0) is x
    assert torch.equal(ulysses.slice_input_tensor(x, dim=0), x)
    ids, positions, added = ulysses.ulysses_pad_and_slice_inputs(torch.arange(3)[None], None, sp_size=1)
    assert (ids.tolist(), positions, added) == ([[0, 1, 2]], None, 0)


def test_positions_with_more_dimensions_are_padded_alike() -> None:
    positions = torch.arange(5).expand(3, 1, 5)
    _, padded, added = ulysses.ulysses_pad(torch.arange(5)[None], positions, sp_size=4)
    assert added == 3 and padded.shape == (3, 1, 8)
    assert padded[2, 0].tolist() == [0, 1, 2, 3, 4, 0, 1, 2]
    with pytest.raises(ConfigError, match="differ in number"):
        ulysses.ulysses_pad(torch.arange(4)[None], positions, 4)


def test_heads_must_divide() -> None:
    ulysses.validate_ulysses_config(num_heads=8, ulysses_sequence_size=4)
    with pytest.raises(ConfigError, match="a divisor of 6"):
        ulysses.validate_ulysses_config(num_heads=6, ulysses_sequence_size=4)
