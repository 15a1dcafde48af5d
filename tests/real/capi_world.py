"""Clusters under the real Cluster API in a sandbox: what a cluster template has, and what became of it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hostler.sandbox import Sandbox
from hostler.sandbox.load import create
from hostler.sandbox.workload import connect_workload
from tests.real.conftest import Eventually
from tests.real.metal_world import HOSTS, IPAM, METAL, Api, Json

GROUP = "infrastructure.cluster.x-k8s.io"
INFRA, CAPI = f"{GROUP}/v1beta2", "cluster.x-k8s.io/v1beta2"
BOOTSTRAP, CONTROL_PLANE = "bootstrap.cluster.x-k8s.io", "controlplane.cluster.x-k8s.io"
IMAGE = {"url": "http://images.invalid/os.qcow2", "checksum": "http://images.invalid/sum", "checksumType": "sha256"}
# What tells Metal3 which node is which: the uuid of the host in a label.
REGISTRATION = {
    "name": "{{ ds.meta_data.local_hostname }}",
    "kubeletExtraArgs": [{"name": "node-labels", "value": "metal3.io/uuid={{ ds.meta_data.uuid }}"}],
}
CLUSTERCTL = "clusterctl.cluster.x-k8s.io"
BLOCK_MOVE = f"{CLUSTERCTL}/block-move"
PAUSED, STATUS = "baremetalhost.metal3.io/paused", "baremetalhost.metal3.io/status"
# Every kind that is made here, so that nothing that stays behind is overlooked.
KINDS = (
    *((f"/apis/{CAPI}", plural) for plural in ("clusters", "machines", "machinesets")),
    *((f"/apis/{CAPI}", plural) for plural in ("machinedeployments", "machinehealthchecks")),
    *((f"/apis/{BOOTSTRAP}/v1beta2", plural) for plural in ("kubeadmconfigs", "kubeadmconfigtemplates")),
    (HOSTS, "baremetalhosts"),
    *((METAL, f"metal3{plural}") for plural in ("clusters", "machines", "machinetemplates", "remediations")),
    *((METAL, f"metal3{plural}") for plural in ("datas", "dataclaims", "datatemplates", "remediationtemplates")),
    *((IPAM, plural) for plural in ("ippools", "ipclaims", "ipaddresses")),
    ("/api/v1", "secrets"),
)  # fmt: skip


def one(version: str, kind: str, name: str, namespace: str, spec: Json, **meta: Any) -> Json:
    return {
        "apiVersion": version, "kind": kind, "spec": spec,
        "metadata": {"name": name, "namespace": namespace, **meta},
    }  # fmt: skip


def cluster(name: str, namespace: str = "default", **spec: Any) -> Json:
    reference = {"apiGroup": GROUP, "kind": "Metal3Cluster", "name": name}
    return one(CAPI, "Cluster", name, namespace, {"infrastructureRef": reference, **spec})


def infrastructure(name: str, machine: Json | None = None, **template: Any) -> list[Json]:
    """The Metal3Cluster and the template of its machines, which `machine` adds to."""
    endpoint = {"controlPlaneEndpoint": {"host": "127.0.0.1", "port": 6443}}
    spec = {**template, "template": {"spec": {"image": IMAGE, **(machine or {})}}}
    return [
        one(INFRA, "Metal3Cluster", name, name, endpoint),
        one(INFRA, "Metal3MachineTemplate", name, name, spec),
    ]


def machine_deployment(name: str, replicas: int, labels: Json | None = None, **spec: Any) -> list[Json]:
    """A MachineDeployment and its bootstrap template, as a cluster template of Metal3 has them."""
    every = {"cluster.x-k8s.io/cluster-name": name, "nodepool": name}
    machine = {
        "clusterName": name, "version": "v1.37.1",
        "bootstrap": {"configRef": {"apiGroup": BOOTSTRAP, "kind": "KubeadmConfigTemplate", "name": name}},
        "infrastructureRef": {"apiGroup": GROUP, "kind": "Metal3MachineTemplate", "name": name},
    }  # fmt: skip
    joining = {"template": {"spec": {"joinConfiguration": {"nodeRegistration": REGISTRATION}}}}
    return [
        one(f"{BOOTSTRAP}/v1beta2", "KubeadmConfigTemplate", name, name, joining),
        one(CAPI, "MachineDeployment", name, name, {
            "clusterName": name, "replicas": replicas, "selector": {"matchLabels": every}, **spec,
            "template": {"metadata": {"labels": {**every, **(labels or {})}}, "spec": machine},
        }),
    ]  # fmt: skip


def control_plane(workload: Sandbox, name: str, replicas: int = 1, template: str = "") -> Json:
    """A KubeadmControlPlane whose etcd is the workload cluster's own, for nobody runs one on these machines."""
    etcd = {
        "endpoints": [f"https://127.0.0.1:{workload.state.ports['etcd']}"], "caFile": "/etc/etcd/ca.crt",
        "certFile": "/etc/etcd/client.crt", "keyFile": "/etc/etcd/client.key",
    }  # fmt: skip
    # It would forward a port to the API server's pod to read its certificate; no pod of kwok's has one.
    known = {"machine.cluster.x-k8s.io/certificates-expiry": "2099-01-01T00:00:00Z"}
    machines = {"infrastructureRef": {"apiGroup": GROUP, "kind": "Metal3MachineTemplate", "name": template or name}}
    return one(f"{CONTROL_PLANE}/v1beta2", "KubeadmControlPlane", name, name, {
        "replicas": replicas, "version": "v1.37.1",
        "machineTemplate": {"metadata": {"annotations": known}, "spec": machines},
        "kubeadmConfigSpec": {"clusterConfiguration": {"etcd": {"external": etcd}}},
    })  # fmt: skip


def hosts(namespace: str, count: int, first: int = 0) -> list[Json]:
    made: list[Json] = []
    for number in range(first, first + count):
        name = f"rack-{number}"
        secret = {"name": f"{name}-bmc", "namespace": namespace}
        credentials = {"username": "u", "password": "p"}
        made.append({"apiVersion": "v1", "kind": "Secret", "metadata": secret, "stringData": credentials})
        bmc = {"address": f"redfish://bmc.invalid/{name}", "credentialsName": f"{name}-bmc"}
        spec = {"online": True, "bootMACAddress": f"02:00:00:00:00:{number:02x}", "bmc": bmc}
        made.append(one("metal3.io/v1alpha1", "BareMetalHost", name, namespace, spec))
    return made


class CapiWorld:
    """One Cluster in a namespace of its name, seen in one management cluster; its nodes are in `workload`."""

    def __init__(self, box: Sandbox, workload: Sandbox, name: str) -> None:
        self.box, self.workload, self.name, self.api = box, workload, name, Api(box)

    @classmethod
    def new(cls, box: Sandbox, workload: Sandbox, name: str) -> CapiWorld:
        box.kubectl("create", "namespace", name)
        connect_workload(box, workload, name, name)
        return cls(box, workload, name)

    def elsewhere(self, box: Sandbox) -> CapiWorld:
        """The same Cluster, seen in another management cluster."""
        return CapiWorld(box, self.workload, self.name)

    def make_hosts(self, count: int, first: int = 0) -> None:
        create(self.box, hosts(self.name, count, first))

    # -- paths

    def capi(self, plural: str, name: str = "") -> str:
        return f"/apis/{CAPI}/namespaces/{self.name}/{plural}{f'/{name}' if name else ''}"

    def metal(self, plural: str, name: str = "") -> str:
        return f"{METAL}/namespaces/{self.name}/{plural}{f'/{name}' if name else ''}"

    def hosts_path(self, name: str = "") -> str:
        return f"{HOSTS}/namespaces/{self.name}/baremetalhosts{f'/{name}' if name else ''}"

    # -- looking

    def machines(self) -> list[Json]:
        return self.api.items(self.capi("machines"))

    def running(self) -> list[Json]:
        """Machines that Cluster API calls Running and Ready, with their node."""
        found = ((machine, machine.get("status", {})) for machine in self.machines())
        return [machine for machine, status in found if status.get("phase") == "Running" and _is_ready(status)]

    def hosts(self) -> dict[str, Json]:
        return {host["metadata"]["name"]: host for host in self.api.items(self.hosts_path())}

    def states(self) -> dict[str, str]:
        return {
            name: host.get("status", {}).get("provisioning", {}).get("state", "") for name, host in self.hosts().items()
        }

    def used(self) -> dict[str, str]:
        """Hosts with a machine, and the machine."""
        consumers = {name: host["spec"].get("consumerRef") or {} for name, host in self.hosts().items()}
        return {name: found["name"] for name, found in consumers.items() if found.get("kind") == "Metal3Machine"}

    def nodes(self) -> dict[str, Json]:
        """The nodes of this Cluster in the workload cluster."""
        found = self.workload.read("/api/v1/nodes")["items"]
        mine = f"metal3://{self.name}/"
        return {node["metadata"]["name"]: node for node in found if node["spec"].get("providerID", "").startswith(mine)}

    def boots(self) -> dict[str, str]:
        return {name: node["status"]["nodeInfo"]["bootID"] for name, node in self.nodes().items()}

    def everything(self) -> list[Json]:
        """Every object of the namespace that belongs to the Cluster or to a host, each with its `path`."""
        paths = [f"{group}/namespaces/{self.name}/{plural}" for group, plural in KINDS]
        found = [(path, each) for path in paths for each in self.api.items(path)]
        return [{**each, "path": f"{path}/{each['metadata']['name']}"} for path, each in found]

    def left(self) -> list[str]:
        return [each["path"] for each in self.everything()]

    def terminating(self) -> list[str]:
        return [each["path"] for each in self.everything() if "deletionTimestamp" in each["metadata"]]

    # -- doing

    def delete(self) -> None:
        self.box.kubectl("delete", "cluster", self.name, "-n", self.name, "--timeout=120s")

    def forget(self) -> None:
        """Every object goes, without anybody who could empty a host."""
        end = time.monotonic() + 60
        while (left := self.everything()) and time.monotonic() < end:
            for each in left:
                self.api.delete(each["path"])
                self.api.call("PATCH", each["path"], {"metadata": {"finalizers": None}})

    def end(self) -> None:
        """Nothing stays: machines of a story that failed would go on deleting nodes of the next one's names."""
        self.forget()
        self.api.close()
        self.box.kubectl("delete", "namespace", self.name, "--wait=false")


def _is_ready(status: Json) -> bool:
    return any((said["type"], said["status"]) == ("Ready", "True") for said in status.get("conditions", ()))


def deploy(world: CapiWorld, replicas: int, eventually: Eventually, machine: Json | None = None, **spec: Any) -> None:
    """A MachineDeployment from nothing, until its machines run."""
    name = world.name
    world.box.apply(cluster(name, name), *infrastructure(name, machine), *machine_deployment(name, replicas, **spec))
    eventually(lambda: len(world.running()) == replicas, 120, f"{replicas} machines run")


def label_definitions(box: Sandbox) -> None:
    """As `clusterctl init` labels the CRDs of providers, and docs/metal.md has people label Baremetal Operator's."""
    found = box.get("crd")["items"]
    names = [each["metadata"]["name"] for each in found if each["spec"]["group"] in (GROUP, "ipam.metal3.io")]
    box.kubectl("label", "crd", *names, f"{CLUSTERCTL}=", "--overwrite")
    box.kubectl("label", "crd", "baremetalhosts.metal3.io", f"{CLUSTERCTL}=", "--overwrite")
    box.kubectl("label", "crd", "hardwaredata.metal3.io", f"{CLUSTERCTL}=", f"{CLUSTERCTL}/move=", "--overwrite")


@contextmanager
def baremetal_operator_down(box: Sandbox) -> Iterator[None]:
    """As docs/metal.md wants it in the source of a move: scaled to 0."""
    box = Sandbox.open(box.layout.root)  # parts may have been brought back since
    box.stop("hosts")
    try:
        yield
    finally:
        Sandbox.open(box.layout.root).start("hosts", wait=True)


def saved_status(host: Json) -> Json:
    """The status that a host carries along, or nothing."""
    found: Json = json.loads(host["metadata"].get("annotations", {}).get(STATUS, "{}"))
    return found
