"""The stop button while the API server is away: what was pressed stays pressed, and nobody is taken for another."""

from __future__ import annotations

import asyncio
import json

import pytest
from aiohttp import web

from hostler.fleet import button
from hostler.fleet.decide import PAUSED
from hostler.fleet.model import Fleet, FleetStatus
from hostler.host.conditions import Condition, Status
from hostler.kube.client import Client
from hostler.kube.errors import Unreachable
from hostler.kube.records import Metadata
from tests.unit.answering import answering
from tests.unit.nowhere import Nowhere

PRESSED = Fleet(metadata=Metadata(name="cluster", generation=4))
SAID = Condition(type=PAUSED, status=Status.TRUE, reason="Paused", observed_generation=4)


def confirmed(fleet: Fleet, wait: float = 0.3) -> str | None:
    async def run() -> str | None:
        async with Client(Nowhere()) as client:
            return await button._confirmed(client, fleet, True, wait)

    return asyncio.run(run())


def test_that_nobody_can_be_asked_is_no_failure_to_press() -> None:
    assert confirmed(PRESSED) is None
    assert confirmed(PRESSED, wait=0.0) is None


def test_what_the_answer_says_already_is_believed() -> None:
    said = Fleet(metadata=PRESSED.metadata, status=FleetStatus(leader="pod-1", conditions=(SAID,)))
    assert confirmed(said) == "pod-1"


def test_what_is_only_for_people_to_read_does_not_keep_the_button_waiting() -> None:
    """The API server answers nothing but the press itself; nor is an object that does not decode in the way."""

    async def run(answers: bytes | None) -> tuple[str, list[str]]:
        pressed: list[str] = []

        async def answer(request: web.Request) -> web.StreamResponse:
            if request.method == "PATCH":
                pressed.append(await request.text())
                return web.json_response({"metadata": {"name": "cluster"}})
            if answers is None:
                await asyncio.Event().wait()
            return web.Response(body=answers)

        async with answering(answer) as client, asyncio.timeout(20):
            return (await button.press(client, why="smoke", wait=0)).why, pressed

    for answers in (None, b'{"spec":{"paused":"perhaps"},"status":[]}'):
        why, (body,) = asyncio.run(run(answers))
        assert why.startswith("Paused by somebody: smoke.")
        assert json.loads(body)["spec"]["paused"] is True


def test_a_name_that_could_not_be_asked_for_is_not_somebodys() -> None:
    """A hold in the name of `somebody` could not be released by whoever placed it."""

    async def run() -> None:
        async with Client(Nowhere()) as client:
            with pytest.raises(Unreachable):
                await button.who_am_i(client)

    asyncio.run(run())
