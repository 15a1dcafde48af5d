"""Whether a host is longer in a state than it should be. Pure.

Only in states that are meant to end: longer than the larger of a floor for the state and twice the 95th percentile of
completed stays of that state and kind in the whole fleet. What waits on purpose is waiting, not overdue.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hostler.host.conditions import names
from hostler.host.holds import MAINTENANCE
from hostler.instant import Instant
from hostler.inventory.model import Host, Shape
from hostler.inventory.states import PASSING, HostKind, HostState

ENOUGH_SAMPLES = 20
# Seconds. A floor is what an uneventful stay takes at most, with room for a slow one.
FLOORS: Mapping[HostState, float] = {
    HostState.RECLAIMING: 60 * 60.0,  # drain, download about 1 GB, reboot into discovery
    HostState.DEPROVISIONING: 60 * 60.0,  # cleaning disks takes tens of minutes
    HostState.DRAINING: 30 * 60.0,  # pods with the longest common grace period, one budget at a time
    HostState.STOPPED: 4 * 60 * 60.0,  # a maintenance window of an ESXi host
    HostState.RETURNING: 20 * 60.0,  # a server boots in ten minutes
    HostState.JOINING: 20 * 60.0,  # boot, certificate, image pulls
    HostState.PROVISIONING: 60 * 60.0,  # an image is written and booted
    HostState.CLAIMED: 15 * 60.0,  # the Baremetal Operator begins within minutes
}


class Overdue(Shape, frozen=True):
    """By how many seconds, measured against which limit, and why that is the limit."""

    by: float
    limit: float
    why: str


@dataclass(frozen=True, slots=True)
class Percentile:
    """The 95th percentile of completed stays, and how many there were."""

    seconds: float
    samples: int


Stays = Mapping[tuple[HostState, HostKind], Percentile]


def waits_for(host: Host, esxi: Host | None) -> str:
    """On what a host in maintenance waits on purpose, beside its policy; empty: nothing. `esxi`: where it is."""
    if host.capability != MAINTENANCE or host.state not in (HostState.STOPPED, HostState.RETURNING):
        return ""
    if others := [holder.name for holder in host.holders if holder.name != MAINTENANCE]:
        return f"a hold of {names(others)}"
    if host.state is HostState.STOPPED and esxi is not None and esxi.state in (HostState.HELD, HostState.DRAINING):
        return f"ESXi host {esxi.name}, which is in maintenance"
    return ""


def judge_overdue(host: Host, now: Instant, stays: Stays, floors: Mapping[HostState, float] = FLOORS) -> Overdue | None:
    if host.state not in PASSING or host.waiting or host.since is None:
        return None
    limit, why = limit_of(host.state, host.kind, stays, floors)
    stayed = now - host.since
    return Overdue(stayed - limit, limit, why) if stayed > limit else None


def limit_of(state: HostState, kind: HostKind, stays: Stays, floors: Mapping[HostState, float]) -> tuple[float, str]:
    floor, past = floors[state], stays.get((state, kind))
    if past is None or past.samples < ENOUGH_SAMPLES or 2 * past.seconds <= floor:
        return floor, f"the floor for {state}"
    return 2 * past.seconds, f"twice the 95th percentile of {past.samples} completed stays"


def percentile_of(stays: Sequence[float], share: float = 0.95) -> Percentile | None:
    """By nearest rank; None without a stay."""
    if not stays:
        return None
    ordered = sorted(stays)
    rank = max(1, -(-len(ordered) * share // 1))
    return Percentile(ordered[min(len(ordered), int(rank)) - 1], len(ordered))
