"""BareMetalHosts as they are shown without an operator: what the objects themselves tell."""

from __future__ import annotations

from collections.abc import Sequence

from hostler.apis import capi, metal3
from hostler.apis.capi import Machine
from hostler.apis.metal3 import BareMetalHost, Metal3Machine
from hostler.inventory.look import Looked, list_readable
from hostler.kube.client import Client
from hostler.kube.records import Node, key_of
from hostler.kube.store import Store
from hostler.metal.caches import consumer_key, owner_key
from hostler.metal.host_layers import ThisCluster
from hostler.metal.host_lines import Standing, bare_metal_layer, join_node
from hostler.metal.model import Facts


async def look_at_metal(client: Client, nodes: Sequence[Node], cluster: str) -> Looked:
    """Every BareMetalHost, with its Metal3Machine and its Machine where those can be read."""
    hosts = await list_readable(client, metal3.BARE_METAL_HOST, BareMetalHost)
    if not hosts.found:
        return Looked(notes=hosts.notes)
    machines = await list_readable(client, metal3.METAL3_MACHINE, Metal3Machine, capi.OLDER)
    owners = await list_readable(client, capi.MACHINE, Machine, capi.OLDER)
    known = {key_of(one.metadata): one for one in machines.found}
    owned = {key_of(one.metadata): one for one in owners.found}
    here = ThisCluster(_store_of(nodes), lambda _: None)
    layers = []
    for host in hosts.found:
        machine = known.get(consumer_key(host))
        consumer = host.spec.consumer_ref
        if machine is None or consumer is None or not consumer.is_machine(machine):
            layers.append(bare_metal_layer(Standing(host)))
            continue
        facts = Facts(machine, owned.get(owner_key(machine.metadata, "Machine")), host=host)
        layers.append(join_node(bare_metal_layer(Standing(host, facts)), facts, here, cluster))
    return Looked(tuple(layers), (*hosts.notes, *machines.notes, *owners.notes))


def _store_of(nodes: Sequence[Node]) -> Store[Node]:
    store = Store[Node]()
    for node in nodes:
        store.put(node)
    return store
