# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""PF-PPO: resample a batch so that its most telling answers appear more often (arXiv 2409.06957).

Shapes: B trajectories, T response tokens.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from verl.errors import ConfigError

# Added to every weight, so that a batch in which no answer has any can be drawn from.
SMALLEST_WEIGHT = 1e-8


@torch.no_grad()
def compute_pf_ppo_reweight_data(
    data: Any,
    reweight_method: str = "pow",
    weight_pow: float = 2.0,
    generator: torch.Generator | None = None,
) -> Any:
    """As many rows of the DataProto `data`, drawn with replacement by a weight of each row's score.

    `pow`: |score|^weight_pow · `max_min`: only the best and the worst · `max_random`: 0.4 for the best, 0.1 for others.
    The score is the sum of `token_level_scores` [B, T]. A row that could not be scored, or whose `response_mask` is
    empty, is not drawn while there is another. Lists of B entries in `meta_info` are drawn with their rows.
    """
    score_B = data.batch["token_level_scores"].sum(-1).double()
    counted_B = torch.isfinite(score_B)
    if "response_mask" in data.batch.keys():  # noqa: SIM118 - a TensorDict answers `in` only through keys()
        counted_B = counted_B & data.batch["response_mask"].bool().any(-1)
    weight_B = reweight(score_B, counted_B, reweight_method, weight_pow)
    # On the host: the draw is then the same on every device.
    rows = torch.multinomial(weight_B.cpu(), len(score_B), replacement=True, generator=generator).tolist()
    drawn = data.select_idxs(rows)
    return replace(drawn, meta_info={key: _of_rows(fact, rows) for key, fact in data.meta_info.items()})


def reweight(score_B: Tensor, counted_B: Tensor, method: str, weight_pow: float) -> Tensor:
    """Weight of each row [B], float64; exactly 0 for rows that do not count, if any row counts."""
    if not counted_B.any():
        return torch.full_like(score_B, SMALLEST_WEIGHT)
    best_B = counted_B & (score_B == score_B[counted_B].max())
    worst_B = counted_B & (score_B == score_B[counted_B].min())
    if method == "pow":
        weight_B = score_B.abs().pow(weight_pow)
    elif method == "max_min":
        weight_B = (best_B | worst_B).double()
    elif method == "max_random":
        weight_B = torch.where(best_B, 0.4, 0.1).double()
    else:
        raise ConfigError(
            "unknown reweighting",
            where="algorithm.pf_ppo.reweight_method",
            got=method,
            expected="pow | max_min | max_random",
        )
    return torch.where(counted_B, weight_B + SMALLEST_WEIGHT, 0.0)


def _of_rows(fact: Any, rows: list[int]) -> Any:
    return [fact[row] for row in rows] if isinstance(fact, list) and len(fact) == len(rows) else fact
