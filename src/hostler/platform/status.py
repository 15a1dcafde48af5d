"""What others see: metrics, and what `hostler platform status` shows from one look at a cluster without an operator."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Sequence

import msgspec
from prometheus_client import Counter, Gauge

from hostler.apis.fleet import NAME, Fleet, FleetStatus, PlatformPolicy, ScopedDaemonSet
from hostler.host.conditions import Condition, Status, names
from hostler.host.platform import Class, classify
from hostler.host.reverts import RevertLimits
from hostler.kube.client import Client
from hostler.kube.errors import NotFound
from hostler.kube.events import Recorder
from hostler.kube.kinds import DAEMON_SET, DEPLOYMENT, FLEET, NODE, POD
from hostler.kube.metrics import Metrics
from hostler.kube.records import Node, Object, Pod, key_of
from hostler.platform.admission_policy import as_wanted, rules_wanted
from hostler.platform.decide import Decision, Facts
from hostler.platform.model import (
    BINDING,
    NO_POLICIES,
    POLICY,
    CheckRound,
    DaemonSet,
    PlacedNode,
    PolicySpec,
    Result,
    Scope,
    State,
    Way,
)
from hostler.platform.scoping import ScopeFacts, decide_scope, describe_rule, key_of_target, resolve, targets_of


class PlatformMetrics:
    def __init__(self, metrics: Metrics) -> None:
        registry = metrics.registry
        self._nodes = Gauge("hostler_platform_nodes", "Nodes by platform class.", ["class"], registry=registry)
        self._checks = Gauge(
            "hostler_platform_checks", "vSphere nodes by the result of their check.", ["result"], registry=registry
        )
        self._stranded = Gauge(
            "hostler_platform_stranded_pods", "Pods that need a driver their node lacks.", registry=registry
        )
        self._conditions = Gauge(
            "hostler_platform_condition", "1: True, 0: False, -1: Unknown.", ["type"], registry=registry
        )
        self._reverts = Counter(
            "hostler_platform_reverts", "How often another controller took the rule from a DaemonSet.", ["daemonset"],
            registry=registry,
        )  # fmt: skip

    def show(
        self, nodes: Sequence[PlacedNode], checks_round: CheckRound, stranded: int, conditions: Sequence[Condition]
    ) -> None:
        for kind in Class:
            self._nodes.labels(kind).set(sum(placed.found.kind is kind for placed in nodes))
        for result in Result:
            self._checks.labels(result).set(sum(check.result is result for check in checks_round.results.values()))
        self._stranded.set(stranded)
        for condition in conditions:
            self._conditions.labels(condition.type).set({Status.TRUE: 1, Status.FALSE: 0}.get(condition.status, -1))

    def in_place(self, daemon_set: str) -> None:
        self._reverts.labels(daemon_set)  # there as 0, so that Prometheus sees the first one

    def reverted(self, daemon_set: str) -> None:
        self._reverts.labels(daemon_set).inc()


class PlatformReport:
    """Reports decisions: metrics, Events, and conditions in the Fleet's status."""

    def __init__(self, recorder: Recorder, metrics: Metrics, changed: Callable[[], None]) -> None:
        """`changed` is called when the conditions changed."""
        self.conditions: Sequence[Condition] = ()
        self.metrics = PlatformMetrics(metrics)
        self._recorder, self._changed = recorder, changed

    def publish(self, facts: Facts, decision: Decision) -> None:
        if decision.conditions is not self.conditions:
            self.conditions = decision.conditions
            self._changed()
        self.metrics.show(facts.nodes, facts.round, len(facts.stranded), self.conditions)
        for scope, scope_facts in zip(decision.scopes, facts.scopes, strict=True):
            for notice in scope.notices:
                if scope_facts.current is not None:
                    about = scope_facts.current.metadata
                    self._recorder.event(DAEMON_SET, about, notice.type, notice.reason, "Scope", notice.note)

    def warn_stranded(self, pods: Iterable[Pod]) -> None:
        for pod in pods:
            note = f"It needs the vSphere CSI driver, and node {pod.spec.node_name} has none."
            self._recorder.event(POD, pod.metadata, "Warning", "DriverMissing", "Scope", note)


CONDITION_PREFIX = "Platform"
# As upstream, its chart, OpenShift and RKE2 name it.
_CLOUD_CONTROLLER = re.compile(r"vsphere-(cloud-controller-manager|cpi)\b")


class ClassLine(msgspec.Struct, rename="camel", frozen=True):
    """The nodes of one class."""

    kind: str
    nodes: tuple[str, ...]

    @property
    def words(self) -> str:
        return names(self.nodes)


class ScopeLine(msgspec.Struct, rename="camel", frozen=True):
    """One scoped DaemonSet: its rule, whether it is in force, and where it may run."""

    name: str
    platform: str
    rule: str
    state: State
    why: str
    way: str
    may_run_on: tuple[str, ...] = ()
    kept_off: tuple[str, ...] = ()
    namespace: str = ""  # empty: of any

    @property
    def may_run_words(self) -> str:
        return names(self.may_run_on) or self._none

    @property
    def kept_off_words(self) -> str:
        return names(self.kept_off) or self._none

    @property
    def _none(self) -> str:
        """A dash for one that is not there, or cannot be read."""
        return "-" if self.state in (State.ABSENT, State.UNREADABLE) else "no node"


class PlatformStatus(msgspec.Struct, rename="camel", frozen=True):
    classes: tuple[ClassLine, ...]
    daemon_sets: tuple[ScopeLine, ...]
    conditions: tuple[Condition, ...]
    note: str = ""
    node_deletion: str = ""  # who may delete which nodes


async def status_of(client: Client, grace: float) -> PlatformStatus:
    """Everything, read once. Nodes are checked against vCenter by the operator; its last word is in the conditions."""
    now = time.time()
    nodes = [PlacedNode(node, classify(node, now, grace)) for node in await client.list(NODE, type=Node)]
    fleet = await client.find(FLEET, NAME, type=Fleet)
    entries = targets_of(fleet.spec.platform if fleet is not None else PlatformPolicy())
    there = {key_of(daemon_set.metadata): daemon_set for daemon_set in await client.list(DAEMON_SET, type=DaemonSet)}
    scopes = [
        decide_scope(ScopeFacts(target, there.get(key_of_target(target)), nodes, grace=grace), RevertLimits(), now)
        for target in resolve(entries, (daemon_set.metadata for daemon_set in there.values()))
    ]
    served = await _policies_served(client)
    in_force = await _rules_in_force(client, entries, scopes) if served else frozenset()
    lines = [_line(scope, in_force) for scope in scopes]
    reported = (fleet.status if fleet is not None else FleetStatus()).conditions
    classes = (
        ClassLine(str(kind), tuple(sorted(placed.name for placed in nodes if placed.found.kind is kind)))
        for kind in Class
    )
    return PlatformStatus(
        tuple(classes),
        tuple(lines),
        tuple(
            msgspec.structs.replace(condition, type=condition.type.removeprefix(CONDITION_PREFIX))
            for condition in reported
            if condition.type.startswith(CONDITION_PREFIX)
        ),
        "" if served else f"Server-side apply is the way here: {NO_POLICIES}.",
        node_deletion(await _cloud_controllers(client, there), nodes),
    )


def node_deletion(controllers: Iterable[str], nodes: Iterable[PlacedNode]) -> str:
    """A cloud controller deletes a NotReady Node if it finds no VM for its providerID, whoever gave it that."""
    controllers = sorted(controllers)
    foreign = sorted(placed.name for placed in nodes if placed.found.kind is Class.OTHER)
    if not controllers or not foreign:
        return ""
    return (
        f"{names(controllers)} may delete these Nodes while they are NotReady, for their providerID is no VM's: "
        f"{names(foreign)}. A Node that registers again lacks what others wrote on it: labels, taints, holds."
    )


async def _cloud_controllers(client: Client, daemon_sets: Iterable[str]) -> set[str]:
    """The vSphere cloud controllers here: a Deployment on OpenShift, else a DaemonSet."""
    deployments = (key_of(deployment.metadata) for deployment in await client.list(DEPLOYMENT, type=Object))
    return {key for key in (*daemon_sets, *deployments) if _CLOUD_CONTROLLER.search(key.partition("/")[2])}


def _line(scope: Scope, in_force: Collection[str]) -> ScopeLine:
    target = scope.target
    by_policy = describe_rule(target) in in_force and scope.state is not State.HELD_BACK
    way = str(Way.POLICY) if by_policy else str(Way.APPLY) if scope.state is State.IN_PLACE else "none yet"
    return ScopeLine(
        key_of_target(target), target.platform, describe_rule(target), scope.state, scope.why, way, scope.eligible,
        scope.kept_off, target.namespace,
    )  # fmt: skip


async def _policies_served(client: Client) -> bool:
    try:
        await client.list(POLICY, type=PolicySpec)
    except NotFound:
        return False
    return True


async def _rules_in_force(
    client: Client, entries: Sequence[ScopedDaemonSet], scopes: Sequence[Scope]
) -> frozenset[str]:
    """The rules whose admission policy and binding are there as the operator makes them."""
    found = set()
    for wanted in rules_wanted(entries, scopes):
        policy = await client.find(POLICY, wanted.name, type=PolicySpec)
        binding = await client.find(BINDING, wanted.name, type=PolicySpec)
        if policy is None or binding is None:
            continue
        if as_wanted(policy.spec, wanted.policy) and as_wanted(binding.spec, wanted.binding):
            found.add(wanted.rule)
    return frozenset(found)
