"""The picture without an operator: what the objects themselves tell."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from hostler.host.conditions import names
from hostler.instant import Instant
from hostler.inventory.joining import join_layers
from hostler.inventory.model import Layer
from hostler.inventory.nodes import node_layer
from hostler.inventory.overdue import judge_overdue
from hostler.inventory.wire import HostRow, HostsAnswer
from hostler.kube.client import Client
from hostler.kube.errors import Forbidden, NotFound
from hostler.kube.kinds import NODE, Kind
from hostler.kube.records import Node

R = TypeVar("R")
ONLY_OBJECTS = "This is what the objects tell; VMs, ESXi hosts, safe to stop and history need an operator."


@dataclass(frozen=True, slots=True)
class Readable(Generic[R]):
    """The objects of one kind. One that is not served, or that may not be read, has none, and a note."""

    found: tuple[R, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Looked:
    """What one capability's objects tell."""

    layers: tuple[Layer, ...] = ()
    notes: tuple[str, ...] = ()


# Lists the objects of one capability, as layers; it is given the nodes, and what this cluster is called.
LookAt = Callable[[Client, Sequence[Node], str], Awaitable[Looked]]


async def hosts_of_objects(client: Client, cluster: str, others: Iterable[LookAt], now: Instant) -> HostsAnswer:
    nodes = await list_readable(client, NODE, Node)
    layers, notes = [node_layer(node, cluster) for node in nodes.found], [ONLY_OBJECTS, *nodes.notes]
    for look_at in others:
        looked = await look_at(client, nodes.found, cluster)
        layers += looked.layers
        notes += looked.notes
    rows = tuple(HostRow(host, judge_overdue(host, now, {})) for host in join_layers(layers))
    return HostsAnswer("", now, rows, notes=tuple(notes))


async def list_readable(client: Client, kind: Kind, type: type[R], older: Sequence[str] = ()) -> Readable[R]:
    """`older`: versions to ask for where the kind's own is not served."""
    for version in (kind.version, *older):
        try:
            return Readable(tuple(await client.list(replace(kind, version=version), type=type)))
        except NotFound:
            continue
        except Forbidden:
            return Readable(notes=(f"You may not list {kind.resource}: what only they tell is not shown.",))
    versions = names((kind.version, *older)) if older else kind.version
    return Readable(notes=(f"{kind.kind}s are not installed here ({kind.group} {versions}).",))
