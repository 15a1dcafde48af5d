"""What is written on a Node: always one merge patch that carries the version it was decided on. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hostler.host.holds import MAINTENANCE, Nothing, Patch, Refusal, place, release
from hostler.host.taints import out_of_service_patch
from hostler.instant import Instant
from hostler.kube.records import Node
from hostler.maintenance.model import HOST, SINCE, STATE, TOLD, PatchNode, State, cleared, stamp


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


# -- what other controllers are told
#
# The cluster autoscaler would remove a node that is empty, a MachineHealthCheck would delete the machine of one that is
# off. What is ours is recorded on the Node in the write that announces it and taken back in the write that releases it,
# so that a restart changes nothing; what an owner had set before stays.


# Both are other projects' names: the cluster autoscaler's, and Cluster API's.
SCALE_DOWN_DISABLED: Final = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
SKIP_REMEDIATION: Final = "cluster.x-k8s.io/skip-remediation"
# Cluster API writes on a Node which Machine it is.
_MACHINE, _NAMESPACE = "cluster.x-k8s.io/machine", "cluster.x-k8s.io/cluster-namespace"
_AUTOSCALER, _OF_MACHINE = "autoscaler", "machine:"


def machine_of(node: Node) -> str:
    """NAMESPACE/NAME of its Cluster API Machine, in whichever cluster that lives; "" where it has none."""
    name, namespace = (node.metadata.annotations.get(one, "") for one in (_MACHINE, _NAMESPACE))
    return f"{namespace}/{name}" if name and namespace else ""


def announced(node: Node, machine: str = "") -> dict[str, str | None]:
    """Annotations that tell others of a maintenance, with the record of what is ours; once told, the record stays."""
    annotations = node.metadata.annotations
    if TOLD in annotations:
        return {TOLD: annotations[TOLD]}
    ours: dict[str, str | None] = {} if SCALE_DOWN_DISABLED in annotations else {SCALE_DOWN_DISABLED: "true"}
    words = [*([_AUTOSCALER] if ours else []), *([f"{_OF_MACHINE}{machine}"] if machine else [])]
    return {**ours, TOLD: " ".join(words)}


def told_machine(annotations: Mapping[str, str]) -> str:
    """The Machine that was, or is to be, told; "" where none is."""
    words = annotations.get(TOLD, "").split()
    return next((one.removeprefix(_OF_MACHINE) for one in words if one.startswith(_OF_MACHINE)), "")


def taken_back(node: Node) -> dict[str, str | None]:
    """What of the Node's annotations ends with the maintenance: only ours, and only as we wrote it."""
    annotations = node.metadata.annotations
    ours = _AUTOSCALER in annotations.get(TOLD, "").split() and annotations.get(SCALE_DOWN_DISABLED) == "true"
    return {SCALE_DOWN_DISABLED: None} if ours else {}
