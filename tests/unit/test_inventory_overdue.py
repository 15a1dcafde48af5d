"""Overdue only where a state is meant to end, and nobody waits on purpose."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from hostler.inventory.model import Holder, Host
from hostler.inventory.overdue import ENOUGH_SAMPLES, FLOORS, Percentile, judge_overdue, percentile_of, waits_for
from hostler.inventory.states import NOT_OUT, PASSING, HostKind, HostState

HOST = Host("vm:1", "a", HostKind.VM, HostState.DRAINING, since=0.0)
FLOOR = FLOORS[HostState.DRAINING]


def test_longer_than_the_floor_is_overdue() -> None:
    assert judge_overdue(HOST, FLOOR, {}) is None
    overdue = judge_overdue(HOST, FLOOR + 5, {})
    assert overdue is not None
    assert (overdue.by, overdue.limit) == (5, FLOOR)


@pytest.mark.parametrize("samples", [ENOUGH_SAMPLES - 1, ENOUGH_SAMPLES])
def test_the_fleets_own_experience_counts_from_twenty_stays(samples: int) -> None:
    stays = {(HostState.DRAINING, HostKind.VM): Percentile(FLOOR, samples)}
    overdue = judge_overdue(HOST, 1.5 * FLOOR, stays)
    assert (overdue is None) is (samples == ENOUGH_SAMPLES)


def test_a_fast_fleet_does_not_lower_the_floor() -> None:
    stays = {(HostState.DRAINING, HostKind.VM): Percentile(1.0, 500)}
    assert judge_overdue(HOST, FLOOR, stays) is None


@pytest.mark.parametrize("state", [state for state in HostState if state not in PASSING])
def test_a_state_that_may_last_is_never_overdue(state: HostState) -> None:
    assert judge_overdue(replace(HOST, state=state), 1e9, {}) is None


def test_waiting_on_purpose_is_not_overdue() -> None:
    assert judge_overdue(replace(HOST, waiting="ESXi host esx-1 is in maintenance"), 1e9, {}) is None
    assert judge_overdue(replace(HOST, since=None), 1e9, {}) is None


STOPPED = replace(HOST, state=HostState.STOPPED, capability="maintenance", holders=(Holder("maintenance"),))
ESXI = Host("esxi:1", "esx-1", HostKind.ESXI, HostState.HELD)


@pytest.mark.parametrize(
    ("host", "esxi", "waits"),
    [
        (STOPPED, ESXI, "ESXi host esx-1, which is in maintenance"),
        (STOPPED, replace(ESXI, state=HostState.IN_SERVICE), ""),
        (STOPPED, None, ""),
        (replace(STOPPED, holders=(Holder("maintenance"), Holder("ann"))), None, "a hold of ann"),
        (replace(STOPPED, capability="vsphere"), ESXI, ""),
        (replace(STOPPED, state=HostState.DRAINING), ESXI, ""),
    ],
)
def test_a_vm_waits_for_its_esxi_host_and_for_a_persons_hold(host: Host, esxi: Host | None, waits: str) -> None:
    assert waits_for(host, esxi) == waits


def test_every_state_is_placed() -> None:
    assert set(FLOORS) == PASSING
    assert not PASSING & NOT_OUT


@pytest.mark.parametrize(
    ("stays", "wanted"), [([1.0], 1.0), (list(map(float, range(1, 101))), 95.0), (list(map(float, range(1, 21))), 19.0)]
)
def test_the_percentile_is_a_stay_that_happened(stays: list[float], wanted: float) -> None:
    found = percentile_of(stays)
    assert found == Percentile(wanted, len(stays))
    assert percentile_of([]) is None
