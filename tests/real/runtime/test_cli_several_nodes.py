"""`hostler hold`, `release` and `drain` of several nodes at once, on the real control plane."""

from __future__ import annotations

import base64
import json
import os
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from subprocess import CompletedProcess
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from hostler.errors import Exit
from hostler.sandbox import Sandbox
from tests.real.conftest import Eventually
from tests.real.draining import bare, budget, pods_on
from tests.real.operating import Running, hostler, operator

MakeNode = Callable[..., str]


def held_by_us(sandbox: Sandbox, *chosen: str) -> list[str]:
    """What the API server has: cordoned, with a hold."""
    return sorted(
        one["metadata"]["name"]
        for one in sandbox.get("nodes", *chosen)["items"]
        if one["spec"].get("unschedulable") and "hostler.dev/holds" in one["metadata"]["annotations"]
    )


def results(stdout: str) -> dict[str, tuple[str, int]]:
    return {one["node"]: (one["result"], one["code"]) for one in json.loads(stdout)["nodes"]}


def test_one_unknown_name_leaves_every_node_alone(sandbox: Sandbox, make_node: MakeNode) -> None:
    first, second = make_node(), make_node()
    for words in (("hold", "--why", "x"), ("drain",), ("release",)):
        done = hostler(sandbox.kubeconfig, words[0], first, "nope", second, "neither", *words[1:])
        assert done.returncode == Exit.REFUSED, done.stderr
        assert "There are no nodes neither and nope in this cluster. Nothing was changed." in done.stderr
    assert not set(held_by_us(sandbox)) & {first, second}


def test_a_selector_holds_what_kubectl_would_list(sandbox: Sandbox, make_node: MakeNode) -> None:
    pool, rack = f"p-{os.urandom(3).hex()}", f"r-{os.urandom(3).hex()}"
    at = {"topology.kubernetes.io/rack": rack}
    nodes = [make_node(labels={"pool": pool, "size": size, **more}) for size, more in (("l", at), ("l", {}), ("s", at))]
    selector = f"pool={pool},size in (l)"
    dry = hostler(sandbox.kubeconfig, "hold", "-l", selector, "--why", "x", "--beyond-ceiling", "--dry-run")
    assert dry.returncode == 0, dry.stderr
    assert "Would be: 2 nodes: 2 held." in dry.stderr
    assert held_by_us(sandbox, "-l", f"pool={pool}") == []
    done = hostler(sandbox.kubeconfig, "hold", "-l", selector, "--why", "x", "--beyond-ceiling")
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == "2 nodes: 2 held."
    listed = sandbox.get("nodes", "-l", selector)["items"]
    assert held_by_us(sandbox, "-l", f"pool={pool}") == sorted(one["metadata"]["name"] for one in listed)
    done = hostler(sandbox.kubeconfig, "release", "--rack", rack, "-o", "json")
    assert results(done.stdout) == {nodes[0]: ("released", 0), nodes[2]: ("not held", 0)}
    assert held_by_us(sandbox, "-l", f"pool={pool}") == [nodes[1]]
    both = hostler(sandbox.kubeconfig, "release", "-l", f"pool={pool},size=l", "--rack", rack, "-o", "json")
    assert list(results(both.stdout)) == [nodes[0]], "a node must fit all that is given"


def test_what_no_node_fits_is_named(sandbox: Sandbox) -> None:
    done = hostler(sandbox.kubeconfig, "drain", "-l", "pool=none of these", "--rack", "r7")
    assert done.returncode == Exit.USAGE
    done = hostler(sandbox.kubeconfig, "drain", "-l", "pool=nowhere", "--rack", "r7")
    assert done.returncode == Exit.REFUSED
    assert "No node matches -l pool=nowhere --rack r7." in done.stderr


def test_more_nodes_than_the_ceiling_allows_hold_none(sandbox: Sandbox, make_node: MakeNode) -> None:
    nodes = sorted((make_node(), make_node(), make_node()))
    out = len(held_by_us(sandbox))
    words = ("hold", *nodes, "--why", "x", "--max-unavailable", str(out + 2))
    done = hostler(sandbox.kubeconfig, *words)
    assert done.returncode == Exit.REFUSED
    assert f"3 nodes are too many: MAX_UNAVAILABLE ({out + 2}) allows {out + 2} of" in done.stderr
    assert not set(held_by_us(sandbox)) & set(nodes)
    assert hostler(sandbox.kubeconfig, *words, "--beyond-ceiling").returncode == 0
    assert set(nodes) <= set(held_by_us(sandbox))


def test_the_worst_of_several_drains_is_the_exit_code(
    sandbox: Sandbox, make_node: MakeNode, namespace: str, eventually: Eventually
) -> None:
    free, blocked = make_node("a-" + os.urandom(3).hex()), make_node("b-" + os.urandom(3).hex())
    for name, at in (("goes", free), ("stays", blocked)):
        sandbox.apply(bare(namespace, name, at, nodeSelector={}))
        eventually(partial(pods_on, sandbox, at, namespace), 60, "the pod is there")
    sandbox.apply(budget(namespace, "keep", "stays", minAvailable=1))
    seen = "/apis/policy/v1/namespaces/{}/poddisruptionbudgets/keep"
    eventually(lambda: sandbox.read(seen.format(namespace)).get("status", {}).get("expectedPods"), 60, "the budget")
    done = hostler(
        sandbox.kubeconfig, "drain", blocked, free, "--timeout", "8s", "--beyond-ceiling", "-o", "json"
    )  # fmt: skip
    assert done.returncode == Exit.FAILED, done.stderr
    assert results(done.stdout) == {blocked: ("not drained", Exit.FAILED), free: ("drained", Exit.OK)}
    assert done.stderr.splitlines()[-1] == f"2 nodes: 1 not drained ({blocked}), 1 drained."
    assert {free, blocked} <= set(held_by_us(sandbox)), "both stay held"
    assert not pods_on(sandbox, free, namespace)
    assert pods_on(sandbox, blocked, namespace)


@pytest.fixture(scope="module")
def looking(
    sandbox: Sandbox, vcenter: dict[str, Any], home: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """An operator in a dry run that sees the vCenter; of the capabilities only maintenance is on."""
    assert hostler(sandbox.kubeconfig, "crds", "--apply").returncode == 0
    folder = tmp_path_factory.mktemp("looking")
    password = folder / "password"
    password.write_text(vcenter["password"])
    flags = (
        "--vcenter-host", f"{vcenter['host']}:{vcenter['port']}", "--vcenter-user", vcenter["user"],
        "--vcenter-password-file", str(password), "--vcenter-ca-bundle", vcenter["ca_bundle"], "--dry-run",
    )  # fmt: skip
    with operator(sandbox, folder, home, *flags) as running:
        running.ready()
        yield running


def test_the_nodes_of_an_esxi_host_are_held_and_no_other(
    sandbox: Sandbox, vcenter: dict[str, Any], looking: Running, eventually: Eventually
) -> None:
    with urllib.request.urlopen(f"{vcenter['control']}/state", timeout=30) as answer:
        there = {one["name"] for one in json.load(answer)["vms"] if one["host"] == "esx1"}
    before = set(held_by_us(sandbox))
    wanted = there & {one["metadata"]["name"] for one in sandbox.get("nodes")["items"]} - before
    assert wanted
    asked = ("--esxi", "esx1", "--operator", looking.url)

    def known() -> bool:
        dry = hostler(sandbox.kubeconfig, "hold", *asked, "--why", "x", "--beyond-ceiling", "--dry-run", "-o", "json")
        return dry.returncode == 0 and set(results(dry.stdout)) == wanted

    eventually(known, 90, "the operator knows who runs there")
    try:
        done = hostler(sandbox.kubeconfig, "hold", *asked, "--why", "new disks", "--beyond-ceiling")
        assert done.returncode == 0, done.stderr
        assert set(held_by_us(sandbox)) - before == wanted
    finally:
        assert hostler(sandbox.kubeconfig, "release", *asked).returncode == 0
    assert set(held_by_us(sandbox)) == before
    unknown = hostler(sandbox.kubeconfig, "hold", "--esxi", "esx99", "--why", "x", "--operator", looking.url)
    assert unknown.returncode == Exit.REFUSED
    assert "No ESXi host esx99 is known to the operator. Nothing was changed." in unknown.stderr
    gone = hostler(sandbox.kubeconfig, "hold", "--esxi", "esx1", "--why", "x", "--operator", "http://127.0.0.1:9")
    assert gone.returncode == Exit.UNREACHABLE, "half an answer is none"


def test_short_names_are_explained_and_what_is_unmanaged_says_why(
    sandbox: Sandbox, looking: Running, eventually: Eventually
) -> None:
    def explain(what: str) -> CompletedProcess[str]:
        return hostler(sandbox.kubeconfig, "explain", what, "--operator", looking.url)

    eventually(lambda: "node/gpu-0" in explain("vm/gpu-0").stdout, 90, "the VM's node is proven")
    assert "node/gpu-0" in explain("no/gpu-0").stdout
    csr = f"t-{os.urandom(4).hex()}"
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "nobody")])
    key = ec.generate_private_key(ec.SECP256R1())
    asked = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    pem = asked.public_bytes(serialization.Encoding.PEM)
    spec = {
        "request": base64.b64encode(pem).decode(), "signerName": "example.org/none", "usages": ["client auth"]
    }  # fmt: skip
    request = {
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": csr}, "spec": spec,
    }  # fmt: skip
    sandbox.apply(request)
    try:
        said = explain(f"csr/{csr}")
        assert said.returncode == Exit.REFUSED
        assert (
            f"certificatesigningrequest {csr} exists, but is not managed by Hostler, because join is off."
            in said.stderr
        )
    finally:
        sandbox.kubectl("delete", "csr", csr)
    assert "exists" not in explain(f"csr/{csr}").stderr


def test_without_an_operator_the_objects_are_read(sandbox: Sandbox, make_node: MakeNode) -> None:
    name, nowhere = make_node(), f"nowhere-{os.urandom(3).hex()}"
    assert hostler(sandbox.kubeconfig, "crds", "--apply").returncode == 0
    hostler(sandbox.kubeconfig, "hold", name, "--why", "a fan", "--holder", "ada", "--beyond-ceiling")
    written = {"state": "powered-off", "host": "esx1", "transition-time": "2026-01-01T00:00:00Z"}
    sandbox.kubectl(
        "annotate", "node", name, *(f"vsphere-maintenance.boeye.net/{key}={to}" for key, to in written.items())
    )
    for words, shown in (
        (("status",), "none answers"),
        (("explain", f"no/{name}"), "held by ada = a fan"),
        (("maintenance", "status"), name),
    ):
        done = hostler(sandbox.kubeconfig, *words, "--operator-namespace", nowhere)
        assert done.returncode == 0, done.stderr
        assert shown in done.stdout
        assert "all that is known" in done.stdout + done.stderr
