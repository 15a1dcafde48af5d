"""What the author of the Fleet may have: which workloads are placed, and which pod template becomes a router. Pure.

The Fleet alone proves nothing: an account that may patch it need not be one that may move the workload. A user who can
set the label could have moved the workload anyway. It is a label and not an annotation because writers of
`deployments/status` can change annotations, but not labels. Those of `daemonsets/status` can change both; no role that
Kubernetes has for people contains it.
Where nothing made a router, its template is the Fleet's, checked, or ours, which needs an image. The service account
`router` and the privileges it needs are the cluster's own business; see docs/ingress.md.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from hostler.apis.fleet import IngressWorkload
from hostler.apis.pod_security import find_violations
from hostler.host.conditions import cut, names
from hostler.ingress.model import APPLIED, Placed, Refusal, RefusedBy

MARK, MANAGED = "hostler.dev/ingress", "managed"
SYSTEM_NAMESPACE = "kube-system"  # what runs here keeps the cluster alive: a label is not enough
WORKLOADS_SETTING = "HOSTLER_INGRESS_WORKLOADS"


def key_of_workload(asked: IngressWorkload) -> str:
    """`Deployment/NAMESPACE/NAME`, as the setting, the metrics and the Fleet's status call it."""
    return f"{asked.kind}/{asked.namespace}/{asked.name}"


def check_workload(asked: IngressWorkload, current: Placed, named: Collection[str]) -> Refusal | None:
    """Why this workload is not placed although the Fleet names it; None: it may be. `named`: keys of the setting.

    Judged by the object that would be written, not by what the Fleet calls it.
    """
    kind, about = "DaemonSet" if asked.kind == "DaemonSet" else "Deployment", current.metadata
    key = f"{kind}/{about.namespace}/{about.name}"
    if key in named:
        return None
    # The object exists, so its names are proper ones: they can stand in a command.
    if about.namespace == SYSTEM_NAMESPACE:
        by = RefusedBy.SYSTEM_NAMESPACE
        only = (
            f"only workloads that the operator's own setting {WORKLOADS_SETTING} names are placed in {SYSTEM_NAMESPACE}"
        )
        why = f"{only}; add {key} to it"
    elif about.labels.get(MARK) != MANAGED:
        by = RefusedBy.NOT_MARKED
        command = f"kubectl label {kind.lower()} {about.name} -n {about.namespace} --overwrite {MARK}={MANAGED}"
        why = f"its owner has not marked it; to mark it, run `{command}`"
    else:
        return None
    before = " Hostler placed it before; it stays as it is." if APPLIED in about.annotations else ""
    return Refusal(by, f"{kind} {about.namespace}/{about.name} is not placed: {why}.{before}")


_FIELD_LIMIT = 300  # characters: the key of an annotation can be of any length


def check_template(template: object) -> Refusal | None:
    """Why no router is made from the Fleet's template; None: it passes. The CRD in the cluster may be an older one."""
    found = [cut(str(violation), _FIELD_LIMIT) for violation in find_violations(template)]
    if not found:
        return None
    why = f"Fleet.spec.ingress.routerTemplate does not pass Pod Security baseline: {names(found)}."
    return Refusal(RefusedBy.ROUTER_TEMPLATE, why)


def router_template(image: str) -> dict[str, Any]:
    """Ports, probes and identity as the router expects them. Certificates are left to its own defaults."""
    probe = {"httpGet": {"path": "/healthz", "port": 1936}}
    ready = {"httpGet": {"path": "/healthz/ready", "port": 1936}}
    container = {
        "name": "router",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "ports": [
            {"name": "http", "containerPort": 80, "protocol": "TCP"},
            {"name": "https", "containerPort": 443, "protocol": "TCP"},
            {"name": "metrics", "containerPort": 1936, "protocol": "TCP"},
        ],
        "env": [{"name": "ROUTER_CANONICAL_HOSTNAME", "value": ""}, {"name": "STATS_PORT", "value": "1936"}],
        "livenessProbe": {**probe, "terminationGracePeriodSeconds": 10},
        "readinessProbe": ready,
        "startupProbe": {**ready, "failureThreshold": 120, "periodSeconds": 1},
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    return {
        "spec": {
            "serviceAccountName": "router",
            "priorityClassName": "system-cluster-critical",
            # Connections are drained before the pod ends; an hour is what OpenShift gives them.
            "terminationGracePeriodSeconds": 3600,
            "containers": [container],
        }
    }
