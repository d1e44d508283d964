# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Session-wide real parts: one Ray cluster, one tiny model, one private run directory."""

import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

# Before any test imports them: no hub, no inductor compile on the first request, one thread per process.
os.environ.update(
    {
        "HF_HUB_OFFLINE": "1",
        "TORCHDYNAMO_DISABLE": "1",
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "RAY_enable_metrics_collection": "0",
        "RAY_DISABLE_DASHBOARD_AGENT": "1",
        "RAY_AUTH_MODE": "disabled",
    }
)


@pytest.fixture(autouse=True)
def environment_and_loggers_as_before() -> Iterator[None]:
    """What a test (or the product under it) changes in the environment or on our logger ends with the test."""
    environment = dict(os.environ)
    logger = logging.getLogger("verl")
    state = logger.level, logger.propagate, list(logger.handlers)
    yield
    os.environ.clear()
    os.environ.update(environment)
    logger.setLevel(state[0])
    logger.propagate, logger.handlers[:] = state[1:]


@pytest.fixture(scope="module", autouse=True)
def no_process_group_stays() -> Iterator[None]:
    """A default process group that a module's tests made is gone before the next module makes its own."""
    yield
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()


@pytest.fixture(scope="session")
def job_env() -> Iterator[Path]:
    """A job of this test session's own in the environment; its run directory is gone afterwards."""
    from verl.launch_info import LaunchInfo

    root = Path(tempfile.mkdtemp(prefix="vt-"))
    info = LaunchInfo("test", root / "run")
    os.environ.update(info.to_env())
    yield info.ensure_run_dir()
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="session")
def ray_cluster(job_env: Path) -> Iterator[None]:
    """One local Ray cluster for all tests: 4 logical CPUs, 200 MB of object store, no dashboard."""
    import ray

    ray.init(
        # Never somebody else's, which Ray would find by a file in /tmp/ray.
        address="local",
        num_cpus=4,
        include_dashboard=False,
        object_store_memory=200 << 20,
        log_to_driver=False,
        runtime_env={"env_vars": {key: os.environ[key] for key in ("VERL_JOB_ID", "VERL_RUN_DIR", "OMP_NUM_THREADS")}},
    )
    yield
    ray.shutdown()


@pytest.fixture(scope="session")
def tiny_model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained character-level Qwen2 model, under 1 M parameters, saved in Hugging Face form."""
    from verl.quickstart.model import save_tiny_model

    directory = tmp_path_factory.mktemp("tiny-model")
    save_tiny_model(directory)
    return directory


@pytest.fixture(scope="session")
def digits_task(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Overrides that point a quick start at a task that an untrained model learns in a few updates."""
    from digits_task import write_digits_task

    return write_digits_task(tmp_path_factory.mktemp("digits"))
