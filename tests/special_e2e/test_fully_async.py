# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The whole system, real in every part: it learns, it dies loudly, and it loses nothing."""

import json
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

from tests.special_e2e.job import Job
from verl.quickstart.model import save_tiny_model

pytestmark = pytest.mark.timeout(900)

MAX_TORCH_PROCESSES = 8


def trained_uids(out: Path) -> Counter[str]:
    """How often each prompt group was trained, by the rollout dump."""
    uids: Counter[str] = Counter()
    for path in (out / "rollouts").glob("*.jsonl"):
        uids.update({json.loads(line)["uid"] for line in path.read_text().splitlines()})
    return uids


def assert_reward_rises(job: Job, steps: int) -> None:
    """The gain from the first five to the last five updates is at least four standard errors."""
    rewards = [record["data"]["critic/score/mean"] for record in job.metrics() if "critic/score/mean" in record["data"]]
    assert len(rewards) == steps
    first, last = np.array(rewards[:5]), np.array(rewards[-5:])
    error = np.sqrt(first.var(ddof=1) / 5 + last.var(ddof=1) / 5)
    assert last.mean() - first.mean() >= 4 * error, (first, last)


def test_the_synchronous_trainer_learns_on_the_same_loop(launch: Callable[..., Job]) -> None:
    job = launch.synchronous("trainer.total_training_steps=30")
    assert job.wait(400) == 0, job.text()[-3000:]
    assert_reward_rises(job, steps=30)
    assert job.leftovers() == {}


def test_a_file_of_prompts_is_answered_by_the_servers(launch: Callable[..., Job], tmp_path: Path) -> None:
    path = tmp_path / "answers.parquet"
    greedy = ("actor_rollout_ref.rollout.name=hf", "actor_rollout_ref.rollout.do_sample=False")
    job = launch.generation(f"+data.output_path={path}", "data.train_max_samples=5", *greedy)
    assert job.wait(300) == 0, job.text()[-3000:]
    responses = pq.read_table(path)["responses"].to_pylist()
    assert [len(answers) for answers in responses] == [8] * 5
    assert all(len(set(answers)) == 1 and answers[0] for answers in responses), "greedy answers are alike"
    assert job.leftovers() == {}


def test_the_one_step_off_trainer_learns_one_step_behind_and_resumes(launch: Callable[..., Job]) -> None:
    job = launch.one_step_off("trainer.total_training_steps=30", "trainer.save_freq=5")
    job.until_version(10)
    job.process.terminate()
    assert job.wait() == 128 + signal.SIGTERM, job.text()[-3000:]
    assert job.leftovers() == {}
    resumed = launch.one_step_off("trainer.total_training_steps=30", "trainer.save_freq=5")
    assert resumed.wait(400) == 0, resumed.text()[-3000:]
    assert_reward_rises(resumed, steps=30)
    trained = trained_uids(resumed.out)
    assert len(trained) == 30 * 8 and set(trained.values()) == {1}
    assert resumed.leftovers() == {}


def test_the_reward_rises_and_everything_is_where_it_should_be(launch: Callable[..., Job]) -> None:
    job = launch("rollout.total_rollout_steps=240", "trainer.test_freq=15", "trainer.save_freq=15")
    job.until_version(2)
    assert len(job.loaded_torch()) <= MAX_TORCH_PROCESSES, job.loaded_torch()
    assert job.wait(300) == 0, job.text()[-3000:]

    assert_reward_rises(job, steps=30)
    last_record = next(record["data"] for record in reversed(job.metrics()) if "actor/pg_loss" in record["data"])
    for name in (
        "actor/grad_norm",
        "timing_s/update_actor",
        "fully_async/count/current_param_version",
        "perf/throughput",
    ):
        assert name in last_record
    assert (job.out / "latest_checkpointed_iteration.txt").read_text() == "30"
    assert (job.out / "global_step_30" / "actor").is_dir()
    assert json.loads((job.out / "manifest.json").read_text())
    assert set(trained_uids(job.out).values()) == {1}
    assert os.listdir(job.cwd) == [], "nothing is written into the current directory"
    assert job.leftovers() == {}


def test_a_killed_trainer_is_named_and_the_run_goes_on_where_its_checkpoint_was(launch: Callable[..., Job]) -> None:
    job = launch("trainer.save_freq=2")
    job.until_version(5)
    pid = job.kill("ColocatedWorkers")
    assert job.wait() == 1, job.text()[-3000:]
    assert "actor rank 0" in job.text() and str(pid) in job.text(), job.text()[-3000:]
    assert job.leftovers() == {}

    stopped = launch("trainer.save_freq=2", out=job.out)
    stopped.until(lambda: "resumed from" in stopped.text() or len(stopped.metrics()) > 5, "the resumed run")
    stopped.until(lambda: stopped.metrics() and stopped.metrics()[-1]["step"] >= 8, "version 8")
    stopped.process.send_signal(signal.SIGTERM)
    assert stopped.wait() == 128 + signal.SIGTERM, stopped.text()[-3000:]
    saved = int((job.out / "latest_checkpointed_iteration.txt").read_text())
    assert saved >= 8, "a stop that was asked for saves first"
    assert stopped.leftovers() == {}

    resumed = launch("trainer.save_freq=2", out=job.out)
    assert resumed.wait(300) == 0, resumed.text()[-3000:]
    steps = [record["step"] for record in resumed.metrics()]
    assert steps == sorted(set(steps)) and steps[-1] == 20, "one record a version, over all three lives"
    counts = trained_uids(job.out)
    assert set(counts.values()) == {1}, "no prompt is trained twice"
    assert len(counts) == 160, "no prompt is lost"


def test_a_killed_inference_engine_ends_the_run_with_its_name(launch: Callable[..., Job]) -> None:
    job = launch()
    job.until_version(2)
    job.kill("VLLM::EngineCore")
    assert job.wait() == 1, job.text()[-3000:]
    assert "vllm_server_0" in job.text(), job.text()[-3000:]
    assert job.leftovers() == {}


MANY_BUCKETS = [
    "actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes=1",
    "rollout.total_rollout_steps=3200",
    "trainer.total_epochs=10",
]


@pytest.fixture(scope="module")
def larger_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Weights of some 18 MB: a weight update in many buckets takes long enough to be met in the middle."""
    path = save_tiny_model(tmp_path_factory.mktemp("larger"), hidden=384, layers=3)
    return f"actor_rollout_ref.model.path={path}"


def test_a_damaged_bucket_stops_the_run_and_is_never_served(launch: Callable[..., Job], larger_model: str) -> None:
    job = launch(*MANY_BUCKETS, larger_model)
    job.until_version(1)
    receiver = psutil.Process(job.pid_of("VLLM::"))
    sender = job.pid_of("CheckpointEngineWorker")
    for _ in range(10):
        arena = job.weight_arena(sender)
        # The receiver stands still while the sender fills the next bucket: that one is damaged before it is checked.
        receiver.suspend()
        time.sleep(0.2)
        with suppress(FileNotFoundError), arena.open("r+b") as memory:
            memory.write(b"\xa5" * os.fstat(memory.fileno()).st_size)
        receiver.resume()
        with suppress(subprocess.TimeoutExpired):
            # Where the last bucket was checked already, the next update is tried.
            job.process.wait(timeout=10)
            break
    assert job.wait() == 1, job.text()[-3000:]
    assert "the bytes that arrived are not those that were sent" in job.text(), job.text()[-3000:]
    assert job.leftovers() == {}


@pytest.mark.long
@pytest.mark.parametrize("victim", ["VLLM::", "CheckpointEngineWorker", "ColocatedWorkers"])
def test_killed_in_the_middle_of_a_weight_update_the_run_ends_and_the_next_start_works(
    launch: Callable[..., Job], larger_model: str, victim: str
) -> None:
    overrides = [*MANY_BUCKETS, larger_model, "trainer.save_freq=1", "rollout.total_rollout_steps=80"]
    job = launch(*overrides)
    job.until_version(3)
    pid = job.pid_of(victim)
    job.weight_arena(job.pid_of("CheckpointEngineWorker"))
    os.kill(pid, signal.SIGKILL)
    assert job.wait() == 1, job.text()[-3000:]
    assert job.leftovers() == {}

    again = launch(*overrides, out=job.out)
    assert again.wait(300) == 0, again.text()[-3000:]
    counts = trained_uids(job.out)
    assert set(counts.values()) == {1} and len(counts) == 80


@pytest.mark.long
def test_two_jobs_at_once_never_meet(launch: Callable[..., Job], tmp_path: Path) -> None:
    jobs = [launch(out=tmp_path / name) for name in ("one", "other")]
    for job in jobs:
        assert job.wait(600) == 0, job.text()[-3000:]
        assert set(trained_uids(job.out).values()) == {1}
        assert [record["step"] for record in job.metrics()][-1] == 20
    assert all(job.leftovers() == {} for job in jobs)


def test_after_kill_9_of_the_driver_nothing_is_left(launch: Callable[..., Job]) -> None:
    job = launch()
    job.until_version(1)
    job.process.kill()
    job.process.wait(timeout=30)
    assert job.leftovers(deadline_s=90) == {}


# What the two trainers' small configurations do not share, and seeds that repeat.
SAME = [
    "trainer.seed=3",
    "actor_rollout_ref.rollout.full_determinism=True",
    "actor_rollout_ref.actor.optim.betas=[0.9,0.99]",
    "actor_rollout_ref.actor.optim.weight_decay=0",
    "actor_rollout_ref.actor.optim.lr_warmup_steps=0",
    "actor_rollout_ref.actor.clip_ratio_high=0.28",
    "actor_rollout_ref.rollout.calculate_log_probs=True",
    "algorithm.rollout_correction.bypass_mode=True",
]


@pytest.mark.long
def test_without_staleness_the_asynchronous_trainer_is_the_synchronous_one(
    launch: Callable[..., Job], tmp_path: Path
) -> None:
    overrides = ["async_training.staleness_threshold=0", "rollout.total_rollout_steps=40", *SAME]
    whole = launch(*overrides, out=tmp_path / "asynchronous")
    assert whole.wait(400) == 0, whole.text()[-3000:]
    synchronous = launch.synchronous("trainer.total_training_steps=5", *SAME)
    assert synchronous.wait(400) == 0, synchronous.text()[-3000:]

    for step in range(1, 6):
        answers = []
        for job in (whole, synchronous):
            lines = (job.out / "rollouts" / f"{step}.jsonl").read_text().splitlines()
            answers.append(sorted((record["uid"], record["output"]) for record in map(json.loads, lines)))
        assert len(answers[0]) == 64 and answers[0] == answers[1], f"step {step}"
    for name in ("critic/score/mean", "actor/grad_norm", "actor/pg_loss"):
        ours, theirs = ([r["data"][name] for r in job.metrics() if name in r["data"]] for job in (whole, synchronous))
        # Groups come in another order: sums of floats differ in their last digits.
        assert ours == pytest.approx(theirs, rel=1e-3, abs=1e-6), name


TOKEN_BASELINE = [
    "actor_rollout_ref.actor.calculate_sum_pi_squared=True",
    "algorithm.rollout_correction.bypass_mode=False",
]
PF_PPO = [
    "algorithm.adv_estimator=gae",
    "algorithm.use_pf_ppo=True",
    "critic.model.path=${actor_rollout_ref.model.path}",
    "critic.optim.lr=1e-3",
    "critic.ppo_max_token_len_per_gpu=1024",
    "critic.fsdp.dtype=float32",
]


@pytest.mark.long
@pytest.mark.parametrize(
    "overrides",
    [
        ["async_training.staleness_threshold=0"],
        ["async_training.staleness_threshold=1", "async_training.trigger_parameter_sync_step=2"],
        ["async_training.partial_rollout=False"],
        ["async_training.max_version_lag=1"],
        ["trainer.n_gpus_per_node=2"],
        ["rollout.n_gpus_per_node=2"],
        ["rollout.n_gpus_per_node=2", "actor_rollout_ref.rollout.tensor_model_parallel_size=2"],
        ["algorithm.rollout_correction.bypass_mode=False", "async_training.trigger_parameter_sync_step=2"],
        ["actor_rollout_ref.actor.use_kl_loss=True"],
        ["actor_rollout_ref.rollout.checkpoint_engine.backend=shm"],
        ["actor_rollout_ref.rollout.checkpoint_engine.backend=disk"],
        [*PF_PPO, "trainer.n_gpus_per_node=2", "algorithm.pf_ppo.reweight_method=max_min"],
        [
            "algorithm.adv_estimator=tir_optimal_token_baseline",
            "async_training.trigger_parameter_sync_step=2",
            "trainer.n_gpus_per_node=2",
            "algorithm.rollout_correction.rollout_is=token",
            *TOKEN_BASELINE,
        ],
    ],
    ids=lambda overrides: ",".join(item.split(".")[-1] for item in overrides),
)
def test_every_mode_runs_to_its_end(launch: Callable[..., Job], overrides: list[str]) -> None:
    job = launch("rollout.total_rollout_steps=64", *overrides)
    assert job.wait(400) == 0, job.text()[-3000:]
    data = [record["data"] for record in job.metrics() if "actor/pg_loss" in record["data"]]
    assert data, job.metrics()
    if "async_training.staleness_threshold=0" in overrides:
        assert all(record["fully_async/staleness/token_age_max"] == 0 for record in data)
    if "async_training.max_version_lag=1" in overrides:
        assert all(record["fully_async/staleness/trajectory_age_max"] <= 1 for record in data)
    assert job.leftovers() == {}


@pytest.mark.long
@pytest.mark.parametrize("synchronous", [False, True], ids=["asynchronous", "synchronous"])
@pytest.mark.parametrize(
    "overrides",
    [
        PF_PPO,
        ["algorithm.adv_estimator=optimal_token_baseline", *TOKEN_BASELINE],
        ["algorithm.adv_estimator=tir_optimal_token_baseline", *TOKEN_BASELINE],
    ],
    ids=["pf_ppo", "optimal_token_baseline", "tir_optimal_token_baseline"],
)
def test_the_other_ways_to_an_advantage_learn_too(
    launch: Callable[..., Job], tiny_model_dir: Path, overrides: list[str], synchronous: bool
) -> None:
    saved = ["trainer.save_freq=30", "actor_rollout_ref.actor.checkpoint.save_contents=[model,hf_model]"]
    if synchronous:
        job = launch.synchronous("trainer.total_training_steps=30", *saved, *overrides)
    else:
        job = launch("rollout.total_rollout_steps=240", *saved, *overrides)
    assert job.wait(600) == 0, job.text()[-3000:]
    assert_reward_rises(job, steps=30)
    updates = [record["data"] for record in job.metrics() if "actor/grad_norm" in record["data"]]
    assert len(updates) == 30
    numbers = [value for data in updates for value in data.values() if isinstance(value, int | float)]
    assert np.isfinite(numbers).all()
    assert all(data["actor/grad_norm"] > 0 for data in updates)
    start = load_file(tiny_model_dir / "model.safetensors")
    end = load_file(job.out / "global_step_30" / "actor" / "huggingface" / "model.safetensors")
    assert start.keys() == end.keys()
    assert [name for name in start if torch.equal(start[name], end[name])] == []
    assert job.leftovers() == {}
