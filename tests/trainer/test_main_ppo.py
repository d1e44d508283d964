# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The task runner as recipes extend it, and the front door as they call it."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from verl.config import RunConfig
from verl.config.front_door import load
from verl.errors import UnsupportedError
from verl.single_controller.ray import RayWorkerGroup, ResourcePoolManager
from verl.trainer.main_ppo import TaskRunner
from verl.trainer.ppo.utils import Role
from verl.workers.engine_workers import ActorRolloutRefWorker, TrainingWorker


@pytest.fixture
def config(tiny_model_dir: Path, tmp_path: Path) -> Callable[..., RunConfig]:
    """`config("key=value", …)`: the composed configuration, typed."""

    def compose(*overrides: str) -> RunConfig:
        own = [f"actor_rollout_ref.model.path={tiny_model_dir}", f"trainer.default_local_dir={tmp_path}"]
        return load([*own, *overrides], "verl.trainer.config", "ppo_trainer")[0]

    return compose


def test_the_roles_are_entered_one_by_one(config: Callable[..., RunConfig]) -> None:
    runner, made = TaskRunner(), config("algorithm.adv_estimator=gae", f"critic.model.path={Path.cwd()}")
    worker, group = runner.add_actor_rollout_worker(made)
    assert (worker, group) == (ActorRolloutRefWorker, RayWorkerGroup)
    runner.add_critic_worker(made)
    runner.add_ref_policy_worker(made, ref_policy_cls=worker)
    runner.add_reward_model_resource_pool(made)
    runner.add_teacher_model_resource_pool(made)
    assert runner.role_worker_mapping == {Role.ActorRollout: ActorRolloutRefWorker, Role.Critic: TrainingWorker}


def test_a_reference_and_no_critic_where_the_configuration_says_so(config: Callable[..., RunConfig]) -> None:
    runner = TaskRunner()
    made = config("algorithm.adv_estimator=grpo", "actor_rollout_ref.actor.use_kl_loss=true")
    worker, _ = runner.add_actor_rollout_worker(made)
    runner.add_critic_worker(made)
    runner.add_ref_policy_worker(made, worker)
    assert set(runner.role_worker_mapping) == {Role.ActorRollout, Role.RefPolicy}


def test_the_pool_holds_the_roles_that_were_entered(config: Callable[..., RunConfig]) -> None:
    runner, made = TaskRunner(), config("trainer.nnodes=2", "trainer.n_gpus_per_node=3")
    runner.add_actor_rollout_worker(made)
    pools = runner.init_resource_pool_mgr(made)
    assert isinstance(pools, ResourcePoolManager)
    assert pools.resource_pool_spec == {"global_pool": [3, 3]}
    assert pools.mapping == {Role.ActorRollout: "global_pool"}


@pytest.mark.parametrize(
    ("method", "section"),
    [
        ("add_reward_model_resource_pool", {"reward": {"reward_model": {"enable": True}}}),
        ("add_teacher_model_resource_pool", {"distillation": {"enabled": True}}),
    ],
)
def test_what_has_no_worker_here_is_refused(method: str, section: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedError):
        getattr(TaskRunner(), method)(OmegaConf.create(section))


RECIPE = """
import sys
import hydra
import ray
from omegaconf import open_dict
from verl.trainer.main_ppo import TaskRunner, run_ppo

class Base(TaskRunner):
    def run(self, config):
        me = ray.get_runtime_context().current_actor
        phase = ray.get(me.status.remote(), timeout=60)["phase"]
        open(config.trainer.default_local_dir + "/base", "w").write(phase)

class RecipeRunner(Base):
    def run(self, config):
        super().run(config)
        worker, _ = self.add_actor_rollout_worker(config)
        with open_dict(config):
            config.mine = worker.__name__
        open(config.trainer.default_local_dir + "/ran", "w").write(f"{config.mine} {config.recipe_key}")

@hydra.main(config_path="pkg://verl.trainer.config", config_name="ppo_trainer", version_base=None)
def main(config):
    sys.exit(run_ppo(config, task_runner_class=ray.remote(num_cpus=0)(RecipeRunner)))

if __name__ == "__main__":
    main()
"""


def test_a_recipe_with_a_runner_of_its_own_gets_its_own_configuration(tiny_model_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "recipe.py").write_text(RECIPE)
    own = [f"actor_rollout_ref.model.path={tiny_model_dir}", f"trainer.default_local_dir={tmp_path}", "+recipe_key=7"]
    done = subprocess.run([sys.executable, tmp_path / "recipe.py", *own], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "ran").read_text() == "ActorRolloutRefWorker 7"
    assert (tmp_path / "base").read_text() == "starting", "it answers while it runs"
