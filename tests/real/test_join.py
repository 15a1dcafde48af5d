"""New nodes on the real API server: real keys, real users, the real signer. Who is let in, and why anybody is not."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from hostler.apis.metal3 import METAL3_MACHINE, Metal3Machine
from hostler.instant import iso
from hostler.join.invitations import OLDER
from hostler.join.model import CLIENT
from hostler.kube.client import Client
from hostler.kube.config import load
from hostler.kube.errors import ApiError
from hostler.kube.kinds import Kind
from hostler.kube.metrics import Metrics
from hostler.kube.watch import Watch
from hostler.sandbox import Sandbox
from hostler.sandbox.build import Silent
from hostler.sandbox.crds import install_crds
from tests.real.arriving import (
    allow_bootstrappers,
    approved,
    ask,
    ask_client,
    ask_serving,
    body,
    bootstrapper,
    forget,
    kubelet,
    request,
    signed,
    with_token,
)
from tests.real.conftest import Eventually
from tests.real.operating import (
    Running,
    hostler,
    kubeconfig_as,
    operator,
    refused,
)
from tests.real.runtime.test_watch import following
from tests.real.tls_port import tls_port
from tests.unit.joining import WRONG_CLIENTS, WRONG_SERVING, client, key, pem, serving

MakeNode = Callable[..., str]
SLACK = 40
CLUSTER = "c"  # the Cluster and ClusterDeployment in the namespace default that stand for this cluster
CLUSTERS = (
    "--join-clusters", f"default/{CLUSTER}", "--join-inventories", "machines.machine.openshift.io=default",
)  # fmt: skip


@pytest.fixture(scope="module")
def space(sandbox: Sandbox) -> Iterator[str]:
    name = f"join-{os.urandom(4).hex()}"
    sandbox.kubectl("create", "namespace", name)
    yield name
    sandbox.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture(scope="module")
def running(sandbox: Sandbox, space: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One operator for the whole file."""
    assert hostler(sandbox.kubeconfig, "crds", "--apply").returncode == 0
    install_crds(sandbox, ("agents", "capi", "metal3", "openshift"), Silent())
    allow_bootstrappers(sandbox)
    sandbox.kubectl("delete", "fleets,pauses", "--all")
    forget(sandbox)
    folder = tmp_path_factory.mktemp("join")
    flags = ("--only", "join", "--join-pending-slack", str(SLACK), *CLUSTERS)
    with operator(sandbox, folder, space, *flags) as started:
        started.said("leading")
        yield started
        assert refused(started) == []
    sandbox.kubectl("delete", "fleets,pauses", "--all")
    sandbox.kubectl("delete", "clusterrolebinding", "test-node-bootstrapper", "--ignore-not-found")


@pytest.fixture(autouse=True)
def tidy(sandbox: Sandbox, running: Running) -> Iterator[None]:
    yield
    forget(sandbox)


@pytest.fixture
def boot(sandbox: Sandbox, tmp_path: Path) -> Path:
    """The OpenShift bootstrapper, with exactly its three groups."""
    return bootstrapper(sandbox, tmp_path)


@pytest.fixture
def name() -> str:
    return f"w-{os.urandom(4).hex()}"


def expect(box: Sandbox, host: str, *flags: str) -> None:
    done = hostler(box.kubeconfig, "join", "expect", host, *flags)
    assert done.returncode == 0, done.stderr


def expect_only(box: Sandbox, windows: Mapping[str, tuple[float, float]]) -> None:
    """Exactly these hosts are expected, each from when until when."""
    hosts = [{"name": host, "since": iso(since), "until": iso(until)} for host, (since, until) in windows.items()]
    spec = {"spec": {"join": {"expected": hosts}}}
    if not box.kubectl("patch", "fleet", "cluster", "--type=merge", "-p", json.dumps(spec), check=False):
        box.apply({"apiVersion": "hostler.dev/v1alpha1", "kind": "Fleet", "metadata": {"name": "cluster"}, **spec})


def why(running: Running, csr: str) -> str:
    """What the operator thinks of a request; nothing as long as it has not judged it."""
    try:
        with urllib.request.urlopen(f"{running.url}/v1/explain/csr/{csr}", timeout=30) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        error.close()
        return ""


def says(running: Running, csr: str, sentence: str, eventually: Eventually, seconds: float = 60.0) -> None:
    """It comes to say so: its first word may be about a cluster that is a moment old."""
    eventually(lambda: sentence in why(running, csr), seconds, f"of {csr}: {sentence} ({why(running, csr)})")


def test_a_host_comes_in_once(
    sandbox: Sandbox, running: Running, boot: Path, name: str, space: str, tmp_path: Path, make_node: MakeNode,
    eventually: Eventually,
) -> None:  # fmt: skip
    """Expected, let in, signed; its serving certificate; and nobody else under its name."""
    early = ask_client(boot, name)
    # A definition that is as new as the operator may be followed only after the first bookmark, a minute later.
    says(running, early, f"nobody expects a node named {name}", eventually, 150)
    assert not approved(sandbox, early)
    events = "/apis/events.k8s.io/v1/events?fieldSelector=reason%3DUnknownHost"
    eventually(lambda: early in {one["regarding"]["name"] for one in sandbox.read(events)["items"]}, 60, "an event")
    forget(sandbox, [early])
    expect(sandbox, name, "--address", "10.99.0.1")
    (mine,) = [one for one in json.loads(hostler(sandbox.kubeconfig, "join", "expect", "-o", "json").stdout)
               if one["name"] == name]  # fmt: skip
    assert (mine["addresses"], mine["until"] > mine["since"]) == (["10.99.0.1"], True)
    csr = ask_client(boot, name)
    certificate = x509.load_pem_x509_certificate(eventually(lambda: signed(sandbox, csr), 60, "the signer's word"))
    (common,) = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    assert common.value == f"system:node:{name}"
    (condition,) = request(sandbox, csr)["status"]["conditions"]
    assert condition["reason"] == "HostlerJoin"
    remembered = sandbox.get("configmap", "hostler-join", "-n", space)["data"]
    assert json.loads(remembered[name])["csr"] == csr

    replay = ask_client(boot, name, key=key(1))
    says(running, replay, "was let in by", eventually)
    make_node(name, internal_ip="10.99.0.1")
    own = kubelet(sandbox, tmp_path, name)
    serving = ask_serving(own, name, name, "10.99.0.1")
    eventually(lambda: signed(sandbox, serving), 60, "its serving certificate")
    stranger = ask_serving(own, name, name, "10.99.0.77")
    says(running, stranger, "10.99.0.77 is not among the addresses", eventually)
    another = ask_client(boot, name, key=key(2))
    says(running, another, f"there is a node {name} already", eventually)
    assert not any(approved(sandbox, one) for one in (replay, stranger, another))
    shown = hostler(sandbox.kubeconfig, "explain", f"csr/{stranger}", "--operator", running.url).stdout
    assert "its own names: does not hold" in shown
    with urllib.request.urlopen(f"{running.url}/metrics", timeout=30) as answer:
        measured = answer.read().decode()
    for line in (
        f'hostler_join_approved_total{{signer="{CLIENT}"}} ',
        "hostler_join_flood 0.0",
        "hostler_join_requests{",
    ):
        assert line in measured


# What the API server itself refuses to take: it reads the request, checks its signature, and of a node its name.
NOT_TAKEN = {
    "another's signature", "a key on an odd curve", "a weak hash", "nothing", "another label", "a certificate's label",
    "a usage twice", "no usages", "another node", "another common name", "a letter that only looks like one",
}  # fmt: skip


def test_every_other_shape_is_ignored_with_its_reason(
    sandbox: Sandbox, running: Running, boot: Path, tmp_path: Path, eventually: Eventually
) -> None:
    """Each wrong shape of the unit tests, made by who may make requests: not taken, or ignored for its own reason."""
    nobody = kubeconfig_as(sandbox, tmp_path, "mallory")
    own, another = (kubelet(sandbox, tmp_path, node) for node in ("worker-1", "worker-2"))
    given = [
        *((boot, label, client(**change), why) for label, (change, why) in WRONG_CLIENTS.items()),
        # Who asks is the API server's word here, and cannot be made up.
        *((own, label, serving(**change), why) for label, (change, why) in WRONG_SERVING.items()
          if "username" not in change and "groups" not in change),
        (another, "another node", serving(), "system:node:worker-2 asks for a serving certificate of"),
        (nobody, "somebody else", client(), "mallory is not one of HOSTLER_JOIN_BOOTSTRAPPERS"),
    ]  # fmt: skip
    taken, refused = {}, set()
    for who, label, wanted, why in given:
        spec = wanted.spec
        try:
            taken[ask(who, body(spec.request, spec.signer_name, spec.usages))[0]] = (label, why)
        except ApiError:
            refused.add(label)
    assert refused == NOT_TAKEN
    for csr, (label, why) in taken.items():
        says(running, csr, f"Ignored: {why}", eventually)
        assert not approved(sandbox, csr), label
    shown = json.loads(hostler(sandbox.kubeconfig, "join", "csrs", "-o", "json").stdout)
    assert {one["name"]: one["verdict"] for one in shown if one["name"] in taken} == dict.fromkeys(taken, "ignore")
    two = next(csr for csr, (label, _) in taken.items() if label == "two organisations")
    done = hostler(sandbox.kubeconfig, "join", "approve", two, "--yes")
    assert done.returncode == 5
    assert "is not approved" in done.stderr


def write_down(box: Sandbox, space: str, lines: Mapping[str, str]) -> None:
    """Into the operator's memory of whom it let in."""
    about = {"name": "hostler-join", "namespace": space}
    box.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": dict(lines)})


def test_windows_inventory_and_the_stop_button(
    sandbox: Sandbox, running: Running, boot: Path, name: str, space: str, eventually: Eventually
) -> None:
    now = time.time()
    # And the slack is ten seconds.
    expect_only(sandbox, {f"{name}-late": (now - 7200, now - 60), f"{name}-early": (now + 600, now + 7200)})
    host = {
        "apiVersion": "metal3.io/v1alpha1",
        "kind": "BareMetalHost",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"online": True},
    }
    sandbox.apply(host)
    late, early, idle = (ask_client(boot, f"{name}{word}") for word in ("-late", "-early", ""))
    says(running, late, "was expected until", eventually)
    says(running, early, f"s before expected host {name}-early was expected", eventually)
    says(running, idle, "is not being provisioned", eventually)
    assert hostler(sandbox.kubeconfig, "pause", "--why", "a look", "--wait", "0").returncode == 0
    begin_provisioning(sandbox, name)
    says(running, idle, "Every rule", eventually)
    says(running, idle, "heldBack", eventually)
    assert not approved(sandbox, idle), "nothing while paused"
    # As an operator leaves it that was killed between its two writes: written down, and not approved.
    line = json.dumps({"csr": idle, "uid": request(sandbox, idle)["metadata"]["uid"], "at": time.time()})
    write_down(sandbox, space, {name: line})
    assert hostler(sandbox.kubeconfig, "resume").returncode == 0
    eventually(lambda: signed(sandbox, idle), 60, "let in once it goes on")
    assert not approved(sandbox, late)
    assert not approved(sandbox, early)
    noted = hostler(sandbox.kubeconfig, "join", "expect", f"{name}-early")
    assert f"{early} asked for node {name}-early before, and stays pending" in noted.stderr
    assert hostler(sandbox.kubeconfig, "join", "expect", f"{name}-early", "--pending").returncode == 0
    eventually(lambda: signed(sandbox, early), 60, "a kubelet makes no second request")
    sandbox.kubectl("delete", "bmh", name, "-n", "default", "--wait=false")


def machine(group: str, name: str, spec: Mapping[str, object]) -> dict[str, object]:
    return {"apiVersion": group, "kind": "Machine", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


def test_hosts_of_every_inventory_are_let_in(
    sandbox: Sandbox, running: Running, boot: Path, name: str, eventually: Eventually
) -> None:
    """Machines of OpenShift and of Cluster API, a Metal3Machine, an approved Agent: each as its API has it."""
    place = {"namespace": "default"}
    reference = {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "Metal3Machine", "name": name}
    capi = {"clusterName": CLUSTER, "bootstrap": {"dataSecretName": "s"}, "infrastructureRef": reference}
    bound = {"agent": CLUSTER, "stranger": CLUSTER, "spoke": "another"}
    sandbox.apply(
        machine("machine.openshift.io/v1beta1", f"{name}-mapi", {}),
        machine("machine.openshift.io/v1beta1", f"{name}-taken", {}),
        machine("cluster.x-k8s.io/v1beta2", f"{name}-capi", capi),
        {"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "Metal3Machine",
         "metadata": {"name": f"{name}-metal", **place, "labels": {"cluster.x-k8s.io/cluster-name": CLUSTER}},
         "spec": {"image": {"url": "http://x/i", "checksum": "c"}}},
        *({"apiVersion": "agent-install.openshift.io/v1beta1", "kind": "Agent",
           "metadata": {"name": f"{name}-{word}", **place},
           "spec": {"clusterDeploymentName": {"name": cluster, **place}, "approved": word != "stranger",
                    "hostname": f"{name}-{word}", "role": "worker"}}
          for word, cluster in bound.items()),
    )  # fmt: skip
    began = {"progress": {"currentStage": "Rebooting", "stageStartTime": iso(time.time())},
             "debugInfo": {"state": "installing-in-progress"}}  # fmt: skip
    for word in bound:
        status(sandbox, "agents.agent-install.openshift.io", f"{name}-{word}", began)
    provision_host(sandbox, f"{name}-metal")
    # A cloud gives a machine another name than its object's; the node goes by that.
    addresses = [{"type": "InternalDNS", "address": f"{name}.internal"}, {"type": "InternalIP", "address": "10.99.3.1"}]
    status(sandbox, "machines.machine.openshift.io", f"{name}-mapi", {"addresses": addresses})
    there = {"nodeRef": {"kind": "Node", "name": "somebody"}}
    status(sandbox, "machines.machine.openshift.io", f"{name}-taken", there)
    good = [f"{name}.internal", f"{name}-capi", f"{name}-metal", f"{name}-agent"]
    asked = dict(zip(good, ask(boot, *(body(pem(one)) for one in good)), strict=True))
    taken, stranger, spoke = (ask_client(boot, f"{name}-{word}") for word in ("taken", "stranger", "spoke"))
    for host, csr in asked.items():
        eventually(lambda csr=csr: signed(sandbox, csr), 60, f"{host}: {why(running, csr)}")  # type: ignore[misc]
    twice = ask_client(boot, f"{name}-mapi")
    says(running, twice, f"{name}.internal was let in by {asked[f'{name}.internal']}", eventually)  # the same machine
    says(running, taken, "is node somebody already", eventually)
    says(running, stranger, "nobody expects", eventually)  # an Agent that nobody approved invites nobody
    says(running, spoke, "is for cluster default/another, and this one is default/c", eventually)
    assert not any(approved(sandbox, one) for one in (taken, stranger, spoke, twice))
    kinds = ("machines.machine.openshift.io", "machines.cluster.x-k8s.io", "metal3machines", "bmh", "agents")
    for kind in kinds:
        sandbox.kubectl("delete", kind, "--all", "-n", "default", "--wait=false")


@contextmanager
def only(box: Sandbox, kind: Kind, eventually: Eventually) -> Iterator[Callable[[str], None]]:
    """Gives what makes the API server serve one version of a kind and no other, as a release does; then all again."""
    definition = f"{kind.plural}.{kind.group}"
    before = box.read(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{definition}")["spec"]["versions"]

    def at(version: dict[str, Any]) -> str:
        return replace(kind, version=version["name"]).path()

    def answering() -> set[str]:
        return {at(one) for one in before if box.kubectl("get", "--raw", at(one), check=False)}

    def serve(versions: list[dict[str, Any]]) -> None:
        patch = json.dumps({"spec": {"versions": versions}})
        box.kubectl("patch", "crd", definition, "--type=merge", "-p", patch)
        eventually(
            lambda: {at(one) for one in versions if one["served"]} == answering(), 60, f"as asked: {patch[:200]}"
        )

    try:
        yield lambda version: serve([{**one, "served": one["name"] == version} for one in before])
    finally:
        serve(before)


async def followed(box: Sandbox, *watches: Callable[[Client], Watch[Metal3Machine]]) -> list[tuple[bool, set[str]]]:
    """Whether the kind is absent, and what there is of it."""
    async with Client(load(str(box.kubeconfig), None)) as client:
        made = [make(client) for make in watches]
        async with following(*made):
            for one in made:
                await asyncio.wait_for(one.synced.wait(), 60)
            return [(one.absent, set(one.store.keys())) for one in made]


def test_an_older_cluster_api_is_read_too(
    sandbox: Sandbox, running: Running, boot: Path, name: str, eventually: Eventually
) -> None:
    """Where v1beta2 is not served v1beta1 is, with the same fields: by the operator and by the CLI; and back again."""
    older = replace(METAL3_MACHINE, version="v1beta1")

    def ask_as(kind: Kind, name: str) -> str:
        """A machine of this version, and its request."""
        about = {"name": name, "namespace": "default", "labels": {"cluster.x-k8s.io/cluster-name": CLUSTER}}
        spec = {"image": {"url": "http://x/i", "checksum": "c"}}
        sandbox.apply({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": about, "spec": spec})
        provision_host(sandbox, name)
        return ask_client(boot, name)

    assert hostler(sandbox.kubeconfig, "pause", "--why", "a look at it pending", "--wait", "0").returncode == 0
    with only(sandbox, METAL3_MACHINE, eventually) as serve_only:
        serve_only(older.version)
        csr = ask_as(older, name)
        by_discovery, nowhere = asyncio.run(followed(
            sandbox,
            lambda client: Watch(
                client, METAL3_MACHINE, Metal3Machine, metrics=Metrics(), versions=OLDER[METAL3_MACHINE]),
            lambda client: Watch(
                client, replace(older, version="v7"), Metal3Machine, metrics=Metrics(), versions=("v8",)),
        ))  # fmt: skip
        assert by_discovery[0] is False
        assert f"default/{name}" in by_discovery[1]
        assert nowhere == (True, set()), "no version of it is served"
        shown = json.loads(hostler(sandbox.kubeconfig, "join", "csrs", *CLUSTERS, "-o", "json").stdout)
        (mine,) = [one for one in shown if one["name"] == csr]
        assert mine["verdict"] == "approve", mine
        assert hostler(sandbox.kubeconfig, "resume").returncode == 0
        eventually(lambda: signed(sandbox, csr), 60, f"the operator: {why(running, csr)}")
        serve_only(METAL3_MACHINE.version)  # Cluster API was upgraded while the operator ran
        again = ask_as(METAL3_MACHINE, f"{name}-new")
        eventually(lambda: signed(sandbox, again), 60, f"the operator follows: {why(running, again)}")
    for kind in ("metal3machines", "bmh"):
        sandbox.kubectl("delete", kind, "--all", "-n", "default", "--wait=false")


def provision_host(box: Sandbox, machine: str) -> None:
    """The BareMetalHost that a Metal3Machine consumes, which is being provisioned from now on."""
    consumer = {"apiVersion": METAL3_MACHINE.api_version, "kind": METAL3_MACHINE.kind, "name": machine}
    box.apply({
        "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
        "metadata": {"name": f"{machine}-host", "namespace": "default"},
        "spec": {"online": True, "consumerRef": {**consumer, "namespace": "default"}},
    })  # fmt: skip
    begin_provisioning(box, f"{machine}-host")


def begin_provisioning(box: Sandbox, host: str) -> None:
    """What Baremetal Operator writes then, with every field that its CRD requires."""
    status(box, "bmh", host, {
        "provisioning": {"ID": "", "state": "provisioning"},
        "operationHistory": {"provision": {"start": iso(time.time())}},
        "errorMessage": "", "operationalStatus": "OK", "poweredOn": True,
    })  # fmt: skip


def status(box: Sandbox, kind: str, name: str, body: Mapping[str, object]) -> None:
    words = ("patch", kind, name, "-n", "default", "--subresource=status", "--type=merge")
    box.kubectl(*words, "-p", json.dumps({"status": body}))


def test_a_bootstrap_token_of_cloud_init(
    sandbox: Sandbox, running: Running, name: str, tmp_path: Path, eventually: Eventually
) -> None:
    """The token in the file is real, is enough to ask, and ends."""
    out = tmp_path / "user-data"
    words = ("join", "cloud-init", name, "--for", "30m", "--label", "rack=a1", "--server", "api.example.org:6443")
    done = hostler(sandbox.kubeconfig, *words, "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert out.stat().st_mode & 0o77 == 0
    read = yaml.safe_load(out.read_text())
    assert out.read_text().startswith("#cloud-config\n")
    (file,) = read["write_files"]
    config = yaml.safe_load(base64.b64decode(file["content"]))
    discovery = config["discovery"]["bootstrapToken"]
    token = discovery["token"]
    secret = sandbox.get("secret", f"bootstrap-token-{token[:6]}", "-n", "kube-system")
    assert base64.b64decode(secret["data"]["expiration"]).decode() > iso(time.time() + 1700)
    assert config["nodeRegistration"]["kubeletExtraArgs"] == [{"name": "node-labels", "value": "rack=a1"}]
    csr = ask_client(with_token(sandbox, tmp_path, token), name)
    eventually(lambda: signed(sandbox, csr), 60, "approved by its token")
    assert request(sandbox, csr)["spec"]["username"] == f"system:bootstrap:{token[:6]}"
    sandbox.kubectl("delete", "secret", f"bootstrap-token-{token[:6]}", "-n", "kube-system")


def test_rivals_for_one_name_are_left_to_a_person(
    sandbox: Sandbox, running: Running, boot: Path, name: str, space: str, eventually: Eventually
) -> None:
    """Once one of them is approved, with our command or with kubectl, the other does not follow by itself."""
    began, two = time.time(), (name, f"{name}-2")
    one, other, third, fourth = asked = ask(boot, *(body(pem(at, key=key(one))) for at in two for one in (0, 1)))
    for csr in asked:
        says(running, csr, "nobody expects", eventually)  # all are there before their names are expected
    expect_only(sandbox, dict.fromkeys(two, (began - 60, began + 3600)))
    for csr in asked:
        says(running, csr, "only one can be that host", eventually)
    assert not any(approved(sandbox, csr) for csr in asked)
    done = hostler(sandbox.kubeconfig, "join", "approve", one, "--yes", "--operator-namespace", space)
    assert done.returncode == 0, done.stderr
    assert "contested" in done.stderr
    sandbox.kubectl("certificate", "approve", third)
    for csr in (one, third):
        eventually(lambda csr=csr: signed(sandbox, csr), 60, "by hand")  # type: ignore[misc]
    says(running, other, f"{name} was let in by {one}", eventually)
    says(running, fourth, f"{name}-2 was let in by {third}", eventually)
    assert not any(approved(sandbox, csr) for csr in (other, fourth))


@pytest.mark.parametrize("more", [5, pytest.param(5000, marks=pytest.mark.full)])
def test_a_flood_stops_everything_and_is_said(
    sandbox: Sandbox, running: Running, boot: Path, name: str, more: int, eventually: Eventually
) -> None:
    began = time.monotonic()

    def took(what: str) -> None:
        print(f"{what}: after {time.monotonic() - began:.1f} s")

    expect_only(sandbox, {})  # a Fleet for the alarm, also where this test is the first of the file
    nodes, made = len(sandbox.read("/api/v1/nodes")["items"]), time.time()
    good, *_ = ask(boot, body(pem(name)), *(body(pem(f"{name}-{one}")) for one in range(nodes + SLACK + more)))
    took(f"{nodes + SLACK + more} requests made")

    def flood() -> str:
        listed = sandbox.get("fleet", "cluster").get("status", {}).get("conditions", [])
        return next((one["status"] for one in listed if one["type"] == "JoinFlood"), "")

    eventually(lambda: flood() == "True", 60, "the alarm")
    took("the alarm")
    expect_only(sandbox, {name: (made - 60, made + 3600)})
    says(running, good, "a flood", eventually)
    assert not approved(sandbox, good)
    forget(sandbox, but=good)
    took("forgotten")
    eventually(lambda: approved(sandbox, good), 90, "then it goes on")
    took("the one that may come is let in")
    eventually(lambda: flood() == "False", 60, "the alarm ends")


def serving_kubelet(certificate: bytes, folder: Path) -> AbstractContextManager[int]:
    """A kubelet's TLS port with this certificate."""
    return tls_port(certificate, key().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), folder)


def test_a_renewal_is_known_by_the_live_certificate(
    sandbox: Sandbox, running: Running, name: str, tmp_path: Path, make_node: MakeNode, eventually: Eventually
) -> None:
    """Names the node does not list: by hand the first time; renewed while its kubelet serves the very same names."""
    node = make_node(name, internal_ip="127.0.0.1")
    own, alias = kubelet(sandbox, tmp_path, node), f"{name}.example.org"
    first = ask_serving(own, node, alias)
    says(running, first, "does not answer", eventually)
    assert not approved(sandbox, first)
    refused = hostler(sandbox.kubeconfig, "join", "approve", first)
    assert refused.returncode != 0, "nobody said yes"
    assert hostler(sandbox.kubeconfig, "join", "approve", first, "--yes").returncode == 0
    certificate = eventually(lambda: signed(sandbox, first), 60, "signed")
    with serving_kubelet(certificate, tmp_path) as port:
        endpoint = {"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}}
        sandbox.kubectl("patch", "node", node, "--subresource=status", "--type=merge", "-p", json.dumps(endpoint))
        renewed = ask_serving(own, node, alias)
        eventually(lambda: signed(sandbox, renewed), 150, f"the renewal: {why(running, renewed)}")
        more = ask_serving(own, node, alias, f"more.{name}.example.org")
        # A handshake on a busy machine may take longer than is waited for; then the kubelet is asked a minute later.
        says(running, more, "has other names", eventually, 150)
        assert not approved(sandbox, more)
