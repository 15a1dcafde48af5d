"""Bare metal on the sandbox: CRDs of Metal3 (published ones where they are here) and Cluster API, hosts, machines."""

from __future__ import annotations

import base64
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import yaml

from hostler.sandbox import Sandbox
from hostler.sandbox import http as sandbox_http
from hostler.sandbox.build import Silent
from hostler.sandbox.crds import definitions_of
from hostler.sandbox.load import create
from tests.real.conftest import Eventually
from tests.real.operating import Running, operator, refused

PUBLISHED = Path(__file__).resolve().parents[3] / "shared" / "crds" / "metal3"
INFRA = "infrastructure.cluster.x-k8s.io/v1beta2"
CAPI = "cluster.x-k8s.io/v1beta2"
HOSTS, METAL = "/apis/metal3.io/v1alpha1", f"/apis/{INFRA}"
IPAM, CAPI_IPAM = "/apis/ipam.metal3.io/v1alpha1", "/apis/ipam.cluster.x-k8s.io/v1beta2"
Json = dict[str, Any]
THERE = "hostler-in-workload-cluster"
DRIVER, READY = "hostler.sandbox.hosts.driver", "driver.ready"  # the file has its pid
IMAGE = {"url": "http://images.invalid/os.qcow2", "checksum": "http://images.invalid/sum", "checksumType": "sha256"}
READY_STATUS = {
    "errorCount": 0, "errorMessage": "", "operationalStatus": "OK", "poweredOn": False, "provisioningFailCount": 0,
    "provisioning": {"ID": "x", "state": "available"},
    "hardware": {"hostname": "", "nics": [{"name": "eth0", "mac": "02:00:00:00:00:01", "ip": "198.18.0.1"}]},
}  # fmt: skip


# What the operator watches, and what the tests make besides. All that is published would keep the API server busy for
# twice as long.
KINDS = frozenset((
    *("clusters", "machines", "machinesets", "machinedeployments", "ipaddresses", "ipaddressclaims", "ipclaims"),
    *("ippools", "baremetalhosts", "metal3clusters", "metal3machines", "metal3machinetemplates", "metal3datas"),
    *("metal3dataclaims", "metal3datatemplates", "metal3remediations", "metal3remediationtemplates"),
    "metal3clustertemplates",
))  # fmt: skip


def of_metal3() -> list[Json]:
    """The published definitions where they are here, so that we are measured against the real schemas."""
    if PUBLISHED.exists():
        found = [yaml.load(file.read_text(), Loader=yaml.CSafeLoader) for file in sorted(PUBLISHED.glob("*.yaml"))]
    else:
        found = definitions_of("metal3", Silent())
    return [one for one in found if plural_of(one) in KINDS]


def plural_of(definition: Json) -> str:
    return str(definition["spec"]["names"]["plural"])


def install(box: Sandbox) -> None:
    allow_there(box)
    wanted = [one for one in definitions_of("capi", Silent()) if plural_of(one) in KINDS] + of_metal3()
    create(box, wanted)
    waiting = {(f"/apis/{one['spec']['group']}/{_stored(one)}", plural_of(one)) for one in wanted}
    api, end = Api(box), time.monotonic() + 120  # each kind is listed a moment before or after it is served

    def served(group: str, plural: str) -> bool:
        listed = {one["name"] for one in api.get(group).get("resources", [])}
        return plural in listed and bool(api.get(f"{group}/{plural}"))

    with closing(api):
        while waiting := {one for one in waiting if not served(*one)}:
            assert time.monotonic() < end, f"not served: {waiting}"
            time.sleep(0.1)


def _stored(definition: Json) -> str:
    return next(str(one["name"]) for one in definition["spec"]["versions"] if one["storage"])


def allow_there(box: Sandbox) -> None:
    """What docs/metal.md asks for in a workload cluster."""
    group = "rbac.authorization.k8s.io"
    rules = [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "patch"]},
        {"apiGroups": ["", "storage.k8s.io"], "resources": ["pods", "volumeattachments"], "verbs": ["list"]},
    ]
    reference = {"apiGroup": group, "kind": "ClusterRole", "name": THERE}
    subjects = [{"apiGroup": group, "kind": "User", "name": THERE}]
    bound = {"roleRef": reference, "subjects": subjects}
    create(box, [
        {"apiVersion": f"{group}/v1", "kind": kind, "metadata": {"name": THERE}, **more}
        for kind, more in (("ClusterRole", {"rules": rules}), ("ClusterRoleBinding", bound))
    ])  # fmt: skip


def uninstall(box: Sandbox) -> None:
    box.kubectl("delete", "clusterrole,clusterrolebinding", THERE, "--ignore-not-found")
    take_out(box, of_metal3())


def take_out(box: Sandbox, found: list[Json]) -> None:
    """Definitions, and all that is of them: one that still has an object with a finalizer would never go."""
    api = Api(box)
    for one in found:
        api.clear(f"/apis/{one['spec']['group']}/{_stored(one)}", plural_of(one))
    api.close()
    names = [one["metadata"]["name"] for one in found]
    box.kubectl("delete", "crd", *names, "--ignore-not-found", "--wait=true", "--timeout=240s")


class Api:
    """Reads and writes over one kept connection: a look costs a millisecond and not a kubectl."""

    def __init__(self, box: Sandbox) -> None:
        self.box = box
        self._connection: http.client.HTTPSConnection | None = None

    def _connect(self) -> http.client.HTTPSConnection:
        if self._connection is None:
            tls = sandbox_http.trust(self.box.layout, "admin")
            port = self.box.state.ports["kube-apiserver"]
            self._connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=90, context=tls)
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def call(self, method: str, path: str, body: object = None) -> tuple[int, Json]:
        content = "application/merge-patch+json" if method == "PATCH" else "application/json"
        for attempt in (1, 2):
            try:
                data = None if body is None else json.dumps(body)
                self._connect().request(method, path, data, {"Content-Type": content})
                answer = self._connect().getresponse()
                text = answer.read() or b"{}"  # plain words for a group that nobody serves
                return answer.status, json.loads(text) if text.startswith(b"{") else {"message": text.decode()}
            except (OSError, http.client.HTTPException):
                self.close()
                if attempt == 2:
                    raise
        raise AssertionError("unreachable")

    def changes(self, path: str, since: str) -> Iterator[Json]:
        """The events of a watch, for a minute at most; the connection is of no other use meanwhile."""
        self._connect().request("GET", f"{path}?watch=1&resourceVersion={since}&timeoutSeconds=60")
        answer = self._connect().getresponse()
        assert answer.status == 200, answer.read()
        while line := answer.readline():
            yield json.loads(line)

    def get(self, path: str) -> Json:
        code, body = self.call("GET", path)
        return body if code == 200 else {}

    def items(self, path: str) -> list[Json]:
        return list(self.get(path).get("items", []))

    def patch(self, path: str, body: Json) -> Json:
        code, answer = self.call("PATCH", path, body)
        assert code == 200, (code, answer.get("message"))
        return answer

    def delete(self, path: str) -> None:
        code, answer = self.call("DELETE", path)
        assert code in (200, 202, 404), (code, answer)

    def clear(self, group: str, plural: str, namespace: str = "") -> None:
        """Delete all of a kind (in one namespace), whatever holds them."""
        within = f"namespaces/{namespace}/" if namespace else ""
        for one in self.items(f"{group}/{within}{plural}"):
            home = one["metadata"].get("namespace")
            where = f"{group}/{f'namespaces/{home}/' if home else ''}{plural}/{one['metadata']['name']}"
            self.delete(where)
            self.call("PATCH", where, {"metadata": {"finalizers": None}})


class World:
    """One namespace with a cluster whose infrastructure is ready; `moved`: that cluster is there already."""

    def __init__(self, box: Sandbox, namespace: str, cluster: str = "c1", *, moved: bool = False) -> None:
        self.api, self.namespace, self.cluster, self.box = Api(box), namespace, cluster, box
        if moved:
            return
        infrastructure = {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "Metal3Cluster", "name": cluster}
        control_plane = {"apiGroup": "controlplane.cluster.x-k8s.io", "kind": "KubeadmControlPlane", "name": "kcp"}
        create(box, [self._object(CAPI, "Cluster", cluster, {
            "infrastructureRef": infrastructure, "controlPlaneRef": control_plane,
        })])  # fmt: skip
        uid = self.api.get(self.capi("clusters", cluster))["metadata"]["uid"]
        owner = {"apiVersion": CAPI, "kind": "Cluster", "name": cluster, "uid": uid}
        create(box, [self._object(INFRA, "Metal3Cluster", cluster, {
            "controlPlaneEndpoint": {"host": "10.0.0.1"},
        }, owner=owner)])  # fmt: skip
        status = {"status": {"initialization": {"infrastructureProvisioned": True}}}
        self.api.patch(f"{self.capi('clusters', cluster)}/status", status)

    # -- paths

    def hosts_path(self, name: str = "") -> str:
        return f"{HOSTS}/namespaces/{self.namespace}/baremetalhosts{f'/{name}' if name else ''}"

    def metal(self, plural: str, name: str = "") -> str:
        return f"{METAL}/namespaces/{self.namespace}/{plural}{f'/{name}' if name else ''}"

    def capi(self, plural: str, name: str = "") -> str:
        return f"/apis/{CAPI}/namespaces/{self.namespace}/{plural}{f'/{name}' if name else ''}"

    def core(self, plural: str, name: str = "") -> str:
        return f"/api/v1/namespaces/{self.namespace}/{plural}{f'/{name}' if name else ''}"

    # -- making

    def _object(self, version: str, kind: str, name: str, spec: Json, owner: Json | None = None, **meta: Any) -> Json:
        metadata = {"name": name, "namespace": self.namespace, **meta}
        if owner:
            metadata["ownerReferences"] = [owner]
        return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}

    def make(self, version: str, kind: str, name: str, spec: Json, **meta: Any) -> None:
        create(self.box, [self._object(version, kind, name, spec, **meta)])

    def make_hosts(self, *names: str, ready: bool = False, **meta: Any) -> None:
        """Hosts with their BMC secrets; `ready` without a driver: as available ones that nobody drives."""
        labels = {"environment.metal3.io": "baremetal"}
        secrets = [
            self._secret(f"{name}-bmc", {"username": "u", "password": "p"}, labels) for name in names
        ]  # fmt: skip
        create(self.box, secrets)
        hosts = [
            self._object("metal3.io/v1alpha1", "BareMetalHost", name, {
                "online": False, "bootMACAddress": mac(number),
                "bmc": {"address": f"redfish://10.1.0.1/{name}", "credentialsName": f"{name}-bmc"},
            }, **meta)
            for number, name in enumerate(names)
        ]  # fmt: skip
        create(self.box, hosts)
        if ready:
            for name in names:
                status = {**READY_STATUS, "hardware": {**READY_STATUS["hardware"], "hostname": name}}  # type: ignore[dict-item]
                self.api.patch(f"{self.hosts_path(name)}/status", {"status": status})

    def make_machines(self, *names: str, spec: Json | None = None, labels: Json | None = None, bootstrap: bool = True,
                      annotations: Json | None = None) -> None:  # fmt: skip
        """Machines of Cluster API with their Metal3Machines."""
        every = {"cluster.x-k8s.io/cluster-name": self.cluster, **(labels or {})}
        if bootstrap:
            create(self.box, [self._secret(f"{name}-bootstrap", {"value": "#cloud-config"}) for name in names])
        reference = {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "Metal3Machine"}
        create(self.box, [
            self._object(CAPI, "Machine", name, {
                "clusterName": self.cluster, "infrastructureRef": {**reference, "name": name},
                "bootstrap": {"dataSecretName": f"{name}-bootstrap"} if bootstrap else {
                    "configRef": {"apiGroup": "bootstrap.cluster.x-k8s.io", "kind": "KubeadmConfig", "name": name}},
            }, labels=every)
            for name in names
        ])  # fmt: skip
        uids = {one["metadata"]["name"]: one["metadata"]["uid"] for one in self.api.items(self.capi("machines"))}
        create(self.box, [
            self._object(INFRA, "Metal3Machine", name, {"image": IMAGE, **(spec or {})},
                         owner={"apiVersion": CAPI, "kind": "Machine", "name": name, "uid": uids[name]},
                         labels=every, annotations=annotations or {})
            for name in names
        ])  # fmt: skip

    def _secret(self, name: str, data: dict[str, str], labels: Json | None = None) -> Json:
        meta = {"name": name, "namespace": self.namespace, "labels": labels or {}}
        return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": data}

    def make_kubeconfig(self) -> None:
        """The workload cluster is the sandbox itself, seen by somebody with the rights of docs/metal.md only."""
        read = yaml.safe_load(self.box.kubeconfig.read_text())
        for one in read["users"]:
            one["user"]["as"] = THERE
        create(self.box, [self._secret(f"{self.cluster}-kubeconfig", {"value": yaml.safe_dump(read)})])

    def make_template(self, name: str, spec: Json | None = None, *, reuse: bool = False) -> None:
        whole = {"nodeReuse": reuse, "template": {"spec": {"image": IMAGE, **(spec or {})}}}
        create(self.box, [self._object(INFRA, "Metal3MachineTemplate", name, whole)])

    def make_data_template(self, name: str, spec: Json) -> None:
        create(self.box, [self._object(INFRA, "Metal3DataTemplate", name, {"clusterName": self.cluster, **spec})])

    def make_pool(self, name: str, spec: Json) -> None:
        create(self.box, [self._object("ipam.metal3.io/v1alpha1", "IPPool", name, {"namePrefix": name, **spec})])

    def make_remediation(self, machine: str, strategy: Json | None = None) -> None:
        """As Cluster API's health check does it: from a template, with the name and as a thing of the Machine."""
        usual = {"type": "Reboot", "retryLimit": 1, "timeoutSeconds": 600}
        template = {"template": {"spec": {"strategy": usual if strategy is None else strategy}}}
        if not self.api.get(self.metal("metal3remediationtemplates", "reboot")):
            create(self.box, [self._object(INFRA, "Metal3RemediationTemplate", "reboot", template)])
        spec = self.api.get(self.metal("metal3remediationtemplates", "reboot"))["spec"]["template"]["spec"]
        uid = self.api.get(self.capi("machines", machine))["metadata"]["uid"]
        owner = {"apiVersion": CAPI, "kind": "Machine", "name": machine, "uid": uid}
        create(self.box, [self._object(INFRA, "Metal3Remediation", machine, spec, owner=owner)])

    def is_node(self, machine: str, node: str) -> None:
        """What Cluster API writes once it has found the node."""
        self.api.patch(f"{self.capi('machines', machine)}/status", {"status": {"nodeRef": {"name": node}}})

    def make_deployment(self, name: str) -> None:
        reference = {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "Metal3MachineTemplate", "name": name}
        template = {
            "spec": {"clusterName": self.cluster, "bootstrap": {"dataSecretName": "x"}, "infrastructureRef": reference}
        }
        spec = {
            "clusterName": self.cluster,
            "replicas": 0,
            "template": template,
            "selector": {"matchLabels": {"a": name}},
        }
        create(self.box, [self._object(CAPI, "MachineDeployment", name, spec)])

    def make_machine_set(self, name: str, *, deployment: str, template: str) -> None:
        """A MachineSet without replicas, as Cluster API makes one for each template of a MachineDeployment."""
        reference = {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "Metal3MachineTemplate", "name": template}
        inner = {"clusterName": self.cluster, "bootstrap": {"dataSecretName": "x"}, "infrastructureRef": reference}
        spec = {
            "clusterName": self.cluster, "replicas": 0, "selector": {"matchLabels": {"a": name}},
            "template": {"metadata": {"labels": {"a": name}}, "spec": inner},
        }  # fmt: skip
        owner = self.owner("MachineDeployment", deployment)
        create(self.box, [self._object(CAPI, "MachineSet", name, spec, owner=owner)])

    def owner(self, kind: str, name: str) -> Json:
        """An owner reference to an object of Cluster API."""
        uid = self.api.get(self.capi(f"{kind.lower()}s", name))["metadata"]["uid"]
        return {"apiVersion": CAPI, "kind": kind, "name": name, "uid": uid, "controller": True}

    def secret_text(self, name: str, field: str) -> str:
        data = self.api.get(self.core("secrets", name)).get("data", {}).get(field, "")
        return base64.b64decode(data).decode()

    # -- looking

    def remediation(self, name: str) -> Json:
        return self.api.get(self.metal("metal3remediations", name))

    def phase(self, name: str) -> str:
        return str(self.remediation(name).get("status", {}).get("phase", ""))

    def events(self, kind: str, name: str) -> set[str]:
        """The reasons of the Events about one object."""
        found = self.api.items(f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events")
        about = [one for one in found if (one["regarding"]["kind"], one["regarding"]["name"]) == (kind, name)]
        return {one["reason"] for one in about}

    def host(self, name: str) -> Json:
        return self.api.get(self.hosts_path(name))

    def hosts(self) -> list[Json]:
        return self.api.items(self.hosts_path())

    def set_state(self, name: str, state: str) -> None:
        """For a host that nobody drives."""
        self.api.patch(f"{self.hosts_path(name)}/status", {"status": {"provisioning": {"state": state}}})

    def state(self, name: str) -> str:
        return str(self.host(name).get("status", {}).get("provisioning", {}).get("state", ""))

    def machine(self, name: str) -> Json:
        return self.api.get(self.metal("metal3machines", name))

    def condition(self, name: str, type: str = "AssociateBareMetalHost") -> Json:
        found = self.machine(name).get("status", {}).get("conditions", [])
        return next((dict(one) for one in found if one["type"] == type), {})

    def host_of(self, machine: str) -> str:
        """The host whose consumer this machine is, and which it names."""
        named = self.machine(machine).get("metadata", {}).get("annotations", {}).get("metal3.io/BareMetalHost", "")
        own = [one["metadata"]["name"] for one in self.hosts() if consumer(one) == machine]
        return own[0] if own and named == f"{self.namespace}/{own[0]}" else ""

    def scrub(self) -> None:
        """Nothing of this namespace stays behind, whoever still runs."""
        ours = ("remediations", "remediationtemplates", "machines", "clusters", "dataclaims", "datas", "datatemplates")
        kinds = [
            *((METAL, f"metal3{plural}") for plural in ours),
            *((HOSTS, "baremetalhosts"), (IPAM, "ipclaims"), (IPAM, "ippools"), (CAPI_IPAM, "ipaddressclaims")),
            *((f"/apis/{CAPI}", plural) for plural in ("machines", "clusters", "machinedeployments")),
        ]
        for group, plural in kinds:
            self.api.clear(group, plural, self.namespace)
        self.api.close()


def owned_by(world: World, machine: str) -> tuple[Json, str]:
    """An owner reference to this machine, and the path of something that has it: it goes when Kubernetes cleans up."""
    uid = world.machine(machine)["metadata"]["uid"]
    owner = {"apiVersion": INFRA, "kind": "Metal3Machine", "name": machine, "uid": uid, "controller": True}
    path = world.core("configmaps")
    code, answer = world.api.call("POST", path, {"metadata": {"name": "likewise", "ownerReferences": [owner]}})
    assert code == 201, answer
    return owner, f"{path}/likewise"


def mac(number: int) -> str:
    return f"02:00:00:00:{number // 256:02x}:{number % 256:02x}"


def consumer(host: Json) -> str:
    return str((host["spec"].get("consumerRef") or {}).get("name", ""))


@contextmanager
def metal_operator(box: Sandbox, folder: Path, user: str, *flags: str) -> Iterator[Running]:
    """One host driver and one operator that leads, as this service account and in its namespace."""
    words = ("--only", "metal", *flags)
    with driver(box, folder), operator(box, folder, home(user), *words, user=user) as started:
        started.said("leading")
        yield started
        assert refused(started) == []


def home(user: str) -> str:
    """The namespace of a service account."""
    return user.split(":")[2]


def available(world: World, eventually: Eventually, *names: str) -> None:
    eventually(lambda: all(world.state(name) == "available" for name in names), 60, "the hosts are available")


@contextmanager
def driver(box: Sandbox, folder: Path, **flags: float) -> Iterator[None]:
    """The sandbox's host driver as a process."""
    ready, log = folder / READY, folder / "driver.log"
    ready.unlink(missing_ok=True)
    words = [word for name, value in flags.items() for word in (f"--{name}", str(value))]
    with log.open("wb") as out:
        command = [sys.executable, "-m", DRIVER, "--dir", str(box.layout.root), "--ready", str(ready), *words]
        process = subprocess.Popen(command, stdout=out, stderr=out, env=dict(os.environ))
    try:
        end = time.monotonic() + 30
        while not ready.exists():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait(timeout=20)
        assert "Traceback" not in log.read_text(), log.read_text()


@contextmanager
def hosts_stand_still(running: Running) -> Iterator[None]:
    """Nobody drives the hosts meanwhile: each stays in its state, however long it takes to look at that."""
    pid = int((running.log.parent / READY).read_text())
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def one_to_one(world: World, machines: Callable[[], list[Json]] | None = None) -> dict[str, str]:
    """The pairs of machine and host; fails if a host has two machines or a machine two hosts."""
    found: dict[str, str] = {}
    for host in world.hosts():
        name = consumer(host)
        if not name:
            continue
        assert name not in found, f"machine {name} has both {found[name]} and {host['metadata']['name']}"
        found[name] = host["metadata"]["name"]
    return found


def history(api: Api, path: str, since: str) -> list[Json]:
    """Every change of these objects from then until now, in order, as the API server kept it."""
    listed = [one["metadata"] for one in api.items(path)]
    left = {one["uid"]: one["resourceVersion"] for one in listed if int(one["resourceVersion"]) > int(since)}
    found: list[Json] = []
    end = time.monotonic() + 90
    while left:  # the API server may end a watch at any time, and does so with one that reads too slowly for it
        assert time.monotonic() < end, f"not all that is there was told: {left}"
        with closing(Api(api.box)) as stream:
            for event in stream.changes(path, since):
                assert event["type"] != "ERROR", f"the API server no longer knows what was after {since}: {event}"
                found.append(event["object"])
                meta = event["object"]["metadata"]
                since = meta["resourceVersion"]
                if left.get(meta["uid"]) == since:
                    del left[meta["uid"]]
                if not left:
                    break
    return found
