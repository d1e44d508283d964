# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Ragged trajectories to one padded batch. Padding happens here and only here.

Shapes: B trajectories, P prompt tokens, T response tokens, S = P + T.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import torch

from verl.errors import DataError
from verl.experimental.agent_loop.trajectory import Trajectory
from verl.protocol import DataProto
from verl.protocol.columns import object_column

__all__ = ["assemble", "performance_metrics"]


def assemble(
    groups: Sequence[Sequence[Trajectory]],
    *,
    pad_token_id: int,
    prompt_length: int,
    response_length: int,
    temperature: float,
) -> DataProto:
    """Prompts padded on the left to P, responses on the right to T; rows in the order of the groups.

    A trajectory whose scoring failed (`reward_error` without a score) gets an empty `response_mask`: it is neither
    trained on nor counted in its group's statistics. `rm_scores` is there if any trajectory was scored,
    `multi_modal_data` (`images`, `videos` of each row) if any has some.
    """
    rows = [trajectory for group in groups for trajectory in group]
    if not rows:
        raise DataError("no trajectory to assemble", where="assemble")
    _check(rows, prompt_length, response_length)
    tensors = _pad(rows, pad_token_id, prompt_length, response_length)
    extra_keys = sorted({key for row in rows for key in row.reward_extra_info})
    return DataProto.from_dict(
        tensors=tensors,
        non_tensors=_columns(rows, extra_keys),
        meta_info={
            "temperature": temperature,
            "global_token_num": tensors["attention_mask"].sum(-1).tolist(),
            "reward_extra_keys": extra_keys,
            "metrics": [row.metrics for row in rows],
            "timing": performance_metrics(rows),
        },
    )


def _check(rows: Sequence[Trajectory], prompt_length: int, response_length: int) -> None:
    for row in rows:
        got, limit = (len(row.prompt_ids), len(row.response_ids)), (prompt_length, response_length)
        if got[0] > limit[0] or got[1] > limit[1]:
            raise DataError(
                "a trajectory does not fit the batch",
                where=f"trajectory of {row.uid}",
                got=f"{got[0]} prompt and {got[1]} response tokens",
                expected=f"at most {limit[0]} and {limit[1]}",
            )


def _pad(rows: Sequence[Trajectory], pad_token_id: int, num_prompt: int, num_response: int) -> dict[str, torch.Tensor]:
    shape = len(rows), num_prompt + num_response
    input_ids = np.full(shape, pad_token_id, dtype=np.int64)
    attention_mask = np.zeros(shape, dtype=np.int64)
    response_mask = np.zeros((len(rows), num_response), dtype=np.int64)
    versions = np.full((len(rows), num_response), -1, dtype=np.int32)
    log_probs = np.zeros((len(rows), num_response), dtype=np.float32)
    scores = np.zeros((len(rows), num_response), dtype=np.float32)
    for b, row in enumerate(rows):
        length = len(row.response_ids)
        sequence = slice(num_prompt - len(row.prompt_ids), num_prompt + length)
        input_ids[b, sequence] = np.concatenate([row.prompt_ids, row.response_ids])
        attention_mask[b, sequence] = 1
        versions[b, :length] = row.token_versions
        if row.log_probs is not None:
            log_probs[b, :length] = row.log_probs
        if row.reward_score is not None and length:
            # On the last token of the policy's own: a reward on a tool's token would be masked away.
            own = np.flatnonzero(row.response_mask)
            scores[b, own[-1] if own.size else length - 1] = row.reward_score
        if row.reward_score is not None or row.reward_error is None:
            response_mask[b, :length] = row.response_mask
    arrays: dict[str, np.ndarray] = {
        "prompts": input_ids[:, :num_prompt],
        "responses": input_ids[:, num_prompt:],
        "input_ids": input_ids,
        "attention_mask": attention_mask,
        # Positions count real tokens; padding on the left takes position 0.
        "position_ids": np.clip(np.cumsum(attention_mask, axis=1) - 1, 0, None) * attention_mask,
        "response_mask": response_mask,
        "token_versions": versions,
    }
    if all(row.log_probs is not None for row in rows):
        arrays["rollout_log_probs"] = log_probs
    if any(row.reward_score is not None or row.reward_error is not None for row in rows):
        arrays["rm_scores"] = scores
    return {key: torch.from_numpy(np.ascontiguousarray(array)) for key, array in arrays.items()}


def _columns(rows: Sequence[Trajectory], extra_keys: Iterable[str]) -> dict[str, np.ndarray]:
    """One object column per field of any row; what a row lacks is None."""
    row_keys = dict.fromkeys(key for row in rows for key in row.row)
    field_keys = dict.fromkeys(key for row in rows for key in row.extra_fields)
    columns = {key: [row.row.get(key) for row in rows] for key in row_keys}
    columns |= {key: [row.extra_fields.get(key) for row in rows] for key in field_keys}
    columns |= {key: [row.reward_extra_info.get(key) for row in rows] for key in extra_keys}
    columns |= {
        "uid": [row.uid for row in rows],
        "__num_turns__": [row.num_turns for row in rows],
        "min_global_steps": [row.versions[0] for row in rows],
        "max_global_steps": [row.versions[1] for row in rows],
        "reward_error": [row.reward_error for row in rows],
        "stop_reason": [row.stop_reason for row in rows],
    }
    if any(row.multi_modal_data for row in rows):
        columns["multi_modal_data"] = [row.multi_modal_data for row in rows]
    return {key: object_column(values) for key, values in columns.items()}


def performance_metrics(rows: Sequence[Trajectory]) -> dict[str, float]:
    """Seconds of generation, tools and scoring over trajectories, and where the slowest one spent its time."""
    names = ("num_preempted", "generate_sequences", "tool_calls", "compute_score")
    timing: dict[str, float] = {}
    for name in names:
        values = np.array([float(row.metrics.get(name, 0.0)) for row in rows])
        timing |= {
            f"agent_loop/{name}/min": float(values.min()),
            f"agent_loop/{name}/max": float(values.max()),
            f"agent_loop/{name}/mean": float(values.mean()),
        }
    slowest = max(rows, key=lambda row: row.metrics.get("generate_sequences", 0.0) + row.metrics.get("tool_calls", 0.0))
    timing |= {f"agent_loop/slowest/{name}": float(slowest.metrics.get(name, 0.0)) for name in names}
    timing["agent_loop/slowest/prompt_length"] = float(len(slowest.prompt_ids))
    timing["agent_loop/slowest/response_length"] = float(len(slowest.response_ids))
    return timing
