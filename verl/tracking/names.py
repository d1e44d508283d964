# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Metric names for trackers that allow fewer characters than we use."""

import logging
import re

logger = logging.getLogger(__name__)


class NameCleaner:
    """Maps names to allowed ones, the same name always the same way, and never two names to one."""

    def __init__(self) -> None:
        self._clean_of: dict[str, str] = {}
        self._taken: set[str] = set()

    def clean(self, name: str) -> str:
        """`name` with letters, digits, `_ - . /` and spaces only; a clash gets a number and one warning."""
        if name in self._clean_of:
            return self._clean_of[name]
        wanted = clean_name(name)
        chosen, number = wanted, 2
        while chosen in self._taken:
            chosen, number = f"{wanted}_{number}", number + 1
        if chosen != wanted:
            logger.warning("metric %r is tracked as %r, because another metric is already %r", name, chosen, wanted)
        self._clean_of[name] = chosen
        self._taken.add(chosen)
        return chosen

    def clean_all(self, data: dict[str, float]) -> dict[str, float]:
        """The same values under allowed names; names that need no change are served first."""
        for name in sorted(data, key=lambda name: clean_name(name) != name):
            self.clean(name)
        return {self.clean(name): value for name, value in data.items()}


def clean_name(name: str) -> str:
    """`val-core/a@4//acc (%)` → `val-core/a_at_4/acc`."""
    text = re.sub(r"[^\w\-. /]+", "_", name.replace("@", "_at_"), flags=re.ASCII)
    parts = (part.strip(" _") or "_" for part in text.split("/") if part.strip())
    return "/".join(parts) or "_"
