# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""From the rollout configuration to the parameters of one request."""

from typing import Any

import xxhash

from verl.errors import DataError

# Each has the same name in the configuration and in the request. No seed: replicas differ by their engine seed,
# and a seed copied into each request would make all answers of a group equal.
_FIELDS = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "ignore_eos",
)


def sampling_params(rollout: Any, validate: bool = False) -> dict[str, Any]:
    """Parameters of a training request, or of a validation request when `validate`.

    Keys that are null count as not set. Validation starts from the training values and takes each key that
    `val_kwargs` sets; its temperature alone decides between greedy and sampling, as in verl's server mode, which
    leaves `val_kwargs.do_sample` aside. `logprobs: True` asks for the log-prob of each sampled token.
    """
    params = {name: rollout.get(name) for name in _FIELDS if rollout.get(name) is not None}
    if validate:
        own = rollout.get("val_kwargs") or {}
        params.update({name: own.get(name) for name in _FIELDS if own.get(name) is not None})
    elif rollout.get("do_sample") is False:
        params["temperature"] = 0.0
    params["logprobs"] = bool(rollout.get("calculate_log_probs")) and not validate
    return params


def response_budget(params: dict[str, Any], prompt_tokens: int, prompt_length: int, response_length: int) -> int:
    """Tokens that a request may still produce: the caller's own limit, else what the configured lengths leave."""
    for name in ("max_tokens", "max_new_tokens"):
        if params.get(name) is not None:
            return max(0, int(params[name]))
    return max(0, min(response_length, prompt_length + response_length - prompt_tokens))


def token_budget(prompt_tokens: int, params: dict[str, Any], rollout: Any, longest: int, whom: str) -> int:
    """Tokens that the engine may add to a prompt of `prompt_tokens`; zero where there is no room for one.

    Raises DataError where the prompt itself is longer than the engine's `longest` sequence.
    """
    if prompt_tokens > longest:
        raise DataError(
            "the prompt is longer than the engine takes",
            where=whom,
            got=f"{prompt_tokens} tokens",
            expected=f"at most max_model_len = {longest}",
            remedy="raise actor_rollout_ref.rollout.max_model_len, or set data.filter_overlong_prompts",
        )
    lengths = int(rollout.prompt_length), int(rollout.response_length)
    return min(response_budget(params, prompt_tokens, *lengths), longest - prompt_tokens)


def wants_log_probs(params: dict[str, Any]) -> bool:
    """Whether the request asks for the log-prob of each sampled token."""
    return params.get("logprobs") not in (None, False)


def continuation_seed(seed: int, kept_tokens: int) -> int:
    """Seed for the rest of an interrupted answer.

    The engine starts its random stream anew at each request; with the old seed the rest would repeat the very
    random numbers that drew the tokens kept so far.
    """
    if kept_tokens == 0:
        return seed
    return xxhash.xxh3_64_intdigest(f"{seed}:{kept_tokens}".encode()) & (2**63 - 1)
