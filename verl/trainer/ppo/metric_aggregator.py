# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The aggregator of trainers that publish after every step: the step's own numbers."""

from typing import Any


class OneStep:
    """Hands back the metrics of the step that was added last."""

    def __init__(self) -> None:
        self._metrics: dict[str, Any] = {}

    def reset(self) -> None:
        self._metrics = {}

    def add_step_metrics(self, metrics: dict[str, Any], sample_count: int) -> None:
        self._metrics |= metrics

    def get_aggregated_metrics(self) -> dict[str, Any]:
        return dict(self._metrics)
