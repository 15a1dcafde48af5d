"""Spokes for tests: a real API server of its own, clusters of tenants on the hub, and a server that means harm."""

from __future__ import annotations

import base64
import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from hostler.instant import iso
from hostler.sandbox import Sandbox, http
from hostler.sandbox.load import create
from tests.real.api_servers import another_api_server

ROOT = Path(__file__).parents[2]
CAPI, METAL3 = "cluster.x-k8s.io/v1beta2", "infrastructure.cluster.x-k8s.io/v1beta2"
ACCOUNT = "hostler-hub"  # in the spoke, with what docs/join.md says is enough


def documented(where: str) -> list[dict[str, Any]]:
    """The objects of docs/join.md for the hub, or for the spoke: what it says is what is tried."""
    text = (ROOT / "docs" / "join.md").read_text()
    (found,) = re.findall(rf"```yaml\n# {where}\n(.*?)```", text, re.DOTALL)
    return list(yaml.safe_load_all(found))


def with_everything_in_it(box: Sandbox, kubeconfig: Path, token: str = "") -> bytes:
    """A kubeconfig that names no file, as it is in a Secret; with this token in place of the administrator."""
    content = yaml.safe_load(kubeconfig.read_text())

    def inline(fields: dict[str, Any], *names: str) -> None:
        for name in names:
            if name in fields:
                fields[f"{name}-data"] = base64.b64encode((box.layout.root / fields.pop(name)).read_bytes()).decode()

    for entry in content["clusters"]:
        inline(entry["cluster"], "certificate-authority")
    for entry in content["users"]:
        inline(entry["user"], "client-certificate", "client-key")
        entry["user"] = {"token": token} if token else entry["user"]
    return yaml.safe_dump(content).encode()


class SpokeCluster:
    """A real API server with objects of its own; nothing is signed there, since it has no controllers."""

    def __init__(self, box: Sandbox, kubeconfig: Path) -> None:
        self._box, self.kubeconfig = box, kubeconfig

    def kubectl(self, *words: str, input: str | None = None) -> str:
        return self._box.kubectl("--kubeconfig", str(self.kubeconfig), *words, input=input)

    def read(self, path: str) -> dict[str, Any]:
        at = yaml.safe_load(self.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
        return http.ask("The spoke", urlsplit(at).port or 0, "GET", path, tls=http.trust(self._box.layout, "admin"))

    def apply(self, *objects: dict[str, Any]) -> None:
        self.kubectl("apply", "-f", "-", input="\n---\n".join(json.dumps(one) for one in objects))

    def approved(self, csr: str) -> list[str]:
        """By whom, if it is."""
        path = f"/apis/certificates.k8s.io/v1/certificatesigningrequests/{csr}"
        said = self.read(path).get("status", {}).get("conditions", [])
        return [one["reason"] for one in said if one["type"] == "Approved"]

    def token(self, account: str) -> bytes:
        """A kubeconfig of a service account there with exactly the documented rights."""
        made: list[dict[str, Any]] = [
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _meta(account, "kube-system")}
        ]
        subject = [{"kind": "ServiceAccount", "name": account, "namespace": "kube-system"}]
        for role in documented("in the spoke"):
            name, space = role["metadata"]["name"], role["metadata"].get("namespace", "")
            reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": role["kind"], "name": name}
            binding = {
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": f"{role['kind']}Binding",
                "metadata": _meta(f"{name}-{account}", space), "roleRef": reference, "subjects": subject,
            }  # fmt: skip
            made += [role, binding]
        self.apply(*made)
        token = self.kubectl("-n", "kube-system", "create", "token", account).strip()
        return with_everything_in_it(self._box, self.kubeconfig, token)


@contextmanager
def spoke_cluster(box: Sandbox, folder: Path, name: str) -> Iterator[SpokeCluster]:
    with another_api_server(box, folder, name, f"--etcd-prefix=/{name}") as kubeconfig:
        yield SpokeCluster(box, kubeconfig)


# -- what a tenant has on the hub


def _meta(name: str, namespace: str = "", **more: Any) -> dict[str, Any]:
    return {"name": name, **({"namespace": namespace} if namespace else {}), **more}


def add_cluster(box: Sandbox, namespace: str, name: str, kubeconfig: bytes) -> None:
    keep_kubeconfig(box, namespace, name, kubeconfig)
    ref = {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "Metal3Cluster", "name": name}
    spec = {"infrastructureRef": ref}
    create(box, [{"apiVersion": CAPI, "kind": "Cluster", "metadata": _meta(name, namespace), "spec": spec}])


def keep_kubeconfig(box: Sandbox, namespace: str, cluster: str, kubeconfig: bytes) -> None:
    data = {"value": base64.b64encode(kubeconfig).decode()}
    box.apply({"apiVersion": "v1", "kind": "Secret", "metadata": _meta(f"{cluster}-kubeconfig", namespace),
               "data": data})  # fmt: skip


def add_host(box: Sandbox, namespace: str, name: str, cluster: str, *, machine_in: str = "") -> None:
    """A BareMetalHost being provisioned for a Metal3Machine of that cluster, both of that name."""
    space = machine_in or namespace
    labels = {"cluster.x-k8s.io/cluster-name": cluster}
    consumer = {"apiVersion": METAL3, "kind": "Metal3Machine", "name": name, "namespace": space}
    status = {
        "provisioning": {"ID": "", "state": "provisioning"},
        "operationHistory": {"provision": {"start": iso(time.time())}},
        "errorMessage": "", "operationalStatus": "OK", "poweredOn": True,
    }  # fmt: skip
    create(box, [
        {"apiVersion": METAL3, "kind": "Metal3Machine", "spec": {}, "metadata": _meta(name, space, labels=labels)},
        {"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "metadata": _meta(name, namespace),
         "spec": {"online": True, "consumerRef": consumer}, "status": status},
    ])  # fmt: skip


# -- an API server that means harm

ESCAPE = "\x1b[2J\x1b[31mYOUR PASSWORD PLEASE"


class Hostile(ThreadingHTTPServer):
    """Answers a kubeconfig's requests with what a tenant wants our users to read, or without an end."""

    daemon_threads = True

    def __init__(self, objects: list[dict[str, Any]] | None = None, *, endless: bool = False) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.objects, self.endless = objects, endless
        self.asked: list[str] = []

    @property
    def kubeconfig(self) -> bytes:
        at = f"http://127.0.0.1:{self.server_address[1]}"
        return yaml.safe_dump({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": at}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        }).encode()  # fmt: skip


class _Answers(BaseHTTPRequestHandler):
    server: Hostile

    def do_GET(self) -> None:
        self.server.asked.append(f"GET {self.path}")
        if self.server.endless:
            self._flood()
        elif self.server.objects is None or "watch=true" not in self.path:
            self._refuse()
        else:
            self._watch(self.server.objects)

    def _watch(self, objects: list[dict[str, Any]]) -> None:
        self.send_response(200)
        self.end_headers()
        for one in objects if "certificatesigningrequests" in self.path else ():
            self.wfile.write(json.dumps({"type": "ADDED", "object": one}).encode() + b"\n")
        end = {"metadata": {"resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}}}
        self.wfile.write(json.dumps({"type": "BOOKMARK", "object": end}).encode() + b"\n")
        self.wfile.flush()
        time.sleep(30)

    def do_PATCH(self) -> None:
        self.server.asked.append(f"PATCH {self.path}")
        self._refuse()

    do_POST = do_PATCH

    def _refuse(self) -> None:
        body = json.dumps({"kind": "Status", "code": 403, "reason": "Forbidden", "message": ESCAPE * 1000}).encode()
        self.send_response(403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _flood(self) -> None:
        self.send_response(200)
        self.end_headers()
        try:
            while True:
                self.wfile.write(b"x" * (1 << 16))
        except OSError:
            return

    def log_message(self, *_: object) -> None:
        """Nothing on the terminal."""


@contextmanager
def hostile(objects: list[dict[str, Any]] | None = None, *, endless: bool = False) -> Iterator[Hostile]:
    with Hostile(objects, endless=endless) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server
        server.shutdown()
