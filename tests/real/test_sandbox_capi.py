"""`hostler sandbox up --with capi`: the real Cluster API in a sandbox, its webhooks, clusterctl, and its end.

The last story is a MachineDeployment from nothing: Cluster API's controllers, Hostler's metal capability as the
infrastructure provider, the host driver, and a second sandbox as the workload cluster.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hostler.errors import Complaint, Exit
from hostler.sandbox import Options, Sandbox, build
from hostler.sandbox.capi import components
from hostler.sandbox.load import create
from hostler.sandbox.parts import MANAGERS
from hostler.sandbox.workload import connect_workload
from tests.real.conftest import Eventually
from tests.real.operating import operator, refused

pytestmark = pytest.mark.xdist_group("sandbox")  # one more at a time beside the shared one
CAPI = "cluster.x-k8s.io/v1beta2"
INFRA = "infrastructure.cluster.x-k8s.io"
IMAGE = {"url": "http://images.invalid/os.qcow2", "checksum": "http://images.invalid/sum", "checksumType": "sha256"}
Json = dict[str, Any]


def started(folders: pytest.TempPathFactory, name: str, options: Options) -> Sandbox:
    """A sandbox of this file's own, or the one that is kept; see conftest."""
    kept = os.environ.get("HOSTLER_TEST_SANDBOX")
    folder = Path(f"{kept}-{name}") if kept else folders.mktemp(name)
    with (folders.getbasetemp().parent / "ports").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # as in conftest: nobody else chooses ports meanwhile
        return Sandbox.up(folder, options)


@pytest.fixture(scope="module")
def management(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    box = started(tmp_path_factory, "management", Options(extras=("capi",), crds=("metal3",), audit=True))
    yield box
    if "HOSTLER_TEST_SANDBOX" not in os.environ:
        box = Sandbox.open(box.layout.root)  # parts may have been brought back since
        processes = [box.state.parts[part] for part in box.part_names]
        box.down()
        assert not any(one.alive for one in processes), "down ends the managers too"


@pytest.fixture(scope="module")
def workload(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    box = started(tmp_path_factory, "workload", Options())
    yield box
    if "HOSTLER_TEST_SANDBOX" not in os.environ:
        box.down()


def hostler(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hostler", "sandbox", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def cluster(name: str, namespace: str = "default", **spec: Any) -> Json:
    reference = {"apiGroup": INFRA, "kind": "Metal3Cluster", "name": name}
    metadata = {"name": name, "namespace": namespace}
    return {
        "apiVersion": CAPI,
        "kind": "Cluster",
        "metadata": metadata,
        "spec": {"infrastructureRef": reference, **spec},
    }


def listening(pid: int) -> set[str]:
    """The addresses a process listens on, as the kernel writes them."""
    sockets = {os.readlink(file) for file in Path(f"/proc/{pid}/fd").iterdir() if file.is_symlink()}
    lines = [
        line.split() for kind in ("tcp", "tcp6") for line in Path(f"/proc/net/{kind}").read_text().splitlines()[1:]
    ]
    return {line[1].partition(":")[0] for line in lines if line[3] == "0A" and f"socket:[{line[9]}]" in sockets}


def test_a_second_use_needs_no_go_and_no_network(management: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("GOPROXY", "off")
    assert str(build.ensure("capi", build.Silent())) == management.state.programs["capi"]
    assert {*components(build.Silent())} == {*MANAGERS, "clusterctl", "metadata"}


def test_the_managers_run_and_listen_on_loopback_only(management: Sandbox) -> None:
    parts = {part.name: part for part in management.status()}
    assert {*MANAGERS} < {*parts}
    for name in MANAGERS:
        assert parts[name].alive
        assert listening(parts[name].pid) == {"0100007F"}, name


def test_webhooks_refuse_and_convert(management: Sandbox) -> None:
    reference = {"apiGroup": INFRA, "kind": "Metal3Machine", "name": "m"}
    machine = {
        "apiVersion": CAPI, "kind": "Machine", "metadata": {"name": "m"},
        "spec": {"clusterName": "c", "bootstrap": {}, "infrastructureRef": reference},
    }  # fmt: skip
    with pytest.raises(Complaint, match=r"expected either spec\.bootstrap\.dataSecretName"):
        management.apply(machine)
    management.apply(cluster("converted"))
    old = json.loads(management.kubectl("get", "clusters.v1beta1.cluster.x-k8s.io", "converted", "-o", "json"))
    assert old["spec"]["infrastructureRef"]["namespace"] == "default", "v1beta2 has no namespace there"
    management.kubectl("delete", "cluster", "converted")


def test_a_killed_manager_is_named_and_brought_back(management: Sandbox) -> None:
    management.kill("capi-core")
    status = hostler("status", "--dir", str(management.layout.root))
    assert status.returncode == Exit.FAILED
    assert "capi-core is dead" in status.stderr
    with pytest.raises(Complaint, match="failed calling webhook"):
        management.apply(cluster("refused"))
    assert "capi-core" in Sandbox.up(management.layout.root, management.state.options).news
    management = Sandbox.open(management.layout.root)
    management.apply(cluster("taken"))
    management.kubectl("delete", "cluster", "taken")


def test_clusterctl_knows_what_is_installed(management: Sandbox) -> None:
    version = json.loads(management.clusterctl("version", "-o", "json"))["clusterctl"]
    listed = management.get("providers.clusterctl.cluster.x-k8s.io", "-A")["items"]
    assert {one["version"] for one in listed} == {version["gitVersion"]}
    assert {one["type"] for one in listed} == {"CoreProvider", "BootstrapProvider", "ControlPlaneProvider"}
    planned = management.clusterctl("upgrade", "plan")
    assert planned.count("Already up to date") == 3, planned


def test_clusterctl_init_installs_a_provider_without_a_network(management: Sandbox, tmp_path: Path) -> None:
    settings = management.layout.clusterctl / "cluster-api" / "clusterctl.yaml"
    release = tmp_path / "infrastructure-example" / "v0.1.0"
    release.mkdir(parents=True)
    series = {"apiVersion": "clusterctl.cluster.x-k8s.io/v1alpha3", "kind": "Metadata"}
    contract = {"major": 0, "minor": 1, "contract": "v1beta2"}
    (release / "metadata.yaml").write_text(json.dumps({**series, "releaseSeries": [contract]}))
    label = {"cluster.x-k8s.io/provider": "infrastructure-example"}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "example-system", "labels": label}}
    components = release / "infrastructure-components.yaml"
    components.write_text(json.dumps(namespace))
    before = settings.read_text()
    named = yaml.safe_load(before)
    named["providers"].append({"name": "example", "type": "InfrastructureProvider", "url": components.as_uri()})
    settings.write_text(yaml.safe_dump(named))
    try:
        management.clusterctl("init", "--infrastructure", "example")
        listed = management.get("providers.clusterctl.cluster.x-k8s.io", "-n", "example-system")["items"]
        assert [(one["providerName"], one["version"]) for one in listed] == [("example", "v0.1.0")]
        management.clusterctl("delete", "--infrastructure", "example", "--include-namespace")
    finally:
        settings.write_text(before)


def test_a_sandbox_without_cluster_api_says_so(sandbox: Sandbox, tmp_path: Path) -> None:
    done = hostler("clusterctl", "--dir", str(sandbox.layout.root), "version")
    assert done.returncode == Exit.SETTING
    assert "--with capi" in done.stderr
    done = hostler("up", "--dir", str(tmp_path / "d"), "--with", "openstack")
    assert done.returncode == Exit.USAGE
    assert "--with knows capi" in done.stderr


def deployment(namespace: str, name: str, replicas: int) -> list[Json]:
    """A MachineDeployment with its templates, as a cluster template of Metal3 has them."""

    def one(version: str, kind: str, spec: Json) -> Json:
        metadata = {"name": name, "namespace": namespace}
        return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}

    # What tells Metal3 which node is which: the uuid of the host in a label.
    arguments = [{"name": "node-labels", "value": "metal3.io/uuid={{ ds.meta_data.uuid }}"}]
    registration = {"nodeRegistration": {"name": "{{ ds.meta_data.local_hostname }}", "kubeletExtraArgs": arguments}}
    labels = {"cluster.x-k8s.io/cluster-name": name, "nodepool": name}
    bootstrap = {"apiGroup": "bootstrap.cluster.x-k8s.io", "kind": "KubeadmConfigTemplate", "name": name}
    infrastructure = {"apiGroup": INFRA, "kind": "Metal3MachineTemplate", "name": name}
    machine = {
        "clusterName": name, "version": "v1.37.1", "bootstrap": {"configRef": bootstrap},
        "infrastructureRef": infrastructure,
    }  # fmt: skip
    return [
        one(f"{INFRA}/v1beta2", "Metal3Cluster", {"controlPlaneEndpoint": {"host": "127.0.0.1", "port": 6443}}),
        one(f"{INFRA}/v1beta2", "Metal3MachineTemplate", {"template": {"spec": {"image": IMAGE}}}),
        one(
            "bootstrap.cluster.x-k8s.io/v1beta2", "KubeadmConfigTemplate",
            {"template": {"spec": {"joinConfiguration": registration}}},
        ),
        one(CAPI, "MachineDeployment", {
            "clusterName": name, "replicas": replicas, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": machine},
        }),
    ]  # fmt: skip


def hosts(namespace: str, count: int) -> list[Json]:
    made: list[Json] = []
    for number in range(count):
        name, credentials = f"rack-{number}", {"username": "u", "password": "p"}
        metadata = {"name": name, "namespace": namespace}
        secret = {**metadata, "name": f"{name}-bmc"}
        made.append({"apiVersion": "v1", "kind": "Secret", "metadata": secret, "stringData": credentials})
        bmc = {"address": f"redfish://bmc.invalid/{name}", "credentialsName": f"{name}-bmc"}
        spec = {"online": True, "bootMACAddress": f"02:00:00:00:00:{number:02x}", "bmc": bmc}
        made.append({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "metadata": metadata, "spec": spec})
    return made


def boots(nodes: list[Json]) -> dict[str, str]:
    return {one["metadata"]["name"]: one["status"]["nodeInfo"]["bootID"] for one in nodes}


def test_a_machine_deployment_of_three_runs_and_goes(
    management: Sandbox, workload: Sandbox, tmp_path: Path, eventually: Eventually
) -> None:
    name, machines = f"md-{os.urandom(3).hex()}", f"/apis/{CAPI}/namespaces/{{}}/machines"
    management.kubectl("create", "namespace", name)
    path = machines.format(name)
    connected = hostler(
        *("workload", name, "--dir", str(management.layout.root), "--from", str(workload.layout.root)),
        *("--namespace", name, "-o", "json"),
    )
    assert json.loads(connected.stdout)["secrets"][:2] == [f"{name}-kubeconfig", f"{name}-ca"], connected.stderr

    def running() -> list[Json]:
        return [one for one in management.read(path)["items"] if one.get("status", {}).get("phase") == "Running"]

    def joined() -> list[Json]:
        mine = f"metal3://{name}/"
        nodes = workload.read("/api/v1/nodes")["items"]
        return [one for one in nodes if one["spec"].get("providerID", "").startswith(mine)]

    with operator(management, tmp_path, name, "--only", "metal") as hostler_operator:
        create(management, hosts(name, 4))
        management.apply(cluster(name, name), *deployment(name, name, 3))
        eventually(lambda: len(running()) == 3, 90, "three machines run")
        nodes = {one["metadata"]["name"]: one for one in joined()}
        assert {one["status"]["nodeRef"]["name"] for one in running()} == {*nodes}
        assert {one["spec"]["providerID"] for one in running()} == {one["spec"]["providerID"] for one in nodes.values()}
        before = boots(list(nodes.values()))
        host = next(iter(nodes))  # the inspection names a machine after its host
        management.kubectl("annotate", "bmh", host, "-n", name, "reboot.metal3.io=")
        eventually(lambda: boots(joined())[host] != before[host], 60, "its node has another boot id")
        assert {node: boot for node, boot in boots(joined()).items() if node != host} == {
            node: boot for node, boot in before.items() if node != host
        }
        described = management.clusterctl("describe", "cluster", name, "-n", name, "--show-conditions", "all")
        assert f"MachineDeployment {name}/{name}" in described
        management.kubectl("scale", "machinedeployment", name, "-n", name, "--replicas=1")
        eventually(lambda: len(management.read(path)["items"]) == 1 and len(joined()) == 1, 90, "one machine is left")
        management.kubectl("delete", "cluster", name, "-n", name, "--timeout=90s")
        assert joined() == []
        assert refused(hostler_operator) == []
    management.kubectl("delete", "namespace", name, "--wait=false")


@pytest.mark.full
def test_a_kubeadm_control_plane_grows_from_one_to_three(
    management: Sandbox, workload: Sandbox, tmp_path: Path, eventually: Eventually
) -> None:
    name = f"kcp-{os.urandom(3).hex()}"
    management.kubectl("create", "namespace", name)
    connect_workload(management, workload, name, name)
    etcd = {
        "endpoints": [f"https://127.0.0.1:{workload.state.ports['etcd']}"], "caFile": "/etc/etcd/ca.crt",
        "certFile": "/etc/etcd/client.crt", "keyFile": "/etc/etcd/client.key",
    }  # fmt: skip
    infrastructure = {"apiGroup": INFRA, "kind": "Metal3MachineTemplate", "name": name}
    # It would forward a port to the API server's pod to read its certificate; no pod of kwok's has one.
    known = {"machine.cluster.x-k8s.io/certificates-expiry": "2099-01-01T00:00:00Z"}
    plane = {
        "apiVersion": "controlplane.cluster.x-k8s.io/v1beta2", "kind": "KubeadmControlPlane",
        "metadata": {"name": name, "namespace": name},
        "spec": {
            "replicas": 1, "version": "v1.37.1",
            "machineTemplate": {"metadata": {"annotations": known}, "spec": {"infrastructureRef": infrastructure}},
            "kubeadmConfigSpec": {"clusterConfiguration": {"etcd": {"external": etcd}}},
        },
    }  # fmt: skip
    reference = {"apiGroup": "controlplane.cluster.x-k8s.io", "kind": "KubeadmControlPlane", "name": name}
    templates = [one for one in deployment(name, name, 0) if one["kind"] in ("Metal3Cluster", "Metal3MachineTemplate")]

    def ready() -> int:
        status = management.get("kubeadmcontrolplane", name, "-n", name).get("status", {})
        return int(status.get("readyReplicas", 0))

    with operator(management, tmp_path, name, "--only", "metal"):
        create(management, hosts(name, 3))
        management.apply(cluster(name, name, controlPlaneRef=reference), *templates, plane)
        eventually(lambda: ready() == 1, 120, "the first machine of the control plane")
        management.kubectl("scale", "kubeadmcontrolplane", name, "-n", name, "--replicas=3")
        eventually(lambda: ready() == 3, 240, "all three machines of the control plane")
        management.clusterctl("describe", "cluster", name, "-n", name)
        management.kubectl("delete", "cluster", name, "-n", name, "--timeout=120s")
    management.kubectl("delete", "namespace", name, "--wait=false")
