"""What a provisioned machine does in its cluster: its node comes up, falls silent with its power, goes with its disk.

A workload cluster is another sandbox; `hostler sandbox workload` says which by annotation on the kubeconfig secret.
Nothing boots: the node is what a kubelet would register, as far as the user data says how, and kwok plays it from then.
"""

from __future__ import annotations

import asyncio
import base64
import datetime
from collections.abc import Mapping
from pathlib import Path

import aiohttp
import msgspec
import yaml

from hostler.errors import Complaint
from hostler.sandbox import http
from hostler.sandbox.expand import node_object
from hostler.sandbox.fleet import Node, Taint
from hostler.sandbox.follow import patch, say
from hostler.sandbox.hosts.model import Json, address_of
from hostler.sandbox.life import Sandbox
from hostler.sandbox.parts import OFF_LABEL
from hostler.sandbox.power import POWER

WORKLOAD = "sandbox.hostler.dev/workload"  # on a cluster's kubeconfig secret: the folder of the sandbox that it is
CLUSTER_NAME = "cluster.x-k8s.io/cluster-name"
CONTROL_PLANE = "cluster.x-k8s.io/control-plane"
UUID = "metal3.io/uuid"
RETRY_SECONDS = 2.0
SYSTEM = "/api/v1/namespaces/kube-system"
KUBEADM_CONFIG = "kubeadm-config"  # a ConfigMap; a KubeadmControlPlane is initialized once it is there
# What Cluster API has every kubelet register with, and takes off once it has looked at the node.
UNINITIALIZED = Taint(key="node.cluster.x-k8s.io/uninitialized", effect="NoSchedule")
BY_KUBEADM = Taint(key="node-role.kubernetes.io/control-plane", effect="NoSchedule")


def wanted_of(host: Json) -> str:
    """What the machine is now: `on` with a system on its disk, `off` with one, or `empty`."""
    status = host.get("status") or {}
    state = status.get("provisioning", {}).get("state", "")
    if state not in ("provisioned", "externally provisioned"):
        return "empty"
    return "on" if status.get("poweredOn") else "off"


def kubelet_of(host: Json, machine: Json, user_data: str, meta_data: Mapping[str, str]) -> Node:
    """The node that this machine's kubelet registers. Pure.

    It is named by the host name of the metadata, else after its host. Label and provider id it has where the user data
    asks for them, as Metal3's cluster templates do: `metal3.io/uuid=...` and `metal3://{{ ds.meta_data.providerid }}`.
    """
    uid = meta_data.get("uuid") or host["metadata"]["uid"]
    asks_for_id = "ds.meta_data.providerid" in user_data and "providerid" in meta_data
    mac = host["spec"].get("bootMACAddress")
    is_control_plane = CONTROL_PLANE in (machine["metadata"].get("labels") or {})
    return Node(
        name=meta_data.get("local-hostname") or host["metadata"]["name"],
        labels={UUID: uid} if f"{UUID}=" in user_data else {},
        roles=["control-plane"] if is_control_plane else [],
        taints=[UNINITIALIZED, *([BY_KUBEADM] if is_control_plane else [])],
        provider_id=f"metal3://{meta_data['providerid']}" if asks_for_id else "",
        system_uuid=host["metadata"]["uid"],
        internal_ip=address_of(mac) if mac else None,
    )


def control_plane_objects(node: str, server: str) -> list[tuple[str, Json]]:
    """What `kubeadm` leaves behind on a control plane machine, with the path of each: its settings, its static pods.

    The KubeadmControlPlane controller reads these. The pods are played by kwok like any other.
    """
    settings = {"apiVersion": "kubeadm.k8s.io/v1beta4", "kind": "ClusterConfiguration", "controlPlaneEndpoint": server}
    config = {"metadata": {"name": KUBEADM_CONFIG}, "data": {"ClusterConfiguration": yaml.safe_dump(settings)}}
    pods = [
        {
            "metadata": {
                "name": f"{component}-{node}",
                "labels": {"component": component, "tier": "control-plane"},
                "annotations": {"kubernetes.io/config.mirror": node},
            },
            "spec": {
                "nodeName": node,
                "hostNetwork": True,
                "priorityClassName": "system-node-critical",
                "containers": [{"name": component, "image": f"sandbox.invalid/{component}"}],
                "tolerations": [{"operator": "Exists"}],
            },
        }
        for component in ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
    ]
    return [(f"{SYSTEM}/configmaps", config), *((f"{SYSTEM}/pods", pod) for pod in pods)]


class Boots:
    """Every machine's changes one after the other; machines beside each other."""

    def __init__(self, session: aiohttp.ClientSession, secrets: Mapping[str, Json]) -> None:
        self._session, self._secrets = session, secrets
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._hosts: dict[str, list[Json]] = {}  # what is yet to be followed, oldest first
        self._seen: dict[str, tuple[str, str]] = {}  # uid and what it was last
        self._nodes: dict[str, tuple[str, str]] = {}  # the folder of its cluster, and its node there
        self._sessions: dict[str, aiohttp.ClientSession] = {}
        self.clusters: dict[str, str] = {}  # the folder of each workload cluster, by namespace/name

    def secret_changed(self, what: str, secret: Json) -> bool:
        """Whether it is a cluster's that was not known before: machines may have been waiting for it."""
        meta = secret["metadata"]
        folder = str((meta.get("annotations") or {}).get(WORKLOAD, ""))
        if not folder or not meta["name"].endswith("-kubeconfig"):
            return False
        key = f"{meta['namespace']}/{meta['name'].removesuffix('-kubeconfig')}"
        if what == "DELETED":
            self.clusters.pop(key, None)
            return False
        new = self.clusters.get(key) != folder
        self.clusters[key] = folder
        if new:
            self._seen = {host: seen for host, seen in self._seen.items() if host in self._nodes}
        return new

    def host_changed(self, key: str, host: Json) -> None:
        """Note what the machine is now; a reboot must not be missed because it was quick."""
        now = (host["metadata"]["uid"], wanted_of(host))
        if self._seen.get(key) == now or not self.clusters:
            return
        self._seen[key] = now
        self._hosts.setdefault(key, []).append(host)
        if key not in self._tasks:
            self._tasks[key] = asyncio.create_task(self._follow(key))

    def host_gone(self, key: str) -> None:
        """Its object is: nothing happens to a machine by that. Whoever moves it has its object elsewhere."""
        self._seen.pop(key, None)
        self._nodes.pop(key, None)

    async def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        for session in self._sessions.values():
            await session.close()

    async def _follow(self, key: str) -> None:
        try:
            while pending := self._hosts.get(key):
                try:
                    await self._reach(key, pending[0])
                    pending.pop(0)
                except (aiohttp.ClientError, TimeoutError, OSError, Complaint) as error:
                    say(f"the node of host {key}: {error}; trying again")
                    await asyncio.sleep(RETRY_SECONDS)
        finally:
            del self._tasks[key]

    async def _reach(self, key: str, host: Json) -> None:
        wanted = wanted_of(host)
        if wanted == "empty":
            if found := self._nodes.pop(key, None):
                await self._delete_node(*found)
            return
        if wanted == "off":
            if found := self._nodes.get(key):
                await self._silence(*found)
            return
        if booted := await self._booted(host):
            folder, node = booted
            await self._register(folder, node)
            if "control-plane" in node.roles:
                await self._start_static_pods(folder, node.name)
            self._nodes[key] = (folder, node.name)

    async def _booted(self, host: Json) -> tuple[str, Node] | None:
        """Which cluster the machine joins, and as what; None: it has no owner, or its cluster is no sandbox of ours."""
        namespace, owner = host["metadata"]["namespace"], host["spec"].get("consumerRef") or {}
        if owner.get("kind") != "Metal3Machine":
            return None
        path = f"/apis/{owner['apiVersion']}/namespaces/{namespace}/metal3machines/{owner['name']}"
        async with self._session.get(path) as answer:
            if answer.status == 404:
                return None
            answer.raise_for_status()
            machine: Json = msgspec.json.decode(await answer.read())
        cluster = (machine["metadata"].get("labels") or {}).get(CLUSTER_NAME, "")
        folder = self.clusters.get(f"{namespace}/{cluster}")
        if not folder or machine["metadata"].get("deletionTimestamp"):
            return None
        spec = host["spec"]
        meta_data = yaml.safe_load(self._content(spec.get("metaData"), namespace, "metaData")) or {}
        user_data = self._content(spec.get("userData"), namespace, "userData", "value")
        return folder, kubelet_of(host, machine, user_data, {name: str(value) for name, value in meta_data.items()})

    def _content(self, reference: Json | None, namespace: str, *keys: str) -> str:
        name = (reference or {}).get("name", "")
        data = self._secrets.get(f"{(reference or {}).get('namespace') or namespace}/{name}", {}).get("data") or {}
        return next((base64.b64decode(data[key]).decode(errors="replace") for key in keys if key in data), "")

    # -- in the workload cluster

    async def _register(self, folder: str, node: Node) -> None:
        """A kubelet starts: it creates its node, or finds the one that it had before its machine was switched off."""
        session = self._open(folder)
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        body = msgspec.json.encode(node_object(node, 1, None, now, off=False))
        async with session.post("/api/v1/nodes", data=body) as answer:
            if answer.status == 201:
                say(f"node {node.name} joined the cluster in {folder}")
                return
            if answer.status != 409:
                answer.raise_for_status()
        await patch(session, f"/api/v1/nodes/{node.name}", {"metadata": {"annotations": {POWER: None}}})

    async def _start_static_pods(self, folder: str, node: str) -> None:
        session = self._open(folder)
        for path, one in control_plane_objects(node, Sandbox.open(Path(folder)).server.removeprefix("https://")):
            async with session.post(path, data=msgspec.json.encode(one)) as answer:
                if answer.status != 409:
                    answer.raise_for_status()

    async def _silence(self, folder: str, name: str) -> None:
        """The power is gone. The keeper there must have seen it before the machine may be back."""
        session = self._open(folder)
        found = await patch(session, f"/api/v1/nodes/{name}", {"metadata": {"annotations": {POWER: "off"}}})
        for _ in range(100):
            if found is None or OFF_LABEL in (msgspec.json.decode(found)["metadata"].get("labels") or {}):
                return
            await asyncio.sleep(0.1)
            async with session.get(f"/api/v1/nodes/{name}") as answer:
                found = await answer.read() if answer.status == 200 else None

    async def _delete_node(self, folder: str, name: str) -> None:
        async with self._open(folder).delete(f"/api/v1/nodes/{name}") as answer:
            if answer.status != 404:
                answer.raise_for_status()
        say(f"node {name} left the cluster in {folder}")
        await self._forget_control_plane(self._open(folder))

    async def _forget_control_plane(self, session: aiohttp.ClientSession) -> None:
        """With its last control plane machine goes what kubeadm left there: the next Cluster begins with `init`."""
        async with session.get("/api/v1/nodes", params={"labelSelector": BY_KUBEADM.key, "limit": "1"}) as answer:
            answer.raise_for_status()
            if msgspec.json.decode(await answer.read())["items"]:
                return
        async with session.delete(f"{SYSTEM}/configmaps/{KUBEADM_CONFIG}") as answer:
            if answer.status != 404:
                answer.raise_for_status()

    def _open(self, folder: str) -> aiohttp.ClientSession:
        if folder not in self._sessions:
            box = Sandbox.open(Path(folder))
            connector = aiohttp.TCPConnector(ssl=http.trust(box.layout, "keeper"))
            self._sessions[folder] = aiohttp.ClientSession(
                box.server, connector=connector, timeout=aiohttp.ClientTimeout(total=30),
                headers={"Content-Type": "application/json"},
            )  # fmt: skip
        return self._sessions[folder]
