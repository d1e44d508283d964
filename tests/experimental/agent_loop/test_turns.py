# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Incremental tokens of a conversation against one rendering of the whole."""

from typing import Any

import pytest
from word_tokenizer import TEMPLATE, word_tokenizer

from verl.errors import ConfigError, DataError
from verl.experimental.agent_loop.turns import MARK, truncate_text, turn_ids
from verl.utils.chat_template import apply_chat_template


@pytest.mark.parametrize(
    ("side", "expected"), [("left", MARK + "efgh"), ("right", "abcd" + MARK), ("middle", "ab" + MARK + "gh")]
)
def test_the_named_side_is_dropped(side: str, expected: str) -> None:
    assert truncate_text("abcdefgh", 4, side) == expected
    assert truncate_text("abcd", 4, side) == "abcd"


def test_an_odd_limit_keeps_all_of_its_characters_and_an_unknown_side_is_refused() -> None:
    assert truncate_text("abcdefgh", 5, "middle") == "ab" + MARK + "fgh"
    with pytest.raises(ConfigError, match="tool_response_truncate_side"):
        truncate_text("abcdefgh", 4, "top")


def conversation(tokenizer: Any, num_turns: int, as_parts: bool = False) -> tuple[list[int], list[int]]:
    """(tokens grown turn by turn, tokens of the whole): the policy stops at <end>, as engines do."""

    def content(text: str) -> Any:
        return [{"type": "text", "text": text}] if as_parts else text

    messages: list[dict[str, Any]] = [{"role": "user", "content": content("w1 w2")}]
    grown = apply_chat_template(tokenizer, messages)
    for turn in range(num_turns):
        grown = [*grown, *tokenizer.encode(f"w{turn + 10} w{turn + 20} <end>", add_special_tokens=False)]
        answers = [{"role": "tool", "content": content(f"w{turn + 30}")}, {"role": "tool", "content": content("w99")}]
        grown += turn_ids(lambda rows: apply_chat_template(tokenizer, rows), answers, grown[-1])
        messages += [{"role": "assistant", "content": content(f"w{turn + 10} w{turn + 20}")}, *answers]
    return grown, apply_chat_template(tokenizer, messages)


@pytest.mark.parametrize("as_parts", [False, True])
@pytest.mark.parametrize("separator", ["\n", ""])
@pytest.mark.parametrize("num_turns", [1, 2, 5])
def test_tokens_grown_by_turns_equal_the_whole_rendering(num_turns: int, separator: str, as_parts: bool) -> None:
    grown, whole = conversation(word_tokenizer(separator=separator), num_turns, as_parts)
    assert grown == whole


def test_a_default_system_text_is_not_repeated_and_changed_history_does_not_matter() -> None:
    # Reasoning templates drop thoughts from turns that are not the last: the same messages render differently later.
    template = (
        "{% if messages[0].role != 'system' %}system: one two<end>\n{% endif %}"
        "{% for message in messages %}{{ message.role }}: "
        "{% if message.role == 'assistant' and loop.last %}three four {% endif %}"
        "{{ message.content }}<end>\n{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}"
    )
    tokenizer = word_tokenizer(template)
    end = tokenizer.convert_tokens_to_ids("<end>")
    ids = turn_ids(lambda rows: apply_chat_template(tokenizer, rows), [{"role": "user", "content": "w5"}], end)
    assert (
        tokenizer.decode(ids).split()
        == tokenizer.decode(tokenizer.encode("\nuser: w5<end>\nassistant: ", add_special_tokens=False)).split()
    )


def test_an_answer_that_was_cut_is_closed() -> None:
    tokenizer = word_tokenizer()
    w1 = tokenizer.convert_tokens_to_ids("w1")
    ids = turn_ids(lambda rows: apply_chat_template(tokenizer, rows), [{"role": "user", "content": "w5"}], w1)
    assert ids[0] == tokenizer.convert_tokens_to_ids("<end>")


def test_a_template_that_wants_a_call_before_a_tools_answer_gets_one() -> None:
    strict = (
        "{% for message in messages %}"
        "{% if message.role == 'tool' and not messages[loop.index0 - 1].tool_calls %}{{ raise_exception('no call') }}"
        "{% endif %}{{ message.role }}: "
        "{% if message.tool_calls %}{{ message.tool_calls[0].function.arguments.x }}"
        "{% else %}{{ message.content }}{% endif %}<end>\n{% endfor %}"
    )
    tokenizer = word_tokenizer(strict)
    end = tokenizer.convert_tokens_to_ids("<end>")
    ids = turn_ids(lambda rows: apply_chat_template(tokenizer, rows), [{"role": "tool", "content": "w5"}], end)
    assert ids == tokenizer.encode("\ntool: w5<end>\n", add_special_tokens=False)


def test_a_template_without_room_for_the_turn_says_so() -> None:
    tokenizer = word_tokenizer("{{ raise_exception('no tools here') }}" + TEMPLATE)
    with pytest.raises(DataError, match="no tools here"):
        turn_ids(lambda rows: apply_chat_template(tokenizer, rows), [{"role": "tool", "content": "w5"}], 1)
