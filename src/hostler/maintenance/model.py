"""What maintenance knows: names on the Node and the VM, states with their transitions, facts. Plain data. Pure.

The state lives in the Node's annotations, in the predecessor's own words, so that a restart or a take-over goes on from
them. Phases inside a state are derived from facts and are never stored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol, TypeAlias

from hostler.drain import model as drain
from hostler.host.ceiling import Room
from hostler.host.facts import Fact, Unknown
from hostler.host.holds import HOLDS, MAINTENANCE, Hold, held_by
from hostler.host.identity import Refusal
from hostler.host.maintenance import HOST as HOST
from hostler.host.maintenance import MIGRATED_TO as MIGRATED_TO
from hostler.host.maintenance import SINCE as SINCE
from hostler.host.maintenance import STATE as STATE
from hostler.host.maintenance import State as State
from hostler.host.taints import out_of_service
from hostler.instant import Instant, iso_micro, parse
from hostler.kube.records import Condition, Node
from hostler.vsphere.outcomes import Kind
from hostler.vsphere.records import Cluster, Entering, Host, Place, Task, Vm, VmDevice

# -- names on the Node; the predecessor's are in host/maintenance.py
POLICY: Final = "hostler.dev/maintenance-policy"
TARGET: Final = "hostler.dev/maintenance-target"
ORIGIN: Final = "hostler.dev/maintenance-origin"  # which host HOST names, however it is called later
SHUTDOWN_SINCE: Final = "hostler.dev/guest-shutdown-since"
BOOT_BEFORE: Final = "hostler.dev/boot-id-before"
POWER_ON_SINCE: Final = "hostler.dev/power-on-since"
RELOCATE_SINCE: Final = "hostler.dev/relocate-since"
DRAIN_ENDED: Final = "hostler.dev/drain-ended"  # how the drain ended
EMPTY, LATE = "empty", "late"
DRAIN_HELD: Final = "hostler.dev/drain-held"  # since when nothing may be evicted
TOLD: Final = "hostler.dev/maintenance-told"  # which controllers we told of it, and so have to tell of its end
# What ends with a maintenance. The policy is the owner's and stays.
OURS: Final = (
    STATE, HOST, MIGRATED_TO, SINCE, TARGET, ORIGIN, SHUTDOWN_SINCE, BOOT_BEFORE, POWER_ON_SINCE, RELOCATE_SINCE,
    DRAIN_ENDED, DRAIN_HELD, TOLD,
)  # fmt: skip

# A host counts as back only after it has been so for this long: a task's success is reported a moment before the host
# says that it is in maintenance, and vLCM repeats its tasks.
SETTLE_SECONDS = 3.0
# A VM that nothing ties to its host is given this long to be moved live by DRS before its node is drained.
LIVE_MOVE_SECONDS = 60.0
# A guest that was asked to shut down may do so long after its time; for this long a VM that goes off is started again.
LATE_STOP_SECONDS = 900.0
# A guest that was asked to shut down may do so a little after its time; until then nobody may rely on it running.
SHUTDOWN_GRACE = 5.0
# A guest that could not even be asked so many times is powered off when its time is up.
ASK_TRIES = 3
# How long pods and volumes of a machine that is off may keep it from starting elsewhere.
RELEASE_SECONDS = 120.0


class Wish(StrEnum):
    """What the owner of a node wants, by annotation `hostler.dev/maintenance-policy`."""

    MIGRATE = "migrate"
    WAIT = "wait"  # power off, wait for the host
    STAY_OFF = "stay-off"
    IGNORE = "ignore"


@dataclass(frozen=True, slots=True)
class Transition:
    """One line of the table: from, to, and when. None is: no maintenance."""

    before: State | None
    after: State | None
    event: str
    when: str


TRANSITIONS: Final = (
    Transition(None, State.DRAINING, "Draining", "its ESXi host enters maintenance, and slot and ceiling allow it"),
    Transition(State.DRAINING, None, "MaintenanceCancelled", "the host stays in service before the VM was stopped"),
    Transition(State.DRAINING, State.POWERED_OFF, "PoweredOff", "vCenter says that the VM is off"),
    Transition(State.DRAINING, State.MIGRATED, "Migrated", "the VM runs on another host that is in service"),
    Transition(State.POWERED_OFF, State.MIGRATED, "Migrated", "the VM runs on another host that is in service"),
    Transition(State.POWERED_OFF, State.DRAINING, "DrainingAgain", "the VM runs on a host that goes into maintenance"),
    Transition(State.POWERED_OFF, None, "BackInService", "the VM runs where it was, and its node is Ready again"),
    Transition(State.MIGRATED, State.POWERED_OFF, "PoweredOff", "the VM is off again"),
    Transition(State.MIGRATED, State.DRAINING, "DrainingAgain", "the new host goes into maintenance too"),
    Transition(State.MIGRATED, None, "BackInService", "the VM runs, and its node is Ready again"),
)


# -- what a VM says in vCenter while we keep it


class Marked(StrEnum):
    DRAINING = "draining"
    STOPPED = "stopped"
    ASKED = "asked"  # its guest was asked to shut down, then the maintenance was cancelled: it may still go off


_MARK = re.compile(
    r"\(node=(\S+) host=(.+?) id=(\S+) since=(\S+) policy=(\S+) cluster=(\S+) (draining|stopped|asked)\)$"
)
NO_CLUSTER: Final = "-"
NO_HOST: Final = "-"
_DOING = {
    Marked.DRAINING: "is emptying this VM's node",
    Marked.STOPPED: "stopped this VM and starts it again",
    Marked.ASKED: "asked this VM to stop, and starts it again if it does",
}


@dataclass(frozen=True, slots=True)
class Mark:
    """The attribute `hostler` of a VM, or a ConfigMap's line in its place."""

    node: str
    host: str
    since: str
    what: Marked
    policy: str = "migrate"
    # Which Kubernetes cluster's it is: one vCenter serves many, each with an operator of its own.
    cluster: str = NO_CLUSTER
    # The managed object id of its own host. An attribute is short, so the rest of its origin is on the node alone.
    host_id: str = NO_HOST

    def text(self) -> str:
        """A sentence for the vSphere administrator, which `read_mark` understands again."""
        host = f"host={self.host} id={self.host_id}"
        whose = f"node={self.node} {host} since={self.since} policy={self.policy} cluster={self.cluster}"
        return f"Hostler {_DOING[self.what]}: its ESXi host goes into maintenance ({whose} {self.what})"


def read_mark(text: str) -> Mark | None:
    """None where there is none, or where it is not our text."""
    found = _MARK.search(text.strip())
    if found is None:
        return None
    node, host, host_id, since, policy, cluster, what = found.groups()
    return Mark(node, host, since, Marked(what), policy, cluster, host_id)


# -- what is known


@dataclass(frozen=True, slots=True)
class InDoubt(Unknown):
    """Which VM a node is cannot be said: two candidates, a contradiction, no proof. A person has to look."""

    reason: Refusal | None = None
    remedy: str = ""  # what the owner can do
    vm: tuple[str, str] | None = None  # the one VM that it would be: vCenter and id


class Site(Protocol):
    """One vCenter's inventory, as far as a decision reads it: `vsphere.inventory.Inventory` is the real one."""

    @property
    def instance(self) -> str: ...
    def host(self, moref: str) -> Host | None: ...
    def vm(self, moref: str) -> Vm | None: ...
    def task(self, moref: str) -> Task | None: ...
    def cluster(self, moref: str) -> Cluster | None: ...
    def clusters(self) -> Iterator[Cluster]: ...
    def hosts(self) -> Iterator[Host]: ...
    def hosts_in(self, cluster: str) -> Iterator[Host]: ...
    def count_hosts_in(self, cluster: str) -> int: ...
    def hosts_offering(self, devices: Iterable[VmDevice]) -> frozenset[str] | None: ...
    def hosts_named(self, name: str) -> list[Host]: ...
    def hosts_with_uuid(self, uuid: str) -> list[Host]: ...
    def place(self, moref: str) -> Place | None: ...
    def vms_on(self, host: str) -> list[Vm]: ...
    def tasks_of(self, entity: str) -> list[Task]: ...
    def entering(self, host: str) -> Entering | None: ...
    def name(self, moref: str) -> str: ...


Object: TypeAlias = tuple[str, str]  # vCenter, id
Lacks: TypeAlias = Fact[tuple[str, ...]]  # what our user lacks on an object


@dataclass(frozen=True, slots=True)
class Unanswered(Unknown):
    """vCenter was asked in every way we know and would not say; `since` is by our clock."""

    since: Instant = 0.0


@dataclass(frozen=True, slots=True)
class Need:
    """Privileges that our user needs on one object."""

    on: str  # its id
    said: str  # how people call it: "VM gpu-1"
    privileges: tuple[str, ...]

    def __str__(self) -> str:
        return f"{' and '.join(self.privileges)} on {self.said}"


@dataclass(frozen=True, slots=True)
class Attempts:
    """Tries of one thing that failed: how often, why, and not before when it is tried again."""

    number: int = 0
    not_before: Instant = 0.0
    why: str = ""
    kind: Kind | None = None
    hosts: tuple[str, ...] = ()  # where it was tried
    at: Instant = 0.0  # when the last one failed


@dataclass(frozen=True, slots=True)
class Pending:
    """Something asked of vCenter whose task its push has not shown yet."""

    task: str
    what: str  # the task's kind
    at: Instant
    host: str = ""  # where it is to run or to go


@dataclass(frozen=True, slots=True)
class Remembered:
    """What this process knows besides the annotations. Losing it costs a repeated harmless call, no more."""

    stop_noted: str = ""  # the guest-shutdown-since we wrote ourselves: nobody asked the guest under it before us
    shutdown_asked: str = ""  # the guest-shutdown-since it was asked under
    shutdown_at: Instant = 0.0  # when the guest took it, by our clock
    shutdown_refused: str = ""
    power: Attempts = Attempts()
    relocate: Attempts = Attempts()
    tried_in: tuple[object, ...] = ()  # what a start depends on, as it was when it was last asked for
    mark: Attempts = Attempts()
    marked: Mark | None = None  # what the VM was last told to say; not repeated, whatever vCenter makes of it
    pending: Pending | None = None
    relocate_asked: str = ""  # the relocate-since it was asked under
    relocating: Instant | None = None  # for a VM without a node to write it on
    alive: bool = False  # the kubelet renewed its lease under our eyes, twice, since the VM was seen running
    reported: bool = False  # its kubelet has written Ready again under our eyes since then
    boot: tuple[str, Instant] = ("", 0.0)  # the node's boot id, and when we first saw it
    started: bool = False  # by us, since it was last seen off
    running_since: Instant | None = None  # since when we see its VM run
    entering_since: Instant | None = None  # since when we see its host enter, by our clock
    kept_volumes: frozenset[str] = frozenset()
    machine_told: str = ""  # the Machine that was told of this maintenance


@dataclass(frozen=True, slots=True)
class Busy:
    """An action of an earlier pass is still under way: nothing new for this one, but it counts as what it becomes."""

    state: State | None
    target: tuple[str, str] | None = None  # vCenter, host id


@dataclass(frozen=True, slots=True)
class Subject:
    """A managed node with the VM under it, or a VM that carries our mark without a node."""

    name: str
    node: Node | None
    vcenter: str
    vm: Fact[Vm]
    mark: Mark | None = None
    drain: drain.Facts | None = None
    remembered: Remembered = Remembered()
    busy: Busy | None = None
    # Nobody but its kubelet says that it is this VM: the VM is neither stopped, moved nor marked. What we stopped, by
    # the node's state, is started again all the same.
    refused: InDoubt | None = None

    @property
    def annotations(self) -> Mapping[str, str]:
        return self.node.metadata.annotations if self.node is not None else {}

    @property
    def state(self) -> State | Unknown | None:
        word = self.annotations.get(STATE, "")
        try:
            return State(word) if word else None
        except ValueError:
            return Unknown(f'annotation {STATE} is "{word}", which is no state; mend it or remove it')

    @property
    def wish(self) -> Wish | Unknown:
        word = self.annotations.get(POLICY, "") if self.node is not None else (self.mark.policy if self.mark else "")
        try:
            return Wish(word) if word else Wish.MIGRATE
        except ValueError:
            words = ", ".join(Wish)
            return Unknown(f'annotation {POLICY} is "{word}", but must be one of {words}')

    @property
    def origin(self) -> str:
        """The name of the ESXi host whose maintenance this is."""
        return self.annotations.get(HOST, "") or (self.mark.host if self.mark else "")

    def at(self, annotation: str) -> Instant | None:
        return parse(self.annotations.get(annotation))

    @property
    def ready(self) -> bool:
        ready = ready_condition(self.node) if self.node is not None else None
        return ready is not None and ready.status == "True"

    @property
    def tainted(self) -> bool:
        return self.node is not None and out_of_service(self.node)


def identity_doubt(subject: Subject) -> InDoubt | None:
    """Why nobody may act on what its node says which VM it is; None where that is known, or not known for now."""
    return subject.refused or (subject.vm if isinstance(subject.vm, InDoubt) else None)


@dataclass(frozen=True, slots=True)
class World:
    """Everything one pass looks at. Subjects are in the order of their names."""

    subjects: tuple[Subject, ...]
    sites: Mapping[str, Fact[Site]]
    room: Room
    cluster: str = NO_CLUSTER  # how our marks name this Kubernetes cluster
    unknown: str = ""  # why nothing at all can be decided: nodes or pods are not known
    unlabelled: str = ""  # no node has the label of managed nodes: a mistake, most likely
    # Since when we have seen a host in service without a break, by our clock: (vCenter, host id).
    out_since: Mapping[tuple[str, str], Instant] = field(default_factory=dict)
    rights: Mapping[Object, Lacks] = field(default_factory=dict)  # nothing about an object: nobody has looked yet
    resumed: Instant = 0.0  # when the last pause ended, or the clock was set forward; now while a pause goes on
    brief: bool = False  # nobody reads why each single host cannot take a VM: the first few reasons will do


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings a decision depends on."""

    drain: drain.Policy = field(default_factory=drain.Policy)
    max_drains: int = 1
    guest_shutdown: float = 120.0
    power_on: float = 300.0
    relocate: float = 600.0
    max_age: float = 60.0  # vCenter's facts older than this are unknown
    clusters: tuple[str, ...] = ()  # further clusters a VM may move to
    vgpu_vmotion: bool = True  # DRS can move a running VM that has a vGPU
    only_proven: bool = False  # nothing is stopped whose return our model doubts
    skip_remediation: bool = False  # the Cluster API Machine of a node is annotated, so that nothing replaces it
    unknown_rights_hold: bool = False  # rights that vCenter will not tell hold a VM for ever, not for a minute


def ready_condition(node: Node) -> Condition | None:
    return next((condition for condition in node.status.conditions if condition.type == "Ready"), None)


def ready_stamp(node: Node) -> str:
    """When its kubelet last said Ready and since when it does, by its own clock: compared only with itself."""
    ready = ready_condition(node)
    return f"{ready.last_heartbeat_time} {ready.last_transition_time}" if ready is not None else ""


def clear_annotations(*keep: str) -> dict[str, str | None]:
    """Every annotation of a maintenance taken away, but for some."""
    return {name: None for name in OURS if name not in keep}


def stamp_of(now: Instant) -> str:
    """As annotations have it: to the microsecond, or a timeout could pass a second early."""
    return iso_micro(now)


def sorted_by_name(subjects: Iterable[Subject]) -> tuple[Subject, ...]:
    return tuple(sorted(subjects, key=lambda subject: subject.name))


def has_stray_hold(node: Node | None) -> bool:
    """It is held by maintenance, and has no state. Asked of every node in every pass: most have no hold at all."""
    if node is None or HOLDS not in node.metadata.annotations or STATE in node.metadata.annotations:
        return False
    return isinstance(held_by(node, MAINTENANCE), Hold)


def mend_command(node: str) -> str:
    return f"hostler release {node} --holder {MAINTENANCE}"
