"""The guard: a gate opens only on known facts, and closes in the same moment as a fact changes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostler.apis.fleet import Pause
from hostler.capabilities import BY_NAME, CAPABILITIES
from hostler.kube.watch import FRESH_SECONDS
from hostler.safety.guard import Guard
from hostler.safety.incumbents import State, Verdict
from hostler.safety.switches import Choice
from tests.unit.watching import Watching, fleets, pause, pauses, resume


def guard_of(watch: Watching[Pause], *, on: bool = True, **rest: object) -> Guard:
    rest = {"leader": lambda: None, "choices": [Choice(one, on, "Said so.") for one in CAPABILITIES], **rest}
    return Guard(watch, fleets(), **rest)  # type: ignore[arg-type]


def test_before_anything_is_known_nothing_is_written() -> None:
    watch: Watching[Pause] = Watching(silent=None, problem="the API server cannot be reached")
    why = guard_of(watch).gate("holds")
    assert why == "Cannot tell yet whether Hostler is paused: the API server cannot be reached."
    watch.silent = 0.0
    assert guard_of(watch).gate("holds") is not None  # heard of, but not complete


def test_a_cluster_without_the_crd_is_not_paused() -> None:
    watch = pauses()
    watch.absent = True
    assert guard_of(watch).gate("holds") is None


def test_the_stop_button_closes_every_gate_in_the_same_moment_and_says_who_and_why() -> None:
    watch = pauses()
    guard = guard_of(watch, ignore_incumbent=BY_NAME)
    gates = {one.name: guard.gate_for(one.name) for one in CAPABILITIES}
    assert [gate() for gate in gates.values()] == [None] * len(gates)
    pause(watch, "ada-1", by="ada", why="storage is on fire")
    for name, gate in gates.items():
        if name == "fleet":  # its status is what says that it is paused
            assert gate() is None
        else:
            assert "paused by Pause ada-1 (claims to be ada): storage is on fire." in (gate() or "")
    resume(watch, "ada-1")
    assert [gate() for gate in gates.values()] == [None] * len(gates)


def test_dry_run_and_leadership_close_the_gate() -> None:
    watch = pauses()
    assert guard_of(watch, dry_run=True).gate("fleet") == "This is a dry run: nothing is written."
    held = guard_of(watch, leader=lambda: "this replica does not lead")
    assert held.gate("fleet") == "this replica does not lead"
    assert held.blocked("holds") is None


def test_a_capability_that_is_off_writes_nothing() -> None:
    guard = guard_of(pauses(), on=False)
    assert guard.gate("metal") == "metal is off. Said so."
    assert guard_of(pauses(), choices=()).gate("metal") == "metal is off. It is not known here."
    with pytest.raises(ValueError, match="no capability named"):
        guard.gate_for("mettle")


def test_an_incumbent_closes_the_gate_until_it_is_known_to_be_gone() -> None:
    guard = guard_of(pauses())
    assert "has not been looked at yet" in (guard.gate("metal") or "")
    guard.judged("metal", Verdict(State.UNKNOWN, "Not known: forbidden.", "x"))
    assert "Not known: forbidden." in (guard.gate("metal") or "")
    guard.judged("metal", Verdict(State.FOUND, "The provider: it runs.", "x"))
    assert guard.gate("metal") == "The provider: it runs. To write all the same: --ignore-incumbent metal."
    assert guard.gate("holds") is None
    guard.judged("metal", Verdict(State.ABSENT, "Gone.", "x"))
    assert guard.gate("metal") is None


def test_what_was_an_incumbents_goes_back_once_it_is_known_to_be_at_work() -> None:
    watch = pauses()
    guard, ignoring = guard_of(watch), guard_of(watch, ignore_incumbent=["platform"])
    back = guard.giving_back("platform")
    for state, displaced in ((None, False), (State.UNKNOWN, False), (State.ABSENT, False), (State.FOUND, True)):
        if state is not None:
            guard.judged("platform", Verdict(state, "x.", "x"))
            ignoring.judged("platform", Verdict(state, "x.", "x"))
        assert (guard.displaced("platform"), ignoring.displaced("platform")) == (displaced, False)
        assert back() is None, "whether somebody is at work does not keep us from giving back"
    pause(watch)
    assert "paused" in (back() or ""), "everything else does"
    assert guard_of(pauses(), on=False).giving_back("platform")() == "platform is off. Said so."
    assert guard_of(pauses(), leader=lambda: "not the leader").giving_back("platform")() == "not the leader"
    assert "dry run" in (guard_of(pauses(), dry_run=True).giving_back("platform")() or "")


def test_the_override_is_per_capability() -> None:
    guard = guard_of(pauses(), ignore_incumbent=("metal",))
    guard.judged("metal", Verdict(State.FOUND, "It runs.", "x"))
    assert guard.gate("metal") is None
    assert guard.gate("ingress") is not None


@given(
    synced=st.booleans(), absent=st.booleans(), silent=st.none() | st.floats(0, 1000), paused=st.booleans(),
    forbidden=st.booleans(), on=st.booleans(), leads=st.booleans(), dry=st.booleans(),
    state=st.none() | st.sampled_from(State), name=st.sampled_from([one.name for one in CAPABILITIES]),
)  # fmt: skip
def test_an_open_gate_means_that_every_fact_was_known_and_good(
    synced: bool, absent: bool, silent: float | None, paused: bool, forbidden: bool, on: bool, leads: bool, dry: bool,
    state: State | None, name: str,
) -> None:  # fmt: skip
    watch: Watching[Pause] = Watching(absent=absent, silent=silent, forbidden=forbidden)
    watch.store.synced = synced
    if paused and not absent:
        pause(watch)
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
            assert not forbidden
            assert absent or not paused
        assert not BY_NAME[name].incumbents or state is State.ABSENT
