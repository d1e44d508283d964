# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Sums of two two-digit numbers as a task: rows in parquet, and the reward function.

The answer is written from the units up ("12+34=" → "640"): a carry then depends only on digits already written,
which a small model learns in seconds. Read from the hundreds down, the first digit needs the whole sum at once.
"""

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

DATA_SOURCE = "sums"
TRAIN_FILE, HELD_OUT_FILE = "train.parquet", "held_out.parquet"
NUM_HELD_OUT = 1000
# Three digits and the end token.
RESPONSE_TOKENS = 4


def question(a: int, b: int) -> str:
    """`12+34=`: both numbers with two digits."""
    return f"{a:02d}+{b:02d}="


def answer(a: int, b: int) -> str:
    """The sum with three digits, units first: 46 is `640`."""
    return f"{a + b:03d}"[::-1]


def split_sums(num_held_out: int = NUM_HELD_OUT, seed: int = 0) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """All 10 000 pairs as (train, held out), shuffled by `seed`; a + b and b + a are always on the same side."""
    rng = random.Random(seed)
    unordered = [(a, b) for a in range(100) for b in range(a)]
    rng.shuffle(unordered)
    chosen = unordered[: num_held_out // 2]
    held_out = [pair for a, b in chosen for pair in ((a, b), (b, a))]
    excluded = set(held_out)
    train = [(a, b) for a in range(100) for b in range(100) if (a, b) not in excluded]
    rng.shuffle(train)
    rng.shuffle(held_out)
    return train, held_out


def row(a: int, b: int, split: str, index: int) -> dict[str, Any]:
    """One row with the columns that `RLHFDataset` reads."""
    return {
        "data_source": DATA_SOURCE,
        "prompt": [{"role": "user", "content": question(a, b)}],
        "ability": "arithmetic",
        "reward_model": {"style": "rule", "ground_truth": answer(a, b)},
        "extra_info": {"split": split, "index": index},
    }


def write_parquet(directory: Path, seed: int = 0) -> tuple[Path, Path]:
    """Write the train and held-out files into `directory`; returns their paths."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, split, pairs in zip((TRAIN_FILE, HELD_OUT_FILE), ("train", "test"), split_sums(seed=seed), strict=True):
        rows = [row(a, b, split, index) for index, (a, b) in enumerate(pairs)]
        paths.append(directory / name)
        pq.write_table(pa.Table.from_pylist(rows), paths[-1])
    return paths[0], paths[1]


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: dict[str, Any] | None = None, **kwargs: Any
) -> float:
    """1 for exactly the expected digits, else 0; an answer that goes on after the third digit is wrong."""
    return float(solution_str == ground_truth)
