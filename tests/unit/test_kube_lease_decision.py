"""What a candidate decides about the lease, and the promise: never two who act at once, whatever happens in between."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hostler.errors import Complaint
from hostler.kube.election import (
    RELEASED_SECONDS,
    Action,
    Create,
    Done,
    Look,
    Release,
    Renew,
    Take,
    Timing,
    View,
    Wait,
    Write,
    decide_lease,
    let_go,
    looked,
    unsure,
    wrote,
)
from hostler.kube.records import Lease, LeaseSpec, Metadata
from tests.sizes import examples

ME, OTHER = "me_1", "other_1"
TIMING = Timing(duration=15, renew_deadline=10, retry=2)


def lease(
    holder: str | None,
    *,
    version: str = "7",
    seconds: int | None = 15,
    renewed: str | None = "t",
    transitions: int | None = 3,
) -> Lease:
    spec = LeaseSpec(
        holder_identity=holder, lease_duration_seconds=seconds, renew_time=renewed, lease_transitions=transitions
    )
    return Lease(metadata=Metadata(name="l", uid="u", resource_version=version), spec=spec)


def view(seen: Lease | None, *, since: float = 100.0, **fields: object) -> View:
    return replace(looked(View(TIMING), seen, ME, since), **fields)  # type: ignore[arg-type]


NOT_LOOKED = View(TIMING)

TABLE: list[tuple[str, View, float, type[Action], str]] = [
    ("nothing known yet", NOT_LOOKED, 100, Look, "may have changed"),
    ("our last write's fate is unknown", unsure(view(lease(ME))), 100, Look, "may have changed"),
    ("no lease", view(None), 100, Create, "no lease"),
    ("ours", view(lease(ME)), 100, Renew, "ours"),
    ("another's, seen just now", view(lease(OTHER)), 100, Wait, "other_1 may still be acting"),
    ("another's, a moment before its end", view(lease(OTHER)), 114.9, Wait, "other_1 may still be acting"),
    ("another's, unchanged for its whole duration", view(lease(OTHER)), 115, Take, "not renewed it for 15 s"),
    ("another's, with a longer duration than ours", view(lease(OTHER, seconds=60)), 130, Wait, "may still be acting"),
    ("another's, its duration edited away", view(lease(OTHER, seconds=None)), 114, Wait, "may still be acting"),
    ("another's, its duration edited down", view(lease(OTHER, seconds=2)), 110, Wait, "may still be acting"),
    ("another's, without transitions", view(lease(OTHER, transitions=None)), 115, Take, "not renewed"),
    ("released", view(lease("", seconds=RELEASED_SECONDS)), 100, Take, "released"),
    ("written blank by an installer", view(lease(None, seconds=None, renewed=None)), 100, Take, "never held"),
    ("its holder rubbed out by hand", view(lease("")), 100, Wait, "rubbed out may still be acting"),
    ("its holder rubbed out long ago", view(lease("")), 115, Take, "rubbed out has not renewed"),
    ("handed over, free", view(lease("", seconds=1), refrain_until=130), 120, Wait, "handed over"),
    ("handed over, nobody took it", view(lease("", seconds=1), refrain_until=130), 130, Take, "released"),
    ("leaving, something under way", view(lease(ME), leaving=True, busy=True), 100, Renew, "finishing"),
    ("leaving, idle", view(lease(ME), leaving=True), 120, Release, "nothing is under way"),
    ("leaving, created a moment ago", view(lease(ME), leaving=True), 100, Done, "run out"),
    ("leaving, not ours", view(lease(OTHER), leaving=True), 100, Done, "not ours"),
    ("leaving, deleted", view(None, leaving=True, busy=True), 100, Done, "not ours"),
]  # fmt: skip


@pytest.mark.parametrize(("view_", "now", "action", "why"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_decisions(view_: View, now: float, action: type[Action], why: str) -> None:
    decided = decide_lease(view_, ME, now)
    assert isinstance(decided, action)
    assert why in decided.why


def test_a_take_carries_the_version_seen_and_the_next_transition() -> None:
    assert decide_lease(view(lease(OTHER, version="42", transitions=8)), ME, 200) == Take(
        "42", 9, "other_1 has not renewed it for 100 s"
    )


def test_a_recreated_lease_goes_on_counting() -> None:
    gone = looked(view(lease(OTHER, transitions=8)), None, ME, 101)
    decided = decide_lease(gone, ME, 101)
    assert isinstance(decided, Create)
    assert decided.transitions == 9


def test_the_right_to_act_counts_from_before_the_request_left() -> None:
    taken = wrote(view(lease(OTHER)), Take("7", 4, ""), lease(ME, version="8"), sent=120, now=124)
    assert taken.held(129.9)
    assert not taken.held(130)


def test_who_creates_acts_only_after_a_whole_duration() -> None:
    made = wrote(view(None), Create(0, ""), lease(ME, version="8"), sent=120, now=121)
    assert not made.held(122)
    kept = wrote(made, Renew("8", ""), lease(ME, version="9"), sent=134, now=134.5)
    assert not kept.held(135.9)
    assert kept.held(136)


def test_a_lost_answer_to_a_renewal_costs_nothing() -> None:
    held = wrote(view(lease(OTHER)), Take("7", 4, ""), lease(ME, version="8"), sent=120, now=120)
    again = looked(unsure(held), lease(ME, version="9"), ME, 123)
    assert again.held(129)
    assert isinstance(decide_lease(again, ME, 123), Renew)


def test_a_lost_answer_to_a_create_does_not_shorten_the_wait() -> None:
    found = looked(unsure(view(None)), lease(ME, version="8"), ME, 123)
    renewed = wrote(found, Renew("8", ""), lease(ME, version="9"), sent=124, now=124)
    assert not renewed.held(125)
    assert renewed.acts_from == 138


def test_another_name_in_the_lease_ends_the_right_at_once() -> None:
    held = wrote(view(lease(OTHER)), Take("7", 4, ""), lease(ME, version="8"), sent=120, now=120)
    assert not looked(held, lease(OTHER, version="9"), ME, 121).held(121)
    assert not looked(held, None, ME, 121).held(121)


@pytest.mark.parametrize(
    ("timing", "word"),
    [
        (Timing(10, 10, 2), "lease duration"),
        (Timing(15, 2, 2), "renew deadline"),
        (Timing(15, 0, 2), "more than 0"),
        (Timing(15, 10, 0), "more than 0"),
    ],
)
def test_timings_that_do_not_fit_are_refused(timing: Timing, word: str) -> None:
    complaint = timing.complaint()
    assert isinstance(complaint, Complaint)
    assert word in complaint.sentence


def test_the_defaults_fit() -> None:
    assert Timing().complaint() is None


# -- the promise, in a small world with one server, several clocks, and everything that goes wrong


@dataclass
class Server:
    """The lease as the API server keeps it: versions grow, and a write with an old version is refused."""

    lease: Lease | None = None
    version: int = 0

    def apply(self, action: Write, who: str) -> Lease | None:
        """None: refused (409, 404)."""
        if isinstance(action, Create):
            if self.lease is not None:
                return None
            return self._store(f"u{self.version}", who, TIMING.duration, action.transitions)
        if self.lease is None or self.lease.metadata.resource_version != action.version:
            return None
        uid, transitions = self.lease.metadata.uid, self.lease.spec.lease_transitions or 0
        if isinstance(action, Release):
            return self._store(uid, "", RELEASED_SECONDS, transitions)
        return self._store(uid, who, TIMING.duration, action.transitions if isinstance(action, Take) else transitions)

    def _store(self, uid: str, holder: str, seconds: int | None, transitions: int) -> Lease:
        self.version += 1
        spec = LeaseSpec(
            holder_identity=holder, lease_duration_seconds=seconds, renew_time="t", lease_transitions=transitions
        )
        self.lease = Lease(metadata=Metadata(uid=uid, resource_version=str(self.version)), spec=spec)
        return self.lease

    def meddle(self, how: str) -> None:
        """What people do to leases by hand."""
        if self.lease is None:
            return
        spec = self.lease.spec
        match how:
            case "delete":
                self.lease = None
            case "rub out":
                self._store(self.lease.metadata.uid, "", spec.lease_duration_seconds, spec.lease_transitions or 0)
            case "shorten":
                # Not to the one second that means released.
                self._store(self.lease.metadata.uid, spec.holder_identity or "", 2, spec.lease_transitions or 0)


@dataclass
class Candidate:
    name: str
    offset: float
    pace: float  # its clock gains or loses
    view: View = field(default_factory=lambda: View(TIMING))
    stopped_until: float = 0.0
    request: int = 0  # the number of the request whose answer is awaited

    def clock(self, t: float) -> float:
        return self.offset + t * self.pace

    def held(self, t: float) -> bool:
        return self.view.held(self.clock(t))


class World:
    """Runs candidates by `decide_lease` alone; requests are delayed, lost, or answered after nobody waits any more."""

    def __init__(self, chance: random.Random, candidates: int) -> None:
        self.chance = chance
        self.server = Server()
        self.candidates = [
            Candidate(f"c{i}", chance.uniform(-1e6, 1e6), chance.uniform(0.97, 1.03)) for i in range(candidates)
        ]
        self.todo: list[tuple[float, int, Callable[[float], None]]] = []
        self.serial = 0
        self.led: set[str] = set()
        self.tokens: dict[str, list[int]] = {}  # by the lease's uid: one that is deleted begins anew

    def at(self, t: float, do: Callable[[float], None]) -> None:
        self.serial += 1
        heapq.heappush(self.todo, (t, self.serial, do))

    def run(self, until: float) -> None:
        for one in self.candidates:
            self.at(self.chance.uniform(0, 3), lambda t, one=one: self.step(one, t))  # type: ignore[misc]
        moment = 0.0
        while moment < until:
            moment += 0.25
            self.at(moment, self.look_on)
        while self.todo:
            t, _, do = heapq.heappop(self.todo)
            if t > until:
                return
            do(t)
            self.look_on(t)

    def look_on(self, t: float) -> None:
        acting = [one.name for one in self.candidates if one.held(t)]
        assert len(acting) <= 1, f"at {t:.2f} both {acting} may act"
        self.led.update(acting)

    def step(self, one: Candidate, t: float) -> None:
        if t < one.stopped_until:  # a stopped process does nothing; its clock goes on
            self.at(one.stopped_until, lambda t: self.step(one, t))
            return
        self.misfortune(one, t)
        action = decide_lease(one.view, one.name, one.clock(t))
        match action:
            case Wait() | Done():
                one.view = unsure(one.view)
                if isinstance(action, Done):
                    one.view = replace(one.view, leaving=False, refrain_until=one.clock(t) + 5)
                self.at(t + TIMING.retry, lambda t: self.step(one, t))
            case _:
                self.send(one, action, t)

    def send(self, one: Candidate, action: Look | Write, t: float) -> None:
        if isinstance(action, Release):
            one.view = let_go(one.view)
        one.request += 1
        number, sent = one.request, one.clock(t)
        there, back = self.delay(), self.delay()
        if there is not None:
            self.at(t + there, lambda t: self.arrive(one, action, number, sent, t, back))
        self.at(t + TIMING.renew_deadline / 2, lambda t: self.give_up(one, number, t))

    def arrive(
        self, one: Candidate, action: Look | Write, number: int, sent: float, t: float, back: float | None
    ) -> None:
        answer = self.server.lease if isinstance(action, Look) else self.server.apply(action, one.name)
        if isinstance(action, Create | Take) and answer is not None:
            self.tokens.setdefault(answer.metadata.uid, []).append(action.transitions)
        if back is not None:
            self.at(t + back, lambda t: self.answer(one, action, answer, number, sent, t))

    def answer(
        self, one: Candidate, action: Look | Write, answer: Lease | None, number: int, sent: float, t: float
    ) -> None:
        if t < one.stopped_until:  # it lies in the socket until the process goes on
            self.at(one.stopped_until, lambda t: self.answer(one, action, answer, number, sent, t))
            return
        if number != one.request:
            return  # nobody waits any more
        one.request += 1
        if isinstance(action, Look):
            one.view = looked(one.view, answer, one.name, one.clock(t))
            self.step(one, t)
            return
        one.view = unsure(one.view) if answer is None else wrote(one.view, action, answer, sent, one.clock(t))
        if isinstance(action, Release) and answer is not None:
            one.view = replace(one.view, leaving=False, refrain_until=one.clock(t) + 10)
        self.at(t + TIMING.retry * self.chance.uniform(0.8, 1.2), lambda t: self.step(one, t))

    def give_up(self, one: Candidate, number: int, t: float) -> None:
        if t < one.stopped_until:  # when it goes on, time-out and answer are both there; either may come first
            self.at(one.stopped_until + self.chance.choice([0, 0.01]), lambda t: self.give_up(one, number, t))
            return
        if number == one.request:
            one.request += 1
            one.view = unsure(one.view)
            self.step(one, t)

    # -- what goes wrong

    def delay(self) -> float | None:
        fate = self.chance.random()
        if fate < 0.06:
            return None
        return self.chance.uniform(1, 30) if fate < 0.14 else self.chance.uniform(0, 0.2)

    def misfortune(self, one: Candidate, t: float) -> None:
        fate = self.chance.random()
        if fate < 0.03:
            one.stopped_until = t + self.chance.uniform(0.5, 40)
        elif fate < 0.05:
            self.server.meddle(self.chance.choice(["delete", "rub out", "shorten"]))
        elif fate < 0.07:
            one.view = replace(one.view, leaving=True, busy=self.chance.random() < 0.5)
        elif one.view.busy and fate < 0.4:
            one.view = replace(one.view, busy=False)


@settings(max_examples=examples(100), deadline=None)
@given(seed=st.integers(0, 2**32), candidates=st.integers(2, 3))
def test_never_two_who_act_at_once(seed: int, candidates: int) -> None:
    World(random.Random(seed), candidates).run(until=400)


@pytest.mark.full
@settings(max_examples=20_000, deadline=None)
@given(seed=st.integers(0, 2**64), candidates=st.integers(2, 4))
def test_never_two_who_act_at_once_exhaustively(seed: int, candidates: int) -> None:
    World(random.Random(seed), candidates).run(until=600)


def test_in_that_world_everybody_gets_to_lead_and_tokens_grow() -> None:
    """Else the promise would be easy to keep."""
    led: set[str] = set()
    for seed in range(20):
        world = World(random.Random(seed), 3)
        world.run(until=400)
        led |= world.led
        for tokens in world.tokens.values():
            assert tokens == sorted(set(tokens))
    assert led == {"c0", "c1", "c2"}
