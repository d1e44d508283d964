# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Scores of a whole batch as tensors."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from verl.protocol import DataProto


def scores_to_data(data: DataProto, answers: Sequence[dict[str, Any]]) -> DataProto:
    """`rm_scores` [B,T] with each score on the last response token, and one column for each extra.

    A trajectory without a score has zeros and `reward_error`.
    """
    num_prompt = data.batch["prompts"].shape[-1]
    lengths = data.batch["attention_mask"][:, num_prompt:].sum(-1).tolist()
    scores_BT = torch.zeros(data.batch["responses"].shape, dtype=torch.float32)
    for row, (length, answer) in enumerate(zip(lengths, answers, strict=True)):
        if answer["reward_score"] is not None and length:
            scores_BT[row, length - 1] = answer["reward_score"]
    keys = sorted({key for answer in answers for key in answer["reward_extra_info"]})
    columns = {key: [answer["reward_extra_info"].get(key) for answer in answers] for key in keys}
    columns["reward_error"] = [answer["reward_error"] for answer in answers]
    return DataProto.from_dict(
        tensors={"rm_scores": scores_BT},
        non_tensors={key: _object_array(values) for key, values in columns.items()},
        meta_info={"reward_extra_keys": keys},
    )


def _object_array(values: Sequence[Any]) -> np.ndarray:
    column = np.empty(len(values), dtype=object)
    column[:] = list(values)
    return column
