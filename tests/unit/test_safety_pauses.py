"""Reading pauses: writes are allowed only where it is known that there is none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import msgspec
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from hostler.apis.fleet import NAME, PAUSES_SHOWN, SHOWN_REASON_LIMIT, Fleet, FleetStatus, Pause
from hostler.host.conditions import Condition, Status
from hostler.instant import iso
from hostler.kube.kinds import PAUSE
from hostler.kube.metrics import Metrics
from hostler.kube.records import Metadata
from hostler.kube.watch import FRESH_SECONDS, Watch
from hostler.safety.guard import Guard, read_stop
from hostler.safety.pause_state import (
    PAUSED,
    PauseReason,
    PauseState,
    observed_pauses,
    paused_sentence,
    seen_pauses,
)
from hostler.safety.pauses import PauseEnd, read_pauses
from tests.unit.answering import answering
from tests.unit.watching import Watching, fleets, pause, pauses, resume, versions

# -- from what the watch says


@pytest.mark.parametrize(
    ("facts", "reason", "words"),
    [
        ({"silent": None, "problem": "no route"}, PauseReason.NOT_READ, "paused: no route."),
        ({"silent": 0.0, "synced": False}, PauseReason.NOT_READ, "Cannot tell yet whether Hostler is paused."),
        ({"silent": FRESH_SECONDS + 1}, PauseReason.SILENT, "said nothing of it for 151 s"),
        ({"forbidden": True, "problem": "may not"}, PauseReason.FORBIDDEN, "`list` and `watch` on pauses.hostler.dev"),
        ({"forbidden": True, "silent": None, "synced": False}, PauseReason.FORBIDDEN, "are needed to read it"),
        ({"absent": True}, PauseReason.NO_KIND, "does not have the kind Pause"),
        ({"absent": True, "silent": FRESH_SECONDS + 1}, PauseReason.SILENT, "Cannot tell whether"),
        ({}, PauseReason.NO_PAUSE, "Nothing is paused."),
    ],
)
def test_every_way_to_read_no_pause(facts: dict[str, object], reason: PauseReason, words: str) -> None:
    watch: Watching[Pause] = Watching(**{name: value for name, value in facts.items() if name != "synced"})  # type: ignore[arg-type]
    watch.store.synced = facts.get("synced", True) is True
    state = read_pauses(watch)
    assert state.reason is reason
    assert words in state.why
    assert state.stopped == (reason not in (PauseReason.NO_PAUSE, PauseReason.NO_KIND))
    assert state.known == (not state.stopped)


def test_a_pause_counts_before_its_kind_is_known_to_be_there() -> None:
    """The CRD is new: its first Pause has arrived, and the listing is not complete yet."""
    watch = pauses()
    watch.absent = True
    pause(watch)
    assert read_pauses(watch).reason is PauseReason.PAUSE_EXISTS


def test_a_pause_says_who_it_claims_to_be_and_why() -> None:
    watch = pauses()
    pause(watch, "ada-1", by="ada", why="fire")
    state = read_pauses(watch)
    assert (state.reason, state.known, state.stopped) == (PauseReason.PAUSE_EXISTS, True, True)
    assert state.why.startswith("Hostler is paused by Pause ada-1 (claims to be ada): fire. `hostler resume`")
    pause(watch, "bob")
    assert read_pauses(watch).why.startswith(
        "Hostler is paused by 2 pauses: bob: no reason given; ada-1 (claims to be ada): fire."
    )
    resume(watch, "ada-1")
    assert "Pause bob: no reason given." in read_pauses(watch).why
    resume(watch, "bob")
    assert not read_pauses(watch).stopped


def test_a_pause_in_deletion_pauses_until_it_is_gone() -> None:
    watch = pauses()
    pause(watch, going=True)
    assert "p, which is being deleted: no reason given" in read_pauses(watch).why
    resume(watch)
    assert not read_pauses(watch).stopped


def test_what_cannot_be_decoded_is_a_pause() -> None:
    watch = pauses()
    watch.store.unread("odd", next(versions), "Expected `str`, got `int`")
    state = read_pauses(watch)
    assert (state.stopped, state.reason) == (True, PauseReason.PAUSE_EXISTS)
    assert "odd: it cannot be decoded (Expected `str`, got `int`)" in state.why
    watch.store.forget("odd", next(versions))
    assert not read_pauses(watch).stopped


def test_a_thousand_pauses_make_one_bounded_sentence_and_list() -> None:
    watch = pauses()
    for number in range(1000):
        pause(watch, f"p{number}", by="b" * 253, why="w" * 1024)
    seen = read_pauses(watch).pauses
    assert len(paused_sentence(seen)) < 4096
    assert "; and 995 more." in paused_sentence(seen)
    listed = observed_pauses(seen)
    assert len(listed) == PAUSES_SHOWN
    assert listed[0].name == "p999", "the newest first: who pauses now finds theirs"
    assert {len(one.why) for one in listed} == {SHOWN_REASON_LIMIT}


def test_writes_also_need_the_owner_s_decisions() -> None:
    """A Fleet that cannot be read may have a lower ceiling than the default: that is unknown, and not unset."""
    fleet = fleets()
    assert read_stop(pauses(), fleet).reason is PauseReason.NO_PAUSE
    fleet.store.unread(NAME, next(versions), "odd")
    state = read_stop(pauses(), fleet)
    assert (state.reason, state.known) == (PauseReason.FLEET_UNKNOWN, False)
    assert state.why == "The Fleet cannot be decoded (odd), so nothing is written."
    for unknown in ({"silent": None}, {"silent": FRESH_SECONDS + 1}):
        assert read_stop(pauses(), Watching(**unknown)).reason is PauseReason.FLEET_UNKNOWN
    paused = pauses()
    pause(paused)
    assert read_stop(paused, Watching(silent=None)).reason is PauseReason.PAUSE_EXISTS
    absent: Watching[Fleet] = Watching(absent=True)
    absent.sync()
    assert read_stop(pauses(), absent).reason is PauseReason.NO_PAUSE


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["create", "going", "odd", "delete", "deny", "grant", "silence", "hear"]), st.integers(0, 3)
    ),
    max_size=20,
)


@given(EVENTS, st.lists(st.booleans(), min_size=20, max_size=20))
def test_no_history_lets_a_replica_write_while_a_pause_exists(events: list[tuple[str, int]], late: list[bool]) -> None:
    """Two replicas hear the same history, one later: each writes only when, by what it knows, no Pause is there."""
    replicas = [(pauses(), set[str]()) for _ in range(2)]
    held_back: list[tuple[str, int]] = []
    for (event, number), is_late in zip(events, late, strict=False):
        heard = {0: [(event, number)], 1: [*held_back, (event, number)]}
        held_back = heard[1] if is_late else []
        for replica, (watch, there) in enumerate(replicas):
            if replica == 1 and is_late:
                continue
            for what, which in heard[replica]:
                _happen(watch, there, what, f"p{which}")
            state = read_pauses(watch)
            blind = watch.forbidden or watch.silent is None or watch.silent > FRESH_SECONDS
            assert state.stopped == (blind or bool(there))
            assert state.known == (not blind)


def _happen(watch: Watching[Pause], there: set[str], event: str, name: str) -> None:
    match event:
        case "create" | "going":
            pause(watch, name, going=event == "going")
            there.add(name)
        case "odd":
            watch.store.unread(name, next(versions), "odd")
            there.add(name)
        case "delete":
            watch.store.forget(name, next(versions))
            there.discard(name)
        case "deny" | "grant":
            watch.forbidden = event == "deny"
        case "silence" | "hear":
            watch.silent = FRESH_SECONDS + 1 if event == "silence" else 1.0


# -- with the real watch, on an API server that says what the test wants


@dataclass
class ApiServer:
    """Pauses as an API server has them: what exists, whether the kind is served, who may read it."""

    served: bool = True
    allowed: bool = True
    items: dict[str, dict[str, object]] = field(default_factory=dict)
    version: int = 10
    lines: list[bytes] = field(default_factory=list)  # what every watch is told
    cut: asyncio.Event = field(default_factory=asyncio.Event)

    def create(self, name: str, spec: object) -> None:
        self.version += 1
        metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": str(self.version)}
        self.items[name] = {"metadata": metadata, "spec": spec}
        self._tell("ADDED", self.items[name])

    def delete(self, name: str) -> None:
        self.version += 1
        gone = self.items.pop(name)
        assert isinstance(gone["metadata"], dict)
        gone["metadata"]["resourceVersion"] = str(self.version)
        self._tell("DELETED", gone)

    def refuse(self) -> None:
        """The right is taken away, and every watch that runs is ended."""
        self.allowed = False
        self.cut.set()

    def _tell(self, event: str, item: object) -> None:
        self.lines.append(msgspec.json.encode({"type": event, "object": item}) + b"\n")

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/apis":
            return web.json_response({"kind": "APIGroupList", "apiVersion": "v1", "groups": []})
        if not self.allowed:
            return _refusal(403, "Forbidden", 'User "op" cannot watch resource "pauses"')
        if not self.served:
            return _refusal(404, "NotFound", "the server could not find the requested resource")
        response = web.StreamResponse()
        response.force_close()
        await response.prepare(request)
        told = len(self.lines)
        for item in self.items.values():
            await response.write(msgspec.json.encode({"type": "ADDED", "object": item}) + b"\n")
        if "sendInitialEvents" in request.query:
            end = {"resourceVersion": str(self.version), "annotations": {"k8s.io/initial-events-end": "true"}}
            bookmark = {"type": "BOOKMARK", "object": {"metadata": end}}
            await response.write(msgspec.json.encode(bookmark) + b"\n")
        while not self.cut.is_set():
            for line in self.lines[told:]:
                await response.write(line)
            told = len(self.lines)
            await asyncio.sleep(0.01)
        return response


def _refusal(code: int, reason: str, message: str) -> web.Response:
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
    return web.json_response({**body, "message": message}, status=code)


@asynccontextmanager
async def following(server: ApiServer, *, replicas: int = 1) -> AsyncIterator[list[Watch[Pause]]]:
    async with answering(server.answer) as client:
        watches = [Watch(client, PAUSE, Pause, metrics=Metrics(), absent=0.05) for _ in range(replicas)]
        tasks = [asyncio.create_task(watch.run()) for watch in watches]
        try:
            yield watches
        finally:
            server.cut.set()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def reaches(watch: Watch[Pause], reason: PauseReason) -> PauseState:
    async with asyncio.timeout(30):
        while (state := read_pauses(watch)).reason is not reason:
            await asyncio.sleep(0.01)
    return state


def test_a_missing_crd_is_known_and_an_installed_one_is_followed() -> None:
    async def story() -> None:
        server = ApiServer(served=False)
        async with following(server) as (watch,):
            await reaches(watch, PauseReason.NO_KIND)
            server.served = True
            server.create("p", {"why": "fire"})
            await reaches(watch, PauseReason.PAUSE_EXISTS)
            server.delete("p")
            await reaches(watch, PauseReason.NO_PAUSE)

    asyncio.run(story())


def test_without_the_right_it_is_unknown_at_once_and_named() -> None:
    async def story() -> None:
        server = ApiServer(allowed=False)
        async with following(server) as (watch,):
            state = await reaches(watch, PauseReason.FORBIDDEN)
            assert 'User "op" cannot watch resource "pauses"' in state.why
        server = ApiServer()
        async with following(server) as (watch,):
            await reaches(watch, PauseReason.NO_PAUSE)
            server.refuse()  # not after two and a half minutes: a pause could be missed meanwhile
            await reaches(watch, PauseReason.FORBIDDEN)

    asyncio.run(story())


def test_undecodable_and_deleted_in_between_on_two_replicas() -> None:
    async def story() -> None:
        server = ApiServer()
        server.create("odd", {"why": 3})
        async with following(server, replicas=2) as watches:
            for watch in watches:
                state = await reaches(watch, PauseReason.PAUSE_EXISTS)
                assert "odd: it cannot be decoded" in state.why
            server.create("p", {})
            server.delete("odd")
            server.delete("p")
            for watch in watches:
                await reaches(watch, PauseReason.NO_PAUSE)
            server.create("q", "not even an object")
            for watch in watches:
                await reaches(watch, PauseReason.PAUSE_EXISTS)

    asyncio.run(story())


# -- when a pause ended


def ending(watch: Watching[Pause], fleet: Watching[Fleet]) -> PauseEnd:
    return PauseEnd(Guard(watch, fleet, leader=lambda: None, choices=()).pause, fleet.store)


def said(fleet: Watching[Fleet], status: Status, at: float) -> None:
    """The Fleet with its status, as some operator wrote it."""
    one = Condition(type=PAUSED, status=status, reason="r", last_transition_time=iso(at))
    metadata = Metadata(name=NAME, resource_version=str(next(versions)))
    fleet.store.put(Fleet(metadata=metadata, status=FleetStatus(conditions=(one,))))


def test_without_a_pause_none_has_ended_and_a_start_is_none() -> None:
    watch: Watching[Pause] = Watching(silent=None)
    end = ending(watch, fleets())
    assert end.ended(5.0) == 5.0, "nothing is known yet, so nothing may be late"
    watch.silent = 1.0
    watch.sync()
    assert end.ended(6.0) == 0.0
    watch.absent = True
    assert end.ended(7.0) == 0.0


def test_a_pause_that_is_seen_ends_when_it_is_seen_to() -> None:
    watch = pauses()
    end = ending(watch, fleets())
    assert end.ended(10.0) == 0.0
    pause(watch)
    assert [end.ended(20.0), end.ended(30.0)] == [20.0, 30.0]
    resume(watch)
    assert [end.ended(40.0), end.ended(90.0)] == [40.0, 40.0]


@pytest.mark.parametrize("blind", ["pauses", "fleet"])
def test_losing_sight_is_a_pause_too(blind: str) -> None:
    watch, fleet = pauses(), fleets()
    lost: Callable[[float], None] = lambda age: setattr(watch if blind == "pauses" else fleet, "silent", age)  # noqa: E731
    end = ending(watch, fleet)
    end.ended(10.0)
    lost(FRESH_SECONDS + 1)
    assert end.ended(400.0) == 400.0
    lost(0.0)
    assert [end.ended(500.0), end.ended(600.0)] == [500.0, 500.0]


def test_after_a_restart_the_status_says_when_it_ended() -> None:
    fleet = fleets()
    said(fleet, Status.FALSE, 1000.0)
    assert ending(pauses(), fleet).ended(5000.0) == 1000.0


@pytest.mark.parametrize("status", [Status.TRUE, Status.UNKNOWN])
def test_released_while_nobody_was_there_it_ends_when_somebody_is(status: Status) -> None:
    """The status is behind: it still says paused, as one that a version with `spec.paused` left behind may."""
    fleet = fleets()
    said(fleet, status, 1000.0)
    end = ending(pauses(), fleet)
    assert [end.ended(5000.0), end.ended(6000.0)] == [5000.0, 5000.0]
    said(fleet, Status.FALSE, 5001.0)
    assert end.ended(7000.0) == 5001.0


def test_a_clock_that_is_ahead_does_not_make_it_end_later_than_now() -> None:
    fleet = fleets()
    said(fleet, Status.FALSE, 9000.0)
    assert ending(pauses(), fleet).ended(5000.0) == 5000.0


def test_pauses_are_listed_newest_first() -> None:
    watch = pauses()
    made = [pause(watch, name) for name in ("b", "a", "c")]
    assert [one.name for one in seen_pauses(made, {})] == ["c", "a", "b"]
