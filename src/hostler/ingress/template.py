"""The pod template of OpenShift routers where nothing made one: ours, which needs an image, or the Fleet's, checked.

The service account `router` and the privileges it needs are the cluster's own business; see docs/ingress.md.
"""

from __future__ import annotations

from typing import Any

from hostler.apis.pod_security import find_violations
from hostler.host.conditions import cut, names
from hostler.ingress.model import Refusal, RefusedBy

_FIELD_LIMIT = 300  # characters: the key of an annotation can be of any length


def check_template(template: object) -> Refusal | None:
    """Why no router is made from the Fleet's template; None: it passes. The CRD in the cluster may be an older one."""
    found = [cut(str(one), _FIELD_LIMIT) for one in find_violations(template)]
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
