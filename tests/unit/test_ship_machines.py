"""The pictures of states say what the code says: the same words, no more and no fewer."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path

import pytest

from hostler.host.maintenance import State as MaintenanceState
from hostler.ingress import conditions as ingress
from hostler.join.model import Act
from hostler.metal import model as metal
from hostler.metal.remediation import model as remediation
from hostler.platform.model import State as Scoped
from hostler.reclaim.model import State as Returning
from hostler.ship import machines
from hostler.ship.diagrams import picture, placed, states

ROOT = Path(__file__).resolve().parents[2]
KEPT: dict[str, tuple[machines.Machine, type[StrEnum], set[str]]] = {
    "maintenance": (machines.MAINTENANCE, MaintenanceState, {machines.IN_SERVICE}),
    "join": (machines.JOIN, Act, set()),
    "platform": (machines.PLATFORM, Scoped, set()),
}


@pytest.mark.parametrize("name", KEPT)
def test_the_picture_has_every_state_and_no_other(name: str) -> None:
    machine, words, none = KEPT[name]
    assert states(machine) == {*words} | none


def test_every_state_of_a_return_has_a_way_in_or_is_where_hosts_come_from() -> None:
    assert states(machines.RECLAIM) <= {*Returning}


def test_the_picture_of_a_remediation_has_every_phase() -> None:
    phases = {remediation.RUNNING, remediation.WAITING, remediation.GIVEN_UP, remediation.FAILED}
    assert states(machines.REMEDIATION) == phases | {machines.NEW}


def test_the_picture_of_ingress_has_every_condition_that_is_made_of_others() -> None:
    alone = {ingress.FALLBACK, ingress.WILDCARD, ingress.NO_NODE, ingress.REVERTED}
    assert states(machines.INGRESS) == {*ingress.OURS} - alone


def test_the_picture_of_a_machine_has_every_reason_that_ready_can_have() -> None:
    """Whatever is said instead of a host is said by Ready too (`status.conditions_without_host`)."""
    source = "".join(
        (ROOT / f"src/hostler/metal/{name}.py").read_text() for name in ("controller", "decide", "release")
    )
    found = set(re.findall(r'(?:Said\(names\.(?:ASSOCIATED|READY), \w+|_waits\()[,\s]*"(\w+)"', source))
    found |= set(re.findall(r'"(\w+)" if ready else "(\w+)"', source)[0])
    without_a_host = found - {"BMCSecretMissing"}  # of a machine with its host: Ready says how far that is
    assert states(machines.METAL) == without_a_host | {metal.FAILED, metal.HOST_LOST}


def test_every_arrow_is_drawn_and_every_place_is_filled() -> None:
    drawn = picture(machines.JOIN)
    arrows = sum(len(one.sources) for one in machines.JOIN)
    assert drawn.count(" --> ") == arrows
    with pytest.raises(ValueError, match=r"zip\(\) argument"):
        placed("a page without a place", (machines.JOIN,))
