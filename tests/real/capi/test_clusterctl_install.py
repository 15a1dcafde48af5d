"""Hostler as a provider of Cluster API: clusterctl installs it, makes a cluster of it, and takes it away again.

The sandbox has Cluster API and what Baremetal Operator brings, but none of the provider's kinds: those come with the
components. Everything else is as docs/metal-clusterctl.md has it, but that the operator runs as a process: kwok plays
the pods of its Deployment and runs no container.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hostler import __version__
from hostler.apis.metal3 import GROUP
from hostler.errors import Complaint
from hostler.sandbox import Options, Sandbox
from hostler.sandbox.load import create
from hostler.sandbox.workload import connect_workload
from hostler.ship import components
from tests.real import clusterctl_go_provider as go_provider
from tests.real.capi.conftest import started
from tests.real.conftest import Eventually
from tests.real.deployed import manager_of, run_in_place_of, variables_of
from tests.real.operating import Running, denied, refused
from tests.real.whole_objects import whole_object

pytestmark = pytest.mark.xdist_group("sandbox")
Json = dict[str, Any]
NAMESPACE, PROVIDER = components.NAMESPACE, components.PROVIDER
INVENTORY = "/apis/clusterctl.cluster.x-k8s.io/v1alpha3/providers"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
VARIABLES = {
    "HOSTLER_METAL_WORKERS": "7",
    "CLUSTER_APIENDPOINT_HOST": "127.0.0.1",
    "IMAGE_URL": "http://images.invalid/node.qcow2",
    "IMAGE_CHECKSUM": "http://images.invalid/node.qcow2.sha256",
}


@pytest.fixture(scope="module")
def without_provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """A management cluster without a provider for metal."""
    yield from started(tmp_path_factory, "bare", Options(extras=("capi",), crds=("bmo",), audit=True))


@pytest.fixture(scope="module")
def bare(without_provider: Sandbox, tmp_path_factory: pytest.TempPathFactory, workload: Sandbox) -> Sandbox:
    """The same, and its clusterctl knows ours and the stand-in for the Go one."""
    folder = tmp_path_factory.mktemp("repository")
    ours = components.write_repository(folder) / "infrastructure-components.yaml"
    settings = without_provider.layout.clusterctl / "cluster-api" / "clusterctl.yaml"
    told = yaml.safe_load(settings.read_text())
    named = {PROVIDER: ours, "metal3": go_provider.write_repository(folder)}
    told["providers"] = [one for one in told["providers"] if one["name"] not in named]
    for name, file in named.items():
        told["providers"].append({"name": name, "type": "InfrastructureProvider", "url": file.as_uri()})
    etcd = f"https://127.0.0.1:{workload.state.ports['etcd']}"
    settings.write_text(yaml.safe_dump({**told, **VARIABLES, "ETCD_ENDPOINTS": etcd}))
    return without_provider


def providers(box: Sandbox) -> dict[str, str]:
    """What clusterctl has installed for infrastructure, and its version."""
    listed = box.read(INVENTORY)["items"]
    return {one["providerName"]: one["version"] for one in listed if one["type"] == "InfrastructureProvider"}


def init(box: Sandbox, name: str) -> None:
    """Nothing can be made in a namespace that goes; one of them clusterctl makes to see that cert-manager is there."""
    namespaces = "/api/v1/namespaces"
    wait_until(lambda: all(one["status"]["phase"] == "Active" for one in box.read(namespaces)["items"]))
    box.clusterctl("init", "--infrastructure", name)
    wait_until(lambda: len(definitions(box)) == 9 and all(is_served(box, one) for one in definitions(box).values()))


def is_served(box: Sandbox, definition: Json) -> bool:
    try:
        box.read(f"/apis/{GROUP}/v1beta2/{definition['spec']['names']['plural']}")
    except Complaint:
        return False
    return True


def wait_until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + 90
    while not done():
        assert time.monotonic() < end
        time.sleep(0.2)


@pytest.fixture
def installed(bare: Sandbox) -> Sandbox:
    if PROVIDER not in providers(bare):
        init(bare, PROVIDER)
    return bare


@pytest.fixture
def place(bare: Sandbox) -> Iterator[str]:
    """A namespace for a cluster."""
    name = f"metal-{os.urandom(3).hex()}"
    bare.kubectl("create", "namespace", name)
    yield name
    bare.kubectl("delete", "namespace", name, "--timeout=120s")  # while the operator lets go of what is in it


def definitions(box: Sandbox) -> dict[str, Json]:
    """The kinds of the provider, by name."""
    found = box.read(DEFINITIONS)["items"]
    return {one["metadata"]["name"]: one for one in found if one["spec"]["group"] == GROUP}


def generated(box: Sandbox, name: str, namespace: str, *flavour: str) -> list[Json]:
    """What `clusterctl generate cluster` makes."""
    text = box.clusterctl(
        "generate", "cluster", name, "--infrastructure", PROVIDER, "--target-namespace", namespace, *flavour,
        "--kubernetes-version", "v1.37.1", "--control-plane-machine-count", "1", "--worker-machine-count", "1",
    )  # fmt: skip
    return list(yaml.safe_load_all(text))


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


def whole_objects(box: Sandbox, namespace: str) -> None:
    """One of each kind, with every field of spec and status; nobody does anything for it."""
    for definition in go_provider.published_definitions():
        made = whole_object(definition, "v1beta2", "whole", namespace)
        made["metadata"]["annotations"] = {"cluster.x-k8s.io/paused": ""}
        status = made.pop("status", None)
        create(box, [made])
        if status:
            kind = definition["metadata"]["name"]
            patch = json.dumps({"status": status})
            box.kubectl("patch", kind, "whole", "-n", namespace, "--subresource=status", "--type=merge", "-p", patch)


def read_all(box: Sandbox, namespace: str) -> dict[str, Json]:
    found = {}
    for definition in go_provider.published_definitions():
        plural = definition["spec"]["names"]["plural"]
        found[plural] = box.read(f"/apis/{GROUP}/v1beta2/namespaces/{namespace}/{plural}/whole")
    return found


@pytest.mark.full
def test_it_takes_the_place_of_the_go_provider(
    bare: Sandbox, place: str, tmp_path: Path, eventually: Eventually
) -> None:
    for name in providers(bare):
        bare.clusterctl("delete", "--infrastructure", name, "--include-crd", "--include-namespace")
    eventually(lambda: not definitions(bare), what="no kind of a provider is left")
    init(bare, "metal3")
    whole_objects(bare, place)
    before = read_all(bare, place)
    assert all(one["spec"] for one in before.values())
    bare.clusterctl("delete", "--infrastructure", "metal3")
    assert providers(bare) == {}
    assert read_all(bare, place) == before, "clusterctl keeps kinds and objects"
    init(bare, PROVIDER)
    assert read_all(bare, place) == before
    for one in definitions(bare).values():
        assert one["metadata"]["labels"]["cluster.x-k8s.io/provider"] == f"infrastructure-{PROVIDER}"
        for version in one["spec"]["versions"]:
            assert version["schema"]["openAPIV3Schema"]["properties"]["spec"]["description"] == "What is wanted."
    with run_in_place_of(bare, components.LABEL, NAMESPACE, "hostler", tmp_path) as operator:
        for plural in before:  # still good for the API server and our webhooks, and none of it is dropped
            bare.kubectl("annotate", f"{plural}.{GROUP}", "whole", "-n", place, "example.org/touched=")
        assert refused(operator) == []
    after = read_all(bare, place)  # that it is paused, the operator says in the status
    assert {plural: one["spec"] for plural, one in after.items()} == {
        plural: one["spec"] for plural, one in before.items()
    }
    bare.kubectl("delete", ",".join(f"{plural}.{GROUP}" for plural in before), "whole", "-n", place, "--timeout=60s")


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


@pytest.mark.full
def test_upgrade_goes_to_the_next_version(installed: Sandbox) -> None:
    settings = yaml.safe_load((installed.layout.clusterctl / "cluster-api" / "clusterctl.yaml").read_text())
    (url,) = [one["url"] for one in settings["providers"] if one["name"] == PROVIDER]
    release = Path(url.removeprefix("file://")).parent
    shutil.copytree(release, release.parent / "v0.1.99", dirs_exist_ok=True)
    try:
        planned = installed.clusterctl("upgrade", "plan")
        (line,) = [line for line in planned.splitlines() if line.startswith(f"infrastructure-{PROVIDER}")]
        assert line.split()[-1] == "v0.1.99"
        installed.clusterctl("upgrade", "apply", "--infrastructure", f"{PROVIDER}:v0.1.99")
        assert providers(installed) == {PROVIDER: "v0.1.99"}
        assert installed.get("deployment.apps", "hostler", "-n", NAMESPACE)["spec"]["replicas"] == 2
    finally:
        installed.clusterctl("delete", "--infrastructure", PROVIDER)
        shutil.rmtree(release.parent / "v0.1.99")
