"""Ingress in its other modes: dry run, without a template, beside its incumbent, on plain Kubernetes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hostler.ingress.refusals import MANAGED, MARK
from hostler.sandbox import Sandbox
from tests.real.conftest import Eventually
from tests.real.operating import hostler, operator
from tests.real.routing import (
    CONTROL_PLANE,
    CONTROLLERS,
    conditions,
    decided,
    install_openshift,
    ready_on,
    router,
    undecide,
    writes,
)

MakeNode = Callable[..., str]


@pytest.fixture(scope="module", autouse=True)
def openshift(sandbox: Sandbox) -> None:
    install_openshift(sandbox)
    undecide(sandbox)


@pytest.fixture(autouse=True)
def clean(sandbox: Sandbox, openshift: None) -> Iterator[None]:
    yield
    undecide(sandbox)


@pytest.fixture
def master(make_node: MakeNode) -> str:
    return make_node(roles=["master", "control-plane", "worker"], taint=False)


def fleet(sandbox: Sandbox, **ingress: Any) -> None:
    about = {"apiVersion": "hostler.dev/v1alpha1", "kind": "Fleet", "metadata": {"name": "cluster"}}
    sandbox.apply({**about, "spec": {"ingress": ingress}})


@pytest.fixture
def with_fleet(sandbox: Sandbox) -> Iterator[None]:
    """The CRD is there; no Fleet before, none after."""
    assert hostler(sandbox.kubeconfig, "crds", "--apply").returncode == 0
    sandbox.kubectl("delete", "fleet", "--all", "--ignore-not-found")
    yield
    sandbox.kubectl("delete", "fleet", "--all", "--ignore-not-found")


def test_without_a_template_that_is_said_and_a_dry_run_writes_nothing(
    sandbox: Sandbox, with_fleet: None, namespace: str, tmp_path: Path, master: str, eventually: Eventually
) -> None:
    decided(sandbox, "ControlPlane", "SingleReplica", "SingleReplica")
    with operator(sandbox, tmp_path, namespace, "--only", "ingress", "--dry-run", name="dry") as dry:
        dry.said("would write")
        assert sandbox.get("ingresscontrollers", "-n", CONTROLLERS)["items"] == []
        assert writes(sandbox, dry.user) == []
    with operator(sandbox, tmp_path, namespace, "--only", "ingress", "--no-ingress-check-wildcard") as bare:
        bare.said("leading")
        eventually(lambda: sandbox.get("ingresscontrollers", "-n", CONTROLLERS)["items"], 60, "the default is made")
        eventually(lambda: conditions(sandbox).get("Available") == "False", 30, "no router")
        found = sandbox.get("ingresscontroller", "default", "-n", CONTROLLERS)["status"]["conditions"]
        assert {one["reason"] for one in found if one["type"] == "Available"} == {"NoRouterTemplate"}
        fleet(sandbox, routerTemplate={"spec": {"containers": [{"name": "router", "image": "mine"}]}})
        eventually(lambda: ready_on(sandbox) == [master], 60, "made from the Fleet's template")
    assert router(sandbox)["spec"]["template"]["spec"]["containers"][0]["image"] == "mine"


def test_beside_the_cluster_ingress_operator_it_only_observes(
    sandbox: Sandbox, namespace: str, tmp_path: Path, master: str, eventually: Eventually
) -> None:
    incumbent = deployment(CONTROLLERS, "Deployment", "ingress-operator")
    sandbox.apply(incumbent)
    try:
        path = f"/apis/apps/v1/namespaces/{CONTROLLERS}/deployments/ingress-operator/status"
        eventually(lambda: sandbox.read(path)["status"].get("readyReplicas"), 60, "the incumbent is at work")
        decided(sandbox, "ControlPlane", "SingleReplica", "SingleReplica")
        with operator(sandbox, tmp_path, namespace, "--only", "ingress", name="beside") as beside:
            beside.said("leading")
            words = ("explain", "ingress/cluster", "--operator", beside.url)
            eventually(
                lambda: "held back" in hostler(sandbox.kubeconfig, *words).stdout, 60, "what it would do, and that not"
            )
            assert writes(sandbox, beside.user) == []
            assert sandbox.get("ingresscontrollers", "-n", CONTROLLERS)["items"] == []
    finally:
        sandbox.kubectl("delete", "deployment", "ingress-operator", "-n", CONTROLLERS)


def deployment(namespace: str, kind: str, name: str) -> dict[str, Any]:
    pod = {"containers": [{"name": "c", "image": "nginx"}]}
    spec: dict[str, Any] = {
        "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": {"app": name}}, "spec": pod},
    }
    about = {"name": name, "namespace": namespace, "labels": {MARK: MANAGED}}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": about, "spec": spec}


def nodes_of(sandbox: Sandbox, namespace: str, app: str) -> set[str]:
    found = sandbox.get("pods", "-n", namespace, "-l", f"app={app}")["items"]
    live = [one for one in found if "deletionTimestamp" not in one["metadata"]]
    return {one["spec"].get("nodeName", "") for one in live}


def test_an_ingress_of_plain_kubernetes_is_placed_by_the_same_rule(
    sandbox: Sandbox, with_fleet: None, namespace: str, tmp_path: Path, make_node: MakeNode, eventually: Eventually
) -> None:
    """The shared sandbox is such a cluster: its control-plane nodes carry only the label control-plane, and a taint."""
    control_plane = {one["metadata"]["name"] for one in sandbox.get("nodes", "-l", CONTROL_PLANE)["items"]}
    sandbox.apply(deployment(namespace, "Deployment", "nginx"), deployment(namespace, "DaemonSet", "traefik"))
    eventually(lambda: nodes_of(sandbox, namespace, "nginx") - {""}, 30, "it runs somewhere")
    assert not nodes_of(sandbox, namespace, "nginx") & control_plane, "where the scheduler likes"
    named = [{"kind": kind, "namespace": namespace, "name": name} for kind, name in
             (("Deployment", "nginx"), ("DaemonSet", "traefik"))]  # fmt: skip
    fleet(sandbox, workloads=named)
    with operator(sandbox, tmp_path, namespace, "--only", "ingress") as running:
        running.said("leading")

        def placed() -> set[str]:
            return nodes_of(sandbox, namespace, "nginx")

        eventually(lambda: placed() and placed() <= control_plane, 60, "pinned to the control plane")
        eventually(lambda: nodes_of(sandbox, namespace, "traefik") == control_plane, 60, "one on each of them")
        explained = hostler(sandbox.kubeconfig, "explain", f"deployment/{namespace}/nginx", "--operator", running.url)
        assert "decided by the Fleet" in explained.stdout
        assert "where it belongs" in explained.stdout
        status = hostler(sandbox.kubeconfig, "ingress", "status", "-o", "json")
        names = {one["name"] for one in json.loads(status.stdout)}
        assert names == {f"daemonset/{namespace}/traefik", f"deployment/{namespace}/nginx"}
        count = len(writes(sandbox, running.user))
        make_node(roles=["worker"], taint=False)
        hostler(sandbox.kubeconfig, "explain", f"deployment/{namespace}/nginx", "--operator", running.url)
        assert len([one for one in writes(sandbox, running.user)[count:] if "fleets" not in one]) == 0
        fleet(sandbox, workloads=[{**named[0], "placement": "Workers"}])
        eventually(lambda: placed() and "" not in placed() and not placed() & control_plane, 60, "kept off them")
