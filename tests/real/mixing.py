"""Bare metal hosts, their machines and Agents beside the nodes of a sandbox: proven, in doubt, and nobody's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hostler.sandbox import Sandbox
from hostler.sandbox.build import Silent
from hostler.sandbox.crds import install_crds
from hostler.sandbox.load import create
from tests.real.conftest import own_namespace
from tests.real.metal_world import World, install, mac, uninstall
from tests.real.reclaiming import GROUP

Json = dict[str, Any]
CLUSTER = ("cluster.x-k8s.io/cluster-name", "cluster.x-k8s.io/cluster-namespace")


@contextmanager
def mixed(box: Sandbox) -> Iterator[World]:
    """BareMetalHosts `free`, `joined` (node metal-0), `doubtful` (its Machine names metal-1) and `waiting` (a machine
    without a host), and Agents: `edge-1` is host `free`, `edge-2` only says that it is host `joined`."""
    install(box)
    install_crds(box, ["agents"], Silent())
    with own_namespace(box, "mixed") as namespace:
        world = World(box, namespace)
        box.kubectl("annotate", "node", "cp-0", f"{CLUSTER[0]}={world.cluster}", f"{CLUSTER[1]}={namespace}")
        try:
            world.make_hosts("free", "joined", "doubtful", ready=True)
            world.make_machines("joined", "doubtful", "waiting")
            _settle(world, "joined", "metal-0", agrees=True)
            _settle(world, "doubtful", "metal-1", agrees=False)
            create(
                box, [_agent(world, "edge-1", "free", mac(0)), _agent(world, "edge-2", "joined", "02:00:00:00:ff:ff")]
            )
            yield world
        finally:
            box.kubectl("annotate", "node", "cp-0", *(f"{key}-" for key in CLUSTER))
            world.api.clear(f"/apis/{GROUP}/v1beta1", "agents", namespace)
            world.scrub()
            world.api.close()
    uninstall(box)


def _settle(world: World, name: str, node: str, *, agrees: bool) -> None:
    """A host that is a node, as Cluster API and Metal3's provider leave it."""
    provider = f"metal3://{world.namespace}/{name}/{name}"
    consumer = {
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "Metal3Machine", "name": name,
        "namespace": world.namespace,
    }  # fmt: skip
    world.api.patch(world.hosts_path(name), {"spec": {"consumerRef": consumer, "online": True}})
    status = {"provisioning": {"ID": "x", "state": "provisioned"}, "poweredOn": True}
    world.api.patch(f"{world.hosts_path(name)}/status", {"status": status})
    machine = world.metal("metal3machines", name)
    named = {"annotations": {"metal3.io/BareMetalHost": f"{world.namespace}/{name}"}}
    world.api.patch(machine, {"metadata": named, "spec": {"providerID": provider}})
    world.api.patch(f"{machine}/status", {"status": {"initialization": {"provisioned": True}}})
    other = provider if agrees else f"metal3://{world.namespace}/another/{name}"
    world.api.patch(world.capi("machines", name), {"spec": {"providerID": other}})
    world.is_node(name, node)


def _agent(world: World, name: str, host: str, address: str) -> Json:
    interface = {"name": "eth0", "macAddress": address, "flags": [], "ipV4Addresses": [], "ipV6Addresses": []}
    labels = {f"{GROUP}/bmh": host, f"infraenvs.{GROUP}": "rack-7"}
    return {
        "apiVersion": f"{GROUP}/v1beta1", "kind": "Agent",
        "metadata": {"name": name, "namespace": world.namespace, "labels": labels},
        "spec": {"approved": True, "role": "worker", "hostname": name},
        "status": {"debugInfo": {"state": "known-unbound"}, "inventory": {"interfaces": [interface]}},
    }  # fmt: skip
