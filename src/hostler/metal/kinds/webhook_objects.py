"""The objects that send requests to metal's webhooks: a Service, two configurations, the conversion of nine CRDs. Pure.

The one place where they are described, for the chart, `hostler manifests` and the components of `clusterctl`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hostler.apis.metal3 import GROUP

Json = dict[str, Any]

STORED, OLDER = "v1beta2", "v1beta1"  # Hostler reads and writes the first only
VERSIONS = (STORED, OLDER)
# Every kind of the provider, by its plural.
KINDS: Mapping[str, str] = {
    "metal3clusters": "Metal3Cluster",
    "metal3clustertemplates": "Metal3ClusterTemplate",
    "metal3dataclaims": "Metal3DataClaim",
    "metal3datas": "Metal3Data",
    "metal3datatemplates": "Metal3DataTemplate",
    "metal3machines": "Metal3Machine",
    "metal3machinetemplates": "Metal3MachineTemplate",
    "metal3remediations": "Metal3Remediation",
    "metal3remediationtemplates": "Metal3RemediationTemplate",
}
DEFINITIONS = tuple(f"{plural}.{GROUP}" for plural in KINDS)
DEFAULTED = ("metal3clusters", "metal3remediationtemplates")  # for the others there is nothing to fill in

SERVICE, SERVICE_PORT = "hostler-webhook-service", 443
PORT, PORT_NAME = 9443, "webhooks"  # of the container
MUTATING, VALIDATING = "hostler-mutating-webhook-configuration", "hostler-validating-webhook-configuration"
MUTATE, VALIDATE, CONVERT = "/mutate", "/validate", "/convert"
SECRET_NAME = "hostler-webhook-cert"  # nosec B105 # the name of a Secret
# What turns them on in a container.
ENVIRONMENT: Mapping[str, str] = {
    "HOSTLER_METAL_WEBHOOKS": "true", "HOSTLER_METAL_WEBHOOKS_ADDRESS": f":{PORT}",
}  # fmt: skip
TIMEOUT_SECONDS = 10
KEPT = "cluster.x-k8s.io/conversion-data"  # annotation: what conversion keeps of the other version


def _annotation(thing: str) -> str:
    """CEL: the annotation of this object, or nothing."""
    return (
        f"(has({thing}.metadata.annotations) && '{KEPT}' in {thing}.metadata.annotations "
        f"? {thing}.metadata.annotations['{KEPT}'] : '')"
    )


# Every rule is about `spec` and that annotation. An update of anything else (finalizers, labels, owners) is not sent to
# us: it costs nothing, and machines can be deleted while no replica runs.
CHANGED = (
    "request.operation == 'CREATE' || !has(object.spec) || !has(oldObject.spec) || object.spec != oldObject.spec || "
    f"{_annotation('object')} != {_annotation('oldObject')}"
)


def webhook_configurations(namespace: str, labels: Mapping[str, str] | None = None) -> tuple[Json, Json]:
    """The mutating and the validating configuration. The operator itself fills in `caBundle`."""
    return (
        _configuration("Mutating", MUTATING, "default", MUTATE, DEFAULTED, namespace, labels or {}),
        _configuration("Validating", VALIDATING, "validation", VALIDATE, tuple(KINDS), namespace, labels or {}),
    )


def conversion_of(namespace: str) -> Json:
    """`spec.conversion` of each of the nine CRDs. The operator itself fills in `caBundle`."""
    client = {"service": _service(namespace, CONVERT)}
    return {"strategy": "Webhook", "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]}}


def webhook_service(namespace: str, selector: Mapping[str, str], labels: Mapping[str, str] | None = None) -> Json:
    """The Service before every replica; `selector`: the labels of their pods."""
    port = {"name": PORT_NAME, "port": SERVICE_PORT, "targetPort": PORT_NAME, "appProtocol": "https"}
    return {
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": SERVICE, "namespace": namespace, "labels": labels or {}},
        "spec": {"selector": selector, "ports": [port]},
    }  # fmt: skip


def _service(namespace: str, path: str) -> Json:
    return {"namespace": namespace, "name": SERVICE, "port": SERVICE_PORT, "path": path}


def _configuration(
    how: str,
    name: str,
    prefix: str,
    path: str,
    plurals: tuple[str, ...],
    namespace: str,
    labels: Mapping[str, str],
) -> Json:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": f"{how}WebhookConfiguration",
        "metadata": {"name": name, "labels": labels},
        "webhooks": [
            {
                "name": f"{prefix}.{KINDS[plural].lower()}.{GROUP}",
                "admissionReviewVersions": ["v1"],
                "clientConfig": {"service": _service(namespace, path)},
                "failurePolicy": "Fail",
                "matchPolicy": "Equivalent",
                "sideEffects": "None",
                "timeoutSeconds": TIMEOUT_SECONDS,
                "matchConditions": [{"name": "what-is-judged-changed", "expression": CHANGED}],
                # Not of `/status`: what the operator reports is never held up by its own webhook.
                "rules": [{
                    "apiGroups": [GROUP], "apiVersions": list(VERSIONS), "operations": ["CREATE", "UPDATE"],
                    "resources": [plural], "scope": "Namespaced",
                }],
            }
            for plural in plurals
        ],
    }  # fmt: skip
