# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""GSM8K's question and answer rows to parquet: python examples/prepare_gsm8k.py INPUT.jsonl OUTPUT.parquet [SPLIT]."""

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

INSTRUCTION = "Think step by step, then give the final answer after '####'."


def convert(row: dict[str, str], split: str, index: int) -> dict[str, Any]:
    """One row: the number after `####` is the ground truth."""
    solution, _, final = row["answer"].rpartition("####")
    return {
        "data_source": "openai/gsm8k",
        "prompt": [{"role": "user", "content": f"{row['question']} {INSTRUCTION}"}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": final.strip().replace(",", "")},
        "extra_info": {"split": split, "index": index, "question": row["question"], "answer": solution.strip()},
    }


def main(source: str, target: str, split: str = "train") -> None:
    """Convert the whole file."""
    lines = Path(source).read_text(encoding="utf-8").splitlines()
    rows = [convert(json.loads(line), split, index) for index, line in enumerate(lines) if line.strip()]
    pq.write_table(pa.Table.from_pylist(rows), target)


if __name__ == "__main__":
    main(*sys.argv[1:])
