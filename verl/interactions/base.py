# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""A simulated user: answers what the model said, and says when the conversation is over."""

import uuid
from typing import Any

__all__ = ["BaseInteraction"]


class BaseInteraction:
    """One object serves all conversations of a process; what belongs to one lives under its instance id."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.name: str = config.get("name", "interaction_agent")

    async def start_interaction(self, instance_id: str | None = None, **kwargs: Any) -> str:
        """Open a conversation; `kwargs` are the row's `interaction_kwargs`."""
        return instance_id or str(uuid.uuid4())

    async def generate_response(
        self, instance_id: str, messages: list[dict[str, Any]], **kwargs: Any
    ) -> tuple[bool, str, float, dict[str, Any]]:
        """(whether the conversation ends, the user's next text, the turn's score, extras)."""
        raise NotImplementedError(f"{type(self).__name__} must define generate_response")

    async def calculate_score(self, instance_id: str | None = None, **kwargs: Any) -> float:
        """Score of the conversation so far."""
        return 0.0

    async def finalize_interaction(self, instance_id: str | None = None, **kwargs: Any) -> None:
        """Forget the conversation."""
