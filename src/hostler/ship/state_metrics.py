"""A configuration for kube-state-metrics, so that it shows Fleet and Pause where the operator itself is not scraped."""

from __future__ import annotations

from typing import Any

from hostler.install.crd import definitions
from hostler.kube.kinds import FLEET, PAUSE, Kind

Json = dict[str, Any]
PREFIX = "kube_hostler"


def _gauge(name: str, path: list[str], help: str) -> Json:
    return {"name": name, "help": help, "each": {"type": "Gauge", "gauge": {"path": path}}}


CREATED = _gauge("created", ["metadata", "creationTimestamp"], "Since when writes are paused, in seconds since 1970.")


def configuration() -> Json:
    """For its flag `--custom-resource-state-config-file`."""
    return {
        "kind": "CustomResourceStateMetrics",
        "spec": {"resources": [_resource(FLEET, _fleet()), _resource(PAUSE, [CREATED], by=["spec", "by"])]},
    }


def rights() -> Json:
    """What its account needs besides."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "kube-state-metrics-hostler"},
        "rules": [
            {"apiGroups": [FLEET.group], "resources": [FLEET.plural, PAUSE.plural], "verbs": ["list", "watch"]},
            {
                "apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"],
                "verbs": ["list", "watch"],
            },
        ],
    }  # fmt: skip


def _resource(kind: Kind, metrics: list[Json], **labels: list[str]) -> Json:
    return {
        "groupVersionKind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
        "metricNamePrefix": f"{PREFIX}_{kind.kind.lower()}",
        "labelsFromPath": {"name": ["metadata", "name"], **labels},
        "metrics": metrics,
    }


def _fleet() -> list[Json]:
    schema = definitions()[FLEET]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    counts = schema["properties"]["status"]["properties"]["counts"]["properties"]
    return [
        {
            "name": "info",
            "help": "The version that runs, and the replica that leads.",
            "each": {
                "type": "Info",
                "info": {"labelsFromPath": {"version": ["status", "version"], "leader": ["status", "leader"]}},
            },
        },
        {
            "name": "condition",
            "help": "A condition of the Fleet: 1 where it is True, 0 where it is not.",
            "each": {
                "type": "Gauge",
                "gauge": {
                    "path": ["status", "conditions"], "labelsFromPath": {"type": ["type"], "reason": ["reason"]},
                    "valueFrom": ["status"],
                },
            },
        },
        *(_gauge(name, ["status", "counts", name], field["description"]) for name, field in counts.items()),
    ]  # fmt: skip
