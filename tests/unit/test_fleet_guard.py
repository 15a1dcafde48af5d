"""The guard: a gate opens only on known facts, and closes in the same moment as a fact changes."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostler.fleet.capabilities import BY_NAME, CAPABILITIES, Choice
from hostler.fleet.decide import PAUSED
from hostler.fleet.guard import Guard, pause_of
from hostler.fleet.incumbents import State, Verdict
from hostler.fleet.model import NAME, Fleet, FleetSpec, FleetStatus
from hostler.fleet.pauses import Pauses
from hostler.host.conditions import Condition, Status
from hostler.instant import iso
from hostler.kube.records import Metadata
from hostler.kube.store import Store
from hostler.kube.watch import FRESH_SECONDS

_versions = itertools.count(1)


@dataclass
class Watching:
    """The edge of the watch: a real store, and what the watch says about itself."""

    store: Store[Fleet] = field(default_factory=Store)
    absent: bool = False
    problem: str = ""
    silent: float | None = 1.0

    def age(self) -> float | None:
        return self.silent

    def see(self, **spec: object) -> None:
        version = str(next(_versions))
        self.store.put(Fleet(metadata=Metadata(name=NAME, resource_version=version), spec=FleetSpec(**spec)))  # type: ignore[arg-type]

    def sync(self) -> None:
        self.store.synced = True


def guard_of(watch: Watching, *, on: bool = True, **rest: object) -> Guard:
    rest = {"leader": lambda: None, "choices": [Choice(one, on, "Said so.") for one in CAPABILITIES], **rest}
    return Guard(watch, **rest)  # type: ignore[arg-type]


def running() -> Watching:
    watch = Watching()
    watch.sync()
    watch.see()
    return watch


def test_before_anything_is_known_nothing_is_written() -> None:
    watch = Watching(silent=None, problem="the API server cannot be reached")
    why = guard_of(watch).gate("holds")
    assert why == "It is not known yet whether the Fleet is paused: the API server cannot be reached."
    watch.silent = 0.0
    assert guard_of(watch).gate("holds") is not None  # heard of, but not complete


def test_a_cluster_without_the_crd_is_not_paused() -> None:
    watch = Watching(absent=True)
    watch.sync()
    assert guard_of(watch).gate("holds") is None


def test_a_cluster_without_a_fleet_object_is_not_paused() -> None:
    watch = Watching()
    watch.sync()
    assert guard_of(watch).gate("holds") is None


def test_the_stop_button_closes_every_gate_in_the_same_moment_and_says_who_and_why() -> None:
    watch = running()
    guard = guard_of(watch, ignore_incumbent=BY_NAME)
    gates = {one.name: guard.gate_for(one.name) for one in CAPABILITIES}
    assert [gate() for gate in gates.values()] == [None] * len(gates)
    watch.see(paused=True, paused_reason="storage is on fire", paused_by="ada")
    for name, gate in gates.items():
        if name == "fleet":  # its status is what says that it is paused
            assert gate() is None
        else:
            assert gate() == "The Fleet is paused by ada: storage is on fire. `hostler resume` lets it go on."
    watch.see(paused=False)
    assert [gate() for gate in gates.values()] == [None] * len(gates)


def test_a_watch_that_has_gone_silent_may_have_missed_the_button() -> None:
    watch = running()
    watch.silent = FRESH_SECONDS + 1
    assert "has not been heard for 151 s" in (guard_of(watch).gate("holds") or "")


def test_a_fleet_that_cannot_be_read_counts_as_paused() -> None:
    watch = running()
    watch.store.unread(NAME, next(_versions), "Expected `bool`, got `str` - at `$.spec.paused`")
    pause = pause_of(watch)
    assert pause.stopped
    assert not pause.known
    assert "cannot be read" in pause.why


def test_dry_run_and_leadership_close_the_gate() -> None:
    watch = running()
    assert guard_of(watch, dry_run=True).gate("fleet") == "This is a dry run: nothing is written."
    held = guard_of(watch, leader=lambda: "this replica does not lead")
    assert held.gate("fleet") == "this replica does not lead"
    assert held.blocked("holds") is None


def test_a_capability_that_is_off_writes_nothing() -> None:
    guard = guard_of(running(), on=False)
    assert guard.gate("metal") == "metal is off. Said so."
    assert guard_of(running(), choices=()).gate("metal") == "metal is off. It is not known here."
    with pytest.raises(ValueError, match="no capability named"):
        guard.gate_for("mettle")


def test_an_incumbent_closes_the_gate_until_it_is_known_to_be_gone() -> None:
    guard = guard_of(running())
    assert "has not been looked at yet" in (guard.gate("metal") or "")
    guard.judged("metal", Verdict(State.UNKNOWN, "Not known: forbidden.", "x"))
    assert "Not known: forbidden." in (guard.gate("metal") or "")
    guard.judged("metal", Verdict(State.FOUND, "The provider: it runs.", "x"))
    assert guard.gate("metal") == "The provider: it runs. To write all the same: --ignore-incumbent metal."
    assert guard.gate("holds") is None
    guard.judged("metal", Verdict(State.ABSENT, "Gone.", "x"))
    assert guard.gate("metal") is None


def test_what_was_an_incumbents_goes_back_once_it_is_known_to_be_at_work() -> None:
    watch = running()
    guard, ignoring = guard_of(watch), guard_of(watch, ignore_incumbent=["platform"])
    back = guard.giving_back("platform")
    for state, displaced in ((None, False), (State.UNKNOWN, False), (State.ABSENT, False), (State.FOUND, True)):
        if state is not None:
            guard.judged("platform", Verdict(state, "x.", "x"))
            ignoring.judged("platform", Verdict(state, "x.", "x"))
        assert (guard.displaced("platform"), ignoring.displaced("platform")) == (displaced, False)
        assert back() is None, "whether somebody is at work does not keep us from giving back"
    watch.see(paused=True)
    assert "paused" in (back() or ""), "everything else does"
    assert guard_of(running(), on=False).giving_back("platform")() == "platform is off. Said so."
    assert guard_of(running(), leader=lambda: "not the leader").giving_back("platform")() == "not the leader"
    assert "dry run" in (guard_of(running(), dry_run=True).giving_back("platform")() or "")


def test_the_override_is_per_capability() -> None:
    guard = guard_of(running(), ignore_incumbent=("metal",))
    guard.judged("metal", Verdict(State.FOUND, "It runs.", "x"))
    assert guard.gate("metal") is None
    assert guard.gate("ingress") is not None


@given(
    synced=st.booleans(), absent=st.booleans(), silent=st.none() | st.floats(0, 1000), paused=st.booleans(),
    exists=st.booleans(), on=st.booleans(), leads=st.booleans(), dry=st.booleans(),
    state=st.none() | st.sampled_from(State), name=st.sampled_from([one.name for one in CAPABILITIES]),
)  # fmt: skip
def test_an_open_gate_means_that_every_fact_was_known_and_good(
    synced: bool, absent: bool, silent: float | None, paused: bool, exists: bool, on: bool, leads: bool, dry: bool,
    state: State | None, name: str,
) -> None:  # fmt: skip
    watch = Watching(absent=absent, silent=silent)
    watch.store.synced = synced
    if exists and not absent:
        watch.see(paused=paused)
    guard = guard_of(watch, on=on, dry_run=dry, leader=lambda: None if leads else "no")
    if state is not None:
        guard.judged(name, Verdict(state, "Because.", "x"))
    if guard.gate(name) is None:
        assert on
        assert leads
        assert not dry
        if name != "fleet":
            assert synced
            assert silent is not None
            assert silent <= FRESH_SECONDS
            assert absent or not exists or not paused
        assert not BY_NAME[name].incumbents or state is State.ABSENT


# -- when a pause ended


def said(watch: Watching, status: Status, at: float, **spec: object) -> None:
    """The Fleet with its status, as some operator wrote it."""
    one = Condition(type=PAUSED, status=status, reason="r", last_transition_time=iso(at))
    fleet = Fleet(
        metadata=Metadata(name=NAME, resource_version=str(next(_versions))),
        spec=FleetSpec(**spec),  # type: ignore[arg-type]
        status=FleetStatus(conditions=(one,)),
    )
    watch.store.put(fleet)


def test_without_a_pause_none_has_ended_and_a_start_is_none() -> None:
    watch = Watching(silent=None)
    pauses = Pauses(watch)
    assert pauses.ended(5.0) == 5.0, "nothing is known yet, so nothing may be late"
    watch.silent = 1.0
    watch.sync()
    watch.see()
    assert pauses.ended(6.0) == 0.0
    watch.absent = True
    assert pauses.ended(7.0) == 0.0


def test_a_pause_that_is_seen_ends_when_it_is_seen_to() -> None:
    watch = running()
    pauses = Pauses(watch)
    assert pauses.ended(10.0) == 0.0
    watch.see(paused=True)
    assert [pauses.ended(20.0), pauses.ended(30.0)] == [20.0, 30.0]
    watch.see()
    assert [pauses.ended(40.0), pauses.ended(90.0)] == [40.0, 40.0]


def test_a_fleet_that_is_deleted_in_a_pause_ends_it() -> None:
    watch = running()
    pauses = Pauses(watch)
    watch.see(paused=True)
    pauses.ended(20.0)
    watch.store.remove(Fleet(metadata=Metadata(name=NAME, resource_version=str(next(_versions)))))
    assert [pauses.ended(40.0), pauses.ended(90.0)] == [40.0, 40.0]


def test_losing_sight_of_the_fleet_is_a_pause_too() -> None:
    watch = running()
    pauses = Pauses(watch)
    pauses.ended(10.0)
    watch.silent = FRESH_SECONDS + 1
    assert pauses.ended(400.0) == 400.0
    watch.silent = 0.0
    assert [pauses.ended(500.0), pauses.ended(600.0)] == [500.0, 500.0]


def test_after_a_restart_the_status_says_when_it_ended() -> None:
    watch = running()
    said(watch, Status.FALSE, 1000.0)
    assert Pauses(watch).ended(5000.0) == 1000.0


@pytest.mark.parametrize("status", [Status.TRUE, Status.UNKNOWN])
def test_released_while_nobody_was_there_it_ends_when_somebody_is(status: Status) -> None:
    """The status is behind: it still says paused, and goes on saying so if nobody may write it."""
    watch = running()
    said(watch, status, 1000.0)
    pauses = Pauses(watch)
    assert [pauses.ended(5000.0), pauses.ended(6000.0)] == [5000.0, 5000.0]
    said(watch, Status.FALSE, 5001.0)
    assert pauses.ended(7000.0) == 5001.0


def test_a_clock_that_is_ahead_does_not_make_it_end_later_than_now() -> None:
    watch = running()
    said(watch, Status.FALSE, 9000.0)
    assert Pauses(watch).ended(5000.0) == 5000.0
