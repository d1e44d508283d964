# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Tensor helpers at their public path."""

import math
import subprocess
import sys

import pytest
import torch
from tensordict import TensorDict

import verl.utils.torch_functional as F
from verl.errors import ConfigError, DataError, UnsupportedError
from verl.utils.groupwise import as_torch_index, group_mean_std


def test_every_public_name_is_there() -> None:
    assert all(callable(getattr(F, name)) for name in F.__all__)


def test_the_response_ends_with_the_first_end_token() -> None:
    ids = torch.tensor([[5, 2, 7, 2], [5, 6, 7, 8], [3, 5, 2, 2]])
    assert F.get_response_mask(ids).tolist() == [[1, 1, 0, 0], [1, 1, 1, 1], [1, 1, 1, 0]]
    found = F.get_response_mask(ids, eos_token=[2, 3], dtype=torch.bool)
    assert found.tolist() == [[True, True, False, False], [True] * 4, [True, False, False, False]]


def test_padding_left_right_and_of_ragged_lists() -> None:
    assert F.pad_2d_list_to_length([[1], [2, 3]], 0, max_length=4).tolist() == [[1, 0, 0, 0], [2, 3, 0, 0]]
    assert F.pad_2d_list_to_length([[1], [2, 3]], 9).tolist() == [[1, 9], [2, 3]]
    assert F.pad_2d_list_to_length([], 0).shape == (0,)
    row = torch.tensor([[1, 2]])
    assert F.pad_sequence_to_length(row, 4, 0, left_pad=True).tolist() == [[0, 0, 1, 2]]
    assert F.pad_sequence_to_length(row, 4, 0).tolist() == [[1, 2, 0, 0]]
    assert F.pad_sequence_to_length(row, 1, 0) is row


@pytest.mark.parametrize(("truncation", "kept"), [("left", [3, 4, 5]), ("right", [1, 2, 3]), ("middle", [1, 4, 5])])
def test_truncation_keeps_the_named_part(truncation: str, kept: list[int]) -> None:
    ids = torch.arange(1, 6).unsqueeze(0)
    found, mask = F.postprocess_data(ids, torch.ones_like(ids), 3, 0, truncation=truncation)
    assert found.tolist() == [kept] and mask.tolist() == [[1, 1, 1]]


def test_short_sequences_are_padded_and_long_ones_refused() -> None:
    ids = torch.tensor([[7, 8]])
    found, mask = F.postprocess_data(ids, torch.ones_like(ids), 4, 0)
    assert found.tolist() == [[0, 0, 7, 8]] and mask.tolist() == [[0, 0, 1, 1]]
    with pytest.raises(DataError, match="at most 1 tokens"):
        F.postprocess_data(ids, torch.ones_like(ids), 1, 0)
    with pytest.raises(ConfigError, match=r"data\.truncation"):
        F.postprocess_data(ids, torch.ones_like(ids), 4, 0, truncation="centre")


def test_text_is_tokenised_and_padded(tiny_model_dir) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_model_dir)
    ids, mask = F.tokenize_and_postprocess_data("1+2=", tokenizer, 8, tokenizer.pad_token_id)
    assert ids.shape == mask.shape == (1, 8) and tokenizer.decode(F.remove_pad_token(ids, mask)[0]) == "1+2="


def test_log_probs_of_responses_padded_and_packed_agree() -> None:
    torch.manual_seed(0)
    mask = torch.tensor([[0, 1, 1, 1, 1], [1, 1, 1, 1, 0]])
    ids, logits = torch.randint(0, 7, (2, 5)), torch.randn(2, 5, 7)
    padded = F.log_probs_from_logits_response(ids, logits, 3)
    packed = F.log_probs_from_logits_response_rmpad(ids, mask, logits.flatten(0, 1)[mask.flatten().bool()], 3)
    expected = logits.log_softmax(-1)[:, 1:4].gather(-1, ids[:, 2:].unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(padded, expected)
    real = mask[:, 2:].bool()
    torch.testing.assert_close(packed[real], expected[real])
    torch.testing.assert_close(F.logprobs_from_logits_v2(logits, ids), F.logprobs_from_logits(logits, ids))
    indices, boundaries, longest = F.get_unpad_data(mask)
    assert indices.tolist() == [1, 2, 3, 4, 5, 6, 7, 8] and boundaries.tolist() == [0, 4, 8] and longest == 4


def test_logits_are_divided_by_the_temperature_only() -> None:
    logits = torch.ones(1, 2)
    assert F.post_process_logits(None, logits, 0.5, -1, 1.0).tolist() == [[2.0, 2.0]]
    with pytest.raises(UnsupportedError, match="top_k=-1"):
        F.post_process_logits(None, logits, 1.0, 5, 1.0)


def test_a_tensordict_is_split_into_equal_batches() -> None:
    data = TensorDict({"a": torch.arange(4)}, batch_size=4)
    assert [part["a"].tolist() for part in F.split_dict_tensor_into_batches(data, 2)] == [[0, 1], [2, 3]]
    with pytest.raises(DataError, match="multiple of 3"):
        F.split_dict_tensor_into_batches(data, 3)


def test_row_values_are_repeated_over_ragged_tokens() -> None:
    ragged = torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)], layout=torch.jagged)
    found = F.expand_as_nested(torch.tensor([1.0, 2.0]), ragged)
    assert [row.tolist() for row in found.unbind()] == [[1.0, 1.0], [2.0, 2.0, 2.0]]


def test_a_decoder_mask_is_causal_and_blind_to_padding() -> None:
    found = F.prepare_decoder_attention_mask(torch.tensor([[0, 1, 1]]), (1, 3), torch.zeros(1, 3, 2))
    assert (found[0, 0] == 0).tolist() == [[False, False, False], [False, True, False], [False, True, True]]


def factors(make, steps: int, **kwargs) -> list[float]:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = make(optimizer, **kwargs)
    found = []
    for _ in range(steps):
        found.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    return found


def test_schedules_follow_their_formulas() -> None:
    assert factors(F.get_constant_schedule_with_warmup, 5, num_warmup_steps=2) == [0.0, 0.5, 1.0, 1.0, 1.0]
    cosine = factors(F.get_cosine_schedule_with_warmup, 7, num_warmup_steps=2, num_training_steps=6, min_lr_ratio=0.1)
    wave = [0.55 + 0.45 * math.cos(math.pi * step / 4) for step in range(5)]
    assert cosine == pytest.approx([0.0, 0.5, *wave])
    early = factors(
        F.get_cosine_schedule_with_warmup,
        2,
        num_warmup_steps=2,
        num_training_steps=6,
        init_lr_ratio=0.2,
        zero_indexed_step=False,
    )
    assert early == pytest.approx([0.6, 1.0])
    wsd = factors(
        F.get_wsd_schedule_with_warmup, 9, num_warmup_steps=2, num_training_steps=8, stable_ratio=0.5, min_lr_ratio=0.1
    )
    assert wsd == pytest.approx([0.0, 0.5, 1.0, 1.0, 1.0, 1.0, 0.775, 0.325, 0.1])


def test_groups_have_mean_deviation_and_size() -> None:
    index = as_torch_index(["a", "b", "a", "a"])
    mean, std, count = group_mean_std(torch.tensor([1.0, 5.0, 2.0, 3.0]), index)
    assert mean.tolist() == [2.0, 0.0] and std.tolist() == [1.0, 1.0] and count.tolist() == [3.0, 1.0]
    assert group_mean_std(torch.ones(2), torch.zeros(2, dtype=torch.long), eps=0.5)[1].tolist() == [0.5]


COLLECTIVES = """
import sys, torch, torch.distributed as dist, verl.utils.torch_functional as F
from tensordict import TensorDict
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
data = {"b": torch.full((2,), float(rank)), "a": torch.full((1,), rank + 5.0)}
gathered = F.allgather_dict_tensors(data, 2, None)
assert gathered["b"].tolist() == [0, 0, 1, 1] and gathered["a"].tolist() == [5, 6], gathered
whole = F.allgather_dict_tensors(TensorDict(data | {"a": torch.zeros(2)}, batch_size=2), 2, None)
assert whole.batch_size[0] == 4 and whole["b"].tolist() == [0, 0, 1, 1]
assert F.allgather_dict_into_dict({"x": rank}) == {"x": [0, 1]}
mean, largest, smallest, std = F.distributed_mean_max_min_std(torch.tensor([1.0 + rank, 3.0 + rank]))
assert [v.item() for v in (mean, largest, smallest)] == [2.5, 4.0, 1.0] and abs(std.item() - 1.2909944487) < 1e-9
assert F.distributed_mean_max_min_std(torch.ones(1), False, False, False)[1:] == (None, None, None)
masked = F.distributed_masked_mean(torch.tensor([1.0 + rank, float("nan")]), torch.tensor([1, 0]))
assert masked.item() == 1.5
F.broadcast_dict_tensor(data, src=1, group=None)
assert data["a"].item() == 6.0
dist.destroy_process_group()
"""


def test_collectives_over_two_ranks(tmp_path) -> None:
    command = [sys.executable, "-c", COLLECTIVES]
    ranks = [
        subprocess.Popen([*command, str(rank), str(tmp_path / "store")], stderr=subprocess.PIPE) for rank in (0, 1)
    ]
    for process in ranks:
        _, errors = process.communicate(timeout=240)
        assert process.returncode == 0, errors.decode()
