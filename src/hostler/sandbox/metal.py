"""Bare metal of a fleet file as objects: hosts with their BMC secrets, and what Cluster API has for its machines.

Cluster API's controllers do not run in a sandbox, so what they would write is there from the start: the infrastructure
of the Cluster counts as ready, each Machine has its bootstrap secret.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hostler.sandbox.fleet import Fleet, MetalCluster, names

Object = dict[str, Any]
INFRASTRUCTURE, CLUSTER_API = "infrastructure.cluster.x-k8s.io", "cluster.x-k8s.io"
IMAGE = {"url": "http://sandbox.invalid/os.qcow2", "checksum": "0" * 64, "checksumType": "sha256"}


def metal_waves(fleet: Fleet) -> Iterator[tuple[str, list[Object]]]:
    """Owners come before what they own; the uid in an owner reference is filled in when it is made."""
    yield "bare metal clusters", [_cluster(one) for one in fleet.metal]
    yield "BMC and bootstrap secrets", [secret for one in fleet.metal for secret in _secrets(one)]
    yield "bare metal hosts", [host for one in fleet.metal for host in _hosts(one)]
    yield "machines", [machine for one in fleet.metal for machine in _machines(one)]
    yield "Metal3 clusters and machines", [made for one in fleet.metal for made in _metal3(one)]


def _object(one: MetalCluster, version: str, kind: str, name: str, spec: Object, **more: Any) -> Object:
    labels = {f"{CLUSTER_API}/cluster-name": one.name, **more.pop("labels", {})}
    metadata = {"name": name, "namespace": one.namespace, "labels": labels, **more}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def _cluster(one: MetalCluster) -> Object:
    reference = {"apiGroup": INFRASTRUCTURE, "kind": "Metal3Cluster", "name": one.name}
    made = _object(one, f"{CLUSTER_API}/v1beta2", "Cluster", one.name, {"infrastructureRef": reference})
    return {**made, "status": {"initialization": {"infrastructureProvisioned": True}}}


def _secrets(one: MetalCluster) -> Iterator[Object]:
    wanted = [(f"{name}-bmc", {"username": "sandbox", "password": "sandbox"}) for name, _ in _host_names(one)]  # nosec B105 # simulated
    wanted += [(f"{name}-bootstrap", {"value": "#cloud-config"}) for name in _machine_names(one)]
    for name, data in wanted:
        metadata = {"name": name, "namespace": one.namespace}
        yield {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data}


def _hosts(one: MetalCluster) -> Iterator[Object]:
    for number, (name, labels) in enumerate(_host_names(one)):
        metadata = {"name": name, "namespace": one.namespace, "labels": labels}
        spec = {
            "online": False,
            "bootMACAddress": f"02:00:00:{number >> 16 & 255:02x}:{number >> 8 & 255:02x}:{number & 255:02x}",
            "bmc": {"address": f"redfish://bmc.invalid/{name}", "credentialsName": f"{name}-bmc"},
        }
        yield {"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "metadata": metadata, "spec": spec}


def _machines(one: MetalCluster) -> Iterator[Object]:
    for name in _machine_names(one):
        reference = {"apiGroup": INFRASTRUCTURE, "kind": "Metal3Machine", "name": name}
        bootstrap = {"dataSecretName": f"{name}-bootstrap"}
        spec = {"clusterName": one.name, "bootstrap": bootstrap, "infrastructureRef": reference}
        yield _object(one, f"{CLUSTER_API}/v1beta2", "Machine", name, spec)


def _metal3(one: MetalCluster) -> Iterator[Object]:
    version = f"{INFRASTRUCTURE}/v1beta2"
    endpoint = {"controlPlaneEndpoint": {"host": "10.0.0.1", "port": 6443}}
    yield _object(one, version, "Metal3Cluster", one.name, endpoint, ownerReferences=[_owner("Cluster", one.name)])
    for machine in one.machines:
        for name, _ in names(machine.name, machine.count):
            spec: Object = {"image": IMAGE}
            if machine.host_selector:
                spec["hostSelector"] = {"matchLabels": machine.host_selector}
            yield _object(one, version, "Metal3Machine", name, spec, ownerReferences=[_owner("Machine", name)])


def _owner(kind: str, name: str) -> Object:
    return {"apiVersion": f"{CLUSTER_API}/v1beta2", "kind": kind, "name": name}


def _host_names(one: MetalCluster) -> Iterator[tuple[str, dict[str, str]]]:
    for host in one.hosts:
        for name, _ in names(host.name, host.count):
            yield name, host.labels


def _machine_names(one: MetalCluster) -> Iterator[str]:
    for machine in one.machines:
        for name, _ in names(machine.name, machine.count):
            yield name
