# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""From a batch of prompts to jobs, one for each prompt, and from their trajectories to a batch."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from verl.errors import DataError, UnsupportedError
from verl.experimental.agent_loop.postprocess import assemble
from verl.experimental.agent_loop.trajectory import Trajectory
from verl.protocol import DataProto


@dataclass(frozen=True)
class GroupJob:
    """One prompt to be answered `n` times; `policy_version` is the version at submission.

    `greedy`: at temperature 0, whatever the configuration says (the baseline of ReMax).
    """

    row: dict[str, Any]
    uid: str
    n: int
    policy_version: int = -1
    validate: bool = False
    greedy: bool = False


def without_tensors(row: dict[str, Any]) -> dict[str, Any]:
    """The row as it travels: the placeholder tensor that batches need is of no use to a loop."""
    return {key: value for key, value in row.items() if not isinstance(value, torch.Tensor)}


def jobs_of(prompts: DataProto) -> list[GroupJob]:
    """One job for each run of rows with equal uid; rows without a uid stand alone."""
    columns = prompts.non_tensor_batch
    if "raw_prompt" not in columns:
        raise DataError("the batch has no raw_prompt", got=sorted(columns), expected="rows of RLHFDataset")
    uids = columns.get("uid")
    jobs: list[GroupJob] = []
    for index in range(len(columns["raw_prompt"])):
        uid = f"row-{index}" if uids is None else str(uids[index])
        if jobs and jobs[-1].uid == uid:
            jobs[-1] = dataclasses.replace(jobs[-1], n=jobs[-1].n + 1)
            continue
        row = without_tensors({key: column[index] for key, column in columns.items() if key != "uid"})
        meta = prompts.meta_info
        jobs.append(
            GroupJob(
                row,
                uid,
                n=1,
                policy_version=int(meta.get("global_steps", -1)),
                validate=bool(meta.get("validate", False)),
                greedy=not meta.get("do_sample", True),
            )
        )
    return jobs


def answers_to(
    prompts: DataProto, groups: Sequence[list[Trajectory]], rollout_config: Any, pad_token_id: int
) -> DataProto:
    """The batch that the trajectories of `jobs_of(prompts)` make, in the order of the prompts."""
    validate = bool(prompts.meta_info.get("validate", False))
    return assemble(
        list(groups),
        pad_token_id=pad_token_id,
        prompt_length=int(rollout_config.prompt_length),
        response_length=int(rollout_config.response_length),
        temperature=float(rollout_config.val_kwargs.temperature if validate else rollout_config.temperature),
    )


def reproducible_seed(config: Any) -> int | None:
    """The seed of trajectories where `rollout.full_determinism` asks for it, else None: the engine draws freely."""
    rollout = config.actor_rollout_ref.rollout
    if not rollout.get("full_determinism", False):
        return None
    for seed in (rollout.get("seed", None), config.data.get("seed", None), config.trainer.get("seed", None)):
        if seed is not None:
            return int(seed)
    return 42


def refuse_teacher(**given: Any) -> None:
    """Raise for an argument that names a teacher."""
    for name, value in given.items():
        if value is not None:
            raise UnsupportedError("on-policy distillation is left out", where=name, remedy="pass None")
