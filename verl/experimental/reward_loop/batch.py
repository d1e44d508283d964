# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Scores of a whole batch as tensors."""

import math
from collections.abc import Sequence
from typing import Any

import torch

from verl.protocol import DataProto
from verl.protocol.columns import object_column


def scores_to_data(data: DataProto, answers: Sequence[dict[str, Any]]) -> DataProto:
    """`rm_scores` [B,T] with each score on the last response token, and one column for each extra.

    A trajectory without a score has `reward_error`, and NaN in the place of the score: estimators and metrics leave it
    out, while a zero would be trained on.
    """
    num_prompt = data.tensors["prompts"].shape[-1]
    lengths = data.tensors["attention_mask"][:, num_prompt:].sum(-1).tolist()
    scores_BT = torch.zeros(data.tensors["responses"].shape, dtype=torch.float32)
    for row, (length, answer) in enumerate(zip(lengths, answers, strict=True)):
        if length:
            score = answer["reward_score"]
            scores_BT[row, length - 1] = math.nan if score is None else score
    keys = sorted({key for answer in answers for key in answer["reward_extra_info"]})
    columns = {key: [answer["reward_extra_info"].get(key) for answer in answers] for key in keys}
    columns["reward_error"] = [answer["reward_error"] for answer in answers]
    return DataProto.from_dict(
        tensors={"rm_scores": scores_BT},
        non_tensors={key: object_column(values) for key, values in columns.items()},
        meta_info={"reward_extra_keys": keys},
    )
