"""Platform without an admission policy, beside OpenShift's CSI operator, and in one operator with maintenance."""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hostler.platform.csi_driver import BEFORE
from hostler.sandbox import Sandbox
from hostler.sandbox.build import Silent
from hostler.sandbox.crds import install_crds
from tests.real.api_servers import another_api_server
from tests.real.conftest import Eventually
from tests.real.filming import versions
from tests.real.maintaining import Kube, Plan, until
from tests.real.operating import Running, hostler, operator
from tests.real.platforming import (
    DRIVER,
    INSTANCE_TYPE,
    METAL_LABELS,
    SPACE,
    STORY,
    VSPHERE_LABELS,
    clean,
    daemon_set,
    explained,
    fleet_conditions,
    overwritten,
    path_of,
    pods_on,
    prepare,
    put_back,
    required,
    set_targets,
)
from tests.real.story import on_its_own

MakeNode = Callable[..., str]
RULED = [{"matchExpressions": [{"key": INSTANCE_TYPE, "operator": "Exists"}]}]
OPENSHIFT = ("openshift-cluster-csi-drivers", "vmware-vsphere-csi-driver-node")
CSI_OPERATOR = "vmware-vsphere-csi-driver-operator"
NOBODY = "http://127.0.0.1:9"  # where no operator answers
CSI_DRIVER = "/apis/operator.openshift.io/v1/clustercsidrivers/csi.vsphere.vmware.com"


@pytest.fixture(scope="module", autouse=True)
def openshift(sandbox: Sandbox) -> Iterator[None]:
    assert hostler(sandbox.kubeconfig, "crds", "--apply").returncode == 0
    install_crds(sandbox, ("openshift",), Silent())
    sandbox.kubectl("create", "namespace", OPENSHIFT[0], check=False)
    yield
    sandbox.kubectl("delete", "namespace", OPENSHIFT[0], SPACE, "--ignore-not-found", "--wait=false")


@pytest.fixture(autouse=True)
def fleet(sandbox: Sandbox) -> Iterator[None]:
    """A new Fleet, nothing scoped yet."""
    sandbox.kubectl("delete", "fleet", "--all", "--ignore-not-found")
    spec: dict[str, Any] = {"platform": {"daemonSets": []}}
    sandbox.apply(
        {"apiVersion": "hostler.dev/v1alpha1", "kind": "Fleet", "metadata": {"name": "cluster"}, "spec": spec}
    )
    prepare(sandbox)
    yield
    clean(sandbox)
    sandbox.kubectl("delete", "fleet", "--all", "--ignore-not-found")


@pytest.fixture
def story() -> str:
    return f"s-{os.urandom(3).hex()}"


@pytest.fixture
def nodes(make_node: MakeNode, story: str) -> tuple[str, str]:
    """A VM's node and a bare metal one."""
    uuid = "4206e4b5-0d3a-1d0f-86a1-2c1b6d9b0042"
    vm = make_node(f"{story}-vm", labels={**VSPHERE_LABELS, STORY: story}, provider_id=f"vsphere://{uuid}")
    return vm, make_node(f"{story}-bm", labels={**METAL_LABELS, STORY: story}, provider_id="")


def test_an_older_api_server_and_somebody_who_overwrites_again_and_again(
    sandbox: Sandbox, namespace: str, nodes: tuple[str, str], story: str, tmp_path: Path, eventually: Eventually
) -> None:
    """No admission policy there: said, put back by server-side apply, and after three times the other one is named."""
    set_targets(sandbox, None)
    sandbox.apply(daemon_set(story))
    with another_api_server(sandbox, tmp_path, "older", "--emulated-version=1.35") as kubeconfig:
        shown = hostler(kubeconfig, "platform", "status")
        assert "has no MutatingAdmissionPolicy" in shown.stderr, shown.stderr + shown.stdout
        flags = ("--only", "platform", "--platform-strict", "--platform-fight-reverts", "3")
        with operator(sandbox, tmp_path, namespace, *flags, at=kubeconfig) as running:
            running.said("leading")
            eventually(lambda: required(sandbox.read(path_of())) == RULED, 60, "the rule, by server-side apply")
            because = "server-side apply, because this API server has no MutatingAdmissionPolicy"
            eventually(lambda: because in available(sandbox), 60, because)
            eventually(lambda: pods_on(sandbox) == [nodes[0]], 60, "the driver is where it belongs")
            strict = "ForeignNodes"
            eventually(lambda: fleet_conditions(sandbox)["Degraded"]["reason"] == strict, 60, "strict: it is a fault")
            with (
                versions(sandbox, path_of().rpartition("/")[0], DRIVER) as seen,
                overwritten(sandbox, story, "helm", every=0.5) as answers,
            ):
                eventually(lambda: fleet_conditions(sandbox)["Degraded"].get("reason") == "Fight", 120, "a fight")
                done, so_far = put_back(seen), len(answers)
                assert done >= 2, "it was put back in between"
                assert 'field manager "helm"' in fleet_conditions(sandbox)["Degraded"]["message"]
                eventually(lambda: len(answers) >= so_far + 3, 60, "three more overwrites")
                assert put_back(seen) <= done + 1, "it stopped, but for what was under way"
                eventually(lambda: required(sandbox.read(path_of())) == [], 60, "as the other one wants it")
    assert sandbox.kubectl("get", "mutatingadmissionpolicies", "-l", "hostler.dev/capability=platform") == ""


def available(box: Sandbox) -> str:
    return fleet_conditions(box).get("Available", {}).get("message", "")


def managed(kube: Kube) -> bool:
    return bool(kube.get(CSI_DRIVER)["spec"].get("managementState") != "Unmanaged")


def test_the_csi_operator_is_set_aside_and_back(
    sandbox: Sandbox, namespace: str, nodes: tuple[str, str], story: str, tmp_path: Path, eventually: Eventually
) -> None:
    """As OpenShift's operator does it: the DaemonSet is put back every second for as long as its driver is Managed.

    Set aside where asked to; given back when not wanted any more, when we respect its operator again, and by hand.
    """
    name = CSI_DRIVER.rpartition("/")[2]
    pod = {"nodeSelector": {"no": "where"}, "containers": [{"name": "c", "image": "i"}]}
    sandbox.apply(
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": CSI_OPERATOR, "namespace": OPENSHIFT[0]},
         "spec": {"selector": {"matchLabels": {"app": CSI_OPERATOR}},
                  "template": {"metadata": {"labels": {"app": CSI_OPERATOR}}, "spec": pod}}},
        {"apiVersion": "operator.openshift.io/v1", "kind": "ClusterCSIDriver", "metadata": {"name": name},
         "spec": {"managementState": "Managed"}},
        daemon_set(story, at=OPENSHIFT),
    )  # fmt: skip
    flags = ("--only", "platform", "--platform-way", "unmanaged")
    collection = path_of(OPENSHIFT).rpartition("/")[0]
    try:
        with (
            overwritten(sandbox, story, CSI_OPERATOR, OPENSHIFT, unless=lambda kube: not managed(kube)) as answers,
            versions(sandbox, collection, OPENSHIFT[1]) as seen,
            operator(sandbox, tmp_path, namespace, *flags, "--ignore-incumbent", "platform") as running,
        ):
            running.said("leading")
            set_targets(sandbox, None)
            eventually(lambda: sandbox.read(CSI_DRIVER)["spec"]["managementState"] == "Unmanaged", 60, "set aside")
            assert sandbox.read(CSI_DRIVER)["metadata"]["annotations"][BEFORE] == "Managed"
            eventually(lambda: required(sandbox.read(path_of(OPENSHIFT))) == RULED, 60, "the rule")
            eventually(lambda: f"ClusterCSIDriver {name} is Unmanaged" in available(sandbox), 90, "it is said")
            so_far, versions_so_far = len(answers), len(seen)
            eventually(lambda: statuses_steady(sandbox), 60, "nobody fights")
            assert len(answers) <= so_far + 1, "the CSI operator leaves it alone, but for what was under way"
            assert put_back(seen[versions_so_far:]) <= 1
            set_targets(sandbox, [])
            eventually(lambda: sandbox.read(CSI_DRIVER)["spec"]["managementState"] == "Managed", 60, "and back")
            assert BEFORE not in sandbox.read(CSI_DRIVER)["metadata"].get("annotations", {})
            eventually(lambda: required(sandbox.read(path_of(OPENSHIFT))) == [], 60, "its operator is at work again")
            set_targets(sandbox, None)
            eventually(lambda: sandbox.read(CSI_DRIVER)["spec"]["managementState"] == "Unmanaged", 60, "once more")
        assert sandbox.read(CSI_DRIVER)["spec"]["managementState"] == "Unmanaged", "an end is no switching off"
        assert doctor_of_platform(sandbox) == ["problem", "warning"], "the driver; and our ClusterOperator"
        with operator(sandbox, tmp_path, namespace, *flags) as running:
            running.said("leading")
            eventually(lambda: sandbox.read(CSI_DRIVER)["spec"]["managementState"] == "Managed", 60, "to its operator")
            assert BEFORE not in sandbox.read(CSI_DRIVER)["metadata"].get("annotations", {})
            told = hostler(sandbox.kubeconfig, "platform", "withdraw", "--yes", "--operator", running.url)
            assert (told.returncode, "has platform on" in told.stderr) == (5, True), told.stderr
        note = {"metadata": {"annotations": {BEFORE: "Managed"}}, "spec": {"managementState": "Unmanaged"}}
        sandbox.kubectl("patch", "clustercsidriver", name, "--type=merge", "-p", json.dumps(note))
        done = hostler(sandbox.kubeconfig, "platform", "withdraw", "--yes", "--operator", NOBODY)
        assert done.returncode == 0, done.stderr
        assert sandbox.read(CSI_DRIVER)["spec"]["managementState"] == "Managed", "by hand, without an operator"
        assert doctor_of_platform(sandbox) == ["ok"]
    finally:
        sandbox.kubectl("delete", "clustercsidrivers", "--all", "--ignore-not-found")
        sandbox.kubectl("delete", "daemonsets,deployments", "--all", "-n", OPENSHIFT[0])


def test_the_driver_is_uninstalled_by_its_name_where_no_volume_needs_it(
    sandbox: Sandbox, namespace: str, make_node: MakeNode
) -> None:
    """On the way: the cloud controller that may delete a node of another provider is named."""
    name = CSI_DRIVER.rpartition("/")[2]
    node = make_node(provider_id="metal3://a/b/c")
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": f"{namespace}-thin",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    volume = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "csi": {"driver": name, "volumeHandle": "v"},
    }
    attached = {"attacher": name, "nodeName": node, "source": {"persistentVolumeName": f"{namespace}-pv"}}
    storage, named = "storage.k8s.io/v1", {"name": f"{namespace}-pv"}
    pod = {"nodeSelector": {"no": "where"}, "containers": [{"name": "c", "image": "i"}]}
    template = {"metadata": {"labels": {"app": "ccm"}}, "spec": pod}
    cloud = "vsphere-cloud-controller-manager"
    sandbox.apply(
        {"apiVersion": "operator.openshift.io/v1", "kind": "ClusterCSIDriver", "metadata": {"name": name},
         "spec": {"managementState": "Managed"}},
        {"apiVersion": storage, "kind": "StorageClass", "metadata": {"name": f"{namespace}-thin"}, "provisioner": name},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data", "namespace": namespace},
         "spec": claim},
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": named, "spec": volume},
        {"apiVersion": storage, "kind": "VolumeAttachment", "metadata": named, "spec": attached},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": cloud, "namespace": namespace},
         "spec": {"selector": {"matchLabels": {"app": "ccm"}}, "template": template}},
    )  # fmt: skip

    def refused(*words: str) -> str:
        done = hostler(sandbox.kubeconfig, "platform", "remove-driver", *words, "--yes")
        assert done.returncode == 5, done.stderr
        assert sandbox.read(CSI_DRIVER)["spec"]["managementState"] == "Managed"
        return " ".join(done.stderr.split())

    try:
        shown = " ".join(hostler(sandbox.kubeconfig, "platform", "status").stderr.split())
        assert f"{namespace}/{cloud} may delete these Nodes while they are NotReady" in shown
        assert node in shown
        assert "is not the vSphere CSI driver" in refused("csi.example.com")
        said = refused(name)
        for needs in (
            f"PersistentVolume {namespace}-pv",
            f"VolumeAttachment {namespace}-pv",
            f"StorageClass {namespace}-thin",
        ):
            assert needs in said
        sandbox.kubectl("delete", "volumeattachment,pv", f"{namespace}-pv")
        assert f"is in use: StorageClass {namespace}-thin; of it PersistentVolumeClaim {namespace}/data" in refused(
            name
        )
        sandbox.kubectl("delete", "pvc", "data", "-n", namespace)
        done = hostler(sandbox.kubeconfig, "platform", "remove-driver", name, "--yes")
        assert done.returncode == 0, done.stderr
        assert sandbox.read(CSI_DRIVER)["spec"]["managementState"] == "Removed"
        assert '"managementState":"Managed"' in done.stderr, "and how it is put back"
    finally:
        sandbox.kubectl("delete", "clustercsidrivers", "--all", "--ignore-not-found")
        sandbox.kubectl("delete", "volumeattachment,pv", f"{namespace}-pv", "--ignore-not-found", "--wait=false")
        sandbox.kubectl("delete", "storageclass", f"{namespace}-thin", "--ignore-not-found")


def doctor_of_platform(box: Sandbox) -> list[str]:
    found = json.loads(hostler(box.kubeconfig, "doctor", "-o", "json", "--operator", NOBODY).stdout)
    return [one["level"] for one in found if one["what"] == "platform"]


def statuses_steady(box: Sandbox) -> bool:
    found = fleet_conditions(box)
    return found.get("Progressing", {}).get("status") == "False" and found["Degraded"].get("reason") != "Fight"


def test_with_maintenance_in_one_operator(
    sandbox: Sandbox, namespace: str, story: str, tmp_path: Path, make_node: MakeNode, eventually: Eventually
) -> None:
    """An ESXi host enters maintenance under a scoped DaemonSet's node: one login for both rooms, neither disturbs."""
    plan = Plan({"esx1": 1, "esx2": 1}, {"a": "esx1"})
    with on_its_own(sandbox, tmp_path, namespace, plan, told={"HOSTLER_ONLY": "maintenance,platform"}) as (
        running,
        own,
    ):
        running.said("leading")
        own.nodes()
        labels = [f"{key}={value}" for key, value in {**VSPHERE_LABELS, STORY: story}.items()]
        sandbox.kubectl("label", "node", own.full("a"), *labels)
        bare = make_node(f"{story}-bm", labels={**METAL_LABELS, STORY: story}, provider_id="")
        set_targets(sandbox, None)
        sandbox.apply(daemon_set(story))
        eventually(lambda: required(sandbox.read(path_of())) == RULED, 60, "the rule")
        eventually(lambda: pods_on(sandbox) == [own.full("a")], 60, f"not on {bare}")
        own.enter("esx1")
        own.comes_back("a", "esx2")
        until(lambda: own.host("esx1")["inMaintenance"], "the host got what it asked for")
        own.evicted_once()
        eventually(
            lambda: pods_on(sandbox) == [own.full("a")], 60, "the driver is back on the moved VM, and only there"
        )
        assert required(sandbox.read(path_of())) == RULED
        eventually(lambda: "Passed" in explained(running, own.full("a")), 60, "its check")
        eventually(lambda: "may run here" in explained(running, own.full("a")), 60, "the rule lets it")
        assert logins(running) == {"ok": 1.0}, "one vCenter, one login, for both rooms"
        own.exit("esx1")


def logins(running: Running) -> dict[str, float]:
    with urllib.request.urlopen(f"{running.url}/metrics", timeout=20) as answer:
        lines = answer.read().decode().splitlines()
    found = [line for line in lines if line.startswith("hostler_vcenter_logins_total{")]
    return {line.split('result="')[1].split('"')[0]: float(line.split()[-1]) for line in found}
