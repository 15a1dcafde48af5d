"""Everything that is written about scoped DaemonSets and taints, with the conditions that it leads to. Pure.

The controller carries the decision out, `explain` and `plan` show it. A step is a sequence of writes that depend on
each other; a step that fails does not keep the next ones back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hostler.apis.fleet import ScopedDaemonSet
from hostler.apis.openshift import ClusterOperator
from hostler.host.conditions import Condition, names, set_conditions
from hostler.host.facts import Fact, Known, Unknown
from hostler.host.platform import UNINITIALIZED, Class
from hostler.host.reverts import RevertLimits
from hostler.host.writes import EventNote, Verb
from hostler.instant import Instant
from hostler.kube.kinds import DAEMON_SET, NODE
from hostler.platform.admission_policy import PolicyFacts, policy_writes
from hostler.platform.conditions import Seen, decide_conditions, operator_writes
from hostler.platform.csi_driver import DriverFacts, DriverVerdict, judge_driver
from hostler.platform.model import (
    NO_POLICIES,
    CheckRound,
    PlacedNode,
    Scope,
    State,
    StrandedPod,
    Way,
    WaySetting,
    Write,
)
from hostler.platform.node_checks import nodes_to_check
from hostler.platform.scoping import OPENSHIFT_DRIVER, ScopeFacts, decide_scope, describe_rule, key_of_target


@dataclass(frozen=True, slots=True)
class OperatorFacts:
    """Our ClusterOperator; `usable`: its kind is served and the object can be read."""

    current: ClusterOperator | None = None
    usable: bool = True


@dataclass(frozen=True, slots=True)
class Facts:
    """All that is known about scoped DaemonSets and what guards them."""

    entries: Sequence[ScopedDaemonSet]  # of the Fleet, by name or label
    scopes: Sequence[ScopeFacts]  # one per DaemonSet
    nodes: Sequence[PlacedNode]
    policies: PolicyFacts
    driver: DriverFacts
    operator: OperatorFacts
    round: CheckRound = field(default_factory=CheckRound)
    since: Mapping[str, Instant] = field(default_factory=dict)  # when we first saw a DaemonSet lag, by key
    stranded: Sequence[StrandedPod] = ()
    conditions: Sequence[Condition] = ()  # as they were


@dataclass(frozen=True, slots=True)
class Policy:
    """What the settings say."""

    way: WaySetting = WaySetting.AUTO
    strict: bool = False
    limits: RevertLimits = field(default_factory=RevertLimits)


@dataclass(frozen=True, slots=True)
class Decision:
    scopes: tuple[Scope, ...]
    driver: DriverVerdict
    way: str  # the way in force, and why it is not another
    conditions: Sequence[Condition]
    steps: tuple[tuple[Write, ...], ...]
    wake: float | None = None

    @property
    def writes(self) -> tuple[Write, ...]:
        return tuple(write for step in self.steps for write in step)


def decide(facts: Facts, policy: Policy, now: Instant) -> Decision:
    """Decide about every scoped DaemonSet, what guards it, and what is reported of it."""
    way = _way(policy, facts)
    scopes = tuple(decide_scope(scope_facts, policy.limits, now) for scope_facts in facts.scopes)
    driver = judge_driver(facts.driver, _sets_aside(way, scopes))
    described = _describe_way(way, policy, driver)
    conditions, patience = _conditions(facts, policy, scopes, described, now)
    steps = (
        driver.writes,
        policy_writes(facts.entries if way is Way.POLICY else (), scopes, facts.policies),
        *(_scope_writes(scope) for scope in scopes),
        operator_writes(facts.operator.current, conditions) if facts.operator.usable else (),
    )
    wakes = [wake for wake in (patience, *(scope.wake for scope in scopes)) if wake is not None]
    return Decision(
        scopes, driver, described, conditions, tuple(step for step in steps if step), min(wakes, default=None)
    )


def _way(policy: Policy, facts: Facts) -> Way:
    if policy.way is WaySetting.UNMANAGED:
        return Way.UNMANAGED
    return Way.POLICY if policy.way is WaySetting.AUTO and facts.policies.served else Way.APPLY


def _sets_aside(way: Way, scopes: Sequence[Scope]) -> bool | None:
    """Whether the CSI operator is to leave its DaemonSet alone: only if that is there and gets the rule.

    None: its DaemonSet cannot be read, so things stay as they are.
    """
    mine = [scope for scope in scopes if key_of_target(scope.target) == key_of_target(OPENSHIFT_DRIVER)]
    if way is not Way.UNMANAGED:
        return False
    if any(scope.state is State.UNREADABLE for scope in mine):
        return None
    return any(scope.state in (State.IN_PLACE, State.WRITE, State.FIGHT) for scope in mine)


def _describe_way(way: Way, policy: Policy, driver: DriverVerdict) -> str:
    if way is Way.UNMANAGED:
        return f"{Way.APPLY}; {driver.why}"
    described = str(way)
    if way is Way.APPLY and policy.way is WaySetting.AUTO:
        described = f"{Way.APPLY}, because {NO_POLICIES}"
    return f"{described}; {driver.why}" if driver.patch is not None else described


def _scope_writes(scope: Scope) -> tuple[Write, ...]:
    if scope.body is None:
        return ()
    rule, target, key = describe_rule(scope.target), scope.target, key_of_target(scope.target)
    note = f"It requires {rule} now, so it stays off {len(scope.kept_off)} nodes without the cloud."
    notice = EventNote("Normal", "Scoped", note)
    return (
        Write(
            Verb.APPLY, DAEMON_SET, target.name, scope.why, target.namespace, scope.body, about=(key,), notice=notice
        ),
    )


def _conditions(
    facts: Facts, policy: Policy, scopes: Sequence[Scope], way: str, now: Instant
) -> tuple[Sequence[Condition], float | None]:
    foreign = sorted(placed.name for placed in facts.nodes if placed.found.kind is Class.FOREIGN)
    there = [(scope, scope_facts.current) for scope, scope_facts in zip(scopes, facts.scopes, strict=True)]
    seen = Seen(
        there, facts.round, len(nodes_to_check(facts.nodes)), way, foreign, policy.strict, facts.since,
        [str(pod) for pod in facts.stranded],
    )  # fmt: skip
    made, wake = decide_conditions(seen, now)
    return set_conditions(facts.conditions, made, now), wake


# Schemes of providerIDs behind which no cloud provider stands that initialises nodes.
NO_CLOUD = frozenset(("agent", "baremetalhost", "byoh", "kind", "kwok", "maas", "metal3", "sidero", "tinkerbell"))


@dataclass(frozen=True, slots=True)
class TaintVerdict:
    """Whether a node's taint is taken away: the JSON patch, or nothing and why."""

    patch: tuple[dict[str, Any], ...] | None
    why: str

    def writes(self, node: str) -> tuple[Write, ...]:
        if self.patch is None:
            return ()
        notice = EventNote("Normal", "TaintRemoved", f"The taint {UNINITIALIZED} was taken away: {self.why}.")
        return (Write(Verb.PATCH, NODE, node, self.why, operations=self.patch, notice=notice),)


def waits_for_provider(placed: PlacedNode) -> bool:
    """Whether it has the taint that its cloud provider takes away."""
    return any(taint.key == UNINITIALIZED for taint in placed.node.spec.taints)


def other_clouds(nodes: Iterable[PlacedNode]) -> list[str]:
    """Clouds beside vSphere that have nodes here: their providers may initialise further ones."""
    return sorted({placed.found.platform for placed in nodes if placed.found.kind is Class.OTHER} - NO_CLOUD)


def decide_taint(
    placed: PlacedNode, in_none: Fact[bool], *, wanted: bool, clouds: Sequence[str] = ()
) -> TaintVerdict | None:
    """A foreign node waits for a cloud provider that will never come: take its taint away. None: it has no taint.

    Only where every vCenter was asked and has no such VM, and no other cloud (`clouds`) has nodes here: a node that a
    cloud provider will initialise keeps it.
    """
    found = [number for number, taint in enumerate(placed.node.spec.taints) if taint.key == UNINITIALIZED]
    if not found:
        return None
    if placed.found.kind is not Class.FOREIGN:
        return TaintVerdict(None, f"its taint stays: {placed.found.why}")
    if not wanted:
        return TaintVerdict(None, "its taint stays: HOSTLER_PLATFORM_REMOVE_TAINT is off")
    if clouds:
        return TaintVerdict(None, f"its taint stays: there are nodes of {names(clouds)}, whose provider may yet come")
    match in_none:
        case Unknown(why):
            return TaintVerdict(None, f"its taint stays: {why}")
        case Known(False):
            return TaintVerdict(None, "its taint stays: it is a VM in vCenter, and its cloud provider may yet come")
    at, meta = f"/spec/taints/{found[0]}", placed.node.metadata
    # The version: a providerID that was written a moment ago means that a cloud provider will initialise the node.
    patch = (
        {"op": "test", "path": "/metadata/uid", "value": meta.uid},
        {"op": "test", "path": "/metadata/resourceVersion", "value": meta.resource_version},
        {"op": "test", "path": f"{at}/key", "value": UNINITIALIZED},
        {"op": "remove", "path": at},
    )
    return TaintVerdict(patch, "no cloud provider will initialise it: it has no providerID and is in no vCenter")
