# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Token ids in every form a tokenizer returns them, and which processors count as such."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from transformers import CLIPConfig
from word_tokenizer import word_tokenizer

import verl.utils
from verl.errors import DataError
from verl.utils import tokenizer as room
from verl.utils.tokenizer import hf_processor, hf_tokenizer, load_tokenizer_and_processor, normalize_token_ids


@pytest.mark.parametrize(
    "returned",
    [
        [1, 2, 3],
        (1, 2, 3),
        {"input_ids": [1, 2, 3]},
        {"input_ids": [[1, 2, 3]]},
        SimpleNamespace(input_ids=torch.tensor([[1, 2, 3]])),
        np.array([1, 2, 3]),
        torch.tensor([[1, 2, 3]]),
        [np.int64(1), np.int64(2), np.int64(3)],
        [torch.tensor(1), torch.tensor(2), torch.tensor(3)],
        [torch.tensor([1, 2, 3])],
    ],
)
def test_ids_are_one_flat_list_whatever_the_tokenizer_returned(returned: Any) -> None:
    ids = normalize_token_ids(returned)
    assert ids == [1, 2, 3] and all(type(token) is int for token in ids)


def test_ids_of_two_texts_are_refused_and_of_none_are_empty() -> None:
    with pytest.raises(DataError, match="2 rows"):
        normalize_token_ids([[1], [2]])
    assert normalize_token_ids([]) == normalize_token_ids({"input_ids": [[]]}) == []


def test_a_tokenizer_without_padding_pads_with_its_end(tmp_path: Path) -> None:
    tokenizer = word_tokenizer()
    tokenizer.pad_token = None
    tokenizer.save_pretrained(tmp_path)
    loaded = hf_tokenizer(str(tmp_path))
    assert loaded.pad_token_id == loaded.eos_token_id and loaded.pad_token == "<end>"
    assert hf_tokenizer(str(tmp_path), correct_pad_token=False).pad_token_id is None


def test_a_text_model_has_no_processor(tmp_path: Path, tiny_model_dir: Path) -> None:
    assert hf_processor(str(tiny_model_dir)) is None
    word_tokenizer().save_pretrained(tmp_path)
    # A directory without a model configuration is no processor either.
    assert hf_processor(str(tmp_path)) is None
    assert room.usable_processor(SimpleNamespace(tokenizer=1), "x") is None
    assert room.usable_processor(SimpleNamespace(image_processor=None), "x") is None
    seeing = SimpleNamespace(image_processor=object())
    assert room.usable_processor(seeing, "x") is seeing


def test_a_vision_model_whose_processor_cannot_be_loaded_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    CLIPConfig().save_pretrained(tmp_path)
    assert hf_processor(str(tmp_path)) is None
    assert "has a vision part and is used as a text model" in caplog.text


def test_remote_code_is_allowed_in_every_loader_or_in_none(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def record(name: str, result: Any) -> Any:
        def load(path: str, **kwargs: Any) -> Any:
            seen.append((name, kwargs.get("trust_remote_code")))
            return result

        return SimpleNamespace(from_pretrained=load)

    monkeypatch.setattr(room, "AutoTokenizer", record("tokenizer", word_tokenizer()))
    monkeypatch.setattr(room, "AutoConfig", record("config", SimpleNamespace(model_type="x")))
    monkeypatch.setattr(room, "AutoProcessor", record("processor", SimpleNamespace(image_processor=object())))
    for trusted in (True, False):
        seen.clear()
        config = OmegaConf.create({"path": "somewhere", "trust_remote_code": trusted, "custom_chat_template": "T"})
        tokenizer, processor = load_tokenizer_and_processor(config)
        assert seen == [("tokenizer", trusted), ("config", trusted), ("processor", trusted)]
        assert tokenizer.chat_template == processor.chat_template == "T"


def test_the_package_answers_for_the_names_that_moved() -> None:
    assert verl.utils.hf_tokenizer is hf_tokenizer
    with pytest.raises(AttributeError, match="no attribute 'absent'"):
        _ = verl.utils.absent
