"""What the types of a fleet file cannot say: names that are used must exist, and exist once."""

from __future__ import annotations

import re
from collections.abc import Iterable

from hostler.errors import Complaint, Exit
from hostler.sandbox.fleet import Fleet, names

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


def check_fleet(fleet: Fleet, named: str) -> Fleet:
    """The fleet itself, or a sentence about the first thing that is wrong with it."""
    for place, what in _mistakes(fleet):
        raise Complaint(
            f"The fleet file {named} is wrong at {place}: {what}.",
            hint="docs/sandbox.md lists every field.",
            code=Exit.SETTING,
        )
    return fleet


def _mistakes(fleet: Fleet) -> Iterable[tuple[str, str]]:
    yield from _vcenters(fleet)
    yield from _nodes(fleet)
    yield from _workloads(fleet)
    yield from _metal(fleet)
    yield from _rest(fleet)


def _vcenters(fleet: Fleet) -> Iterable[tuple[str, str]]:
    if len(fleet.vcenters) > 1:
        yield "vcenters[1]", "a sandbox has one vCenter; start a second sandbox for another"
    for vcenter in fleet.vcenters:
        for d, datacenter in enumerate(vcenter.datacenters):
            hosts = {
                name
                for cluster in datacenter.clusters
                for host in cluster.hosts
                for name, _ in names(host.name, host.count)
            }
            for v, vm in enumerate(datacenter.vms):
                place = f"vcenters[0].datacenters[{d}].vms[{v}]"
                if vm.count < 1:
                    yield f"{place}.count", "it must be at least 1"
                for host in [vm.host] if isinstance(vm.host, str) else vm.host:
                    if host not in hosts:
                        yield f"{place}.host", f"there is no host {host!r} in datacenter {datacenter.name!r}"
                if vm.host == []:
                    yield f"{place}.host", "name at least one host"
                if vm.uuid and vm.count > 1:
                    yield f"{place}.uuid", "several VMs cannot have one UUID; leave it out and each gets its own"


def _metal(fleet: Fleet) -> Iterable[tuple[str, str]]:
    for c, cluster in enumerate(fleet.metal):
        hosts = [(one.name, one.count) for one in cluster.hosts]
        machines = [(one.name, one.count) for one in cluster.machines]
        for field, wanted in (("hosts", hosts), ("machines", machines)):
            seen: set[str] = set()
            for n, (pattern, count) in enumerate(wanted):
                place = f"metal[{c}].{field}[{n}]"
                if count < 1:
                    yield f"{place}.count", "it must be at least 1"
                for name, _ in names(pattern, count):
                    if not _NAME.fullmatch(name):
                        yield (
                            f"{place}.name",
                            f"{name!r} is not a name Kubernetes accepts (small letters, digits, - and .)",
                        )
                    if name in seen:
                        yield f"{place}.name", f"there are two {field} {name!r}"
                    seen.add(name)


def _nodes(fleet: Fleet) -> Iterable[tuple[str, str]]:
    seen: set[str] = set()
    vms = {vm.name for _, vm in fleet.each_vm()}
    for n, node in enumerate(fleet.nodes):
        if node.count < 1:
            yield f"nodes[{n}].count", "it must be at least 1"
        for name, number in names(node.name, node.count):
            if not _NAME.fullmatch(name):
                yield f"nodes[{n}].name", f"{name!r} is not a name Kubernetes accepts (small letters, digits, - and .)"
            if name in seen:
                yield f"nodes[{n}].name", f"there are two nodes {name!r}"
            seen.add(name)
            vm = node.vm.replace("{i}", str(number)) if node.vm else None
            if vm and "{i" not in vm and vm not in vms:
                yield f"nodes[{n}].vm", f"there is no VM {vm!r} in any vCenter of this file"


def _workloads(fleet: Fleet) -> Iterable[tuple[str, str]]:
    nodes = {node.name for node in fleet.each_node()}
    seen: set[tuple[str, str, str]] = set()
    for w, load in enumerate(fleet.workloads):
        place = f"workloads[{w}]"
        if load.node is not None and load.node not in nodes:
            yield f"{place}.node", f"there is no node {load.node!r} in this file"
        if load.spread and (load.kind != "Pod" or not nodes):
            yield (
                f"{place}.spread",
                "only bare pods are spread over nodes by the file; others are placed by the scheduler",
            )
        if load.replicas < 0:
            yield f"{place}.replicas", "it cannot be negative"
        if load.volumes and load.kind != "StatefulSet":
            yield f"{place}.volumes", "only a StatefulSet gives each pod a volume; name existing `claims` instead"
        if load.mirror and (load.kind != "Pod" or load.node is None):
            yield f"{place}.mirror", "only a Pod on a named `node` can be a mirror pod"
        if load.priority_class and load.priority_class not in fleet.priority_classes and not _own(load.priority_class):
            yield f"{place}.priorityClass", f"there is no {load.priority_class!r} under priorityClasses"
        identity = (load.kind, load.namespace, load.name)
        if identity in seen:
            yield f"{place}.name", f"there are two {load.kind}s {load.name!r} in namespace {load.namespace!r}"
        seen.add(identity)


def _own(priority_class: str) -> bool:
    return priority_class in {"system-node-critical", "system-cluster-critical"}


def _rest(fleet: Fleet) -> Iterable[tuple[str, str]]:
    nodes = {node.name for node in fleet.each_node()}
    for p, pdb in enumerate(fleet.pdbs):
        if (pdb.min_available is None) == (pdb.max_unavailable is None):
            yield f"pdbs[{p}]", "give either minAvailable or maxUnavailable"
    for v, volume in enumerate(fleet.volumes):
        for field, node in (("localTo", volume.local_to), ("attachedTo", volume.attached_to)):
            if node is not None and node not in nodes:
                yield f"volumes[{v}].{field}", f"there is no node {node!r} in this file"
        if volume.claim is not None and volume.claim.count("/") != 1:
            yield f"volumes[{v}].claim", "write it as namespace/name"
    for o, one in enumerate(fleet.objects):
        for field, kind in (("apiVersion", str), ("kind", str), ("metadata", dict)):
            if field not in one:
                yield f"objects[{o}]", f"it has no {field}"
            elif not isinstance(one[field], kind):
                yield f"objects[{o}].{field}", "it is not what every Kubernetes object has there"
