"""What the Fleet's status says, from facts: pure. The words here are what `kubectl describe fleet` shows at 3 a.m."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from hostler.apis.fleet import CapabilityStatus, FleetCounts, FleetStatus
from hostler.host.conditions import Condition, Status, count, cut, names, set_conditions
from hostler.instant import Instant
from hostler.safety.pause_state import PAUSED, PauseState, observed_pauses

READY, INCUMBENT_FOUND, CEILING_REACHED = "Ready", "IncumbentFound", "CeilingReached"
CONDITIONS = (READY, PAUSED, INCUMBENT_FOUND, CEILING_REACHED)


@dataclass(frozen=True, slots=True)
class CapabilityFacts:
    """One capability as it is now."""

    name: str
    on: bool
    why: str  # why it is on or off
    blocked: str = ""  # why it may not write; empty: it may
    incumbent: str = ""  # the name of the controller found in its place
    incumbent_why: str = ""  # the evidence
    incumbent_unknown: str = ""  # why it is not known whether there is one


@dataclass(frozen=True, slots=True)
class FleetFacts:
    """All that the status is made from."""

    generation: int
    pause: PauseState
    leader: str
    version: str
    capabilities: tuple[CapabilityFacts, ...]
    nodes: int
    nodes_known: bool
    held: int
    out: tuple[str, ...]  # names of the nodes out of service by us
    ceiling: int
    limit: str  # the ceiling in words: "50%, at least 2"
    limit_problem: str = ""  # why Fleet.spec.maxUnavailable cannot be used
    unready: tuple[str, ...] = ()  # what keeps the operator from working: caches not in step, and why
    conditions: tuple[Condition, ...] = ()  # what the capabilities say of themselves


def decide_status(facts: FleetFacts, before: FleetStatus, now: Instant) -> FleetStatus:
    """The status as it ought to be. Equal to `before` where nothing changed, so that nothing is written."""
    known = {*CONDITIONS, *(one.type for one in facts.conditions)}
    kept = [one for one in before.conditions if one.type in known]
    theirs = (msgspec.structs.replace(one, observed_generation=facts.generation) for one in facts.conditions)
    made = (_ready(facts), _paused(facts), _incumbent(facts), _ceiling(facts), *theirs)
    conditions = set_conditions(kept, made, now)
    return FleetStatus(
        observed_generation=facts.generation,
        leader=facts.leader,
        version=facts.version,
        counts=FleetCounts(nodes=facts.nodes, held=facts.held, unavailable=len(facts.out), ceiling=facts.ceiling),
        capabilities=tuple(_capability(one) for one in facts.capabilities),
        conditions=tuple(conditions),
        pauses=observed_pauses(facts.pause.pauses),
    )


def _capability(one: CapabilityFacts) -> CapabilityStatus:
    return CapabilityStatus(
        name=one.name,
        enabled=one.on,
        writes=one.on and not one.blocked,
        reason=cut(one.blocked if one.on and one.blocked else one.why),
        incumbent=one.incumbent,
    )


def _ready(facts: FleetFacts) -> Condition:
    """Ready means: what is switched on can do its work. A pause is a decision and no failure, but not that either."""
    if facts.unready:
        return _condition(facts, READY, Status.FALSE, "NotInStep", f"Not in step with the cluster: {facts.unready[0]}")
    if facts.limit_problem:
        return _condition(facts, READY, Status.FALSE, "BadLimit", facts.limit_problem)
    if facts.pause.stopped:
        return _condition(
            facts, READY, Status.FALSE, "Paused" if facts.pause.known else "PauseUnknown", facts.pause.why
        )
    blocked = [one for one in facts.capabilities if one.on and one.blocked]
    if blocked:
        who = names(one.name for one in blocked)
        return _condition(facts, READY, Status.FALSE, "WritesHeldBack", f"{who} may not write. {blocked[0].blocked}")
    on = names(one.name for one in facts.capabilities if one.on)
    return _condition(facts, READY, Status.TRUE, "AtWork", f"At work: {on}.")


def _paused(facts: FleetFacts) -> Condition:
    pause = facts.pause
    status = Status.UNKNOWN if not pause.known else Status.TRUE if pause.stopped else Status.FALSE
    return _condition(facts, PAUSED, status, pause.reason.value, pause.why)


def _incumbent(facts: FleetFacts) -> Condition:
    found = [one for one in facts.capabilities if one.on and one.incumbent]
    if found:
        said = " ".join(f"{one.name} only observes. {one.incumbent_why}" for one in found)
        return _condition(facts, INCUMBENT_FOUND, Status.TRUE, "AnotherControllerAtWork", said)
    unknown = [one for one in facts.capabilities if one.on and one.incumbent_unknown]
    if unknown:
        said = " ".join(f"{one.name} only observes. {one.incumbent_unknown}" for one in unknown)
        return _condition(facts, INCUMBENT_FOUND, Status.UNKNOWN, "NotKnown", said)
    said = "No other controller does what is switched on here."
    return _condition(facts, INCUMBENT_FOUND, Status.FALSE, "NoneFound", said)


def _ceiling(facts: FleetFacts) -> Condition:
    if not facts.nodes_known:
        return _condition(facts, CEILING_REACHED, Status.UNKNOWN, "NodesUnknown", "The nodes are not known yet.")
    of = f"{facts.ceiling} of {count(facts.nodes, 'node')} ({facts.limit})"
    if facts.out and len(facts.out) >= facts.ceiling:
        said = f"{len(facts.out)} out of service by us, allowed {of}: {names(facts.out)}. No other is taken out."
        return _condition(facts, CEILING_REACHED, Status.TRUE, "MaxUnavailable", said)
    return _condition(facts, CEILING_REACHED, Status.FALSE, "BelowLimit", f"Allowed out of service by us: {of}.")


def _condition(facts: FleetFacts, type: str, status: Status, reason: str, message: str) -> Condition:
    return Condition(type=type, status=status, reason=reason, message=message, observed_generation=facts.generation)
