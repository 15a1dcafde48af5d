"""What is known of one machine, and what is decided for it: writes as data, conditions, a sentence. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hostler.apis.capi import Cluster, Machine
from hostler.apis.metal3 import BareMetalHost, Metal3Machine
from hostler.host.taints import out_of_service_patch
from hostler.kube.records import Metadata, Node, PodMetadata, Record
from hostler.metal import names
from hostler.metal.model import Write

REBOOT = "Reboot"
# Phases, as the API has them.
RUNNING, WAITING, GIVEN_UP, FAILED = "Running", "Waiting", "Deleting machine", "Failed"
HOST_UNHEALTHY = "HostUnhealthy"  # the event of one that is given up


class Strategy(Record, frozen=True):
    type: str = REBOOT  # as the Go provider's webhook defaults it
    retry_limit: int = 1
    timeout_seconds: int = 600


class RemediationSpec(Record, frozen=True):
    strategy: Strategy = Strategy()


class RemediationStatus(Record, frozen=True):
    phase: str = ""
    retry_count: int = 0
    last_remediated: str = ""


class Remediation(Record, frozen=True):
    """A Metal3Remediation: Cluster API makes one from a template when a machine's health check fails."""

    metadata: Metadata = Metadata()
    spec: RemediationSpec = RemediationSpec()
    status: RemediationStatus = RemediationStatus()

    @property
    def power_off(self) -> str:
        """The annotation that keeps its host off."""
        return f"{names.REMEDIATION_POWER_OFF}{self.metadata.uid}"

    @property
    def kept(self) -> bool:
        """Whether something of ours is to be taken back before it may go."""
        return names.REMEDIATION_FINALIZER in self.metadata.finalizers


# -- the node in its own cluster


class Toleration(Record, frozen=True):
    key: str = ""
    effect: str = ""


class BoundPodSpec(Record, frozen=True):
    tolerations: tuple[Toleration, ...] = ()


class BoundPod(Record, frozen=True):
    metadata: PodMetadata = PodMetadata()
    spec: BoundPodSpec = BoundPodSpec()


@dataclass(frozen=True, slots=True)
class NodeOut:
    """The machine's node: found, known not to be there (neither `node` nor `why`), or not known (`why`)."""

    node: Node | None = None
    left: tuple[str, ...] = ()  # pods and volumes that have not let go of it; looked for only while it is tainted
    why: str = ""
    silent: float = 0.0  # with `why`: for so many seconds its cluster has not answered


@dataclass(frozen=True, slots=True)
class RemediationFacts:
    """What is known of one remediation. `node` is None while nobody has looked for it."""

    remediation: Remediation
    owner: Machine | None = None
    machine: Metal3Machine | None = None
    cluster: Cluster | None = None
    host: BareMetalHost | None = None  # the one whose consumer the machine is
    held: tuple[BareMetalHost, ...] = ()  # every host that carries this remediation's power-off annotation
    node: NodeOut | None = None
    unreadable: str = ""  # why its host is not known, as a sentence: neither there nor absent
    fresh: bool = True  # what the host says of its power is newer than our request, and not a passing word

    @property
    def leaving(self) -> bool:
        """Whether the machine goes anyway, or is gone."""
        return any(
            one is None or bool(one.metadata.deletion_timestamp) for one in (self.owner, self.machine)
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Step:
    """What comes next for a remediation: first the node's taint, then the writes in their order, and a sentence."""

    why: str
    writes: tuple[Write, ...] = ()
    taint: bool | None = None  # put on the node, or taken off it
    event: str = ""  # the reason of an Event with this sentence
    warning: bool = False
    look: bool = False  # the node has to be looked at before anything can be decided
    wake: float | None = None


def is_tainted_for(node: Node, remediation: Remediation) -> bool:
    return node.metadata.annotations.get(names.TAINTED_BY) == remediation.metadata.uid


def taint_patch(node: Node, remediation: Remediation, on: bool) -> dict[str, Any]:
    """The taint and the mark that it is ours, in one write."""
    patch = out_of_service_patch(node, on)
    patch["metadata"]["annotations"] = {names.TAINTED_BY: remediation.metadata.uid if on else None}
    return patch
