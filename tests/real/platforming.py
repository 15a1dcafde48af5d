"""The seed's cluster on the sandbox: vSphere masters, one bare metal node, and the CSI driver's DaemonSet."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from hostler.sandbox import Sandbox
from tests.real.maintaining import Kube
from tests.real.operating import Running

SPACE, DRIVER = "vmware-system-csi", "vsphere-csi-node"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
STORY = "platform.hostler.dev/story"  # only the nodes of one test are of interest to its DaemonSet
VSPHERE_LABELS = {
    "beta.kubernetes.io/instance-type": "vsphere-vm.cpu-8.mem-16gb.os-unknown",
    INSTANCE_TYPE: "vsphere-vm.cpu-8.mem-16gb.os-unknown",
    "failure-domain.beta.kubernetes.io/region": "us-east",
    "failure-domain.beta.kubernetes.io/zone": "us-east-1a",
    "node.cluster.x-k8s.io/esxi-host": "ci-vmware-host-2.ci.ibmc.devcluster.openshift.com",
    "node.openshift.io/os_id": "rhel",
    "topology.csi.vmware.com/openshift-region": "us-east",
    "topology.csi.vmware.com/openshift-zone": "us-east-1a",
}
METAL_LABELS = {"beta.kubernetes.io/os": "linux", "node.openshift.io/os_id": "rhel"}
METAL_ANNOTATIONS = {
    "alpha.kubernetes.io/provided-node-ip": "10.74.208.21",
    "machineconfiguration.openshift.io/state": "Done",
}


def daemon_set(
    story: str, crash_on: str = "", affinity: dict[str, Any] | None = None, image: str = "csi:1",
    at: tuple[str, str] = (SPACE, DRIVER), **labelled: str,
) -> Any:  # fmt: skip
    """The CSI node DaemonSet as published: any Linux node, every taint tolerated; it crashes where it cannot work."""
    space, name = at
    labels = {"app": name}
    pod: dict[str, Any] = {
        "nodeSelector": {"kubernetes.io/os": "linux", STORY: story},
        "tolerations": [{"operator": "Exists", "effect": "NoExecute"}, {"operator": "Exists", "effect": "NoSchedule"}],
        "containers": [{"name": "driver", "image": image}],
        **({"affinity": affinity} if affinity else {}),
    }
    annotations = {"sandbox.hostler.dev/crash-on": crash_on}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": space, "labels": labelled},
        "spec": {
            "selector": {"matchLabels": labels},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%"}},
            "template": {"metadata": {"labels": labels, "annotations": annotations}, "spec": pod},
        },
    }


def pods_on(box: Sandbox) -> list[str]:
    """The nodes with a pod of the driver that is not on its way out."""
    found = box.read(f"/api/v1/namespaces/{SPACE}/pods")["items"]
    return sorted(one["spec"].get("nodeName", "") for one in found if "deletionTimestamp" not in one["metadata"])


def terms(box: Sandbox) -> list[Any]:
    """The terms of the driver's required node affinity."""
    return required(box.read(f"/apis/apps/v1/namespaces/{SPACE}/daemonsets/{DRIVER}"))


def fleet_conditions(box: Sandbox) -> dict[str, dict[str, str]]:
    """The platform's conditions on the Fleet, by type without the prefix."""
    found = box.get("fleets")["items"]
    listed = found[0].get("status", {}).get("conditions", []) if found else []
    return {one["type"].removeprefix("Platform"): one for one in listed if one["type"].startswith("Platform")}


def statuses(box: Sandbox) -> dict[str, str]:
    return {type: one["status"] for type, one in fleet_conditions(box).items()}


def explained(running: Running, node: str) -> str:
    """What the operator says of a node."""
    with urllib.request.urlopen(f"{running.url}/v1/explain/node/{node}", timeout=60) as answer:
        return str(answer.read().decode())


def clean(box: Sandbox) -> None:
    """Nothing of platform is left but its empty namespace."""
    for kind in ("mutatingadmissionpolicybindings", "mutatingadmissionpolicies"):
        box.kubectl("delete", kind, "-l", "hostler.dev/capability=platform", "--ignore-not-found")
    box.kubectl("delete", "daemonsets,pods,pvc", "--all", "-n", SPACE, "--force", "--grace-period=0", check=False)
    box.kubectl("delete", "clusteroperators", "hostler-platform", "--ignore-not-found", check=False)


def prepare(box: Sandbox) -> None:
    """The driver's namespace and a Fleet."""
    end = time.monotonic() + 120
    while "Terminating" in box.kubectl("get", "namespace", SPACE, "--ignore-not-found"):  # of the file before
        assert time.monotonic() < end, "the namespace of the tests before does not go"
        time.sleep(0.2)
    box.kubectl("create", "namespace", SPACE, check=False)
    box.kubectl("wait", "-n", SPACE, "serviceaccount/default", "--for=create", "--timeout=60s")
    clean(box)


def set_targets(box: Sandbox, targets: list[dict[str, Any]] | None) -> None:
    """Fleet.spec.platform.daemonSets; None: the default."""
    box.kubectl(
        "patch", "fleet", "cluster", "--type=merge", "-p", json.dumps({"spec": {"platform": {"daemonSets": targets}}})
    )


def rules_in_force(box: Sandbox) -> list[str]:
    """The label keys that the API server puts into a write of the driver now, by a write that is not kept."""
    body = daemon_set("nobody")
    body["metadata"]["name"], known = DRIVER, box.kubectl("get", "daemonset", DRIVER, "-n", SPACE, check=False)
    words = ("replace" if known else "create", "--dry-run=server", "-o", "json", "-f", "-")
    answer = box.kubectl(*words, input=json.dumps(body), check=False)
    if not answer:
        return ["(a conflict)"]
    return [rule["key"] for term in required(json.loads(answer)) for rule in term["matchExpressions"]]


def path_of(at: tuple[str, str] = (SPACE, DRIVER)) -> str:
    return f"/apis/apps/v1/namespaces/{at[0]}/daemonsets/{at[1]}"


@contextmanager
def overwritten(
    box: Sandbox, story: str, manager: str, at: tuple[str, str] = (SPACE, DRIVER), every: float = 1.0,
    unless: Callable[[Kube], bool] = lambda kube: False,
) -> Iterator[list[dict[str, Any]]]:  # fmt: skip
    """Somebody puts the whole DaemonSet back as published, without any affinity, every second: the answers so far."""
    answers: list[dict[str, Any]] = []
    over = threading.Event()

    def work() -> None:
        kube = Kube(box)
        try:
            while not over.wait(every):
                if not unless(kube):
                    body = daemon_set(story, image=f"csi:{len(answers)}", at=at)
                    status, answer = kube.ask("PUT", f"{path_of(at)}?fieldManager={manager}", body)
                    assert status in (200, 409), answer
                    if status == 200:
                        answers.append(answer)
        finally:
            kube.close()

    thread = threading.Thread(target=work, name="overwriter")
    thread.start()
    try:
        yield answers
    finally:
        over.set()
        thread.join(60)


def put_back(seen: list[dict[str, Any]]) -> int:
    """How often a version with a rule followed one without."""
    has = [bool(required(one)) for one in seen]
    return sum(not before and after for before, after in pairwise(has))


def required(body: dict[str, Any]) -> list[Any]:
    """The terms of a DaemonSet's required node affinity."""
    affinity = body["spec"]["template"]["spec"].get("affinity", {}).get("nodeAffinity", {})
    return list(affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", []))
