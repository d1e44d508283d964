# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Answers by transformers' own `generate`: a batch of prompts with one kind of sampling, rows of different lengths."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import GenerationConfig, PreTrainedModel
from transformers.generation import StoppingCriteria, StoppingCriteriaList

from verl.errors import UnsupportedError

# Scores of every step are kept until the end of a batch: steps x rows x vocabulary.
_MAX_SCORE_BYTES = 512 << 20
_UNDERSTOOD = {
    *("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "ignore_eos", "seed", "logprobs"),
    *("max_tokens", "max_new_tokens"),
}


@dataclass
class Row:
    """One prompt and what became of it.

    Set `aborted` from any thread to end the row at its next token.
    """

    prompt_ids: list[int]
    params: dict[str, Any]
    budget: int
    aborted: bool = False
    token_ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    finish_reason: str = "abort"

    @property
    def kind(self) -> tuple[Any, ...]:
        """Rows of one kind can share a batch; a seed needs a random stream, and so a batch, of its own."""
        seed = self.params.get("seed")
        sampling = tuple(sorted((key, value) for key, value in _sampling(self.params).items() if value is not None))
        return (sampling, bool(self.params.get("ignore_eos")), seed if seed is None else object())


class _StopRows(StoppingCriteria):
    """Ends each row at its own budget, or when it is aborted."""

    def __init__(self, rows: Sequence[Row], prompt_tokens: int) -> None:
        self._rows = rows
        self._prompt_tokens = prompt_tokens
        self.ended_at: list[int | None] = [None] * len(rows)

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        count = input_ids.shape[1] - self._prompt_tokens
        for index, row in enumerate(self._rows):
            if self.ended_at[index] is None and (row.aborted or count >= row.budget):
                self.ended_at[index] = count
        return torch.tensor([end is not None for end in self.ended_at], device=input_ids.device)


def rows_per_batch(model: PreTrainedModel, budget: int, most: int) -> int:
    """How many rows of `budget` tokens keep the scores within bounds."""
    return max(1, min(most, _MAX_SCORE_BYTES // (4 * budget * model.config.get_text_config().vocab_size)))


@torch.no_grad()
def answer(model: Any, rows: Sequence[Row], eos_ids: Sequence[int]) -> None:
    """Fill in `token_ids`, `log_probs` (after temperature, top-k and top-p) and `finish_reason` of rows of one kind."""
    params = rows[0].params
    refuse_unknown(params)
    ends = [] if params.get("ignore_eos") else list(eos_ids)
    input_ids_BP, mask_BP = _left_padded([row.prompt_ids for row in rows], model.device)
    stop = _StopRows(rows, input_ids_BP.shape[1])
    config = GenerationConfig(
        do_sample=_sampling(params)["temperature"] is not None,
        **_sampling(params),
        max_new_tokens=max(row.budget for row in rows),
        eos_token_id=ends or None,
        pad_token_id=0,
        return_dict_in_generate=True,
        output_scores=True,
        use_cache=True,
    )
    with torch.random.fork_rng(enabled=params.get("seed") is not None):
        if params.get("seed") is not None:
            torch.manual_seed(params["seed"])
        result = model.generate(
            input_ids_BP,
            attention_mask=mask_BP,
            generation_config=config,
            stopping_criteria=StoppingCriteriaList([stop]),
            **({} if ends else {"eos_token_id": None}),
        )
    tokens_BT = result.sequences[:, input_ids_BP.shape[1] :]
    log_probs_BT = torch.stack(
        [
            torch.log_softmax(scores_BV.float(), -1).gather(-1, tokens_BT[:, step, None])[:, 0]
            for step, scores_BV in enumerate(result.scores)
        ],
        dim=1,
    )
    for index, row in enumerate(rows):
        _finish(row, tokens_BT[index].tolist(), log_probs_BT[index].tolist(), stop.ended_at[index], ends)


def _finish(row: Row, tokens: list[int], log_probs: list[float], ended_at: int | None, ends: Sequence[int]) -> None:
    count = len(tokens) if ended_at is None else ended_at
    first_end = next((place for place, token in enumerate(tokens[:count]) if token in ends), None)
    if first_end is not None:
        count, row.finish_reason = first_end + 1, "stop"
    elif count >= row.budget:
        row.finish_reason = "length"
    row.token_ids, row.log_probs = tokens[:count], log_probs[:count]


def refuse_unknown(params: dict[str, Any]) -> None:
    """Raise UnsupportedError for a sampling parameter that would have no effect."""
    unknown = sorted(key for key, value in params.items() if value is not None and key not in _UNDERSTOOD)
    if unknown:
        raise UnsupportedError(
            "rollout.name=hf does not know these sampling parameters", got=unknown, remedy="use rollout.name=vllm"
        )


def _sampling(params: dict[str, Any]) -> dict[str, Any]:
    """Generation settings; null where a setting is off, since transformers would take the model's own default."""
    temperature = params.get("temperature", 1.0)
    greedy = temperature is not None and temperature == 0
    top_k, top_p = params.get("top_k") or 0, params.get("top_p")
    return {
        "temperature": None if greedy else float(1.0 if temperature is None else temperature),
        "top_k": None if greedy else max(0, int(top_k)),
        "top_p": None if greedy else float(1.0 if top_p is None else top_p),
        "min_p": None if greedy else params.get("min_p"),
        "repetition_penalty": float(params.get("repetition_penalty") or 1.0),
    }


def _left_padded(prompts: Sequence[list[int]], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    longest = max(len(prompt) for prompt in prompts)
    ids = [[0] * (longest - len(prompt)) + list(prompt) for prompt in prompts]
    mask = [[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts]
    return torch.tensor(ids, device=device), torch.tensor(mask, device=device)
