"""The picture without an operator: what the objects themselves tell."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from hostler.instant import Instant
from hostler.inventory.joining import join_layers
from hostler.inventory.model import Layer
from hostler.inventory.nodes import node_layer
from hostler.inventory.overdue import judge_overdue
from hostler.inventory.wire import HostRow, HostsAnswer
from hostler.kube.client import Client
from hostler.kube.kinds import NODE
from hostler.kube.records import Node

ONLY_OBJECTS = "This is what the objects tell; VMs, ESXi hosts, safe to stop and history need an operator."
# Lists the objects of one capability, as layers.
ListLayers = Callable[[Client], Awaitable[Iterable[Layer]]]


async def hosts_of_objects(client: Client, cluster: str, others: Iterable[ListLayers], now: Instant) -> HostsAnswer:
    layers = [node_layer(node, cluster) for node in await client.list(NODE, type=Node)]
    for list_layers in others:
        layers.extend(await list_layers(client))
    rows = tuple(HostRow(host, judge_overdue(host, now, {})) for host in join_layers(layers))
    return HostsAnswer("", now, rows, notes=(ONLY_OBJECTS,))
