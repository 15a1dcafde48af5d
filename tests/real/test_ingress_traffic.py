"""Ingress carries traffic: a real HTTP server for every placed pod, on the loopback address of its node."""

from __future__ import annotations

import http.client
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hostler.host.conditions import names
from hostler.sandbox import Sandbox
from tests.real.conftest import Eventually
from tests.real.operating import hostler, operator
from tests.real.routing import (
    CONTROLLERS,
    ROUTERS,
    conditions,
    controller,
    decided,
    install_openshift,
    set_status,
    undecide,
)

MakeNode = Callable[..., str]
PORT = 18080
SERVER = """
import http.server, sys
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(sys.argv[2].encode())
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer((sys.argv[1], int(sys.argv[3])), Answer).serve_forever()
"""


def ask(address: str) -> str:
    """The pod that answers at an address; empty if none does."""
    asked = http.client.HTTPConnection(address, PORT, timeout=5)
    try:
        asked.request("GET", "/", headers={"Host": "shop.apps.invalid"})
        return asked.getresponse().read().decode()
    except OSError:
        return ""
    finally:
        asked.close()


class Kubelets(threading.Thread):
    """Does for router pods what their kubelets would: a process once placed, Ready once it answers, ended when deleted.

    kwok leaves these pods alone (annotation `sandbox.hostler.dev/kubelet: ignore`).
    """

    def __init__(self, box: Sandbox, addresses: dict[str, str]) -> None:
        super().__init__(daemon=True)
        self._box, self._addresses = box, addresses
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._ready: set[str] = set()
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(0.1):
            pods = self._box.read(f"/api/v1/namespaces/{ROUTERS}/pods")["items"]
            # Every kubelet ends its pod at once: first all of those, whatever else there is to do.
            ending = [pod["metadata"]["name"] for pod in pods if "deletionTimestamp" in pod["metadata"]]
            for name in ending:
                if (process := self._processes.pop(name, None)) is not None:
                    process.kill()
                    process.wait()
            for pod in pods:
                if pod["metadata"]["name"] not in ending and "nodeName" in pod["spec"]:
                    self._look(pod["metadata"]["name"], pod["spec"]["nodeName"])
            if ending:
                force = ("--force", "--grace-period=0", "--ignore-not-found", "--wait=false")
                self._box.kubectl("delete", "pod", *ending, "-n", ROUTERS, *force)

    def end(self) -> None:
        self._ended.set()
        self.join(60)
        for process in self._processes.values():
            process.kill()
            process.wait()

    def _look(self, name: str, node: str) -> None:
        if name not in self._processes:
            words = (sys.executable, "-c", SERVER, self._addresses[node], name, str(PORT))
            self._processes[name] = subprocess.Popen(words)
        elif name not in self._ready and ask(self._addresses[node]) == name:
            now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            ready = [
                {"type": type, "status": "True", "lastTransitionTime": now} for type in ("Ready", "ContainersReady")
            ]
            status = {"phase": "Running", "conditions": ready}
            set_status(self._box, "pod", name, status, "-n", ROUTERS)
            self._ready.add(name)


class Client(threading.Thread):
    """Asks again and again, at every address there may be a router: as a browser does with a name of many addresses."""

    def __init__(self, addresses: list[str]) -> None:
        super().__init__(daemon=True)
        self._addresses = addresses
        self._ended = threading.Event()
        self.answered: list[set[str]] = []  # per round, the addresses that answered

    def run(self) -> None:
        while not self._ended.wait(0.02):
            self.answered.append({one for one in self._addresses if ask(one)})

    def end(self) -> list[set[str]]:
        self._ended.set()
        self.join(60)
        return self.answered


def existing_router() -> dict[str, Any]:
    """A router with two pods that others made; Hostler places it."""
    container = {"name": "router", "image": "r", "ports": [{"containerPort": PORT, "hostPort": PORT}]}
    labels = {"app": "router"}
    about = {"labels": labels, "annotations": {"sandbox.hostler.dev/kubelet": "ignore"}}
    pod = {"hostNetwork": True, "terminationGracePeriodSeconds": 5, "containers": [container]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "router-default", "namespace": ROUTERS},
        "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": {"metadata": about, "spec": pod}},
    }


@pytest.fixture
def openshift(sandbox: Sandbox) -> Iterator[None]:
    install_openshift(sandbox)
    undecide(sandbox)
    assert hostler(sandbox.kubeconfig, "crds", "--apply").returncode == 0
    yield
    sandbox.kubectl("delete", "fleet", "--all", "--ignore-not-found")
    undecide(sandbox)


def test_traffic_is_answered_throughout_the_move_to_workers(
    sandbox: Sandbox, openshift: None, namespace: str, tmp_path: Path, make_node: MakeNode, eventually: Eventually
) -> None:
    addresses = {}
    for number, role in enumerate(("master", "master", "traffic", "traffic")):
        address = f"127.44.0.{10 + number}"
        labels = {"example.org/traffic": role}
        addresses[make_node(roles=[role], labels=labels, taint=False, internal_ip=address)] = address
    masters, workers = list(addresses.values())[:2], list(addresses.values())[2:]

    def point(at: list[str]) -> None:
        about = {"apiVersion": "hostler.dev/v1alpha1", "kind": "Fleet", "metadata": {"name": "cluster"}}
        sandbox.apply({**about, "spec": {"ingress": {"wildcardAddresses": at}}})

    def on(role: str) -> dict[str, Any]:
        placed = {"nodeSelector": {"matchLabels": {"example.org/traffic": role}}, "tolerations": []}
        return controller(replicas=2, nodePlacement=placed)

    def reaches() -> str:
        return conditions(sandbox).get("WildcardReachesRouter", "")

    point(masters)
    decided(sandbox, "ControlPlane", "HighlyAvailable", "HighlyAvailable")
    sandbox.apply(existing_router(), on("master"))
    kubelets, client = Kubelets(sandbox, addresses), Client([*masters, *workers])
    kubelets.start()
    try:
        with operator(sandbox, tmp_path, namespace, "--only", "ingress") as running:
            running.said("leading")
            eventually(lambda: reaches() == "True", 60, "the name reaches a router at both addresses")
            assert all(map(ask, masters)), "and so it does"
            client.start()
            sandbox.apply(on("traffic"))
            eventually(lambda: all(map(ask, workers)), 60, "the workers answer")
            eventually(lambda: reaches() == "False", 30, "the name still points at the old nodes")
            assert not any(map(ask, masters)), "and there nobody answers"
            shown = " ".join(hostler(sandbox.kubeconfig, "ingress", "status").stdout.split())
            assert f"where no router is ready. Routers run on {names(list(addresses)[2:])}." in shown
            point(workers)
            eventually(lambda: reaches() == "True", 30, "the name follows")
            rounds = client.end()
            # Without the owner's word the resolver is asked, and its silence is not an answer.
            point([])
            eventually(lambda: reaches() == "Unknown", 30, "apps.invalid is nowhere")
    finally:
        client.end() if client.is_alive() else None
        kubelets.end()
        sandbox.kubectl("delete", "ingresscontroller", "default", "-n", CONTROLLERS, "--ignore-not-found")
    assert {*masters} in rounds, "first the old ones answered"
    assert {*workers} in rounds, "then the new ones"
    assert [one for one in rounds if not one] == [], "and at no time nobody"
