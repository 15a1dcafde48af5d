"""Machines and hosts as an API server has them, and what decides about them: for tests of a machine's course."""

from __future__ import annotations

import copy
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from hostler.apis import capi, metal3, openshift
from hostler.apis.capi import Cluster, Machine
from hostler.apis.metal3 import BareMetalHost, BmcSecret, Metal3Machine
from hostler.kube.client import Client
from hostler.kube.kinds import SECRET
from hostler.kube.metrics import Metrics
from hostler.kube.records import Node, key_of
from hostler.kube.store import Store
from hostler.metal import names
from hostler.metal.caches import Caches
from hostler.metal.claiming.choose import Policy, Selection, choose
from hostler.metal.claiming.claims import Claims
from hostler.metal.controller import MachineReconciler
from hostler.metal.data.controller import DataReconciler
from hostler.metal.decide import decide_claim, decide_machine
from hostler.metal.host_layers import MetalSource
from hostler.metal.model import Facts, NodeSeen, Step, Write
from hostler.metal.nodes import NodeFinder
from hostler.metal.remediation.controller import RemediationReconciler
from hostler.metal.status import is_settled, status_write
from hostler.sandbox.hosts.model import Memory, Pace, Put, Secret
from hostler.sandbox.hosts.walk import Look
from tests.unit.metal_tools import toolbox
from tests.unit.nowhere import Nowhere

Json = dict[str, Any]
IMAGE = {"url": "http://x/os.raw", "checksum": "abc", "checksumType": "sha256"}
POLICY = Policy(Selection.ORDERED)  # so that there is one answer
CONSUMER = {"apiVersion": metal3.METAL3_MACHINE.api_version, "kind": "Metal3Machine", "name": "m", "namespace": "n"}
NOW = 1_000_000.0
PHASES = ("register", "inspect", "provision", "deprovision")


def machine_body(**meta: Any) -> Json:
    about = {"name": "m", "namespace": "n", "uid": "u", "resourceVersion": "1", "generation": 1, **meta}
    about["ownerReferences"] = [{"kind": "Machine", "name": "m"}]
    return {"metadata": about, "spec": {"image": IMAGE}, "status": {}}


def host_body(name: str, state: str = "available", *, mine: bool = False, **more: Any) -> Json:
    meta: Json = {"name": name, "namespace": "n", "uid": f"uid-{name}", "resourceVersion": "1", "generation": 1}
    meta |= {"finalizers": ["baremetalhost.metal3.io"], **more.pop("meta", {})}
    spec: Json = {
        "online": False, "automatedCleaningMode": "metadata", "bootMACAddress": "02:00:00:00:00:07",
        "architecture": "x", "bmc": {"address": "redfish://x", "credentialsName": f"bmc-{name}"},
        **more.pop("spec", {}),
    }  # fmt: skip
    if mine:
        spec |= {"consumerRef": CONSUMER}
    status: Json = {
        "operationalStatus": "OK", "errorMessage": "", "errorCount": 0, "poweredOn": bool(spec["online"]),
        "provisioningFailCount": 0, "triedCredentials": {}, "goodCredentials": {},
        "operationHistory": {phase: {"start": None, "end": None} for phase in PHASES},
        "provisioning": {"state": state, "ID": "id", "rootDeviceHints": {}, "image": spec.get("image") or {"url": ""}},
        **more.pop("status", {}),
    }  # fmt: skip
    assert not more
    return {"metadata": meta, "spec": spec, "status": status}


OWNER = msgspec.convert(
    {"metadata": {"name": "m", "namespace": "n", "resourceVersion": "1"},
     "spec": {"clusterName": "c", "bootstrap": {"dataSecretName": "boot"}}}, Machine
)  # fmt: skip
CLUSTER = msgspec.convert(
    {"metadata": {"name": "c", "namespace": "n", "resourceVersion": "1"},
     "status": {"initialization": {"infrastructureProvisioned": True}}}, Cluster
)  # fmt: skip


@dataclass
class Course:
    """One machine and the hosts of its namespace, written by the operator's decisions and by the sandbox's
    Baremetal Operator, which is checked against recordings of the real one. Writes hold for one version only."""

    machine: Json
    hosts: dict[str, Json]
    secret_cluster: str | None = None
    node: NodeSeen | None = None
    gone: bool = False
    now: float = NOW
    memories: dict[str, Memory] = field(default_factory=dict)
    writes: list[Write] = field(default_factory=list)

    def records(self) -> list[BareMetalHost]:
        return [msgspec.convert(one, BareMetalHost) for one in self.hosts.values()]

    def facts(self) -> Facts:
        machine, hosts = msgspec.convert(self.machine, Metal3Machine), self.records()
        own = [one for one in hosts if one.spec.consumer_ref is not None and one.spec.consumer_ref.is_machine(machine)]
        named = machine.metadata.annotations.get(names.HOST_ANNOTATION)
        at = next((one for one in hosts if key_of(one.metadata) == named), None)
        host = min(own, key=lambda one: one.metadata.name) if own else at
        owned = tuple(one for one in hosts if any(it.name == "m" for it in one.metadata.owner_references))
        return Facts(
            machine, OWNER, CLUSTER, host=host, node=self.node, secret_cluster=self.secret_cluster,
            several=len(own) > 1, owned=owned,
        )  # fmt: skip

    def look(self) -> bool:
        """One look of the operator, as its controller carries it out. False: there is nothing to write."""
        before = len(self.writes)
        decision = decide_machine(self.facts())
        if decision.wish is not None:
            decision = decide_claim(self.facts(), choose(decision.wish, self.records(), POLICY))
        for write in decision.writes:
            self._take(write)
        if decision.step is Step.KEEP:
            host = self.facts().host
            assert host is not None
            if host.state == "provisioned" and not is_settled(self.facts().machine):
                self.node = NodeSeen(host.metadata.name, f"metal3://n/{host.metadata.name}/m")
            if decision.writes or self.node is not None:
                tried, decision = decision.writes, decide_machine(self.facts())
                for write in decision.writes:
                    if write not in tried and write.kind != metal3.BARE_METAL_HOST:
                        self._take(write)
        if decision.said and not self.gone:
            shown = status_write(self.facts().machine, decision.said, decision.status, NOW)
            if shown is not None:
                self._take(shown)
        return len(self.writes) > before

    def _take(self, write: Write) -> None:
        self.writes.append(write)
        if write.kind == SECRET:
            self.secret_cluster = write.body["metadata"]["labels"][capi.CLUSTER_NAME] or ""
            return
        whole = self.machine if write.kind == metal3.METAL3_MACHINE else self.hosts[write.name]
        if write.version:
            assert whole["metadata"]["resourceVersion"] == write.version, "the API server would refuse it"
        merge(whole, write.body)
        whole["metadata"]["resourceVersion"] = str(int(whole["metadata"]["resourceVersion"]) + 1)
        about = self.machine["metadata"]
        self.gone = bool(about.get("deletionTimestamp")) and not about.get("finalizers")

    def drive(self, name: str) -> bool:
        """One write of Baremetal Operator on this host. False: it has nothing to do."""
        memory = self.memories.setdefault(name, Memory(power=bool(self.hosts[name]["status"].get("poweredOn"))))
        for _ in range(20):  # what it waits for comes
            put = Look(self.hosts[name], Secret("s1", True), memory, Pace(), self.now).next()
            if isinstance(put, Put):
                version = int(self.hosts[name]["metadata"]["resourceVersion"]) + 1
                self.hosts[name] = copy.deepcopy(put.host)
                self.hosts[name]["metadata"]["resourceVersion"] = str(version)
                return True
            if put.seconds is None:
                return False
            self.now += put.seconds + 0.01
        return False

    def run(self, dice: random.Random) -> None:
        """Everybody at work, in any order, until nobody has anything to do."""
        for _ in range(400):
            idle = True
            parties: list[str] = ["", *self.hosts]
            dice.shuffle(parties)
            for party in parties:
                worked = (not self.gone and self.look()) if not party else self.drive(party)
                idle = idle and not worked
            if idle:
                return
        raise AssertionError("it never comes to rest")


def merge(whole: Json, change: Json) -> None:
    for name, value in change.items():
        if value is None:
            whole.pop(name, None)
        elif isinstance(value, dict):
            if not isinstance(whole.get(name), dict):
                whole[name] = {}
            merge(whole[name], value)
        else:
            whole[name] = copy.deepcopy(value)


@asynccontextmanager
async def dry_keeper(course: Course) -> AsyncIterator[MachineReconciler]:
    """The operator's own keeper over these objects, in a dry run: it logs what it would write."""
    async with dry_keepers(course) as (keeper, _):
        yield keeper


@asynccontextmanager
async def dry_source(
    course: Course, nodes: Store[Node], owner: Machine | None = None, of_openshift: openshift.Machine | None = None
) -> AsyncIterator[MetalSource]:
    """What metal contributes to the picture of hosts. `owner`: the Machine, where another one is wanted."""
    openshift_machines = Store[openshift.Machine]()
    if of_openshift is not None:
        openshift_machines.put(of_openshift)
    async with dry_keepers(course) as (keeper, remediator):
        if owner is not None:
            keeper.caches.capi_machines.store.put(owner)
        yield MetalSource(keeper, remediator, nodes, openshift_machines, "prod", lambda: NOW)


@asynccontextmanager
async def dry_keepers(course: Course) -> AsyncIterator[tuple[MachineReconciler, RemediationReconciler]]:
    async with Client(Nowhere()) as client:
        metrics = Metrics()
        caches = Caches.make(client, metrics)
        tools = toolbox(caches, client, metrics=metrics, clock=lambda: NOW)
        claims = Claims(tools, POLICY, lambda _: None, later=lambda *_: None, dice=random.Random(1))
        caches.hosts.store.listen(claims.host_changed)
        for watch in caches.all():
            watch.store.synced = True
        for host in course.records():
            caches.hosts.store.put(host)
        caches.machines.store.put(msgspec.convert(course.machine, Metal3Machine))
        caches.capi_machines.store.put(OWNER)
        caches.capi_clusters.store.put(CLUSTER)
        if course.secret_cluster is not None:
            for name in course.hosts:
                labels = {capi.CLUSTER_NAME: course.secret_cluster} if course.secret_cluster else {}
                about = {"name": f"bmc-{name}", "namespace": "n", "resourceVersion": "1", "labels": labels}
                caches.secrets.store.put(msgspec.convert({"metadata": about}, BmcSecret))
        data = DataReconciler(tools)
        nodes = NodeFinder(tools.clusters, tools.writer_for)
        yield (
            MachineReconciler(tools, claims, data, nodes),
            RemediationReconciler(tools, shaky=claims.shaky),
        )
