"""A hub and an old cluster for stories of reclaim: hosts as Agents, and the agent as the process its pod starts."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from hostler.instant import iso
from hostler.reclaim.agent_manifests import NAMESPACE_NAME, name_for
from hostler.reclaim.hub.tokens import Keys
from hostler.sandbox import Sandbox
from hostler.sandbox.build import Silent
from hostler.sandbox.crds import install_crds
from hostler.sandbox.expand import node_object
from hostler.sandbox.fleet import Node
from hostler.sandbox.load import create
from tests.real.agent_world import BOOT_ID, INITRD, KERNEL, Scratch
from tests.real.metal_world import Api
from tests.real.operating import Running, operator
from tests.unit.kube_pki import Authority

T = TypeVar("T")
Json = dict[str, Any]
GROUP = "agent-install.openshift.io"
OURS = "reclaim.hostler.dev"
SECONDS = 90.0
PULL_SECRET = '{"auths": {}}'


def until(look: Callable[[], T], what: str, seconds: float = SECONDS) -> T:
    """Look until it is truthy."""
    end = time.monotonic() + seconds
    while not (seen := look()):
        assert time.monotonic() < end, f"not within {seconds:.0f} s: {what}; last seen: {seen!r}"
        time.sleep(0.1)
    return seen


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@dataclass
class Site:
    """A hub with its files, and the old cluster; both may be the same API server."""

    hub: Sandbox
    spoke: Sandbox
    folder: Path
    home: str  # the operator's namespace
    port: int
    tls: bool = True
    apis: dict[str, Api] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def told(self) -> dict[str, str]:
        """The operator's settings, as environment."""
        at = str(self.folder)
        pair = {"HOSTLER_HUB_CERTIFICATE": f"{at}/tls.crt", "HOSTLER_HUB_KEY": f"{at}/tls.key"}
        return {
            "HOSTLER_ONLY": "reclaim", "HUB_URL": self.url, "HOSTLER_HUB_ADDRESS": f"127.0.0.1:{self.port}",
            "HUB_CA": f"{at}/ca.pem", "HOSTLER_HUB_ARTIFACTS": f"{at}/artifacts", "AGENT_IMAGE": "agent:1",
            **(pair if self.tls else {"HOSTLER_HUB_PLAIN_HTTP": "true"}),
        }  # fmt: skip

    @contextmanager
    def running(self, *more: str, name: str = "operator", **told: str) -> Iterator[Running]:
        """`told`: settings that differ."""
        told = {**self.told, **told}
        with operator(self.hub, self.folder, self.home, *more, name=name, told=told) as started:
            started.said("serving the step API")
            yield started

    @property
    def there(self) -> Api:
        return self.apis["spoke"]

    @property
    def here(self) -> Api:
        return self.apis["hub"]

    def keys(self) -> Keys:
        path = f"/api/v1/namespaces/{self.home}/secrets/hostler-reclaim-key"
        secret = until(lambda: self.here.get(path), "the signing key")
        return Keys(base64.b64decode(secret["data"]["key.pem"]))

    def token(self, case: Case) -> str:
        """What this host's discovery system registers with."""
        return self.keys().for_infra_env(case.namespace, case.infra_env, "env", now=time.time(), seconds=3600)

    def left(self) -> list[str]:
        """Paths of what is left of ours in the old cluster."""
        found = []
        for group, kinds in (
            ("/api/v1", ("secrets", "configmaps", "serviceaccounts")),
            ("/apis/apps/v1", ("daemonsets",)),
            ("/apis/rbac.authorization.k8s.io/v1", ("roles", "rolebindings")),
        ):
            for kind in kinds:
                path = f"{group}/namespaces/{NAMESPACE_NAME}/{kind}"
                found += [f"{path}/{one['metadata']['name']}" for one in self.there.items(path) if _ours(one)]
        namespace = f"/api/v1/namespaces/{NAMESPACE_NAME}"
        return [*found, *([namespace] if _ours(self.there.get(namespace)) else [])]


def _ours(one: Json) -> bool:
    labels: Json = one.get("metadata", {}).get("labels", {})
    return labels.get("app.kubernetes.io/managed-by") == "hostler"


@contextmanager
def site(hub: Sandbox, spoke: Sandbox, folder: Path, home: str) -> Iterator[Site]:
    install_crds(hub, ["agents"], Silent())
    authority = Authority()
    pair = authority.issue("hub", "127.0.0.1")
    for name, data in (("ca.pem", authority.certificate), ("tls.crt", pair.certificate), ("tls.key", pair.key)):
        (folder / name).write_bytes(data)
    (folder / "artifacts").mkdir()
    made = Site(hub, spoke, folder, home, free_port(), apis={"hub": Api(hub), "spoke": Api(spoke)})
    try:
        yield made
    finally:
        for api in made.apis.values():
            api.close()


@dataclass
class Case:
    """One host: its Agent on the hub, its node in the old cluster, its scratch root, its agent's processes."""

    site: Site
    namespace: str
    node: str
    scratch: Scratch
    name: str  # of its Agent
    processes: list[subprocess.Popen[str]] = field(default_factory=list)
    starts: int = 0

    # -- making

    def make(
        self, *, artifacts: Json | None = None, kubeconfig: bytes | None = None, bound: bool = True, **labels: str
    ) -> Case:
        """An installed, bound host; its cluster's kubeconfig; the InfraEnv with its artifacts at the hub."""
        content = kubeconfig if kubeconfig is not None else self.site.spoke.kubeconfig.read_bytes()
        meta: Json = {"namespace": self.namespace}
        create(self.site.hub, [
            *self._cluster("old", content),
            {"apiVersion": "v1", "kind": "Secret", "metadata": {**meta, "name": "pull"},
             "type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": PULL_SECRET}},
            {"apiVersion": f"{GROUP}/v1beta1", "kind": "InfraEnv", "metadata": {**meta, "name": "env"},
             "spec": {"pullSecretRef": {"name": "pull"}}},
            {"apiVersion": f"{GROUP}/v1beta1", "kind": "Agent",
             "metadata": {**meta, "name": self.name, "labels": {f"infraenvs.{GROUP}": "env", **labels}},
             "spec": {"approved": True, "role": "worker", "hostname": self.node, **(
                 {"clusterDeploymentName": {"name": "old", "namespace": self.namespace}} if bound else {})}},
        ])  # fmt: skip
        if artifacts is None:
            place = self.site.folder / "artifacts" / self.infra_env
            place.mkdir(exist_ok=True)
            for name, data in (("kernel", KERNEL), ("initrd", INITRD), ("rootfs", b"r")):
                (place / name).write_bytes(data)
        elif artifacts:
            self._patch("infraenvs", "env", {"status": {"bootArtifacts": artifacts}}, "/status")
        self.patch({"status": {"debugInfo": {"state": "installed"}}}, status=True)
        return self

    def _cluster(self, name: str, kubeconfig: bytes) -> list[Json]:
        meta, secret = {"namespace": self.namespace, "name": name}, f"{name}-admin"
        data = {"kubeconfig": base64.b64encode(kubeconfig).decode()}
        metadata = {"adminKubeconfigSecretRef": {"name": secret}, "clusterID": name, "infraID": name}
        spec = {"baseDomain": "example.com", "clusterName": name, "platform": {}, "clusterMetadata": metadata}
        return [
            {"apiVersion": "v1", "kind": "Secret", "metadata": {**meta, "name": secret}, "data": data},
            {"apiVersion": "hive.openshift.io/v1", "kind": "ClusterDeployment", "metadata": meta, "spec": spec},
        ]

    def second_cluster(self, name: str, kubeconfig: bytes) -> None:
        create(self.site.hub, self._cluster(name, kubeconfig))

    # -- the Agent

    @property
    def path(self) -> str:
        return f"/apis/{GROUP}/v1beta1/namespaces/{self.namespace}/agents/{self.name}"

    @property
    def infra_env(self) -> str:
        found = self.site.here.get(f"/apis/{GROUP}/v1beta1/namespaces/{self.namespace}/infraenvs/env")
        return str(found["metadata"]["uid"])

    def agent(self) -> Json:
        return self.site.here.get(self.path)

    @property
    def state(self) -> str:
        return str(self.agent()["status"].get("debugInfo", {}).get("state", ""))

    def condition(self, kind: str = "Reclaimed") -> tuple[str, str]:
        for one in self.agent()["status"].get("conditions", []):
            if one["type"] == kind:
                return one["status"], one["reason"]
        return "", ""

    def message(self) -> str:
        return next(
            (one["message"] for one in self.agent()["status"].get("conditions", []) if one["type"] == "Reclaimed"), ""
        )

    def events(self) -> set[tuple[str, str]]:
        """Type and reason of what was told of this Agent."""
        listed = self.site.here.get(f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events").get("items", [])
        return {(one["type"], one["reason"]) for one in listed if one["regarding"]["name"] == self.name}

    def patch(self, body: Json, *, status: bool = False) -> None:
        self._patch("agents", self.name, body, "/status" if status else "")

    def _patch(self, plural: str, name: str, body: Json, sub: str) -> None:
        path = f"/apis/{GROUP}/v1beta1/namespaces/{self.namespace}/{plural}/{name}{sub}"
        code, answer = self.site.here.call("PATCH", path, body)
        assert code == 200, answer

    def kernel_arguments(self, *words: str) -> None:
        """What the InfraEnv has its hosts boot with."""
        found = [{"operation": "append", "value": word} for word in words]
        self._patch("infraenvs", "env", {"spec": {"kernelArguments": found}}, "")

    def hashes(self, **values: str) -> None:
        """What the InfraEnv's owner says its artifacts hash to."""
        notes = {f"{OURS}/{name}-sha256": value for name, value in values.items()}
        self._patch("infraenvs", "env", {"metadata": {"annotations": notes}}, "")

    def annotate(self, **notes: str) -> None:
        self.patch({"metadata": {"annotations": {f"{OURS}/{name}": value for name, value in notes.items()}}})

    def bind(self, cluster: str | None) -> None:
        bound = None if cluster is None else {"name": cluster, "namespace": self.namespace}
        self.patch({"spec": {"clusterDeploymentName": bound}})

    def unbind(self) -> None:
        """As a person does, once the operator knows where the host is."""
        until(lambda: self.agent()["status"].get("deprovision_info"), "the cluster is noted on the Agent")
        self.bind(None)

    def reach(self, state: str, reason: str = "") -> None:
        until(
            lambda: self.state == state and (not reason or self.condition()[1] == reason),
            f"{state} {reason}; it is {self.state} {self.condition()}",
        )

    def later(self, seconds: float) -> None:
        """As if this stage had begun so long ago."""
        self.patch({"status": {"progress": {"stageStartTime": iso(time.time() - seconds)}}}, status=True)

    def waited(self, seconds: float) -> None:
        """As if what is missing had been waited for so much longer."""
        conditions = self.agent()["status"]["conditions"]
        for one in conditions:
            one["lastTransitionTime"] = iso(time.time() - seconds)
        self.patch({"status": {"conditions": conditions}}, status=True)

    # -- the pod

    def daemon_set(self) -> Json:
        return self.site.there.get(f"/apis/apps/v1/namespaces/{NAMESPACE_NAME}/daemonsets/{name_for(self.node)}")

    def pods(self) -> list[Json]:
        """Running pods of ours, wherever they are."""
        found = self.site.there.get(f"/api/v1/namespaces/{NAMESPACE_NAME}/pods").get("items", [])
        return [one for one in found if one["status"].get("phase") == "Running"]

    def told(self) -> dict[str, str]:
        """What the pod spec tells the agent, with its files where a kubelet would put them."""
        found = until(self.daemon_set, "the agent's DaemonSet")
        (container,) = found["spec"]["template"]["spec"]["containers"]
        told = {one["name"]: one.get("value", "") for one in container["env"]}
        base = f"/api/v1/namespaces/{NAMESPACE_NAME}"
        token = until(lambda: self.site.there.get(f"{base}/secrets/{name_for(self.node)}"), "its token")
        trusted = until(lambda: self.site.there.get(f"{base}/configmaps/{name_for(self.node)}"), "its CA")
        folder = self.scratch.root.parent
        (folder / "token").write_bytes(base64.b64decode(token["data"]["token"]))
        (folder / "ca.pem").write_text(trusted["data"]["ca.pem"])
        return {
            **told, "TOKEN_FILE": str(folder / "token"), "CA_FILE": str(folder / "ca.pem"), "STAY": "",
            "HOST_MOUNT": str(self.scratch.root), "ENTER_HOST": str(self.scratch.root / "commands.sh"),
            "RETRY_SECONDS": "0.1", "PATIENCE_SECONDS": "0",
        }  # fmt: skip

    def armed(self) -> bool:
        """Whether its next boot would be discovery, where its loader is RHEL's GRUB."""
        entries = self.scratch.root / "boot/loader/entries"
        return (entries / "00-assisted-discovery.conf").exists() and b"next_entry=00-" in (
            self.scratch.root / "boot/grub2/grubenv"
        ).read_bytes()

    def start_agent(self, **more: str) -> subprocess.Popen[str]:
        """The agent as its pod starts it, on the scratch host."""
        self.starts += 1
        said = (self.scratch.root.parent / f"agent-{self.starts}.log").open("w")
        with said:
            process = subprocess.Popen(
                [sys.executable, "-m", "hostler.agent"], stderr=said, text=True,
                env={"PATH": os.environ["PATH"], **self.told(), **more},
            )  # fmt: skip
        self.processes.append(process)
        return process

    def said(self) -> str:
        return "\n".join((self.scratch.root.parent / f"agent-{one + 1}.log").read_text() for one in range(self.starts))

    def end_agents(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait(timeout=60)
        self.processes.clear()

    def register(self, token: str = "", port: int = 0) -> int:
        """The discovery system is up: it calls the hub, with its InfraEnv's token."""
        token = token or self.site.token(self)
        context = ssl.create_default_context(cafile=str(self.site.folder / "ca.pem"))
        connection = http.client.HTTPSConnection("127.0.0.1", port or self.site.port, context=context, timeout=60)
        with contextlib.closing(connection):
            where = f"/api/assisted-install/v2/infra-envs/{self.infra_env}/hosts"
            connection.request("POST", where, json.dumps({"host_id": self.name}), {"X-Secret-Key": token})
            return connection.getresponse().status

    def to_rebooting(self) -> None:
        """Unbound, downloaded, to be restarted; its agent was killed before it asked for that, in a minute."""
        self.unbind()
        self.reach("reclaiming")
        self.start_agent()
        self.reach("reclaiming-rebooting", "Rebooting")
        self.end_agents()

    def reboot(self) -> None:
        """The pod is started again (as after a lost connection), asks, and restarts the host."""
        self.reach("reclaiming-rebooting")
        self.end_agents()
        self.start_agent()
        until(lambda: "systemctl reboot" in self.scratch.commands, "the restart")
        self.end_agents()


Make = Callable[..., Case]


def taken_back(clusters: Site) -> list[str]:
    """Delete what is left in the old cluster; what was left."""
    left = list(clusters.left())
    for path in left:
        clusters.there.call("DELETE", path)
    return left


@contextmanager
def making(clusters: Site, namespace: str, folder: Path) -> Iterator[Make]:
    """Makes hosts: an Agent, a node in the old cluster, a scratch root. All of it is gone afterwards."""
    made: list[Case] = []

    def one(name: str = "", *, scratch: str = "rhel", **more: Any) -> Case:
        fields = {
            key: more.pop(key) for key in list(more) if key in ("roles", "annotations", "provider_id", "system_uuid")
        }
        host = f"0c1a9d3e-0001-4000-8000-{os.urandom(6).hex()}"  # as assisted-service names an Agent
        fields = {"provider_id": "", "system_uuid": host, **fields}
        node = Node(name=name or f"worker-{os.urandom(4).hex()}", boot_id=BOOT_ID, **fields)
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        create(clusters.spoke, [node_object(node, 2000 + len(made), None, now, off=False)])
        root = Scratch(folder / node.name / "host")
        if scratch:
            getattr(root, scratch)()
        case = Case(clusters, namespace, node.name, root, host)
        made.append(case)
        return case.make(**more)

    try:
        yield one
    finally:
        for case in made:
            case.end_agents()
            # Whoever ends in the middle of it: neither our finalizer nor the old cluster keeps the next one waiting.
            clusters.here.call("PATCH", case.path, {"metadata": {"finalizers": None}})
            clusters.here.call("DELETE", case.path)
        # The operator may be putting an agent there right now: without our finalizer it takes nothing back.
        until(lambda: not taken_back(clusters), "nothing is left in the old cluster", 180)
        for case in made:
            clusters.there.call("DELETE", f"/api/v1/nodes/{case.node}")
