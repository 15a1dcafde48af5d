"""Other controllers are told of a maintenance before the first eviction, and told when it is over. Pure.

The cluster autoscaler would remove a node that is empty, a MachineHealthCheck would delete the machine of one that is
off. What is ours is recorded on the Node in the write that announces it and taken back in the write that releases it,
so that a restart changes nothing; what an owner had set before stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hostler.kube.records import Node
from hostler.maintenance.model import TOLD

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
