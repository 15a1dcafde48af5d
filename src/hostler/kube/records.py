"""The objects we read, with just the fields we use.

A record is decoded from a watch and kept for every object of the cluster, so what is not listed here costs neither
time nor memory: unknown fields are skipped by the decoder. `gc=False` keeps 20,000 pods out of the garbage collector;
records hold no cycles. A record is partial and is therefore never written back whole: writes are patches.
"""

from __future__ import annotations

import enum
from sys import intern
from typing import Literal, Protocol

import msgspec
from msgspec.structs import force_setattr


class Record(msgspec.Struct, rename="camel", frozen=True, gc=False, kw_only=True):
    """Settings shared by all records: frozen, camelCase on the wire, every field has a default."""


def share(record: msgspec.Struct, *fields: str) -> None:
    """Keep words once that thousands of records have in common. Only such of which there are few: never a time."""
    for field in fields:
        value = getattr(record, field)
        force_setattr(record, field, tuple(map(intern, value)) if value.__class__ is tuple else intern(value))


class OwnerReference(Record, frozen=True):
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class Metadata(Record, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()


class ManagedField(Record, frozen=True):
    manager: str = ""
    operation: str = ""
    subresource: str = ""
    time: str | None = None


class ManagedMetadata(Metadata, frozen=True):
    """Metadata that also says who wrote what, so that a controller that undoes our writes can be named."""

    managed_fields: tuple[ManagedField, ...] = ()


class HasMetadata(Protocol):
    """What a store needs of a record. `metadata` may be narrower than `Metadata`; these four are always there."""

    @property
    def metadata(self) -> Identity: ...


class Identity(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def resource_version(self) -> str: ...


class Object(Record, frozen=True):
    """Any object, as far as its metadata goes."""

    metadata: Metadata = Metadata()


def key_of(metadata: Identity) -> str:
    """`namespace/name`, or `name` where there is no namespace."""
    return f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name


def is_deleted(metadata: Identity) -> bool:
    """Whether this is the last answer about an object: with its last finalizer gone, the API server deletes it.

    A record without finalizers among its fields (a Pod's) cannot tell.
    """
    return bool(getattr(metadata, "deletion_timestamp", "")) and not getattr(metadata, "finalizers", True)


class Condition(Record, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    last_heartbeat_time: str | None = None


class Selector(Record, frozen=True):
    """A LabelSelector."""

    class Expression(Record, frozen=True):
        key: str = ""
        operator: str = ""
        values: tuple[str, ...] = ()

    match_labels: dict[str, str] = {}
    match_expressions: tuple[Expression, ...] = ()


# -- Node

CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")  # either label


class Taint(Record, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None  # here because the list is written back whole: see `host.taints`


class NodeSpec(Record, frozen=True):
    provider_id: str = msgspec.field(default="", name="providerID")
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeInfo(Record, frozen=True):
    boot_id: str = msgspec.field(default="", name="bootID")
    system_uuid: str = msgspec.field(default="", name="systemUUID")
    operating_system: str = ""


class NodeAddress(Record, frozen=True):
    type: str = ""
    address: str = ""


class NodeStatus(Record, frozen=True):
    addresses: tuple[NodeAddress, ...] = ()
    conditions: tuple[Condition, ...] = ()
    node_info: NodeInfo = NodeInfo()


class Node(Record, frozen=True):
    metadata: Metadata = Metadata()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


# -- Pod: there are many. Its metadata keeps only the annotations that matter to us; strings of a closed set are enums,
# -- so that twenty thousand pods share one "Running"; what only has to be present is decoded as `Present`.


class Present(Record, frozen=True):
    """An object of which only matters that it is there, such as `emptyDir: {}`."""


class PodPhase(enum.StrEnum):
    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"

    @classmethod
    def _missing_(cls, _: object) -> PodPhase:
        """A word of a newer Kubernetes must not make the pod unreadable."""
        return cls.UNKNOWN


class PodConditionType(enum.StrEnum):
    READY = "Ready"
    SCHEDULED = "PodScheduled"
    INITIALIZED = "Initialized"
    CONTAINERS_READY = "ContainersReady"
    READY_TO_START = "PodReadyToStartContainers"
    DISRUPTED = "DisruptionTarget"
    OTHER = ""  # a readiness gate, or news to us

    @classmethod
    def _missing_(cls, _: object) -> PodConditionType:
        return cls.OTHER


class PodCondition(Record, frozen=True):
    type: PodConditionType = PodConditionType.OTHER
    status: Literal["True", "False", "Unknown"] = "Unknown"


class PodAnnotations(Record, frozen=True):
    mirror: str | None = msgspec.field(default=None, name="kubernetes.io/config.mirror")


class PodMetadata(Record, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str = ""
    labels: dict[str, str] = {}
    annotations: PodAnnotations = PodAnnotations()
    owner_references: tuple[OwnerReference, ...] = ()


class ClaimRef(Record, frozen=True):
    claim_name: str = ""


class Volume(Record, frozen=True):
    name: str = ""
    empty_dir: Present | None = None
    persistent_volume_claim: ClaimRef | None = None
    ephemeral: Present | None = None


class PodSpec(Record, frozen=True):
    node_name: str = ""
    priority: int = 0
    priority_class_name: str = ""
    termination_grace_period_seconds: int | None = None
    volumes: tuple[Volume, ...] = ()


class PodStatus(Record, frozen=True):
    phase: PodPhase = PodPhase.UNKNOWN
    conditions: tuple[PodCondition, ...] = ()


class Pod(Record, frozen=True):
    metadata: PodMetadata = PodMetadata()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


# -- what else a drain looks at


class BudgetSpec(Record, frozen=True):
    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    selector: Selector | None = None
    unhealthy_pod_eviction_policy: str = ""


class BudgetStatus(Record, frozen=True):
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    observed_generation: int = 0


class PodDisruptionBudget(Record, frozen=True):
    metadata: Metadata = Metadata()
    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()


class AttachmentSource(Record, frozen=True):
    persistent_volume_name: str | None = None


class AttachmentSpec(Record, frozen=True):
    attacher: str = ""
    node_name: str = ""
    source: AttachmentSource = AttachmentSource()


class AttachmentStatus(Record, frozen=True):
    attached: bool = False


class VolumeAttachment(Record, frozen=True):
    metadata: Metadata = Metadata()
    spec: AttachmentSpec = AttachmentSpec()
    status: AttachmentStatus = AttachmentStatus()


# -- leases, secrets and other controllers


class LeaseSpec(Record, frozen=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(Record, frozen=True):
    metadata: Metadata = Metadata()
    spec: LeaseSpec = LeaseSpec()


class Secret(Record, frozen=True):
    metadata: Metadata = Metadata()
    type: str = ""
    data: dict[str, bytes] = {}  # msgspec reads base64 text as bytes


class WorkloadSpec(Record, frozen=True):
    replicas: int | None = None


class WorkloadStatus(Record, frozen=True):
    ready_replicas: int = 0
    number_ready: int = 0


class Workload(Record, frozen=True):
    """A Deployment or DaemonSet, as far as finding an incumbent needs it."""

    metadata: Metadata = Metadata()
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()
