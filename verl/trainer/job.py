# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""One job from the driver's side: lock, manifest, Ray, progress line, signals, exit code, clean-up."""

import logging
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray

from verl.config.manifest import write_manifest
from verl.config.model_paths import refuse_missing_models
from verl.config.run_lock import acquire_run_lock
from verl.errors import PeerLost, VerlError
from verl.launch_info import LaunchInfo
from verl.single_controller.ray.bootstrap import init_ray
from verl.trainer.constants_ppo import get_ppo_ray_runtime_env
from verl.trainer.progress import ProgressLine
from verl.utils.logging_utils import set_up_logging

logger = logging.getLogger(__name__)

POLL_S = 0.5
# After a stop was asked for: the step in progress, and the checkpoint.
STOP_DEADLINE_S = 900.0
STATUS_DEADLINE_S = 300.0


def run_job(config: Any, task_runner_class: Any, runner_config: Any = None) -> int:
    """Run one task runner to its end; it gets `runner_config`, else `config`.

    Returns
    -------
    0 after a whole run, 128 + signal after a stop that a signal asked for, 1 after a failure.
    """
    set_up_logging("driver")
    out = Path(config.trainer.default_local_dir)
    out.mkdir(parents=True, exist_ok=True)
    with acquire_run_lock(out), _private_run_dir() as info:
        write_manifest(config, out)
        logger.info("run directory: %s", out)
        job = init_ray(config.ray_kwargs, runtime_env=get_ppo_ray_runtime_env(), log_dir=out / "logs")
        try:
            if job.owns_cluster:
                refuse_missing_models(config)
            return _drive(runner_config if runner_config is not None else config, task_runner_class)
        finally:
            job.shutdown()
            logger.debug("job %s ended", info.job_id)


@contextmanager
def _private_run_dir() -> Iterator[LaunchInfo]:
    """A job id and a node-local directory for sockets; gone with the job."""
    info = LaunchInfo.new()
    os.environ.update(info.to_env())
    info.ensure_run_dir()
    try:
        yield info
    finally:
        shutil.rmtree(info.run_dir, ignore_errors=True)
        for name in info.to_env():
            os.environ.pop(name, None)


def _drive(config: Any, task_runner_class: Any) -> int:
    runner = task_runner_class.remote()
    result = runner.run.remote(config)
    signals: list[int] = []
    with _caught_signals(signals), ProgressLine() as line:
        try:
            outcome = _poll(runner, result, line, signals)
        except ray.exceptions.RayTaskError as error:
            raise error.cause if isinstance(error.cause, VerlError) else error from None
        except ray.exceptions.ActorDiedError as error:
            raise PeerLost(f"the task runner process died ({error})", remedy="logs/ of the run has more") from None
    # A recipe's own runner may have nothing to say.
    outcome = outcome if isinstance(outcome, dict) else {"reason": "end of the recipe"}
    logger.info("the run ended: %s, policy version %s", outcome.get("reason"), outcome.get("version"))
    return 128 + signals[0] if signals else 0


def _poll(runner: Any, result: Any, line: ProgressLine, signals: list[int]) -> dict[str, Any]:
    status, asked_s, stop_s = runner.status.remote(), time.monotonic(), None
    while True:
        pending = [result, status] if status is not None else [result]
        ready, _ = ray.wait(pending, timeout=POLL_S)
        if result in ready:
            return ray.get(result, timeout=POLL_S)
        now = time.monotonic()
        if status in ready:
            line.update(_status(status))
            status, asked_s = None, now
            time.sleep(POLL_S)
        elif status is None:
            status, asked_s = runner.status.remote(), now
        elif now - asked_s > STATUS_DEADLINE_S:
            raise PeerLost(f"the task runner has not answered for {STATUS_DEADLINE_S:.0f} s")
        if signals and stop_s is None:
            stop_s = now
            logger.warning("signal %d: finishing the step in progress, saving, ending", signals[0])
            runner.request_stop.remote()
        if len(signals) > 1 or (stop_s is not None and now - stop_s > STOP_DEADLINE_S):
            logger.error("ending at once, without a checkpoint")
            return {"reason": "killed", "version": None}


def _status(ref: Any) -> dict[str, Any]:
    try:
        return ray.get(ref, timeout=POLL_S)
    except ray.exceptions.RayError as error:
        # The result carries the cause a moment later; the line only shows that something is wrong.
        return {"phase": f"no status: {type(error).__name__}"}


@contextmanager
def _caught_signals(signals: list[int]) -> Iterator[None]:
    """SIGTERM and SIGINT are noted, not obeyed at once; the second one is."""
    previous = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    for number in previous:
        signal.signal(number, lambda caught, _frame: signals.append(caught))
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
    if len(signals) > 1:
        sys.stderr.flush()
