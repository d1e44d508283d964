# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""A user who asks again until the answer to a GSM8K question is right."""

from typing import Any

from verl.interactions.base import BaseInteraction
from verl.utils.reward_score import gsm8k

__all__ = ["Gsm8kInteraction"]


class Gsm8kInteraction(BaseInteraction):
    """Ends with score 1 at the right number, else asks to think again."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(config)
        self._instance_dict: dict[str, dict[str, Any]] = {}

    async def start_interaction(
        self, instance_id: str | None = None, ground_truth: str | None = None, **kwargs: Any
    ) -> str:
        instance_id = await super().start_interaction(instance_id)
        self._instance_dict[instance_id] = {"response": "", "ground_truth": ground_truth}
        return instance_id

    async def generate_response(
        self, instance_id: str, messages: list[dict[str, Any]], **kwargs: Any
    ) -> tuple[bool, str, float, dict[str, Any]]:
        spoken = [message["content"] for message in messages if message.get("role") == "assistant"]
        self._instance_dict[instance_id]["response"] = spoken[-1] if spoken else ""
        score = await self.calculate_score(instance_id)
        if score == 1.0:
            return True, "Your answer is right.", score, {}
        return False, "Your answer is wrong. Think again, and give the number behind ####.", score, {}

    async def calculate_score(self, instance_id: str | None = None, **kwargs: Any) -> float:
        state = self._instance_dict[str(instance_id)]
        return gsm8k.compute_score(state["response"], state["ground_truth"], method="strict")

    async def finalize_interaction(self, instance_id: str | None = None, **kwargs: Any) -> None:
        self._instance_dict.pop(str(instance_id), None)
