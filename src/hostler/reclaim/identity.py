"""Which hosts an Agent reaches: the clusters its namespace may act in, and the one node that is its own machine. Pure.

A user who may write an Agent chooses its name, its binding, and often its status with the inventory. So the namespace
is the border: an Agent acts only in clusters of its own namespace, unless an administrator or the cluster's owner said
otherwise. Within it the proof of the machine keeps one host from being taken for another.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable
from enum import StrEnum
from uuid import UUID

from hostler.host.holds import Hold as Held
from hostler.host.holds import held_by
from hostler.kube.records import CONTROL_PLANE, Node
from hostler.reclaim.model import ControlPlane, Host, Leaving, SpokeNode
from hostler.reclaim.quoting import is_name, word_or_quote
from hostler.uuids import normalise, same_uuid, swapped


class Proof(StrEnum):
    """What shows that an Agent and a Node are one machine; or that they are not."""

    SYSTEM_UUID = "SystemUUID"
    ADDRESS = "Address"
    NONE = "None"
    CONTRADICTED = "Contradicted"


def allowed_namespaces(cluster: str, agents_from: str, inventories: Collection[str]) -> frozenset[str]:
    """Namespaces whose Agents may act in a cluster: that of its ClusterDeployment, those its annotation names, and
    those the operator's setting names."""
    named = (name.strip() for name in agents_from.split(","))
    return frozenset({cluster, *(name for name in named if name), *inventories})


def prove_machine(host: Host, node: SpokeNode) -> Proof:
    """Compare the system UUIDs, in both byte orders; where they say nothing, the addresses.

    An Agent's name is the MD5 of the motherboard's serial number where there is one, then the system UUID, then the
    MD5 of a MAC address. So an equal name proves the machine, and another name says nothing.
    """
    if normalise(node.system_uuid) is not None:
        if normalise(host.system_uuid) is not None and not same_uuid(host.system_uuid, node.system_uuid):
            return Proof.CONTRADICTED
        if same_uuid(host.name, node.system_uuid) or same_uuid(host.system_uuid, node.system_uuid):
            return Proof.SYSTEM_UUID
        if host.spoke.namesake:  # it took over name and address of this Agent's machine
            return Proof.CONTRADICTED
    return Proof.ADDRESS if node.addresses & host.addresses else Proof.NONE


def agent_names(system_uuid: str) -> tuple[str, ...]:
    """The names that an Agent has which is named by this system UUID, in both byte orders."""
    digits = normalise(system_uuid)
    return () if digits is None else tuple(str(UUID(hex=spelling)) for spelling in (digits, swapped(digits)))


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


MACHINES = ("machine.openshift.io/machine", "cluster.x-k8s.io/machine")
HOLDER = "reclaim"


def spoke_node(node: Node) -> SpokeNode:
    """A Node of the old cluster in our own text. The owner of that cluster wrote it: its text is bounded here, once."""
    labels, notes = node.metadata.labels, node.metadata.annotations
    boot_id, uid, hostname = node.status.node_info.boot_id, node.metadata.uid, labels.get("kubernetes.io/hostname", "")
    return SpokeNode(
        name=node.metadata.name if is_name(node.metadata.name) else "",
        uid=uid if is_name(uid) else "",
        system_uuid=normalise(node.status.node_info.system_uuid) or "",
        boot_id=boot_id if is_name(boot_id) else "",
        control_plane=any(role in labels for role in CONTROL_PLANE),
        machine=next((word_or_quote(notes[name]) for name in MACHINES if notes.get(name)), ""),
        ready=any(condition.type == "Ready" and condition.status == "True" for condition in node.status.conditions),
        hostname_label=hostname if is_name(hostname) else "",
        held=isinstance(held_by(node, HOLDER), Held),
        provider_id=word_or_quote(node.spec.provider_id),
        addresses=known_addresses(address.address for address in node.status.addresses if address.type == "InternalIP"),
    )


def control_plane_without(own: str, nodes: Iterable[SpokeNode], leaving: Leaving) -> ControlPlane:
    """What is left of a cluster's control plane without one of its nodes."""
    nodes = tuple(nodes)
    masters = [node for node in nodes if node.control_plane]
    ready = [node.name for node in masters if node.ready and node.name != own]
    stay = [name for name in ready if name not in leaving.agents]
    workers = tuple(sorted(node.name for node in nodes if not node.control_plane and node.name in leaving.busy))
    others = tuple(sorted(leaving.agents[name] for name in ready if name in leaving.agents))
    return ControlPlane(len(masters), len(stay), workers, others)
