"""What ingress knows: the workloads that are placed, what is decided of them, and the words for both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec

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
    desired_number_scheduled: int = 0  # a DaemonSet's words
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
    """One field, the value it gets, and what decided it: the words of `hostler explain`."""

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
class Write:
    """One write to be done, as data. `verb` is create, apply, patch or delete."""

    verb: str
    kind: Kind
    name: str
    namespace: str | None
    why: str
    body: Mapping[str, Any] = field(default_factory=dict)
    subresource: str | None = None
    uid: str = ""


@dataclass(frozen=True, slots=True)
class News:
    """Something to be told as an Event on the object looked at."""

    type: str  # Normal or Warning
    reason: str
    note: str


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do about one object, and the sentence that says why."""

    why: str
    writes: tuple[Write, ...] = ()
    news: tuple[News, ...] = ()
    wake: float | None = None
    placement: Placement | None = None
    # Why the placement is not written, or leaves no node; each is a sentence, and empty where that is not so.
    no_node: str = ""
    fight: str = ""
    in_place: bool = False  # what is there is what was decided
    refusal: Refusal | None = None
