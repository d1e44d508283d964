# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Supervised fine-tuning as it is launched: the loss falls, two ranks learn what one learns, a kill loses nothing."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.helpers.rank_processes import run_on_ranks
from verl.config import SFTRunConfig
from verl.errors import ConfigError, UnsupportedError
from verl.quickstart.model import build_tokenizer, save_tiny_model
from verl.tracking import read_metrics
from verl.trainer.sft_data import create_sft_dataset, to_batch
from verl.trainer.sft_trainer import SFTTrainer

DEADLINE_S = 300


def conversations(count: int, seed: int) -> list[list[dict[str, str]]]:
    draw = random.Random(seed)
    found = []
    for _ in range(count):
        a, b = draw.randrange(10), draw.randrange(10)
        found.append([{"role": "user", "content": f"{a}+{b}="}, {"role": "assistant", "content": str(a + b)[::-1]}])
    return found


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sft")
    save_tiny_model(folder / "model", hidden=32)
    for name, count, seed in (("train", 64, 0), ("val", 11, 1)):
        pq.write_table(pa.table({"messages": conversations(count, seed)}), folder / f"{name}.parquet")
    return folder


def arguments(place: Path, out: Path, *more: str) -> list[str]:
    return [
        f"model.path={place / 'model'}",
        f"data.train_files={place / 'train.parquet'}",
        f"data.val_files={place / 'val.parquet'}",
        "data.train_batch_size=16",
        "data.num_workers=0",
        "optim.lr=3e-3",
        "trainer.total_epochs=3",
        "trainer.logger=console",
        f"trainer.default_local_dir={out}",
        *more,
    ]


def launch(options: list[str], ranks: int = 1) -> subprocess.Popen:
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}", "-m"]
    command = [sys.executable, *(torchrun if ranks > 1 else ["-m"]), "verl.trainer.sft_trainer", *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def run(options: list[str], ranks: int = 1) -> str:
    process = launch(options, ranks)
    said, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, said[-3000:]
    return said


def metrics(out: Path) -> list[dict[str, float]]:
    return [{"step": record["step"], **record["data"]} for record in read_metrics(out / "metrics.jsonl")]


def losses(out: Path) -> list[tuple[int, float]]:
    return [(record["step"], record["train/loss"]) for record in metrics(out)]


@pytest.fixture(scope="module")
def whole(place: Path) -> Path:
    out = place / "whole"
    run(
        arguments(
            place,
            out,
            "trainer.test_freq=after_each_epoch",
            "checkpoint.save_contents=[model,optimizer,extra,hf_model]",
        )
    )
    return out


def test_the_loss_falls_and_each_step_is_recorded(whole: Path) -> None:
    found = losses(whole)
    assert [step for step, _ in found] == list(range(1, 13))
    assert found[-1][1] < 0.7 * found[0][1]
    records = metrics(whole)
    assert [record["step"] for record in records if "val/loss" in record] == [4, 8, 12]
    assert records[-1]["train/total_tokens(B)"] * 1e9 == pytest.approx(sum(r["train/global_tokens"] for r in records))


def test_the_validation_loss_is_that_of_the_saved_model(place: Path, whole: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(whole / "global_step_12" / "huggingface")
    data = {"max_length": 64, "pad_mode": "no_padding"}
    dataset = create_sft_dataset(str(place / "val.parquet"), data, build_tokenizer(), None)
    total, count = 0.0, 0
    for index in range(len(dataset)):
        batch = to_batch([dataset[index]], 0)
        with torch.no_grad():
            log_probs = model(batch["input_ids"]).logits[0, :-1].double().log_softmax(-1)
        picked = log_probs.gather(-1, batch["input_ids"][0, 1:, None])[:, 0]
        learned = batch["loss_mask"][0, 1:].bool()
        total, count = total - picked[learned].sum().item(), count + int(learned.sum())
    last = metrics(whole)[-1]
    assert last["val/loss"] == pytest.approx(total / count, rel=1e-4)


def test_two_ranks_learn_what_one_rank_learns(place: Path, whole: Path) -> None:
    out = place / "two"
    run(arguments(place, out), ranks=2)
    for (step, got), (_, expected) in zip(losses(out), losses(whole), strict=True):
        assert got == pytest.approx(expected, rel=2e-3), step
    one, two = metrics(whole)[-1], metrics(out)[-1]
    assert two["val/loss"] == pytest.approx(one["val/loss"], rel=2e-3)
    assert {path.name for path in (out / "global_step_12").glob("data_*.pt")} == {"data_0.pt", "data_1.pt"}


def test_rows_change_ranks_so_that_each_has_about_as_many_tokens(tmp_path: Path) -> None:
    run_on_ranks(Path(__file__).with_name("sft_ranks.py"), out=tmp_path)
    parts = [json.loads((tmp_path / f"rows-{rank}.json").read_text()) for rank in range(2)]
    assert [len(part) for part in parts] == [3, 3]
    # 24 and 6 tokens before; three rows each cannot come nearer to 15.
    assert {sum(len(ids) for ids, _ in part) for part in parts} == {14, 16}
    expected = [[n] * n for n in (9, 8, 7)] + [[10 + n] * n for n in (1, 2, 3)]
    assert sorted(ids for part in parts for ids, _ in part) == sorted(expected)
    assert all(learned == [0] + [1] * (len(ids) - 1) for part in parts for ids, learned in part)


def until(condition: Callable[[], bool], process: subprocess.Popen) -> None:
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert process.poll() is None, process.communicate()[0][-3000:]
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, 128 + signal.SIGTERM)])
def test_a_run_that_was_stopped_goes_on_as_if_it_had_not_been(
    place: Path, whole: Path, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    options = arguments(place, tmp_path, "trainer.save_freq=1")
    process = launch(options)
    tracker = tmp_path / "latest_checkpointed_iteration.txt"
    until(lambda: tracker.exists() and int(tracker.read_text()) >= 3, process)
    os.kill(process.pid, number)
    process.communicate(timeout=DEADLINE_S)
    assert process.returncode == code and int(tracker.read_text()) < 12
    run(options)
    assert dict(losses(tmp_path)) == pytest.approx(dict(losses(whole)))


def test_the_number_of_checkpoints_that_stay_is_kept(place: Path, tmp_path: Path) -> None:
    run(
        arguments(
            place, tmp_path, "trainer.save_freq=1", "trainer.max_ckpt_to_keep=2", "trainer.total_training_steps=4"
        )
    )
    assert sorted(path.name for path in tmp_path.glob("global_step_*")) == ["global_step_3", "global_step_4"]


@pytest.mark.parametrize(
    ("changed", "error", "sentence"),
    [
        ({"n_gpus_per_node": 2}, ConfigError, "torchrun --nnodes=1 --nproc_per_node=2"),
        ({"default_hdfs_dir": "hdfs://there"}, UnsupportedError, "trainer.default_hdfs_dir"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is_loaded(
    changed: dict[str, object], error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        SFTTrainer({"trainer": changed, "model": {"path": "/nowhere"}})


def test_a_mapping_and_a_typed_configuration_mean_the_same() -> None:
    with pytest.raises(UnsupportedError, match="HDFS"):
        SFTTrainer(SFTRunConfig(trainer=SFTRunConfig().trainer.__class__(default_hdfs_dir="hdfs://there")))
