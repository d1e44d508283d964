# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Measure the policy on the validation set, once for every trainer."""

import random
import time
from collections import defaultdict
from typing import Any

import numpy as np

from verl.protocol import DataProto
from verl.tracking.rollout_dump import dump_generations
from verl.trainer.ppo.metric_utils import process_validation_metrics
from verl.utils.trace import span


async def validate(
    loader: Any, agent_loops: Any, config: Any, tokenizer: Any, version: int
) -> tuple[dict[str, float], list[tuple[str, str, float]]]:
    """Generate and score the whole validation set under the weights that are served now.

    Returns
    -------
    metrics named `val-core/<data source>/<variable>/<metric>@<n>` and `val-aux/...`, and sample rows for the table.
    """
    sources: list[str] = []
    uids: list[str] = []
    scores: list[float] = []
    rows: list[dict[str, Any]] = []
    variables: dict[str, list[Any]] = defaultdict(list)
    started = time.monotonic()
    with span("validate", version=version):
        for rows_of_batch in loader:
            batch = DataProto.from_single_dict(rows_of_batch)
            size = len(batch)
            if "uid" not in batch.non_tensor_batch:
                batch.non_tensor_batch["uid"] = np.array([f"val-{len(uids) + i}" for i in range(size)], dtype=object)
            repeat = config.actor_rollout_ref.rollout.val_kwargs.n
            batch = batch.repeat(repeat_times=repeat, interleave=True)
            batch.meta_info |= {"validate": True, "global_steps": version}
            out = await agent_loops.generate_sequences(batch)
            reward_B = out.batch["rm_scores"].sum(-1).tolist()
            scores += reward_B
            uids += batch.non_tensor_batch["uid"].tolist()
            sources += batch.non_tensor_batch.get(
                "data_source", np.array(["unknown"] * len(batch), dtype=object)
            ).tolist()
            variables["reward"] += reward_B
            for key in out.meta_info.get("reward_extra_keys", []):
                variables[key] += list(out.non_tensor_batch[key])
            rows += _sample_rows(out, batch, reward_B, tokenizer)
    metrics = validation_metrics(sources, uids, variables)
    metrics["timing_s/testing"] = time.monotonic() - started
    _dump(config, rows, version)
    return metrics, _generations(rows, config.trainer.log_val_generations)


def validation_metrics(sources: list[str], uids: list[str], variables: dict[str, list[Any]]) -> dict[str, float]:
    """Split the statistics into val-core (core variable at the largest n: mean, maj, best) and val-aux (the rest)."""
    out: dict[str, float] = {}
    for source, by_variable in process_validation_metrics(sources, uids, variables).items():
        core = "acc" if "acc" in by_variable else "reward"
        for variable, statistics in by_variable.items():
            n_max = max((int(name.split("@")[-1].split("/")[0]) for name in statistics), default=1)
            for name, value in statistics.items():
                is_core = (
                    variable == core
                    and any(name.startswith(kind) for kind in ("mean", "maj", "best"))
                    and f"@{n_max}" in name
                )
                out[f"{'val-core' if is_core else 'val-aux'}/{source}/{variable}/{name}"] = float(value)
    return out


def _sample_rows(out: DataProto, batch: DataProto, scores: list[float], tokenizer: Any) -> list[dict[str, Any]]:
    inputs = tokenizer.batch_decode(out.batch["prompts"], skip_special_tokens=True)
    outputs = tokenizer.batch_decode(out.batch["responses"], skip_special_tokens=True)
    reward_models = batch.non_tensor_batch.get("reward_model", [{}] * len(batch))
    return [
        {
            "input": text_in,
            "output": text_out,
            "gts": (reward_model or {}).get("ground_truth"),
            "score": score,
            "uid": uid,
        }
        for text_in, text_out, reward_model, score, uid in zip(
            inputs, outputs, reward_models, scores, batch.non_tensor_batch["uid"], strict=True
        )
    ]


def _dump(config: Any, rows: list[dict[str, Any]], version: int) -> None:
    directory = config.trainer.get("validation_data_dir")
    if directory:
        column = {key: [row[key] for row in rows] for key in rows[0]} if rows else {}
        dump_generations(
            directory,
            version,
            inputs=column.get("input", []),
            outputs=column.get("output", []),
            gts=column.get("gts", []),
            scores=column.get("score", []),
            extras={"uid": column.get("uid", []), "reward": column.get("score", [])},
        )


def _generations(rows: list[dict[str, Any]], count: int) -> list[tuple[str, str, float]]:
    # The same rows at every version, so that a reader can follow one prompt through the run.
    picked = sorted(rows, key=lambda row: row["input"])
    random.Random(42).shuffle(picked)
    return [(row["input"], row["output"], row["score"]) for row in picked[:count]]
