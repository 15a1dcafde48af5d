"""What is known of one machine, and what is decided for it: writes as data, conditions, a sentence. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from hostler.apis import capi, metal3
from hostler.apis.capi import Cluster, Machine
from hostler.apis.metal3 import (
    BareMetalHost,
    Metal3Condition,
    Metal3Machine,
    Metal3MachineTemplate,
    SecretRef,
)
from hostler.apis.metal3_data import DataClaim
from hostler.host.conditions import Condition, Status
from hostler.kube.kinds import Kind
from hostler.kube.records import Metadata, key_of
from hostler.metal import names
from hostler.metal.claiming.choose import Wish

# -- what is known


@dataclass(frozen=True, slots=True)
class Trouble:
    """For how many seconds a host has been failing (since the first error) and calm (since the last one)."""

    failing_for: float = 0.0
    calm_for: float = 0.0


NO_TROUBLE = Trouble()


@dataclass(frozen=True, slots=True)
class Rendered:
    """What became of the machine's data template: references once it is ready, else a sentence why not."""

    ready: bool
    why: str = ""
    name: str = ""
    meta_data: SecretRef | None = None
    network_data: SecretRef | None = None


@dataclass(frozen=True, slots=True)
class ClaimSeen:
    """The claim by which this machine asks for its data, if there is one; `labels`: of one that is made."""

    claim: DataClaim | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """The node of this machine in its own cluster: found, or a sentence why not (yet)."""

    name: str = ""
    provider_id: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of one machine. `host` is the one whose consumer it is, else the one it names."""

    machine: Metal3Machine
    owner: Machine | None = None
    cluster: Cluster | None = None
    template: Metal3MachineTemplate | None = None
    host: BareMetalHost | None = None
    reuse: str = ""
    rendered: Rendered | None = None
    data_claim: ClaimSeen | None = None  # None: it is not known whether there is one
    node: NodeSeen | None = None
    secret_problem: str = ""
    secret_cluster: str | None = None  # the cluster that the BMC secret is labelled with; None: it is not known
    host_unreadable: str = ""  # that the host it names cannot be read
    several: bool = False  # further hosts name it as their consumer, which is nobody's doing here
    elsewhere: str = ""  # that the host it names is in another namespace and still has it as its consumer
    trouble: Trouble = NO_TROUBLE  # for how long its host has shown errors, or none
    owned: tuple[BareMetalHost, ...] = ()  # hosts with an owner reference to it: they would be deleted after it

    @property
    def named_host(self) -> str:
        return self.machine.metadata.annotations.get(names.HOST_ANNOTATION, "")

    @property
    def associated(self) -> bool:
        consumer = self.host.spec.consumer_ref if self.host is not None else None
        return consumer is not None and consumer.is_machine(self.machine)

    @property
    def cluster_name(self) -> str:
        return cluster_of(self.machine, self.owner)

    @property
    def paused(self) -> bool:
        """Whether nothing of it is to be touched: it is paused itself, or its Cluster is."""
        cluster = self.cluster
        return capi.PAUSED in self.machine.metadata.annotations or (cluster is not None and cluster.spec.paused)


def cluster_of(machine: Metal3Machine, owner: Machine | None) -> str:
    """The name of the cluster a Metal3Machine belongs to."""
    return (owner.spec.cluster_name if owner is not None else "") or machine.metadata.labels.get(capi.CLUSTER_NAME, "")


def host_of(
    machine: Metal3Machine, own: Collection[BareMetalHost], named: BareMetalHost | None
) -> BareMetalHost | None:
    """The host of a machine: one whose consumer it is, the one it names first; else the one it names.

    `own`: every host whose consumer it is. `named`: the host it names, if that is in its namespace.
    """
    if not own:
        return named
    name = machine.metadata.annotations.get(names.HOST_ANNOTATION, "")
    return next((one for one in own if key_of(one.metadata) == name), min(own, key=lambda one: one.metadata.name))


# -- what is decided

# Reasons of conditions.
SUCCESS = "AssociateBareMetalHostSuccess"
FAILED = "AssociateBareMetalHostFailed"
HOST_LOST = "HostLost"


@dataclass(frozen=True, slots=True)
class Write:
    """One change, as data. `version`: only if the object still is that version."""

    kind: Kind
    name: str
    namespace: str
    body: dict[str, Any]
    why: str
    version: str = ""
    subresource: str | None = None
    verb: str = "patch"
    uid: str = ""  # of what is deleted


def patch_host(host: BareMetalHost, body: dict[str, Any], why: str) -> Write:
    """A change of a host that holds only for the version that was read."""
    meta = host.metadata
    return Write(metal3.BARE_METAL_HOST, meta.name, meta.namespace, body, why, version=meta.resource_version)


def patch_machine(machine: Metal3Machine, metadata: dict[str, Any], why: str) -> Write:
    """A change of a machine's metadata that holds only for the version that was read."""
    meta, body = machine.metadata, {"metadata": metadata}
    return Write(metal3.METAL3_MACHINE, meta.name, meta.namespace, body, why, version=meta.resource_version)


@dataclass(frozen=True, slots=True)
class Said:
    """One condition to be said, before it is compared with what is already said."""

    type: str
    true: bool
    reason: str
    message: str = ""

    def condition(self, generation: int) -> Condition:
        status = Status.TRUE if self.true else Status.FALSE
        return Metal3Condition(
            type=self.type, status=status, reason=self.reason, message=self.message, observed_generation=generation
        )


@dataclass(frozen=True, slots=True)
class MakeMovable:
    """The host gets its status in an annotation, so that clusterctl may copy it; `pause`: and our pause, too.

    What is written depends on the whole host, which is read again for it (`moving.movable_write`).
    """

    why: str
    pause: bool


class Step(StrEnum):
    """Where a machine stands, and so which part of its life the decision is about."""

    MOVED = "moved"  # clusterctl has copied it and deletes it here
    PAUSED = "paused"
    UNREADABLE = "unreadable"  # the host that it names cannot be read
    WAIT = "wait"  # it may not have a host yet, or has lost its own
    CLAIM = "claim"  # a host is chosen for it
    KEEP = "keep"  # it has its host
    RELEASE = "release"  # it is being deleted


@dataclass(frozen=True, slots=True)
class Decision:
    """What comes next for a machine: writes in their order, what its conditions say, and a sentence."""

    why: str
    writes: tuple[Write, ...] = ()
    said: tuple[Said, ...] = ()
    status: dict[str, Any] = field(default_factory=dict)  # further fields of its status
    wake: float | None = None
    step: Step = Step.KEEP
    unpause: tuple[Write, ...] = ()  # before all others: our pause of the host is taken back
    wish: Wish | None = None  # with CLAIM: what it wants of a host
    make_movable: MakeMovable | None = None


def consumer_key(host: BareMetalHost) -> str:
    """The Metal3Machine this host belongs to, as a key; empty: none.

    Never one of another namespace: who may write hosts in one could else have the bootstrap data of any machine in
    another put on a host of their own.
    """
    consumer = host.spec.consumer_ref
    if (
        consumer is None
        or consumer.kind != metal3.METAL3_MACHINE.kind
        or capi.group_of(consumer.api_version) != metal3.GROUP
    ):
        return ""
    if consumer.namespace != host.metadata.namespace:
        return ""
    return names.key(consumer.namespace, consumer.name)


def owner_key(meta: Metadata, kind: str) -> str:
    name = next((one.name for one in meta.owner_references if one.kind == kind), "")
    return names.key(meta.namespace, name) if name else ""


def held_by(host: BareMetalHost) -> tuple[str, ...]:
    """The annotations of remediations that keep it off."""
    return tuple(name for name in host.metadata.annotations if name.startswith(names.REMEDIATION_POWER_OFF))


def owner_reference(kind: Kind, meta: Metadata) -> dict[str, Any]:
    return {"apiVersion": kind.api_version, "kind": kind.kind, "name": meta.name, "uid": meta.uid, "controller": True}
