"""What the picture of 5,000 hosts costs: 3,000 VMs on 500 ESXi hosts, 1,500 BareMetalHosts, 500 Agents.

    python -m bench.inventory          # measures, and writes its section of bench/RESULTS.md
    python -m bench.inventory --dry    # only prints

One process without an API server: stores are filled as watches fill them. The layers of BareMetalHosts, Agents and
Nodes come from the operator's own sources; those of VMs and ESXi hosts are made as `VSphereSource` makes them. 1,000 of
the BareMetalHosts are nodes of this cluster; claims, reclaims and a maintenance are under way. `hostler hosts` is a
process of its own that asks over loopback.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import gc
import os
import pstats
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from aiohttp import web

from bench import load
from bench.follow import resident_kib
from bench.inventory_stream import VIEWERS, watch_stream
from bench.runtime import machine, say, write_section
from hostler import lean_imports

lean_imports.import_lean()  # as the operator does

from hostler.apis.assisted import Agent  # noqa: E402
from hostler.apis.capi import CLUSTER_NAME, CLUSTER_NAMESPACE, Cluster, Machine  # noqa: E402
from hostler.apis.metal3 import BareMetalHost, Metal3Machine  # noqa: E402
from hostler.drain.observe import ATTACHMENT_INDEXES, POD_INDEXES, Sources  # noqa: E402
from hostler.explain.read_api import answer  # noqa: E402
from hostler.host.facts import Known  # noqa: E402
from hostler.instant import iso  # noqa: E402
from hostler.inventory.model import Layer, LayerKind, Line, Where, esxi_key, node_key, vm_key  # noqa: E402
from hostler.inventory.nodes import node_layer  # noqa: E402
from hostler.inventory.service import InventoryService  # noqa: E402
from hostler.inventory.sources import Source, StoreSource  # noqa: E402
from hostler.inventory.states import HostState  # noqa: E402
from hostler.inventory.stopping import StopSources  # noqa: E402
from hostler.kube import kinds  # noqa: E402
from hostler.kube.budget import WriteBudget  # noqa: E402
from hostler.kube.client import Client  # noqa: E402
from hostler.kube.clock import boottime  # noqa: E402
from hostler.kube.clusters import Clusters  # noqa: E402
from hostler.kube.connection import Credentials  # noqa: E402
from hostler.kube.events import Recorder  # noqa: E402
from hostler.kube.metrics import Metrics  # noqa: E402
from hostler.kube.records import Node, Pod, PodDisruptionBudget, VolumeAttachment, Workload  # noqa: E402
from hostler.kube.store import Store  # noqa: E402
from hostler.kube.watch import Watch  # noqa: E402
from hostler.kube.writer import Writer  # noqa: E402
from hostler.metal.caches import Caches, DataCaches  # noqa: E402
from hostler.metal.claiming.choose import Policy  # noqa: E402
from hostler.metal.claiming.claims import Claims  # noqa: E402
from hostler.metal.controller import MachineReconciler  # noqa: E402
from hostler.metal.data.controller import DataReconciler  # noqa: E402
from hostler.metal.host_layers import MetalSource  # noqa: E402
from hostler.metal.nodes import NodeFinder  # noqa: E402
from hostler.metal.remediation.controller import RemediationReconciler  # noqa: E402
from hostler.metal.toolbox import Toolbox  # noqa: E402
from hostler.reclaim.host_layers import ReclaimSource  # noqa: E402

VMS, ESXI, METAL, AGENTS = 3000, 500, 1500, 500
METAL_NODES, CLAIMS, PODS_PER_NODE = 1000, 40, 5
NOW = 1_750_000_000.0
AT = iso(NOW - 3600)
Json = dict[str, Any]


class Nowhere:
    """A connection that is never used."""

    server, server_hostname, proxy, namespace = "http://127.0.0.1:9", None, None, "default"

    async def credentials(self) -> Credentials:
        return Credentials({}, None)

    def rejected(self) -> None:
        pass


class MadeSource(Source):
    """Layers of VMs and ESXi hosts."""

    def __init__(self, layers: list[Layer]) -> None:
        self.changed: dict[str, Layer | None] = {layer.key: layer for layer in layers}

    def listen(self, changed: Callable[[], None]) -> None: ...

    def take(self) -> Mapping[str, Layer | None]:
        changed, self.changed = self.changed, {}
        return changed

    def running_vms(self, key: str) -> Known[tuple[str, ...]] | None:
        return Known(("vm-1", "vm-2"), time.time()) if key.startswith(LayerKind.ESXI) else None


def vsphere_layers(vms: int, esxi: int) -> list[Layer]:
    found = []
    for number in range(esxi):
        name, out = f"esx-{number:03d}.example.org", number < 3
        state = HostState.DRAINING if out else HostState.IN_SERVICE
        why = "It enters maintenance mode." if out else "It is connected and not in maintenance mode."
        where = Where(vcenter="vc-1", compute_cluster=f"compute-{number % 10}", esxi=name)
        line = Line("vsphere", state, why, NOW - 60 if out else None, mid_step=out)
        found.append(Layer(esxi_key("vc-1", f"uuid-{number:032d}"), LayerKind.ESXI, name, (line,), where=where))
    for number in range(vms):
        host = number % esxi
        where = Where(vcenter="vc-1", compute_cluster=f"compute-{host % 10}", esxi=f"esx-{host:03d}.example.org")
        found.append(
            Layer(
                vm_key("vc-1", f"uuid-{number:032d}"), LayerKind.VM, f"node-{number:05d}",
                (Line("vsphere", HostState.PROVISIONED, "vCenter reports that the VM runs."),), where=where,
                same_as=(node_key("prod", f"node-{number:05d}"),), under=esxi_key("vc-1", f"uuid-{host:032d}"),
            )
        )  # fmt: skip
    return found


def node_body(number: int, vms: int) -> Json:
    body = load.node(number)
    if number >= vms:
        body["spec"]["providerID"] = f"metal3://metal/host-{number - vms:05d}/machine-{number - vms:05d}"
    if number < 3:
        body["metadata"]["labels"]["node-role.kubernetes.io/control-plane"] = ""
        body["metadata"]["annotations"] = {CLUSTER_NAME: "prod", CLUSTER_NAMESPACE: "metal"}
    return body


def host_body(number: int, nodes: int, claims: int) -> tuple[Json, Json | None, Json | None]:
    """A BareMetalHost; its Metal3Machine and its Machine, if it has one."""
    name, machine = f"host-{number:05d}", f"machine-{number:05d}"
    about = {"name": name, "namespace": "metal", "labels": {"topology.kubernetes.io/rack": f"r{number % 40}"}}
    status: Json = {
        "operationalStatus": "OK", "poweredOn": True, "hardware": {"hostname": name},
        "operationHistory": {"provision": {"start": AT, "end": AT}},
    }  # fmt: skip
    spec: Json = {"online": True, "bootMACAddress": f"02:00:00:00:{number // 256:02x}:{number % 256:02x}"}
    if number >= nodes + claims:
        return (
            {"metadata": about, "spec": spec, "status": {**status, "provisioning": {"state": "available"}}},
            None,
            None,
        )
    settled = number < nodes
    api = "infrastructure.cluster.x-k8s.io/v1beta2"
    spec["consumerRef"] = {"apiVersion": api, "kind": "Metal3Machine", "name": machine, "namespace": "metal"}
    spec["image"] = {"url": "http://images.invalid/os.raw"}
    status["provisioning"] = {"state": "provisioned" if settled else "provisioning"}
    provider = f"metal3://metal/{name}/{machine}" if settled else ""
    owned = {"name": machine, "namespace": "metal", "creationTimestamp": AT}
    consumer = {
        "metadata": {
            **owned, "annotations": {"metal3.io/BareMetalHost": f"metal/{name}"},
            "ownerReferences": [{"kind": "Machine", "name": machine}], "labels": {CLUSTER_NAME: "prod"},
        },
        "spec": {"providerID": provider, "image": {"url": "http://images.invalid/os.raw", "checksum": "x"}},
        "status": {"initialization": {"provisioned": settled}},
    }  # fmt: skip
    owner = {
        "metadata": owned,
        "spec": {"clusterName": "prod", "providerID": provider, "bootstrap": {"dataSecretName": "boot"}},
        "status": {"nodeRef": {"name": f"node-{VMS + number:05d}" if settled else ""}},
    }
    return {"metadata": about, "spec": spec, "status": status}, consumer, owner


def agent_body(number: int) -> Json:
    labels = {"infraenvs.agent-install.openshift.io": f"rack-{number % 20}"}
    about = {
        "name": f"0c1a9d3e-0001-4000-8000-{number:012x}",
        "namespace": "hub",
        "uid": f"a{number}",
        "labels": labels,
    }
    state = "reclaiming" if number < 20 else "installed" if number < 300 else "known-unbound"
    status: Json = {"debugInfo": {"state": state}, "progress": {"stageStartTime": AT}}
    spec: Json = {"hostname": f"edge-{number:04d}"}
    if state == "installed":
        spec["clusterDeploymentName"] = {"namespace": "hub", "name": f"edge-{number % 100}"}
    return {"metadata": about, "spec": spec, "status": status}


class World:
    """The stores, filled; `service` makes the picture over them."""

    def __init__(self, client: Client, size: float) -> None:
        """`size`: 1 is the whole fleet."""
        self.vms, self.esxi, self.metal_hosts, self.agents_there = (
            int(size * many) for many in (VMS, ESXI, METAL, AGENTS)
        )
        self._version = 0
        metrics = Metrics()
        self.nodes = self._watch(client, metrics, kinds.NODE, Node)
        self.pods = self._watch(client, metrics, kinds.POD, Pod, indexes=POD_INDEXES)
        self.drain = Sources(
            self.pods,
            self._watch(client, metrics, kinds.POD_DISRUPTION_BUDGET, PodDisruptionBudget),
            self._watch(client, metrics, kinds.VOLUME_ATTACHMENT, VolumeAttachment, indexes=ATTACHMENT_INDEXES),
            self._watch(client, metrics, kinds.DAEMON_SET, Workload),
        )
        self.caches = caches = Caches.make(client, metrics)
        for watch in caches.all():
            watch.store.synced = True
        self.agents = Store[Agent]()
        writer = Writer(client, "metal", gate=lambda: None, budget=WriteBudget(100), dry_run=True)
        clusters, recorder = Clusters(client), Recorder(writer, "bench", metrics)
        tools = Toolbox(
            caches, DataCaches.make(client, metrics), client, writer, recorder, metrics, clusters, lambda _: writer
        )
        claims = Claims(tools, Policy(), lambda _: None, later=lambda *_: None)
        data, nodes = DataReconciler(tools), NodeFinder(clusters, lambda _: writer)
        self.keeper = MachineReconciler(tools, claims, data, nodes)
        self.remediator = RemediationReconciler(tools, shaky=claims.shaky)
        self._fill(min(METAL_NODES, self.metal_hosts * 2 // 3), min(CLAIMS, self.metal_hosts // 10))

    def _watch(self, client: Client, metrics: Metrics, kind: Any, record: Any, **more: Any) -> Watch[Any]:
        watch = Watch[Any](client, kind, record, metrics=metrics, **more)
        watch.store.synced, watch.heard = True, boottime()
        return watch

    def put(self, store: Store[Any], record: Any, body: Json) -> Any:
        self._version += 1
        body["metadata"]["resourceVersion"] = str(self._version)
        # As a watch decodes it.
        made = msgspec.json.decode(msgspec.json.encode(body), type=record)
        store.put(made)
        return made

    def _fill(self, metal_nodes: int, claims: int) -> None:
        caches = self.caches
        cluster = {"metadata": {"name": "prod", "namespace": "metal"}, "spec": {"infrastructureRef": {"name": "prod"}}}
        self.put(caches.capi_clusters.store, Cluster, cluster)
        total = self.vms + metal_nodes
        for number in range(total):
            self.put(self.nodes.store, Node, node_body(number, self.vms))
        for number in range(total * PODS_PER_NODE):
            body = load.pod(number, total)
            body["metadata"]["namespace"] = f"ns-{number % 20}"
            self.put(self.pods.store, Pod, body)
        for number in range(self.metal_hosts):
            host, consumer, owner = host_body(number, metal_nodes, claims)
            if consumer is not None and owner is not None:
                owner["status"]["nodeRef"]["name"] = f"node-{self.vms + number:05d}" if number < metal_nodes else ""
                self.put(caches.capi_machines.store, Machine, owner)
                self.put(caches.machines.store, Metal3Machine, consumer)
            self.put(caches.hosts.store, BareMetalHost, host)
        for number in range(self.agents_there):
            self.put(self.agents, Agent, agent_body(number))

    def service(self) -> InventoryService:
        nodes = StoreSource[Node](
            self.nodes.store, lambda name: node_key("prod", name), lambda node: node_layer(node, "prod")
        )
        others: list[Source] = [
            MadeSource(vsphere_layers(self.vms, self.esxi)),
            MetalSource(self.keeper, self.remediator, self.nodes.store, Store(), "prod", time.time),
            ReclaimSource(self.agents, {}, lambda: None, self.nodes.store, "prod"),
        ]
        stopping = StopSources(self.nodes, self.drain, others, lambda: Known("node-00000", time.time()))
        return InventoryService("bench", (nodes, *others), stopping, time.time)

    def confirm(self) -> None:
        """The API server confirms what is in the stores."""
        for watch in (self.nodes, *(self.drain.pods, self.drain.budgets, self.drain.attachments)):
            watch.heard = boottime()


def cpu_ms(work: Callable[[], object], times: int) -> float:
    """The median of so many."""
    spent = []
    for _ in range(times):
        began = time.process_time()
        work()
        spent.append((time.process_time() - began) * 1e3)
    return statistics.median(spent)


def measure(world: World) -> tuple[InventoryService, dict[str, float]]:
    gc.collect()
    before = resident_kib()
    began = time.process_time()
    service = world.service()
    service.refresh()
    first = (time.process_time() - began) * 1e3
    gc.collect()
    found = {"first": first, "MiB": (resident_kib() - before) / 1024}
    world.confirm()
    found["hosts"] = len(service.hosts().hosts)
    found["answer"] = cpu_ms(lambda: answer(service.hosts()), 9)
    found["with labels"] = cpu_ms(lambda: answer(service.hosts(labels=True)), 9)
    found["bytes"] = len(answer(service.hosts()).body or b"")  # type: ignore[arg-type]
    found["bytes with labels"] = len(answer(service.hosts(labels=True)).body or b"")  # type: ignore[arg-type]
    found["operations"] = cpu_ms(service.operations, 5)
    found["MiB after"] = (resident_kib() - before) / 1024
    return service, found


def changes(world: World, service: InventoryService) -> dict[str, float]:
    """What one change costs: the layer, the join, and the answer to a reader that knows the rest."""
    number = 0

    def change(store: Store[Any], record: Any, body: Callable[[int], Json]) -> float:
        def once() -> None:
            nonlocal number
            number += 1
            version = service.news("").version if number == 1 else service.hosts(last[0]).version
            last[0] = version
            world.put(store, record, body(number))
            answer(service.hosts(last[0]))

        last = [service.news("").version]
        whole = cpu_ms(once, 60)
        alone = cpu_ms(lambda: world.put(Store[Any](), record, body(1)), 60)  # making and decoding the object
        return whole - alone

    def node(at: int) -> Json:
        made = node_body(100 + at % 50, world.vms)
        made["spec"]["unschedulable"] = at % 2 == 0
        return made

    def host(at: int) -> Json:
        made = host_body(METAL_NODES + at % 30, METAL_NODES, CLAIMS)[0]
        made["status"]["poweredOn"] = at % 2 == 0
        made["metadata"]["labels"]["at"] = str(at)
        return made

    def agent(at: int) -> Json:
        made = agent_body(400 + at % 50)
        made["spec"]["approved"] = at % 2 == 0
        return made

    return {
        "node": change(world.nodes.store, Node, node),
        "claimed host": change(world.caches.hosts.store, BareMetalHost, host),
        "agent": change(world.agents, Agent, agent),
    }


async def commands(service: InventoryService, world: World, times: int) -> float:
    """Seconds of `hostler hosts`, median."""

    async def hosts(request: web.Request) -> web.Response:
        world.confirm()
        return answer(service.hosts(labels="labels" in request.query))

    app = web.Application()
    app.router.add_get("/v1/hosts", hosts)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    spent = []
    try:
        for _ in range(times):
            began = time.monotonic()
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "hostler", "hosts", "--operator", f"http://127.0.0.1:{port}",
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "COLUMNS": "120"},
            )  # fmt: skip
            out, err = await process.communicate()
            spent.append(time.monotonic() - began)
            if process.returncode or len(out.splitlines()) < len(service.hosts().hosts):
                raise SystemExit(f"hostler hosts failed: {err.decode()[-500:]}")
    finally:
        await runner.cleanup()
    return statistics.median(spent)


def cordon(world: World, number: int) -> None:
    body = node_body(100 + number, world.vms)
    body["spec"]["unschedulable"] = True
    world.put(world.nodes.store, Node, body)


async def run(profile: bool) -> str:
    async with Client(Nowhere()) as client:
        say("filling the stores")
        world = World(client, 1.0)
        service, found = measure(world)
        say(f"{found}")
        if profile:
            profiled = cProfile.Profile()
            profiled.runcall(lambda: [answer(service.hosts()) for _ in range(5)])
            pstats.Stats(profiled).sort_stats("cumulative").print_stats(30)
        each = changes(world, service)
        say(f"{each}")
        idle, cpu, took = await watch_stream(service, lambda number: cordon(world, number))
        say(f"{VIEWERS} viewers: {idle:.1f} B/s idle, {cpu:.1f} ms CPU and {took:.0f} ms a change")
        small = World(client, 0.04)
        seconds = {
            5000: await commands(service, world, 5), 200: await commands(small.service(), small, 5)
        }  # fmt: skip
    rows = [
        ("CPU ms of a full answer, encoded", f"{found['answer']:.0f}", "<= 150"),
        ("the same with every label", f"{found['with labels']:.0f}", ""),
        ("MiB of these answers", f"{found['bytes'] / 2**20:.1f}; {found['bytes with labels'] / 2**20:.1f}", ""),
        ("CPU ms of `/v1/operations`", f"{found['operations']:.0f}", ""),
        *((f"CPU ms of a change of a {kind}, with the answer to one reader", f"{ms:.2f}", "<= 1")
          for kind, ms in each.items()),
        (f"B/s that each of {VIEWERS} viewers gets while nothing changes", f"{idle:.1f}", "<= 1024"),
        (f"CPU ms of a change for {VIEWERS} viewers, they themselves included", f"{cpu:.1f}", ""),
        ("ms until the last of them has it", f"{took:.0f}", "<= 1000"),
        ("CPU ms until everything is joined, once", f"{found['first']:.0f}", ""),
        ("MiB more than without the picture; after ten full answers",
         f"{found['MiB']:.0f}; {found['MiB after']:.0f}", "<= 40"),
        ("s of `hostler hosts`, 200 hosts", f"{seconds[200]:.2f}", "<= 0.9"),
        ("s of `hostler hosts`, 5,000 hosts", f"{seconds[5000]:.2f}", "<= 1.5"),
    ]  # fmt: skip
    table = [f"| {what} | {measured} | {wanted} |" for what, measured, wanted in rows]
    head = (
        f"{found['hosts']:.0f} hosts: {VMS} VMs on {ESXI} ESXi hosts, {METAL} BareMetalHosts ({METAL_NODES} of them "
        f"nodes of this cluster), {AGENTS} Agents; {PODS_PER_NODE} pods per node."
    )
    return "\n".join([head, "", "| what | measured | wanted |", "|---|---|---|", *table])


def main() -> None:
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--dry", action="store_true", help="print only, write no results")
    args.add_argument("--profile", action="store_true", help="print where a full answer spends its time")
    chosen = args.parse_args()
    text = "\n".join(["## inventory", "", machine() + ".", "", asyncio.run(run(chosen.profile))])
    print(text)
    if not chosen.dry:
        write_section("inventory", text)


if __name__ == "__main__":
    main()
