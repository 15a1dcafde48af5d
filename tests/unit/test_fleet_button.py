"""The stop button while the API server is away: what was pressed stays pressed, and nobody is taken for another."""

from __future__ import annotations

import asyncio

import pytest

from hostler.fleet import button
from hostler.fleet.decide import PAUSED
from hostler.fleet.model import Fleet, FleetStatus
from hostler.host.conditions import Condition, Status
from hostler.kube.client import Client
from hostler.kube.errors import Unreachable
from hostler.kube.records import Metadata
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


def test_a_name_that_could_not_be_asked_for_is_not_somebodys() -> None:
    """A hold in the name of `somebody` could not be released by whoever placed it."""

    async def run() -> None:
        async with Client(Nowhere()) as client:
            assert await button._presser(client) == "somebody", "the button is pressed all the same"
            with pytest.raises(Unreachable):
                await button.who_am_i(client)

    asyncio.run(run())
