# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Metrics that carry their own reduction."""

from verl.utils.metric.utils import AggregationType, Metric, merge_metrics, reduce_metrics

__all__ = ["AggregationType", "Metric", "merge_metrics", "reduce_metrics"]
