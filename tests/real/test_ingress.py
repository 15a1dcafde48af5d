"""Ingress on the real API server with OpenShift's published CRDs: a router stays where it belongs."""

from __future__ import annotations

import json
import os
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hostler.sandbox import Sandbox
from hostler.sandbox.fleet import Taint
from tests.real.conftest import Eventually
from tests.real.operating import Running, hostler, operator, refused
from tests.real.routing import (
    CONTROL_PLANE,
    CONTROLLERS,
    MASTER,
    ROUTERS,
    WORKER,
    conditions,
    controller,
    decided,
    install_openshift,
    pods,
    ready_on,
    router,
    undecide,
    writes,
)

MakeNode = Callable[..., str]
IMAGE = ("--only", "ingress", "--ingress-router-image", "router:1", "--no-ingress-check-wildcard")


@pytest.fixture(scope="module")
def running(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One operator for the whole file, as in life."""
    install_openshift(sandbox)
    undecide(sandbox)
    name = f"ingress-{os.urandom(4).hex()}"
    sandbox.kubectl("create", "namespace", name)
    with operator(sandbox, tmp_path_factory.mktemp("ingress"), name, *IMAGE) as started:
        started.said("leading")
        yield started
        assert refused(started) == []
    sandbox.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture(autouse=True)
def clean(sandbox: Sandbox, running: Running) -> Iterator[None]:
    yield
    undecide(sandbox)


@pytest.fixture
def master(make_node: MakeNode) -> str:
    """The one node that is a control-plane node by OpenShift's label."""
    return make_node(roles=["master", "control-plane", "worker"], taint=False)


def delete_pod(box: Sandbox) -> None:
    (name,) = [one["metadata"]["name"] for one in pods(box)]
    box.kubectl("delete", "pod", name, "-n", ROUTERS, "--wait=true", "--force", "--grace-period=0")


def seen_on(box: Sandbox, eventually: Eventually, times: int, enough: int = 99) -> set[str]:
    """The nodes the router came back on, deleted again and again."""
    found = set(eventually(lambda: ready_on(box), 60, "a router pod"))
    for _ in range(times):
        if len(found) >= enough:
            break
        delete_pod(box)
        found |= set(eventually(lambda: ready_on(box), 60, "the router pod is back"))
    return found


def quiet(box: Sandbox, running: Running, eventually: Eventually) -> int:
    """How often it has written, once it has nothing more to write."""

    def rests() -> int:
        before = len(writes(box, running.user))
        time.sleep(1)
        return before if len(writes(box, running.user)) == before else 0

    return eventually(rests, 60, "all is as it ought to be")


def test_workers_join_and_the_router_stays_on_the_control_plane_node(
    sandbox: Sandbox, running: Running, master: str, make_node: MakeNode, eventually: Eventually
) -> None:
    decided(sandbox, "ControlPlane", "SingleReplica", "SingleReplica")
    eventually(lambda: ready_on(sandbox) == [master], 60, "the router is on the only control-plane node")
    made = sandbox.get("ingresscontroller", "default", "-n", CONTROLLERS)
    assert made["spec"]["replicas"] == 1
    assert MASTER in made["spec"]["nodePlacement"]["nodeSelector"]["matchLabels"]
    workers = [make_node(roles=["worker"], taint=False) for _ in range(3)]
    assert seen_on(sandbox, eventually, 12) == {master}
    assert not set(workers) & set(ready_on(sandbox))
    eventually(lambda: conditions(sandbox).get("Available") == "True", 30, "Available")
    assert conditions(sandbox)["Degraded"] == "False"
    assert sandbox.get("pdb", "-n", ROUTERS)["items"] == [], "a single router needs no budget"
    before = quiet(sandbox, running, eventually)
    sandbox.kubectl("annotate", "deployment", "router-default", "-n", ROUTERS, "example.org/beat=1")
    sandbox.kubectl("label", "node", workers[0], "example.org/beat=1")
    explained = hostler(sandbox.kubeconfig, "plan", "ingresscontroller/default", "--operator", running.url)
    assert "and so it is" in explained.stdout
    assert "would" not in explained.stdout
    assert writes(sandbox, running.user)[before:] == [], "a second look writes nothing"


def test_with_workers_the_router_floats(
    sandbox: Sandbox, running: Running, master: str, make_node: MakeNode, eventually: Eventually
) -> None:
    for _ in range(3):
        make_node(roles=["worker"], taint=False)
    decided(sandbox, "Workers", "SingleReplica", "SingleReplica")
    assert len(seen_on(sandbox, eventually, 40, enough=2)) > 1, "the trouble that ControlPlane is there to prevent"


def test_masters_that_are_unschedulable_from_the_first_day(
    sandbox: Sandbox, running: Running, make_node: MakeNode, eventually: Eventually
) -> None:
    taints = [Taint(key=key, effect="NoSchedule") for key in (MASTER, CONTROL_PLANE)]
    master = make_node(roles=["master", "control-plane"], taint=False, taints=taints)
    make_node(roles=["worker"], taint=False)
    decided(sandbox, "ControlPlane", "SingleReplica", "SingleReplica")
    eventually(lambda: ready_on(sandbox) == [master], 60, "not Pending although the node is tainted")


def test_the_control_plane_node_reboots_and_the_router_is_back_on_it(
    sandbox: Sandbox, running: Running, master: str, make_node: MakeNode, eventually: Eventually
) -> None:
    make_node(roles=["worker"], taint=False)
    decided(sandbox, "ControlPlane", "SingleReplica", "SingleReplica")
    eventually(lambda: ready_on(sandbox) == [master], 60, "the router is there")
    boot = sandbox.get("node", master)["status"]["nodeInfo"]["bootID"]
    sandbox.node_power(master, "off")
    eventually(lambda: ready_on(sandbox) == [], 60, "its heartbeat has stopped")
    # Whoever helps by deleting the pod does not make it wander off.
    delete_pod(sandbox)
    eventually(lambda: len(pods(sandbox)) == 1 and "nodeName" not in pods(sandbox)[0]["spec"], 30, "it waits")
    sandbox.node_power(master, "on")
    eventually(lambda: ready_on(sandbox) == [master], 60, "back on it")
    assert sandbox.get("node", master)["status"]["nodeInfo"]["bootID"] != boot


SAMPLE = [
    ("ControlPlane", "SingleReplica", "HighlyAvailable", None, None),
    ("ControlPlane", "HighlyAvailable", "HighlyAvailable", None, None),
    ("ControlPlane", "HighlyAvailableArbiter", "HighlyAvailable", 4, None),
    ("Workers", "SingleReplica", "SingleReplica", None, {"matchLabels": {"ingress": "yes"}}),
    ("Workers", "HighlyAvailable", "HighlyAvailable", 0, None),
    ("ControlPlane", "SingleReplica", "SingleReplica", 2, None),
    ("", "SingleReplica", "HighlyAvailable", None, None),
]


def test_a_sample_of_every_combination_is_what_the_api_server_has(
    sandbox: Sandbox, running: Running, master: str, eventually: Eventually
) -> None:
    for number, (placement, control_plane, infrastructure, replicas, selector) in enumerate(SAMPLE):
        name = f"c{number}"
        placed = {"nodePlacement": {"nodeSelector": selector}} if selector else {}
        decided(sandbox, placement, control_plane, infrastructure)
        sandbox.apply(controller(name, **placed, **({} if replicas is None else {"replicas": replicas})))
        single = (control_plane if placement == "ControlPlane" else infrastructure) == "SingleReplica"
        label = MASTER if placement == "ControlPlane" else WORKER
        wanted = selector["matchLabels"] if selector else {"kubernetes.io/os": "linux", label: ""}
        count = replicas if replicas is not None else 1 if single else 2

        def as_decided(name: str = name, wanted: Any = wanted, count: int = count, to: str = placement) -> bool:
            found = router(sandbox, name).get("spec", {})
            if not found or found["replicas"] != count or found["template"]["spec"].get("nodeSelector") != wanted:
                return False
            if ("nodeAffinity" in found["template"]["spec"].get("affinity", {})) is (to == "ControlPlane"):
                return False  # it is taken back when it is no longer said
            budgets = [one["metadata"]["name"] for one in sandbox.get("pdb", "-n", ROUTERS)["items"]]
            return (f"router-{name}" in budgets) is (count >= 2)

        eventually(as_decided, 60, f"{placement} {control_plane} {infrastructure} {replicas} {selector}")
    # The last one was made for workers, two of them: what was said for that is taken back.
    decided(sandbox, "ControlPlane", "SingleReplica", "HighlyAvailable")

    def taken_back() -> bool:
        spec = router(sandbox, f"c{len(SAMPLE) - 1}")["spec"]
        return MASTER in spec["template"]["spec"]["nodeSelector"] and not spec["template"]["spec"].get("affinity")

    eventually(taken_back, 60, "nothing is left of the placement before")
    eventually(
        lambda: f"router-c{len(SAMPLE) - 1}" not in sandbox.kubectl("get", "pdb", "-n", ROUTERS), 30, "no budget"
    )


def test_an_external_control_plane_warns_and_goes_on_and_makes_no_default(
    sandbox: Sandbox, running: Running, master: str, eventually: Eventually
) -> None:
    decided(sandbox, "ControlPlane", "External", "SingleReplica")
    sandbox.apply(controller("mine"))
    eventually(lambda: router(sandbox, "mine"), 60, "the router is made all the same")

    def on_workers() -> bool:  # the placement follows the creation, which has no replicas
        return WORKER in router(sandbox, "mine")["spec"]["template"]["spec"].get("nodeSelector", {})

    eventually(on_workers, 30, "its place is with the workers")
    eventually(lambda: conditions(sandbox, "mine").get("DefaultPlacementIgnored") == "True", 30, "the condition")
    names = [one["metadata"]["name"] for one in sandbox.get("ingresscontrollers", "-n", CONTROLLERS)["items"]]
    assert names == ["mine"]
    warned = [line for line in running.lines() if line["level"] == "warning" and "External" in line.get("why", "")]
    assert len(warned) == 1, "said once"
    eventually(lambda: "ExternalControlPlane" in sandbox.kubectl("get", "events", "-n", CONTROLLERS), 30, "the event")


def test_an_invalid_selector_is_one_clear_error_and_changes_nothing(
    sandbox: Sandbox, running: Running, master: str, eventually: Eventually
) -> None:
    decided(sandbox, "ControlPlane", "SingleReplica", "SingleReplica")
    eventually(lambda: ready_on(sandbox) == [master], 60, "the router is there")
    before = router(sandbox)["spec"]
    wrong = {"matchExpressions": [{"key": "a", "operator": "Exists"}]}
    sandbox.apply(controller(nodePlacement={"nodeSelector": wrong}))
    eventually(lambda: conditions(sandbox).get("Admitted") == "False", 30, "it is not admitted")
    assert conditions(sandbox)["Degraded"] == "True"
    assert router(sandbox)["spec"] == before
    explained = hostler(sandbox.kubeconfig, "explain", "ingresscontroller/default", "--operator", running.url)
    assert "spec.nodePlacement.nodeSelector cannot be used: matchExpressions[0] has operator Exists" in explained.stdout


def test_a_foreign_change_is_put_right_and_what_is_not_ours_is_left(
    sandbox: Sandbox, running: Running, master: str, eventually: Eventually
) -> None:
    decided(sandbox, "ControlPlane", "SingleReplica", "SingleReplica")
    eventually(lambda: ready_on(sandbox) == [master], 60, "the router is there")
    patch = {"spec": {"minReadySeconds": 1, "template": {"spec": {"nodeSelector": {MASTER: None, WORKER: ""}}}}}
    sandbox.kubectl("patch", "deployment", "router-default", "-n", ROUTERS, "--type=merge", "-p", json.dumps(patch))
    eventually(lambda: MASTER in router(sandbox)["spec"]["template"]["spec"]["nodeSelector"], 30, "put right")
    assert WORKER not in router(sandbox)["spec"]["template"]["spec"]["nodeSelector"]
    assert router(sandbox)["spec"]["minReadySeconds"] == 1
    eventually(lambda: ready_on(sandbox) == [master], 60, "and there it is")
    # A controller that does so again and again is named, and not fought.
    before, undo = writes(sandbox, running.user).count("deployments"), json.dumps([
        {"op": "replace", "path": "/spec/template/spec/nodeSelector", "value": {WORKER: ""}}])  # fmt: skip

    def undone() -> bool:
        if MASTER in router(sandbox)["spec"]["template"]["spec"]["nodeSelector"]:
            manager = "--field-manager=gitops"
            words = ("patch", "deployment", "router-default", "-n", ROUTERS, "--type=json", manager, "-p", undo)
            sandbox.kubectl(*words)
        return conditions(sandbox).get("PlacementReverted") == "True"

    eventually(undone, 60, "the fight is ended")
    assert router(sandbox)["spec"]["template"]["spec"]["nodeSelector"] == {WORKER: ""}
    assert writes(sandbox, running.user).count("deployments") - before <= 4, "five reverts in all"
    explained = hostler(sandbox.kubeconfig, "explain", "ingresscontroller/default", "--operator", running.url).stdout
    assert 'field manager "gitops" changes nodeSelector' in " ".join(explained.split())


def test_status_and_explain_say_what_decided_and_where_the_pods_are(
    sandbox: Sandbox, running: Running, master: str, eventually: Eventually
) -> None:
    decided(sandbox, "ControlPlane", "SingleReplica", "SingleReplica")
    eventually(lambda: ready_on(sandbox) == [master], 60, "the router is there")
    shown = hostler(sandbox.kubeconfig, "ingress", "status", "--no-resolve")
    assert shown.returncode == 0, shown.stderr
    assert "ingresscontroller/default  ControlPlane  Ingress cluster, status.defaultPlacement" in shown.stdout
    assert f"ready on {master}, where it belongs" in shown.stdout
    answer = json.loads(hostler(sandbox.kubeconfig, "ingress", "status", "--no-resolve", "-o", "json").stdout)
    assert (answer[0]["placement"], answer[0]["replicas"]) == ("ControlPlane", "1 of 1")
    explained = hostler(sandbox.kubeconfig, "explain", "ingresscontroller/default", "--operator", running.url).stdout
    assert "replicas: 1. spec.replicas: the IngressController says so" in explained, "filled in when it was made"
    assert "placement: ControlPlane. Ingress cluster, status.defaultPlacement" in explained
    assert f"ready on {master}, where it belongs" in explained
    once = hostler(sandbox.kubeconfig, "explain", "ingress/cluster", "--operator", running.url).stdout
    assert "never rewritten" in once
    with urllib.request.urlopen(f"{running.url}/metrics", timeout=30) as answer:
        assert b'hostler_ingress_routers{controller="default",what="available"} 1.0' in answer.read()
    unknown = hostler(sandbox.kubeconfig, "explain", "ingresscontroller/nope", "--operator", running.url)
    assert 'No ingresscontroller named "nope"' in unknown.stderr
