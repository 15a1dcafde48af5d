"""Everything that is written about the scoped DaemonSets in one pass, with the conditions that it leads to. Pure.

The controller carries the decision out, `explain` and `plan` show it. A step is a sequence of writes that depend on
each other; a step that fails does not keep the next ones back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hostler.apis.fleet import ScopedDaemonSet
from hostler.apis.openshift import ClusterOperator
from hostler.host.conditions import Condition, set_conditions
from hostler.host.platform import Class
from hostler.host.reverts import RevertLimits
from hostler.instant import Instant
from hostler.kube.kinds import DAEMON_SET
from hostler.platform.checks import to_check
from hostler.platform.conditions import Seen, decide_conditions
from hostler.platform.driver import DriverFacts, DriverVerdict, judge_driver
from hostler.platform.model import (
    NO_POLICIES,
    News,
    PlacedNode,
    Round,
    Scope,
    State,
    StrandedPod,
    Verb,
    Way,
    WaySetting,
    Write,
)
from hostler.platform.operator_status import operator_writes
from hostler.platform.policy import PolicyFacts, policy_writes
from hostler.platform.scope import describe_rule
from hostler.platform.scoping import ScopeFacts, decide_scope
from hostler.platform.targets import OPENSHIFT_DRIVER, key_of_target


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
    round: Round = field(default_factory=Round)
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


def decide_platform(facts: Facts, policy: Policy, now: Instant) -> Decision:
    """Decide about every scoped DaemonSet, what guards it, and what is reported of it."""
    way = _way(policy, facts)
    scopes = tuple(decide_scope(one, policy.limits, now) for one in facts.scopes)
    driver = judge_driver(facts.driver, _sets_aside(way, scopes))
    described = _describe_way(way, policy, driver)
    conditions, patience = _conditions(facts, policy, scopes, described, now)
    steps = (
        driver.writes,
        policy_writes(facts.entries if way is Way.POLICY else (), scopes, facts.policies),
        *(_scope_writes(one) for one in scopes),
        operator_writes(facts.operator.current, conditions) if facts.operator.usable else (),
    )
    wakes = [one for one in (patience, *(scope.wake for scope in scopes)) if one is not None]
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
    news = News("Normal", "Scoped", note)
    return (
        Write(Verb.APPLY, DAEMON_SET, target.name, scope.why, target.namespace, scope.body, about=(key,), news=news),
    )


def _conditions(
    facts: Facts, policy: Policy, scopes: Sequence[Scope], way: str, now: Instant
) -> tuple[Sequence[Condition], float | None]:
    foreign = sorted(one.name for one in facts.nodes if one.found.kind is Class.FOREIGN)
    there = [(scope, one.current) for scope, one in zip(scopes, facts.scopes, strict=True)]
    seen = Seen(
        there, facts.round, len(to_check(facts.nodes)), way, foreign, policy.strict, facts.since,
        [str(one) for one in facts.stranded],
    )  # fmt: skip
    made, wake = decide_conditions(seen, now)
    return set_conditions(facts.conditions, made, now), wake
