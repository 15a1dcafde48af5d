"""What an operator needs in a cluster, without Helm: `hostler manifests`, and the components that clusterctl installs.

The chart has its own templates; tests/real/test_chart_manifests.py compares both, object by object. What is optional in
the chart, and off, is the chart's alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from hostler import __version__
from hostler.capabilities import BY_NAME
from hostler.explain.callers import READER
from hostler.install.admission import BINDING, BINDING_SPEC, POLICIES, POLICY
from hostler.install.crd import definitions
from hostler.install.grants import rights_for
from hostler.install.people import people_roles
from hostler.install.roles import Account, roles
from hostler.safety.switches import load_part

Json = dict[str, Any]
_HOOKS = load_part("hostler.metal.kinds.webhook_objects")  # its code is named, not imported: it is a capability's

# KEY or KEY=VALUE. From any other selector nobody can tell where Hostler may run.
PLAIN_LABEL = "^([a-z0-9.-]+/)?[A-Za-z0-9._-]+(=[A-Za-z0-9._-]*)?$"
PROBES: Json = {
    # Only a loop that stands still is a reason for a restart; an unreachable API server is not.
    "livenessProbe": {
        "httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 20, "timeoutSeconds": 5,
        "failureThreshold": 6,
    },
    "readinessProbe": {"httpGet": {"path": "/readyz", "port": "http"}, "periodSeconds": 5, "timeoutSeconds": 5},
}  # fmt: skip


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
    openshift: bool = False
    policies: bool = True  # the API server has ValidatingAdmissionPolicy

    @property
    def selector(self) -> Json:
        """The labels by which its pods are found."""
        return {"app.kubernetes.io/name": "hostler", "app.kubernetes.io/instance": self.account.name}

    @property
    def labels(self) -> Json:
        return {
            **self.selector, "app.kubernetes.io/version": __version__, "app.kubernetes.io/part-of": "hostler",
        }  # fmt: skip

    @property
    def asks_vcenter(self) -> bool:
        return bool(self.vcenter) and any(BY_NAME[name].asks_vcenters for name in self.on)

    @property
    def serves_webhooks(self) -> bool:
        """Not in a dry run: it keeps no certificate, so the API server would refuse every write of Metal3's kinds."""
        asked_for = "metal" in self.on and self.settings.get("HOSTLER_METAL_WEBHOOKS") == "true"
        return asked_for and self.settings.get("DRY_RUN") != "true"


def list_manifests(wanted: Wanted) -> Iterator[Json]:
    """In the order in which they can be applied."""
    account = wanted.account
    yield from definitions().values()
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": account.namespace}}
    yield from roles(rights_for(wanted.on), account, openshift=wanted.openshift)
    yield from people_roles(account.name, lease=account.lease, service=f"{account.name}:http")
    if wanted.policies:
        yield from _admission_policies(wanted)
    yield _object(wanted, "v1", "ServiceAccount")
    # Whose tokens people bring to the operator. It has no rights, and no pod runs as it.
    yield {**_object(wanted, "v1", "ServiceAccount", READER), "automountServiceAccountToken": False}
    yield {**_object(wanted, "v1", "ConfigMap", f"{account.name}-settings"), "data": _environment(wanted)}
    yield from _services(wanted)
    yield _disruption_budget(wanted)
    yield _deployment(wanted)
    if wanted.serves_webhooks:
        yield _HOOKS.webhook_service(account.namespace, wanted.selector, wanted.labels)
        yield from _HOOKS.webhook_configurations(account.namespace, wanted.labels)


def _object(wanted: Wanted, version: str, kind: str, name: str = "") -> Json:
    metadata = {
        "name": name or wanted.account.name, "namespace": wanted.account.namespace, "labels": wanted.labels,
    }  # fmt: skip
    return {"apiVersion": version, "kind": kind, "metadata": metadata}


def _admission_policies(wanted: Wanted) -> Iterator[Json]:
    """Their names are the same in every cluster, so that `hostler doctor` finds them."""
    for policy in POLICIES:
        for kind, spec in ((POLICY, policy.spec), (BINDING, {"policyName": policy.name, **BINDING_SPEC})):
            metadata = {"name": policy.name, "labels": wanted.labels}
            yield {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": dict(spec)}


def _environment(wanted: Wanted) -> dict[str, str]:
    environment = {
        "DRY_RUN": "false",
        "HOSTLER_LOG_FORMAT": "json",
        "HOSTLER_LOG_LEVEL": "info",
        "HOSTLER_HTTP_ADDRESS": ":8080",
        "HOSTLER_METRICS_AUTHENTICATION": "true",
        "HOSTLER_SERVICE": wanted.account.name,
    }
    if wanted.on:
        environment["HOSTLER_ONLY"] = ",".join(sorted(wanted.on))
    if "reclaim" in wanted.on:
        environment["HOSTLER_HUB_ADDRESS"] = ":8090"
    if wanted.serves_webhooks:
        environment["HOSTLER_METAL_WEBHOOKS_ADDRESS"] = f":{_HOOKS.PORT}"
    return environment | dict(wanted.settings)


def _services(wanted: Wanted) -> Iterator[Json]:
    yield {
        **_object(wanted, "v1", "Service"),
        "spec": {
            "clusterIP": "None",  # each replica has metrics of its own, so nobody wants one of them at random
            "publishNotReadyAddresses": True,  # a replica that is not ready says why by the same way
            "selector": wanted.selector,
            "ports": [{"name": "http", "port": 8080, "targetPort": "http"}],
        },
    }
    if "reclaim" in wanted.on:
        hub = _object(wanted, "v1", "Service", f"{wanted.account.name}-hub")
        hub["metadata"]["labels"] = {**wanted.labels, "app.kubernetes.io/component": "hub"}
        port = {"name": "hub", "port": 8090, "targetPort": "hub", "appProtocol": "http"}
        yield {**hub, "spec": {"type": "ClusterIP", "selector": wanted.selector, "ports": [port]}}


def _disruption_budget(wanted: Wanted) -> Json:
    return {
        **_object(wanted, "policy/v1", "PodDisruptionBudget"),
        "spec": {
            "maxUnavailable": 1,
            # A replica that is not ready keeps nobody from draining its node.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": wanted.selector},
        },
    }


def _deployment(wanted: Wanted) -> Json:
    # Settings are read at the start: a change of them is a new pod.
    checksum = sha256(json.dumps(_environment(wanted)).encode()).hexdigest()
    return {
        **_object(wanted, "apps/v1", "Deployment"),
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": wanted.selector},
            "template": {
                "metadata": {"labels": wanted.labels, "annotations": {"checksum/settings": checksum}},
                "spec": _pod(wanted),
            },
        },
    }


def _pod(wanted: Wanted) -> Json:
    volumes = _volumes(wanted)
    return {
        "serviceAccountName": wanted.account.name,
        # A Service called hostler would put HOSTLER_SERVICE_HOST into the pod, which is no setting of ours.
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 30,
        "securityContext": {
            "runAsNonRoot": True,
            # On OpenShift the SCC restricted-v2 gives them, from the namespace's range.
            **({} if wanted.openshift else {"runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532}),
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(wanted)],
        **({"volumes": [{"name": name, **source} for name, _, source in volumes]} if volumes else {}),
        "affinity": _affinity(wanted),
    }


def _volumes(wanted: Wanted) -> list[tuple[str, str, Json]]:
    """Each volume's name, where it is mounted, and what it is."""
    volumes: list[tuple[str, str, Json]] = []
    if wanted.asks_vcenter:
        login = {"secret": {"secretName": wanted.vcenter, "defaultMode": 0o440}}
        volumes.append(("vcenter", "/etc/hostler/vcenter", login))
    if wanted.asks_vcenter and wanted.ca:
        volumes.append(("vcenter-ca", "/etc/ssl/vcenter-ca", {"configMap": {"name": wanted.ca}}))
    return volumes


def _container(wanted: Wanted) -> Json:
    ports: list[Json] = [{"name": "http", "containerPort": 8080}]
    if "reclaim" in wanted.on:
        ports.append({"name": "hub", "containerPort": 8090})
    if wanted.serves_webhooks:
        ports.append({"name": _HOOKS.PORT_NAME, "containerPort": _HOOKS.PORT})
    mounts = [{"name": name, "mountPath": path, "readOnly": True} for name, path, _ in _volumes(wanted)]
    return {
        "name": "hostler",
        "image": wanted.image,
        "imagePullPolicy": "IfNotPresent",
        "args": ["run"],
        "envFrom": [{"configMapRef": {"name": f"{wanted.account.name}-settings"}}],
        "env": list(_variables(wanted)),
        "ports": ports,
        **PROBES,
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
        },
        **({"volumeMounts": mounts} if mounts else {}),
    }  # fmt: skip


def _variables(wanted: Wanted) -> Iterator[Json]:
    for name, path in (
        ("HOSTLER_OPERATOR_NAMESPACE", "metadata.namespace"),
        ("HOSTLER_POD_NAME", "metadata.name"),
        ("HOSTLER_NODE_NAME", "spec.nodeName"),
    ):
        yield {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
    if wanted.asks_vcenter:
        host = {"secretKeyRef": {"name": wanted.vcenter, "key": "VCENTER_HOST"}}
        yield {"name": "VCENTER_HOST", "valueFrom": host}
        yield {"name": "VCENTER_USER_FILE", "value": "/etc/hostler/vcenter/VCENTER_USER"}
        yield {"name": "VCENTER_PASSWORD_FILE", "value": "/etc/hostler/vcenter/VCENTER_PASSWORD"}
        if wanted.ca:
            yield {"name": "VCENTER_CA_BUNDLE", "value": "/etc/ssl/vcenter-ca/ca.pem"}


def _affinity(wanted: Wanted) -> Json:
    """Off the nodes it may empty, so that it never drains itself; and the replicas on different nodes."""
    affinity: Json = {
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{
                "weight": 100,
                "podAffinityTerm": {
                    "topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": wanted.selector},
                },
            }]
        }
    }  # fmt: skip
    if "maintenance" in wanted.on:
        key, equals, value = wanted.label.partition("=")
        not_there = {"operator": "NotIn", "values": [value]} if equals else {"operator": "DoesNotExist"}
        term = {"matchExpressions": [{"key": key, **not_there}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        affinity["nodeAffinity"] = required
    return affinity
