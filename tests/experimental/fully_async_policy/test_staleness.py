# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""The ledger adds up after every transition, and its room is verl's formula."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from verl.experimental.fully_async_policy.staleness import GroupState, LedgerError, StalenessLedger


class LedgerMachine(RuleBasedStateMachine):
    """Random histories against an independent model: one dict uid → (state, counts against this version)."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = StalenessLedger(max_outstanding=6, max_in_flight=4)
        self.model: dict[str, str] = {}
        self.started_this_version = 0
        self.ended = {"trained": 0, "dropped": 0}
        self.next_uid = 0

    def of(self, state: str) -> list[str]:
        return [uid for uid, where in self.model.items() if where == state]

    @precondition(lambda self: self.ledger.capacity() > 0)
    @rule()
    def submit(self) -> None:
        uid = f"0-{self.next_uid}"
        self.next_uid += 1
        self.ledger.submit(uid)
        self.model[uid] = "in_flight"
        self.started_this_version += 1

    @precondition(lambda self: self.of("in_flight"))
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(self.of("in_flight")))
        self.ledger.finish(uid)
        self.model[uid] = "queued"

    @precondition(lambda self: self.of("queued"))
    @rule(data=st.data())
    def take(self, data: st.DataObject) -> None:
        uids = data.draw(st.lists(st.sampled_from(self.of("queued")), min_size=1, unique=True))
        self.ledger.take(uids)
        self.model.update(dict.fromkeys(uids, "taken"))

    @precondition(lambda self: self.of("taken"))
    @rule()
    def train(self) -> None:
        uids = self.of("taken")
        self.ledger.trained(uids)
        for uid in uids:
            del self.model[uid]
        self.ended["trained"] += len(uids)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(self.model)))
        self.ledger.drop(uid, "test")
        del self.model[uid]
        self.ended["dropped"] += 1

    @rule()
    def publish(self) -> None:
        self.ledger.publish(self.ledger.version + 1)
        # The next version's use of the room starts with what is already outstanding.
        self.started_this_version = len(self.of("in_flight")) + len(self.of("queued"))

    @precondition(lambda self: not self.of("taken"))
    @rule()
    def checkpoint_and_resume(self) -> None:
        state = self.ledger.snapshot()
        outstanding, version = list(self.model), self.ledger.version
        assert state["outstanding"] == outstanding
        self.ledger = StalenessLedger(max_outstanding=6, max_in_flight=4)
        assert self.ledger.restore(state) == outstanding and self.ledger.version == version
        for uid in outstanding[: self.ledger.capacity()]:
            self.ledger.submit(uid)
        self.model = dict.fromkeys(outstanding[:4], "in_flight")

    @invariant()
    def groups_add_up(self) -> None:
        ledger = self.ledger
        assert ledger.submitted == len(self.model) + self.ended["trained"] + self.ended["dropped"]
        for state in GroupState:
            assert ledger.count(state) == len(self.of(state.value))

    @invariant()
    def room_is_never_overdrawn(self) -> None:
        assert self.ledger.staleness_samples <= self.ledger.max_outstanding
        assert self.ledger.count(GroupState.IN_FLIGHT) <= self.ledger.max_in_flight


LedgerMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestLedgerHistories = LedgerMachine.TestCase


def test_zero_staleness_starts_exactly_one_batch_per_version() -> None:
    ledger = StalenessLedger(max_outstanding=4, max_in_flight=16)
    for index in range(4):
        ledger.submit(str(index))
    assert ledger.capacity() == 0
    for index in range(4):
        ledger.finish(str(index))
    ledger.take(["0", "1", "2", "3"])
    assert ledger.capacity() == 0, "taking a batch must not admit new groups under the old weights"
    ledger.trained(["0", "1", "2", "3"])
    assert ledger.capacity() == 0
    ledger.publish(1)
    assert ledger.capacity() == 4


def test_leftover_groups_count_against_the_next_version() -> None:
    ledger = StalenessLedger(max_outstanding=6, max_in_flight=16)
    for index in range(6):
        ledger.submit(str(index))
    for index in range(4):
        ledger.finish(str(index))
    ledger.take(["0", "1", "2", "3"])
    ledger.trained(["0", "1", "2", "3"])
    ledger.publish(1)
    assert ledger.staleness_samples == 2
    assert ledger.capacity() == 4


def test_a_drop_frees_its_room_and_is_counted_by_reason() -> None:
    ledger = StalenessLedger(max_outstanding=1, max_in_flight=1)
    ledger.submit("a")
    ledger.drop("a", "replica lost")
    ledger.submit("a")
    assert ledger.drop_reasons == {"replica lost": 1}
    assert (ledger.submitted, ledger.dropped_total) == (2, 1)


def test_groups_are_overdue_one_publish_before_they_would_be_too_old() -> None:
    ledger = StalenessLedger(max_outstanding=8, max_in_flight=8)
    ledger.submit("old")
    ledger.publish(1)
    ledger.submit("new")
    assert ledger.overdue(None) == []
    assert ledger.overdue(2) == []
    assert ledger.overdue(1) == ["old"]


@pytest.mark.parametrize(
    ("transition", "word"),
    [
        (lambda ledger: ledger.submit("a"), "submitted twice"),
        (lambda ledger: ledger.take(["a"]), "expected queued"),
        (lambda ledger: ledger.trained(["a"]), "expected taken"),
        (lambda ledger: ledger.finish("b"), "unknown uid"),
        (lambda ledger: ledger.publish(-1), "went back"),
    ],
)
def test_an_impossible_transition_is_refused_with_the_uid(transition, word: str) -> None:
    ledger = StalenessLedger(max_outstanding=4, max_in_flight=4)
    ledger.submit("a")
    with pytest.raises(LedgerError, match=word):
        transition(ledger)


def test_a_snapshot_while_groups_are_taken_is_refused() -> None:
    ledger = StalenessLedger(max_outstanding=4, max_in_flight=4)
    ledger.submit("a")
    ledger.finish("a")
    ledger.take(["a"])
    with pytest.raises(LedgerError, match="nothing is taken"):
        ledger.snapshot()


@given(st.integers(1, 64), st.integers(1, 64), st.integers(0, 64))
def test_capacity_is_the_smaller_room_and_never_negative(outstanding: int, in_flight: int, submitted: int) -> None:
    ledger = StalenessLedger(outstanding, in_flight)
    for index in range(min(submitted, outstanding, in_flight)):
        ledger.submit(str(index))
    used = min(submitted, outstanding, in_flight)
    assert ledger.capacity() == min(outstanding, in_flight) - used
