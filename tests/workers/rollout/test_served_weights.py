# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The transaction of a server's weights: its states, and a real update of a real server under load."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from verl.errors import PeerLost, TransportError
from verl.workers.rollout.schemas import StaleWeights
from verl.workers.rollout.served_weights import ServedWeights

PROMPT = [3, 4, 5, 6]


class Workers:
    """Two workers that answer as told; an exception among the answers is raised."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[str] = []

    async def __call__(self, method: str, timeout: float | None = None, args: Any = (), kwargs: Any = None) -> Any:
        self.asked.append(method)
        answer = self.answers.get(method.removeprefix("verl_"), [{}, {}])
        if isinstance(answer, BaseException):
            raise answer
        return answer


def applied(*versions: int) -> list[dict[str, Any]]:
    return [{"version": version, "apply_s": 0.5 * version, "tensors": 3} for version in versions]


def states(*versions: int | None, stale: bool = False) -> list[dict[str, Any]]:
    return [{"version": version, "stale": stale} for version in versions]


def served(workers: Workers, activate: Callable[[int], Awaitable[None]] | None = None) -> ServedWeights:
    async def nothing(version: int) -> None:
        return None

    return ServedWeights("rollout server 0", workers, activate or nothing)


def test_a_whole_update_serves_the_new_version() -> None:
    weights = served(Workers(apply_weights=applied(3, 3)))
    stats = asyncio.run(weights.apply(3))
    assert (weights.version, weights.stale, stats["apply_s"], stats["tensors"]) == (3, None, 1.5, 3)
    weights.refuse_if_stale("generate")


@pytest.mark.parametrize(
    ("workers", "still_serves"),
    [
        # Nobody touched a weight: the old version goes on.
        (Workers(apply_weights=TransportError("not begun"), weight_state=states(None, None)), True),
        (Workers(apply_weights=TransportError("parts missing"), weight_state=states(0, 0)), True),
        # One worker is half way, or one has the new version and the other the old one.
        (Workers(apply_weights=TransportError("shape"), weight_state=states(0, 0, stale=True)), False),
        (Workers(apply_weights=TransportError("one failed"), weight_state=states(4, 0)), False),
        (Workers(apply_weights=applied(4, 3), weight_state=states(4, 3)), False),
        # All applied, but the caches could not be dropped.
        (Workers(apply_weights=TransportError("late"), weight_state=states(4, 4)), False),
    ],
)
def test_a_failed_update_serves_the_old_version_or_nothing(workers: Workers, still_serves: bool) -> None:
    weights = served(workers)
    with pytest.raises(TransportError, match="rollout server 0"):
        asyncio.run(weights.apply(4))
    assert weights.version == 0
    if still_serves:
        weights.refuse_if_stale("generate")
    else:
        with pytest.raises(StaleWeights, match="refuses to generate: the update to version 4 failed half way"):
            weights.refuse_if_stale("generate")
    workers.answers["apply_weights"] = applied(4, 4)
    asyncio.run(weights.apply(4))
    weights.refuse_if_stale("resume")
    assert weights.version == 4


def test_weights_of_a_lost_engine_stay_refused() -> None:
    weights = served(Workers(apply_weights=PeerLost("dead")))
    with pytest.raises(PeerLost):
        asyncio.run(weights.apply(2))
    with pytest.raises(StaleWeights):
        weights.refuse_if_stale("generate")


def test_a_cache_that_cannot_be_dropped_leaves_the_weights_refused() -> None:
    async def fail(version: int) -> None:
        raise TransportError("requests are in flight")

    weights = served(Workers(apply_weights=applied(2, 2), weight_state=states(2, 2)), fail)
    with pytest.raises(TransportError):
        asyncio.run(weights.apply(2))
    with pytest.raises(StaleWeights):
        weights.refuse_if_stale("generate")


def test_requests_ask_for_an_adapter_only_after_one_has_come() -> None:
    workers = Workers(apply_weights=applied(1, 1))
    weights = served(workers)

    async def scenario() -> list[bool]:
        await weights.begin(1, True, 10.0)
        await weights.apply(1)
        base = weights.adapter
        await weights.begin(1, True, 10.0, peft_config={"r": 4}, base_sync_done=True)
        before = weights.adapter
        await weights.apply(1)
        return [base, before, weights.adapter]

    assert asyncio.run(scenario()) == [False, False, True]


# A real server


def greedy_answer(directory: Path, tokens: int) -> list[int]:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    output = model.generate(
        torch.tensor([PROMPT]), attention_mask=torch.ones(1, len(PROMPT)), max_new_tokens=tokens, do_sample=False
    )
    return output[0, len(PROMPT) :].tolist()


async def push(replica: Any, directory: Path, version: int) -> None:
    """Send a saved model's weights as a checkpoint-engine worker does; leaves them staged."""
    import torch
    from transformers import AutoModelForCausalLM

    from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightSender

    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    (answer,) = await replica.call("begin_weight_update", version, True, 60.0)
    assert answer["stages"]
    sender = BucketedWeightSender(answer["handle"], 8, True, version=version, deadline_s=60.0)
    await sender.async_send_weights(iter(model.named_parameters()))


def test_new_weights_serve_whole_under_load_with_a_warm_cache(replica: Any, model_config: Any, tmp_path: Path) -> None:
    from verl.quickstart.model import save_tiny_model
    from verl.workers.rollout.llm_client import LLMServerClient
    from verl.workers.rollout.load_balancer import GlobalRequestLoadBalancer

    old, new = Path(model_config.path), save_tiny_model(tmp_path / "new", seed=1)
    greedy = {"temperature": 0.0, "max_tokens": 12}

    async def scenario() -> dict[str, Any]:
        client = LLMServerClient(
            replica.config, {replica.server_id: replica.server_handle}, GlobalRequestLoadBalancer([replica.server_id])
        )
        seen = {"before": await replica.call("generate", PROMPT, greedy, "warm")}
        with pytest.raises(TransportError, match="must be paused"):
            await replica.call("apply_weight_update", 1)
        load = asyncio.ensure_future(
            client.generate_group([(f"l{i}", PROMPT, {"ignore_eos": True}) for i in range(32)])
        )
        await push(replica, new, 1)
        seen["staged"] = await replica.call("generate", PROMPT, greedy, "staged")
        await replica.abort_all_requests()
        seen["stats"] = await replica.call("apply_weight_update", 1)
        seen["state"] = await replica.call("weight_state")
        await replica.resume_generation()
        seen["after"] = await replica.call("generate", PROMPT, greedy, "after")
        seen["load"] = await load
        await push(replica, old, 0)
        await replica.call("abort_weight_update", 0, "the trainer changed its mind")
        seen["aborted"] = await replica.call("generate", PROMPT, greedy, "aborted")
        await push(replica, old, 0)
        await replica.abort_all_requests()
        await replica.call("apply_weight_update", 0)
        await replica.resume_generation()
        seen["back"] = await replica.call("generate", PROMPT, greedy, "back")
        return seen

    seen = asyncio.run(scenario())
    first, second = greedy_answer(old, 12), greedy_answer(new, 12)
    assert first != second
    assert seen["before"].token_ids == seen["staged"].token_ids == seen["back"].token_ids == first
    assert seen["after"].token_ids == seen["aborted"].token_ids == second
    assert [seen[key].extra_fields["global_steps"] for key in ("before", "after", "aborted", "back")] == [0, 1, 1, 0]
    assert (seen["state"]["version"], seen["state"]["stale"], seen["state"]["paused"]) == (1, False, True)
    assert seen["stats"]["version"] == 1
    assert all(len(output.token_ids) == 128 for output in seen["load"])
    assert {output.extra_fields["max_global_steps"] for output in seen["load"]} <= {0, 1}
