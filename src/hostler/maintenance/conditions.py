"""What the Node says about its maintenance, in the words of the upstream node lifecycle. Derived, stable. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hostler.host.conditions import Condition, Status, node_condition_patch
from hostler.instant import Instant
from hostler.kube.records import Node
from hostler.maintenance.decision import BlockedBy, Decision
from hostler.maintenance.model import DRAIN_ENDED, EMPTY, HOST, LATE, SHUTDOWN_SINCE, STATE, State

DRAIN, DRAINED, MAINTENANCE = "DrainInProgress", "Drained", "MaintenanceInProgress"
_SHOWN = (BlockedBy.BUDGET, BlockedBy.REFUSED, BlockedBy.PRIVILEGES)
NOT_SAID = "not said"
_REASONS: dict[str, str] = {State.DRAINING: "Draining", State.POWERED_OFF: "PoweredOff", State.MIGRATED: "Migrated"}
_UNKNOWN = "Unknown"  # a state that we cannot read
_OURS = {
    DRAIN: ("Blocked", "Evicting", "Ended"),
    DRAINED: ("Evicting", "Ended", "DeadlinePassed", "NotKnown"),
    MAINTENANCE: (*_REASONS.values(), _UNKNOWN),
}


def conditions_of(node: Node, decision: Decision | None) -> Iterator[Condition]:
    """From the annotations as they are; the decision adds who blocks. No counts: each would be a write per pod."""
    state, host = node.metadata.annotations.get(STATE, ""), node.metadata.annotations.get(HOST, "")
    if not state:
        for name in (DRAIN, DRAINED, MAINTENANCE):
            if any(one.type == name for one in node.status.conditions):
                yield Condition(type=name, status=Status.FALSE, reason="InService", message="No maintenance.")
        return
    stopping = bool(node.metadata.annotations.get(SHUTDOWN_SINCE))
    draining = state == State.DRAINING and not stopping
    blocked = _blocked(decision)
    because = f"ESXi host {host} goes into maintenance."
    said = f"{because} {blocked}" if blocked else because
    yield Condition(
        type=DRAIN,
        status=Status.TRUE if draining else Status.FALSE,
        reason=("Blocked" if blocked else "Evicting") if draining else "Ended",
        message=said if draining else because,
    )
    yield _drained(because, "" if draining else node.metadata.annotations.get(DRAIN_ENDED, NOT_SAID))
    reason = _REASONS.get(state, _UNKNOWN)
    waiting = f" {decision.why}." if decision is not None and decision.unknown else ""
    yield Condition(type=MAINTENANCE, status=Status.TRUE, reason=reason, message=f"{because}{waiting}")


def _drained(because: str, ended: str) -> Condition:
    """It may have been moved, stopped or taken over before anybody said how its drain ended: that is not known."""
    status, reason, more = {
        "": (Status.FALSE, "Evicting", ""),
        EMPTY: (Status.TRUE, "Ended", ""),
        LATE: (Status.FALSE, "DeadlinePassed", " Not every pod had left when the time was up."),
    }.get(ended, (Status.UNKNOWN, "NotKnown", " Whether every pod had left is not known."))
    return Condition(type=DRAINED, status=status, reason=reason, message=f"{because}{more}")


def left_behind(node: Node) -> bool:
    """It says that a maintenance of ours goes on, and none does: the write that ended it was our last one.

    Other controllers may use the same types. We write all three in one patch, each with a reason of ours.
    """
    if STATE in node.metadata.annotations:
        return False
    found = {one.type: one for one in node.status.conditions if one.reason in _OURS.get(one.type, ())}
    return len(found) == len(_OURS) and found[MAINTENANCE].status == "True"


def _blocked(decision: Decision | None) -> str:
    if decision is None or decision.blocked is None or decision.blocked.by not in _SHOWN:
        return ""
    return f"{decision.blocked.sentence}."


def patch_of(node: Node, decision: Decision | None, now: Instant) -> dict[str, Any] | None:
    """One strategic patch for all that changed; None where the node already says so."""
    entries: list[Any] = []
    for one in conditions_of(node, decision):
        patch = node_condition_patch(node, one, now)
        if patch is not None:
            entries += patch["status"]["conditions"]
    return {"status": {"conditions": entries}} if entries else None
