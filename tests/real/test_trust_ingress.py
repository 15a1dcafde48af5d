"""An account that may only patch the Fleet moves, scales and runs nothing that it may not move, scale or run itself."""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hostler.apis.pod_security import find_violations
from hostler.errors import Complaint
from hostler.ingress.refusals import MANAGED, MARK
from hostler.install.rights import Right
from hostler.sandbox import Sandbox, http
from tests.real.accounts import charted, kubeconfig_of, new_account
from tests.real.conftest import Eventually
from tests.real.operating import Running, hostler, operator
from tests.real.routing import CONTROL_PLANE, CONTROLLERS, ROUTERS, decided, install_openshift, router, undecide
from tests.unit.podding import refused_value, rows, template_with

FLEET_WRITER = (Right("fleets.hostler.dev", ("get", "patch"), "All that this account may do."),)
SYSTEM = "kube-system"
Kubectl = Callable[..., str]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trust")


@pytest.fixture(scope="module")
def writer(sandbox: Sandbox, home: str, folder: Path) -> Iterator[Kubectl]:
    """kubectl of an account that may read and patch the Fleet, and nothing else."""
    assert hostler(sandbox.kubeconfig, "crds", "--apply").returncode == 0
    sandbox.kubectl("delete", "fleet", "--all", "--ignore-not-found")
    sandbox.apply({"apiVersion": "hostler.dev/v1alpha1", "kind": "Fleet", "metadata": {"name": "cluster"}})
    with charted(sandbox, new_account(home, kind="fleet-writer"), FLEET_WRITER) as user:
        login = str(kubeconfig_of(sandbox, folder, user))
        yield lambda *words, check=True: sandbox.kubectl("--kubeconfig", login, *words, check=check)
    sandbox.kubectl("delete", "fleet", "--all", "--ignore-not-found")


@pytest.fixture(scope="module")
def named() -> str:
    """The one workload in kube-system that the operator's own setting names."""
    return f"traefik-{os.urandom(3).hex()}"


@pytest.fixture(scope="module")
def running(sandbox: Sandbox, home: str, folder: Path, writer: Kubectl, named: str) -> Iterator[Running]:
    install_openshift(sandbox)  # before the operator: it is granted what matters only there
    undecide(sandbox)
    flags = ("--only", "ingress", "--no-ingress-check-wildcard", "--ingress-workloads", f"Deployment/{SYSTEM}/{named}")
    with operator(sandbox, folder, home, *flags) as running:
        running.ready()
        yield running


def workload(kind: str, namespace: str, name: str, **labels: str) -> dict[str, Any]:
    app = {"app": name}
    spec: dict[str, Any] = {
        "selector": {"matchLabels": app},
        "template": {"metadata": {"labels": app}, "spec": {"containers": [{"name": "c", "image": "dns"}]}},
    }
    about = {"name": name, "namespace": namespace, "labels": labels}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": about, "spec": spec}


@contextmanager
def applied(sandbox: Sandbox, *objects: dict[str, Any]) -> Iterator[None]:
    """These objects, gone afterwards."""
    sandbox.apply(*objects)
    try:
        yield
    finally:
        for one in objects:
            about = one["metadata"]
            sandbox.kubectl("delete", one["kind"], about["name"], "-n", about["namespace"], "--wait=false")


def name_workloads(writer: Kubectl, *objects: dict[str, Any], **more: Any) -> str:
    """As the attacker types it."""
    asked = [
        {"kind": one["kind"], "namespace": one["metadata"]["namespace"], "name": one["metadata"]["name"], **more}
        for one in objects
    ]
    return patch_ingress(writer, workloads=asked)


def patch_ingress(writer: Kubectl, **ingress: Any) -> str:
    """The Fleet's ingress is this and nothing else."""
    whole = {"workloads": None, "routerTemplate": None, **ingress}
    return writer("patch", "fleet", "cluster", "--type=merge", "-p", json.dumps({"spec": {"ingress": whole}}))


def spec_of(sandbox: Sandbox, one: dict[str, Any]) -> dict[str, Any]:
    about = one["metadata"]
    found = sandbox.get(one["kind"].lower(), about["name"], "-n", about["namespace"])
    # But for what the controller of Deployments writes a moment later.
    annotations = {name: text for name, text in found["metadata"].get("annotations", {}).items()
                   if not name.startswith("deployment.kubernetes.io/")}  # fmt: skip
    return {"generation": found["metadata"]["generation"], "annotations": annotations,
            "pod": found["spec"]["template"]["spec"], "replicas": found["spec"].get("replicas")}  # fmt: skip


def untouched(sandbox: Sandbox, one: dict[str, Any], running: Running) -> bool:
    """No operator ever was among the writers of its spec."""
    about = one["metadata"]
    found = sandbox.get(one["kind"].lower(), about["name"], "-n", about["namespace"], "--show-managed-fields")
    return not any(
        "hostler" in by["manager"] for by in found["metadata"]["managedFields"] if by["operation"] == "Apply"
    )


def refusals(sandbox: Sandbox) -> dict[str, str]:
    found = sandbox.get("fleet", "cluster").get("status", {}).get("conditions", [])
    return next((dict(one) for one in found if one["type"] == "IngressRefused"), {"status": "", "message": ""})


def observed(sandbox: Sandbox) -> int:
    return int(sandbox.get("fleet", "cluster").get("status", {}).get("observedGeneration", 0))


def metrics(running: Running) -> str:
    with urllib.request.urlopen(f"{running.url}/metrics", timeout=30) as answer:
        return str(answer.read().decode())


def test_a_fleet_writer_scales_no_dns_to_zero(
    sandbox: Sandbox, running: Running, writer: Kubectl, namespace: str, eventually: Eventually
) -> None:
    for verb, resource, space in (("patch", "deployments", SYSTEM), ("patch", "deployments", namespace),
                                  ("patch", "daemonsets", SYSTEM)):  # fmt: skip
        assert writer("auth", "can-i", verb, resource, "-n", space, check=False).strip() == "no"
    dns = workload("Deployment", SYSTEM, f"coredns-{namespace}")
    # In kube-system not even the label is enough.
    proxy = workload("DaemonSet", SYSTEM, f"kube-proxy-{namespace}", **{MARK: MANAGED})
    other = workload("Deployment", namespace, "payments", **{MARK: "yes"})
    with applied(sandbox, dns, proxy, other):
        before = [spec_of(sandbox, one) for one in (dns, proxy, other)]
        name_workloads(writer, dns, proxy, other, replicas=0, nodeSelector={CONTROL_PLANE: ""})
        eventually(lambda: refusals(sandbox)["status"] == "True", 60, "the Fleet's status refuses them")
        for said in (
            f"add Deployment/{SYSTEM}/coredns-{namespace} to it",
            f"add DaemonSet/{SYSTEM}/kube-proxy-{namespace} to it",
            f"kubectl label deployment payments -n {namespace} --overwrite {MARK}={MANAGED}",
        ):
            eventually(lambda said=said: said in refusals(sandbox)["message"], 60, said)  # type: ignore[misc]
        for one, reason in ((dns, "SystemNamespace"), (proxy, "SystemNamespace"), (other, "NotMarked")):
            about = one["metadata"]
            series = f'controller="{one["kind"]}/{about["namespace"]}/{about["name"]}",reason="{reason}"'
            assert f"hostler_ingress_refused{{{series}}} 1.0" in metrics(running)
            words = ("get", "events", "-n", about["namespace"], "--field-selector", f"reason={reason}")
            eventually(lambda w=words, n=about["name"]: n in sandbox.kubectl(*w), 60, "its Event")  # type: ignore[misc]
        assert [spec_of(sandbox, one) for one in (dns, proxy, other)] == before
        assert all(untouched(sandbox, one, running) for one in (dns, proxy, other))
        shown = " ".join(hostler(sandbox.kubeconfig, "ingress", "status").stdout.split())
        assert "is not placed" in shown
        # Who may label it may also move it. Then it is placed, and the condition says so.
        name_workloads(writer, other, replicas=0)
        sandbox.kubectl("label", "deployment", "payments", "-n", namespace, f"{MARK}={MANAGED}", "--overwrite")
        eventually(lambda: spec_of(sandbox, other)["replicas"] == 0, 60, "placed now")
        eventually(lambda: refusals(sandbox)["status"] == "False", 60, "and nothing is refused")


def test_in_kube_system_only_the_operators_setting_names_a_workload(
    sandbox: Sandbox, running: Running, writer: Kubectl, named: str, eventually: Eventually
) -> None:
    traefik = workload("Deployment", SYSTEM, named)
    with applied(sandbox, traefik):
        name_workloads(writer, traefik)
        eventually(lambda: CONTROL_PLANE in str(spec_of(sandbox, traefik)["pod"]), 60, "it is placed")


def test_a_workload_that_was_placed_before_is_left_as_it_is(
    sandbox: Sandbox, running: Running, writer: Kubectl, namespace: str, eventually: Eventually
) -> None:
    old = workload("Deployment", namespace, "old", **{MARK: MANAGED})
    with applied(sandbox, old):
        name_workloads(writer, old)
        eventually(lambda: CONTROL_PLANE in str(spec_of(sandbox, old)["pod"]), 60, "placed while it was marked")
        placed = spec_of(sandbox, old)
        sandbox.kubectl("label", "deployment", "old", "-n", namespace, f"{MARK}-")
        eventually(lambda: "Hostler placed it before" in refusals(sandbox)["message"], 60, "named, not removed")
        name_workloads(writer, old, placement="Workers", replicas=0)
        generation = sandbox.get("fleet", "cluster")["metadata"]["generation"]
        eventually(lambda: observed(sandbox) >= generation, 60, "the operator has read the Fleet")
        now = spec_of(sandbox, old)
        assert (now["pod"], now["replicas"]) == (placed["pod"], placed["replicas"])


# -- the template of routers


PRIVILEGED = {
    "spec": {
        "hostPID": True,
        "containers": [{"name": "router", "image": "mine", "securityContext": {"privileged": True}}],
        "volumes": [{"name": "root", "hostPath": {"path": "/"}}],
    }
}
FIELDS = ("spec.hostPID", "spec.containers[0].securityContext.privileged", "spec.volumes[0].hostPath")


def test_a_fleet_writer_runs_no_privileged_router(
    sandbox: Sandbox, running: Running, writer: Kubectl, make_node: Callable[..., str], eventually: Eventually
) -> None:
    assert writer("auth", "can-i", "create", "deployments", "-n", ROUTERS, check=False).strip() == "no"
    with pytest.raises(Complaint) as refused:
        patch_ingress(writer, routerTemplate=PRIVILEGED)
    paths = [field.removesuffix(".hostPath") for field in FIELDS]
    assert all(f"spec.ingress.routerTemplate.{path}: Invalid value" in str(refused.value) for path in paths)
    assert "hostPath must be unset" in str(refused.value)
    # A CRD of an older version lets it through: the operator refuses it by itself.
    make_node(roles=["master", "control-plane", "worker"], taint=False)
    crd = json.loads(sandbox.kubectl("get", "crd", "fleets.hostler.dev", "-o", "json"))
    ingress = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["ingress"]
    ingress["properties"]["routerTemplate"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    sandbox.kubectl("replace", "-f", "-", input=json.dumps(crd))
    try:
        eventually(lambda: "patched" in _attempt(writer, PRIVILEGED), 60, "the older CRD takes it")
        decided(sandbox, "ControlPlane", "SingleReplica", "SingleReplica")
        eventually(lambda: _reason(sandbox) == "RouterTemplateRefused", 60, "the condition of the IngressController")
        assert all(f"{field} must be unset" in refusals(sandbox)["message"] for field in FIELDS)
        assert 'hostler_ingress_refused{controller="default",reason="RouterTemplateRefused"} 1.0' in metrics(running)
        events = ("get", "events", "-n", CONTROLLERS, "--field-selector", "reason=RouterTemplateRefused")
        eventually(lambda: "default" in sandbox.kubectl(*events), 60, "its Event")
        assert router(sandbox) == {}
        patch_ingress(writer)
        patch_ingress(writer, routerTemplate={"spec": {"containers": [{"name": "router", "image": "mine"}]}})
        eventually(lambda: router(sandbox), 60, "made from one that passes")
    finally:
        assert hostler(sandbox.kubeconfig, "crds", "--apply").returncode == 0
        patch_ingress(writer)
        undecide(sandbox)


def _attempt(writer: Kubectl, template: dict[str, Any]) -> str:
    try:
        return patch_ingress(writer, routerTemplate=template)
    except Complaint as refused:
        return str(refused)


def _reason(sandbox: Sandbox) -> str:
    found = sandbox.get("ingresscontrollers", "-n", CONTROLLERS)["items"]
    said = [one for it in found for one in it.get("status", {}).get("conditions", []) if one["type"] == "Available"]
    return said[0]["reason"] if said else ""


def test_the_api_servers_own_pod_security_agrees_on_every_field(sandbox: Sandbox, namespace: str) -> None:
    """Kubernetes is the judge of the table: in a namespace that enforces baseline, with the same pods."""
    level = "pod-security.kubernetes.io/enforce"
    sandbox.kubectl("label", "namespace", namespace, f"{level}=baseline", f"{level}-version=latest")
    plain = {"metadata": {}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    assert judge(sandbox, namespace, plain) == ""
    running = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "debugged", "namespace": namespace}}
    sandbox.apply({**running, "spec": plain["spec"]})
    wrong = []
    for control, field in rows():
        for value in (*control.allowed, refused_value(control)):
            template = template_with(control, field, value)
            theirs, ours = judge(sandbox, namespace, template), find_violations(template)
            by_level = 'violates PodSecurity "baseline:latest"' in theirs
            if is_never_valid(field, value):
                wrong += [(field, value)] if by_level or not theirs else []
            elif bool(ours) != by_level or bool(theirs) != by_level:
                wrong.append((field, value))
    assert wrong == []


def is_never_valid(field: str, value: object) -> bool:
    """What every API server refuses before any level is asked: it needs the host's network, a user namespace, a probe
    where none can be."""
    if "ephemeralContainers" in field and ("Probe" in field or "lifecycle" in field):
        return True
    return value == "Unmasked" or (field.endswith("hostProcess") and value is True)


def judge(sandbox: Sandbox, namespace: str, template: dict[str, Any]) -> str:
    """Why the API server refuses a pod of this template; nothing is stored."""
    port, tls = sandbox.state.ports["kube-apiserver"], http.trust(sandbox.layout, "admin")
    pods = f"/api/v1/namespaces/{namespace}/pods"
    spec = dict(template["spec"])
    debugging = spec.pop("ephemeralContainers", None)
    if debugging is None:
        body = {"metadata": {"generateName": "judged-", **template["metadata"]}, "spec": spec}
        code, answer = http.call(port, "POST", f"{pods}?dryRun=All", body, tls=tls)
    else:  # only a pod that is there may have them, by a subresource of its own
        body = sandbox.read(f"{pods}/debugged")
        body["spec"]["ephemeralContainers"] = debugging
        code, answer = http.call(port, "PUT", f"{pods}/debugged/ephemeralcontainers?dryRun=All", body, tls=tls)
    return "" if code < 300 else str(json.loads(answer)["message"])
