"""What is written on a Node: always one merge patch that carries the version it was decided on. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from hostler.host.holds import MAINTENANCE, Nothing, Patch, Refusal, place, release
from hostler.host.taints import out_of_service_patch
from hostler.instant import Instant
from hostler.kube.records import Node
from hostler.maintenance.announcing import announced, taken_back, told_machine
from hostler.maintenance.model import HOST, SINCE, STATE, PatchNode, State, cleared, stamp


def hold_why(host: str) -> str:
    return f"ESXi host {host} goes into maintenance"


def moved(
    node: Node,
    after: State,
    host: str,
    now: Instant,
    why: str,
    *,
    event: str,
    also: Mapping[str, str | None] | None = None,
    warning: bool = False,
    machine: str = "",
) -> PatchNode | Refusal:
    """Hold, cordon and state in one patch, so that a crash leaves all of it or nothing."""
    annotations = {STATE: str(after), HOST: host, SINCE: stamp(now), **(also or {}), **announced(node, machine)}
    match place(node, MAINTENANCE, hold_why(host), now, also=annotations):
        case Patch(body):
            return PatchNode(body, why, event, warning)
        case Refusal() as refusal:
            return refusal
        case Nothing(said):
            return Refusal(said)


def adopted(node: Node, host: str, now: Instant, also: Mapping[str, str | None]) -> PatchNode | Refusal:
    """A state of the seed's controller gets a hold of its own, and whatever a state must have."""
    match place(node, MAINTENANCE, hold_why(host), now, also={**also, **announced(node)}):
        case Patch(body):
            why = f"{node.metadata.name} is taken over in state {node.metadata.annotations.get(STATE, '')}"
            return PatchNode(body, why, "TakenOver")
        case Refusal() as refusal:
            return refusal
        case Nothing(said):
            return Refusal(said)


def released(node: Node, why: str, event: str) -> PatchNode | Refusal:
    """The maintenance is over: state and hold go together, and with the last hold the cordon, if it is ours."""
    match release(node, MAINTENANCE, also={**cleared(), **taken_back(node)}):
        case Patch(body, said):
            return PatchNode(body, f"{why}; {said}", event, frees=told_machine(node.metadata.annotations))
        case Refusal() as refusal:
            return refusal
        case Nothing(said):
            return Refusal(said)


def noted(node: Node, annotations: Mapping[str, str | None], why: str, event: str = "") -> PatchNode:
    """Annotations only, the state stays: written before the call they belong to."""
    metadata = {"resourceVersion": node.metadata.resource_version, "annotations": dict(annotations)}
    return PatchNode({"metadata": metadata}, why, event)


def tainted(node: Node, on: bool, why: str) -> PatchNode:
    return PatchNode(out_of_service_patch(node, on), why, "OutOfService" if on else "OutOfServiceEnded")
