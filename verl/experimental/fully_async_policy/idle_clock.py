# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""How much of a version's time the rollouter stood still: the sum of all pauses within the window."""


class IdleClock:
    """Adds up pauses; times are monotonic seconds given by the caller."""

    def __init__(self, now_s: float) -> None:
        self._window_start = now_s
        self._paused_since: float | None = None
        self._idle_s = 0.0

    def pause(self, now_s: float) -> None:
        """Standing still from now on; a second call changes nothing."""
        if self._paused_since is None:
            self._paused_since = now_s

    def resume(self, now_s: float) -> None:
        """Working again."""
        if self._paused_since is not None:
            self._idle_s += now_s - max(self._paused_since, self._window_start)
            self._paused_since = None

    def window(self, now_s: float) -> dict[str, float]:
        """Close the window and start the next; an open pause counts up to now, and goes on in the next window."""
        length = now_s - self._window_start
        idle = self._idle_s
        if self._paused_since is not None:
            idle += now_s - max(self._paused_since, self._window_start)
            self._paused_since = now_s
        self._window_start, self._idle_s = now_s, 0.0
        ratio = min(1.0, idle / length) if length > 0 else 0.0
        return {"active_time": length - idle, "version_time": length, "idle_ratio": ratio}
