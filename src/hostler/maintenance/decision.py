"""What is decided: where a maintenance stands, why it does not go on, what is done now. Pure.

Reasons are data; the text that people read is rendered from it here. A Node is always written in one merge patch that
carries the version it was decided on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any, Final, TypeAlias

from hostler.drain import model as drain
from hostler.host.holds import MAINTENANCE, Nothing, Patch, Refusal, place, release
from hostler.host.taints import out_of_service_patch
from hostler.instant import Instant
from hostler.kube.records import Node
from hostler.maintenance.model import (
    HOST,
    SINCE,
    STATE,
    TOLD,
    InDoubt,
    Mark,
    Need,
    State,
    Subject,
    clear_annotations,
    stamp_of,
)


class Phase(Enum):
    """Where a subject stands within its state. Each value is the text of the status table; nothing compares it."""

    AT_WORK = "at work"
    BEGINNING = "beginning"
    CHECKING = "checking"
    DRAINING = "draining"
    ENDING = "ending"
    FAILED = "failed"
    HELD = "held"
    HELD_BACK = "held back"
    IGNORED = "ignored"
    IN_SERVICE = "in service"
    LETTING_GO = "letting go"
    MARKING = "marking"
    MOVING = "moving"
    NOT_KNOWN = "not known"
    NOT_OURS = "not ours"
    OFF = "off"
    OVERRULED = "overruled"
    REFUSED = "refused"
    SETTLING = "settling"
    STARTED = "started"
    STARTING = "starting"
    STOPPING = "stopping"
    TAKEN_OVER = "taken over"
    UNMARKING = "unmarking"
    WAITING = "waiting"
    WAITING_FOR_HOST = "waiting for a host"


class BlockedBy(StrEnum):
    """Why it does not go on. Each value is a label of the metric hostler_maintenance_blocked."""

    BUDGET = "budget"
    VOLUMES = "volumes"
    REFUSED = "refused"
    SLOT = "slot"
    CEILING = "ceiling"
    POLICY = "policy"
    PRIVILEGES = "privileges"
    DRS = "drs"
    HOLDS = "holds"
    UNCORDONED = "uncordoned"
    UNKNOWN = "unknown"
    NO_HOST = "no host"
    NO_RESTART = "no restart"
    POWER_ON = "power-on"
    POWER_OFF = "power-off"
    LOOKING = "looking"
    STRAY_HOLD = "stray hold"
    IDENTITY = "identity"


# The text of a reason, with {} where its details stand; of any other its details alone.
_SENTENCES: Final = {
    BlockedBy.REFUSED: "a setting forbids evicting pods",
    BlockedBy.PRIVILEGES: "our vCenter user lacks {}",
}


@dataclass(frozen=True, slots=True)
class Blocked:
    by: BlockedBy
    details: str = ""

    @property
    def sentence(self) -> str:
        """What is to be said besides the decision's `why`, without a full stop; "" where that says all of it."""
        return _SENTENCES.get(self.by, "{}").format(self.details)

    @property
    def text(self) -> str:
        """For the status table: a word where the decision's `why` says all of it."""
        return self.sentence or self.by.value


# -- actions


# -- what comes out


@dataclass(frozen=True, slots=True)
class PatchNode:
    """One merge patch of the Node; `event` names it for the Node's Events ("" = none)."""

    body: Mapping[str, Any]
    why: str
    event: str = ""
    warning: bool = False
    off: str = ""  # this VM must be off, looked at right before
    frees: str = ""  # the annotation on this Machine is removed first

    def state_after(self, before: State | None) -> State | None:
        """The state the Node has with it."""
        annotations = self.body["metadata"].get("annotations", {})
        if STATE not in annotations:
            return before
        return State(annotations[STATE]) if annotations[STATE] else None


@dataclass(frozen=True, slots=True)
class Evictions:
    evictions: tuple[drain.Evict, ...]
    why: str


@dataclass(frozen=True, slots=True)
class SetMark:
    """Write what the VM says, or with None take it away."""

    vm: str
    mark: Mark | None
    why: str


@dataclass(frozen=True, slots=True)
class TellMachine:
    """Tell the Cluster API Machine of a node that it is in maintenance."""

    machine: str  # NAMESPACE/NAME
    why: str


@dataclass(frozen=True, slots=True)
class ShutDown:
    vm: str
    host: str  # where it must still be
    since: str  # the annotation it is asked under
    why: str
    needs: tuple[Need, ...] = ()  # looked at once more right before it


@dataclass(frozen=True, slots=True)
class PowerOff:
    vm: str
    host: str
    why: str
    needs: tuple[Need, ...] = ()


@dataclass(frozen=True, slots=True)
class Relocate:
    vm: str
    host: str  # where it goes
    pool: str
    why: str
    seen: tuple[object, ...] = ()  # what it depends on, as it is now


@dataclass(frozen=True, slots=True)
class PowerOn:
    vm: str
    host: str  # where it must be registered; with DRS only where it is now
    drs: bool
    why: str
    seen: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True)
class CancelTask:
    vm: str
    task: str
    why: str


Action: TypeAlias = (
    PatchNode | Evictions | SetMark | TellMachine | ShutDown | PowerOff | Relocate | PowerOn | CancelTask
)


@dataclass(frozen=True, slots=True)
class Rejected:
    """A host that cannot take the VM, and why in one line."""

    host: str
    why: str


@dataclass(frozen=True, slots=True)
class Decision:
    """Where one subject stands, what is done now, and what would change it."""

    subject: str
    state: State | None
    phase: Phase
    why: str
    next: str = ""  # what happens next, or what would release it
    action: Action | None = None
    wake: Instant | None = None
    blocked: Blocked | None = None  # why it does not go on
    rejected: tuple[Rejected, ...] = ()
    target: tuple[str, str] | None = None  # vCenter and host id it has reserved
    drain: drain.Decision | None = None
    pulse: bool = False  # look whether its kubelet is alive
    overdue: str = ""  # POWER_ON_TIMEOUT_SECONDS has passed: said once
    doubt: str = ""  # it is stopped though our model doubts its return: said once
    unknown: bool = False  # it does not go on because a fact is not known
    bug: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Hanging:
    """VMs that are not ours and keep the Enter task of a host from its end."""

    vcenter: str
    host: str
    vms: tuple[str, ...]
    nodes: tuple[str, ...] = ()  # ours on that host: they carry the event


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass over everything."""

    decisions: tuple[Decision, ...]
    hanging: tuple[Hanging, ...] = ()

    @property
    def wake(self) -> Instant | None:
        return min((decision.wake for decision in self.decisions if decision.wake is not None), default=None)

    def of(self, subject: str) -> Decision | None:
        return next((decision for decision in self.decisions if decision.subject == subject), None)


def as_sentence(clause: str, name: str) -> str:
    """With a capital letter; the name of a node at its beginning stays as it is."""
    return clause if clause.startswith(name) else f"{clause[:1].upper()}{clause[1:]}"


# -- decisions without an action


def decide_to_wait(
    subject: Subject,
    state: State | None,
    phase: Phase,
    why: str,
    release: str,
    *,
    wake: Instant | None = None,
    blocked: BlockedBy | None = None,
    details: str = "",
) -> Decision:
    """Nothing to do now; `release` says what would change that."""
    reason = Blocked(blocked, details) if blocked is not None else None
    return Decision(subject.name, state, phase, why, release, wake=wake, blocked=reason)


def decide_to_refuse(subject: Subject, state: State | None, doubt: InDoubt) -> Decision:
    """Which VM its node is has no proof, or is in doubt: nothing is done to the VM until the owner says it."""
    reason = Blocked(BlockedBy.IDENTITY, doubt.why)
    return Decision(subject.name, state, Phase.REFUSED, doubt.why, doubt.remedy, blocked=reason, unknown=True)


def decide_to_freeze(subject: Subject, state: State | None, why: str) -> Decision:
    """A fact is not known: nothing is done until it is."""
    reason, release = Blocked(BlockedBy.UNKNOWN, why), "it goes on when that is known"
    return Decision(subject.name, state, Phase.NOT_KNOWN, why, release, blocked=reason, unknown=True)


# -- what is written on a Node


def hold_why(host: str) -> str:
    return f"ESXi host {host} goes into maintenance"


def patch_state(
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
    annotations = {
        STATE: str(after),
        HOST: host,
        SINCE: stamp_of(now),
        **(also or {}),
        **announce_maintenance(node, machine),
    }
    match place(node, MAINTENANCE, hold_why(host), now, also=annotations):
        case Patch(body):
            return PatchNode(body, why, event, warning)
        case Refusal() as refusal:
            return refusal
        case Nothing(said):
            return Refusal(said)


def patch_adoption(node: Node, host: str, now: Instant, also: Mapping[str, str | None]) -> PatchNode | Refusal:
    """A state of the predecessor gets a hold of its own, and whatever a state must have."""
    match place(node, MAINTENANCE, hold_why(host), now, also={**also, **announce_maintenance(node)}):
        case Patch(body):
            why = f"{node.metadata.name} is taken over in state {node.metadata.annotations.get(STATE, '')}"
            return PatchNode(body, why, "TakenOver")
        case Refusal() as refusal:
            return refusal
        case Nothing(said):
            return Refusal(said)


def patch_release(node: Node, why: str, event: str) -> PatchNode | Refusal:
    """The maintenance is over: state and hold go together, and with the last hold the cordon, if it is ours."""
    match release(node, MAINTENANCE, also={**clear_annotations(), **take_back_announcements(node)}):
        case Patch(body, said):
            return PatchNode(body, f"{why}; {said}", event, frees=told_machine(node.metadata.annotations))
        case Refusal() as refusal:
            return refusal
        case Nothing(said):
            return Refusal(said)


def patch_notes(node: Node, annotations: Mapping[str, str | None], why: str, event: str = "") -> PatchNode:
    """Annotations only, the state stays: written before the call they belong to."""
    metadata = {"resourceVersion": node.metadata.resource_version, "annotations": dict(annotations)}
    return PatchNode({"metadata": metadata}, why, event)


def patch_taint(node: Node, on: bool, why: str) -> PatchNode:
    return PatchNode(out_of_service_patch(node, on), why, "OutOfService" if on else "OutOfServiceEnded")


# -- annotations for other controllers
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
    name, namespace = (node.metadata.annotations.get(key, "") for key in (_MACHINE, _NAMESPACE))
    return f"{namespace}/{name}" if name and namespace else ""


def announce_maintenance(node: Node, machine: str = "") -> dict[str, str | None]:
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
    return next((word.removeprefix(_OF_MACHINE) for word in words if word.startswith(_OF_MACHINE)), "")


def take_back_announcements(node: Node) -> dict[str, str | None]:
    """What of the Node's annotations ends with the maintenance: only ours, and only as we wrote it."""
    annotations = node.metadata.annotations
    ours = _AUTOSCALER in annotations.get(TOLD, "").split() and annotations.get(SCALE_DOWN_DISABLED) == "true"
    return {SCALE_DOWN_DISABLED: None} if ours else {}
