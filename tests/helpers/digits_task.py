# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""A task that an untrained model learns in a few updates, on whatever the tests run."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

REWARD = '''"""Share of digits among the characters of an answer, so that an untrained model has something to climb."""


def compute_score(data_source, solution_str, ground_truth, extra_info=None, **kwargs):
    return sum(character.isdigit() for character in solution_str) / 4
'''


def write_digits_task(directory: Path) -> list[str]:
    """Data and reward in `directory`; the overrides that point a quick start at them."""
    (directory / "reward.py").write_text(REWARD)
    for name, count in (("train", 512), ("val", 8)):
        rows = [
            {
                "data_source": "digits",
                "prompt": [{"role": "user", "content": f"{index % 100:02d}+{index % 97:02d}="}],
                "reward_model": {"style": "rule", "ground_truth": ""},
                "extra_info": {"split": name, "index": index},
            }
            for index in range(count)
        ]
        pq.write_table(pa.Table.from_pylist(rows), directory / f"{name}.parquet")
    return [
        f"data.train_files={directory}/train.parquet",
        f"data.val_files={directory}/val.parquet",
        f"reward.custom_reward_function.path={directory}/reward.py",
    ]
