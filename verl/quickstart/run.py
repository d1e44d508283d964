# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The quick start's run: its directory, its command line, and its process."""

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from verl.errors import CheckpointError
from verl.quickstart.cache import Prepared

FRONT_DOOR = "verl.experimental.fully_async_policy.fully_async_main"
# A whole system on two cores: one thread a process, and no messages that nobody asked for.
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}


def new_run_dir(home: Path) -> Path:
    """`<home>/runs/quickstart-<time>-<id>`: two at once never share one."""
    return home / "runs" / f"quickstart-{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:4]}"


def existing_run_dir(path: Path) -> Path:
    """The directory of a run to resume."""
    if not (path / "manifest.json").exists():
        raise CheckpointError(
            "this is not the directory of a run", where=str(path), remedy="give one with a manifest.json"
        )
    return path.absolute()


def command_line(prepared: Prepared, run_dir: Path, overrides: Sequence[str]) -> list[str]:
    """The very command a person would type; `overrides` come last and win."""
    return [
        sys.executable,
        "-m",
        FRONT_DOOR,
        "--config-name=quickstart",
        f"actor_rollout_ref.model.path={prepared.model}",
        f"data.train_files={prepared.train}",
        f"data.val_files={prepared.held_out}",
        # The summary measures the saved model itself, not what the run says of it.
        "actor_rollout_ref.actor.checkpoint.save_contents=[model,optimizer,extra,hf_model]",
        f"trainer.default_local_dir={run_dir}",
        f"trainer.rollout_data_dir={run_dir / 'rollouts'}",
        f"trainer.validation_data_dir={run_dir / 'validation'}",
        *overrides,
    ]


def run(command: Sequence[str]) -> int:
    """Run to the end; returns the exit code. SIGTERM is passed on, and Ctrl-C reaches the child by itself."""
    process = subprocess.Popen(command, env={**ENVIRONMENT, **os.environ})
    with _signals_left_to(process):
        code = process.wait()
    return code if code >= 0 else 128 - code


@contextmanager
def _signals_left_to(process: subprocess.Popen[bytes]) -> Iterator[None]:
    def pass_on(number: int, frame: FrameType | None) -> None:
        process.send_signal(number)

    # The terminal sends Ctrl-C to the whole foreground group: passing it on would count twice.
    previous = {
        signal.SIGTERM: signal.signal(signal.SIGTERM, pass_on),
        signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN),
    }
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def final_model(run_dir: Path) -> Path | None:
    """The newest checkpoint's model in Hugging Face form, if there is one."""
    tracker = run_dir / "latest_checkpointed_iteration.txt"
    if not tracker.exists():
        return None
    model = run_dir / f"global_step_{tracker.read_text().strip()}" / "actor" / "huggingface"
    return model if any(model.glob("*.safetensors")) else None
