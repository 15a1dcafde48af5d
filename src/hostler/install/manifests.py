"""What an operator needs in a cluster, with Helm or without it: the one place where its objects are described.

`hostler manifests` prints them; `make chart` writes the chart's templates from them (hostler.ship.templates). Rights
and CRD have tables of their own. What is optional in the chart, and off, is the chart's alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

from hostler import __version__
from hostler.capabilities import BY_NAME
from hostler.capabilities import SETTINGS as ALL_SETTINGS
from hostler.explain.callers import READER
from hostler.install.admission import BINDING, BINDING_SPEC, POLICIES, POLICY
from hostler.install.blueprint import FromValues, Value, Wanted, When, filled
from hostler.install.crd import definitions
from hostler.install.grants import rights_for
from hostler.install.people import people_roles
from hostler.install.roles import roles
from hostler.safety.switches import load_part

Json = dict[str, Any]
Blueprint = dict[Any, Any]


def manifests(wanted: Wanted) -> Iterator[Json]:
    """In the order in which they can be applied."""
    yield from definitions().values()
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": wanted.account.namespace}}
    yield from roles(rights_for(wanted.on), wanted.account, openshift=wanted.openshift)
    name = wanted.account.name
    yield from people_roles(name, lease=wanted.account.lease, service=f"{name}:http")
    for described in TEMPLATES.values():
        yield from filter(None, (filled(one, wanted) for one in described))


# -- values: what Helm puts there, and what is there without it


def _by_default(name: str, value: Any, *, lines: bool = False) -> Value:
    """A value of the chart; without Helm it is as in values.yaml."""
    return Value(f"{'toYaml ' if lines else ''}.Values.{name}", lambda _: value, lines)


def _named(ending: str = "") -> Value:
    helm = f'printf "%s{ending}" (include "hostler.name" .)' if ending else 'include "hostler.name" .'
    return Value(helm, lambda wanted: f"{wanted.account.name}{ending}")


def _selector(wanted: Wanted) -> Json:
    return {"app.kubernetes.io/name": "hostler", "app.kubernetes.io/instance": wanted.account.name}


def _labels(wanted: Wanted) -> Json:
    return {
        **_selector(wanted), "app.kubernetes.io/version": __version__, "app.kubernetes.io/part-of": "hostler",
    }  # fmt: skip


NAMESPACE = Value(".Release.Namespace | quote", lambda wanted: wanted.account.namespace)
ACCOUNT = Value('include "hostler.serviceAccount" . | quote', lambda wanted: wanted.account.name)
LABELS = Value('include "hostler.labels" .', _labels, lines=True)
SELECTOR = Value('include "hostler.selector" .', _selector, lines=True)
IMAGE = Value('include "hostler.image" . | quote', lambda wanted: wanted.image)
SETTINGS = Value('include "hostler.settings" .', lambda wanted: wanted.settings, lines=True)
LOGIN = Value('include "hostler.vcenterSecret" . | quote', lambda wanted: wanted.vcenter)
CA = Value(".Values.vcenter.caBundle.configMapName | quote", lambda wanted: wanted.ca)
CA_FOLDER = Value(".Values.vcenter.caBundle.mountPath | quote", lambda _: "/etc/ssl/vcenter-ca")
CA_FILE = Value(
    'printf "%s/%s" (trimSuffix "/" .Values.vcenter.caBundle.mountPath) .Values.vcenter.caBundle.key',
    lambda _: "/etc/ssl/vcenter-ca/ca.pem",
)


def _only_chart(helm: str) -> Value:
    """Stands under a condition that only the chart has."""
    return Value(helm, lambda _: "")


# -- conditions

_ON = '(include "hostler.named" . | fromJsonArray)'
NAMES = Value(f'join "," {_ON} | quote', lambda wanted: ",".join(sorted(wanted.on)))
SOMETHING = When(_ON, lambda wanted: wanted.on)
MAINTENANCE = When(f'has "maintenance" {_ON}', lambda wanted: "maintenance" in wanted.on)
RECLAIM = When(f'has "reclaim" {_ON}', lambda wanted: "reclaim" in wanted.on)
_HOOKS = load_part("hostler.metal.kinds.webhook_objects")  # its code is named, not imported: it is a capability's
# Not in a dry run: it keeps no certificate, so the API server would refuse every write of Metal3's kinds.
WEBHOOKS = When(
    f'and (has "metal" {_ON}) (not .Values.dryRun) '
    '(eq (get (.Values.settings | default dict) "HOSTLER_METAL_WEBHOOKS" | toString) "true")',
    lambda wanted: (
        "metal" in wanted.on
        and wanted.settings.get("DRY_RUN") != "true"
        and wanted.settings.get("HOSTLER_METAL_WEBHOOKS") == "true"
    ),
)
HISTORY = When(".Values.history.existingSecret")
HISTORY_SECRET = _only_chart(".Values.history.existingSecret | quote")
NOT_OPENSHIFT = When("not .Values.openshift", lambda wanted: not wanted.openshift)


def _asks(wanted: Wanted) -> bool:
    return bool(wanted.vcenter) and any(BY_NAME[name].asks_vcenters for name in wanted.on)


_ASKS = '(include "hostler.asks" .)'
ONE_VCENTER = When(f'and {_ASKS} (include "hostler.vcenterSecret" .)', _asks)
MANY_VCENTERS = When(f"and {_ASKS} .Values.vcenter.vcentersSecret")
OWN_CA = When(f"and {_ASKS} .Values.vcenter.caBundle.configMapName", lambda wanted: _asks(wanted) and wanted.ca)
PUBLIC_CA = When(f"and {_ASKS} .Values.vcenter.tlsVerify (not .Values.vcenter.caBundle.configMapName)")
FINGERPRINTS = When(f"and {_ASKS} .Values.vcenter.certificateSha256")
HUB_TLS = When(f"and ({RECLAIM.helm}) .Values.hub.tlsSecret")
WEB_LOGIN = When(".Values.web.sessionSecret")
HUB_CA = When(f"and ({RECLAIM.helm}) .Values.hub.caBundle.configMapName")

# The nodes that maintenance may empty.
_DEFAULT_LABEL = next(one.default for one in ALL_SETTINGS if one.name == "GPU_NODE_LABEL")
LABEL = f'get (.Values.settings | default dict) "GPU_NODE_LABEL" | default "{_DEFAULT_LABEL}"'
_LABEL = '(include "hostler.label" .)'
# KEY or KEY=VALUE. From any other selector the chart cannot tell where it may run: then the values say it.
PLAIN = "^([a-z0-9.-]+/)?[A-Za-z0-9._-]+(=[A-Za-z0-9._-]*)?$"
PLAIN_LABEL = f'regexMatch "{PLAIN}" {_LABEL}'
LABEL_WITH_VALUE = When(f'contains "=" {_LABEL}', lambda wanted: "=" in wanted.label)
LABEL_WITHOUT = When(f'not (contains "=" {_LABEL})', lambda wanted: "=" not in wanted.label)


def _label(part: int) -> Value:
    return Value(f'(splitn "=" 2 {_LABEL})._{part} | quote', lambda wanted: wanted.label.split("=", 1)[part])


# -- the objects


def _object(version: str, kind: str, ending: str = "", **metadata: Any) -> Blueprint:
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": _named(ending), "namespace": NAMESPACE, "labels": LABELS, **metadata},
    }


SERVICE_ACCOUNT = {
    When(".Values.serviceAccount.create", lambda _: True): _object(
        "v1", "ServiceAccount", name=ACCOUNT, annotations=FromValues("serviceAccount.annotations")
    )
}

# Whose tokens people bring to the operator. It has no rights, and no pod runs as it.
READER_ACCOUNT = {
    When(".Values.rbac.people", lambda _: True): {
        **_object("v1", "ServiceAccount", name=READER), "automountServiceAccountToken": False,
    }
}  # fmt: skip

CONFIG_MAP = {
    **_object("v1", "ConfigMap", "-settings"),
    "data": {
        "DRY_RUN": Value(".Values.dryRun | quote", lambda _: "false"),
        "HOSTLER_LOG_FORMAT": "json",
        "HOSTLER_LOG_LEVEL": _by_default("logLevel", "info"),
        "HOSTLER_HTTP_ADDRESS": ":8080",
        "HOSTLER_METRICS_AUTHENTICATION": Value(".Values.metrics.authentication | quote", lambda _: "true"),
        "HOSTLER_SERVICE": _named(),
        WEB_LOGIN: {"HOSTLER_WEB_AUTH": "kubernetes", "HOSTLER_WEB_KEY_FILE": "/etc/hostler/web/key"},
        SOMETHING: {"HOSTLER_ONLY": NAMES},
        RECLAIM: {
            "HOSTLER_HUB_ADDRESS": ":8090",
            When('include "hostler.hubURL" .'): {"HUB_URL": _only_chart('include "hostler.hubURL" . | quote')},
            When(".Values.hub.plainHTTP"): {"HOSTLER_HUB_PLAIN_HTTP": "true"},
            When(".Values.hub.caBundle.configMapName"): {
                "HUB_CA": _only_chart('printf "/etc/ssl/hub-ca/%s" .Values.hub.caBundle.key')
            },
            When(".Values.hub.tlsSecret"): {
                "HOSTLER_HUB_CERTIFICATE": "/etc/hostler/hub/tls.crt",
                "HOSTLER_HUB_KEY": "/etc/hostler/hub/tls.key",
            },
        },
        WEBHOOKS: {"HOSTLER_METAL_WEBHOOKS_ADDRESS": _HOOKS.ENVIRONMENT["HOSTLER_METAL_WEBHOOKS_ADDRESS"]},
        SETTINGS: ...,
    },
}

CHECKSUM = Value(
    'include (print .Template.BasePath "/settings.yaml") . | sha256sum',
    lambda wanted: sha256(json.dumps(filled(CONFIG_MAP, wanted)["data"]).encode()).hexdigest(),
)

SERVICE = {
    **_object("v1", "Service"),
    "spec": {
        "clusterIP": "None",  # each replica has metrics of its own, so nobody wants one of them at random
        "publishNotReadyAddresses": True,  # why one is not ready is asked of it, by the same way
        "selector": SELECTOR,
        "ports": [{"name": "http", "port": 8080, "targetPort": "http"}],
    },
}

HUB_SERVICE = {
    RECLAIM: {
        **_object(
            "v1", "Service", "-hub", labels={LABELS: ..., "app.kubernetes.io/component": "hub"},
            annotations=FromValues("hub.service.annotations"),
        ),
        "spec": {
            "type": _by_default("hub.service.type", "ClusterIP"),
            "selector": SELECTOR,
            "ports": [{
                "name": "hub", "port": _by_default("hub.service.port", 8090), "targetPort": "hub",
                "appProtocol": Value('ternary "https" "http" (ne .Values.hub.tlsSecret "")', lambda _: "http"),
            }],
        },
    }
}  # fmt: skip

# Their names are the same in every cluster: the operator may only fill in the CA of these.
WEBHOOK_OBJECTS = tuple(
    {WEBHOOKS: made}
    for made in (
        _HOOKS.webhook_service(NAMESPACE, SELECTOR, LABELS), *_HOOKS.webhook_configurations(NAMESPACE, LABELS)
    )
)  # fmt: skip

BUDGET = {
    When(".Values.podDisruptionBudget.enabled", lambda _: True): {
        **_object("policy/v1", "PodDisruptionBudget"),
        "spec": {
            "maxUnavailable": _by_default("podDisruptionBudget.maxUnavailable", 1),
            # A replica that is not ready keeps nobody from draining its node.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": SELECTOR},
        },
    }
}


def _from_field(name: str, path: str) -> Json:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


ENVIRONMENT = [
    _from_field("HOSTLER_OPERATOR_NAMESPACE", "metadata.namespace"),
    _from_field("HOSTLER_POD_NAME", "metadata.name"),
    _from_field("HOSTLER_NODE_NAME", "spec.nodeName"),
    (
        ONE_VCENTER,
        {
            "name": "VCENTER_HOST",
            When(".Values.vcenter.host"): {"value": _only_chart(".Values.vcenter.host | quote")},
            When("not .Values.vcenter.host", lambda _: True): {
                "valueFrom": {"secretKeyRef": {"name": LOGIN, "key": "VCENTER_HOST"}}
            },
        },
        {"name": "VCENTER_USER_FILE", "value": "/etc/hostler/vcenter/VCENTER_USER"},
        {"name": "VCENTER_PASSWORD_FILE", "value": "/etc/hostler/vcenter/VCENTER_PASSWORD"},
    ),
    (MANY_VCENTERS, {"name": "VCENTERS_FILE", "value": "/etc/hostler/vcenters/vcenters.yaml"}),
    (OWN_CA, {"name": "VCENTER_CA_BUNDLE", "value": CA_FILE}),
    (PUBLIC_CA, {"name": "VCENTER_TLS_VERIFY", "value": "true"}),
    (
        FINGERPRINTS,
        {
            "name": "VCENTER_CERTIFICATE_SHA256",
            "value": _only_chart('join "," .Values.vcenter.certificateSha256 | quote'),
        },
    ),
    (
        HISTORY,
        {"name": "HOSTLER_HISTORY_URL", "valueFrom": {"secretKeyRef": {"name": HISTORY_SECRET, "key": "url"}}},
    ),
    FromValues("extraEnv"),
]


def _secret(name: Value) -> Blueprint:
    return {"secret": {"secretName": name, "defaultMode": 0o440}}


def _config_map(name: Value) -> Blueprint:
    return {"configMap": {"name": name}}


# When there is one, its name, where it is mounted, what it is.
VOLUMES = (
    (ONE_VCENTER, "vcenter", "/etc/hostler/vcenter", _secret(LOGIN)),
    (
        MANY_VCENTERS,
        "vcenters",
        "/etc/hostler/vcenters",
        _secret(_only_chart(".Values.vcenter.vcentersSecret | quote")),
    ),
    (HISTORY, "history", "/etc/hostler/history", _secret(HISTORY_SECRET)),  # for the files of its TLS options
    (OWN_CA, "vcenter-ca", CA_FOLDER, _config_map(CA)),
    (HUB_TLS, "hub", "/etc/hostler/hub", _secret(_only_chart(".Values.hub.tlsSecret | quote"))),
    (WEB_LOGIN, "web", "/etc/hostler/web", _secret(_only_chart(".Values.web.sessionSecret | quote"))),
    (HUB_CA, "hub-ca", "/etc/ssl/hub-ca", _config_map(_only_chart(".Values.hub.caBundle.configMapName | quote"))),
)


def _any_or(name: str) -> When:
    """Whether there is a volume, of ours or of the values file."""
    helm = f"or {_ASKS} {HISTORY.helm} ({HUB_TLS.helm}) ({HUB_CA.helm}) {WEB_LOGIN.helm} .Values.{name}"
    return When(helm, _asks)


CONTAINER_SECURITY = {
    "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
}  # fmt: skip
POD_SECURITY = {
    "runAsNonRoot": True,
    # On OpenShift the SCC restricted-v2 gives them, from the namespace's range.
    NOT_OPENSHIFT: {"runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532},
    "seccompProfile": {"type": "RuntimeDefault"},
}


def _merged(own: str, values: str, blueprint: Blueprint) -> Value:
    """Ours, and over it what the values file has under that name."""
    helm = f'mustMergeOverwrite (include "{own}" . | fromYaml) (.Values.{values} | default dict) | toYaml'
    return Value(helm, lambda wanted: filled(blueprint, wanted), lines=True)


CONTAINER = {
    "name": "hostler",
    "image": IMAGE,
    "imagePullPolicy": _by_default("image.pullPolicy", "IfNotPresent"),
    "args": ["run"],
    "envFrom": [{"configMapRef": {"name": _named("-settings")}}],
    "env": ENVIRONMENT,
    "ports": [
        {"name": "http", "containerPort": 8080}, (RECLAIM, {"name": "hub", "containerPort": 8090}),
        (WEBHOOKS, {"name": _HOOKS.PORT_NAME, "containerPort": _HOOKS.PORT}),
    ],
    # Only a loop that stands still is a reason for a restart; an unreachable API server is not.
    "livenessProbe": {
        "httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 20, "timeoutSeconds": 5,
        "failureThreshold": 6,
    },
    "readinessProbe": {"httpGet": {"path": "/readyz", "port": "http"}, "periodSeconds": 5, "timeoutSeconds": 5},
    "resources": _by_default(
        "resources", {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}}, lines=True
    ),
    "securityContext": _merged("hostler.security", "securityContext", CONTAINER_SECURITY),
    _any_or("extraVolumeMounts"): {
        "volumeMounts": [
            *((when, {"name": name, "mountPath": path, "readOnly": True}) for when, name, path, _ in VOLUMES),
            FromValues("extraVolumeMounts"),
        ]
    },
}  # fmt: skip

# Off the nodes it may empty, so that it never drains itself; and the replicas on different nodes.
OWN_AFFINITY = {
    When(f'and ({MAINTENANCE.helm}) (include "hostler.plainLabel" .)', lambda wanted: "maintenance" in wanted.on): {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{
                    "matchExpressions": [{
                        "key": _label(0),
                        LABEL_WITH_VALUE: {"operator": "NotIn", "values": [_label(1)]},
                        LABEL_WITHOUT: {"operator": "DoesNotExist"},
                    }]
                }]
            }
        }
    },
    "podAntiAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [{
            "weight": 100,
            "podAffinityTerm": {
                "topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": SELECTOR},
            },
        }]
    },
}  # fmt: skip
AFFINITY = Value('include "hostler.place" .', lambda wanted: filled(OWN_AFFINITY, wanted), lines=True)

POD = {
    "serviceAccountName": ACCOUNT,
    # A Service called hostler would put HOSTLER_SERVICE_HOST into the pod, which is no setting of ours.
    "enableServiceLinks": False,
    "terminationGracePeriodSeconds": 30,
    "priorityClassName": FromValues("priorityClassName"),
    "imagePullSecrets": FromValues("imagePullSecrets"),
    "securityContext": _merged("hostler.podSecurity", "podSecurityContext", POD_SECURITY),
    "containers": [CONTAINER],
    _any_or("extraVolumes"): {
        "volumes": [
            *((when, {"name": name, **source}) for when, name, _, source in VOLUMES),
            FromValues("extraVolumes"),
        ]
    },
    "nodeSelector": FromValues("nodeSelector"),
    "tolerations": FromValues("tolerations"),
    "topologySpreadConstraints": FromValues("topologySpreadConstraints"),
    "affinity": AFFINITY,
}

DEPLOYMENT = {
    **_object("apps/v1", "Deployment"),
    "spec": {
        "replicas": _by_default("replicas", 2),
        # No lease keeps the new pod waiting until the old one is gone.
        When('include "hostler.alone" .'): {"strategy": {"type": "Recreate"}},
        "selector": {"matchLabels": SELECTOR},
        "template": {
            "metadata": {
                "labels": {LABELS: ..., FromValues("podLabels"): ...},
                # Settings are read at the start: a change of them is a new pod. Of the ConfigMap alone: a hash of the
                # password would let whoever reads pods guess it, and a changed one needs no new pod.
                "annotations": {"checksum/settings": CHECKSUM, FromValues("podAnnotations"): ...},
            },
            "spec": POD,
        },
    },
}

# Their names are the same in every cluster, so that `hostler doctor` finds them.
_SERVED = f'.Capabilities.APIVersions.Has "{POLICY.api_version}/{POLICY.kind}"'
ADMISSION = tuple(
    {
        When(f"and .Values.admissionPolicies.enabled ({_SERVED})", lambda wanted: wanted.policies): {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": policy.name, "labels": LABELS},
            "spec": spec,
        }
    }
    for policy in POLICIES
    for kind, spec in ((POLICY, dict(policy.spec)), (BINDING, {"policyName": policy.name, **BINDING_SPEC}))
)

TEMPLATES: dict[str, tuple[Blueprint, ...]] = {
    "admission.yaml": ADMISSION,
    "serviceaccount.yaml": (SERVICE_ACCOUNT, READER_ACCOUNT),
    "settings.yaml": (CONFIG_MAP,),
    "services.yaml": (SERVICE, HUB_SERVICE, BUDGET),
    "deployment.yaml": (DEPLOYMENT,),
    "webhooks.yaml": WEBHOOK_OBJECTS,
}
