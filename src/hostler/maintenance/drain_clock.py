"""The clock of a drain stands still while nothing may be evicted: that time was never the pods'. Pure.

The standstill is written on the node when it begins, and `transition-time` moves on by its length when it ends. So no
machine is stopped as out of time whose pods nobody asked to go, a restart changes nothing, and time that was spent with
evictions stays spent.
"""

from __future__ import annotations

from dataclasses import replace

from hostler.instant import Instant
from hostler.maintenance.decision import BlockedBy, Decision, Phase, noted
from hostler.maintenance.model import DRAIN_HELD, SHUTDOWN_SINCE, SINCE, State, Subject, stamp

# A process that has just started knows little for a moment: that is no standstill.
NEW_SECONDS = 10.0
_HELD = (BlockedBy.PRIVILEGES, BlockedBy.NO_RESTART, BlockedBy.SLOT, BlockedBy.REFUSED, BlockedBy.UNCORDONED)
_NOT_KNOWN = (BlockedBy.UNKNOWN, BlockedBy.LOOKING)
_GOES_ON = (Phase.DRAINING, Phase.STOPPING)


def started(subject: Subject, began: Instant, now: Instant, resumed: Instant) -> Instant:
    """When the drain would have begun had it never stood still. After a pause it begins anew: nothing was written."""
    held = subject.at(DRAIN_HELD)
    return max(resumed, began if held is None else began + max(0.0, now - held))


def clocked(subject: Subject, one: Decision, now: Instant, resumed: Instant) -> Decision:
    """The decision, or what must be written before it: that the clock stands still, or runs again."""
    began = subject.at(SINCE)
    if subject.node is None or subject.busy is not None or began is None or subject.annotations.get(SHUTDOWN_SINCE):
        return one
    if subject.state is not State.DRAINING or one.state is not State.DRAINING:
        return one
    held = bool(subject.annotations.get(DRAIN_HELD))
    if not held and one.action is None and _stands_still(subject, one, now):
        why = f"nothing may be evicted from {subject.name}: its drain's time stands still"
        return replace(one, action=noted(subject.node, {DRAIN_HELD: stamp(now)}, why))
    if held and one.phase in _GOES_ON:
        why = f"pods of {subject.name} may be evicted (again): its drain's time goes on from where it stood still"
        notes = {SINCE: stamp(started(subject, began, now, resumed)), DRAIN_HELD: None}
        patch = noted(subject.node, notes, why, "DrainGoesOn")
        return Decision(
            subject.name, State.DRAINING, Phase.DRAINING, why, "its pods are evicted", patch, target=one.target
        )
    return one


def _stands_still(subject: Subject, one: Decision, now: Instant) -> bool:
    if one.blocked is None:
        return False
    seen = subject.remembered.running_since
    lasts = seen is not None and now >= seen + NEW_SECONDS
    return one.blocked.by in _HELD or (one.blocked.by in _NOT_KNOWN and lasts)
