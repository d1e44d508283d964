# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""One request in vLLM's terms, one answer in ours; no state."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from verl.errors import ConfigError, UnsupportedError
from verl.workers.rollout.sampling import wants_log_probs
from verl.workers.rollout.schemas import TokenOutput, VersionSpan
from verl.workers.rollout.utils import qwen2_5_vl_dedup_image_tokens

_STOP_REASONS = {"abort": "aborted", "stop": "completed", "length": "completed"}


def to_sampling_params(params: dict[str, Any], budget: int, vllm: SimpleNamespace, *, has_tokenizer: bool) -> Any:
    """vLLM's parameters; nulls count as not set, and the caller's mapping stays as it is."""
    wanted = {key: value for key, value in params.items() if value is not None and key != "max_new_tokens"}
    logprobs = wanted.pop("logprobs", None)
    if wanted.get("n", 1) != 1:
        raise ConfigError(
            "one request gives one answer", where="sampling_params.n", got=wanted["n"], remedy="send n requests"
        )
    if wanted.get("stop") and not has_tokenizer:
        raise ConfigError(
            "stop strings need the tokenizer",
            where="sampling_params.stop",
            got=wanted["stop"],
            remedy="set rollout.skip_tokenizer_init=false, or use stop_token_ids",
        )
    wanted |= {
        "max_tokens": budget,
        "detokenize": bool(wanted.get("stop")),
        "output_kind": vllm.RequestOutputKind.FINAL_ONLY,
    }
    if wants_log_probs(params):
        # vLLM counts alternatives beside the sampled token: 0 is the sampled token alone.
        wanted |= {"logprobs": 0 if logprobs is True else int(logprobs), "flat_logprobs": True}
    return vllm.SamplingParams(**wanted)


def narrow_media(prompt_ids: Sequence[int], processor: Any) -> list[int]:
    """One placeholder for each image or video, as vLLM takes prompts; it widens them itself.

    Only Qwen's vision models mark both ends of an image, so that a run of placeholders is one image.
    """
    kind = type(getattr(processor, "image_processor", None)).__name__
    if "Qwen2VLImageProcessor" not in kind:
        raise UnsupportedError(
            "images and videos reach vLLM for the processors of Qwen2-VL, Qwen2.5-VL and Qwen3-VL only",
            where="actor_rollout_ref.model.path",
            got="no processor" if processor is None else kind,
            remedy="use one of these models, or text prompts",
        )
    return qwen2_5_vl_dedup_image_tokens(list(prompt_ids), processor)


def to_prompt(
    prompt_ids: Sequence[int], images: list[Any] | None, videos: list[Any] | None, vllm: SimpleNamespace
) -> Any:
    """vLLM's prompt of tokens, pictures and videos."""
    media = {kind: data for kind, data in (("image", images), ("video", videos)) if data}
    tokens = [int(token) for token in prompt_ids]
    return vllm.TokensPrompt(prompt_token_ids=tokens, **({"multi_modal_data": media} if media else {}))


def to_token_output(final: Any, params: dict[str, Any], serving_version: int) -> TokenOutput:
    """Our answer; `serving_version` stamps one that has no token and so no version of its own."""
    completion = final.outputs[0]
    log_probs: list[float] | None = None
    if wants_log_probs(params):
        rows = completion.logprobs
        # The sampled token comes first in the row of its position.
        log_probs = [rows.logprobs[start] for start in rows.start_indices] if rows else []
    spans = [VersionSpan(int(span.version), span.start, span.end) for span in completion.weight_versions or ()]
    fields: dict[str, Any] = {
        "global_steps": spans[-1].version if spans else serving_version,
        "finish_reason": completion.finish_reason,
    }
    if len(spans) > 1:
        fields["token_versions"] = spans
    stop_reason = _STOP_REASONS.get(completion.finish_reason, completion.finish_reason)
    return TokenOutput(list(completion.token_ids), log_probs, stop_reason=stop_reason, extra_fields=fields)
