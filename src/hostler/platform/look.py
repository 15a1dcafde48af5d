"""One look at a cluster, for the CLI: the same decisions the operator makes, without an operator."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterable, Sequence
from typing import TypeVar

import msgspec

from hostler.apis.fleet import NAME, Fleet, FleetStatus, PlatformPolicy, ScopedDaemonSet
from hostler.host.conditions import Condition, names
from hostler.host.platform import Class, classify
from hostler.host.reverts import RevertLimits
from hostler.kube.client import Client
from hostler.kube.errors import NotFound
from hostler.kube.kinds import DAEMON_SET, DEPLOYMENT, FLEET, NODE, Kind
from hostler.kube.records import Node, Object, key_of
from hostler.platform.model import (
    BINDING,
    NO_POLICIES,
    POLICY,
    DaemonSet,
    PlacedNode,
    PolicySpec,
    Scope,
    State,
    Way,
)
from hostler.platform.policy import as_wanted, rules_wanted
from hostler.platform.scope import describe_rule
from hostler.platform.scoping import ScopeFacts, decide_scope
from hostler.platform.targets import key_of_target, resolve, targets_of

T = TypeVar("T")
PREFIX = "Platform"
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


class Status(msgspec.Struct, rename="camel", frozen=True):
    classes: tuple[ClassLine, ...]
    daemon_sets: tuple[ScopeLine, ...]
    conditions: tuple[Condition, ...]
    note: str = ""
    node_deletion: str = ""  # who may delete which nodes


async def status_of(client: Client, grace: float) -> Status:
    """Everything, read once. Nodes are checked against vCenter by the operator; its last word is in the conditions."""
    now = time.time()
    nodes = [PlacedNode(one, classify(one, now, grace)) for one in await client.list(NODE, type=Node)]
    fleet = await _one(client, FLEET, NAME, None, Fleet)
    entries = targets_of(fleet.spec.platform if fleet is not None else PlatformPolicy())
    there = {key_of(one.metadata): one for one in await client.list(DAEMON_SET, type=DaemonSet)}
    scopes = [
        decide_scope(ScopeFacts(target, there.get(key_of_target(target)), nodes, grace=grace), RevertLimits(), now)
        for target in resolve(entries, (one.metadata for one in there.values()))
    ]
    served = await _policies_served(client)
    in_force = await _rules_in_force(client, entries, scopes) if served else frozenset()
    lines = [_line(scope, in_force) for scope in scopes]
    said = (fleet.status if fleet is not None else FleetStatus()).conditions
    classes = (
        ClassLine(str(kind), tuple(sorted(one.name for one in nodes if one.found.kind is kind))) for kind in Class
    )
    return Status(
        tuple(classes),
        tuple(lines),
        tuple(
            msgspec.structs.replace(one, type=one.type.removeprefix(PREFIX))
            for one in said
            if one.type.startswith(PREFIX)
        ),
        "" if served else f"Server-side apply is the way here: {NO_POLICIES}.",
        node_deletion(await _cloud_controllers(client, there), nodes),
    )


def node_deletion(controllers: Iterable[str], nodes: Iterable[PlacedNode]) -> str:
    """A cloud controller deletes a NotReady Node if it finds no VM for its providerID, whoever gave it that."""
    controllers = sorted(controllers)
    foreign = sorted(one.name for one in nodes if one.found.kind is Class.OTHER)
    if not controllers or not foreign:
        return ""
    return (
        f"{names(controllers)} may delete these Nodes while they are NotReady, for their providerID is no VM's: "
        f"{names(foreign)}. A Node that registers again lacks what others wrote on it: labels, taints, holds."
    )


async def _cloud_controllers(client: Client, daemon_sets: Iterable[str]) -> set[str]:
    """The vSphere cloud controllers here: a Deployment on OpenShift, else a DaemonSet."""
    deployments = (key_of(one.metadata) for one in await client.list(DEPLOYMENT, type=Object))
    return {key for key in (*daemon_sets, *deployments) if _CLOUD_CONTROLLER.search(key.partition("/")[2])}


def _line(scope: Scope, in_force: Collection[str]) -> ScopeLine:
    target = scope.target
    by_policy = describe_rule(target) in in_force and scope.state is not State.HELD_BACK
    way = str(Way.POLICY) if by_policy else str(Way.APPLY) if scope.state is State.IN_PLACE else "none yet"
    return ScopeLine(
        key_of_target(target), target.platform, describe_rule(target), scope.state, scope.why, way, scope.eligible,
        scope.kept_off,
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
        policy = await _one(client, POLICY, wanted.name, None, PolicySpec)
        binding = await _one(client, BINDING, wanted.name, None, PolicySpec)
        if policy is None or binding is None:
            continue
        if as_wanted(policy.spec, wanted.policy) and as_wanted(binding.spec, wanted.binding):
            found.add(wanted.rule)
    return frozenset(found)


async def _one(client: Client, kind: Kind, name: str, namespace: str | None, type: type[T]) -> T | None:
    """What is not there is not there; what may not be read is an error."""
    try:
        return await client.get(kind, name, namespace, type=type)
    except NotFound:
        return None
