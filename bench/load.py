"""Objects of a realistic size for the benchmarks, made on a real API server: nodes of about 8 KB, pods of 5 KB."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from hostler.instant import iso
from hostler.kube.client import Client
from hostler.kube.errors import AlreadyExists, TooManyRequests
from hostler.kube.kinds import NAMESPACE, NODE, POD, Kind
from hostler.kube.records import Object

SERVICE_ACCOUNT = Kind("", "v1", "serviceaccounts", "ServiceAccount", True)
WORKERS = 48
NAMESPACES = 20
AT = iso(1_750_000_000)


def node(number: int) -> dict[str, Any]:
    """A node with the labels, images and conditions a kubelet and feature discovery leave on one."""
    name = f"node-{number:05d}"
    features = {f"feature.node.kubernetes.io/cpu-cpuid.FEATURE{i:02d}": "true" for i in range(40)}
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "zone": f"z{number % 3}", **features}},
        "spec": {"providerID": f"vsphere://4200{number:04x}-0000-4000-8000-{number:012x}"},
        "status": {
            "capacity": {"cpu": "32", "memory": "128Gi", "pods": "110"},
            "conditions": [
                {"type": kind, "status": "True" if kind == "Ready" else "False", "lastHeartbeatTime": AT,
                 "lastTransitionTime": AT, "reason": f"Kubelet{kind}", "message": f"the kubelet says {kind}"}
                for kind in ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
            ],
            "images": [
                {"names": [f"registry.example/team/image-{i}@sha256:{i:064x}"], "sizeBytes": 10**8} for i in range(30)
            ],
            "nodeInfo": {"bootID": f"boot-{number}", "systemUUID": f"4200{number:04x}", "operatingSystem": "linux"},
        },
    }  # fmt: skip


def pod(number: int, nodes: int) -> dict[str, Any]:
    """A pod as a Deployment would make it: owner, labels, two containers with environment, volumes, tolerations."""
    owner = f"app-{number // 10}"
    env = [{"name": f"SETTING_{i}", "value": f"value-{i}-of-some-length"} for i in range(12)]
    container = {"image": f"registry.example/team/{owner}@sha256:{number:064x}", "env": env,
                 "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}}}  # fmt: skip
    return {
        "metadata": {
            "name": f"{owner}-{number:05d}",
            "labels": {"app": owner, "pod-template-hash": f"{number // 10:08x}", "team": f"t{number % 17}"},
            "annotations": {"checksum/config": f"{number:064x}"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "controller": True,
                                 "uid": f"00000000-0000-4000-8000-{number // 10:012x}"}],
        },
        "spec": {
            "nodeName": f"node-{number % nodes:05d}",
            "containers": [{"name": "main", **container}, {"name": "sidecar", **container}],
            "volumes": [{"name": "cache", "emptyDir": {}}, {"name": "conf", "configMap": {"name": "conf"}}],
            "automountServiceAccountToken": False,
        },
    }  # fmt: skip


def pod_status(number: int) -> dict[str, Any]:
    running = {"running": {"startedAt": AT}}
    return {
        "status": {
            "phase": "Running", "podIP": f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}",
            "conditions": [
                {"type": kind, "status": "True", "lastTransitionTime": AT}
                for kind in ("Ready", "Initialized", "ContainersReady", "PodScheduled")
            ],
            "containerStatuses": [
                {"name": name, "ready": True, "restartCount": 0, "image": "x", "imageID": f"sha256:{number:064x}",
                 "state": running} for name in ("main", "sidecar")
            ],
        }
    }  # fmt: skip


async def in_parallel(count: int, one: Callable[[int], Awaitable[None]], workers: int = WORKERS) -> None:
    """Call `one(0..count-1)`; a server that says 429 is asked again after the time it names."""
    numbers = iter(range(count))

    async def worker() -> None:
        for number in numbers:
            while True:
                try:
                    await one(number)
                    break
                except AlreadyExists:
                    break
                except TooManyRequests as error:
                    await asyncio.sleep(error.retry_after or 1)

    async with asyncio.TaskGroup() as group:
        for _ in range(workers):
            group.create_task(worker())


def namespace_of(number: int) -> str:
    return f"bench-{number % NAMESPACES}"


async def fill(client: Client, nodes: int, pods: int) -> None:
    """Make the fleet. Pods are bound at creation and their status is written as a kubelet would."""

    async def make_namespace(number: int) -> None:
        await client.create(NAMESPACE, {"metadata": {"name": namespace_of(number)}}, type=Object)
        # The controller that would make it is stopped, and no pod is let in without it.
        await client.create(SERVICE_ACCOUNT, {"metadata": {"name": "default"}}, namespace_of(number), type=Object)

    async def make_node(number: int) -> None:
        await client.create(NODE, node(number), type=Object)

    async def make_pod(number: int) -> None:
        body = pod(number, nodes)
        await client.create(POD, body, namespace_of(number), type=Object)
        name = body["metadata"]["name"]
        await client.patch(POD, name, pod_status(number), namespace_of(number), type=Object, subresource="status")

    await in_parallel(NAMESPACES, make_namespace)
    await in_parallel(nodes, make_node)
    await in_parallel(pods, make_pod)


async def burst(client: Client, updates: int, nodes: int, mark: str) -> None:
    """Change each pod once: a label, so that every follower sees one event per write."""

    async def change(number: int) -> None:
        name = pod(number, nodes)["metadata"]["name"]
        body = {"metadata": {"labels": {"burst": mark}}}
        await client.patch(POD, name, body, namespace_of(number), type=Object)

    await in_parallel(updates, change)
