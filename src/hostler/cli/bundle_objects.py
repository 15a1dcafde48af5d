"""Which objects go into a bundle: of every capability that is on, each kind that it may list by its own rights."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hostler.capabilities import CAPABILITIES
from hostler.install.grants import rights_of
from hostler.install.rights import ANYWHERE, OWN, Right

if TYPE_CHECKING:
    from hostler.kube.client import Client

# Secrets stay with their owner; nodes, events and the operator's pods are in every bundle, the history comes from the
# operator. All pods and endpoints of a large cluster, or the definitions of its kinds, would be most of it.
LEFT_OUT = frozenset({
    "secrets", "nodes", "pods", "events", "events.events.k8s.io", "fleets.hostler.dev", "pauses.hostler.dev",
    "customresourcedefinitions.apiextensions.k8s.io", "endpointslices.discovery.k8s.io", "configmaps",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Listing:
    """One kind in one place: `resource` as RBAC spells it, `namespace` empty for all of them."""

    resource: str
    namespace: str

    @property
    def file(self) -> str:
        return f"objects/{self.resource}{f'-{self.namespace}' if self.namespace else ''}.json"


def listings_of(on: Collection[str], own_namespace: str) -> list[Listing]:
    """Of these capabilities, each once. A kind that is listed everywhere is not listed in a namespace again."""
    rights = [right for one in CAPABILITIES if one.name in on for right in rights_of(one)]
    found = set(_listings(rights, own_namespace))
    everywhere = {listing.resource for listing in found if not listing.namespace}
    kept = [listing for listing in found if not listing.namespace or listing.resource not in everywhere]
    return sorted(kept, key=lambda listing: (listing.resource, listing.namespace))


def _listings(rights: Collection[Right], own_namespace: str) -> Iterator[Listing]:
    for right in rights:
        if "list" in right.verbs and "/" not in right.resource and right.resource not in LEFT_OUT and not right.names:
            namespace = own_namespace if right.namespace == OWN else right.namespace
            yield Listing(right.resource, "" if right.namespace == ANYWHERE else namespace)


async def read_objects(client: Client, listing: Listing) -> list[dict[str, Any]]:
    """All of them, in the version that this API server prefers. NotFound: the kind is not installed."""
    import msgspec

    from hostler.kube.kinds import Kind

    plural, _, group = listing.resource.partition(".")
    version = "v1"
    if group:
        served = msgspec.json.decode(await client.request("GET", f"/apis/{group}"))
        version = served["preferredVersion"]["version"]
    kind = Kind(group, version, plural, plural, bool(listing.namespace))
    return await client.list(kind, listing.namespace or None, type=dict[str, Any])
