# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""A section built in code has upstream's fields with upstream's defaults; what a field says is true.

`data/config_defaults.tsv`: class of `verl.workers.config`, field, default; `Name()` is an instance of that class.
"""

import ast
import copy
import pickle
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

import verl.workers.config
from verl.algorithms.policy_losses import get_policy_loss_fn
from verl.base_config import BaseConfig
from verl.config import ActorRolloutRefConfig
from verl.config.model import WORKED_OUT
from verl.errors import ConfigError, UnsupportedError
from verl.workers.config import (
    ActorConfig,
    CriticConfig,
    EngineConfig,
    FSDPActorConfig,
    FSDPCriticConfig,
    FSDPEngineConfig,
    FSDPOptimizerConfig,
    HFModelConfig,
    OptimizerConfig,
    RolloutConfig,
    ServerConfig,
    TrainingWorkerConfig,
)
from verl.workers.engine_settings import actor_settings, critic_settings, training_worker_settings
from verl.workers.rollout.vllm_rollout.engine_args import adapter_arguments

LIST = Path(__file__).parents[1] / "data" / "config_defaults.tsv"
ROWS = [line.split("\t") for line in LIST.read_text(encoding="utf-8").splitlines()]

# Upstream requires these; here they have a value that a run would give them.
REQUIRED = {
    "ActorConfig.strategy": "fsdp",
    "ActorConfig.rollout_n": 1,
    "CriticConfig.strategy": "fsdp",
    "HFModelConfig.path": "~/models/deepseek-llm-7b-chat",
    "RolloutConfig.name": None,
}


def given(section: type, name: str) -> Any:
    """What a field is where the constructor is told nothing."""
    item = next(item for item in fields(section) if item.name == name)
    return item.default_factory() if callable(item.default_factory) else item.default


@pytest.mark.parametrize(("section", "name", "wanted"), ROWS, ids=[f"{row[0]}.{row[1]}" for row in ROWS])
def test_a_field_has_upstreams_default(section: str, name: str, wanted: str) -> None:
    value = given(getattr(verl.workers.config, section), name)
    if wanted == "MISSING":
        assert value == REQUIRED[f"{section}.{name}"]
    elif wanted.endswith("()"):
        kind = getattr(verl.workers.config, wanted[:-2], None) or getattr(verl.config, wanted[:-2], BaseConfig)
        assert type(value) is kind
    else:
        expected = ast.literal_eval(wanted)
        assert (value, type(value)) == (expected, type(expected))


# ---- what is refused ------------------------------------------------------------------------------------------------

REFUSED = [
    (FSDPEngineConfig, {"grad_offload": True}, "param_offload"),
    (FSDPEngineConfig, {"use_fused_kernels": True}, "chunks"),
    (EngineConfig, {"router_replay": {"mode": "R3"}}, "mode=disabled"),
    (RolloutConfig, {"moe_tensor_parallel_size": 2}, "expert_parallel_size"),
    (RolloutConfig, {"layer_name_map": {"qkv_layer_name": "qkv"}}, "Hugging Face"),
    (RolloutConfig, {"sglang_engine_mode": "server"}, "vllm"),
    (ServerConfig, {"timeout": 0.0}, "vLLM"),
    (ServerConfig, {"max_attempts": 4}, "vLLM"),
    (ServerConfig, {"retry_delay": 1.0}, "vLLM"),
    (ServerConfig, {"max_connections": 10}, "vLLM"),
    (ServerConfig, {"max_start_wait_time": 10.0}, "vLLM"),
    (HFModelConfig, {"target_parameters": ["experts.gate_up_proj"]}, "target_modules"),
    (HFModelConfig, {"lora": {"rank": 8}}, "lora_rank"),
    (FSDPCriticConfig, {"forward_micro_batch_size": 8}, "forward_micro_batch_size_per_gpu"),
]


@pytest.mark.parametrize(("section", "values", "remedy"), REFUSED, ids=[str(next(iter(row[1]))) for row in REFUSED])
def test_what_is_left_out_is_refused_with_what_to_use(section: type, values: dict[str, Any], remedy: str) -> None:
    with pytest.raises(UnsupportedError, match=remedy) as caught:
        verl.config.schema.build(section, values)
    assert caught.value.where.startswith(next(iter(values)))


def test_a_model_type_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ConfigError, match="language_model, value_model"):
        HFModelConfig(model_type="reward_model")


# ---- what other fields decide ---------------------------------------------------------------------------------------


def test_the_engine_of_a_role_is_its_section() -> None:
    engine = FSDPEngineConfig(param_offload=True)
    actor, critic = FSDPActorConfig(fsdp_config=engine), FSDPCriticConfig(fsdp=engine)
    assert actor.engine is engine and actor["engine"] is engine
    assert critic.engine is engine
    other = FSDPEngineConfig(seed=7)
    assert replace(actor, fsdp_config=other).engine is other
    assert ActorConfig().engine == BaseConfig()


def policy(**stated: Any) -> SimpleNamespace:
    actor = stated.pop("actor", None) or FSDPActorConfig(**stated)
    return SimpleNamespace(actor=actor, rollout=RolloutConfig(log_prob_micro_batch_size_per_gpu=3), model={})


def test_an_actor_without_a_section_of_fsdp_runs_on_its_engine() -> None:
    actor = ActorConfig(engine=FSDPEngineConfig(param_offload=True, fsdp_size=2))
    settings = actor_settings(policy(actor=actor))
    assert settings.engine_config["param_offload"] is True
    assert settings.engine_config["fsdp_size"] == 2


def test_sizes_of_passes_without_gradients_of_the_actor() -> None:
    engine = actor_settings(policy()).engine_config
    assert (engine["infer_max_token_len_per_gpu"], engine["infer_micro_batch_size_per_gpu"]) == (16384, 3)
    stated = policy(ppo_infer_max_token_len_per_gpu=4096, ppo_infer_micro_batch_size_per_gpu=5)
    engine = actor_settings(stated).engine_config
    assert (engine["infer_max_token_len_per_gpu"], engine["infer_micro_batch_size_per_gpu"]) == (4096, 5)


def test_sizes_of_passes_without_gradients_of_the_critic() -> None:
    def sizes(**stated: Any) -> tuple[int, int]:
        engine = critic_settings(FSDPCriticConfig(model=HFModelConfig(), **stated)).engine_config
        return engine["infer_max_token_len_per_gpu"], engine["infer_micro_batch_size_per_gpu"]

    assert sizes() == (32768, 1)
    assert sizes(forward_max_token_len_per_gpu=100, forward_micro_batch_size_per_gpu=2) == (100, 2)
    assert sizes(forward_micro_batch_size_per_gpu=None, ppo_micro_batch_size_per_gpu=6) == (32768, 6)
    stated = {"ppo_infer_max_token_len_per_gpu": 4096, "ppo_infer_micro_batch_size_per_gpu": 5}
    assert sizes(**stated, forward_max_token_len_per_gpu=100, forward_micro_batch_size_per_gpu=2) == (4096, 5)


def test_the_size_of_the_whole_mini_batch_divides_a_loss_of_token_means() -> None:
    zero, ones = torch.zeros(1, 2), torch.ones(1, 2)
    loss = get_policy_loss_fn("vanilla")
    alone, _ = loss(zero, zero, ones, ones, "token-mean", ActorConfig())
    info = {"batch_num_tokens": 8, "dp_size": 2}
    shared, _ = loss(zero, zero, ones, ones, "token-mean", ActorConfig(global_batch_info=info))
    # Two tokens of ratio 1 and advantage 1: the mean over 2, and over 8 times 2 ranks.
    assert (alone.item(), shared.item()) == (-1.0, pytest.approx(-2 / 8 * 2))


def test_the_correction_of_bypass_mode_is_read_from_the_policy_loss() -> None:
    correction = verl.config.RolloutCorrectionConfig(
        rollout_is=None, rollout_rs="token_k1", rollout_rs_threshold="0.5_2.0", bypass_mode=True
    )
    policy_loss = verl.workers.config.PolicyLossConfig(loss_mode="bypass_mode", rollout_correction=correction)
    old, new = torch.zeros(1, 2), torch.tensor([[0.0, 5.0]])
    loss, _ = get_policy_loss_fn("bypass_mode")(
        old, new, torch.ones(1, 2), torch.ones(1, 2), "token-mean", ActorConfig(policy_loss=policy_loss)
    )
    # The second token's ratio, e^5, lies outside the band: one token of ratio 1 is left.
    assert loss.item() == pytest.approx(-1.0)


def test_custom_settings_of_a_rollout_are_kept_as_they_are() -> None:
    assert RolloutConfig(custom={"mine": {"x": 1}}).custom == {"mine": {"x": 1}}
    assert verl.config.schema.build(RolloutConfig, {"custom": {"mine": 1}}).custom == {"mine": 1}


# ---- validate -------------------------------------------------------------------------------------------------------

FITTING = {"ppo_mini_batch_size": 8, "rollout_n": 2, "ppo_micro_batch_size_per_gpu": 2}
WRONG = [
    ({}, 4, 20, "ppo_mini_batch_size", "divisor of data.train_batch_size=20"),
    ({"rollout_n": 1}, 16, 16, "ppo_mini_batch_size", "does not divide over 16"),
    ({"ppo_micro_batch_size_per_gpu": 3}, 4, 16, "ppo_micro_batch_size_per_gpu", "divisor of 4"),
    ({"ppo_micro_batch_size_per_gpu": None}, 4, 16, "ppo_micro_batch_size_per_gpu", "use_dynamic_bsz=true"),
    ({"ulysses_sequence_parallel_size": 3}, 4, 16, "ulysses_sequence_parallel_size", "divisor of 4"),
    ({"ulysses_sequence_parallel_size": 2}, 4, 16, "model.use_remove_padding", "true"),
]


@pytest.mark.parametrize("role", [FSDPActorConfig, FSDPCriticConfig])
def test_batch_sizes_that_fit_pass(role: type) -> None:
    role(**FITTING).validate(n_gpus=4, train_batch_size=16)
    role(**FITTING).validate(4, 0)
    role(**FITTING | {"use_dynamic_bsz": True, "ppo_micro_batch_size_per_gpu": None}).validate(4, 16)


@pytest.mark.parametrize("role", [FSDPActorConfig, FSDPCriticConfig])
@pytest.mark.parametrize(("change", "n_gpus", "batch", "where", "said"), WRONG, ids=[row[3] for row in WRONG])
def test_batch_sizes_that_do_not_fit_are_refused(
    role: type, change: dict[str, Any], n_gpus: int, batch: int, where: str, said: str
) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        role(**FITTING | change).validate(n_gpus, batch)
    assert caught.value.where == where


def test_validation_knows_whether_the_model_packs() -> None:
    stated = FITTING | {"ulysses_sequence_parallel_size": 2}
    actor, model = FSDPActorConfig(**stated), HFModelConfig(use_remove_padding=True)
    actor.validate(4, 16, model_config=model)
    actor.validate(4, 16, {"use_remove_padding": True})
    FSDPActorConfig(**stated, model_config=model).validate(4, 16)
    FSDPCriticConfig(**stated, model=model).validate(4, 16)
    with pytest.raises(ConfigError, match="packed"):
        FSDPActorConfig(**stated, model_config=model).validate(4, 16, {"use_remove_padding": False})
    # In a run the model's section comes from beside the actor's.
    together = ActorRolloutRefConfig(actor=FSDPActorConfig(**stated), model=model)
    assert together.actor.model_config is model
    together.actor.validate(4, 16)


def test_roles_without_an_engine_of_their_own_validate_too() -> None:
    ActorConfig(**FITTING).validate(4, 16)
    CriticConfig(**FITTING).validate(4, 16)
    with pytest.raises(ConfigError, match="data-parallel"):
        CriticConfig(**FITTING).validate(3, 16)


# ---- a training worker ----------------------------------------------------------------------------------------------


def test_a_training_worker_takes_the_type_of_its_model() -> None:
    stated = {"engine_config": FSDPEngineConfig(), "optimizer_config": OptimizerConfig()}
    model = HFModelConfig(model_type="value_model")
    assert training_worker_settings(TrainingWorkerConfig(model_config=model, **stated)).model_type == "value_model"
    both = TrainingWorkerConfig(model_type="language_model", model_config=model, **stated)
    assert training_worker_settings(both).model_type == "language_model"


def test_a_training_worker_without_an_engine_asks_the_function_for_one() -> None:
    asked = []

    def select(model: HFModelConfig, device: str) -> tuple[EngineConfig, OptimizerConfig]:
        asked.append((model.path, device))
        return FSDPEngineConfig(seed=7), FSDPOptimizerConfig(lr=0.5)

    stated = {"model_config": HFModelConfig(path="here")}
    settings = training_worker_settings(TrainingWorkerConfig(**stated, auto_select_engine_optim_fn=select))
    assert (settings.engine_config["seed"], settings.optimizer_config.lr) == (7, 0.5)
    assert asked == [("here", verl.platform.current_platform().device_type)]
    with pytest.raises(ConfigError, match="auto_select_engine_optim_fn"):
        training_worker_settings(TrainingWorkerConfig(**stated))


# ---- a model's files ------------------------------------------------------------------------------------------------


def test_paths_that_are_not_given_are_that_of_the_model(tiny_model_dir: Path) -> None:
    model = HFModelConfig(path=str(tiny_model_dir))
    assert model.hf_config_path == model.tokenizer_path == model.path
    assert model.local_path == model.local_hf_config_path == model.local_tokenizer_path == str(tiny_model_dir)
    other = HFModelConfig(path="~/a", hf_config_path="b", tokenizer_path="c", local_path="d")
    assert (other.hf_config_path, other.tokenizer_path, other.local_path) == ("b", "c", "d")
    assert (other.local_hf_config_path, other.local_tokenizer_path) == ("b", "c")
    assert HFModelConfig(path="~/a").local_path == str(Path("~/a").expanduser())


def test_tokenizer_and_configuration_are_those_of_the_files(tiny_model_dir: Path) -> None:
    template = "{{ messages[0].content }}"
    model = HFModelConfig(
        path=str(tiny_model_dir), override_config={"max_position_embeddings": 77}, custom_chat_template=template
    )
    assert model.tokenizer.chat_template == template
    assert model.tokenizer is model["tokenizer"] is model.get("tokenizer")
    assert model.hf_config.model_type == "qwen2"
    assert model.hf_config.max_position_embeddings == 77
    assert model.hf_config.pad_token_id == model.tokenizer.pad_token_id
    assert model.hf_config.eos_token_id == model.tokenizer.eos_token_id
    assert model.hf_config.use_cache is True
    assert model.architectures == ["Qwen2ForCausalLM"]
    assert model.generation_config.eos_token_id is not None
    # A text model has no processor, and its tokenizer does the work.
    assert model.processor is None
    assert model.get_processor() is model.tokenizer


def test_what_was_given_is_not_read(tmp_path: Path) -> None:
    mine = object()
    model = HFModelConfig(path=str(tmp_path), tokenizer=mine, processor=mine, hf_config=mine, architectures=["A"])
    assert model.tokenizer is model.processor is model.hf_config is model.get_processor() is mine
    assert model.architectures == ["A"]


def test_a_model_may_come_without_a_tokenizer(tiny_model_dir: Path) -> None:
    model = HFModelConfig(path=str(tiny_model_dir), load_tokenizer=False)
    assert model.tokenizer is None and model.processor is None
    assert model.hf_config.model_type == "qwen2"


def test_a_model_that_is_not_there_is_an_error_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=str(tmp_path)):
        _ = HFModelConfig(path=str(tmp_path), load_tokenizer=False).hf_config


def test_walking_comparing_and_printing_a_section_reads_nothing(tmp_path: Path) -> None:
    model = HFModelConfig(path=str(tmp_path / "nothing"))
    assert model == HFModelConfig(path=str(tmp_path / "nothing"))
    assert model != HFModelConfig(path=str(tmp_path / "nothing"), tokenizer_path="other")
    assert "nothing" in repr(model)
    assert not set(model) & set(WORKED_OUT)
    assert len(model) == len(list(model)) == len({**model})
    assert all(name in model for name in WORKED_OUT)
    assert {**HFModelConfig(local_path="d")}["local_path"] == "d"


def test_what_was_found_stays_on_its_machine(tiny_model_dir: Path) -> None:
    model = HFModelConfig(path=str(tiny_model_dir), hf_config_path=str(tiny_model_dir))
    assert model.local_path and model.tokenizer
    for again in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert again == model
        assert "_found" not in again.__dict__
        assert again.hf_config_path == str(tiny_model_dir)
        assert again.tokenizer.get_vocab() == model.tokenizer.get_vocab()


def test_whether_adapters_are_merged_reaches_the_model_section_of_a_run(minimal: Any) -> None:
    change = {"actor_rollout_ref": {"model": {"lora_rank": 8, "lora": {"merge": True}}}}
    model = verl.config.build_config(OmegaConf.merge(minimal, change)).actor_rollout_ref.model
    assert adapter_arguments(model) == {}
    rank = {"actor_rollout_ref": {"model": {"lora": {"rank": 8}}}}
    with pytest.raises(UnsupportedError, match=r"actor_rollout_ref\.model\.lora\.rank.*set lora_rank"):
        verl.config.build_config(OmegaConf.merge(minimal, rank))
