"""A machine that is off looks off to Kubernetes: everything later stories build on is shown here first."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from hostler.instant import parse
from hostler.sandbox import Options, Sandbox, http
from hostler.sandbox.follow import patch
from hostler.sandbox.parts import OFF_LABEL
from hostler.sandbox.power import POWER
from tests.real.conftest import Eventually
from tests.real.disks import make_disks, uses
from tests.real.maintaining import Kube

WITH_VM = "app-1"
TOLERATE = [{"key": "hostler.dev/test", "operator": "Exists"}]


def ready(sandbox: Sandbox, node: str) -> dict[str, str]:
    conditions = sandbox.read(f"/api/v1/nodes/{node}")["status"].get("conditions", [])
    return next((dict(one) for one in conditions if one["type"] == "Ready"), {})


def boot_id(sandbox: Sandbox, node: str) -> str:
    return str(sandbox.read(f"/api/v1/nodes/{node}")["status"]["nodeInfo"]["bootID"])


def lease(sandbox: Sandbox, node: str) -> str:
    found = sandbox.read(
        f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases?fieldSelector=metadata.name%3D{node}"
    )
    return str(found["items"][0]["spec"]["renewTime"]) if found["items"] else ""


def pod_phase(sandbox: Sandbox, namespace: str, name: str) -> str:
    """Its phase, `Terminating`, `Unready`, or nothing if it is gone."""
    found = sandbox.read(f"/api/v1/namespaces/{namespace}/pods?fieldSelector=metadata.name%3D{name}")["items"]
    if not found:
        return ""
    if "deletionTimestamp" in found[0]["metadata"]:
        return "Terminating"
    conditions = {one["type"]: one["status"] for one in found[0]["status"].get("conditions", [])}
    return "Unready" if conditions.get("Ready") == "False" else str(found[0]["status"]["phase"])


def run_pod(sandbox: Sandbox, namespace: str, name: str, node: str, **spec: Any) -> None:
    """A bare pod that stays where it is: the default toleration would have it deleted after five minutes."""
    annotations = spec.pop("annotations", {})
    sandbox.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, "annotations": annotations},
            "spec": {
                "nodeName": node,
                "containers": [{"name": "main", "image": "none.invalid/x:1"}],
                "tolerations": [{"operator": "Exists"}],
                **spec,
            },
        }
    )


def switched(sandbox: Sandbox, state: str, node: str) -> None:
    """A node by itself, and a VM that takes its node with it."""
    sandbox.node_power(node, state)
    sandbox.power(WITH_VM, state)


def test_a_node_that_is_off_and_on_again(
    sandbox: Sandbox, namespace: str, make_node: Callable[..., str], eventually: Eventually, vcenter: dict[str, Any]
) -> None:
    node = make_node()
    slowly = {"annotations": {"sandbox.hostler.dev/stop": "slowly"}, "terminationGracePeriodSeconds": 5}
    pods: dict[str, dict[str, Any]] = {
        "stays": {},
        "leaves": {},
        "forced": {},
        "slow": slowly,
        "slow-but-alive": slowly,
    }
    for name, spec in pods.items():
        run_pod(sandbox, namespace, name, node, **spec)
    for name in pods:
        eventually(lambda name=name: pod_phase(sandbox, namespace, name) == "Running", what=f"{name} runs")  # type: ignore[misc]
    sandbox.kubectl("delete", "pod", "-n", namespace, "slow-but-alive", "--wait=false")
    first_lease = eventually(lambda: lease(sandbox, node), what="a lease")
    eventually(lambda: lease(sandbox, node) != first_lease, what="the lease is renewed while the node is on")
    eventually(lambda: pod_phase(sandbox, namespace, "slow-but-alive") == "", what="it ends after its grace period")
    before = {name: boot_id(sandbox, name) for name in (node, WITH_VM)}

    # Off: heartbeat and lease stop, Ready turns Unknown, its pods turn unready; who was stopping does not finish.
    kube = Kube(sandbox)
    kube.delete(f"/api/v1/namespaces/{namespace}/pods/slow")
    kube.patch(f"/api/v1/nodes/{node}", {"metadata": {"annotations": {POWER: "off"}}})  # long before it has stopped
    kube.close()
    switched(sandbox, "off", node)
    for name in (node, WITH_VM):
        eventually(lambda name=name: ready(sandbox, name)["status"] == "Unknown", what=f"Ready of {name} is Unknown")  # type: ignore[misc]
    last_lease = lease(sandbox, node)
    eventually(lambda: pod_phase(sandbox, namespace, "stays") == "Unready", what="its pods are unready")
    run_pod(sandbox, namespace, "late", node)

    # A deleted pod stays: nobody is there to end it. Only force takes it away.
    sandbox.kubectl("delete", "pod", "-n", namespace, "leaves", "forced", "--wait=false", "--grace-period=1")
    sandbox.kubectl("delete", "pod", "-n", namespace, "forced", "--force", "--grace-period=0")
    eventually(lambda: pod_phase(sandbox, namespace, "forced") == "", what="force takes it away")
    # Three renewals of a lease are enough to see that nothing moves: kwok acts within tenths of a second.
    eventually(_after(6), 20)
    assert [pod_phase(sandbox, namespace, name) for name in ("leaves", "slow")] == ["Terminating", "Terminating"]
    assert pod_phase(sandbox, namespace, "late") == "Pending"
    assert lease(sandbox, node) == last_lease
    assert {name: boot_id(sandbox, name) for name in before} == before

    # On: a new boot id first, then Ready with a new transition time, and its pods move on.
    unknown_since = ready(sandbox, node)["lastTransitionTime"]
    switched(sandbox, "on", node)
    for name, boot in before.items():
        eventually(lambda name=name: ready(sandbox, name)["status"] == "True", what=f"Ready of {name} is True again")  # type: ignore[misc]
        assert boot_id(sandbox, name) != boot
    assert ready(sandbox, node)["lastTransitionTime"] > unknown_since
    eventually(lambda: lease(sandbox, node) > last_lease, what="the lease is renewed")
    for name in ("leaves", "slow"):
        eventually(lambda name=name: pod_phase(sandbox, namespace, name) == "", what=f"the deleted pod {name} goes")  # type: ignore[misc]
    eventually(lambda: pod_phase(sandbox, namespace, "stays") == "Running", what="the others are ready again")
    eventually(lambda: pod_phase(sandbox, namespace, "late") == "Running", what="the new one starts")
    pod = sandbox.get("pod", "-n", namespace, "stays")
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 1


def test_a_pod_can_be_left_alone_by_its_kubelet(
    sandbox: Sandbox, namespace: str, make_node: Callable[..., str], eventually: Eventually
) -> None:
    node = make_node()
    run_pod(sandbox, namespace, "ignored", node, annotations={"sandbox.hostler.dev/kubelet": "ignore"})
    run_pod(sandbox, namespace, "late", node, annotations={"sandbox.hostler.dev/ready-after": "2s"})
    eventually(lambda: pod_phase(sandbox, namespace, "late") == "Running", what="it starts after two seconds")
    pod = sandbox.get("pod", "-n", namespace, "late")
    ran = pod["status"]["containerStatuses"][0]["state"]["running"]["startedAt"]
    assert (parse(ran) or 0.0) - (parse(pod["metadata"]["creationTimestamp"]) or 0.0) >= 1, "both are whole seconds"
    assert pod_phase(sandbox, namespace, "ignored") == "Pending"


def test_a_short_power_cycle_changes_the_boot_id_too(
    sandbox: Sandbox, vcenter: dict[str, Any], eventually: Eventually
) -> None:
    before = boot_id(sandbox, "app-0")
    sandbox.control("POST", "/vms/app-0/reset", {"hard": True})
    eventually(lambda: boot_id(sandbox, "app-0") != before, what="a new boot id after a reset")
    eventually(lambda: ready(sandbox, "app-0")["status"] == "True", what="it is Ready")


def test_a_vm_that_goes_off_while_the_api_server_is_away(
    sandbox: Sandbox, vcenter: dict[str, Any], eventually: Eventually
) -> None:
    sandbox.kill("kube-apiserver")
    sandbox.power("app-1", "off")
    sandbox.start("kube-apiserver", wait=True)
    eventually(lambda: ready(sandbox, "app-1")["status"] == "Unknown", 60, what="Ready is Unknown")
    sandbox.power("app-1", "on")
    eventually(lambda: ready(sandbox, "app-1")["status"] == "True", what="Ready is True again")
    sandbox.wait_ready()


def test_leases_go_on_whatever_goes_off_and_on(
    sandbox: Sandbox, make_node: Callable[..., str], eventually: Eventually
) -> None:
    """Nodes that flicker while kwok renews their leases: its queue must not be stopped by one of them."""
    nodes = [make_node() for _ in range(12)]
    for node in nodes:
        eventually(lambda node=node: lease(sandbox, node), what=f"{node} has a lease")  # type: ignore[misc]

    async def flicker(session: aiohttp.ClientSession, node: str) -> None:
        for label in ("off", None) * 25:
            await patch(session, f"/api/v1/nodes/{node}", {"metadata": {"labels": {OFF_LABEL: label}}})

    async def all_at_once() -> None:
        connector = aiohttp.TCPConnector(ssl=http.trust(sandbox.layout, "admin"))
        async with aiohttp.ClientSession(sandbox.server, connector=connector) as session:
            await asyncio.gather(*(flicker(session, node) for node in nodes))

    asyncio.run(all_at_once())
    for _ in range(2):
        before = {node: lease(sandbox, node) for node in nodes}
        for node, last in before.items():
            eventually(lambda node=node, last=last: lease(sandbox, node) > last, what=f"a heartbeat of {node}")  # type: ignore[misc]


def test_a_node_without_any_label_is_kept_alive_too(sandbox: Sandbox, eventually: Eventually) -> None:
    sandbox.kubectl("create", "-f", "-", input='{"apiVersion":"v1","kind":"Node","metadata":{"name":"bare"}}')
    eventually(lambda: ready(sandbox, "bare").get("status") == "True", what="it is Ready")
    assert boot_id(sandbox, "bare")
    sandbox.kubectl("delete", "node", "bare")


def attachments(sandbox: Sandbox, volume: str) -> dict[str, str]:
    """The VolumeAttachments of a volume by name, as far as it is attached: attached, or leaving."""
    return {
        str(one["metadata"]["name"]): "leaving" if "deletionTimestamp" in one["metadata"] else "attached"
        for one in sandbox.read("/apis/storage.k8s.io/v1/volumeattachments")["items"]
        if one["spec"]["source"].get("persistentVolumeName") == volume and one.get("status", {}).get("attached")
    }


def test_the_volumes_of_dead_nodes(
    sandbox: Sandbox, namespace: str, make_node: Callable[..., str], eventually: Eventually
) -> None:
    """Attached while a pod uses them; on a node that is off one goes only with the pod, or with the taint."""
    nodes = {"pod-gone": make_node(), "out-of-service": make_node()}  # by what lets the volume go
    make_disks(sandbox, namespace, *nodes)
    for way, node in nodes.items():
        run_pod(sandbox, namespace, way, node, volumes=uses(way))

    def attached(way: str) -> list[str]:
        return list(attachments(sandbox, f"{namespace}-{way}").values())

    for way, node in nodes.items():
        eventually(lambda way=way: attached(way) == ["attached"], what="attach-detach controller and attacher did it")  # type: ignore[misc]
        sandbox.node_power(node, "off")
    for node in nodes.values():
        eventually(lambda node=node: ready(sandbox, node)["status"] == "Unknown", what="the node is gone")  # type: ignore[misc]
    sandbox.kubectl("delete", "pod", "-n", namespace, *nodes, "--wait=false", "--grace-period=1")
    mine = [name for way in nodes for name in attachments(sandbox, f"{namespace}-{way}")]
    sandbox.kubectl("delete", "volumeattachment", *mine, "--wait=false")
    eventually(_after(4), 10)
    for way in nodes:
        assert attached(way) == ["leaving"], "the pod is still there, so the volume is too"
    sandbox.kubectl("delete", "pod", "-n", namespace, "pod-gone", "--force", "--grace-period=0")
    out_of_service = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
    sandbox.kubectl("taint", "node", nodes["out-of-service"], out_of_service)
    for way in nodes:
        eventually(lambda way=way: attached(way) == [], what=f"the volume is detached: {way}")  # type: ignore[misc]
    sandbox.kubectl("delete", "pv", *(f"{namespace}-{way}" for way in nodes), "--wait=false")


def _after(seconds: float) -> Callable[[], bool]:
    """True so many seconds from now; for showing that something does *not* happen."""
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


@pytest.mark.full
def test_with_the_times_of_a_real_cluster(tmp_path: Path, eventually: Eventually) -> None:
    """Without any setting a lost node shows after the 40 to 50 seconds everybody knows, and not before."""
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text("nodes: [{name: lost}, {name: there}]")
    box = Sandbox.up(tmp_path / "d", Options(fleet=str(fleet)))
    try:
        eventually(lambda: lease(box, "lost"), what="a lease")
        box.node_power("lost", "off")
        eventually(_after(25), 30)
        assert ready(box, "lost")["status"] == "True", "the stale Ready that Hostler must not believe"
        eventually(lambda: ready(box, "lost")["status"] == "Unknown", 120, what="Ready is Unknown")
        assert ready(box, "there")["status"] == "True"
    finally:
        box.down()
