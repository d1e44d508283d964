# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq

from verl.quickstart.task import answer, compute_score, question, split_sums, write_parquet


def test_a_sum_is_asked_with_two_digits_and_answered_units_first() -> None:
    assert (question(2, 34), answer(2, 34)) == ("02+34=", "630")
    assert (question(99, 99), answer(99, 99)) == ("99+99=", "891")


def test_train_and_held_out_share_no_sum_in_either_order() -> None:
    train, held_out = split_sums()
    assert len(train) == 9000 and len(held_out) == 1000
    assert len(set(train) | set(held_out)) == 10_000
    assert not {tuple(sorted(pair)) for pair in train} & {tuple(sorted(pair)) for pair in held_out}


def test_the_split_is_the_same_on_every_machine() -> None:
    assert split_sums()[1][:3] == [(46, 42), (77, 15), (31, 77)]
    assert split_sums(seed=0)[1] != split_sums(seed=1)[1]


def test_the_files_carry_the_columns_of_the_rl_data_set(tmp_path: Path) -> None:
    train, held_out = write_parquet(tmp_path / "data")
    rows = pq.read_table(held_out).to_pylist()
    assert pq.read_metadata(train).num_rows == 9000 and len(rows) == 1000
    first = rows[0]
    a, b = int(first["prompt"][0]["content"][:2]), int(first["prompt"][0]["content"][3:5])
    assert first["prompt"][0]["role"] == "user"
    assert first["reward_model"] == {"style": "rule", "ground_truth": answer(a, b)}
    assert first["data_source"] == "sums" and first["extra_info"] == {"split": "test", "index": 0}


def test_only_the_exact_answer_scores() -> None:
    truth = answer(12, 34)
    assert compute_score("sums", "640", truth) == 1.0
    for wrong in ("046", "64", "6400", "640 ", ""):
        assert compute_score("sums", wrong, truth) == 0.0


def test_the_reward_function_loads_without_torch() -> None:
    code = "import sys, verl.quickstart.task; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
