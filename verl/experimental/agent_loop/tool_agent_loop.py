# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Generate, call tools or hear the user, generate again: a small state machine per trajectory."""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any
from uuid import uuid4

from verl.errors import DataError, UnsupportedError
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput, register
from verl.experimental.agent_loop.tool_parser import FunctionCall, ToolParser
from verl.experimental.agent_loop.turns import truncate_text, turn_ids
from verl.experimental.agent_loop.utils import build_gpt_oss_tool_response_text
from verl.interactions.base import BaseInteraction
from verl.interactions.utils.interaction_registry import initialize_interactions_from_config
from verl.tools.base_tool import BaseTool
from verl.tools.schemas import ToolResponse, as_response
from verl.tools.utils.tool_registry import initialize_tools_from_config
from verl.utils.chat_template import render_prompt
from verl.waits import bounded

__all__ = ["AgentData", "AgentState", "ToolAgentLoop"]

logger = logging.getLogger(__name__)

# A tool and a simulated user bound their own work; this is for one that does not.
TOOL_DEADLINE_S = 1800.0

# One set of tools and of simulated users per process and file, however many trajectories use it.
_tools: dict[str | None, dict[str, BaseTool]] = {}
_interactions: dict[str | None, dict[str, BaseInteraction]] = {}


class AgentState(Enum):
    """Where a trajectory is."""

    PENDING = "pending"
    GENERATING = "generating"
    PROCESSING_TOOLS = "processing_tools"
    TERMINATED = "terminated"
    INTERACTING = "interacting"


class AgentData:
    """A trajectory in the making; tools see it as `agent_data`.

    `prompt_ids` holds everything so far; the last `len(response_mask)` of them are the response.
    """

    def __init__(
        self,
        messages: list[dict[str, Any]],
        image_data: list[Any] | None,
        video_data: list[Any] | None,
        metrics: dict[str, Any],
        request_id: str,
        tools_kwargs: dict[str, Any],
        interaction: BaseInteraction | None = None,
        interaction_kwargs: dict[str, Any] | None = None,
    ) -> None:
        self.messages = messages
        self.image_data = image_data
        self.video_data = video_data
        self.metrics = metrics
        self.request_id = request_id
        self.tools_kwargs = tools_kwargs
        self.interaction = interaction
        self.interaction_kwargs = interaction_kwargs or {}
        self.prompt_ids: list[int] = []
        self.response_ids: list[int] = []
        """The last answer of the policy"""
        self.response_mask: list[int] = []
        self.response_logprobs: list[float] = []
        self.token_versions: list[int] = []
        self.turn_scores: list[float] = []
        self.tool_rewards: list[float] = []
        self.user_turns = 0
        self.assistant_turns = 0
        self.tool_calls: list[FunctionCall] = []
        self.index: Any = None
        self.extra_fields: dict[str, Any] = {}

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Add the block's seconds to a metric."""
        started_s = time.monotonic()
        try:
            yield
        finally:
            self.metrics[name] = self.metrics.get(name, 0.0) + time.monotonic() - started_s

    def append(self, ids: list[int], *, own: bool, log_probs: list[float] | None, versions: list[int] | None) -> None:
        """Add tokens of the policy (`own`) or of somebody else."""
        count = len(ids)
        self.prompt_ids = self.prompt_ids + list(ids)
        self.response_mask += [int(own)] * count
        self.response_logprobs += log_probs if log_probs is not None else [0.0] * count
        self.token_versions += versions if versions is not None else [-1] * count


@register("tool_agent")
class ToolAgentLoop(AgentLoopBase):
    """Multi-turn trajectories with tools and simulated users.

    `response_length` bounds all turns together, tool and user tokens included; `multi_turn.max_tokens_per_turn`, or
    `max_tokens` in the sampling parameters, bounds one answer.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        multi_turn = self.rollout_config.multi_turn
        self.max_user_turns = multi_turn.max_user_turns
        self.max_assistant_turns = multi_turn.max_assistant_turns
        self.max_parallel_calls = multi_turn.max_parallel_calls
        self.max_tool_response_length = multi_turn.max_tool_response_length
        self.tool_response_truncate_side = multi_turn.tool_response_truncate_side
        self.max_tokens_per_turn = multi_turn.get("max_tokens_per_turn", None)
        self.prompt_length = int(self.rollout_config.prompt_length)
        self.response_length = int(self.rollout_config.response_length)
        self.tools = _tools_of(multi_turn.tool_config_path)
        self.tool_schemas = [tool.tool_schema.for_template() for tool in self.tools.values()]
        self.tool_parser_name = multi_turn.format
        self.tool_parser = ToolParser.get_tool_parser(multi_turn.format, self.tokenizer)
        self.interaction_config_file = multi_turn.get("interaction_config_path", None)
        self.interaction_map = self._initialize_interactions(self.interaction_config_file)

    def _initialize_interactions(self, interaction_config_file: str | None) -> dict[str, BaseInteraction]:
        if interaction_config_file not in _interactions:
            _interactions[interaction_config_file] = (
                initialize_interactions_from_config(interaction_config_file) if interaction_config_file else {}
            )
        return _interactions[interaction_config_file]

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput:
        agent_data = await self._start(kwargs)
        state = AgentState.PENDING
        try:
            while state != AgentState.TERMINATED:
                state = await self._step(state, agent_data, sampling_params)
        finally:
            if agent_data.interaction is not None:
                user = agent_data.interaction
                await _answer_of(user, "its end", user.finalize_interaction(agent_data.request_id))
        return self._output(agent_data)

    async def _start(self, row: dict[str, Any]) -> AgentData:
        messages = list(row["raw_prompt"])
        media = await self.process_vision_info(messages)
        interaction_kwargs = dict(row.get("interaction_kwargs") or {})
        agent_data = AgentData(
            messages=messages,
            image_data=media.get("images"),
            video_data=media.get("videos"),
            metrics={},
            request_id=uuid4().hex,
            tools_kwargs=row.get("tools_kwargs") or {},
            interaction_kwargs=interaction_kwargs,
        )
        agent_data.index = row.get("index")
        if self.interaction_map and interaction_kwargs:
            name = interaction_kwargs.get("name")
            if name not in self.interaction_map:
                raise DataError(
                    "the row names an interaction that is not configured",
                    where=f"interaction_kwargs.name of the row with index {row.get('index')}",
                    got=name,
                    expected=f"one of {sorted(self.interaction_map)}",
                    remedy="add it to the file of rollout.multi_turn.interaction_config_path",
                )
            agent_data.interaction = user = self.interaction_map[name]
            await _answer_of(user, "a start", user.start_interaction(agent_data.request_id, **interaction_kwargs))
        return agent_data

    async def _step(self, state: AgentState, agent_data: AgentData, sampling_params: dict[str, Any]) -> AgentState:
        if state == AgentState.PENDING:
            return await self._handle_pending_state(agent_data, sampling_params)
        if state == AgentState.GENERATING:
            return await self._handle_generating_state(agent_data, sampling_params)
        if state == AgentState.PROCESSING_TOOLS:
            return await self._handle_processing_tools_state(agent_data)
        return await self._handle_interacting_state(agent_data)

    async def _handle_pending_state(self, agent_data: AgentData, sampling_params: dict[str, Any]) -> AgentState:
        media = {"images": agent_data.image_data, "videos": agent_data.video_data}
        agent_data.prompt_ids = await self.render_first_prompt(
            agent_data.messages, self.tool_schemas or None, media, agent_data.index
        )
        return AgentState.GENERATING

    async def _handle_generating_state(
        self, agent_data: AgentData, sampling_params: dict[str, Any], ignore_termination: bool = False
    ) -> AgentState:
        with agent_data.timed("generate_sequences"):
            output = await self.server_manager.generate(
                request_id=agent_data.request_id,
                prompt_ids=agent_data.prompt_ids,
                sampling_params=self._turn_params(agent_data, sampling_params),
                image_data=agent_data.image_data,
                video_data=agent_data.video_data,
            )
        self._absorb(agent_data, output)
        if not ignore_termination and self._finished(agent_data, output):
            return AgentState.TERMINATED
        _, agent_data.tool_calls = await self.tool_parser.extract_tool_calls(
            agent_data.response_ids, [tool.tool_schema for tool in self.tools.values()]
        )
        if agent_data.tool_calls:
            return AgentState.PROCESSING_TOOLS
        if agent_data.interaction is not None:
            text = await asyncio.to_thread(self.tokenizer.decode, agent_data.response_ids, skip_special_tokens=True)
            agent_data.messages.append({"role": "assistant", "content": text})
            return AgentState.INTERACTING
        return AgentState.TERMINATED

    def _turn_params(self, agent_data: AgentData, sampling_params: dict[str, Any]) -> dict[str, Any]:
        """The caller's parameters with the budget of this turn: what is left of the trajectory, at most one turn's."""
        limits = [self.response_length - len(agent_data.response_mask), self.max_tokens_per_turn]
        limits.append(sampling_params.get("max_tokens"))
        params = dict(sampling_params, max_tokens=min(limit for limit in limits if limit is not None))
        if params.get("seed") is not None:
            # The engine's random stream starts anew at each request; the same seed would repeat it each turn.
            params["seed"] = (params["seed"] + agent_data.assistant_turns) % 2**63
        return params

    def _absorb(self, agent_data: AgentData, output: Any) -> None:
        ids = list(output.token_ids)
        fields = output.extra_fields
        versions = fields.get("token_versions")
        if versions is None or len(versions) != len(ids):
            versions = [int(fields.get("global_steps", -1))] * len(ids)
        agent_data.assistant_turns += 1
        agent_data.response_ids = ids
        agent_data.append(ids, own=True, log_probs=output.log_probs, versions=list(versions))
        if output.log_probs is None:
            agent_data.extra_fields["without_log_probs"] = True
        agent_data.extra_fields["stop_reason"] = output.stop_reason
        if fields.get("finish_reason") is not None:
            agent_data.extra_fields["finish_reason"] = fields["finish_reason"]
        if output.num_preempted is not None:
            agent_data.metrics["num_preempted"] = agent_data.metrics.get("num_preempted", 0) + output.num_preempted

    def _finished(self, agent_data: AgentData, output: Any) -> bool:
        if output.aborted or len(agent_data.response_mask) >= self.response_length:
            return True
        if self.max_assistant_turns and agent_data.assistant_turns >= self.max_assistant_turns:
            return True
        return bool(self.max_user_turns and agent_data.user_turns >= self.max_user_turns)

    async def _handle_processing_tools_state(self, agent_data: AgentData) -> AgentState:
        calls = agent_data.tool_calls[: self.max_parallel_calls]
        with agent_data.timed("tool_calls"):
            answers = await asyncio.gather(
                *(self._call_tool(call, agent_data.tools_kwargs, agent_data) for call in calls)
            )
        messages: list[dict[str, Any]] = []
        images: list[Any] = []
        for call, (response, reward, metrics) in zip(calls, answers, strict=True):
            messages.append(self._tool_message(call, response))
            images += response.image or []
            if reward is not None:
                agent_data.tool_rewards.append(reward)
            if metrics:
                agent_data.extra_fields.setdefault("tool_metrics", []).append({"tool": call.name} | metrics)
        agent_data.messages += messages
        ids = await self._next_turn(agent_data, messages, images, [call.name for call in calls])
        return self._append_turn(agent_data, ids, images)

    def _tool_message(self, call: FunctionCall, response: ToolResponse) -> dict[str, Any]:
        if not (response.image or response.video):
            return {"role": "tool", "content": response.text or ""}
        if self.processor is None:
            raise DataError(
                "the tool returned images or videos, and this model has no processor: it reads text only",
                where=f"tool {call.name}",
                remedy="return text, or use a model that sees",
            )
        if response.video:
            raise UnsupportedError(
                "videos in a tool's answer are not part of this package",
                where=f"tool {call.name}",
                remedy="return images or text",
            )
        parts: list[dict[str, Any]] = [{"type": "image"} for _ in response.image or []]
        if response.text:
            parts.append({"type": "text", "text": response.text})
        return {"role": "tool", "content": parts}

    async def _handle_interacting_state(self, agent_data: AgentData) -> AgentState:
        user = agent_data.interaction
        if user is None:
            raise DataError(
                "nobody answers the policy: the row has no interaction",
                where=f"interaction_kwargs of the row with index {agent_data.index}",
            )
        call = user.generate_response(agent_data.request_id, agent_data.messages, **agent_data.interaction_kwargs)
        done, text, score, _ = await _answer_of(user, "an answer", call)
        if score is not None:
            agent_data.turn_scores.append(score)
        if done:
            return AgentState.TERMINATED
        message = {"role": "user", "content": text}
        agent_data.messages.append(message)
        ids = await self._next_turn(agent_data, [message], [], [])
        return self._append_turn(agent_data, ids, [])

    async def _next_turn(
        self, agent_data: AgentData, messages: list[dict[str, Any]], images: list[Any], names: list[str]
    ) -> list[int]:
        """Ids of the turn between this answer and the next."""
        if self.tool_parser_name == "gpt-oss" and names:
            # Harmony templates render a tool's answer by the call before it, which they want in their own form.
            text = build_gpt_oss_tool_response_text(messages, names)
            return self.tokenizer.encode(text, add_special_tokens=False)

        def render(conversation: list[dict[str, Any]]) -> list[int]:
            return render_prompt(
                self.tokenizer,
                self.processor,
                conversation,
                images=images or None,
                template_kwargs=self.apply_chat_template_kwargs,
            )

        last = agent_data.prompt_ids[-1] if agent_data.response_ids else None
        if images:
            return await asyncio.to_thread(turn_ids, render, messages, last)
        return turn_ids(render, messages, last)

    def _append_turn(self, agent_data: AgentData, ids: list[int], images: list[Any]) -> AgentState:
        if len(agent_data.response_mask) + len(ids) >= self.response_length:
            # Not a token would be left for an answer to it.
            return AgentState.TERMINATED
        if images:
            agent_data.image_data = [*(agent_data.image_data or []), *images]
        agent_data.user_turns += 1
        agent_data.append(ids, own=False, log_probs=None, versions=None)
        return AgentState.GENERATING

    async def _call_tool(
        self, tool_call: FunctionCall, tools_kwargs: dict[str, Any], agent_data: AgentData
    ) -> tuple[ToolResponse, float | None, dict[str, Any]]:
        """One call; a failure is told to the model, whatever it is, and the trajectory goes on."""
        tool, instance_id = None, None
        try:
            if tool_call.name not in self.tools:
                raise KeyError(f"there is no tool {tool_call.name!r}; there are: {', '.join(sorted(self.tools))}")
            arguments = json.loads(tool_call.arguments)
            if not isinstance(arguments, dict):
                raise TypeError(f"arguments must be a JSON object, not {type(arguments).__name__}")
            tool = self.tools[tool_call.name]
            kwargs = tools_kwargs.get(tool_call.name) or {}
            instance_id, _ = await _answer_of(
                tool, "an instance", tool.create(create_kwargs=kwargs.get("create_kwargs") or {})
            )
            response, reward, metrics = await _answer_of(
                tool,
                "an answer",
                tool.execute(instance_id, arguments, agent_data=agent_data, **(kwargs.get("execute_kwargs") or {})),
            )
            response = as_response(response)
        except Exception as error:
            logger.warning("tool %s failed: %s: %s", tool_call.name, type(error).__name__, error)
            text = f"Error when executing tool: {type(error).__name__}: {error}"
            return ToolResponse(text=self._cut(text)), 0.0, {"error": type(error).__name__}
        finally:
            if tool is not None and instance_id is not None:
                await self._release(tool, instance_id)
        if response.text is not None:
            response = response.model_copy(update={"text": self._cut(response.text)})
        return response, reward, metrics or {}

    @staticmethod
    async def _release(tool: BaseTool, instance_id: str) -> None:
        try:
            await _answer_of(tool, "its release", tool.release(instance_id))
        except Exception as error:
            # The answer is there already, or its own error is: neither is lost over the cleaning up.
            logger.warning("tool %s could not be released: %s: %s", tool.name, type(error).__name__, error)

    def _cut(self, text: str) -> str:
        return truncate_text(text, self.max_tool_response_length, self.tool_response_truncate_side)

    def _output(self, agent_data: AgentData) -> AgentLoopOutput:
        count = len(agent_data.response_mask)
        split = len(agent_data.prompt_ids) - count
        without = agent_data.extra_fields.pop("without_log_probs", False)
        media = {"images": agent_data.image_data, "videos": agent_data.video_data}
        own = [version for version in agent_data.token_versions if version >= 0]
        spans = {"min_global_steps": min(own), "max_global_steps": max(own)} if own else {}
        return AgentLoopOutput(
            prompt_ids=agent_data.prompt_ids[:split],
            response_ids=agent_data.prompt_ids[split:][: self.response_length],
            response_mask=agent_data.response_mask[: self.response_length],
            response_logprobs=None if without else agent_data.response_logprobs[: self.response_length],
            multi_modal_data={key: value for key, value in media.items() if value} or None,
            num_turns=agent_data.user_turns + agent_data.assistant_turns + 1,
            metrics=AgentLoopMetrics(**agent_data.metrics),
            extra_fields={
                "request_id": agent_data.request_id,
                "turn_scores": agent_data.turn_scores,
                "tool_rewards": agent_data.tool_rewards,
                "token_versions": agent_data.token_versions[: self.response_length],
                **spans,
                **agent_data.extra_fields,
            },
        )


async def _answer_of(whom: BaseTool | BaseInteraction, what: str, call: Awaitable[Any]) -> Any:
    kind = "interaction" if isinstance(whom, BaseInteraction) else "tool"
    return await bounded(call, what=what, whom=f"{kind} {whom.name}", deadline_s=TOOL_DEADLINE_S)


def _tools_of(path: str | None) -> dict[str, BaseTool]:
    if path not in _tools:
        found = initialize_tools_from_config(path) if path else []
        _tools[path] = {tool.name: tool for tool in found}
    return _tools[path]
