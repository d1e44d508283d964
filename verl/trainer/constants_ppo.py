# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The environment that every Ray worker of a job starts with; a value that the user exported wins."""

import json
import os
from typing import Any

from verl.launch_info import JOB_ID_ENV, RUN_DIR_ENV, LaunchInfo

# Ray puts the job's runtime environment here when the driver itself was started by `ray job submit`.
RAY_JOB_CONFIG_ENV = "RAY_JOB_CONFIG_JSON_ENV_VAR"

PPO_RAY_RUNTIME_ENV: dict[str, Any] = {
    "env_vars": {
        "TOKENIZERS_PARALLELISM": "true",
        "NCCL_DEBUG": "WARN",
        "VLLM_LOGGING_LEVEL": "WARN",
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "true",
        # The cache is shared by jobs on a node and is not safe against two writers.
        "VLLM_DISABLE_COMPILE_CACHE": "1",
        "HCCL_HOST_SOCKET_PORT_RANGE": "auto",
        "HCCL_NPU_SOCKET_PORT_RANGE": "auto",
        # Without it RCCL on MI300X fails FSDP's start with ncclSystemError.
        "HSA_NO_SCRATCH_RECLAIM": "1",
    }
}

# Variables of the driver that decide what workers do; Ray does not hand them on by itself on other nodes.
PASSED_ON = (
    "HF_HUB_OFFLINE",
    "OMP_NUM_THREADS",
    "PYTHONHASHSEED",
    "TORCHDYNAMO_DISABLE",
    "VERL_HOME",
    "VERL_LOGGING_LEVEL",
    "VERL_PLATFORM",
)


def get_ppo_ray_runtime_env() -> dict[str, Any]:
    """The runtime environment for `ray.init`: the table above where the driver's environment is silent.

    Exported values of the table reach the workers too, on every node. The job's id and run directory are added, and
    `working_dir` is switched off unless the driver itself was submitted with one.
    """
    job = LaunchInfo.from_env().to_env()
    env = {name: os.environ.get(name, value) for name, value in PPO_RAY_RUNTIME_ENV["env_vars"].items()}
    env.update({name: os.environ[name] for name in PASSED_ON if name in os.environ})
    env.update({JOB_ID_ENV: job[JOB_ID_ENV], RUN_DIR_ENV: job[RUN_DIR_ENV]})
    runtime_env: dict[str, Any] = {"env_vars": env}
    if not _submitted_working_dir():
        runtime_env["working_dir"] = None
    return runtime_env


def _submitted_working_dir() -> str | None:
    submitted = json.loads(os.environ.get(RAY_JOB_CONFIG_ENV) or "{}")
    return (submitted.get("runtime_env") or {}).get("working_dir")
