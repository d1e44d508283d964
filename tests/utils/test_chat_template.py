# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""One rendering of a prompt for the filter and the rollout; truncation; the template's own system text."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from word_tokenizer import TEMPLATE, word_tokenizer

from verl.errors import ConfigError, DataError
from verl.utils.chat_template import (
    apply_chat_template,
    extract_system_prompt_and_generation,
    initialize_system_prompt,
    plain_messages,
    render_prompt,
    truncate_prompt,
)

WITH_SYSTEM = "{% if messages[0].role != 'system' %}system: one two<end>\n{% endif %}" + TEMPLATE


def test_text_ids_and_the_tokenizers_own_mapping() -> None:
    tokenizer = word_tokenizer()
    messages = [{"role": "user", "content": "w1 w2"}]
    text = apply_chat_template(tokenizer, messages, tokenize=False)
    assert text == "user: w1 w2<end>\nassistant: "
    ids = apply_chat_template(tokenizer, messages)
    assert ids == tokenizer.encode(text, add_special_tokens=False)
    assert apply_chat_template(tokenizer, messages, return_dict=True)["input_ids"] == ids
    assert ids == render_prompt(tokenizer, None, messages)
    closed = apply_chat_template(tokenizer, messages, add_generation_prompt=False)
    assert ids[: len(closed)] == closed


def test_a_processor_without_a_template_renders_with_its_tokenizers() -> None:
    tokenizer = word_tokenizer()
    processor = SimpleNamespace(tokenizer=tokenizer)
    messages = [{"role": "user", "content": "w1"}]
    assert apply_chat_template(processor, messages) == apply_chat_template(tokenizer, messages)


def test_numpy_and_columns_of_other_rows_do_not_reach_the_template() -> None:
    messages = np.array(
        [{"role": "user", "content": np.array([{"type": "text", "text": "w1", "image": None}]), "name": None}],
        dtype=object,
    )
    assert plain_messages(messages) == [{"role": "user", "content": [{"type": "text", "text": "w1"}]}]
    # No content is something else than no key.
    assert plain_messages([{"role": "assistant", "content": None}]) == [{"role": "assistant", "content": None}]


def test_images_without_a_processor_are_refused() -> None:
    with pytest.raises(ValueError, match="processor"):
        render_prompt(word_tokenizer(), None, [{"role": "user", "content": "w1"}], images=[object()])


def test_a_processor_gets_the_text_and_the_pictures() -> None:
    tokenizer = word_tokenizer()
    seen: dict[str, Any] = {}

    class Processor:
        chat_template = tokenizer.chat_template
        apply_chat_template = staticmethod(tokenizer.apply_chat_template)

        def __call__(self, **kwargs: Any) -> dict[str, list[list[int]]]:
            seen.update(kwargs)
            return {"input_ids": [[7, 8]]}

    ids = render_prompt(tokenizer, Processor(), [{"role": "user", "content": "w1"}], images=["picture"])
    assert ids == [7, 8] and seen["images"] == ["picture"] and seen["text"] == ["user: w1<end>\nassistant: "]


@pytest.mark.parametrize(
    ("mode", "kept"),
    [("left", list(range(5, 25))), ("right", list(range(20))), ("middle", [*range(10), *range(15, 25)])],
)
def test_truncation(mode: str, kept: list[int]) -> None:
    assert truncate_prompt(list(range(25)), 20, mode, where="row 3") == kept
    assert truncate_prompt(list(range(20)), 20, mode, where="row 3") == list(range(20))


def test_truncation_that_is_not_allowed_names_the_row_and_the_keys() -> None:
    with pytest.raises(DataError, match=r"row 3.*25 tokens.*at most 20.*data\.max_prompt_length"):
        truncate_prompt(list(range(25)), 20, "error", where="row 3")
    with pytest.raises(ConfigError, match=r"data\.truncation"):
        truncate_prompt([1], 20, "top", where="row 3")


def test_the_templates_own_system_text_is_found() -> None:
    tokenizer = word_tokenizer(WITH_SYSTEM)
    expected = tokenizer.encode("system: one two<end>\n", add_special_tokens=False)
    assert initialize_system_prompt(tokenizer) == expected
    system, generation = extract_system_prompt_and_generation(tokenizer)
    assert system == expected and generation == tokenizer.encode("assistant: ", add_special_tokens=False)
    assert initialize_system_prompt(word_tokenizer()) == []
