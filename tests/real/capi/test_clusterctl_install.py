"""Hostler as a provider of Cluster API: clusterctl installs it, makes a cluster of it, and takes it away again.

The sandbox has Cluster API and what Baremetal Operator brings, but none of the provider's kinds: those come with the
components. Everything else is as docs/metal-clusterctl.md has it, but that the operator runs as a process: kwok plays
the pods of its Deployment and runs no container.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hostler import __version__
from hostler.apis.metal3 import GROUP
from hostler.sandbox import Sandbox
from hostler.sandbox.load import create
from hostler.sandbox.workload import connect_workload
from hostler.ship import components
from tests.real.clusterctl_world import NAMESPACE, PROVIDER, VARIABLES, definitions, generated, providers
from tests.real.conftest import Eventually
from tests.real.deployed import manager_of, run_in_place_of, variables_of
from tests.real.operating import Running, denied, refused

pytestmark = pytest.mark.xdist_group("sandbox")
Json = dict[str, Any]


def test_init_installs_the_provider_and_its_kinds(installed: Sandbox) -> None:
    assert providers(installed) == {PROVIDER: f"v{__version__}"}
    assert len(definitions(installed)) == 9
    for one in definitions(installed).values():
        labels = one["metadata"]["labels"]
        assert labels["cluster.x-k8s.io/v1beta2"] == "v1beta2"
        assert labels["cluster.x-k8s.io/provider"] == f"infrastructure-{PROVIDER}"
        assert "clusterctl.cluster.x-k8s.io" in labels
        assert one["status"]["storedVersions"] == ["v1beta2"]
    deployment = installed.get("deployment.apps", "hostler", "-n", NAMESPACE)
    assert manager_of(deployment)["image"] == f"{components.IMAGE}:{__version__}"
    assert variables_of(installed, deployment)["HOSTLER_METAL_WORKERS"] == "7", "as clusterctl was told"
    assert variables_of(installed, deployment)["HOSTLER_METAL_SELECTION"] == "random", "which is the default"
    planned = installed.clusterctl("upgrade", "plan")
    (line,) = [line for line in planned.splitlines() if line.startswith(f"infrastructure-{PROVIDER}")]
    assert "Already up to date" in line


@pytest.fixture
def operator(installed: Sandbox, tmp_path: Path) -> Iterator[Running]:
    """In place of the pods of the Deployment."""
    with run_in_place_of(installed, components.LABEL, NAMESPACE, "hostler", tmp_path) as running:
        yield running


def test_a_cluster_from_nothing_runs(
    installed: Sandbox, operator: Running, workload: Sandbox, place: str, eventually: Eventually
) -> None:
    connect_workload(installed, workload, place, "c1")
    create(installed, hosts(place, 2))
    installed.apply(*generated(installed, "c1", place, "--flavor", "external-etcd"))
    # Nobody can read the certificate of an API server whose pod is played.
    known = {"machine.cluster.x-k8s.io/certificates-expiry": "2099-01-01T00:00:00Z"}
    patch = json.dumps({"spec": {"machineTemplate": {"metadata": {"annotations": known}}}})
    installed.kubectl("patch", "kubeadmcontrolplane", "c1-control-plane", "-n", place, "--type=merge", "-p", patch)
    machines = f"/apis/cluster.x-k8s.io/v1beta2/namespaces/{place}/machines"

    def running() -> list[str]:
        listed = installed.read(machines)["items"]
        return [one["metadata"]["name"] for one in listed if one.get("status", {}).get("phase") == "Running"]

    eventually(lambda: len(running()) == 2, 180, "a machine of the control plane and a worker run")
    described = installed.clusterctl("describe", "cluster", "c1", "-n", place)
    assert f"KubeadmControlPlane {place}/c1-control-plane" in described
    assert f"MachineDeployment {place}/c1-workers" in described
    nodes = {one["metadata"]["name"] for one in workload.read("/api/v1/nodes")["items"]}
    assert {*running()} <= nodes, "a node has the name of its Machine"
    installed.kubectl("delete", "cluster", "c1", "-n", place, "--timeout=120s")
    assert refused(operator) == []
    assert denied(installed, operator.user) == []


def test_every_flavour_is_taken_by_cluster_api(
    installed: Sandbox, operator: Running, place: str, eventually: Eventually
) -> None:
    plain, topology = (generated(installed, "c1", place, *flavour) for flavour in ((), ("--flavor", "topology")))
    text = "\n---\n".join(json.dumps(one) for one in plain)
    taken = installed.kubectl("apply", "--dry-run=server", "-f", "-", input=text)
    assert len(taken.splitlines()) == len(plain)
    assert any(one["kind"] == "ClusterClass" for one in topology), "clusterctl adds the class"
    installed.apply(*topology)
    infrastructure, core = f"/apis/{GROUP}/v1beta2", "/apis/cluster.x-k8s.io/v1beta2"

    def of(path: str) -> list[Json]:
        base, _, plural = path.rpartition("/")
        return list(installed.read(f"{base}/namespaces/{place}/{plural}")["items"])

    (made,) = eventually(lambda: of(f"{infrastructure}/metal3clusters"), 60, "the class makes a Metal3Cluster")
    assert made["spec"]["controlPlaneEndpoint"] == {"host": "127.0.0.1", "port": 6443}
    eventually(lambda: of(f"{core}/machinedeployments"), 60, "and a MachineDeployment")
    images = [one["spec"]["template"]["spec"] for one in of(f"{infrastructure}/metal3machinetemplates")]
    cloned = [one for one in images if one["image"]["url"] == VARIABLES["IMAGE_URL"]]
    assert {one["dataTemplate"]["name"] for one in cloned} == {"c1"}
    installed.kubectl("delete", "cluster", "c1", "-n", place, "--timeout=120s")
    assert refused(operator) == []


def hosts(namespace: str, count: int) -> list[Json]:
    made: list[Json] = []
    for number in range(count):
        name = f"rack-{number}"
        metadata = {"name": name, "namespace": namespace}
        login = {"metadata": {**metadata, "name": f"{name}-bmc"}, "stringData": {"username": "u", "password": "p"}}
        made.append({"apiVersion": "v1", "kind": "Secret", **login})
        bmc = {"address": f"redfish://bmc.invalid/{name}", "credentialsName": f"{name}-bmc"}
        spec = {"online": True, "bootMACAddress": f"02:00:00:00:01:{number:02x}", "bmc": bmc}
        made.append({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "metadata": metadata, "spec": spec})
    return made


def test_delete_takes_the_operator_away_and_keeps_the_kinds(installed: Sandbox, place: str, tmp_path: Path) -> None:
    spec = {"controlPlaneEndpoint": {"host": "127.0.0.1", "port": 6443}}
    metadata = {"name": "kept", "namespace": place, "annotations": {"cluster.x-k8s.io/paused": ""}}
    with run_in_place_of(installed, components.LABEL, NAMESPACE, "hostler", tmp_path):
        created = {"apiVersion": f"{GROUP}/v1beta2", "kind": "Metal3Cluster", "metadata": metadata, "spec": spec}
        installed.apply(created)
    path = f"/apis/{GROUP}/v1beta2/namespaces/{place}/metal3clusters/kept"
    before = installed.read(path)
    installed.clusterctl("delete", "--infrastructure", PROVIDER)
    assert providers(installed) == {}
    assert installed.get("deployment.apps", "-n", NAMESPACE)["items"] == []
    left = installed.get(
        "clusterroles,clusterrolebindings,validatingwebhookconfigurations,mutatingwebhookconfigurations",
        "-l", f"cluster.x-k8s.io/provider={components.LABEL}",
    )  # fmt: skip
    assert left["items"] == []
    assert installed.read(path) == before
    assert len(definitions(installed)) == 9
