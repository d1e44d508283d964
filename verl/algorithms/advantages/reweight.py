# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""PF-PPO: resample a batch so that its most telling answers appear more often (arXiv 2409.06957)."""

from typing import Any

import torch
from torch import Tensor

from verl.errors import ConfigError


@torch.no_grad()
def compute_pf_ppo_reweight_data(data: Any, reweight_method: str = "pow", weight_pow: float = 2.0) -> Any:
    """As many rows of the DataProto `data`, drawn with replacement by a weight of each row's score.

    `pow`: |score|^weight_pow · `max_min`: only the best and the worst · `max_random`: 0.4 for the best, 0.1 for others.
    """
    score_B = torch.nan_to_num(data.batch["token_level_scores"].sum(-1).double())
    rows = torch.multinomial(_weights(score_B, reweight_method, weight_pow) + 1e-8, len(score_B), replacement=True)
    return data.select_idxs(rows)


def _weights(score_B: Tensor, method: str, weight_pow: float) -> Tensor:
    best_B = score_B == score_B.max()
    if method == "pow":
        return score_B.abs().pow(weight_pow)
    if method == "max_min":
        return (best_B | (score_B == score_B.min())).double()
    if method == "max_random":
        return torch.where(best_B, 0.4, 0.1).double()
    raise ConfigError(
        "unknown reweighting",
        where="algorithm.pf_ppo.reweight_method",
        got=method,
        expected="pow | max_min | max_random",
    )
