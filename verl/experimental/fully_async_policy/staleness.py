# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The ledger of prompt groups: where each one is, and how many more may be started.

Invariant, checked after every transition:

    submitted == in_flight + queued + taken + trained + dropped

The unit is the prompt group (one prompt, `rollout.n` trajectories; "sample" in verl's async settings).
Pure: no clock, no asyncio, no Ray. It lives in the rollouter; the trainer reports to it by message.
"""

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from verl.errors import CheckpointError, VerlError


class GroupState(Enum):
    """Where a group is between its submission and its end."""

    IN_FLIGHT = "in_flight"
    QUEUED = "queued"
    TAKEN = "taken"


class LedgerError(VerlError, AssertionError):
    """A transition that cannot happen; always a fault of this program, never of its input."""


@dataclass
class _Entry:
    state: GroupState
    start_version: int


@dataclass
class StalenessLedger:
    """Accounts for every group and answers how many more may be started.

    Parameters
    ----------
    max_outstanding : groups that may be started per published version (verl's `max_required_samples`).
    max_in_flight : groups that may be generated at the same time (verl's `max_concurrent_samples`).
    version : the policy version that the rollout serves.
    """

    max_outstanding: int
    max_in_flight: int
    version: int = 0
    submitted: int = 0
    trained_total: int = 0
    dropped_total: int = 0
    drop_reasons: Counter[str] = field(default_factory=Counter)
    _entries: dict[str, _Entry] = field(default_factory=dict)
    # What counts against the room of the version that is served now.
    _carried: int = 0
    _submitted_since: int = 0
    _dropped_since: int = 0

    # -- reading ---------------------------------------------------------------------------------------------------

    def count(self, state: GroupState) -> int:
        """Groups in `state`."""
        return sum(entry.state is state for entry in self._entries.values())

    @property
    def staleness_room(self) -> int:
        """Groups that may still be started before the next publish.

        `max_outstanding - (in flight + queued at the last publish) - (submitted since, less dropped since)`.
        """
        return self.max_outstanding - self.staleness_samples

    @property
    def staleness_samples(self) -> int:
        """verl's counter of the same name: what has been used of `max_outstanding`."""
        return self._carried + self._submitted_since - self._dropped_since

    def capacity(self) -> int:
        """Groups that may be started now: the smaller of concurrency room and staleness room, never negative."""
        return max(0, min(self.max_in_flight - self.count(GroupState.IN_FLIGHT), self.staleness_room))

    def overdue(self, max_version_lag: int | None) -> list[str]:
        """Groups not yet taken whose age would pass `max_version_lag` if one more version were published first."""
        if max_version_lag is None:
            return []
        return [
            uid
            for uid, entry in self._entries.items()
            if entry.state is not GroupState.TAKEN and self.version + 1 - entry.start_version > max_version_lag
        ]

    def in_state(self, state: GroupState) -> list[str]:
        """Uids in `state`, in the order of their submission."""
        return [uid for uid, entry in self._entries.items() if entry.state is state]

    def outstanding(self) -> list[str]:
        """Uids in flight or queued, in the order of their submission."""
        return [uid for uid, entry in self._entries.items() if entry.state is not GroupState.TAKEN]

    # -- transitions -----------------------------------------------------------------------------------------------

    def submit(self, uid: str) -> None:
        """A group starts generating under the present version."""
        if uid in self._entries:
            raise LedgerError("submitted twice", where=uid, got=self._entries[uid].state.value)
        self._entries[uid] = _Entry(GroupState.IN_FLIGHT, self.version)
        self.submitted += 1
        self._submitted_since += 1
        self._check()

    def finish(self, uid: str) -> None:
        """A group is complete and goes to the queue."""
        self._move(uid, GroupState.IN_FLIGHT, GroupState.QUEUED)

    def take(self, uids: list[str]) -> None:
        """The trainer holds these groups now."""
        for uid in uids:
            self._move(uid, GroupState.QUEUED, GroupState.TAKEN)

    def trained(self, uids: list[str]) -> None:
        """An optimizer step has used these groups."""
        for uid in uids:
            self._remove(uid, (GroupState.TAKEN,))
            self.trained_total += 1
        self._check()

    def drop(self, uid: str, reason: str) -> None:
        """A group ends untrained; its room is free again. Submitting the uid once more starts it afresh."""
        self._remove(uid, tuple(GroupState))
        self.dropped_total += 1
        self._dropped_since += 1
        self.drop_reasons[reason] += 1
        self._check()

    def publish(self, version: int) -> None:
        """The rollout serves `version`; what is in flight or queued is carried against the new room."""
        if version < self.version:
            raise LedgerError("the policy version went back", got=version, expected=f"at least {self.version}")
        self.version = version
        self._carried = self.count(GroupState.IN_FLIGHT) + self.count(GroupState.QUEUED)
        self._submitted_since = self._dropped_since = 0
        self._check()

    # -- checkpoint ------------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Plain state for a checkpoint; only between two training steps, when nothing is taken."""
        if taken := self.count(GroupState.TAKEN):
            raise LedgerError("a snapshot needs a moment when nothing is taken", got=taken, expected="0")
        return {
            "version": self.version,
            "trained": self.trained_total,
            "dropped": self.dropped_total,
            "drop_reasons": dict(self.drop_reasons),
            "outstanding": self.outstanding(),
        }

    def restore(self, state: dict[str, Any]) -> list[str]:
        """Take up a snapshot; returns the uids that were outstanding, to be submitted again before new rows."""
        if self.submitted:
            raise LedgerError("restore into a ledger that is in use", got=self.submitted, expected="0 submissions")
        missing = {"version", "trained", "dropped", "drop_reasons", "outstanding"} - state.keys()
        if missing:
            raise CheckpointError(
                "the ledger state is incomplete", got=sorted(state), expected=f"also {sorted(missing)}"
            )
        self.version = int(state["version"])
        self.trained_total = int(state["trained"])
        self.dropped_total = int(state["dropped"])
        self.drop_reasons = Counter(state["drop_reasons"])
        # What was outstanding is submitted anew and counted then.
        self.submitted = self.trained_total + self.dropped_total
        self._check()
        return list(state["outstanding"])

    # -- inside ----------------------------------------------------------------------------------------------------

    def _move(self, uid: str, source: GroupState, target: GroupState) -> None:
        entry = self._entries.get(uid)
        if entry is None or entry.state is not source:
            raise LedgerError(
                f"cannot become {target.value}",
                where=uid,
                got=entry.state.value if entry else "unknown uid",
                expected=source.value,
            )
        entry.state = target
        self._check()

    def _remove(self, uid: str, sources: tuple[GroupState, ...]) -> None:
        entry = self._entries.get(uid)
        if entry is None or entry.state not in sources:
            raise LedgerError(
                "cannot end",
                where=uid,
                got=entry.state.value if entry else "unknown uid",
                expected=" or ".join(state.value for state in sources),
            )
        del self._entries[uid]

    def _check(self) -> None:
        accounted = len(self._entries) + self.trained_total + self.dropped_total
        if self.submitted != accounted:
            raise LedgerError("groups do not add up", got=f"{self.submitted} submitted, {accounted} accounted for")
