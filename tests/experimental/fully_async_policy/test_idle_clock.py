# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Idle time is the sum of all pauses inside the window, never below 0 nor above 1 of it."""

import pytest

from verl.experimental.fully_async_policy.idle_clock import IdleClock


def test_without_a_pause_nothing_is_idle() -> None:
    assert IdleClock(100).window(110) == {"active_time": 10, "version_time": 10, "idle_ratio": 0.0}


@pytest.mark.parametrize(("still_paused", "ratio"), [(False, 0.3), (True, 0.5)])
def test_all_pauses_add_up_and_an_open_one_counts_to_now(still_paused: bool, ratio: float) -> None:
    clock = IdleClock(100)
    for start, end in ((101, 103), (105, 106)):
        clock.pause(start)
        clock.resume(end)
    if still_paused:
        clock.pause(108)
    assert clock.window(110)["idle_ratio"] == pytest.approx(ratio)


def test_a_pause_that_ended_before_the_window_counts_no_more() -> None:
    clock = IdleClock(80)
    clock.pause(90)
    clock.resume(99)
    clock.window(100)
    assert clock.window(110)["idle_ratio"] == 0.0


def test_a_pause_that_began_before_the_window_counts_only_inside_it() -> None:
    clock = IdleClock(80)
    clock.pause(90)
    clock.window(100)
    clock.resume(104)
    assert clock.window(110)["idle_ratio"] == pytest.approx(0.4)


def test_a_second_pause_call_does_not_restart_the_pause() -> None:
    clock = IdleClock(100)
    clock.pause(102)
    clock.pause(106)
    clock.resume(107)
    assert clock.window(110)["active_time"] == pytest.approx(5)


def test_a_window_of_no_length_is_not_idle() -> None:
    clock = IdleClock(100)
    clock.pause(100)
    assert clock.window(100)["idle_ratio"] == 0.0
