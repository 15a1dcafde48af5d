"""One look at a cluster, for the CLI: the same decisions the operator makes, without an operator."""

from __future__ import annotations

import time
from typing import TypeVar

import msgspec

from hostler.fleet.model import NAME, Fleet, FleetStatus, PlatformPolicy, ScopedDaemonSet
from hostler.host.conditions import Condition, names
from hostler.host.platform import Class, classify
from hostler.kube.client import Client
from hostler.kube.errors import NotFound
from hostler.kube.kinds import DAEMON_SET, FLEET, NODE, Kind
from hostler.kube.records import Node
from hostler.platform.decide import Limits, ScopeFacts, decide_scope
from hostler.platform.model import (
    BINDING,
    POLICY,
    DaemonSet,
    PlacedNode,
    PolicySpec,
    State,
    Way,
    key_of_target,
    targets_of,
)
from hostler.platform.policy import as_wanted, manifests
from hostler.platform.scope import words

T = TypeVar("T")
PREFIX = "Platform"


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
    state: str
    why: str
    way: str
    may_run_on: tuple[str, ...] = ()
    kept_off: tuple[str, ...] = ()

    @property
    def may_run_words(self) -> str:
        return names(self.may_run_on) or "no node"

    @property
    def kept_off_words(self) -> str:
        return names(self.kept_off) or "no node"


class Status(msgspec.Struct, rename="camel", frozen=True):
    classes: tuple[ClassLine, ...]
    daemon_sets: tuple[ScopeLine, ...]
    conditions: tuple[Condition, ...]


async def status_of(client: Client, grace: float) -> Status:
    """Everything, read once. Nodes are checked against vCenter by the operator; its last word is in the conditions."""
    now = time.time()
    nodes = [PlacedNode(one, classify(one, now, grace)) for one in await client.list(NODE, type=Node)]
    fleet = await _one(client, FLEET, NAME, None, Fleet)
    lines = []
    for target in targets_of(fleet.spec.platform if fleet is not None else PlatformPolicy()):
        current = await _one(client, DAEMON_SET, target.name, target.namespace, DaemonSet)
        scope = decide_scope(ScopeFacts(target, current, nodes), Limits(), now)
        in_force = await _in_force(client, [target])
        way = str(Way.POLICY) if in_force else str(Way.APPLY) if scope.state is State.IN_PLACE else "none yet"
        lines.append(
            ScopeLine(
                key_of_target(target), target.platform, words(target), str(scope.state), scope.why, way,
                scope.eligible, scope.kept_off,
            )
        )  # fmt: skip
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
    )


async def _in_force(client: Client, targets: list[ScopedDaemonSet]) -> bool:
    """Whether the admission policy of these targets and its binding are there; others may share the policy."""
    (wanted,) = manifests(targets)
    policy = await _one(client, POLICY, wanted.name, None, PolicySpec)
    binding = await _one(client, BINDING, wanted.name, None, PolicySpec)
    if policy is None or binding is None:
        return False
    named = str((policy.spec.get("matchConditions") or [{}])[0].get("expression", ""))
    return as_wanted(binding.spec, wanted.binding) and all(f'"{one.name}"' in named for one in targets)


async def _one(client: Client, kind: Kind, name: str, namespace: str | None, type: type[T]) -> T | None:
    """What is not there is not there; what may not be read is an error."""
    try:
        return await client.get(kind, name, namespace, type=type)
    except NotFound:
        return None
