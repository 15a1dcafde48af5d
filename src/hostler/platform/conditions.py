"""Available, Progressing, Degraded, Upgradeable, and the ClusterOperator that shows them on OpenShift. Pure.

Messages are stable and bounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hostler import __version__
from hostler.apis.openshift import CLUSTER_OPERATOR, ClusterOperator
from hostler.host.conditions import Condition, Status, count, cut, names
from hostler.host.writes import Verb
from hostler.instant import Instant, iso
from hostler.platform.model import NOWHERE, CheckRound, DaemonSet, NodeCheck, Result, Scope, State, Write
from hostler.platform.scoping import find_lag, key_of_target

AVAILABLE, PROGRESSING, DEGRADED, UPGRADEABLE = TYPES = ("Available", "Progressing", "Degraded", "Upgradeable")
STRANDED = "PodsStranded"
# How long a roll-out may take before it counts as stuck.
PATIENCE_SECONDS = 900.0
FAILING = (Result.NOT_FOUND, Result.AMBIGUOUS, Result.CONTESTED, Result.HARDWARE, Result.ESXI)
FAILURE_TEXTS: Mapping[Result, str] = {
    Result.NOT_FOUND: "no VM found for",
    Result.AMBIGUOUS: "more than one VM for",
    Result.CONTESTED: "more than one node claims the VM of",
    Result.HARDWARE: "hardware version below 15:",
    Result.ESXI: "ESXi below 6.7.3:",
    Result.ESXI_BLOCKS: "ESXi below 7.0.2:",
}


@dataclass(frozen=True, slots=True)
class Seen:
    """What the conditions are made from. `since`: when we first saw a DaemonSet lag, by key and our own clock."""

    scopes: Sequence[tuple[Scope, DaemonSet | None]]
    round: CheckRound
    to_check: int
    way: str
    foreign: Sequence[str] = ()
    strict: bool = False
    since: Mapping[str, Instant] = field(default_factory=dict)
    stranded: Sequence[str] = ()  # pods


def decide_conditions(seen: Seen, now: Instant) -> tuple[list[Condition], float | None]:
    """The conditions as they ought to be, and in how many seconds patience with a roll-out ends."""
    degraded, wake = _degraded(seen, now)
    return [_available(seen), _progressing(seen), degraded, _upgradeable(seen), _stranded(seen)], wake


def _installed(seen: Seen) -> list[tuple[Scope, DaemonSet]]:
    return [(scope, current) for scope, current in seen.scopes if current is not None]


def _available(seen: Seen) -> Condition:
    unread = [scope for scope, _ in seen.scopes if scope.state is State.UNREADABLE]
    if unread:
        message = f"{names(key_of_target(scope.target) for scope in unread)}: {unread[0].why}."
        return _condition(AVAILABLE, Status.UNKNOWN, "Unreadable", message)
    there = _installed(seen)
    if not there:
        return _condition(
            AVAILABLE, Status.TRUE, "NothingScoped", "No DaemonSet that belongs to one platform is installed."
        )
    down = [
        key_of_target(scope.target)
        for scope, current in there
        if current.status.desired_number_scheduled > 0 and current.status.number_available == 0
    ]
    if down:
        return _condition(AVAILABLE, Status.FALSE, "NoPods", f"{names(down)} has no available pod.")
    message = f"{names(key_of_target(scope.target) for scope, _ in there)} is kept on its platform by {seen.way}."
    return _condition(AVAILABLE, Status.TRUE, "AsExpected", message)


def _lagging(seen: Seen) -> list[tuple[str, str]]:
    return [(key_of_target(scope.target), why) for scope, current in _installed(seen) if (why := find_lag(current))]


def _progressing(seen: Seen) -> Condition:
    lagging = _lagging(seen)
    if lagging:
        message = "; ".join(f"{key}: {why}" for key, why in sorted(lagging))
        return _condition(PROGRESSING, Status.TRUE, "RollingOut", f"{message}.")
    early = [scope for scope, _ in seen.scopes if scope.waits]
    if early:
        those = names(sorted({name for scope in early for name in scope.young}))
        message = (
            f"The rule for {names(key_of_target(scope.target) for scope in early)} waits for the labels of {those}."
        )
        return _condition(PROGRESSING, Status.TRUE, "WaitingForLabels", message)
    waiting = [key_of_target(scope.target) for scope, _ in seen.scopes if scope.state is State.WRITE]
    if waiting:
        return _condition(PROGRESSING, Status.TRUE, "RuleBeingWritten", f"The rule is being put on {names(waiting)}.")
    return _condition(PROGRESSING, Status.FALSE, "RolledOut", "Every scoped DaemonSet is as it ought to be.")


def _degraded(seen: Seen, now: Instant) -> tuple[Condition, float | None]:
    causes = list(_causes(seen, now))
    waits = [
        PATIENCE_SECONDS - (now - since)
        for since in (seen.since.get(key, now) for key, _ in _lagging(seen))  # now: it is seen for the first time
        if now - since < PATIENCE_SECONDS
    ]
    wake = min(waits, default=None)
    if not causes:
        return _condition(DEGRADED, Status.FALSE, "AsExpected", "Nothing is amiss."), wake
    return _condition(DEGRADED, Status.TRUE, causes[0][0], " ".join(f"{message}." for _, message in causes)), wake


def _causes(seen: Seen, now: Instant) -> Iterator[tuple[str, str]]:
    for scope, _ in seen.scopes:
        key = key_of_target(scope.target)
        if scope.state is State.FIGHT:
            yield "Fight", f"{key}: {scope.why}"
        if scope.state is State.HELD_BACK and not scope.waits:
            yield "RuleHeldBack", f"{key}: {scope.why}"
        if scope.state is State.IN_PLACE and scope.losing:
            why = f"its rule keeps it from {names(scope.losing)}, which it belongs on: the label is missing there"
            yield "PlatformNodeWithoutLabel", f"{key}: {why}"
        elif scope.state is State.IN_PLACE and scope.nowhere:
            why = f"its rule leaves it no node; without the rule it would run on {names(scope.kept_off)}"
            yield NOWHERE, f"{key}: {why}"
    for key, why in sorted(_lagging(seen)):
        if now - seen.since.get(key, now) >= PATIENCE_SECONDS:
            minutes = PATIENCE_SECONDS / 60
            yield "RollOutStuck", f"{key} has not rolled out within {minutes:g} minutes: {why}"
    if seen.strict and seen.foreign:
        yield "ForeignNodes", f"Strict mode: {_of(seen.foreign)} without cloud integration"
    if _installed(seen):
        failing = _failing(seen.round.results, FAILING)
        if failing:
            yield failing[0][0], "; ".join(message for _, message in failing)


def _upgradeable(seen: Seen) -> Condition:
    failing = _failing(seen.round.results, (*FAILING, Result.ESXI_BLOCKS))
    last = f" Last known: {'; '.join(message for _, message in failing)}." if failing else ""
    if seen.to_check and seen.round.unknown:
        since = f" since {iso(seen.round.unknown_since)}" if seen.round.unknown_since is not None else ""
        message = f"Cannot tell{since}: {seen.round.unknown.rstrip('.')}.{last}"
        return _condition(UPGRADEABLE, Status.UNKNOWN, "NotChecked", message)
    if failing:
        return _condition(UPGRADEABLE, Status.FALSE, failing[0][0], f"{'; '.join(message for _, message in failing)}.")
    if seen.strict and seen.foreign:
        message = f"Strict mode: {_of(seen.foreign)} without cloud integration."
        return _condition(UPGRADEABLE, Status.FALSE, "ForeignNodes", message)
    young = [name for name, check in seen.round.results.items() if check.result in (Result.YOUNG, Result.UNKNOWN)]
    if young:
        return _condition(UPGRADEABLE, Status.UNKNOWN, "NotChecked", f"Not checked yet: {names(young)}.")
    checked = count(len(seen.round.results), "vSphere node")
    return _condition(UPGRADEABLE, Status.TRUE, "AsExpected", f"{checked} checked; other nodes are not.")


def _stranded(seen: Seen) -> Condition:
    if seen.stranded:
        message = f"These pods need a driver that is not on their node: {names(seen.stranded, 10)}."
        return _condition(STRANDED, Status.TRUE, "DriverMissing", message)
    return _condition(STRANDED, Status.FALSE, "AsExpected", "No pod is known to wait for a driver that its node lacks.")


def _failing(results: Mapping[str, NodeCheck], kinds: Sequence[Result]) -> list[tuple[str, str]]:
    """(reason, sentence) for every kind of failure, all nodes named as far as there is room."""
    found = []
    for kind in kinds:
        those = [name for name, check in results.items() if check.result is kind]
        if those:
            found.append((str(kind), f"{FAILURE_TEXTS[kind]} {names(those)}"))
    return found


def _of(nodes: Sequence[str]) -> str:
    return f"{names(nodes)} {'is' if len(nodes) == 1 else 'are'}"


def _condition(type: str, status: Status, reason: str, message: str) -> Condition:
    return Condition(type=type, status=status, reason=reason, message=cut(message))


OPERATOR_NAME = "hostler-platform"


def operator_writes(there: ClusterOperator | None, conditions: Sequence[Condition]) -> tuple[Write, ...]:
    """One object, created if it is missing; its status is written only when a condition changed."""
    shown = [condition for condition in conditions if condition.type in TYPES]
    writes = []
    if there is None:
        body = {"metadata": {"name": OPERATOR_NAME}, "spec": {}}
        writes.append(Write(Verb.CREATE, CLUSTER_OPERATOR, OPERATOR_NAME, "it says how we are", body=body))
    before = there.status.conditions or () if there is not None else ()
    listed = [
        {
            "type": condition.type,
            "status": str(condition.status),
            "reason": condition.reason,
            "message": condition.message,
            "lastTransitionTime": condition.last_transition_time,
        }
        for condition in shown
    ]
    shown_before = [(condition.type, condition.status, condition.reason, condition.message) for condition in before]
    if shown_before != [
        (condition.type, str(condition.status), condition.reason, condition.message) for condition in shown
    ]:
        status = {"conditions": listed, "versions": [{"name": "operator", "version": __version__}]}
        why = "a condition changed"
        writes.append(
            Write(Verb.PATCH, CLUSTER_OPERATOR, OPERATOR_NAME, why, body={"status": status}, subresource="status")
        )
    return tuple(writes)
