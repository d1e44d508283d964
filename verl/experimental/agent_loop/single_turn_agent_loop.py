# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""One question, one answer."""

import time
from typing import Any
from uuid import uuid4

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput, register
from verl.tools.utils.tool_registry import tool_schemas_from_config

__all__ = ["SingleTurnAgentLoop"]

_schemas: dict[str | None, list[dict[str, Any]] | None] = {}


@register("single_turn_agent")
class SingleTurnAgentLoop(AgentLoopBase):
    """Renders the messages (with the configured tools, which it does not run) and asks once."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        path = self.data_config.get("tool_config_path", None)
        if path not in _schemas:
            # One loop object per trajectory, one reading of the file per process.
            _schemas[path] = tool_schemas_from_config(path)
        self.tool_schemas = _schemas[path]

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput:
        messages = list(kwargs["raw_prompt"])
        media = await self.process_vision_info(messages)
        prompt_ids = await self.render_first_prompt(messages, self.tool_schemas, media, kwargs.get("index"))
        started_s, request_id = time.monotonic(), uuid4().hex
        output = await self.server_manager.generate(
            request_id=request_id,
            prompt_ids=prompt_ids,
            sampling_params=sampling_params,
            image_data=media.get("images"),
            video_data=media.get("videos"),
        )
        metrics = AgentLoopMetrics(
            generate_sequences=time.monotonic() - started_s,
            num_preempted=-1 if output.num_preempted is None else output.num_preempted,
        )
        return AgentLoopOutput(
            prompt_ids=prompt_ids,
            response_ids=output.token_ids,
            response_mask=[1] * len(output.token_ids),
            response_logprobs=output.log_probs,
            routed_experts=output.routed_experts,
            multi_modal_data=media or None,
            num_turns=2,
            metrics=metrics,
            extra_fields={
                "request_id": request_id,
                "stop_reason": output.stop_reason,
                "turn_scores": [],
                "tool_rewards": [],
                **output.extra_fields,
            },
        )
