"""An OpenShift cluster's ingress on the sandbox: its published CRDs, its two namespaces, its singletons."""

from __future__ import annotations

import json
from typing import Any

from hostler.sandbox import Sandbox
from hostler.sandbox.build import Silent
from hostler.sandbox.crds import install_crds
from tests.real.auditing import who

CONTROLLERS, ROUTERS = "openshift-ingress-operator", "openshift-ingress"
CONFIG = "config.openshift.io/v1"
MASTER, WORKER = "node-role.kubernetes.io/master", "node-role.kubernetes.io/worker"
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"


def install_openshift(box: Sandbox) -> None:
    """What an OpenShift installation leaves behind before ingress is decided."""
    install_crds(box, ("openshift",), Silent())
    box.apply(
        *({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in (CONTROLLERS, ROUTERS)),
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "router", "namespace": ROUTERS}},
    )


def decided(box: Sandbox, placement: str, control_plane: str, infrastructure: str, platform: str = "None") -> None:
    """The Ingress and Infrastructure as an installation with these decisions has them."""
    box.apply(
        {"apiVersion": CONFIG, "kind": "Ingress", "metadata": {"name": "cluster"}, "spec": {"domain": "apps.invalid"}},
        {"apiVersion": CONFIG, "kind": "Infrastructure", "metadata": {"name": "cluster"}, "spec": {}},
    )
    # In this order: a default controller made while the placement is empty has no fields filled in.
    set_status(box, "ingresses.config.openshift.io", "cluster", {"defaultPlacement": placement})
    topology = {"controlPlaneTopology": control_plane, "infrastructureTopology": infrastructure}
    set_status(box, "infrastructure", "cluster", {**topology, "platformStatus": {"type": platform}})


def set_status(box: Sandbox, kind: str, name: str, status: dict[str, Any], *flags: str) -> str:
    words = ("patch", kind, name, "--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))
    return box.kubectl(*words, *flags)


def undecide(box: Sandbox) -> None:
    """Nothing of any ingress is left. What decides goes first, so that no operator makes anew what goes after it."""
    box.kubectl("delete", "ingresses.config.openshift.io,infrastructures,schedulers.config.openshift.io", "--all")
    box.kubectl("delete", "ingresscontrollers", "--all", "-n", CONTROLLERS)
    box.kubectl("delete", "deployments,poddisruptionbudgets", "--all", "-n", ROUTERS)
    box.kubectl("delete", "pods", "--all", "-n", ROUTERS, "--force", "--grace-period=0")


def router(box: Sandbox, name: str = "default") -> dict[str, Any]:
    """The router Deployment, or nothing."""
    found = box.read(f"/apis/apps/v1/namespaces/{ROUTERS}/deployments")["items"]
    return next((dict(one) for one in found if one["metadata"]["name"] == f"router-{name}"), {})


def pods(box: Sandbox) -> list[dict[str, Any]]:
    """Every router pod that is not on its way out."""
    found = box.read(f"/api/v1/namespaces/{ROUTERS}/pods")["items"]
    return [one for one in found if "deletionTimestamp" not in one["metadata"]]


def ready_on(box: Sandbox) -> list[str]:
    """The nodes with a ready router pod."""
    return sorted(one["spec"]["nodeName"] for one in pods(box) if _is(one, "Ready"))


def _is(one: dict[str, Any], type: str) -> bool:
    return any(c["type"] == type and c["status"] == "True" for c in one.get("status", {}).get("conditions", []))


def conditions(box: Sandbox, name: str = "default") -> dict[str, str]:
    found = box.get("ingresscontroller", name, "-n", CONTROLLERS).get("status", {}).get("conditions", [])
    return {one["type"]: one["status"] for one in found}


def controller(name: str = "default", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "operator.openshift.io/v1",
        "kind": "IngressController",
        "metadata": {"name": name, "namespace": CONTROLLERS},
        "spec": spec,
    }


def writes(box: Sandbox, *users: str) -> list[str]:
    """What these operators have written, leases, events and the history of hosts aside."""
    return [
        "/".join(filter(None, (entry["objectRef"]["resource"], entry["objectRef"].get("subresource"))))
        for entry in box.audit(*users)
        if who(entry) in users
        and entry["verb"] in ("create", "patch", "delete", "update")
        and entry["responseStatus"]["code"] < 300
        and entry["objectRef"]["resource"] not in ("leases", "events", "selfsubjectreviews", "configmaps")
    ]
