# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Measure the policy on the validation set, once for every trainer."""

import math
import random
import time
from typing import Any

import numpy as np

from verl.protocol import DataProto
from verl.tracking.rollout_dump import dump_generations
from verl.trainer.ppo.metric_utils import process_validation_metrics, scores_of
from verl.utils.trace import span

_SPREAD = (("min", min), ("max", max), ("mean", np.mean))


async def validate(
    loader: Any, agent_loops: Any, config: Any, tokenizer: Any, version: int
) -> tuple[dict[str, float], list[tuple[str, str, float]]]:
    """Generate and score the whole validation set under the weights that are served now.

    Returns
    -------
    metrics named `val-core/<data source>/<variable>/<metric>@<n>` and `val-aux/...`, and sample rows for the table.
    """
    rows: list[dict[str, Any]] = []
    started = time.monotonic()
    with span("validate", version=version):
        for rows_of_batch in loader:
            batch = DataProto.from_single_dict(rows_of_batch)
            if "uid" not in batch.non_tensor_batch:
                first = len(rows)
                batch.non_tensor_batch["uid"] = np.array([f"val-{first + i}" for i in range(len(batch))], dtype=object)
            repeat = config.actor_rollout_ref.rollout.val_kwargs.n
            batch = batch.repeat(repeat_times=repeat, interleave=True)
            batch.meta_info |= {"validate": True, "global_steps": version}
            rows += _answers(batch, await agent_loops.generate_sequences(batch), tokenizer)
    extra_keys = list(dict.fromkeys(key for row in rows for key in row["extras"]))
    # A failed reward is no answer worth 0: its None is left out of every statistic.
    variables = {"reward": [row["score"] for row in rows]}
    variables |= {key: [row["extras"].get(key) for row in rows] for key in extra_keys}
    metrics = validation_metrics([row["source"] for row in rows], [row["uid"] for row in rows], variables)
    turns = [row["num_turns"] for row in rows]
    if turns:
        metrics |= {f"val-aux/num_turns/{name}": float(f(turns)) for name, f in _SPREAD}
    metrics["timing_s/testing"] = time.monotonic() - started
    _dump(config, rows, extra_keys, version)
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


def _answers(batch: DataProto, out: DataProto, tokenizer: Any) -> list[dict[str, Any]]:
    """One dict for each answer: what was asked, what came back, and what it was worth."""
    nothing = [None] * len(batch)
    columns, given = out.non_tensor_batch, batch.non_tensor_batch
    extra_keys = out.meta_info.get("reward_extra_keys", [])
    fields = {
        "input": tokenizer.batch_decode(out.batch["prompts"], skip_special_tokens=True),
        "output": tokenizer.batch_decode(out.batch["responses"], skip_special_tokens=True),
        "gts": [(item or {}).get("ground_truth") for item in given.get("reward_model", nothing)],
        "score": scores_of(out, "rm_scores"),
        "uid": given["uid"].tolist(),
        "source": given.get("data_source", ["unknown"] * len(batch)),
        "request_id": columns.get("request_id", nothing),
        "reward_error": columns.get("reward_error", nothing),
        "num_turns": columns["__num_turns__"].tolist(),
        "extras": [{key: columns[key][i] for key in extra_keys} for i in range(len(batch))],
    }
    return [dict(zip(fields, values, strict=True)) for values in zip(*fields.values(), strict=True)]


def _dump(config: Any, rows: list[dict[str, Any]], extra_keys: list[str], version: int) -> None:
    directory = config.trainer.get("validation_data_dir")
    if not directory:
        return
    column = {name: [row[name] for row in rows] for name in ("input", "output", "gts", "score")}
    extras = {key: [row["extras"].get(key) for row in rows] for key in extra_keys}
    extras |= {"reward": column["score"]}
    extras |= {name: [row[name] for row in rows] for name in ("uid", "request_id", "reward_error", "num_turns")}
    dump_generations(
        directory,
        version,
        inputs=column["input"],
        outputs=column["output"],
        gts=column["gts"],
        scores=column["score"],
        extras=extras,
    )


def _generations(rows: list[dict[str, Any]], count: int) -> list[tuple[str, str, float]]:
    # The same rows at every version, so that a reader can follow one prompt through the run.
    picked = sorted(rows, key=lambda row: row["input"])
    random.Random(42).shuffle(picked)
    return [(row["input"], row["output"], math.nan if row["score"] is None else row["score"]) for row in picked[:count]]
