"""What ingress knows: the workloads that it places, and what is decided about them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec

from hostler.host.conditions import count, names
from hostler.host.writes import EventNote, Write
from hostler.kube.kinds import Kind
from hostler.kube.records import Condition, ManagedMetadata, Record, Selector

CLUSTER = "cluster"  # the name of every config.openshift.io singleton
DEFAULT = "default"  # the IngressController every cluster has
CONTROLLERS_IN = "openshift-ingress-operator"
ROUTERS_IN = "openshift-ingress"

OWNING_LABEL = "ingresscontroller.operator.openshift.io/owning-ingresscontroller"
POD_LABEL = "ingresscontroller.operator.openshift.io/deployment-ingresscontroller"
# What we applied last, as a digest: server-side apply takes back what we no longer say, but only if it is sent.
APPLIED = "hostler.dev/ingress-placement"
# The backfill's memory on the Ingress: "deciding ControlPlane", then "ControlPlane". See `decide_backfill`.
BACKFILL = "hostler.dev/ingress-backfill"
MANAGED_BY = "app.kubernetes.io/managed-by"

MASTER = "node-role.kubernetes.io/master"
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
WORKER = "node-role.kubernetes.io/worker"
REMOTE_WORKER = "node.openshift.io/remote-worker"
OS_LINUX = {"kubernetes.io/os": "linux"}

SINGLE, DUAL, HIGHLY, ARBITER, EXTERNAL = (
    "SingleReplica", "DualReplica", "HighlyAvailable", "HighlyAvailableArbiter", "External",
)  # fmt: skip


class Where(StrEnum):
    """The two answers there are to "where does ingress run"."""

    CONTROL_PLANE = "ControlPlane"
    WORKERS = "Workers"


# -- what is placed


class Container(Record, frozen=True):
    name: str = ""
    image: str = ""


class PlacedPodSpec(Record, frozen=True):
    """The placement fields of a pod template, and the images; the rest of it is none of our business."""

    containers: tuple[Container, ...] = ()
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    tolerations: tuple[dict[str, Any], ...] = ()
    affinity: dict[str, Any] = msgspec.field(default_factory=dict)
    topology_spread_constraints: tuple[dict[str, Any], ...] = ()
    host_network: bool = False


class PlacedTemplate(Record, frozen=True):
    spec: PlacedPodSpec = PlacedPodSpec()


class PlacedSpec(Record, frozen=True):
    replicas: int | None = None
    strategy: dict[str, Any] = msgspec.field(default_factory=dict)
    selector: Selector = Selector()
    template: PlacedTemplate = PlacedTemplate()


class PlacedStatus(Record, frozen=True):
    observed_generation: int = 0
    replicas: int = 0
    updated_replicas: int = 0
    available_replicas: int = 0
    conditions: tuple[Condition, ...] = ()
    desired_number_scheduled: int = 0  # of a DaemonSet
    updated_number_scheduled: int = 0
    number_available: int = 0


class Placed(Record, frozen=True):
    """A Deployment or DaemonSet as far as its placement goes: a router, or an ingress named by the Fleet."""

    metadata: ManagedMetadata = ManagedMetadata()
    spec: PlacedSpec = PlacedSpec()
    status: PlacedStatus = PlacedStatus()


# -- what is decided


@dataclass(frozen=True, slots=True)
class Step:
    """One field, the value it gets, and what decided it, as `hostler explain` shows it."""

    field: str
    value: str
    decided_by: str
    why: str


@dataclass(frozen=True, slots=True)
class Role:
    """The label that marks control-plane nodes, and the value they have."""

    label: str
    value: str | None  # None: they have different values, so a node selector cannot name them


@dataclass(frozen=True, slots=True)
class Placement:
    """Where an ingress runs and how it is kept there. Equal inputs give equal placements."""

    where: Where
    single: bool  # the topology that counts has one node
    node_selector: Mapping[str, str]
    tolerations: tuple[Mapping[str, Any], ...]
    affinity: Mapping[str, Any]
    spread: tuple[Mapping[str, Any], ...]
    replicas: int | None = None  # None: not ours to say
    strategy: Mapping[str, Any] = field(default_factory=dict)  # empty: not ours to say
    budget: int | str | None = None  # maxUnavailable; None: there is to be none
    warning: str = ""
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class Refused:
    """The input cannot be turned into a placement: one sentence naming the object and the field."""

    why: str
    field: str


class RefusedBy(StrEnum):
    """Which rule refuses what the Fleet asks for: reason of the Event, the condition and the metric."""

    NOT_MARKED = "NotMarked"  # the workload lacks the label of its owner
    SYSTEM_NAMESPACE = "SystemNamespace"  # it is in kube-system and the operator's setting does not name it
    ROUTER_TEMPLATE = "RouterTemplateRefused"  # the template does not pass Pod Security baseline


@dataclass(frozen=True, slots=True)
class Refusal:
    """Hostler does not do this for the author of the Fleet. The sentence ends with what changes that."""

    by: RefusedBy
    why: str


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An object that does not decode: it is neither there nor absent, so nothing is decided from it."""

    kind: Kind
    key: str
    why: str

    def __str__(self) -> str:
        return f"{self.kind.kind} {self.key} cannot be read: {self.why}"


@dataclass(frozen=True, slots=True)
class NoFittingNode:
    """No node has the labels that a placement asks for and no taint in the way."""

    asked: str
    nodes: int  # of the whole cluster
    labelled: tuple[str, ...] = ()  # nodes with the labels; a taint keeps the pods off them
    taints: tuple[str, ...] = ()
    stays: bool = False  # the placement is not written for that reason

    def __str__(self) -> str:
        if self.labelled:
            why = f"{names(self.labelled)} would, but for the taint {names(self.taints)}."
        else:
            why = f"none of {count(self.nodes, 'node')} has these labels."
        return f"No node fits {self.asked}: {why}{' It stays where it is until one does.' if self.stays else ''}"


@dataclass(frozen=True, slots=True)
class Contest:
    """Another controller undoes the placement whenever it is written, so it is not written for a while."""

    writer: str
    fields: tuple[str, ...]
    workload: str  # KIND NAME

    def __str__(self) -> str:
        return (
            f"{self.writer} changes {names(self.fields)} of {self.workload} back whenever Hostler writes it; "
            f"Hostler waits. Let one of the two decide: take it out of the other's configuration, or out of Hostler's."
        )


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do about one object, and the sentence that says why."""

    why: str
    writes: tuple[Write, ...] = ()
    notices: tuple[EventNote, ...] = ()
    wake: float | None = None
    placement: Placement | None = None
    no_node: NoFittingNode | None = None
    contest: Contest | None = None
    in_place: bool = False  # what is there is what was decided
    refusal: Refusal | None = None
    unreadable: Unreadable | None = None


def undecided(unreadable: Unreadable) -> Decision:
    return Decision(f"Nothing is decided: {unreadable}.", unreadable=unreadable)
