# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from verl.errors import VerlError
from verl.quickstart.evaluate import accuracy
from verl.quickstart.model import VOCABULARY, build_model, build_tokenizer
from verl.quickstart.task import answer, split_sums
from verl.quickstart.warm_start import Recipe, batches, forgetful_answer, verdict, warm_start


def test_the_stop_rule_goes_on_below_the_band_and_gives_up_past_it_or_too_late() -> None:
    recipe = Recipe(lowest=0.35, highest=0.45, limit_steps=100)
    assert verdict(0.10, 50, recipe) == "go on"
    assert verdict(0.35, 50, recipe) == verdict(0.45, 100, recipe) == "good"
    assert verdict(0.46, 50, recipe) == "next seed"
    assert verdict(0.34, 100, recipe) == "next seed"


def test_a_batch_teaches_the_answer_and_the_end_and_never_a_held_out_sum() -> None:
    stream = batches(Recipe(batch_size=512, forgets=0.0, slips=0.0), seed=0)
    held_out = set(split_sums()[1])
    for _ in range(5):
        batch = next(stream).batch
        texts = ["".join(VOCABULARY[token] for token in row) for row in batch["input_ids"].tolist()]
        for text in texts:
            a, b = int(text[:2]), int(text[3:5])
            assert text == f"{a:02d}+{b:02d}={f'{a + b:03d}'[::-1]}<eos>"
            assert (a, b) not in held_out
        assert batch["loss_mask"].unique(dim=0).tolist() == [[0] * 6 + [1] * 4]


def test_the_teacher_is_wrong_in_about_the_share_of_digits_that_the_recipe_says() -> None:
    batch = next(batches(Recipe(batch_size=4096, forgets=0.0, slips=0.2), seed=0)).batch
    texts = ["".join(VOCABULARY[token] for token in row) for row in batch["input_ids"].tolist()]
    assert all(text[2] == "+" and text[5] == "=" and text.endswith("<eos>") for text in texts)
    rights = [text[6:9] == answer(int(text[:2]), int(text[3:5])) for text in texts]
    # A random digit is the right one in a tenth of the cases: (1 - 0.2 * 0.9) ** 3, give or take three deviations.
    assert abs(sum(rights) / len(rights) - 0.82**3) < 3 * (0.25 / 4096) ** 0.5


@pytest.mark.parametrize(
    ("tens", "hundreds", "written"),
    [(False, False, "321"), (True, False, "311"), (False, True, "320"), (True, True, "310")],
)
def test_a_forgotten_carry_changes_the_digit_it_belongs_to(tens: bool, hundreds: bool, written: str) -> None:
    assert forgetful_answer(67, 56, tens=tens, hundreds=hundreds) == written
    assert forgetful_answer(12, 34, tens=tens, hundreds=hundreds) == "640", "nothing to carry, nothing to forget"


def test_a_forgotten_carry_into_the_tens_is_missed_in_the_hundreds_too() -> None:
    assert forgetful_answer(45, 55, tens=True, hundreds=False) == "090"


def test_each_carry_is_forgotten_in_the_share_that_the_recipe_says() -> None:
    batch = next(batches(Recipe(batch_size=4096, forgets=0.6, slips=0.0), seed=0)).batch
    texts = ["".join(VOCABULARY[token] for token in row) for row in batch["input_ids"].tolist()]
    with_carry = [text for text in texts if int(text[1]) + int(text[4]) >= 10]
    kept = [text[7] == answer(int(text[:2]), int(text[3:5]))[1] for text in with_carry]
    assert abs(sum(kept) / len(kept) - 0.4) < 3 * (0.24 / len(kept)) ** 0.5


def test_the_same_seed_draws_the_same_batches() -> None:
    first, again, other = (next(batches(Recipe(), seed)).batch["input_ids"] for seed in (1, 1, 2))
    assert torch.equal(first, again) and not torch.equal(first, other)


def test_accuracy_counts_exact_answers_only() -> None:
    class Oracle:
        """Answers right whenever the first number is even."""

        def generate(self, prompt_BP: torch.Tensor, **kwargs: object) -> torch.Tensor:
            tokenizer = build_tokenizer()
            rows = []
            for text in tokenizer.batch_decode(prompt_BP):
                a, b = int(text[:2]), int(text[3:5])
                right = f"{a + b + a % 2:03d}"[::-1]
                rows.append(tokenizer(text + right + "<eos>")["input_ids"])
            return torch.tensor(rows)

    pairs = split_sums()[1][:200]
    expected = sum(a % 2 == 0 for a, _ in pairs) / 200
    assert accuracy(Oracle(), build_tokenizer(), pairs, greedy=True) == expected


def test_sampled_accuracy_repeats_with_its_seed() -> None:
    model, tokenizer, pairs = build_model(0).eval(), build_tokenizer(), split_sums()[1][:50]
    torch.manual_seed(9)
    state = torch.random.get_rng_state()
    first, again = (accuracy(model, tokenizer, pairs, greedy=False, seed=3) for _ in range(2))
    assert first == again and torch.equal(state, torch.random.get_rng_state())


def test_a_warm_start_on_the_engine_saves_a_model_that_loads_and_its_facts(tmp_path: Path) -> None:
    # A band that the first evaluation is in: the road is tested here, the learning in the long tests.
    recipe = Recipe(batch_size=32, evaluate_every=3, limit_steps=6, lowest=0.0, highest=1.0)
    before = build_model(0).state_dict()
    facts = warm_start(tmp_path, recipe)
    assert (facts["seed"], facts["steps"]) == (0, 3)
    assert json.loads((tmp_path / "base.json").read_text())["sampled"] == facts["sampled"]
    after = AutoModelForCausalLM.from_pretrained(tmp_path).state_dict()
    assert all(not torch.equal(after[name], before[name]) for name in after)
    assert AutoTokenizer.from_pretrained(tmp_path).eos_token == "<eos>"


def test_a_warm_start_that_never_lands_says_so(tmp_path: Path) -> None:
    recipe = Recipe(batch_size=8, evaluate_every=1, limit_steps=1, lowest=2.0, highest=3.0, num_seeds=2)
    with pytest.raises(VerlError, match="no seed below 2"):
        warm_start(tmp_path, recipe)


@pytest.mark.long
def test_the_recipe_lands_in_its_band(tmp_path: Path) -> None:
    facts = warm_start(tmp_path)
    assert 0.35 <= facts["sampled"] <= 0.45
