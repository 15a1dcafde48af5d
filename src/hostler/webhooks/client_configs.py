"""Where the API server sends its requests: the `clientConfig`s of webhook configurations and CRDs. Pure.

Only such as point at our Service are ever touched, or at a port of ours on the API server's own machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from hostler.kube.kinds import CUSTOM_RESOURCE_DEFINITION, Kind

Json = dict[str, Any]
_ADMISSION = "admissionregistration.k8s.io"
MUTATING = Kind(_ADMISSION, "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", False)
VALIDATING = Kind(_ADMISSION, "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", False)
LOOPBACK = ("127.0.0.1", "::1", "localhost")
# cert-manager fills in the bundle of what carries it.
INJECTED = ("cert-manager.io/inject-ca-from", "cert-manager.io/inject-ca-from-secret")


@dataclass(frozen=True, slots=True)
class Target:
    """An object that sends requests: a webhook configuration or a CRD."""

    kind: Kind
    name: str

    def __str__(self) -> str:
        return f"{self.kind.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class Place:
    """Where our server is reached. `port`: of this very process, for an API server on the same machine."""

    service: str
    namespace: str
    port: int

    def is_ours(self, client: Any) -> bool:
        if not isinstance(client, Mapping):
            return False
        service, url = client.get("service"), client.get("url")
        if isinstance(service, Mapping):
            return (service.get("namespace"), service.get("name")) == (self.namespace, self.service)
        if not isinstance(url, str):
            return False
        try:
            parts = urlsplit(url)
            return parts.hostname in LOOPBACK and parts.port == self.port
        except ValueError:
            return False


def clients_in(target: Target, thing: Json) -> Iterator[tuple[str, Json]]:
    """Each `clientConfig` of the object with its JSON pointer."""
    if target.kind == CUSTOM_RESOURCE_DEFINITION:
        webhook = ((thing.get("spec") or {}).get("conversion") or {}).get("webhook") or {}
        if client := webhook.get("clientConfig"):
            yield "/spec/conversion/webhook/clientConfig", client
        return
    for number, webhook in enumerate(thing.get("webhooks") or ()):
        if client := webhook.get("clientConfig"):
            yield f"/webhooks/{number}/clientConfig", client


def is_injected(thing: Json) -> bool:
    annotations = (thing.get("metadata") or {}).get("annotations") or {}
    return any(name in annotations for name in INJECTED)


def bundle_patch(target: Target, thing: Json, place: Place, bundle: str) -> list[Json]:
    """The JSON patch that puts `bundle` (base64) where requests go to us; empty: it is there, or none go to us.

    It holds only for the version that was looked at: nobody else's CA is replaced by mistake.
    """
    ours = [(at, client) for at, client in clients_in(target, thing) if place.is_ours(client)]
    changes = [
        {"op": "add", "path": f"{at}/caBundle", "value": bundle}
        for at, client in ours
        if client.get("caBundle") != bundle
    ]
    if not changes:
        return []
    version = (thing.get("metadata") or {}).get("resourceVersion", "")
    return [{"op": "test", "path": "/metadata/resourceVersion", "value": version}, *changes]
