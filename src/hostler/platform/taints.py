"""What is done about the taint of one node that waits for a cloud provider. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from hostler.host.conditions import names
from hostler.host.facts import Fact, Known, Unknown
from hostler.host.platform import UNINITIALIZED, Class
from hostler.kube.kinds import NODE
from hostler.platform.model import News, PlacedNode, Verb, Write

# Schemes of providerIDs behind which no cloud provider stands that initialises nodes.
NO_CLOUD = frozenset(("agent", "baremetalhost", "byoh", "kind", "kwok", "maas", "metal3", "sidero", "tinkerbell"))


@dataclass(frozen=True, slots=True)
class TaintVerdict:
    """Whether a node's taint is taken away: the JSON patch, or nothing and why."""

    patch: tuple[dict[str, Any], ...] | None
    why: str

    def writes(self, node: str) -> tuple[Write, ...]:
        if self.patch is None:
            return ()
        news = News("Normal", "TaintRemoved", f"The taint {UNINITIALIZED} was taken away: {self.why}.")
        return (Write(Verb.PATCH, NODE, node, self.why, body=self.patch, news=news),)


def waits_for_provider(one: PlacedNode) -> bool:
    """Whether it has the taint that its cloud provider takes away."""
    return any(taint.key == UNINITIALIZED for taint in one.node.spec.taints)


def other_clouds(nodes: Iterable[PlacedNode]) -> list[str]:
    """Clouds beside vSphere that have nodes here: their providers may initialise further ones."""
    return sorted({one.found.platform for one in nodes if one.found.kind is Class.OTHER} - NO_CLOUD)


def decide_taint(
    one: PlacedNode, in_none: Fact[bool], *, wanted: bool, clouds: Sequence[str] = ()
) -> TaintVerdict | None:
    """A foreign node waits for a cloud provider that will never come: take its taint away. None: it has no taint.

    Only where every vCenter was asked and has no such VM, and no other cloud (`clouds`) has nodes here: a node that a
    cloud provider will initialise keeps it.
    """
    found = [number for number, taint in enumerate(one.node.spec.taints) if taint.key == UNINITIALIZED]
    if not found:
        return None
    if one.found.kind is not Class.FOREIGN:
        return TaintVerdict(None, f"its taint stays: {one.found.why}")
    if not wanted:
        return TaintVerdict(None, "its taint stays: HOSTLER_PLATFORM_REMOVE_TAINT is off")
    if clouds:
        return TaintVerdict(None, f"its taint stays: there are nodes of {names(clouds)}, whose provider may yet come")
    match in_none:
        case Unknown(why):
            return TaintVerdict(None, f"its taint stays: {why}")
        case Known(False):
            return TaintVerdict(None, "its taint stays: it is a VM in vCenter, and its cloud provider may yet come")
    at, meta = f"/spec/taints/{found[0]}", one.node.metadata
    # The version: a providerID that was written a moment ago means that a cloud provider will initialise the node.
    patch = (
        {"op": "test", "path": "/metadata/uid", "value": meta.uid},
        {"op": "test", "path": "/metadata/resourceVersion", "value": meta.resource_version},
        {"op": "test", "path": f"{at}/key", "value": UNINITIALIZED},
        {"op": "remove", "path": at},
    )
    return TaintVerdict(patch, "no cloud provider will initialise it: it has no providerID and is in no vCenter")
