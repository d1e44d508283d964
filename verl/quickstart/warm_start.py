# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The base model: supervised on our own engine until it answers right about four times in ten, and no further.

python -m verl.quickstart.warm_start DIRECTORY
"""

import logging
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging as transformers_logging

from verl.errors import VerlError
from verl.protocol import DataProto
from verl.quickstart.cache import FACTS_FILE
from verl.quickstart.evaluate import accuracy, evaluate, evaluate_sampled
from verl.quickstart.model import build_tokenizer, save_tiny_model
from verl.quickstart.task import question, split_sums
from verl.utils.json_utils import dumps
from verl.utils.logging_utils import set_up_logging
from verl.workers.engine import BaseEngine, EngineRegistry
from verl.workers.utils.losses import sft_loss

# Its name when it is run as a program would be __main__, which is nobody's logger.
logger = logging.getLogger("verl.quickstart.warm_start")


@dataclass(frozen=True)
class Recipe:
    """Numbers of the supervised loop.

    The teacher knows how to carry and forgets it, each carry in a share `forgets` of the sums that have one; besides,
    it writes a random digit in a share `slips` of places. A model
    that imitates a perfect teacher goes from almost nothing to almost everything within some fifty steps and cannot
    be stopped in between; one that imitates this teacher stays at the teacher's own accuracy. What it has seen is
    both ways of adding, the wrong one more often: which of them is right only the reward tells.
    """

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.99)
    batch_size: int = 128
    evaluate_every: int = 10
    limit_steps: int = 1000
    forgets: float = 0.55
    slips: float = 0.08
    lowest: float = 0.39
    highest: float = 0.45
    num_seeds: int = 8


Verdict = Literal["go on", "good", "next seed"]


def verdict(sampled: float, step: int, recipe: Recipe) -> Verdict:
    """What an evaluation means: in the band, still below it, or past it (or too late) and of no use."""
    if recipe.lowest <= sampled <= recipe.highest:
        return "good"
    return "next seed" if sampled > recipe.highest or step >= recipe.limit_steps else "go on"


def batches(recipe: Recipe, seed: int) -> Iterator[DataProto]:
    """Random training sums with the teacher's answers, without end; only the answer and its end are learned."""
    tokenizer, (train, _) = build_tokenizer(), split_sums()
    digits_D = torch.tensor(tokenizer("0123456789")["input_ids"])
    # Four ways to answer each sum: with both carries, without that into the tens, that into the hundreds, or both.
    texts = [
        question(a, b) + forgetful_answer(a, b, tens=bool(way & 1), hundreds=bool(way & 2)) + tokenizer.eos_token
        for way in range(4)
        for a, b in train
    ]
    input_ids_WNS = torch.tensor(tokenizer(texts)["input_ids"]).reshape(4, len(train), -1)
    mask_S = torch.zeros_like(input_ids_WNS[0, 0])
    mask_S[len(question(0, 0)) :] = 1
    mask_BS = mask_S.repeat(recipe.batch_size, 1)
    generator = torch.Generator().manual_seed(seed)
    while True:
        rows_B = torch.randint(len(train), (recipe.batch_size,), generator=generator)
        forgotten_2B = torch.rand(2, recipe.batch_size, generator=generator) < recipe.forgets
        input_ids_BS = input_ids_WNS[forgotten_2B[0].long() + 2 * forgotten_2B[1].long(), rows_B]
        slip_BS = mask_BS.bool() & (torch.rand(input_ids_BS.shape, generator=generator) < recipe.slips)
        # The end token, in the last column, is never mistaken.
        slip_BS[:, -1] = False
        digit_BS = digits_D[torch.randint(len(digits_D), input_ids_BS.shape, generator=generator)]
        input_ids_BS = torch.where(slip_BS, digit_BS, input_ids_BS)
        yield DataProto.from_dict(
            {"input_ids": input_ids_BS, "attention_mask": torch.ones_like(input_ids_BS), "loss_mask": mask_BS}
        )


def forgetful_answer(a: int, b: int, *, tens: bool, hundreds: bool) -> str:
    """The sum as somebody writes it who forgets the carry into the tens, into the hundreds, or both; units first."""
    units = a % 10 + b % 10
    tens_digit = a // 10 + b // 10 + (0 if tens else units // 10)
    return f"{units % 10}{tens_digit % 10}{0 if hundreds else tens_digit // 10}"


def warm_start(directory: Path, recipe: Recipe | None = None) -> dict[str, Any]:
    """Write model, tokenizer and facts (seed, steps, greedy and sampled accuracy) to `directory`; returns the facts.

    Raises
    ------
    VerlError
        when no seed ends in the band.
    """
    recipe = recipe or Recipe()
    for seed in range(recipe.num_seeds):
        save_tiny_model(directory, seed=seed)
        steps = _train_one_seed(directory, seed, recipe)
        if steps is not None:
            facts = {"seed": seed, "steps": steps, **evaluate(directory), "recipe": asdict(recipe)}
            (directory / FACTS_FILE).write_text(dumps(facts) + "\n")
            return facts
    raise VerlError(
        f"no seed below {recipe.num_seeds} gives a base model between {recipe.lowest} and {recipe.highest}",
        where="quickstart warm start",
        remedy="run `python -m pytest tests/quickstart tests/workers/engine`: the training engine may be broken",
    )


def _train_one_seed(directory: Path, seed: int, recipe: Recipe) -> int | None:
    engine = _engine(directory, recipe)
    engine.initialize()
    model, tokenizer, held_out = (
        AutoModelForCausalLM.from_pretrained(directory).eval(),
        build_tokenizer(),
        split_sums()[1],
    )
    loss = partial(sft_loss, {})
    for step, batch in enumerate(batches(recipe, seed), start=1):
        with engine.train_mode():
            metrics = engine.train_batch(batch, loss)
        if step % recipe.evaluate_every:
            continue
        _copy_weights(engine, model)
        sampled = accuracy(model, tokenizer, held_out, greedy=False, seed=step)
        if verdict(sampled, step, recipe) == "good":
            # One draw is uncertain by 0.015, and the first that happens to be high enough would end the loop early.
            sampled = evaluate_sampled(model, tokenizer, held_out)
        found = verdict(sampled, step, recipe)
        if step % (5 * recipe.evaluate_every) == 0 or found != "go on":
            logger.info(
                "warm start, seed %d, step %d: loss %.2f, accuracy %.2f",
                seed,
                step,
                metrics["loss"],
                sampled,
            )
        if found == "good":
            model.save_pretrained(directory)
            return step
        if found == "next seed":
            return None
    return None


def _engine(directory: Path, recipe: Recipe) -> BaseEngine:
    return EngineRegistry.new(
        "language_model",
        "fsdp2",
        model_config={"path": str(directory), "use_remove_padding": True},
        engine_config={"strategy": "fsdp2", "model_dtype": "fp32", "dtype": "float32", "use_dynamic_bsz": False},
        optimizer_config={"lr": recipe.lr, "betas": recipe.betas, "weight_decay": 0.01, "clip_grad": 1.0},
        checkpoint_config=None,
    )


def _copy_weights(engine: BaseEngine, model: PreTrainedModel) -> None:
    targets = model.state_dict()
    tensors, _ = engine.get_per_tensor_param()
    for name, tensor in tensors:
        targets[name].copy_(tensor)


def main() -> None:
    """Console entry."""
    set_up_logging("quickstart")
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    # One thread: sums of floats come out alike however many cores there are.
    torch.set_num_threads(1)
    warm_start(Path(sys.argv[1]))


if __name__ == "__main__":
    main()
