"""What is known of nodes with and without cloud integration, and of the DaemonSets that belong only on some."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec

from hostler.apis.fleet import ScopedDaemonSet
from hostler.host import writes
from hostler.host.platform import Class, Classification
from hostler.host.writes import EventNote
from hostler.instant import Instant
from hostler.kube.kinds import Kind
from hostler.kube.records import ManagedMetadata, Metadata, Node, Record, Selector

POLICY = Kind("admissionregistration.k8s.io", "v1", "mutatingadmissionpolicies", "MutatingAdmissionPolicy", False)
BINDING = Kind(
    "admissionregistration.k8s.io", "v1", "mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding", False
)
MANAGER = "hostler-platform"  # the field manager of our server-side apply
CSI_DRIVER = "csi.vsphere.vmware.com"
NOWHERE = "NoEligibleNode"  # the rule leaves no node
NO_POLICIES = "this API server has no MutatingAdmissionPolicy of v1 (Kubernetes 1.36 and newer have it)"


class PodPlace(Record, frozen=True):
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    affinity: dict[str, Any] | None = None


class Template(Record, frozen=True):
    spec: PodPlace = PodPlace()


class UpdateStrategy(Record, frozen=True):
    type: str = "RollingUpdate"


class DaemonSetSpec(Record, frozen=True):
    selector: Selector | None = None
    template: Template = Template()
    update_strategy: UpdateStrategy = UpdateStrategy()


class DaemonSetStatus(Record, frozen=True):
    observed_generation: int = 0
    desired_number_scheduled: int = 0
    updated_number_scheduled: int = 0
    number_available: int = 0
    number_misscheduled: int = 0


class DaemonSet(Record, frozen=True):
    metadata: ManagedMetadata = ManagedMetadata()
    spec: DaemonSetSpec = DaemonSetSpec()
    status: DaemonSetStatus = DaemonSetStatus()


class PolicySpec(Record, frozen=True):
    """An admission policy or binding, as far as comparing it with what we want goes."""

    metadata: Metadata = Metadata()
    spec: dict[str, Any] = msgspec.field(default_factory=dict)


class WaySetting(StrEnum):
    """HOSTLER_PLATFORM_WAY."""

    AUTO = "auto"
    APPLY = "apply"
    UNMANAGED = "unmanaged"


class Way(StrEnum):
    """How a scoped DaemonSet is kept where it belongs."""

    POLICY = "admission policy"
    APPLY = "server-side apply"
    UNMANAGED = "server-side apply, with the CSI operator set aside"


@dataclass(frozen=True, slots=True)
class PlacedNode:
    """A node and its class."""

    node: Node
    found: Classification

    @property
    def name(self) -> str:
        return self.node.metadata.name

    def of(self, platform: str) -> bool:
        """Whether it is known to belong to a platform: by its own word, never by the lack of one."""
        return self.found.kind in (Class.VSPHERE, Class.OTHER, Class.LABELLED) and self.found.platform == platform


class Result(StrEnum):
    """What a check of a vSphere node found; the word is the condition's reason."""

    PASSED = "Passed"
    NOT_FOUND = "VMNotFound"
    AMBIGUOUS = "VMAmbiguous"
    CONTESTED = "VMContested"
    HARDWARE = "HardwareTooOld"
    ESXI = "ESXiTooOld"
    ESXI_BLOCKS = "ESXiBlocksUpgrade"
    YOUNG = "TooYoung"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class NodeCheck:
    result: Result
    why: str


@dataclass(frozen=True, slots=True)
class CheckRound:
    """The last answer of the node checks, kept while vCenter does not answer. Instants are our own clock's."""

    results: Mapping[str, NodeCheck] = field(default_factory=dict)
    at: Instant | None = None  # of the last whole answer
    unknown: str = ""  # why the latest look gave no whole answer
    unknown_since: Instant | None = None


@dataclass(frozen=True, slots=True)
class StrandedPod:
    """A pod that needs a driver which its node lacks."""

    key: str  # NAMESPACE/NAME
    node: str

    def __str__(self) -> str:
        return f"{self.key} on {self.node}"


class State(StrEnum):
    ABSENT = "absent"  # there is no such DaemonSet
    UNREADABLE = "unreadable"
    IN_PLACE = "in place"
    WRITE = "to be written"
    HELD_BACK = "held back"  # the rule would take it from nodes it belongs on
    FIGHT = "fight"  # another controller undoes it; we stopped


@dataclass(frozen=True, slots=True)
class Scope:
    """What is decided about one scoped DaemonSet."""

    target: ScopedDaemonSet
    state: State
    why: str
    body: Mapping[str, Any] | None = None  # of the server-side apply, where state is WRITE
    eligible: tuple[str, ...] = ()  # nodes it may run on under the rule
    kept_off: tuple[str, ...] = ()  # nodes only the rule keeps it off
    losing: tuple[str, ...] = ()  # those of them it belongs on
    young: tuple[str, ...] = ()  # such nodes too, but new ones: their label may yet come
    nowhere: bool = False  # the rule leaves it no node, and no label is on its way
    notices: tuple[EventNote, ...] = ()
    wake: float | None = None

    @property
    def waits(self) -> bool:
        """It is held back for nothing but labels that may yet come."""
        return self.state is State.HELD_BACK and bool(self.young) and not self.losing


@dataclass(frozen=True, slots=True)
class Write(writes.Write):
    """A write of platform."""

    about: tuple[str, ...] = ()  # the scoped DaemonSets that it is for, by key
    notice: EventNote | None = None  # the Event once it is written
    gives_back: bool = False  # allowed even beside the operator that we replace: it gets its own back

    @property
    def target(self) -> str:
        """As `hostler explain` names it."""
        name = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind.kind.lower()}/{name}"


# CEL has no index in a comprehension of every version; a DaemonSet with more terms than this is named as such.
MOST_TERMS = 32
