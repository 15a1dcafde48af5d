"""Events: aggregated, bounded, never in the way. The server here is a small real HTTP server that can break."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from hostler.kube.budget import WriteBudget
from hostler.kube.client import Client
from hostler.kube.events import Bounds, Recorder, cut
from hostler.kube.kinds import NODE, POD
from hostler.kube.metrics import Metrics
from hostler.kube.records import Metadata
from hostler.kube.writer import Writer
from tests.unit.kube_connection import Here

NODE_1 = Metadata(name="node-1", uid="u1")
POD_1 = Metadata(name="pod-1", namespace="team", uid="u2")


class World:
    """A recorder, the server it writes to, and a clock that both tests and recorder see."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.got: list[tuple[str, str, dict[str, Any]]] = []
        self.answer: tuple[int, dict[str, Any]] | None = None  # what it answers instead of success
        self.answer_to: tuple[str, ...] = ("POST", "PATCH")  # and to which
        self.refuse: str | None = None
        self.hold: asyncio.Event | None = None  # it does not answer before that
        self.metrics = Metrics()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if self.answer is not None and request.method in self.answer_to:
            status, refusal = self.answer
            return web.json_response({"kind": "Status", **refusal}, status=status)
        self.got.append((request.method, request.path, body))
        if self.hold is not None:
            await self.hold.wait()
        return web.json_response({"metadata": {"name": "x"}}, status=201)

    def dropped(self, why: str) -> float:
        return self.metrics.registry.get_sample_value("hostler_events_dropped_total", {"why": why}) or 0.0

    def later(self, recorder: Recorder, seconds: float) -> None:
        """Time passes; the recorder, which sleeps in real time, is woken to see it."""
        self.now += seconds
        recorder._wake.set()

    async def written(self, count: int) -> None:
        """So many have come; and the recorder has heard so, unless it is held: until then no time may pass for it."""
        held = self.hold is not None and not self.hold.is_set()
        async with asyncio.timeout(60):
            while len(self.got) < count or not (held or self.recorded() >= count):
                await asyncio.sleep(0.01)

    def recorded(self) -> float:
        read = self.metrics.registry.get_sample_value
        return sum(read("hostler_events_recorded_total", {"how": how}) or 0.0 for how in ("new", "repeat"))

    @asynccontextmanager
    async def recorder(self, *, dry_run: bool = False, **bounds: Any) -> AsyncIterator[Recorder]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        async with Client(Here(f"http://127.0.0.1:{runner.addresses[0][1]}"), timeout=5) as client:
            writer = Writer(
                client,
                "events",
                gate=lambda: self.refuse,
                budget=WriteBudget(10_000),
                dry_run=dry_run,
                metrics=self.metrics,
            )
            recorder = Recorder(
                writer,
                "me",
                self.metrics,
                bounds=Bounds(**bounds),
                clock=lambda: self.now,
                wall=lambda: 1.7e9 + self.now,
            )
            try:
                yield recorder
            finally:
                await recorder.stop(within=1)
        await runner.cleanup()


def play(story: Callable[[World], Coroutine[Any, Any, None]]) -> World:
    world = World()
    asyncio.run(story(world))
    return world


def test_a_first_event_carries_all_the_api_wants() -> None:
    async def story(world: World) -> None:
        async with world.recorder() as recorder:
            recorder.event(NODE, NODE_1, "Warning", "DrainBlocked", "Drain", "a PDB says no")
            await asyncio.gather(recorder.run(), recorder.stop())

    (method, path, body), *rest = play(story).got
    assert not rest
    assert (method, path) == ("POST", "/apis/events.k8s.io/v1/namespaces/default/events")
    assert body["metadata"]["name"].startswith("node-1.")
    del body["metadata"]
    assert body == {
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "eventTime": "2023-11-14T22:30:00.000000Z",
        "reportingController": "hostler.dev/operator", "reportingInstance": "me", "type": "Warning",
        "reason": "DrainBlocked", "action": "Drain", "note": "a PDB says no",
        "regarding": {"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": "u1"},
    }  # fmt: skip


def test_an_event_about_a_namespaced_object_lives_beside_it() -> None:
    async def story(world: World) -> None:
        async with world.recorder() as recorder:
            recorder.event(POD, POD_1, "Normal", "Evicted", "Evict", "gone")
            await recorder.stop()

    (_, path, body), *_ = play(story).got
    assert path == "/apis/events.k8s.io/v1/namespaces/team/events"
    assert body["regarding"]["namespace"] == "team"


def test_the_same_again_is_counted_at_growing_intervals() -> None:
    async def story(world: World) -> None:
        async with world.recorder() as recorder:

            def again(times: int = 1) -> None:
                for _ in range(times):
                    recorder.event(NODE, NODE_1, "Normal", "Waiting", "Drain", "for pods")

            task = asyncio.create_task(recorder.run())
            again()
            await world.written(1)
            again(4)
            await asyncio.sleep(0.2)
            assert len(world.got) == 1, "a repeat waits a little: there may be more of them"
            world.later(recorder, 6)
            await world.written(2)
            again()
            world.later(recorder, 6)
            await asyncio.sleep(0.2)
            assert len(world.got) == 2, "and then longer"
            again()
            world.later(recorder, 6)
            await world.written(3)
            await recorder.stop()
            await task

    _, second, third = play(story).got
    assert second[0] == "PATCH"
    assert second[2] == {"series": {"count": 5, "lastObservedTime": "2023-11-14T22:30:00.000000Z"}}
    assert third[2]["series"]["count"] == 7


def test_repeats_before_the_first_write_go_with_it() -> None:
    async def story(world: World) -> None:
        async with world.recorder() as recorder:
            for _ in range(50):
                recorder.event(NODE, NODE_1, "Normal", "Waiting", "Drain", "for pods")
            await recorder.stop()

    (_, _, body), *rest = play(story).got
    assert not rest
    assert body["series"]["count"] == 50


def test_a_new_event_is_not_lost_while_the_old_one_is_being_written() -> None:
    """The answer to the first write comes after the silence that makes it another event."""

    async def story(world: World) -> None:
        world.hold = asyncio.Event()
        async with world.recorder() as recorder:
            task = asyncio.create_task(recorder.run())
            recorder.event(NODE, NODE_1, "Normal", "Waiting", "Drain", "for pods")
            await world.written(1)
            world.now += 3600
            recorder.event(NODE, NODE_1, "Normal", "Waiting", "Drain", "for pods")
            world.hold.set()
            await world.written(2)
            await recorder.stop()
            await task

    assert [method for method, _, _ in play(story).got] == ["POST", "POST"]


def test_after_a_long_silence_it_is_a_new_event() -> None:
    async def story(world: World) -> None:
        async with world.recorder() as recorder:
            task = asyncio.create_task(recorder.run())
            recorder.event(NODE, NODE_1, "Normal", "Waiting", "Drain", "for pods")
            await world.written(1)
            world.now += 3600
            recorder.event(NODE, NODE_1, "Normal", "Waiting", "Drain", "for pods")
            await world.written(2)
            await recorder.stop()
            await task

    assert [method for method, _, _ in play(story).got] == ["POST", "POST"]


def test_one_noisy_object_does_not_drown_the_others() -> None:
    async def story(world: World) -> None:
        async with world.recorder(per_object=3) as recorder:
            for number in range(100):
                recorder.event(NODE, NODE_1, "Normal", "Noise", "Shout", f"{number}")
            recorder.event(POD, POD_1, "Normal", "Word", "Speak", "quietly")
            await recorder.stop()

    world = play(story)
    assert [body["note"] for _, _, body in world.got] == ["0", "1", "2", "quietly"]
    assert world.dropped("rate") == 97


def test_its_allowance_comes_back_with_time() -> None:
    async def story(world: World) -> None:
        async with world.recorder(per_object=1, refill=30.0) as recorder:
            for number in range(4):
                recorder.event(NODE, NODE_1, "Normal", "Noise", "Shout", f"{number}")
                world.now += 15
            await recorder.stop()

    assert [body["note"] for _, _, body in play(story).got] == ["0", "2"]


def test_an_outage_costs_bounded_memory_and_the_newest_survive() -> None:
    async def story(world: World) -> None:
        world.answer = (503, {"message": "down"})
        async with world.recorder(waiting=10, known=50) as recorder:
            task = asyncio.create_task(recorder.run())
            for number in range(2000):
                recorder.event(NODE, Metadata(name=f"n{number}", uid=f"{number}"), "Normal", "R", "A", "note")
                if number % 100 == 0:
                    await asyncio.sleep(0.001)
            assert len(recorder._waiting) <= 10
            assert len(recorder._known) <= 50
            assert len(recorder._allowance) <= 50
            world.answer = None
            world.now += 60
            await recorder.stop()
            await task

    world = play(story)
    assert {body["regarding"]["name"] for _, _, body in world.got} >= {f"n{n}" for n in range(1991, 2000)}
    assert world.dropped("full") >= 1980


@pytest.mark.parametrize(
    ("status", "why"),
    [(403, "refused"), (422, "refused"), (404, "refused")],
)
def test_what_the_server_will_never_take_is_dropped(status: int, why: str) -> None:
    async def story(world: World) -> None:
        world.answer = (status, {"reason": "Because", "message": "no"})
        async with world.recorder() as recorder:
            recorder.event(NODE, NODE_1, "Normal", "R", "A", "note")
            await recorder.stop()

    world = play(story)
    assert world.dropped(why) == 1
    labels = {"capability": "events"}
    assert world.metrics.registry.get_sample_value("hostler_writes_forbidden_total", labels) == (status == 403)


def test_one_whose_creation_was_not_answered_is_not_made_twice() -> None:
    async def story(world: World) -> None:
        world.answer = (409, {"reason": "AlreadyExists", "message": "exists"})
        async with world.recorder() as recorder:
            recorder.event(NODE, NODE_1, "Normal", "R", "A", "note")
            await recorder.stop()

    world = play(story)
    assert world.dropped("refused") == world.dropped("stopped") == 0


def test_a_series_whose_event_has_expired_begins_anew() -> None:
    async def story(world: World) -> None:
        async with world.recorder() as recorder:
            task = asyncio.create_task(recorder.run())
            recorder.event(NODE, NODE_1, "Normal", "R", "A", "note")
            await world.written(1)
            world.answer, world.answer_to = (404, {"reason": "NotFound", "message": "gone"}), ("PATCH",)
            recorder.event(NODE, NODE_1, "Normal", "R", "A", "note")
            world.later(recorder, 60)
            await world.written(2)
            await recorder.stop()
            await task

    first, second = play(story).got
    assert second[0] == "POST"
    assert second[2]["series"]["count"] == 2
    assert second[2]["metadata"]["name"] != first[2]["metadata"]["name"]


def test_a_closed_gate_drops_and_a_dry_run_only_says(capsys: pytest.CaptureFixture[str]) -> None:
    async def closed(world: World) -> None:
        world.refuse = "paused"
        async with world.recorder() as recorder:
            recorder.event(NODE, NODE_1, "Normal", "R", "A", "note")
            await recorder.stop()

    world = play(closed)
    assert world.got == []
    assert world.dropped("gate") == 1

    async def dry(world: World) -> None:
        async with world.recorder(dry_run=True) as recorder:
            for _ in range(3):
                recorder.event(NODE, NODE_1, "Normal", "Because", "A", "the note")
            await recorder.stop()

    assert play(dry).got == []
    assert capsys.readouterr().out.count("would record an event") == 1


def test_stopping_takes_no_longer_than_allowed_and_counts_what_is_lost() -> None:
    async def story(world: World) -> None:
        world.answer = (503, {"message": "down"})
        async with world.recorder() as recorder:
            for _ in range(3):
                recorder.event(NODE, NODE_1, "Normal", "R", "A", "note")
            async with asyncio.timeout(10):
                await recorder.stop(within=0.3)

    assert play(story).dropped("stopped") == 3


def test_notes_are_cut_to_the_apis_bound_in_bytes() -> None:
    assert cut("short", 1024) == "short"
    long = cut("ü" * 2000, 1024)
    assert len(long.encode()) <= 1024
    assert long.endswith("ü…")
    assert cut("\ud800", 10) == "?"


def test_odd_input_never_raises_and_makes_a_legal_event() -> None:
    async def story(world: World) -> None:
        async with world.recorder() as recorder:
            odd = Metadata(name="System:Node:" + "x" * 300)
            recorder.event(NODE, odd, "Loud", "", "", "")  # type: ignore[arg-type]
            await recorder.stop()

    (_, _, body), *_ = play(story).got
    assert (body["type"], body["reason"], body["action"]) == ("Normal", "Unknown", "Unknown")
    assert len(body["metadata"]["name"]) <= 253
    assert body["metadata"]["name"].startswith("system-node-xxx")
    assert json.dumps(body)
