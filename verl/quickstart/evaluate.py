# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""How many of the held-out sums a saved model gets right; outside the system that trained it.

python -m verl.quickstart.evaluate MODEL_DIR → {"greedy": …, "sampled": …}
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging as transformers_logging

from verl.quickstart.model import build_tokenizer
from verl.quickstart.task import DATA_SOURCE, RESPONSE_TOKENS, answer, compute_score, question, split_sums

# One draw of 1 000 answers is uncertain by 0.015; the mean of four by half of that.
NUM_DRAWS = 4


@torch.no_grad()
def accuracy(
    model: Any,
    tokenizer: PreTrainedTokenizerBase,
    pairs: Sequence[tuple[int, int]],
    *,
    greedy: bool,
    seed: int = 0,
) -> float:
    """Share of `pairs` whose sum the model writes exactly, greedily or sampled at temperature 1 from `seed`."""
    # All questions have six characters, so that no padding is needed.
    prompt_BP = tokenizer([question(*pair) for pair in pairs], return_tensors="pt")["input_ids"]
    choice = {"do_sample": False} if greedy else {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        output_BS = model.generate(
            prompt_BP, attention_mask=torch.ones_like(prompt_BP), max_new_tokens=RESPONSE_TOKENS, **choice
        )
    texts = tokenizer.batch_decode(output_BS[:, prompt_BP.shape[1] :], skip_special_tokens=True)
    scores = (compute_score(DATA_SOURCE, text, answer(*pair)) for text, pair in zip(texts, pairs, strict=True))
    return sum(scores) / len(pairs)


def evaluate_sampled(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, pairs: Sequence[tuple[int, int]]
) -> float:
    """Mean sampled accuracy of `NUM_DRAWS` draws."""
    draws = (accuracy(model, tokenizer, pairs, greedy=False, seed=seed) for seed in range(NUM_DRAWS))
    return sum(draws) / NUM_DRAWS


def evaluate(path: Path) -> dict[str, float]:
    """Greedy and sampled accuracy of a saved model on the held-out sums."""
    model, tokenizer, (_, held_out) = AutoModelForCausalLM.from_pretrained(path).eval(), build_tokenizer(), split_sums()
    greedy = accuracy(model, tokenizer, held_out, greedy=True)
    return {"greedy": greedy, "sampled": evaluate_sampled(model, tokenizer, held_out)}


def main() -> None:
    """Console entry."""
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    sys.stdout.write(json.dumps(evaluate(Path(sys.argv[1]))) + "\n")


if __name__ == "__main__":
    main()
