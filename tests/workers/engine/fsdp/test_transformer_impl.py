# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The FSDP2 engine against plain transformers, and against itself with batches cut differently."""

import json
import warnings
from pathlib import Path

import pytest
import torch
from own_code_model import AUTO_MAP, save_own_code_model
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from verl.errors import CheckpointError, ConfigError, DataError, UnsupportedError
from verl.utils.metric import AggregationType, Metric

LENGTHS = [(3, 4), (6, 1), (1, 7), (5, 5), (2, 2), (6, 7), (4, 3), (1, 1)]


def reference_scores(model_dir: Path, data, temperature: float = 1.0):
    """Log-probs and entropy [B, T] by plain transformers, one row at a time and without padding."""
    model = AutoModelForCausalLM.from_pretrained(model_dir)
    width = data.batch["responses"].shape[1]
    log_prob, entropy = torch.zeros(len(data), width), torch.zeros(len(data), width)
    for row in range(len(data)):
        ids = data.batch["input_ids"][row][data.batch["attention_mask"][row].bool()]
        responses = int(data.batch["response_mask"][row].sum())
        with torch.no_grad():
            log_p = (model(ids[None]).logits[0].float() / temperature).log_softmax(-1)
        wanted = log_p[len(ids) - responses - 1 : -1]
        log_prob[row, :responses] = wanted.gather(-1, ids[len(ids) - responses :, None])[:, 0]
        entropy[row, :responses] = -(wanted.exp() * wanted).sum(-1)
    return log_prob, entropy


@pytest.mark.parametrize("remove_padding", [True, False])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probs_and_entropy_equal_those_of_transformers_row_by_row(
    make_engine, make_batch, tiny_model_dir, remove_padding, temperature
):
    engine, data = make_engine(engine={"use_remove_padding": remove_padding}), make_batch(LENGTHS)
    data.meta_info["temperature"] = temperature
    with engine.eval_mode():
        out = engine.infer_batch(data, frozenset({"log_probs", "entropy"}))
    log_prob, entropy = reference_scores(tiny_model_dir, data, temperature)
    torch.testing.assert_close(out.batch["log_probs"], log_prob, rtol=0, atol=5e-6)
    torch.testing.assert_close(out.batch["entropy"], entropy, rtol=0, atol=5e-6)


def test_the_collision_probability_is_given_where_it_is_asked_for(make_engine, make_batch, tiny_model_dir):
    engine, data = make_engine(), make_batch(LENGTHS)
    wanted = frozenset({"log_probs", "sum_pi_squared"})
    with engine.eval_mode():
        out = engine.infer_batch(data, wanted)
        assert set(out.batch.keys()) == wanted
    model = AutoModelForCausalLM.from_pretrained(tiny_model_dir).eval()
    ids = data.batch["input_ids"][0][data.batch["attention_mask"][0].bool()]
    responses = int(data.batch["response_mask"][0].sum())
    with torch.no_grad():
        prob = model(ids[None]).logits[0].float().softmax(-1)[len(ids) - responses - 1 : -1]
    expected = prob.square().sum(-1)
    torch.testing.assert_close(out.batch["sum_pi_squared"][0, :responses], expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    "cut", [{"micro_batch_size_per_gpu": 3}, {"use_dynamic_bsz": True, "max_token_len_per_gpu": 14}]
)
def test_results_come_back_in_the_order_of_the_rows(make_engine, make_batch, cut):
    engine, data = make_engine(), make_batch(LENGTHS)
    with engine.eval_mode():
        whole = engine.infer_batch(data, frozenset({"log_probs"})).batch["log_probs"]
        data.meta_info.update(cut)
        parts = engine.infer_batch(data, frozenset({"log_probs"})).batch["log_probs"]
    torch.testing.assert_close(parts, whole, rtol=0, atol=5e-6)


def trained(make_engine, data, loss, steps: int = 2, **kwargs):
    engine = make_engine(**kwargs)
    with engine.train_mode():
        metrics = [engine.train_batch(data, loss) for _ in range(steps)]
    return engine, metrics


@pytest.mark.parametrize(
    "cut",
    [
        {"micro_batch_size_per_gpu": 1},
        {"micro_batch_size_per_gpu": 3},
        {"use_dynamic_bsz": True, "max_token_len_per_gpu": 16},
    ],
)
def test_how_a_mini_batch_is_cut_does_not_matter(make_engine, make_batch, weighted_nll, weights_of, cut):
    whole, whole_metrics = trained(make_engine, make_batch(LENGTHS), weighted_nll)
    parts, parts_metrics = trained(make_engine, make_batch(LENGTHS, **cut), weighted_nll)
    for name, tensor in weights_of(whole).items():
        torch.testing.assert_close(weights_of(parts)[name], tensor, rtol=0, atol=1e-6, msg=name)
    assert parts_metrics[0]["loss"] == pytest.approx(whole_metrics[0]["loss"], abs=1e-6)
    assert parts_metrics[0]["tokens"] == whole_metrics[0]["tokens"] == 30


def test_packed_training_equals_padded_training(make_engine, make_batch, weighted_nll, weights_of):
    packed, _ = trained(make_engine, make_batch(LENGTHS), weighted_nll)
    padded, _ = trained(make_engine, make_batch(LENGTHS), weighted_nll, engine={"use_remove_padding": False})
    for name, tensor in weights_of(packed).items():
        torch.testing.assert_close(weights_of(padded)[name], tensor, rtol=0, atol=1e-6, msg=name)


def test_training_equals_a_plain_pytorch_loop(make_engine, make_batch, weighted_nll, weights_of, tiny_model_dir):
    data = make_batch(LENGTHS)
    engine, metrics = trained(make_engine, data, weighted_nll)
    model = AutoModelForCausalLM.from_pretrained(tiny_model_dir)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.01, eps=1e-3)
    ids, mask, width = data.batch["input_ids"], data.batch["attention_mask"], data.batch["responses"].shape[1]
    for step in range(2):
        logits = model(ids, attention_mask=mask, position_ids=data.batch["position_ids"]).logits
        log_prob = logits[:, -width - 1 : -1].log_softmax(-1).gather(-1, data.batch["responses"][..., None])[..., 0]
        loss = -(log_prob * data.batch["advantages"] * data.batch["response_mask"]).sum() / 30
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        assert metrics[step]["loss"] == pytest.approx(loss.item(), abs=1e-5)
        assert metrics[step]["grad_norm"] == pytest.approx(float(norm), rel=1e-4)
    expected = dict(model.named_parameters())
    for name, tensor in weights_of(engine).items():
        torch.testing.assert_close(tensor, expected[name].data, rtol=0, atol=2e-5, msg=name)


def test_padded_rows_change_neither_counts_nor_weights(make_engine, make_batch, weighted_nll, weights_of):
    """10 rows padded to 12 with rows whose mask is zero."""
    lengths = [*LENGTHS, (2, 3), (3, 3)]
    data = make_batch(lengths)
    padded = make_batch(lengths)
    padded.padding(2)
    for name in ("response_mask", "advantages"):
        padded.batch[name][-2:] = 0
    plain_engine, plain = trained(make_engine, data, weighted_nll, steps=1)
    padded_engine, with_padding = trained(make_engine, padded, weighted_nll, steps=1)
    for name in ("tokens", "sequences"):
        assert with_padding[0][name] == plain[0][name]
    for name in ("loss", "grad_norm"):
        assert with_padding[0][name] == pytest.approx(plain[0][name], rel=1e-5)
    for name, tensor in weights_of(plain_engine).items():
        torch.testing.assert_close(weights_of(padded_engine)[name], tensor, rtol=0, atol=1e-6, msg=name)


def test_a_gradient_that_is_not_finite_skips_the_step_and_is_reported(make_engine, make_batch, weights_of):
    engine, data = make_engine(), make_batch(LENGTHS)
    before, weights_id = weights_of(engine), engine.weights_id

    def broken(model_output, micro, **counts):
        return model_output["log_probs"].sum() * float("nan"), {}

    with engine.train_mode(), warnings.catch_warnings():
        # The schedule goes on, and nobody is told that the calls are in a wrong order.
        warnings.simplefilter("error")
        metrics = engine.train_batch(data, broken)
    assert engine.lr_scheduler.last_epoch == 1
    assert metrics["skipped_steps"] == 1 and metrics["grad_norm"] != metrics["grad_norm"]
    assert engine.weights_id == weights_id
    for name, tensor in weights_of(engine).items():
        assert torch.equal(tensor, before[name]), name


def test_metrics_of_micro_batches_are_joined_by_their_own_rule(make_engine, make_batch):
    engine, data = make_engine(), make_batch(LENGTHS, micro_batch_size_per_gpu=4)
    values = iter([(0.1, 0.1), (0.1, 0.3)])

    def loss(model_output, micro, **counts):
        pg_loss, clipfrac = next(values)
        metrics = {
            "pg_loss": Metric(AggregationType.SUM, pg_loss),
            "clipfrac": clipfrac,
            "longest": Metric(AggregationType.MAX, len(micro)),
        }
        return model_output["log_probs"].mean(), metrics

    with engine.train_mode():
        metrics = engine.train_batch(data, loss)
    assert metrics["pg_loss"] == pytest.approx(0.2)
    assert metrics["clipfrac"] == pytest.approx(0.2)
    assert metrics["longest"] == 4


def test_exported_names_and_values_are_those_of_the_saved_model(make_engine, tiny_model_dir, weights_of):
    saved = load_file(tiny_model_dir / "model.safetensors")
    exported = weights_of(make_engine())
    assert exported.keys() == saved.keys()
    assert "lm_head.weight" not in exported
    for name, tensor in exported.items():
        assert torch.equal(tensor, saved[name]) and tensor.dtype == saved[name].dtype, name


def test_an_untied_head_is_exported_as_well(make_engine, tmp_path, weights_of):
    from verl.quickstart.model import save_tiny_model

    save_tiny_model(tmp_path / "untied", tie_word_embeddings=False)
    exported = weights_of(make_engine(model={"path": str(tmp_path / "untied")}))
    saved = load_file(tmp_path / "untied" / "model.safetensors")
    assert exported.keys() == saved.keys() and "lm_head.weight" in exported


def test_tied_embeddings_stay_tied_through_training(make_engine, make_batch, weighted_nll):
    engine, _ = trained(make_engine, make_batch(LENGTHS), weighted_nll)
    assert engine.module.get_input_embeddings().weight is engine.module.get_output_embeddings().weight


def test_recompute_chunks_and_entropy_checkpointing_leave_the_gradients_alone(
    make_engine, make_batch, weighted_nll, weights_of
):
    plain, _ = trained(make_engine, make_batch(LENGTHS), weighted_nll)
    frugal, _ = trained(
        make_engine,
        make_batch(LENGTHS),
        weighted_nll,
        model={"enable_gradient_checkpointing": True},
        engine={"entropy_checkpointing": True, "entropy_from_logits_with_chunking": True},
    )
    for name, tensor in weights_of(plain).items():
        torch.testing.assert_close(weights_of(frugal)[name], tensor, rtol=0, atol=1e-6, msg=name)


def test_bf16_compute_keeps_fp32_weights(make_engine, make_batch, weighted_nll, weights_of):
    engine, metrics = trained(
        make_engine, make_batch(LENGTHS), weighted_nll, engine={"mixed_precision": {"param_dtype": "bf16"}}
    )
    _, exact = trained(make_engine, make_batch(LENGTHS), weighted_nll)
    assert {tensor.dtype for tensor in weights_of(engine).values()} == {torch.float32}
    assert metrics[0]["loss"] == pytest.approx(exact[0]["loss"], abs=0.05)
    assert metrics[0]["loss"] != exact[0]["loss"]


def test_a_stored_dtype_of_bf16_is_kept_on_export(make_engine, weights_of):
    assert {t.dtype for t in weights_of(make_engine(engine={"model_dtype": "bf16"})).values()} == {torch.bfloat16}


def test_saved_weights_come_back_with_their_identity(make_engine, make_batch, weighted_nll, weights_of):
    engine, data = make_engine(), make_batch(LENGTHS)
    start, start_id = weights_of(engine), engine.weights_id
    engine.save_model_to_cpu(1)
    with engine.train_mode():
        engine.train_batch(data, weighted_nll)
    moved, moved_id = weights_of(engine), engine.weights_id
    assert moved_id != start_id
    engine.save_model_to_cpu(2)
    engine.restore_model_from_cpu(1)
    assert engine.weights_id == start_id
    assert all(torch.equal(tensor, start[name]) for name, tensor in weights_of(engine).items())
    engine.restore_model_from_cpu(2)
    assert engine.weights_id == moved_id
    assert all(torch.equal(tensor, moved[name]) for name, tensor in weights_of(engine).items())
    engine.clear_cpu_model(2)
    with pytest.raises(CheckpointError, match="got 2, expected"):
        engine.restore_model_from_cpu(2)


def test_restored_weights_are_used_by_the_next_forward_pass(make_engine, make_batch, weighted_nll):
    engine, data = make_engine(), make_batch(LENGTHS)
    wanted = frozenset({"log_probs"})
    engine.save_model_to_cpu(1)
    with engine.eval_mode():
        before = engine.infer_batch(data, wanted).batch["log_probs"]
    with engine.train_mode():
        engine.train_batch(data, weighted_nll)
    engine.restore_model_from_cpu(1)
    with engine.eval_mode():
        assert torch.equal(engine.infer_batch(data, wanted).batch["log_probs"], before)


def test_a_batch_without_a_single_response_token_is_a_step_of_nothing(
    make_engine, make_batch, weighted_nll, weights_of
):
    engine, metrics = trained(
        make_engine, make_batch([(3, 0), (2, 0)], pad_to=(3, 2)), weighted_nll, steps=1, optim={"weight_decay": 0.0}
    )
    assert metrics[0]["loss"] == 0 and metrics[0]["grad_norm"] == 0 and metrics[0]["skipped_steps"] == 0
    before = weights_of(make_engine())
    assert all(torch.equal(tensor, before[name]) for name, tensor in weights_of(engine).items())


def test_a_temperature_of_zero_is_refused(make_engine, make_batch):
    engine = make_engine()
    with engine.eval_mode(), pytest.raises(DataError, match=r"temperature.*above 0"):
        engine.infer_batch(make_batch(LENGTHS, temperature=0.0), frozenset({"log_probs"}))


def test_asking_leaves_the_batch_as_it_was(make_engine, make_batch):
    engine, data = make_engine(), make_batch(LENGTHS)
    meta = dict(data.meta_info)
    with engine.eval_mode():
        engine.infer_batch(data, frozenset({"log_probs"}))
    assert data.meta_info == meta


def test_a_value_model_gives_one_value_a_token_and_learns(make_engine, make_batch):
    engine, data = make_engine(model_type="value_model"), make_batch(LENGTHS)
    target = torch.rand(len(data), 7) * data.batch["response_mask"]
    data.batch["returns"] = target

    def squared(model_output, micro, *, dp_size, batch_num_tokens, global_batch_size):
        error = (model_output["values"] - micro.batch["returns"]) * micro.batch["response_mask"]
        return error.square().sum() / batch_num_tokens * dp_size, {}

    with engine.eval_mode():
        values = engine.infer_batch(data, frozenset({"values"})).batch["values"]
    assert values.shape == (8, 7) and torch.equal(values != 0, data.batch["response_mask"].bool())
    with engine.train_mode():
        losses = [engine.train_batch(data, squared)["loss"] for _ in range(12)]
    assert losses[-1] < 0.5 * losses[0]


def test_asking_a_policy_for_values_says_what_is_missing(make_engine, make_batch):
    engine = make_engine()
    with engine.eval_mode(), pytest.raises(DataError, match="values"):
        engine.infer_batch(make_batch(LENGTHS), frozenset({"values"}))


def test_an_engine_for_evaluation_only_refuses_to_train(make_engine, make_batch, weighted_nll):
    engine = make_engine(engine={"forward_only": True})
    with pytest.raises(ConfigError, match="forward_only"):
        engine.train_batch(make_batch(LENGTHS), weighted_nll)


def test_sequence_parallelism_and_quantised_training_are_refused_with_a_remedy(make_engine):
    with pytest.raises(UnsupportedError, match=r"ulysses_sequence_parallel_size.*set it to 1"):
        make_engine(engine={"ulysses_sequence_parallel_size": 2})
    with pytest.raises(UnsupportedError, match=r"qat\.enable"):
        make_engine(engine={"qat": {"enable": True}})


def test_positions_with_several_axes_are_refused(make_engine, make_batch):
    engine, data = make_engine(), make_batch(LENGTHS)
    data.batch["position_ids"] = data.batch["position_ids"][:, None].expand(-1, 3, -1).contiguous()
    with engine.eval_mode(), pytest.raises(UnsupportedError, match="position_ids"):
        engine.infer_batch(data, frozenset({"log_probs"}))


def test_overrides_reach_the_model_and_unknown_ones_are_errors(make_engine):
    overridden = make_engine(model={"override_config": {"rope_theta": 123.0}})
    assert overridden.module.config.rope_parameters["rope_theta"] == 123.0
    with pytest.raises(ConfigError, match="rope_thetta"):
        make_engine(model={"override_config": {"rope_thetta": 1.0}})


def test_a_path_without_a_model_is_an_error_that_names_it(make_engine, tmp_path):
    with pytest.raises(ConfigError, match=r"model\.path.*nowhere"):
        make_engine(model={"path": str(tmp_path / "nowhere")})


def test_the_checkpoint_folder_has_upstreams_file_names(make_engine, tmp_path):
    make_engine().save_checkpoint(str(tmp_path / "global_step_3" / "actor"), global_step=3)
    folder = tmp_path / "global_step_3" / "actor"
    names = {file.name for file in folder.iterdir()}
    parts = {f"{part}_world_size_1_rank_0.pt" for part in ("model", "optim", "extra_state")}
    assert names == parts | {"fsdp_config.json", "huggingface"}
    assert json.loads((folder / "fsdp_config.json").read_text()) == {"FSDP_version": 2, "world_size": 1}
    assert {"config.json", "tokenizer.json"} <= {file.name for file in (folder / "huggingface").iterdir()}
    assert not (folder / "huggingface" / "model.safetensors").exists()
    assert [path.name for path in folder.parent.iterdir()] == ["actor"]


@pytest.mark.parametrize("lora_rank", [0, 4])
def test_the_exported_folder_has_the_python_files_of_the_base_model_also_beside_an_adapter(
    make_engine, tiny_model_dir, tmp_path, monkeypatch, lora_rank
):
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    source = save_own_code_model(tiny_model_dir, tmp_path / "own")
    model = {"path": str(source), "trust_remote_code": True, "lora_rank": lora_rank, "lora_alpha": 8}
    engine = make_engine(model=model, checkpoint={"save_contents": ["hf_model"], "load_contents": ["model"]})
    engine.save_checkpoint(str(tmp_path / "saved"))
    folder = tmp_path / "saved" / "huggingface"
    for name in ("modeling_own.py", "configuration_own.py"):
        assert (folder / name).read_text() == (source / name).read_text()
    config = json.loads((folder / "config.json").read_text())
    assert (config["auto_map"], config["architectures"]) == (AUTO_MAP, ["OwnForCausalLM"])
    weights = load_file(folder / "model.safetensors")
    assert weights.keys() == load_file(source / "model.safetensors").keys()
