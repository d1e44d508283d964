# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Seconds of a process without ranks; two ranks are in tests/special_distributed."""

from verl.utils.profiler.performance import gather_timing, reduce_timing, topk_reduce_ratio_min_max


def test_a_process_without_ranks_is_the_only_one() -> None:
    assert gather_timing(timing_raw={"step": 2.0, "gen": 0.5}) == {"gen": [0.5], "step": [2.0]}
    assert reduce_timing(timing_raw={"step": 2.0}) == {"step": 2.0}
    assert topk_reduce_ratio_min_max(timing=2.0, k=10) == (0.0, 2.0, 2.0)
