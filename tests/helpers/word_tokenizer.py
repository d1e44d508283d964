# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""A real tokenizer with one token per word, so that tests can count."""

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

SPECIAL = ["<pad>", "<end>", "<unk>"]

# ROLE:txt<end> and a newline behind each message, as ChatML has it; ten words for each tool.
TEMPLATE = (
    "{% if tools %}{% for tool in tools %}tool {{ tool.function.name }} one two three four five six seven eight "
    "{% endfor %}{% endif %}"
    "{% for message in messages %}{{ message.role }}: "
    "{% if message.content is string %}{{ message.content }}"
    "{% else %}{% for part in message.content %}{{ part.text }}{% endfor %}{% endif %}"
    "<end>{{ separator }}{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
# The words alone: nothing is added by roles.
BARE = (
    "{% if tools %}{% for tool in tools %}tool {{ tool.function.name }} one two three four five six seven eight "
    "{% endfor %}{% endif %}{% for message in messages %}{{ message.content }} {% endfor %}"
)


def word_tokenizer(template: str = TEMPLATE, separator: str = "\n") -> PreTrainedTokenizerFast:
    """Words, punctuation and newlines are tokens; unknown words are learned from `words`."""
    words = [*(f"w{index}" for index in range(200)), *"abcdefghijklmnopqrstuvwxyz", *"0123456789", ":", "\n", "tool"]
    words += ["user", "assistant", "system", "one", "two", "three", "four", "five", "six", "seven", "eight"]
    words += ["calculator", "<tool_call>", "</tool_call>", "{", "}", '"', ",", "result", "Error"]
    vocab = {word: index for index, word in enumerate(dict.fromkeys([*SPECIAL, *words]))}
    core = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split("\n", "isolated"),
            pre_tokenizers.Split(" ", "removed"),
            pre_tokenizers.Split(":", "isolated"),
        ]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<pad>", eos_token="<end>", unk_token="<unk>", padding_side="left"
    )
    tokenizer.chat_template = template.replace("{{ separator }}", separator)
    return tokenizer
