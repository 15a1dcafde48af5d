"""What a reclaim knows: states of a host, the table of transitions, reasons, and the facts a decision needs. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

from hostler.drain import model as drain_model
from hostler.host.facts import Fact, Unknown
from hostler.instant import Instant, iso, parse
from hostler.reclaim.artifacts import Artifacts, BootPolicy


class Reason(StrEnum):
    """Reasons of the condition `Reclaimed`; a failed step has those of `StepFailure`."""

    PREVIOUS_CLUSTER_UNKNOWN = "PreviousClusterUnknown"
    NOTE_NOT_CONFIRMED = "PreviousClusterNotConfirmed"
    BMC_MANAGED = "BMCManaged"
    NO_KUBECONFIG = "NoKubeconfig"
    SPOKE_UNREACHABLE = "SpokeUnreachable"
    NAMESPACE_NOT_ALLOWED = "NamespaceNotAllowed"
    NODE_NOT_FOUND = "NodeNotFound"
    ANOTHER_MACHINE = "AnotherMachine"
    MACHINE_NOT_PROVEN = "MachineNotProven"
    MANAGED_BY_MACHINE_PROVIDER = "ManagedByMachineProvider"
    LAST_CONTROL_PLANE = "LastControlPlane"
    QUORUM_LOST = "QuorumLost"
    WORKERS_FIRST = "WorkersFirst"
    ARTIFACTS_UNAVAILABLE = "ArtifactsUnavailable"
    ARTIFACTS_NOT_TRUSTED = "ArtifactsNotTrusted"
    KERNEL_ARGUMENT_REFUSED = "KernelArgumentRefused"
    HUB_NOT_CONFIGURED = "HubNotConfigured"
    DRAIN_FAILED = "DrainFailed"
    DECIDING = "Deciding"
    RECLAIMING = "Reclaiming"
    REBOOTING = "Rebooting"
    TIMED_OUT = "TimedOut"
    CANCELLED = "Cancelled"
    REBOUND = "Rebound"
    STEP_FAILED = "StepFailed"
    NOT_ONE_SHOT = "NotOneShot"
    REGISTERED = "Registered"
    OCCUPIED = "Occupied"


class StepFailure(StrEnum):
    """What an agent may give as the reason of a failed step; anything else becomes `StepFailed`.

    A reason is a label of our metrics, and some of ours decide. The agent's own table is in agent/refusal.py, which
    imports nothing of ours; a test keeps them equal.
    """

    NO_SPACE = "NoSpace"
    ARTIFACTS_UNAVAILABLE = "ArtifactsUnavailable"
    DOWNLOAD_FAILED = "DownloadFailed"
    WRONG_HASH = "WrongHash"
    UNTRUSTED_CERTIFICATE = "UntrustedCertificate"
    UNKNOWN_BOOTLOADER = "UnknownBootloader"
    SECURE_BOOT = "SecureBoot"
    NOT_ONE_SHOT = "NotOneShot"
    ENTRY_NOT_VERIFIABLE = "EntryNotVerifiable"
    BAD_ARGUMENTS = "BadArguments"
    COMMAND_FAILED = "CommandFailed"
    DISK_FAILED = "DiskFailed"
    REBOOT_FAILED = "RebootFailed"
    BOOTED_BACK = "BootedBack"
    UNKNOWN_STEP = "UnknownStep"


Cause: TypeAlias = Reason | StepFailure
_CAUSES: dict[str, Cause] = {cause.value: cause for cause in (*StepFailure, *Reason)}


def find_cause(text: str) -> Cause | None:
    """The reason that a condition or a report names; None where this version knows no such reason."""
    return _CAUSES.get(text)


# With these the note about the old cluster is not what the host was last seen in: nothing is begun from it.
UNCONFIRMED = (Reason.NOTE_NOT_CONFIRMED, Reason.REGISTERED)


class State(StrEnum):
    """`status.debugInfo.state` of an Agent, as far as a reclaim has to do with it."""

    INSTALLED = "installed"
    ADDED = "added-to-existing-cluster"
    RECLAIMING = "reclaiming"
    REBOOTING = "reclaiming-rebooting"
    PENDING = "unbinding-pending-user-action"
    UNBINDING = "unbinding"
    DISCOVERING = "discovering-unbound"
    KNOWN = "known-unbound"
    DISCONNECTED = "disconnected-unbound"
    INSUFFICIENT = "insufficient-unbound"
    DISABLED = "disabled-unbound"


IN_A_CLUSTER = (State.INSTALLED, State.ADDED)
UNDER_WAY = (State.RECLAIMING, State.REBOOTING)
UNBOUND = tuple(state for state in State if state.endswith("-unbound"))


@dataclass(frozen=True, slots=True)
class Transition:
    """One line of the machine."""

    name: str
    sources: tuple[State, ...]
    target: State
    when: str


RECLAIM = Transition("ReclaimHost", IN_A_CLUSTER, State.RECLAIMING, "unbound, and nothing speaks against it")
UNBIND = Transition("UnbindHost", IN_A_CLUSTER, State.PENDING, "unbound, and a reclaim is refused")
REBOOT = Transition("RebootingForReclaim", (State.RECLAIMING,), State.REBOOTING, "the download step succeeded")
FAIL = Transition("ReclaimFailed", UNDER_WAY, State.PENDING, "a step failed")
TIMEOUT = Transition("Refresh", UNDER_WAY, State.PENDING, "the state's time is over")
REGISTER = Transition(
    "RegisterHost", (*UNDER_WAY, State.PENDING, *UNBOUND), State.DISCOVERING, "the discovery system registered"
)
# Ours, beside the published ones: people change their mind, and try again.
CANCEL = Transition("CancelReclaim", (State.RECLAIMING,), State.PENDING, "cancelled by annotation, or bound elsewhere")
REBIND = Transition("RebindHost", UNDER_WAY, State.INSTALLED, "bound to its cluster again")
RETRY = Transition("RetryReclaim", (State.PENDING,), State.RECLAIMING, "asked for again, and nothing speaks against it")

TRANSITIONS = (RECLAIM, UNBIND, REBOOT, FAIL, TIMEOUT, REGISTER, CANCEL, REBIND, RETRY)


@dataclass(frozen=True, slots=True)
class Cluster:
    """The cluster a host was installed into, and its node there: `status.deprovision_info`."""

    namespace: str
    name: str
    node: str


@dataclass(frozen=True, slots=True)
class SpokeNode:
    """The node in the old cluster, as far as a decision needs it."""

    name: str
    uid: str
    system_uuid: str
    boot_id: str
    control_plane: bool
    machine: str  # the Machine its annotation names; empty without one
    ready: bool
    hostname_label: str = ""  # its label kubernetes.io/hostname, which need not be its name
    held: bool = False  # cordoned by us, to be emptied
    provider_id: str = ""
    addresses: frozenset[str] = frozenset()  # its InternalIPs


@dataclass(frozen=True, slots=True)
class Leaving:
    """Nodes of one cluster whose hosts leave it."""

    agents: Mapping[str, str] = field(default_factory=dict)  # by node, the Agents that leave before the one asked about
    busy: frozenset[str] = frozenset()  # nodes whose return still needs their cluster's API, before it or after


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """The old cluster's control plane, from the view of one of its nodes."""

    total: int  # control-plane nodes, this one included
    staying: int  # others that are Ready and whose hosts do not leave before this one
    workers: tuple[str, ...] = ()  # worker nodes whose return still needs this cluster's API
    leaving: tuple[str, ...] = ()  # Agents of the others that are Ready, but leave before this one

    @property
    def keeps_quorum(self) -> bool:
        return 2 * self.staying > self.total


@dataclass(frozen=True, slots=True)
class Report:
    """How a step ended, as the hub wrote it on the Agent."""

    step_id: str
    exit_code: int
    reason: Cause | None
    message: str
    lasts: str = ""  # why later boots of the host start discovery too; empty: only the next one does


UNASKED: Final = Unknown("it was not looked at")  # compared by identity: a decision did not need it


@dataclass(frozen=True, slots=True)
class SpokeObject:
    """An object of ours in the old cluster."""

    kind: str  # its plural
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"


@dataclass(frozen=True, slots=True)
class Pin:
    """One boot of one node, for one stage."""

    stage: str
    uid: str
    boot_id: str

    def __str__(self) -> str:
        """As it is annotated on the Agent."""
        return f"{self.stage} {self.uid} {self.boot_id}"

    @classmethod
    def parse(cls, text: str) -> Pin | None:
        parts = text.rsplit(" ", 2)
        return cls(*parts) if len(parts) == 3 else None


@dataclass(frozen=True, slots=True)
class Spoke:
    """What is known of the old cluster. Unknown until it answered."""

    kubeconfig: Fact[bool]
    node: Fact[SpokeNode | None]
    control_plane: Fact[ControlPlane]
    remains: Fact[frozenset[SpokeObject]]  # of ours for this host
    drain: drain_model.Decision | None = None  # how drain_model the node stands; None where it was not looked at
    reach: Fact[bool] = UNASKED  # Agents of this namespace may act there
    namesake: str = ""  # another Agent that may act there and is named by the system UUID of the node


@dataclass(frozen=True, slots=True)
class Host:
    """One Agent and what belongs to it."""

    name: str
    uid: str
    state: str
    stage: str  # `status.progress.stageStartTime` as it is written there
    since: Instant | None  # the same, by our own clock
    bound: tuple[str, str] | None  # namespace and name of the ClusterDeployment it is bound to
    previous: Cluster | None
    hostname: str
    namespace: str = ""  # the Agent's
    created: str = ""  # when the Agent was created, as it is written there
    system_uuid: str = ""  # as its serial number says; its name may be one too
    addresses: frozenset[str] = frozenset()  # of its network interfaces, as its inventory says
    bare_metal_host: str = ""
    confirmed: bool = False  # the owner accepts, by its name, that the old cluster loses its control plane
    managed_by: str = ""  # the manager (Machine or providerID) that the owner accepts on the node
    cancelled: bool = False
    deleted: bool = False  # the Agent is deleted; it stays until nothing of it is left in the old cluster
    kept: bool = False  # our finalizer is on it
    pinned: Pin | None = None  # the stage, and the node it is about
    retry: str = ""  # asked for again: a text that differs each time
    retried: str = ""  # the last such text that was answered
    registration: str = ""  # the stage (see `stage_key`) during which the discovery system registered
    report: Report | None = None
    waiting_since: Instant | None = None  # since when facts are missing
    reason: Cause | None = None  # of the condition `Reclaimed`, as it is now
    artifacts: Fact[Artifacts | None] = UNASKED
    spoke: Spoke = Spoke(UNASKED, UNASKED, UNASKED, UNASKED)


@dataclass(frozen=True, slots=True)
class Policy:
    hub_url: str
    image: str = ""  # of the agent; empty where it is not known
    reclaiming: float = 3600.0
    rebooting: float = 1800.0
    patience: float = 600.0  # how long a cluster may be silent before its host is left to people
    remove_node: bool = False
    drain: drain_model.Policy | None = None  # empty the node first, this way
    require_one_shot: bool = False  # refuse a host whose later boots would be discovery too
    clean_boot: bool = False  # let the agent remove the rollback deployment where /boot lacks room
    boot: BootPolicy = field(default_factory=BootPolicy)  # what a host may boot


def is_unbound(state: str) -> bool:
    """Whether a host with this state is in discovery; the states are assisted-service's, and it may add to them."""
    return state.endswith("-unbound")


def is_pinned(host: Host) -> bool:
    """Whether the node of this stage is noted: then the rules were looked at once more, and held."""
    return host.kept and host.pinned is not None and host.pinned.stage == host.stage


def pin_node(stage: str, node: SpokeNode) -> Pin:
    return Pin(stage, node.uid, node.boot_id)


def is_held_for(host: Host, node: SpokeNode) -> bool:
    """Whether this very Node was cordoned in a stage of this host, which may be over."""
    return host.kept and node.held and bool(node.uid) and host.pinned is not None and host.pinned.uid == node.uid


def next_stage(stage: str, now: Instant) -> str:
    """When a stage begins: never the moment another one of the same host began, by which steps are told apart."""
    before = parse(stage)
    return iso(now if before is None or iso(now) > iso(before) else before + 1)


def stage_key(state: str, stage: str) -> str:
    """Names a stage: two stages may begin in the same second, but not with the same state."""
    return f"{state}/{stage}"


def step_id(uid: str, state: str, stage: str) -> str:
    """The one step of a stage, named the same by every replica; another stage is another step."""
    return hashlib.sha256(f"{uid}/{stage_key(state, stage)}".encode()).hexdigest()[:32]


def is_going_down(host: Host) -> bool:
    """Whether its agent has said that the host goes down: from then on the restart cannot be called off."""
    report = host.report
    named = report is not None and report.step_id == step_id(host.uid, host.state, host.stage)
    return named and report is not None and report.exit_code == 0 and host.state == State.REBOOTING


class CalledOff(StrEnum):
    """Why a host is not restarted although its time has come: people changed their mind before its agent asked."""

    DELETED = "deleted"
    BOUND = "bound"
    CANCELLED = "cancelled"


def find_called_off(host: Host) -> CalledOff | None:
    if host.deleted:
        return CalledOff.DELETED
    if is_going_down(host):
        return None  # the host goes down already: without its entry it would only be restarted for nothing
    if host.bound is not None:
        return CalledOff.BOUND
    return CalledOff.CANCELLED if host.cancelled else None
