# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""From what a loop returned to a trajectory: one length for all per-token arrays, a version for each token."""

from typing import Any

import numpy as np

from verl.errors import DataError
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput
from verl.experimental.agent_loop.trajectory import Trajectory


def to_trajectory(
    output: AgentLoopOutput,
    *,
    uid: str,
    row: dict[str, Any],
    policy_version: int,
    prompt_length: int,
    response_length: int,
) -> Trajectory:
    """Check, cut to `response_length`, and convert.

    `policy_version` stands in for versions the loop did not pass on.
    """
    _check(output, uid, prompt_length)
    fields = dict(output.extra_fields)
    mask = np.asarray(output.response_mask, dtype=bool)
    versions = _versions(fields, mask, policy_version)
    cut = slice(0, response_length)
    log_probs = output.response_logprobs
    metrics = output.metrics.model_dump()
    fields.pop("token_versions", None)
    if len(mask) > response_length:
        # Whatever the last answer ended with, the trajectory ends with the limit.
        fields["finish_reason"] = "length"
    return Trajectory(
        uid=uid,
        prompt_ids=np.asarray(output.prompt_ids, dtype=np.int32),
        response_ids=np.asarray(output.response_ids, dtype=np.int32)[cut],
        response_mask=mask[cut],
        log_probs=None if log_probs is None else np.asarray(log_probs, dtype=np.float32)[cut],
        token_versions=versions[cut],
        reward_score=output.reward_score,
        num_turns=output.num_turns,
        stop_reason=fields.get("stop_reason"),
        metrics=metrics,
        extra_fields=fields,
        row=row,
        multi_modal_data=output.multi_modal_data,
    )


def _check(output: AgentLoopOutput, uid: str, prompt_length: int) -> None:
    count = len(output.response_ids)
    arrays: dict[str, Any] = {"response_mask": output.response_mask, "response_logprobs": output.response_logprobs}
    for name, array in arrays.items():
        if array is not None and len(array) != count:
            raise DataError(
                f"the agent loop returned {name} of another length than response_ids",
                where=f"trajectory of {uid}",
                got=len(array),
                expected=count,
            )
    if len(output.prompt_ids) > prompt_length:
        raise DataError(
            "the agent loop returned a prompt longer than rollout.prompt_length",
            where=f"trajectory of {uid}",
            got=f"{len(output.prompt_ids)} tokens",
            expected=f"at most {prompt_length}",
            remedy="raise data.max_prompt_length, or call render_first_prompt, which truncates",
        )


def _versions(fields: dict[str, Any], mask: np.ndarray, policy_version: int) -> np.ndarray:
    given = fields.get("token_versions")
    if given is not None and len(given) == len(mask):
        versions = np.asarray(given, dtype=np.int32)
    else:
        # A loop of a recipe that keeps the server's summary only: its last version is true of its last tokens.
        version = fields.get("max_global_steps", fields.get("global_steps"))
        versions = np.full(len(mask), policy_version if version is None else version, dtype=np.int32)
    return np.where(mask, versions, np.int32(-1)).astype(np.int32)
