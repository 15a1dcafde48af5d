"""What a reclaim puts into the old cluster: on the right node only, written once, gone without a trace."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from hostler.apis.assisted import Proxy
from hostler.host.facts import Known
from hostler.kube.budget import WriteBudget
from hostler.kube.client import Client
from hostler.kube.config import load
from hostler.kube.writer import Writer
from hostler.reclaim.agent_manifests import HOST_LABEL, NAMESPACE_NAME, Order, name_for
from hostler.reclaim.artifacts import Artifacts
from hostler.reclaim.executor import NotYet, Occupied, SpokeExecutor
from hostler.reclaim.model import Leaving, SpokeNode, SpokeObject
from hostler.sandbox import Sandbox
from tests.real.conftest import Eventually

T = TypeVar("T")
MakeNode = Callable[..., str]
_META = {"name": "theirs", "namespace": NAMESPACE_NAME}
_CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
_POD = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "app:1"}]}
THEIRS: dict[str, dict[str, Any]] = {
    "secret": {"apiVersion": "v1", "kind": "Secret", "metadata": _META},
    "persistentvolumeclaim": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": _META, "spec": _CLAIM},
    "serviceaccount": {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _META},
    "job": {
        "apiVersion": "batch/v1", "kind": "Job", "metadata": _META,
        "spec": {"suspend": True, "template": {"spec": _POD}},
    },
}  # fmt: skip


def ask(box: Sandbox, work: Callable[[SpokeExecutor], Awaitable[T]]) -> T:
    """One call of our executor in that cluster."""

    async def run() -> T:
        async with Client(load(str(box.kubeconfig), None), user_agent="reclaim-executor") as client:
            writer = Writer(client, "reclaim", gate=lambda: None, budget=WriteBudget(50, 100))
            return await work(SpokeExecutor(client, writer))

    return asyncio.run(run())


def node_of(box: Sandbox, name: str) -> SpokeNode:
    match ask(box, lambda executor: executor.node(name)):
        case Known(SpokeNode() as node):
            return node
        case other:
            raise AssertionError(other)


def order_for(node: SpokeNode, host: str) -> Order:
    return Order(
        host=host, host_uid=f"uid-{host}", node=node, infra_env="ie", hub_url="https://hub", image="agent:1",
        artifacts=Artifacts("http://k", "http://i", "http://r"), token="secret", ca="a certificate",
        pull_secret=b'{"auths": {}}', proxy=Proxy(https_proxy="http://proxy:3128", no_proxy="localhost"),
    )  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_left(sandbox: Sandbox) -> Iterator[None]:
    yield
    sandbox.kubectl("delete", "namespace", NAMESPACE_NAME, "--ignore-not-found", "--timeout=120s")


def ours(box: Sandbox, *selector: str) -> list[dict[str, Any]]:
    found = box.get("daemonsets,secrets,configmaps,serviceaccounts,roles,rolebindings", "-n", NAMESPACE_NAME, *selector)
    items: list[dict[str, Any]] = found["items"]
    return [one for one in items if one["metadata"].get("labels", {}).get("app.kubernetes.io/managed-by") == "hostler"]


def pods(box: Sandbox) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = box.get("pods", "-n", NAMESPACE_NAME)["items"]
    return found


def test_the_agent_runs_on_its_node_only_and_leaves_no_trace(
    sandbox: Sandbox, make_node: MakeNode, eventually: Eventually
) -> None:
    # Tainted, cordoned, with dots in its name: the agent goes there all the same.
    name = make_node(f"worker.{os.urandom(3).hex()}.example")
    sandbox.kubectl("cordon", name)
    other = make_node()
    node = node_of(sandbox, name)
    order = order_for(node, "host-1")
    ask(sandbox, lambda executor: executor.deploy(order))

    def on_the_node() -> list[dict[str, Any]]:
        return [one for one in pods(sandbox) if one["spec"].get("nodeName") and one["status"].get("phase") == "Running"]

    (pod,) = eventually(on_the_node, 60, "the agent's pod")
    assert pod["spec"]["nodeName"] == name
    assert name_for(name) == f"{name.replace('.', '-')}-reclaim"
    spec = pod["spec"]
    assert (spec["hostPID"], spec["priorityClassName"]) == (True, "system-node-critical")
    (container,) = spec["containers"]
    assert container["securityContext"]["privileged"] is True
    told = {one["name"]: one.get("value", "") for one in container["env"]}
    assert told["EXPECTED_BOOT_ID"] == node.boot_id
    assert (told["SILENCE_SECONDS"], told["RESTART_SECONDS"], told["STAY"]) == ("1800", "900", "true")
    assert (told["KERNEL_URL"], told["HTTPS_PROXY"]) == ("http://k", "http://proxy:3128")
    assert "secret" not in json.dumps(spec).replace("secretName", "").replace("imagePullSecrets", "").replace(
        '"secret":', ""
    )
    (daemon_set,) = [one for one in ours(sandbox) if one["kind"] == "DaemonSet"]
    (owner,) = daemon_set["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Node", name, node.uid)

    # The second look writes nothing, whatever new token it has.
    before = {
        one["metadata"]["uid"]: one["metadata"]["resourceVersion"]
        for one in ours(sandbox)
        if one["kind"] != "DaemonSet"
    }
    ask(sandbox, lambda executor: executor.deploy(replace(order, token="another")))
    after = {
        one["metadata"]["uid"]: one["metadata"]["resourceVersion"]
        for one in ours(sandbox)
        if one["kind"] != "DaemonSet"
    }
    assert before == after
    generation = next(one for one in ours(sandbox) if one["kind"] == "DaemonSet")["metadata"]["generation"]
    assert generation == daemon_set["metadata"]["generation"]

    # Another host of the same cluster keeps what both need.
    second = order_for(node_of(sandbox, other), "host-2")
    ask(sandbox, lambda executor: executor.deploy(second))
    ask(sandbox, lambda executor: executor.withdraw("uid-host-1", gone=True))
    left = {one["metadata"]["labels"].get(HOST_LABEL, "shared") for one in ours(sandbox)}
    assert left == {"uid-host-2", "shared"}
    assert ask(sandbox, lambda executor: executor.remains("uid-host-1")).value == frozenset()  # type: ignore[union-attr]
    ask(sandbox, lambda executor: executor.withdraw("uid-host-2", gone=True))
    gone = eventually(
        lambda: sandbox.kubectl("get", "namespace", NAMESPACE_NAME, "--ignore-not-found", "-o", "name") == "",
        120,
        "gone",
    )
    assert gone
    assert ask(sandbox, lambda executor: executor.remains("uid-host-2")).value == frozenset()  # type: ignore[union-attr]


def test_a_killed_agent_comes_up_again_before_it_is_taken_off(
    sandbox: Sandbox, make_node: MakeNode, eventually: Eventually
) -> None:
    """Its boot entry may be on the host, and nobody else takes that back."""
    order = order_for(node_of(sandbox, make_node()), "host-6")
    ask(sandbox, lambda executor: executor.deploy(order))
    (pod,) = eventually(lambda: [one for one in pods(sandbox) if one["status"].get("phase") == "Running"], 60, "a pod")
    (container,) = pod["status"]["containerStatuses"]
    killed = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "restartCount": 1}
    body = json.dumps({"status": {"containerStatuses": [{**container, **killed}]}})
    name = pod["metadata"]["name"]
    sandbox.kubectl("patch", "pod", name, "-n", NAMESPACE_NAME, "--subresource=status", "--type=merge", "-p", body)
    with pytest.raises(NotYet, match="started again"):
        ask(sandbox, lambda executor: executor.withdraw("uid-host-6", gone=False, patient=True))
    # So it is where the pod is gone with it, and another one has not begun: if there ever was an agent.
    waiting = {"state": {"waiting": {"reason": "ContainerCreating"}}, "restartCount": 0}
    body = json.dumps({"status": {"containerStatuses": [{**container, **waiting}]}})
    sandbox.kubectl("patch", "pod", name, "-n", NAMESPACE_NAME, "--subresource=status", "--type=merge", "-p", body)
    with pytest.raises(NotYet, match="started again"):
        ask(sandbox, lambda executor: executor.withdraw("uid-host-6", gone=False, patient=True, heard=True))
    assert [one["kind"] for one in ours(sandbox, "-l", HOST_LABEL) if one["kind"] == "DaemonSet"] == ["DaemonSet"]
    # Not for ever; and where no kubelet is, at once.
    ask(sandbox, lambda executor: executor.withdraw("uid-host-6", gone=False, patient=False))
    assert [one["kind"] for one in ours(sandbox, "-l", HOST_LABEL)] == []


def test_a_namespace_of_somebody_else_stays(sandbox: Sandbox, make_node: MakeNode) -> None:
    sandbox.kubectl("create", "namespace", NAMESPACE_NAME)
    sandbox.kubectl("label", "namespace", NAMESPACE_NAME, "pod-security.kubernetes.io/enforce=privileged")
    sandbox.kubectl("create", "configmap", "theirs", "-n", NAMESPACE_NAME)
    order = order_for(node_of(sandbox, make_node()), "host-3")
    ask(sandbox, lambda executor: executor.deploy(order))
    with pytest.raises(Occupied):
        ask(sandbox, lambda executor: executor.deploy(replace(order, host_uid="uid-stranger")))
    ask(sandbox, lambda executor: executor.withdraw("uid-host-3", gone=True))
    assert ours(sandbox) == []
    assert sandbox.get("configmap", "theirs", "-n", NAMESPACE_NAME)["metadata"]["name"] == "theirs"


def test_our_namespace_stays_with_what_somebody_put_there(sandbox: Sandbox, make_node: MakeNode) -> None:
    order = order_for(node_of(sandbox, make_node()), "host-4")
    ask(sandbox, lambda executor: executor.deploy(order))
    for kind, body in THEIRS.items():
        sandbox.apply(body)
        ask(sandbox, lambda executor: executor.withdraw("uid-host-4", gone=True))
        assert ours(sandbox) == []
        assert "deletionTimestamp" not in sandbox.get("namespace", NAMESPACE_NAME)["metadata"], kind
        assert ask(sandbox, lambda executor: executor.remains("uid-host-4")).value == frozenset()  # type: ignore[union-attr]
        sandbox.kubectl("delete", kind, "theirs", "-n", NAMESPACE_NAME)
    left = ask(sandbox, lambda executor: executor.remains("uid-host-4"))
    assert left.value == {SpokeObject("namespaces", NAMESPACE_NAME)}  # type: ignore[union-attr]


def test_what_is_somebody_elses_is_not_used(sandbox: Sandbox, make_node: MakeNode) -> None:
    order = order_for(node_of(sandbox, make_node()), "host-5")
    sandbox.kubectl("create", "namespace", NAMESPACE_NAME)
    sandbox.kubectl("label", "namespace", NAMESPACE_NAME, "pod-security.kubernetes.io/enforce=restricted")
    with pytest.raises(Occupied, match="lets no privileged pods in"):
        ask(sandbox, lambda executor: executor.deploy(order))
    sandbox.kubectl("label", "namespace", NAMESPACE_NAME, "pod-security.kubernetes.io/enforce-")
    name = name_for(order.node.name)
    sandbox.kubectl("create", "configmap", name, "-n", NAMESPACE_NAME)
    with pytest.raises(Occupied, match=f"ConfigMap {name} .* belongs to another party"):
        ask(sandbox, lambda executor: executor.deploy(order))
    sandbox.kubectl("delete", "configmap", name, "-n", NAMESPACE_NAME)
    assert "has no label" in ask(sandbox, lambda executor: executor.deploy(order)).remark
    ask(sandbox, lambda executor: executor.withdraw("uid-host-5", gone=True))
    assert ours(sandbox) == []


def test_on_openshift_its_pods_may_use_the_privileged_constraint(
    sandbox: Sandbox, make_node: MakeNode, eventually: Eventually
) -> None:
    """Whether a cluster is one is told by its API group; here somebody brings that group along."""
    order = order_for(node_of(sandbox, make_node()), "host-7")
    assert ask(sandbox, lambda executor: executor.is_openshift()) is False
    name, group = "securitycontextconstraints", "security.openshift.io"
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    sandbox.apply({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{name}.{group}"},
        "spec": {
            "group": group, "scope": "Cluster", "names": {"plural": name, "kind": "SecurityContextConstraints"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    })  # fmt: skip
    try:
        eventually(lambda: ask(sandbox, lambda executor: executor.is_openshift()), 90, "the API group")
        ask(sandbox, lambda executor: executor.deploy(replace(order, security_context_constraints=True)))
        (role,) = [one for one in ours(sandbox) if one["kind"] == "Role"]
        (rule,) = role["rules"]
        assert (rule["resources"], rule["resourceNames"], rule["verbs"]) == ([name], ["privileged"], ["use"])
        ask(sandbox, lambda executor: executor.withdraw("uid-host-7", gone=True))
    finally:
        sandbox.kubectl("delete", "crd", f"{name}.{group}", "--timeout=120s")
        eventually(lambda: not ask(sandbox, lambda executor: executor.is_openshift()), 90, "the API group is gone")


def test_only_control_plane_nodes_that_are_ready_and_stay_are_counted(sandbox: Sandbox, make_node: MakeNode) -> None:
    def left(*leaving: str) -> int:
        found = ask(
            sandbox, lambda executor: executor.control_plane(own, Leaving(dict.fromkeys(leaving, "hosts/agent")))
        )
        assert isinstance(found, Known)
        return found.value.staying

    own, other = make_node(roles=["control-plane"]), make_node(roles=["control-plane"])
    before = left(other)
    assert left() == before + 1
    dead = make_node(roles=["control-plane"], power="off")
    assert not node_of(sandbox, dead).ready
    assert left(other) == before


def test_the_node_in_our_words(sandbox: Sandbox, make_node: MakeNode) -> None:
    plain = node_of(sandbox, make_node(provider_id=""))
    assert (plain.machine, plain.provider_id, plain.control_plane, plain.ready) == ("", "", False, True)
    assert node_of(sandbox, make_node(provider_id="aws:///x")).provider_id == "aws:///x"
    machine = make_node(provider_id="", roles=["control-plane"])
    sandbox.kubectl("annotate", "node", machine, "machine.openshift.io/machine=ns/m-1")
    assert node_of(sandbox, machine).machine == "ns/m-1"
    assert node_of(sandbox, machine).control_plane
    assert ask(sandbox, lambda executor: executor.node("no-such-node")).value is None  # type: ignore[union-attr]
