"""Nodes of the old cluster in our own text, and what is left of its control plane without one of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from hostler.host.holds import Hold as Held
from hostler.host.holds import held_by
from hostler.kube.records import CONTROL_PLANE, Node
from hostler.reclaim.model import ControlPlane, Leaving, SpokeNode
from hostler.reclaim.quoting import is_name, word_or_quote
from hostler.reclaim.reach import known_addresses
from hostler.uuids import normalise

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
        ready=any(one.type == "Ready" and one.status == "True" for one in node.status.conditions),
        hostname_label=hostname if is_name(hostname) else "",
        held=isinstance(held_by(node, HOLDER), Held),
        provider_id=word_or_quote(node.spec.provider_id),
        addresses=known_addresses(one.address for one in node.status.addresses if one.type == "InternalIP"),
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
