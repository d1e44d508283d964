# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Scores a file of answers: for each data source, the mean over prompts of the mean over their answers.

python -m verl.trainer.main_eval data.path=answers.parquet custom_reward_function.path=mine.py
"""

import asyncio
import json
import logging
import sys
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from verl.config import EvalRunConfig, build_eval_config
from verl.config.front_door import run_main
from verl.errors import DataError, RewardError
from verl.experimental.reward_loop.score_pool import ScorePool
from verl.trainer.ppo.reward import score_pool_of
from verl.utils.dataset.files import read_rows, resolve_data_files

logger = logging.getLogger(__name__)

# Answers handed to the pool at once; it has at most 32 processes.
IN_FLIGHT = 256


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code: 0 done, 1 nothing could be scored, 2 the configuration is wrong."""
    return run_main(_run, "verl.trainer.config", "evaluation", argv, build=build_eval_config)


def _run(config: EvalRunConfig, composed: Any) -> int:
    metrics = asyncio.run(evaluate(config, read_answers(config.data)))
    sys.stdout.write(json.dumps(metrics, indent=2, sort_keys=True) + "\n")
    return 0 if any(name.startswith("test_score/") for name in metrics) else 1


async def evaluate(config: Any, rows: Sequence[tuple[str, list[str], Any]]) -> dict[str, float]:
    """`test_score/<data source>`, and `num_errors/<data source>` where answers could not be scored.

    The reward function is called as in training, in processes that a deadline kills; an answer that cannot be scored is
    left out of its mean, a prompt without any scored answer out of its data source.
    """
    pool = score_pool_of(config)
    slots = asyncio.Semaphore(IN_FLIGHT)
    try:
        await pool.start()
        scored = await asyncio.gather(*(_score_row(pool, slots, *row) for row in rows))
    finally:
        await pool.close()
    means: dict[str, list[float]] = defaultdict(list)
    errors: dict[str, int] = defaultdict(int)
    for (source, responses, _), scores in zip(rows, scored, strict=True):
        errors[source] += len(responses) - len(scores)
        if scores:
            means[source].append(sum(scores) / len(scores))
    return {f"test_score/{source}": sum(values) / len(values) for source, values in means.items()} | {
        f"num_errors/{source}": float(count) for source, count in errors.items() if count
    }


def read_answers(data: Any) -> list[tuple[str, list[str], Any]]:
    """(data source, answers, ground truth) of each row."""
    files = resolve_data_files(data.path, where="data.path")
    table = read_rows(files)
    keys = [data[name] for name in ("data_source_key", "response_key", "reward_model_key")]
    missing = [key for key in keys if key not in table.column_names]
    if missing:
        raise DataError(f"no columns {missing}", where=", ".join(files), got=table.column_names)
    found = []
    for index, (source, responses, truth) in enumerate(zip(*(table[key].to_pylist() for key in keys), strict=True)):
        if not isinstance(truth, dict) or "ground_truth" not in truth:
            raise DataError("the row has no ground truth", where=f"row {index}, column {keys[2]}", got=truth)
        found.append((source, [responses] if isinstance(responses, str) else list(responses), truth["ground_truth"]))
    return found


async def _score_row(
    pool: ScorePool, slots: asyncio.Semaphore, source: str, responses: Sequence[str], ground_truth: Any
) -> list[float]:
    async def score(response: str) -> float | None:
        async with slots:
            try:
                value, _ = await pool.call(data_source=source, solution_str=response, ground_truth=ground_truth)
                return value
            except RewardError as error:
                logger.warning("an answer of %s could not be scored: %s", source, error)
                return None

    values = await asyncio.gather(*map(score, responses))
    return [value for value in values if value is not None]


if __name__ == "__main__":
    sys.exit(main())
