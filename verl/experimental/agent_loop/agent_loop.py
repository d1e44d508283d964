# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The contract of an agent loop: one coroutine from a row to a trajectory's tokens."""

import asyncio
import importlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Any

from pydantic import BaseModel, ConfigDict

from verl.registry import Registry
from verl.utils.chat_template import initialize_system_prompt, refuse_media, render_prompt, truncate_prompt

__all__ = [
    "AGENT_LOOPS",
    "AgentLoopBase",
    "AgentLoopMetrics",
    "AgentLoopOutput",
    "DictConfigWrap",
    "get_trajectory_info",
    "register",
]

# These names moved to rooms of their own; recipes import them from here.
_HOMES = {
    "AgentLoopManager": "verl.experimental.agent_loop.manager",
    "AgentLoopWorker": "verl.experimental.agent_loop.worker",
    "AsyncLLMServerManager": "verl.workers.rollout.llm_client",
    "GlobalRequestLoadBalancer": "verl.workers.rollout.load_balancer",
}

AGENT_LOOPS: Registry[type["AgentLoopBase"]] = Registry(
    "agent loop", key="actor_rollout_ref.rollout.agent.default_agent_loop or the column agent_name"
)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'verl.experimental.agent_loop.agent_loop' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def register(agent_name: str) -> Callable[[type["AgentLoopBase"]], type["AgentLoopBase"]]:
    """Class decorator: rows with this `agent_name` are run by the class."""
    return AGENT_LOOPS.register(agent_name)


class AgentLoopMetrics(BaseModel):
    """Seconds of one trajectory by kind of work; `num_preempted` is -1 where the engine does not say."""

    generate_sequences: float = 0.0
    tool_calls: float = 0.0
    compute_score: float = 0.0
    num_preempted: int = -1


class AgentLoopOutput(BaseModel):
    """What `run` returns; nothing is padded, `response_mask` is 1 on tokens that the policy produced."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    prompt_ids: list[int]
    response_ids: list[int]
    response_mask: list[int]
    response_logprobs: list[float] | None = None
    routed_experts: Any | None = None
    multi_modal_data: dict[str, Any] | None = None
    reward_score: float | None = None
    """Set it to score in the loop itself; the reward worker is then not asked."""
    num_turns: int = 0
    metrics: AgentLoopMetrics
    extra_fields: dict[str, Any] = {}

    def as_dict(self) -> dict[str, Any]:
        """The fields under their batch names, without those that are not set."""
        named = {
            "prompts": self.prompt_ids,
            "responses": self.response_ids,
            "response_mask": self.response_mask,
            "rollout_log_probs": self.response_logprobs,
            "routed_experts": self.routed_experts,
            "rm_scores": self.reward_score,
        }
        return {key: value for key, value in named.items() if value is not None} | dict(self.extra_fields)


class DictConfigWrap:
    """Holds a configuration so that Hydra's `instantiate` hands it on untouched."""

    def __init__(self, config: Any) -> None:
        self.config = config


class AgentLoopBase(ABC):
    """An agent loop; one object per trajectory.

    `server_manager.generate(request_id, prompt_ids=, sampling_params=, image_data=, video_data=)` asks the policy;
    keep one request id for all turns of a trajectory, so that they meet the same server and its prefix cache.
    """

    prompt_cache: dict[str, list[int]] | None = None
    """Rendered prompts shared by the trajectories of a group; set by the worker."""

    def __init__(
        self,
        trainer_config: DictConfigWrap,
        server_manager: Any,
        tokenizer: Any,
        processor: Any,
        dataset_cls: Any,
        data_config: DictConfigWrap,
        **kwargs: Any,
    ) -> None:
        self.config = trainer_config.config
        self.rollout_config = self.config.actor_rollout_ref.rollout
        self.server_manager = server_manager
        self.tokenizer = tokenizer
        self.processor = processor
        self.dataset_cls = dataset_cls
        self.data_config = data_config.config
        self.apply_chat_template_kwargs = dict(self.data_config.get("apply_chat_template_kwargs", None) or {})

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    @cached_property
    def system_prompt(self) -> list[int]:
        """Ids of the template's own system text; it must not be repeated before later turns."""
        return initialize_system_prompt(self.tokenizer, **self.apply_chat_template_kwargs)

    async def process_vision_info(self, messages: list[dict[str, Any]]) -> dict[str, Any]:
        """`images` and `videos` of the messages, decoded; a text model refuses them."""
        if self.processor is None:
            refuse_media(messages)
            return {}
        images, videos = await self.dataset_cls.process_vision_info(
            messages, image_patch_size=self.data_config.get("image_patch_size", 14), config=self.data_config
        )
        return {key: media for key, media in (("images", images), ("videos", videos)) if media is not None}

    async def apply_chat_template(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None = None,
        images: list[Any] | None = None,
        videos: list[Any] | None = None,
        remove_system_prompt: bool = False,
    ) -> list[int]:
        """Token ids of messages with the generation prompt after them.

        `remove_system_prompt` drops the template's own system text: for turns that continue a conversation.
        """
        key = None if images or videos else self._cache_key(messages, tools)
        ids = None if key is None or self.prompt_cache is None else self.prompt_cache.get(key)
        if ids is None:
            ids = await self._render(messages, tools, images, videos)
            if key is not None and self.prompt_cache is not None:
                self.prompt_cache[key] = ids
        ids = list(ids)
        if remove_system_prompt and ids[: len(self.system_prompt)] == self.system_prompt:
            ids = ids[len(self.system_prompt) :]
        return ids

    async def render_first_prompt(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None = None,
        media: dict[str, Any] | None = None,
        index: Any = None,
    ) -> list[int]:
        """The prompt of a trajectory, cut to `rollout.prompt_length` as `data.truncation` says."""
        ids = await self.apply_chat_template(messages, tools=tools, **(media or {}))
        truncation = self.data_config.get("truncation", None) or "error"
        # A cut would part an image from some of its placeholders.
        return truncate_prompt(
            ids,
            int(self.rollout_config.prompt_length),
            "error" if media else truncation,
            where=f"row with index {index}",
        )

    async def _render(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None,
        images: list[Any] | None,
        videos: list[Any] | None,
    ) -> list[int]:
        def render() -> list[int]:
            return render_prompt(
                self.tokenizer,
                self.processor,
                messages,
                tools=tools,
                images=images,
                videos=videos,
                template_kwargs=self.apply_chat_template_kwargs,
            )

        # Pictures take long enough to stop the other trajectories of this worker; text does not.
        return await asyncio.to_thread(render) if images or videos else render()

    @staticmethod
    def _cache_key(messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> str | None:
        try:
            return json.dumps([messages, tools])
        except TypeError:
            # Pictures in the messages: rendering again is right, only slower.
            return None

    @abstractmethod
    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput:
        """Produce one trajectory.

        `sampling_params` is the caller's own copy; `kwargs` holds the fields of the row (`raw_prompt` and the rest).
        """


async def get_trajectory_info(step: int, index: list[Any], validate: bool) -> list[dict[str, Any]]:
    """For each row of a batch: step, sample index, and which of its repetitions (rollout_n) the row is."""
    seen: dict[Any, int] = {}
    info = []
    for sample in index:
        seen[sample] = seen.get(sample, -1) + 1
        info.append({"step": step, "sample_index": sample, "rollout_n": seen[sample], "validate": validate})
    return info
