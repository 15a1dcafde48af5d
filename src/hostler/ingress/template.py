"""The pod template of an OpenShift router, for clusters where nothing made one: its image is all that is asked for.

The service account `router` and the privileges it needs are the cluster's own business; see docs/ingress.md.
"""

from __future__ import annotations

from typing import Any


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
