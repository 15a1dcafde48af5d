"""Which hosts an Agent reaches: the clusters its namespace may act in, and the one node that is its own machine. Pure.

Whoever may write an Agent chooses its name, its binding, and often its status with the inventory. So the namespace is
the border: an Agent acts only in clusters of its own namespace, unless an administrator or the cluster's owner said
otherwise. Within it the proof of the machine keeps one host from being taken for another.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable
from enum import StrEnum

from hostler.reclaim.model import Host, SpokeNode
from hostler.uuids import normalise, same_uuid


class Proof(StrEnum):
    """What shows that an Agent and a Node are one machine; or that they are not."""

    SYSTEM_UUID = "SystemUUID"
    ADDRESS = "Address"
    NONE = "None"
    CONTRADICTED = "Contradicted"


def allowed_namespaces(cluster: str, agents_from: str, inventories: Collection[str]) -> frozenset[str]:
    """Namespaces whose Agents may act in a cluster: that of its ClusterDeployment, those its annotation names, and
    those the operator's setting names."""
    named = (one.strip() for one in agents_from.split(","))
    return frozenset({cluster, *(one for one in named if one), *inventories})


def prove_machine(host: Host, node: SpokeNode) -> Proof:
    """Compare the system UUIDs, in both byte orders; addresses count only where a UUID is missing on one side."""
    own = [one for one in (host.name, host.system_uuid) if normalise(one) is not None]
    if own and normalise(node.system_uuid) is not None:
        same = all(same_uuid(one, node.system_uuid) for one in own)
        return Proof.SYSTEM_UUID if same else Proof.CONTRADICTED
    return Proof.ADDRESS if node.addresses & host.addresses else Proof.NONE


def known_addresses(texts: Iterable[str]) -> frozenset[str]:
    """Addresses in one spelling, without their prefix length; those that many machines have are left out."""
    found = set()
    for text in texts:
        try:
            address = ipaddress.ip_address(text.partition("/")[0].partition("%")[0].strip())
        except ValueError:
            continue
        mapped = getattr(address, "ipv4_mapped", None)
        address = mapped if mapped is not None else address
        if not (address.is_loopback or address.is_link_local or address.is_unspecified or address.is_multicast):
            found.add(str(address))
    return frozenset(found)
