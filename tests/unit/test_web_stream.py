"""The stream of changes, asked over a real socket."""

from __future__ import annotations

import asyncio
import socket
import time

import aiohttp
import msgspec
import pytest

import hostler.web.stream as stream_module
from hostler.inventory.states import HostState
from hostler.inventory.wire import HostsAnswer
from tests.unit.streaming import Place, next_event, play

IN_SERVICE, HELD, DRAINING = HostState.IN_SERVICE, HostState.HELD, HostState.DRAINING


def states(answer: HostsAnswer) -> dict[str, str]:
    return {row.host.name: row.host.state for row in answer.hosts}


def test_a_viewer_gets_everything_and_then_each_change() -> None:
    async def story(place: Place, session: aiohttp.ClientSession) -> None:
        place.hosts.put("a", IN_SERVICE)
        place.hosts.put("b", IN_SERVICE)
        async with session.get(place.url) as viewer:
            assert viewer.headers["Content-Type"].startswith("text/event-stream")
            first = await next_event(viewer)
            assert first.complete
            assert states(first) == {"a": "in service", "b": "in service"}
            place.hosts.put("b", HELD)
            change = await next_event(viewer)
            assert not change.complete
            assert states(change) == {"b": "held"}
            place.notes = ("Writes are paused.",)
            assert (await next_event(viewer)).notes == ("Writes are paused.",)

    play(story)


@pytest.mark.parametrize("by_header", [True, False])
def test_who_comes_back_misses_nothing_and_gets_nothing_twice(by_header: bool) -> None:
    async def story(place: Place, session: aiohttp.ClientSession) -> None:
        place.hosts.put("a", IN_SERVICE)
        async with session.get(place.url) as viewer:
            known = (await next_event(viewer)).version
        place.hosts.put("b", HELD)
        place.hosts.put("c", HELD)
        headers = {"Last-Event-ID": known} if by_header else {}
        async with session.get(place.url, params={"since": known}, headers=headers) as viewer:
            assert states(await next_event(viewer)) == {"b": "held", "c": "held"}
        async with session.get(place.url, params={"since": "another-boot.7"}) as viewer:
            again = await next_event(viewer)
            assert again.complete
            assert len(again.hosts) == 3

    play(story)


def test_a_change_is_encoded_once_for_all_viewers(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[int] = []
    encode = stream_module.encode_answer

    def counting(found: HostsAnswer) -> bytes:
        encoded.append(len(found.hosts))
        return encode(found)

    monkeypatch.setattr(stream_module, "encode_answer", counting)

    async def story(place: Place, session: aiohttp.ClientSession) -> None:
        place.hosts.put("a", IN_SERVICE)
        viewers = [await session.get(place.url) for _ in range(30)]
        assert {(await next_event(viewer)).complete for viewer in viewers} == {True}
        encoded.clear()
        place.hosts.put("a", HELD)
        assert {states(await next_event(viewer))["a"] for viewer in viewers} == {"held"}
        assert encoded == [1]
        for viewer in viewers:
            viewer.close()

    play(story)


def test_one_viewer_too_many_is_refused_until_one_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_module, "MOST_VIEWERS", 2)

    async def story(place: Place, session: aiohttp.ClientSession) -> None:
        first, second = await session.get(place.url), await session.get(place.url)
        await next_event(first)
        async with session.get(place.url) as third:
            assert third.status == 503
            assert (await third.json())["reason"] == "TooManyViewers"
            assert third.headers["Retry-After"]
        first.close()
        async with asyncio.timeout(60):
            while (third := await session.get(place.url)).status != 200:
                third.close()
                await asyncio.sleep(0.05)
        assert (await next_event(third)).complete
        third.close()
        second.close()

    play(story)


def test_a_slow_reader_is_hung_up_on_and_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_module, "MOST_BEHIND", 3_000_000)

    async def story(place: Place, session: aiohttp.ClientSession) -> None:
        host, port = place.url.removeprefix("http://").partition("/")[0].split(":")
        with socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.connect((host, int(port)))
            slow.sendall(b"GET /v1/hosts/stream HTTP/1.1\r\nHost: x\r\n\r\n")  # and never reads
            async with session.get(place.url) as quick:
                await next_event(quick)
                async with asyncio.timeout(60):
                    while place.viewers() < 2:
                        await asyncio.sleep(0.01)
                    while place.viewers() == 2:
                        place.hosts.put("a", HELD, f"{time.monotonic()} " + "x" * 400_000)
                        await next_event(quick)
                place.hosts.put("a", IN_SERVICE)
                assert states(await next_event(quick)) == {"a": "in service"}

    play(story)


def test_who_polls_waits_for_a_change() -> None:
    async def story(place: Place, session: aiohttp.ClientSession) -> None:
        place.hosts.put("a", IN_SERVICE)

        async def poll(since: str, wait: float) -> HostsAnswer:
            async with session.get(place.url, params={"since": since, "wait": str(wait)}) as answer:
                return msgspec.json.decode(await answer.read(), type=HostsAnswer)

        first = await poll("", 20)
        assert first.complete
        assert (await poll(first.version, 0.1)).hosts == ()
        waiting = asyncio.create_task(poll(first.version, 20))
        await asyncio.sleep(0.3)
        place.hosts.put("a", HELD)
        assert states(await waiting) == {"a": "held"}

    play(story)


def test_a_replica_that_stops_leading_sends_its_viewers_away() -> None:
    async def story(place: Place, session: aiohttp.ClientSession) -> None:
        async with session.get(place.url) as viewer:
            await next_event(viewer)
            place.follows = "this replica does not lead: the lease is held by pod-2"
            with pytest.raises((EOFError, aiohttp.ClientError, asyncio.IncompleteReadError)):
                await next_event(viewer)
        async with session.get(place.url) as refused:
            assert refused.status == 421
            assert "pod-2" in (await refused.json())["message"]

    play(story)


def test_who_loses_their_rights_stops_seeing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_module, "ADMIT_SECONDS", 0.0)

    async def story(place: Place, session: aiohttp.ClientSession) -> None:
        async with session.get(place.url) as viewer:
            await next_event(viewer)
            place.refuses = True
            place.hosts.put("a", HELD)
            with pytest.raises((EOFError, aiohttp.ClientError, asyncio.IncompleteReadError)):
                await next_event(viewer)

    play(story)


def test_a_host_that_becomes_overdue_is_told_without_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_module, "BEAT_SECONDS", 0.0)

    async def story(place: Place, session: aiohttp.ClientSession) -> None:
        place.hosts.put("a", DRAINING)
        async with session.get(place.url) as viewer:
            assert (await next_event(viewer)).hosts[0].overdue is None
            place.hosts.now += 86400
            assert (await next_event(viewer)).hosts[0].overdue is not None

    play(story)
