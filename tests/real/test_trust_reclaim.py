"""Who may make reclaim restart a machine: a tenant's Agent reaches only the tenant's own clusters and hosts."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import json
import os
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hostler.instant import iso
from hostler.sandbox import Sandbox
from hostler.sandbox import http as sandbox_http
from hostler.sandbox.load import create
from tests.real.accounts import token_of
from tests.real.conftest import own_namespace
from tests.real.operating import Running, hostler
from tests.real.reclaiming import GROUP, OURS, Case, Make, Site, making, site, until

Json = dict[str, Any]
SECRET_WORDS = "the-secret-of-an-internal-service"
EVIL = {
    "kernel": "http://evil.example/kernel",
    "initrd": "http://evil.example/initrd",
    "rootfs": "http://evil.example/r",
}


@pytest.fixture(scope="module")
def clusters(sandbox: Sandbox, home: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site(sandbox, sandbox, tmp_path_factory.mktemp("hub"), home) as made:
        yield made


@pytest.fixture(scope="module")
def running(clusters: Site) -> Iterator[Running]:
    with clusters.running() as started:
        yield started


@pytest.fixture
def make(clusters: Site, namespace: str, tmp_path: Path) -> Iterator[Make]:
    with making(clusters, namespace, tmp_path) as one:
        yield one


@dataclass
class Tenant:
    """A service account that may write Agents and InfraEnvs in its own namespace, and nothing else."""

    site: Site
    namespace: str
    token: str

    def call(self, method: str, path: str, body: Json | None = None) -> tuple[int, Json]:
        port, tls = self.site.hub.state.ports["kube-apiserver"], sandbox_http.trust(self.site.hub.layout)
        with contextlib.closing(http.client.HTTPSConnection("127.0.0.1", port, timeout=60, context=tls)) as connection:
            content = "application/merge-patch+json" if method == "PATCH" else "application/json"
            headers = {"Authorization": f"Bearer {self.token}", "Content-Type": content}
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"{}")

    def may(self, verb: str, group: str, resource: str, namespace: str) -> bool:
        asked = {"namespace": namespace, "verb": verb, "group": group, "resource": resource}
        review = {"kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": asked}}
        path = "/apis/authorization.k8s.io/v1"
        code, answer = self.call(
            "POST", f"{path}/selfsubjectaccessreviews", {"apiVersion": path.removeprefix("/apis/"), **review}
        )
        assert code == 201, answer
        return bool(answer["status"]["allowed"])

    def patch(self, plural: str, name: str, body: Json, *, status: bool = False) -> None:
        code, answer = self.call("PATCH", f"{self._path(plural)}/{name}{'/status' if status else ''}", body)
        assert code == 200, answer

    def create(self, kind: str, plural: str, metadata: Json, spec: Json) -> None:
        body = {"apiVersion": f"{GROUP}/v1beta1", "kind": kind, "metadata": metadata, "spec": spec}
        code, answer = self.call("POST", self._path(plural), body)
        assert code == 201, answer

    def _path(self, plural: str) -> str:
        return f"/apis/{GROUP}/v1beta1/namespaces/{self.namespace}/{plural}"

    def infra_env(self, artifacts: Json, *words: str) -> None:
        arguments = [{"operation": "append", "value": word} for word in words]
        spec = {"pullSecretRef": {"name": "pull"}, "kernelArguments": arguments}
        self.create("InfraEnv", "infraenvs", {"name": "env"}, spec)
        self.patch("infraenvs", "env", {"status": {"bootArtifacts": artifacts}}, status=True)

    def agent(self, name: str, victim: Case) -> Case:
        """An Agent of the tenant that claims to be the victim's node, bound to the victim's ClusterDeployment."""
        bound = {"name": "old", "namespace": victim.namespace}
        spec = {"approved": True, "role": "worker", "hostname": victim.node, "clusterDeploymentName": bound}
        self.create("Agent", "agents", {"name": name, "labels": {f"infraenvs.{GROUP}": "env"}}, spec)
        self.patch("agents", name, {"status": {"debugInfo": {"state": "installed"}}}, status=True)
        return Case(self.site, self.namespace, victim.node, victim.scratch, name)


@pytest.fixture
def tenant(clusters: Site) -> Iterator[Tenant]:
    with own_namespace(clusters.hub, "tenant") as name:
        rbac, meta = "rbac.authorization.k8s.io", {"name": "tenant", "namespace": name}
        resources = ["agents", "agents/status", "infraenvs", "infraenvs/status"]
        rules = [{"apiGroups": [GROUP], "resources": resources, "verbs": ["*"]}]
        create(clusters.hub, [
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
            {"apiVersion": "v1", "kind": "Secret", "metadata": {**meta, "name": "pull"},
             "type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": '{"auths": {}}'}},
            {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": meta, "rules": rules},
            {"apiVersion": f"{rbac}/v1", "kind": "RoleBinding", "metadata": meta,
             "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "tenant"},
             "subjects": [{"kind": "ServiceAccount", **meta}]},
        ])  # fmt: skip
        made = Tenant(clusters, name, token_of(clusters.hub, name, "tenant"))
        until(lambda: made.may("patch", GROUP, "agents/status", name), "the tenant's role is in force")
        yield made
        for one in clusters.here.items(f"/apis/{GROUP}/v1beta1/namespaces/{name}/agents"):
            path = f"/apis/{GROUP}/v1beta1/namespaces/{name}/agents/{one['metadata']['name']}"
            clusters.here.call("PATCH", path, {"metadata": {"finalizers": None}})


def retried(case: Case, tenant: Tenant, reason: str) -> None:
    """The tenant asks again, and the answer has this reason."""
    tenant.patch("agents", case.name, {"metadata": {"annotations": {f"{OURS}/retry": os.urandom(4).hex()}}})
    until(lambda: case.condition()[1] == reason, f"{reason}; it is {case.condition()} {case.message()}")


def consent(victim: Case, namespace: str | None) -> None:
    """The owner of the cluster lets Agents of that namespace in, or no longer."""
    path = f"/apis/hive.openshift.io/v1/namespaces/{victim.namespace}/clusterdeployments/old"
    victim.site.here.patch(path, {"metadata": {"annotations": {f"{OURS}/agents-from": namespace}}})


def test_tenants_agent_does_not_reach_another_tenants_cluster(
    clusters: Site, running: Running, make: Make, tenant: Tenant
) -> None:
    victim = make()
    assert not tenant.may("get", "", "secrets", victim.namespace)
    assert not tenant.may("patch", "hive.openshift.io", "clusterdeployments", victim.namespace)
    assert not tenant.may("create", "apps", "daemonsets", "assisted-installer")
    tenant.infra_env(EVIL, "init=/bin/sh")
    case = tenant.agent(victim.name, victim)  # named after the victim's machine
    until(lambda: case.agent()["status"].get("deprovision_info"), "the cluster is noted on the Agent")
    tenant.patch("agents", case.name, {"spec": {"clusterDeploymentName": None}})
    case.reach("unbinding-pending-user-action", "NamespaceNotAllowed")
    assert f"Agents of namespace {tenant.namespace} may not return hosts of" in case.message()
    until(lambda: ("Warning", "NamespaceNotAllowed") in case.events(), "the Event")
    counted = 'hostler_reclaim_transitions_total{reason="NamespaceNotAllowed",transition="UnbindHost"}'
    with urllib.request.urlopen(f"{running.url}/metrics", timeout=30) as answer:
        assert counted in answer.read().decode()

    told = hostler(clusters.hub.kubeconfig, "doctor", "--operator", running.url).stdout
    assert f"HOSTLER_RECLAIM_INVENTORIES={tenant.namespace}" in " ".join(told.split())
    assert "HOSTLER_RECLAIM_ARTIFACT_HOSTS=evil.example" in " ".join(told.split())

    # The state of one that an earlier version began, as the tenant can write it too.
    stage, node = iso(time.time()), clusters.there.get(f"/api/v1/nodes/{victim.node}")
    pinned = f"{stage} {node['metadata']['uid']} {node['status']['nodeInfo']['bootID']}"
    notes = {"annotations": {f"{OURS}/node": pinned}, "finalizers": [f"{OURS}/old-cluster"]}
    tenant.patch("agents", case.name, {"metadata": notes})
    begun = {"debugInfo": {"state": "reclaiming"}, "progress": {"stageStartTime": stage}, "conditions": []}
    tenant.patch("agents", case.name, {"status": begun}, status=True)
    case.reach("unbinding-pending-user-action", "NamespaceNotAllowed")
    assert case.daemon_set() == {}
    assert not clusters.left()

    # With the consent of the cluster's owner what it boots is judged, and then it goes.
    consent(victim, tenant.namespace)
    retried(case, tenant, "ArtifactsNotTrusted")
    assert "comes from evil.example by plain HTTP" in case.message()
    https = {name: f"https://images.example/{name}" for name in EVIL}
    tenant.patch("infraenvs", "env", {"status": {"bootArtifacts": https}}, status=True)
    retried(case, tenant, "KernelArgumentRefused")
    assert 'has the kernel argument "init=/bin/sh", which is not accepted' in case.message()
    tenant.patch("infraenvs", "env", {"spec": {"kernelArguments": [{"operation": "append", "value": "ip=dhcp"}]}})
    retried(case, tenant, "Reclaiming")
    until(case.daemon_set, "the agent is put there")
    assert "imagePullSecrets" not in case.daemon_set()["spec"]["template"]["spec"]
    assert not [path for path in clusters.left() if path.endswith("-pull")]
    events = f"/apis/events.k8s.io/v1/namespaces/{tenant.namespace}/events"
    until(lambda: "pull secret of its InfraEnv is not copied" in str(clusters.here.get(events)), "the Event says so")

    # What was begun by a version that did not ask ends before the restart, and nothing is left there.
    consent(victim, None)
    case.annotate(look="again")
    case.reach("unbinding-pending-user-action", "NamespaceNotAllowed")
    until(lambda: not case.daemon_set(), "what was put there is taken back")
    until(lambda: f"{OURS}/old-cluster" not in case.agent()["metadata"].get("finalizers", []), "the Agent is let go")
    assert [path for path in clusters.left() if path.endswith("-reclaim")] == []
    assert clusters.there.get(f"/api/v1/nodes/{victim.node}")["spec"].get("unschedulable") is None


def test_hostname_alone_does_not_make_a_node_the_agents(running: Running, make: Make) -> None:
    """Beside it: hosts whose address is in their inventory, as most of bare metal are named by their board's serial."""
    owner = make()
    unproven, another, board, nameless = (
        make(system_uuid=one) for one in ("0" * 32, owner.name, "f" * 31 + "0", "none")
    )  # fmt: skip
    for case in (another, board, nameless):
        (address,) = [
            one["address"]
            for one in case.site.there.get(f"/api/v1/nodes/{case.node}")["status"]["addresses"]
            if one["type"] == "InternalIP"
        ]
        addresses = {"flags": [], "ipV4Addresses": [f"{address}/24"], "ipV6Addresses": []}
        inventory = {"interfaces": [{"name": "eth0", **addresses}]}
        case.patch({"status": {"inventory": inventory}}, status=True)
    for case in (unproven, another, board, nameless):
        case.unbind()
    unproven.reach("unbinding-pending-user-action", "MachineNotProven")
    another.reach("unbinding-pending-user-action", "AnotherMachine")
    assert f"its system UUID is that of Agent {owner.namespace}/{owner.name}." in another.message()
    board.reach("reclaiming", "Reclaiming")
    nameless.reach("reclaiming", "Reclaiming")
    assert (unproven.daemon_set(), another.daemon_set()) == ({}, {})


class Internal(http.server.BaseHTTPRequestHandler):
    """A service that only the operator can reach, at the address that a tenant's kubeconfig names."""

    def do_GET(self) -> None:
        self.send_response(500, SECRET_WORDS)
        self.end_headers()
        self.wfile.write(json.dumps({"message": f"{SECRET_WORDS}, body"}).encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_no_word_of_a_tenants_server_is_in_a_condition(clusters: Site, running: Running, make: Make) -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Internal)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    kubeconfig = {
        "apiVersion": "v1", "kind": "Config", "current-context": "c", "users": [{"name": "u", "user": {"token": "t"}}],
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }  # fmt: skip
    case = make(kubeconfig=json.dumps(kubeconfig).encode())
    case.unbind()
    until(lambda: "it answered HTTP 500 (it failed)" in case.message(), "its answer in our own text")
    assert case.condition() == ("Unknown", "Deciding")
    told = hostler(clusters.hub.kubeconfig, "explain", f"agent/{case.namespace}/{case.name}", "--operator", running.url)
    assert told.returncode == 0, told.stderr
    events = clusters.here.get(f"/apis/events.k8s.io/v1/namespaces/{case.namespace}/events")
    assert SECRET_WORDS not in json.dumps([case.agent(), told.stdout, events])
    server.shutdown()
    server.server_close()
