# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Command line → configuration → run, with exit codes and messages that a user can act on."""

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

import verl
from verl.config import RunConfig, build_sft_config
from verl.config.front_door import load, run_main
from verl.config.sft import SFTRunConfig
from verl.errors import ConfigError, PeerLost, UnsupportedError

MINIMAL = [
    "data.train_batch_size=0",
    "actor_rollout_ref.hybrid_engine=False",
    "actor_rollout_ref.rollout.name=vllm",
    "actor_rollout_ref.actor.use_dynamic_bsz=True",
    "rollout.total_rollout_steps=5000",
]


class Run:
    """A run that remembers what it was given."""

    def __init__(self, result: Any = 0) -> None:
        self.result = result
        self.config: Any = None
        self.composed: Any = None

    def __call__(self, config: Any, composed: DictConfig) -> int:
        self.config, self.composed = config, composed
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


def test_a_run_gets_the_typed_and_the_composed_configuration() -> None:
    run = Run()
    assert run_main(run, argv=[*MINIMAL, "trainer.nnodes=2"]) == 0
    assert isinstance(run.config, RunConfig) and run.config.trainer.nnodes == 2
    assert isinstance(run.composed, DictConfig) and run.composed.trainer.nnodes == 2


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("trainer.nnode=2", "trainer.nnode: unknown key. Did you mean trainer.nnodes?"),
        ("actor_rollout_ref.actor.ppo_minibatch_size=2", "Did you mean actor_rollout_ref.actor.ppo_mini_batch_size?"),
        ("traner.nnodes=2", "Did you mean trainer.nnodes?"),
        ("+trainer.nnodes=2", "trainer.nnodes: the key exists already. write trainer.nnodes=… without the +"),
        ("~trainer.sed", "trainer.sed: unknown key. Did you mean trainer.seed?"),
        ("trainer.nnodes=two", "trainer.nnodes: wrong type. got 'two', expected a whole number"),
        ("trainer.logger=[", "trainer.logger=[: this is not an override"),
        ("trainer.project_name=${nowhere.to.be.found}", "a reference to another key cannot be resolved"),
        ("--config-name=nowhere", "--config-name=nowhere: Cannot find primary config"),
        ("--frobnicate", "command line: unrecognized arguments: --frobnicate"),
        ("--multirun", "multirun is not part of this package"),
        ("--config-name=fully_async_ppo_megatron_trainer", "use actor_rollout_ref.actor.strategy=fsdp2"),
        ("model_engine=megatron", "use actor_rollout_ref.actor.strategy=fsdp2"),
        ("rollout.n=4", "rollout.n: the number of trajectories per prompt is given twice"),
    ],
)
def test_a_wrong_command_line_ends_with_2_and_one_readable_message(
    override: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run()
    assert run_main(run, argv=[*MINIMAL, "actor_rollout_ref.rollout.n=8", override]) == 2
    captured = capsys.readouterr()
    assert run.config is None
    assert message in captured.err and "Traceback" not in captured.err


@pytest.mark.parametrize(
    ("error", "code"), [(PeerLost("gone"), 1), (UnsupportedError("not here"), 1), (ConfigError("wrong"), 2)]
)
def test_an_error_of_the_run_is_a_message_and_an_exit_code(
    error: Exception, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_main(Run(error), argv=MINIMAL) == code
    assert f"{type(error).__name__}: {error}" in capsys.readouterr().err


def test_an_error_that_is_not_ours_is_not_swallowed() -> None:
    with pytest.raises(ZeroDivisionError):
        run_main(Run(ZeroDivisionError()), argv=MINIMAL)


def test_the_runs_own_exit_code_is_the_programs() -> None:
    assert run_main(Run(143), argv=MINIMAL) == 143
    assert run_main(Run(None), argv=MINIMAL) == 0


def test_hydras_syntax_is_understood() -> None:
    config, _ = load(
        [
            *MINIMAL,
            "+reward.reward_kwargs.max_resp_len=9",
            "++trainer.nnodes=3",
            "++algorithm.mine=4",
            "~data.datagen",
            "trainer.logger=['console',\"file\"]",
            "data.train_files=[a.parquet, b.parquet]",
            "algorithm.rollout_correction.rollout_rs_threshold=0.999_1.001",
        ]
    )
    assert config.reward.reward_kwargs == {"max_resp_len": 9}
    assert config.trainer.nnodes == 3 and config.algorithm.mine == 4
    assert config.trainer.logger == ["console", "file"]
    assert config.data.train_files == ["a.parquet", "b.parquet"]
    assert config.algorithm.rollout_correction.rollout_rs_threshold == "0.999_1.001"


def test_keys_of_another_backend_are_without_effect(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("WARNING", logger="verl"):
        load([*MINIMAL, "actor_rollout_ref.actor.megatron.param_offload=True", "+critic.veomni.fsdp_size=2"])
    assert "actor_rollout_ref.actor.megatron.param_offload belongs to a backend" in caplog.text
    assert "critic.veomni.fsdp_size" in caplog.text


def test_keys_of_a_recipes_own_stay_readable(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("WARNING", logger="verl"):
        config, composed = load([*MINIMAL, "+trainer.my_switch=3", "+my_section.value=4"])
    assert config.trainer.my_switch == 3 and config.my_section == {"value": 4}
    assert composed.my_section.value == 4
    assert "trainer.my_switch, my_section" in caplog.text


def test_keys_that_no_file_has_and_that_are_read_are_no_extensions(caplog: pytest.LogCaptureFixture) -> None:
    added = {
        "actor_rollout_ref.rollout.multi_turn.max_tokens_per_turn": 7,
        "actor_rollout_ref.rollout.agent.group_deadline_s": 60.0,
        "critic.loss_scale_factor": 5,
        "trainer.wandb_proxy": "http://proxy",
        "algorithm.gdpo_reward_keys": ["acc"],
        "reward.timeout": 3.0,
    }
    with caplog.at_level("INFO", logger="verl"):
        config, _ = load([*MINIMAL, *(f"+{key}={value}" for key, value in added.items())])
    for key, value in added.items():
        assert functools.reduce(getattr, key.split("."), config) == value
    assert "left for extensions" not in caplog.text
    with pytest.raises(ConfigError, match=r"max_tokens_per_turn.*got 0"):
        load([*MINIMAL, "+actor_rollout_ref.rollout.multi_turn.max_tokens_per_turn=0"])


@pytest.mark.filterwarnings("ignore:provider=hydra.searchpath")
def test_a_primary_file_of_the_users_finds_our_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.yaml").write_text(
        "hydra:\n  searchpath: [file://verl/trainer/config]\n"
        "defaults: [ppo_trainer, _self_]\ntrainer:\n  nnodes: 5\n  my_key: 1\n"
    )
    argv = [f"--config-path={tmp_path}", "--config-name=mine", "actor_rollout_ref.rollout.name=vllm"]
    assert load(argv)[0].trainer.nnodes == 5
    monkeypatch.chdir(tmp_path.parent)
    argv[0] = f"--config-path={tmp_path.name}"
    assert load(argv)[0].trainer.my_key == 1


def test_a_further_directory_of_the_users_is_searched(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("defaults: [ppo_trainer, _self_]\ntrainer:\n  nnodes: 6\n")
    config, _ = load(["--config-dir", str(tmp_path), "--config-name", "mine", "actor_rollout_ref.rollout.name=vllm"])
    assert config.trainer.nnodes == 6
    with pytest.raises(ConfigError, match="mine"):
        load(["--config-name", "mine"])


def test_printing_the_configuration_runs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    run = Run()
    assert run_main(run, argv=["--cfg", "job", "--resolve", *MINIMAL]) == 0
    printed = OmegaConf.create(capsys.readouterr().out)
    assert run.config is None
    assert printed.actor_rollout_ref.actor.rollout_n == 1 and "hydra" not in printed


def test_help_says_what_is_understood(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_main(Run(), argv=["--help"]) == 0
    assert "--cfg job" in capsys.readouterr().out


def test_the_untouched_output_directory_is_under_verl_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERL_HOME", str(tmp_path / "home"))
    config, composed = load([*MINIMAL, "trainer.experiment_name=e7"])
    assert config.trainer.default_local_dir == f"{tmp_path}/home/checkpoints/verl_examples/e7"
    assert composed.trainer.default_local_dir == config.trainer.default_local_dir


@pytest.mark.parametrize(
    ("given", "expected"), [("out/a", "{cwd}/out/a"), ("/data/a", "/data/a"), ("'~/a'", os.path.expanduser("~/a"))]
)
def test_an_output_directory_of_the_users_is_made_absolute(
    given: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config, _ = load([*MINIMAL, f"trainer.default_local_dir={given}"])
    assert config.trainer.default_local_dir == expected.format(cwd=tmp_path)


def test_a_file_that_other_nodes_open_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "loops.yaml").write_text("[]")
    monkeypatch.chdir(tmp_path)
    key = "actor_rollout_ref.rollout.agent.agent_loop_config_path"
    config, _ = load([*MINIMAL, f"{key}=loops.yaml", "reward.custom_reward_function.path=pkg://mine.reward"])
    assert config.actor_rollout_ref.rollout.agent.agent_loop_config_path == str(tmp_path / "loops.yaml")
    assert config.reward.custom_reward_function.path == "pkg://mine.reward"


def test_old_reward_keys_are_moved_for_the_async_main_too(tmp_path: Path) -> None:
    config, composed = load([*MINIMAL, "custom_reward_function.path=f.py", "custom_reward_function.name=score"])
    assert config.reward.custom_reward_function.path == "f.py"
    assert composed.reward.custom_reward_function.name == "score" and "custom_reward_function" not in composed


def test_other_programs_bring_their_own_builder() -> None:
    run = Run()
    assert (
        run_main(run, "verl.trainer.config", "sft_trainer_engine", ["data.max_length=7"], build=build_sft_config) == 0
    )
    assert isinstance(run.config, SFTRunConfig) and run.config.data.max_length == 7


def test_any_working_directory_will_do_also_one_with_a_folder_called_verl(tmp_path: Path) -> None:
    (tmp_path / "verl").mkdir()
    code = "from verl.config.front_door import run_main; raise SystemExit(run_main(print, argv=['--cfg', 'job']))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert OmegaConf.create(done.stdout).async_training.trigger_parameter_sync_step == 4
    assert [path.name for path in tmp_path.iterdir()] == ["verl"]


def test_the_quick_start_asks_only_for_its_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"actor_rollout_ref\.model\.path: must be set"):
        load(config_name="quickstart")
    given = {
        "actor_rollout_ref.model.path": "/m",
        "data.train_files": "/t",
        "data.val_files": "/v",
        "trainer.default_local_dir": str(tmp_path),
    }
    run = Run()
    assert run_main(run, config_name="quickstart", argv=[f"{key}={value}" for key, value in given.items()]) == 0
    config = run.config
    assert (config.trainer.num_devices, config.rollout.num_devices) == (1, 1)
    assert config.actor_rollout_ref.rollout.n == config.rollout.n == 16
    assert config.actor_rollout_ref.actor.fsdp_config.seed == config.trainer.seed == 0
    assert json.loads(json.dumps(config.raw)) == config.raw


@pytest.mark.parametrize("main", ["verl.experimental.fully_async_policy.fully_async_main", "verl.quickstart"])
def test_torchvision_beside_a_cpu_torch_is_named_before_it_breaks_transformers(tmp_path: Path, main: str) -> None:
    for package in ("torch", "torchvision"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("raise RuntimeError('operator torchvision::nms')")
    (tmp_path / "torch" / "version.py").write_text("__version__ = '2.13.0+cpu'")
    environ = {**os.environ, "PYTHONPATH": f"{tmp_path}:{Path(verl.__file__).parents[1]}", "VERL_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-m", main], env=environ, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode != 0
    assert "torchvision beside torch +cpu breaks `import transformers`" in done.stderr
    assert f"run `{sys.executable} -m pip uninstall -y torchvision`" in done.stderr
    assert "Traceback" not in done.stderr


def test_relative_paths_are_those_of_the_directory_where_the_run_was_launched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.parquet", "out/global_step_3/x", "model/config.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    config, composed = load(
        [
            *MINIMAL,
            "data.train_files=[a.parquet,parts/*.parquet]",
            "data.val_files=a.parquet",
            "trainer.resume_mode=resume_path",
            "trainer.resume_from_path=out/global_step_3",
            "actor_rollout_ref.model.path=model",
        ]
    )
    assert list(config.data.train_files) == [str(tmp_path / "a.parquet"), str(tmp_path / "parts" / "*.parquet")]
    assert config.data.val_files == str(tmp_path / "a.parquet")
    assert config.trainer.resume_from_path == str(tmp_path / "out" / "global_step_3")
    assert config.actor_rollout_ref.model.path == composed.actor_rollout_ref.model.path == str(tmp_path / "model")
    # What is no path from here stays as it is: a model of the hub, a remote file.
    config, _ = load([*MINIMAL, "actor_rollout_ref.model.path=org/name", "data.train_files=s3://bucket/*.parquet"])
    assert config.actor_rollout_ref.model.path == "org/name" and config.data.train_files == "s3://bucket/*.parquet"


@pytest.mark.parametrize("value", ["null", "0", "-1"])
def test_frequencies_and_numbers_to_keep_that_mean_none_are_taken(value: str) -> None:
    keys = ("trainer.save_freq", "trainer.test_freq", "trainer.max_actor_ckpt_to_keep")
    config, _ = load([*MINIMAL, *(f"{key}={value}" for key in keys)])
    assert not (config.trainer.save_freq or 0) > 0 and not (config.trainer.max_actor_ckpt_to_keep or 0) > 0
