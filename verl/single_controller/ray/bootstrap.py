# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Start a local Ray cluster or attach to one; end only what was started here.

Never sets a namespace: an anonymous one belongs to the job, so named actors of two jobs on one cluster never meet.
Free of torch at import time: control processes use it.
"""

import itertools
import logging
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray

from verl.errors import ConfigError, WaitTimeout
from verl.launch_info import LaunchInfo, default_run_root, own_root
from verl.single_controller.ray import reaper
from verl.single_controller.ray.runtime_env import merge_runtime_env

logger = logging.getLogger(__name__)

# Trajectories and one batch in flight; a node's default of 30 % of its memory is more than a CPU job wants locked.
DEFAULT_OBJECT_STORE_BYTES = 1 << 30
MIN_LOGICAL_CPUS = 4

_QUICK_START_ENV = {
    "RAY_enable_metrics_collection": "0",
    "RAY_DISABLE_DASHBOARD_AGENT": "1",
    "RAY_AUTH_MODE": "disabled",
    # A worker that dies takes the processes it started with it (vLLM's engine, for one).
    "RAY_process_group_cleanup_enabled": "1",
}


@dataclass
class RayJob:
    """This process's connection to Ray; `owns_cluster` says whether it ends the cluster too."""

    address: str
    owns_cluster: bool
    log_dir: Path | None = None
    _temp_dir: Path = field(default=Path(), repr=False)
    _connected_here: bool = field(default=True, repr=False)
    _watcher: Any = field(default=None, repr=False)

    def shutdown(self) -> None:
        """End what `init_ray` started: the cluster if it is ours, else the connection; a second call does nothing."""
        # Before the processes go, and with them what they had open.
        named = reaper.semaphores(self._temp_dir) if self._watcher is not None else set()
        if self._connected_here and ray.is_initialized():
            ray.shutdown()
        self._connected_here = False
        if self._watcher is not None:
            reaper.clean_up(self._temp_dir, self.log_dir, named)
            reaper.dismiss(self._watcher)
            self._watcher = None


def init_ray(
    ray_kwargs: Mapping[str, Any] | None = None,
    runtime_env: Mapping[str, Any] | None = None,
    *,
    log_dir: str | Path | None = None,
) -> RayJob:
    """Attach to the cluster that `ray_kwargs` or RAY_ADDRESS names, or start one on this machine.

    `ray_kwargs` is the configuration's section: arguments of `ray.init` under `ray_init`. Its runtime environment
    wins over `runtime_env`. Where this process is connected already, that connection is used and left alone.
    The logs of a cluster that is started here are found in `log_dir`/ray, while it runs and afterwards.
    """
    arguments = dict((ray_kwargs or {}).get("ray_init") or {})
    arguments = {key: value for key, value in arguments.items() if value is not None}
    environment = merge_runtime_env(runtime_env, arguments.pop("runtime_env", None))
    if ray.is_initialized():
        return RayJob(ray.get_runtime_context().gcs_address, owns_cluster=False, _connected_here=False)
    address = arguments.pop("address", None) or os.environ.get("RAY_ADDRESS")
    if address and address != "local":
        return _attach(address, arguments, environment)
    return _start(arguments, environment, None if log_dir is None else Path(log_dir))


def _attach(address: str, arguments: dict[str, Any], environment: dict[str, Any]) -> RayJob:
    given = sorted(set(arguments) & {"num_cpus", "num_gpus", "resources", "object_store_memory"})
    if given:
        logger.warning("the cluster at %s exists already: %s of ray_kwargs.ray_init have no effect", address, given)
    arguments = {key: value for key, value in arguments.items() if key not in given}
    try:
        ray.init(address=address, runtime_env=environment or None, **arguments)
    except ConnectionError as error:
        raise ConfigError(
            "no Ray cluster answers at this address",
            where="ray_kwargs.ray_init.address or RAY_ADDRESS",
            got=address,
            remedy="start one with `ray start --head`, or leave the address out for a local cluster",
        ) from error
    return RayJob(ray.get_runtime_context().gcs_address, owns_cluster=False)


def _start(arguments: dict[str, Any], environment: dict[str, Any], log_dir: Path | None) -> RayJob:
    for name, value in _QUICK_START_ENV.items():
        os.environ.setdefault(name, value)
    root = Path(arguments.pop("_temp_dir", None) or own_root(default_run_root()))
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Short, because Ray puts sockets below it whose paths end at 107 bytes.
    temp_dir = Path(tempfile.mkdtemp(prefix="r", dir=root))
    defaults = {
        "num_cpus": max(os.cpu_count() or 1, MIN_LOGICAL_CPUS),
        "include_dashboard": False,
        "object_store_memory": _object_store_bytes(),
        "log_to_driver": False,
        "configure_logging": False,
        "_temp_dir": str(temp_dir),
        "_system_config": {"prestart_worker_first_driver": False},
    }
    log_dir = None if log_dir is None else _free_name(log_dir.absolute())
    watcher = reaper.start(temp_dir, log_dir, LaunchInfo.from_env().run_dir)
    try:
        context: Any = ray.init(address="local", runtime_env=environment or None, **{**defaults, **arguments})
    except Exception as error:
        if log_dir is not None:
            log_dir.symlink_to(temp_dir / "session_latest" / "logs")
        reaper.clean_up(temp_dir, log_dir)
        reaper.dismiss(watcher)
        if "timed out" not in str(error):
            raise
        raise WaitTimeout(
            "a Ray cluster on this machine did not start in time",
            got=str(error),
            remedy=f"the machine may be overloaded; Ray's own words are in {log_dir}" if log_dir else None,
        ) from error
    if log_dir is not None:
        # While the cluster runs its logs live in its own directory; afterwards they move to where the link is.
        log_dir.symlink_to(Path(context.address_info["session_dir"]) / "logs")
    return RayJob(context.address_info["gcs_address"], True, log_dir, _temp_dir=temp_dir, _watcher=watcher)


def _free_name(log_dir: Path) -> Path:
    """`ray` in the log directory, or `ray-2` … where an earlier start of the run left its own."""
    log_dir.mkdir(parents=True, exist_ok=True)
    names = itertools.chain(["ray"], (f"ray-{number}" for number in itertools.count(2)))
    return next(path for name in names if not os.path.lexists(path := log_dir / name))


def _object_store_bytes() -> int:
    """At most a gigabyte and at most half of what shared memory has left, at least Ray's minimum."""
    free = shutil.disk_usage("/dev/shm").free if os.path.isdir("/dev/shm") else DEFAULT_OBJECT_STORE_BYTES
    return max(80 << 20, min(DEFAULT_OBJECT_STORE_BYTES, free // 2))
