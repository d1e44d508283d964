# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Log-probs from hidden states equal those of each model family's own logits."""

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from verl.workers.engine.fsdp import forward
from verl.workers.engine.fsdp.forward import ForwardOptions, PolicyScorer
from verl.workers.engine.packing import pack

SIZES = {
    "vocab_size": 50,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "pad_token_id": 0,
}
FAMILIES = {
    "llama": {},
    "qwen2": {},
    "qwen3": {},
    "mistral": {},
    "phi3": {},
    "gemma2": {"final_logit_softcapping": 2.0},
    "gemma3_text": {"sliding_window": 4},
    "granite": {"logits_scaling": 3.0},
    "cohere": {"logit_scale": 0.25},
    "qwen3_moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16},
}


def small_model(family: str) -> torch.nn.Module:
    torch.manual_seed(0)
    config = AutoConfig.for_model(family, **SIZES, **FAMILIES[family])
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()
    # Initial weights give nearly equal logits; larger ones make a wrong scale or cap visible.
    torch.nn.init.normal_(model.get_output_embeddings().weight, std=0.5)
    return model


def tokens() -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.randint(1, 50, (6, 12), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    for row, (left, right) in enumerate([(0, 0), (3, 5), (2, 0), (1, 6), (0, 7), (3, 7)]):
        mask[row, :left] = 0
        mask[row, 12 - right :] = 0
    return ids, mask


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("single_row", [False, True])
def test_packed_scores_equal_the_models_own_logits(family, single_row):
    model, (ids, mask) = small_model(family), tokens()
    packed = pack(ids, mask, 8, single_row=single_row)
    with torch.no_grad():
        scores = PolicyScorer(model)(packed, ForwardOptions(temperature=0.8, entropy=True))
    log_prob, entropy = packed.unpack(scores["log_probs"]), packed.unpack(scores["entropy"])
    for row in range(6):
        own = ids[row][mask[row].bool()]
        with torch.no_grad():
            log_p = (model(own[None]).logits[0].double() / 0.8).log_softmax(-1)
        count = int(mask[row, 4:].sum())
        wanted = log_p[len(own) - count - 1 : -1]
        expected = wanted.gather(-1, own[len(own) - count :, None])[:, 0]
        torch.testing.assert_close(log_prob[row, :count].double(), expected, rtol=0, atol=1e-5)
        torch.testing.assert_close(entropy[row, :count].double(), -(wanted.exp() * wanted).sum(-1), rtol=0, atol=1e-5)


def test_chunks_change_neither_values_nor_gradients(monkeypatch):
    model, (ids, mask) = small_model("llama"), tokens()
    packed = pack(ids, mask, 8, single_row=False)

    def run() -> tuple[torch.Tensor, list[torch.Tensor]]:
        model.zero_grad()
        scores = PolicyScorer(model)(packed, ForwardOptions(entropy=True))
        (scores["log_probs"].sum() + 0.3 * scores["entropy"].sum()).backward()
        return scores["log_probs"].detach(), [parameter.grad.clone() for parameter in model.parameters()]

    whole, whole_grads = run()
    monkeypatch.setattr(forward, "_CHUNK_LOGITS", 50 * 5)
    chunked, chunked_grads = run()
    torch.testing.assert_close(chunked, whole, rtol=0, atol=1e-6)
    for first, second in zip(whole_grads, chunked_grads, strict=True):
        torch.testing.assert_close(second, first, rtol=1e-4, atol=1e-5)


def test_no_tensor_of_all_targets_times_vocabulary_is_kept_for_the_backward_pass(monkeypatch):
    model, (ids, mask) = small_model("llama"), tokens()
    packed = pack(ids, mask, 8, single_row=False)
    monkeypatch.setattr(forward, "_CHUNK_LOGITS", 50 * 5)
    kept: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: (kept.append(tensor.numel()), tensor)[1], lambda t: t):
        hidden = torch.randn(len(packed.source_N), 32, requires_grad=True)
        monkeypatch.setattr(forward, "target_hidden", lambda model, packed: hidden)
        PolicyScorer(model)(packed, ForwardOptions())
    # What is kept is hidden states and head, never logits of all N targets.
    assert len(packed.source_N) * 50 not in kept
    assert 5 * 50 not in kept
