"""Everything an operator needs in a cluster, as manifests: what the chart makes, for those without Helm.

Rights and CRD come from the tables the chart is made from too; the Deployment is compared with the chart's by a test.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from hostler.fleet.crd import fleet_definition
from hostler.fleet.rights import rights_for
from hostler.fleet.roles import Account, roles

Json = dict[str, Any]
USER = 65532
ON_VCENTER = {"maintenance", "platform"}
_LOGIN, _CA = "/etc/hostler/vcenter", "/etc/ssl/vcenter-ca"
_FIELDS = {
    "HOSTLER_NAMESPACE": "metadata.namespace",
    "HOSTLER_POD_NAME": "metadata.name",
    "HOSTLER_NODE_NAME": "spec.nodeName",
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to run. `vcenter`: a Secret with VCENTER_HOST, VCENTER_USER and VCENTER_PASSWORD."""

    account: Account
    image: str
    on: tuple[str, ...] = ()
    label: str = ""  # of the nodes that maintenance may empty
    settings: Mapping[str, str] = field(default_factory=dict)  # further ones, by their environment names
    vcenter: str = ""
    ca: str = ""  # a ConfigMap with the vCenter's CA, ca.pem
    replicas: int = 2
    openshift: bool = False

    @property
    def selector(self) -> dict[str, str]:
        return {"app.kubernetes.io/name": "hostler", "app.kubernetes.io/instance": self.account.name}

    @property
    def volumes(self) -> dict[str, tuple[str, Json]]:
        """Where each is mounted, and what it is."""
        found: dict[str, tuple[str, Json]] = {}
        if self.vcenter and ON_VCENTER & {*self.on}:
            found["vcenter"] = _LOGIN, {"secret": {"secretName": self.vcenter, "defaultMode": 0o440}}
            if self.ca:
                found["vcenter-ca"] = _CA, {"configMap": {"name": self.ca}}
        return found


def manifests(wanted: Wanted) -> Iterator[Json]:
    """In the order in which they can be applied."""
    account = wanted.account
    own = {"name": account.name, "namespace": account.namespace, "labels": wanted.selector}
    yield fleet_definition()
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": account.namespace}}
    yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": own}
    yield from roles(rights_for(wanted.on), account, openshift=wanted.openshift)
    yield {
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {**own, "name": f"{account.name}-settings"},
        "data": settings(wanted),
    }  # fmt: skip
    yield {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": own, "spec": deployment(wanted)}


def settings(wanted: Wanted) -> dict[str, str]:
    told = {"DRY_RUN": "false", "HOSTLER_LOG_FORMAT": "json", "HOSTLER_LOG_LEVEL": "info"}
    told["HOSTLER_HTTP_ADDRESS"] = ":8080"
    if wanted.on:
        told["HOSTLER_ONLY"] = ",".join(sorted(wanted.on))
    if "reclaim" in wanted.on:
        told["HOSTLER_HUB_ADDRESS"] = ":8090"
    return told | dict(wanted.settings)


def deployment(wanted: Wanted) -> Json:
    pod: Json = {
        "serviceAccountName": wanted.account.name,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 30,
        "securityContext": _identity(wanted.openshift),
        "containers": [_container(wanted)],
        "affinity": _affinity(wanted),
    }
    if wanted.volumes:
        pod["volumes"] = [{"name": name, **source} for name, (_, source) in wanted.volumes.items()]
    return {
        "replicas": wanted.replicas,
        "selector": {"matchLabels": wanted.selector},
        "template": {"metadata": {"labels": wanted.selector}, "spec": pod},
    }


def _identity(openshift: bool) -> Json:
    numbers = {} if openshift else {"runAsUser": USER, "runAsGroup": USER, "fsGroup": USER}
    return {"runAsNonRoot": True, **numbers, "seccompProfile": {"type": "RuntimeDefault"}}


def _container(wanted: Wanted) -> Json:
    made: Json = {
        "name": "hostler",
        "image": wanted.image,
        "imagePullPolicy": "IfNotPresent",
        "args": ["run"],
        "envFrom": [{"configMapRef": {"name": f"{wanted.account.name}-settings"}}],
        "env": list(_environment(wanted)),
        "ports": [{"name": "http", "containerPort": 8080}],
        "livenessProbe": {**_probe("/healthz", 20), "failureThreshold": 6},
        "readinessProbe": _probe("/readyz", 5),
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
        },
    }  # fmt: skip
    if "reclaim" in wanted.on:
        made["ports"].append({"name": "hub", "containerPort": 8090})
    if wanted.volumes:
        made["volumeMounts"] = [
            {"name": name, "mountPath": path, "readOnly": True} for name, (path, _) in wanted.volumes.items()
        ]
    return made


def _probe(path: str, seconds: int) -> Json:
    return {"httpGet": {"path": path, "port": "http"}, "periodSeconds": seconds, "timeoutSeconds": 5}


def _environment(wanted: Wanted) -> Iterator[Json]:
    for name, path in _FIELDS.items():
        yield {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
    if "vcenter" in wanted.volumes:
        host = {"secretKeyRef": {"name": wanted.vcenter, "key": "VCENTER_HOST"}}
        yield {"name": "VCENTER_HOST", "valueFrom": host}
        for name in ("VCENTER_USER", "VCENTER_PASSWORD"):
            yield {"name": f"{name}_FILE", "value": f"{_LOGIN}/{name}"}
    if "vcenter-ca" in wanted.volumes:
        yield {"name": "VCENTER_CA_BUNDLE", "value": f"{_CA}/ca.pem"}


def _affinity(wanted: Wanted) -> Json:
    """Off the nodes it may empty, so that it never drains itself; and the replicas on different nodes."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": wanted.selector}}
    prefer = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": term}]}
    if "maintenance" not in wanted.on:
        return {"podAntiAffinity": prefer}
    key, given, value = wanted.label.partition("=")
    rule = {"key": key, "operator": "NotIn", "values": [value]} if given else {"key": key, "operator": "DoesNotExist"}
    off = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}}
    return {"nodeAffinity": off, "podAntiAffinity": prefer}
