"""From a fleet file to Kubernetes objects, in the order in which they can be made."""

from __future__ import annotations

import datetime
import itertools
import uuid
from collections.abc import Iterator
from typing import Any

from hostler.sandbox.fleet import Fleet, Node, Volume, Workload, stable_uuid
from hostler.sandbox.metal import metal_waves
from hostler.sandbox.parts import OFF_LABEL

Object = dict[str, Any]
IMAGE = "sandbox.invalid/pause:1"  # never pulled: no container runs here
DRIVER = "csi.sandbox.hostler.dev"


def waves(fleet: Fleet) -> Iterator[tuple[str, list[Object]]]:
    """Objects in groups; within one group the order does not matter."""
    yield "namespaces", list(_namespaces(fleet))
    yield "nodes", list(_nodes(fleet))
    yield "volumes", list(_volumes(fleet))
    yield "budgets and objects", [*_pdbs(fleet), *fleet.objects]
    yield "workloads", list(_workloads(fleet))
    yield "attachments", list(_attachments(fleet))
    yield from metal_waves(fleet)


def _namespaces(fleet: Fleet) -> Iterator[Object]:
    wanted = [*fleet.namespaces, *(load.namespace for load in fleet.workloads), *(pdb.namespace for pdb in fleet.pdbs)]
    wanted += [volume.claim.partition("/")[0] for volume in fleet.volumes if volume.claim]
    wanted += [cluster.namespace for cluster in fleet.metal]
    for name in dict.fromkeys(wanted):
        if name not in {"default", "kube-system", "kube-public", "kube-node-lease"}:
            yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    for name, value in fleet.priority_classes.items():
        yield {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
        }


def _nodes(fleet: Fleet) -> Iterator[Object]:
    vms = {vm.name: vm for _, vm in fleet.each_vm()}
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    for number, node in enumerate(fleet.each_node()):
        vm = vms.get(node.vm) if node.vm else None
        off = node.power == "off" or (vm is not None and vm.power == "off")
        yield node_object(node, number, vm.uuid if vm else None, now, off=off)


def node_object(node: Node, number: int, vm_uuid: str | None, now: str, *, off: bool) -> Object:
    """A Node as its kubelet would have registered it, Ready from the start unless it is off."""
    system_uuid = node.system_uuid or vm_uuid or stable_uuid("node", node.name)
    provider = node.provider_id if node.provider_id is not None else (f"vsphere://{vm_uuid}" if vm_uuid else "")
    roles = {f"node-role.kubernetes.io/{role}": "" for role in node.roles}
    base = {"kubernetes.io/hostname": node.name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    labels = {**base, **roles, **node.labels, **({OFF_LABEL: "off"} if off else {})}
    # A kubelet sets the first one; without it nobody attaches volumes to the node.
    annotations = {"volumes.kubernetes.io/controller-managed-attach-detach": "true", **node.annotations}
    if node.power == "off":
        annotations["sandbox.hostler.dev/power"] = "off"
    if vm_uuid:
        annotations["sandbox.hostler.dev/boots"] = "0" if off else "1"
    capacity = {"cpu": "32", "memory": "128Gi", "ephemeral-storage": "200Gi", "pods": "250", **node.capacity}
    capacity = {name: str(value) for name, value in capacity.items()}
    ip = node.internal_ip or f"10.{64 + (number >> 16)}.{(number >> 8) & 255}.{number & 255}"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "labels": labels, "annotations": annotations},
        "spec": {
            **({"providerID": provider} if provider else {}),
            **({"unschedulable": True} if node.unschedulable else {}),
            "taints": [{"key": t.key, "value": t.value, "effect": t.effect} for t in node.taints],
        },
        "status": {
            "capacity": capacity,
            "allocatable": {**capacity, **{name: str(value) for name, value in node.allocatable.items()}},
            "addresses": [{"type": "InternalIP", "address": ip}, {"type": "Hostname", "address": node.name}],
            "conditions": [] if off else _conditions(now),
            "nodeInfo": {
                "architecture": "amd64",
                "bootID": node.boot_id or str(uuid.uuid4()),
                "containerRuntimeVersion": "kwok://0.8.0",
                "kernelVersion": "6.12.0",
                "kubeProxyVersion": "",
                "kubeletVersion": "v1.37.1",
                "machineID": system_uuid.replace("-", "").lower(),
                "operatingSystem": "linux",
                "osImage": "Hostler sandbox",
                "systemUUID": system_uuid,
            },
        },
    }


def _conditions(now: str) -> list[Object]:
    wanted = [("Ready", "True", "KubeletReady", "kubelet is posting ready status")]
    wanted += [(f"{what}Pressure", "False", f"KubeletHasNo{what}Pressure", "") for what in ("Memory", "Disk", "PID")]
    return [
        {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        for kind, status, reason, message in wanted
    ]


def _volumes(fleet: Fleet) -> Iterator[Object]:
    volumes = list(fleet.volumes)
    for load in fleet.workloads:
        for claim, number in itertools.product(load.volumes, range(load.replicas)):
            # The name a StatefulSet looks for.
            name = f"{claim.name}-{load.name}-{number}"
            volumes.append(Volume(name=f"{load.namespace}-{name}", size=claim.size, claim=f"{load.namespace}/{name}"))
    drivers = sorted({volume.driver for volume in volumes if volume.local_to is None})
    for driver in drivers:
        yield {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSIDriver",
            "metadata": {"name": driver},
            "spec": {"attachRequired": True, "podInfoOnMount": False},
        }
    if drivers:
        yield from _csi_nodes(fleet, drivers)
    for volume in volumes:
        yield from _volume(volume)


def _csi_nodes(fleet: Fleet, drivers: list[str]) -> Iterator[Object]:
    """A kubelet registers the drivers of its node; without that the scheduler would not place a pod with a volume."""
    for node in fleet.each_node():
        yield {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSINode",
            "metadata": {"name": node.name},
            "spec": {"drivers": [{"name": driver, "nodeID": node.name, "topologyKeys": None} for driver in drivers]},
        }


def _volume(volume: Volume) -> Iterator[Object]:
    spec: Object = {
        "capacity": {"storage": volume.size},
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Retain",
        "volumeMode": "Filesystem",
    }
    if volume.local_to:
        terms = [
            {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [volume.local_to]}]}
        ]
        spec |= {"local": {"path": "/mnt/disk"}, "nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}
    else:
        spec["csi"] = {"driver": volume.driver, "volumeHandle": volume.name, "fsType": "ext4"}
    namespace, _, claim = (volume.claim or "").partition("/")
    if claim:
        spec["claimRef"] = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": namespace, "name": claim}
        yield {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": claim, "namespace": namespace},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "",
                "volumeName": volume.name,
                "resources": {"requests": {"storage": volume.size}},
            },
        }
    yield {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume.name}, "spec": spec}


def _attachments(fleet: Fleet) -> Iterator[Object]:
    for volume in fleet.volumes:
        if volume.attached_to:
            yield {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "VolumeAttachment",
                "metadata": {"name": f"csi-{volume.name}-{volume.attached_to}"},
                "spec": {
                    "attacher": volume.driver,
                    "nodeName": volume.attached_to,
                    "source": {"persistentVolumeName": volume.name},
                },
            }


def _pdbs(fleet: Fleet) -> Iterator[Object]:
    for pdb in fleet.pdbs:
        spec: Object = {"selector": {"matchLabels": pdb.selector}}
        if pdb.min_available is not None:
            spec["minAvailable"] = pdb.min_available
        if pdb.max_unavailable is not None:
            spec["maxUnavailable"] = pdb.max_unavailable
        if pdb.unhealthy_pod_eviction_policy:
            spec["unhealthyPodEvictionPolicy"] = pdb.unhealthy_pod_eviction_policy
        yield {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": pdb.name, "namespace": pdb.namespace},
            "spec": spec,
        }


def _workloads(fleet: Fleet) -> Iterator[Object]:
    nodes = itertools.cycle([node.name for node in fleet.each_node()] or [""])
    for load in fleet.workloads:
        if load.kind == "Pod":
            for number in range(load.replicas):
                name = load.name if load.replicas == 1 else f"{load.name}-{number}"
                yield _bare_pod(load, name, next(nodes) if load.spread else load.node)
        else:
            yield _controller(load)


def _bare_pod(load: Workload, name: str, node: str | None) -> Object:
    pod = _template(load)
    pod["metadata"] |= {"name": name, "namespace": load.namespace}
    if node:
        pod["spec"]["nodeName"] = node
    if load.mirror:
        pod["metadata"]["annotations"] |= {"kubernetes.io/config.mirror": stable_uuid(name)}
    return {"apiVersion": "v1", "kind": "Pod", **pod}


def _controller(load: Workload) -> Object:
    labels = {"app": load.name, **load.labels}
    template = _template(load)
    if load.node:
        # By affinity and not by nodeName, so that a replacement waits for the node and is not forced onto it.
        template["spec"]["nodeSelector"] = {**load.node_selector, "kubernetes.io/hostname": load.node}
    spec: Object = {"template": template}
    match load.kind:
        case "Job":
            spec |= {"parallelism": load.replicas, "completions": load.replicas}
            template["spec"]["restartPolicy"] = "Never"
        case "DaemonSet":
            spec |= {"selector": {"matchLabels": labels}}
        case "StatefulSet":
            spec |= {"selector": {"matchLabels": labels}, "replicas": load.replicas, "serviceName": load.name}
            spec |= {
                "podManagementPolicy": "Parallel",
                "volumeClaimTemplates": [_claim_template(c) for c in load.volumes],
            }
        case _:
            spec |= {"selector": {"matchLabels": labels}, "replicas": load.replicas}
    return {
        "apiVersion": "batch/v1" if load.kind == "Job" else "apps/v1",
        "kind": load.kind,
        "metadata": {"name": load.name, "namespace": load.namespace, "labels": labels},
        "spec": spec,
    }


def _claim_template(claim: Any) -> Object:
    return {
        "metadata": {"name": claim.name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "",
            "resources": {"requests": {"storage": claim.size}},
        },
    }


def _template(load: Workload) -> Object:
    """The pod of a workload, with what only the sandbox's kubelets understand as annotations."""
    annotations = dict(load.annotations)
    if load.stops_slowly:
        annotations["sandbox.hostler.dev/stop"] = "slowly"
    if load.ready_after:
        annotations["sandbox.hostler.dev/ready-after"] = load.ready_after
    volumes: list[Object] = [{"name": "scratch", "emptyDir": {}}] if load.empty_dir else []
    if load.host_path:
        volumes.append({"name": "host", "hostPath": {"path": load.host_path}})
    volumes += [{"name": f"claim-{c}", "persistentVolumeClaim": {"claimName": c}} for c in load.claims]
    tolerated = [{"key": key, "operator": "Exists"} for key in load.tolerate if load.tolerate != "all"]
    requests = {name: str(value) for name, value in load.requests.items()}
    # Devices cannot be overcommitted, so the API server wants them as limits too.
    resources = {"requests": requests, "limits": {name: value for name, value in requests.items() if "/" in name}}
    spec: Object = {
        "containers": [{"name": "main", "image": IMAGE, "resources": resources}],
        "volumes": volumes,
        "nodeSelector": load.node_selector,
        "tolerations": [{"operator": "Exists"}] if load.tolerate == "all" else tolerated,
        "terminationGracePeriodSeconds": 30
        if load.termination_grace_seconds is None
        else load.termination_grace_seconds,
    }
    if load.host_network:
        spec["hostNetwork"] = True
    if load.priority_class:
        spec["priorityClassName"] = load.priority_class
    return {"metadata": {"labels": {"app": load.name, **load.labels}, "annotations": annotations}, "spec": spec}
