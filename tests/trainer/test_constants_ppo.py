# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The environment of Ray workers: the table, and who wins."""

import json
import os

import pytest

from verl.trainer.constants_ppo import PASSED_ON, PPO_RAY_RUNTIME_ENV, get_ppo_ray_runtime_env

TABLE = {
    "TOKENIZERS_PARALLELISM": "true",
    "NCCL_DEBUG": "WARN",
    "VLLM_LOGGING_LEVEL": "WARN",
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "true",
    "VLLM_DISABLE_COMPILE_CACHE": "1",
    "HCCL_HOST_SOCKET_PORT_RANGE": "auto",
    "HCCL_NPU_SOCKET_PORT_RANGE": "auto",
    "HSA_NO_SCRATCH_RECLAIM": "1",
}


@pytest.fixture
def clean_env(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in (*TABLE, *PASSED_ON, "RAY_JOB_CONFIG_JSON_ENV_VAR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("VERL_JOB_ID", "abc")
    monkeypatch.setenv("VERL_RUN_DIR", "/tmp/verl-x/abc")
    return monkeypatch


def test_the_table_is_upstreams_without_what_only_megatron_needs() -> None:
    assert PPO_RAY_RUNTIME_ENV == {"env_vars": TABLE}


def test_workers_get_the_table_and_the_job(clean_env: pytest.MonkeyPatch) -> None:
    env = get_ppo_ray_runtime_env()
    assert env == {
        "env_vars": {**TABLE, "VERL_JOB_ID": "abc", "VERL_RUN_DIR": "/tmp/verl-x/abc"},
        "working_dir": None,
    }


@pytest.mark.parametrize("value", ["0", ""])
def test_a_value_that_the_user_exported_wins(clean_env: pytest.MonkeyPatch, value: str) -> None:
    clean_env.setenv("HSA_NO_SCRATCH_RECLAIM", value)
    assert get_ppo_ray_runtime_env()["env_vars"]["HSA_NO_SCRATCH_RECLAIM"] == value


def test_what_decides_for_workers_is_passed_on(clean_env: pytest.MonkeyPatch) -> None:
    clean_env.setenv("VERL_PLATFORM", "cpu")
    assert get_ppo_ray_runtime_env()["env_vars"]["VERL_PLATFORM"] == "cpu"


def test_a_submitted_working_directory_is_left_alone(clean_env: pytest.MonkeyPatch) -> None:
    clean_env.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", json.dumps({"runtime_env": {"working_dir": "gcs://x.zip"}}))
    assert "working_dir" not in get_ppo_ray_runtime_env()
    clean_env.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", json.dumps({"metadata": {}}))
    assert get_ppo_ray_runtime_env()["working_dir"] is None


def test_the_table_reaches_a_ray_worker(ray_cluster: None, clean_env: pytest.MonkeyPatch) -> None:
    import ray

    clean_env.setenv("NCCL_DEBUG", "INFO")

    @ray.remote(num_cpus=0)
    def environment() -> dict[str, str]:
        return dict(os.environ)

    runtime_env = {"env_vars": get_ppo_ray_runtime_env()["env_vars"]}
    seen = ray.get(environment.options(runtime_env=runtime_env).remote(), timeout=60)
    assert seen["HSA_NO_SCRATCH_RECLAIM"] == "1" and seen["NCCL_DEBUG"] == "INFO"
    assert seen["VERL_JOB_ID"] == "abc"
