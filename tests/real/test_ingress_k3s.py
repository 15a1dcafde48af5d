"""Ingress where the control-plane label has another value than kubeadm's: real pods, the real scheduler, no outage."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hostler.sandbox import Sandbox
from tests.real.conftest import Eventually
from tests.real.operating import Running, hostler, operator
from tests.real.routing import CONTROL_PLANE, writes

MakeNode = Callable[..., str]


@pytest.fixture
def servers(sandbox: Sandbox) -> Iterator[set[str]]:
    """The sandbox's control-plane nodes, labelled as k3s and RKE2 label theirs."""
    names = [one["metadata"]["name"] for one in sandbox.get("nodes", "-l", CONTROL_PLANE)["items"]]
    sandbox.kubectl("label", "node", *names, f"{CONTROL_PLANE}=true", "--overwrite")
    yield set(names)
    sandbox.kubectl("label", "node", *names, f"{CONTROL_PLANE}=", "--overwrite")


@pytest.fixture
def fleet(sandbox: Sandbox) -> Iterator[Callable[..., None]]:
    """Names one ingress in the Fleet; there is none before and none after."""
    assert hostler(sandbox.kubeconfig, "crds", "--apply").returncode == 0
    sandbox.kubectl("delete", "fleet", "--all", "--ignore-not-found")

    def name_one(**workload: Any) -> None:
        about = {"apiVersion": "hostler.dev/v1alpha1", "kind": "Fleet", "metadata": {"name": "cluster"}}
        sandbox.apply({**about, "spec": {"ingress": {"workloads": [workload]}}})

    yield name_one
    sandbox.kubectl("delete", "fleet", "--all", "--ignore-not-found")


def traefik(namespace: str) -> dict[str, Any]:
    pod = {"hostNetwork": True, "containers": [{"name": "traefik", "image": "t", "ports": [{"containerPort": 80}]}]}
    labels = {"app": "traefik"}
    spec = {
        "replicas": 1,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    about = {"name": "traefik", "namespace": namespace}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": about, "spec": spec}


def ready_on(box: Sandbox, namespace: str) -> set[str]:
    """The nodes with a ready pod of it."""
    found = box.read(f"/api/v1/namespaces/{namespace}/pods?labelSelector=app=traefik")["items"]
    return {
        one["spec"]["nodeName"]
        for one in found
        if "deletionTimestamp" not in one["metadata"]
        and any(c["type"] == "Ready" and c["status"] == "True" for c in one.get("status", {}).get("conditions", []))
    }


def condition(box: Sandbox) -> dict[str, str]:
    found = box.get("fleet", "cluster").get("status", {}).get("conditions", [])
    return next((dict(one) for one in found if one["type"] == "IngressNoFittingNode"), {"status": "", "message": ""})


def metrics(running: Running) -> str:
    with urllib.request.urlopen(f"{running.url}/metrics", timeout=30) as answer:
        return str(answer.read().decode())


def test_an_ingress_follows_the_servers_of_k3s_and_never_goes_to_no_node(
    sandbox: Sandbox, servers: set[str], fleet: Callable[..., None], namespace: str, tmp_path: Path,
    make_node: MakeNode, eventually: Eventually,
) -> None:  # fmt: skip
    sandbox.apply(traefik(namespace))
    eventually(lambda: len(ready_on(sandbox, namespace) - servers) == 1, 60, "it runs on any node but the tainted ones")
    named = {"kind": "Deployment", "namespace": namespace, "name": "traefik"}
    key, series = f"Deployment/{namespace}/traefik", f'{{controller="Deployment/{namespace}/traefik"}}'
    fleet(**named)
    setting = ("--ingress-workloads", key)  # as for k3s, where it is Deployment/kube-system/traefik
    with operator(sandbox, tmp_path, namespace, "--only", "ingress", *setting) as running:
        running.said("leading")

        def pinned() -> bool:
            found = ready_on(sandbox, namespace)
            return len(found) == 1 and found <= servers

        eventually(pinned, 60, "on the servers, whose label says true")
        eventually(lambda: condition(sandbox)["status"] == "False", 30, "the Fleet's status: a node fits")
        before = writes(sandbox, running.user).count("deployments")
        # Nobody has this label. The ingress stays on the servers, and everybody is told.
        fleet(**named, nodeSelector={"example.org/edge": namespace})
        eventually(lambda: condition(sandbox)["status"] == "True", 30, "no node fits")
        assert f"{key}: No node fits example.org/edge={namespace}: none of" in condition(sandbox)["message"]
        assert f"hostler_ingress_no_fitting_node{series} 1.0" in metrics(running)
        eventually(lambda: "NoFittingNode" in sandbox.kubectl("get", "events", "-n", namespace), 30, "the Event")
        shown = hostler(sandbox.kubeconfig, "ingress", "status", *setting).stdout
        assert "It stays where it is until one does." in " ".join(shown.split())
        assert pinned()
        assert writes(sandbox, running.user).count("deployments") == before, "nothing was written"
        # A node with the label joins, tainted at first: still none fits. Then it does.
        edge = make_node(labels={"example.org/edge": namespace})
        eventually(lambda: "hostler.dev/test" in condition(sandbox)["message"], 30, "the taint is named")
        assert pinned()
        other = make_node(labels={"example.org/edge": namespace}, taint=False)
        eventually(lambda: other in ready_on(sandbox, namespace), 60, "now it moves")
        eventually(lambda: condition(sandbox)["status"] == "False", 30, "and that is reported")
        assert f"hostler_ingress_no_fitting_node{series} 0.0" in metrics(running)
        assert edge not in ready_on(sandbox, namespace)
        # One server's label has another value: the label's presence selects them all.
        one = min(servers)
        sandbox.kubectl("label", "node", one, f"{CONTROL_PLANE}=", "--overwrite")
        fleet(**named)
        eventually(pinned, 60, "back on the servers")
        spec = sandbox.get("deployment", "traefik", "-n", namespace)["spec"]["template"]["spec"]
        assert (spec["nodeSelector"], "Exists" in str(spec["affinity"])) == ({"kubernetes.io/os": "linux"}, True)
