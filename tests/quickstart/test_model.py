# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from verl.quickstart.model import VOCABULARY, build_model, save_tiny_model


def test_a_question_is_exactly_its_six_characters(tiny_model_dir: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_model_dir)
    message = [{"role": "user", "content": "12+34="}]
    text = tokenizer.apply_chat_template(message, add_generation_prompt=True, tokenize=False)
    ids = tokenizer.apply_chat_template(message, add_generation_prompt=True, tokenize=True, return_dict=False)
    assert text == "12+34="
    assert [VOCABULARY[token] for token in ids] == list("12+34=")


def test_an_answer_of_the_assistant_ends_with_the_end_token(tiny_model_dir: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_model_dir)
    messages = [{"role": "user", "content": "12+34="}, {"role": "assistant", "content": "640"}]
    ids = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False)
    assert ids[-1] == tokenizer.eos_token_id
    assert tokenizer.decode(ids, skip_special_tokens=True) == "12+34=640"


@pytest.mark.parametrize("text", ["12+34=640", "Grüße, 世界 🙂", " a\n\tb ", '{"name": "f"}'])
def test_any_text_comes_back_from_its_tokens(tiny_model_dir: Path, text: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_model_dir)
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_padding_and_end_are_two_tokens(tiny_model_dir: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_model_dir)
    assert tokenizer.pad_token_id != tokenizer.eos_token_id
    assert len(tokenizer) == len(VOCABULARY)


@pytest.mark.parametrize("tied", [True, False])
def test_a_saved_model_loads_as_it_was_and_has_under_a_million_parameters(tmp_path: Path, tied: bool) -> None:
    path = save_tiny_model(tmp_path / "model", seed=3, tie_word_embeddings=tied)
    loaded = AutoModelForCausalLM.from_pretrained(path)
    assert sum(parameter.numel() for parameter in loaded.parameters()) < 1_000_000
    assert (loaded.lm_head.weight is loaded.model.embed_tokens.weight) == tied
    expected = build_model(seed=3, tie_word_embeddings=tied).state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in loaded.state_dict().items())


def test_building_a_model_leaves_the_random_state_alone() -> None:
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    build_model(seed=1)
    assert torch.equal(before, torch.random.get_rng_state())
