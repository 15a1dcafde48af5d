"""What went wrong in vCenter, recognised by the fault's type and never by its text.

RuntimeFaults (NoPermission, NotAuthenticated, ManagedObjectNotFound) are no VimFaults, and NotAuthenticated is a
NoPermission: so the order of the table matters, the first match wins.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from hostler.vsphere.vmomi import BROKEN, Unreadable, moref, vim, vmodl


class Kind(StrEnum):
    """Why vCenter refused or a task failed."""

    NOT_CONNECTED = "not-connected"  # no session: unreachable, expired, wrong password; asked again it may work
    NO_PERMISSION = "no-permission"
    GONE = "gone"  # the object is not there any more
    POWER_STATE = "power-state"  # it is not in the power state the call needs
    STATE = "state"  # another wrong state: the host is entering maintenance, ...
    NO_COMPATIBLE_HOST = "no-compatible-host"
    NO_RESOURCES = "no-resources"  # CPU, memory, a passthrough device or a vGPU is not free
    IN_PROGRESS = "in-progress"  # another task works on it
    NO_TOOLS = "no-tools"  # VMware Tools do not run, so the guest cannot be asked
    HOST_AWAY = "host-away"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed-out"
    CANNOT_MOVE = "cannot-move"
    NOT_SUPPORTED = "not-supported"
    OTHER = "other"  # named by its type in the sentence


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault as we keep it. `already`: it says that what was asked for is so already."""

    kind: Kind
    name: str  # the fault's type: "InvalidPowerState"
    sentence: str
    already: bool = False


@dataclass(frozen=True, slots=True)
class Started:
    """Something is under way; how it ends is a fact of the watcher. `task` is "" for calls that have no task."""

    task: str = ""


@dataclass(frozen=True, slots=True)
class AlreadySo:
    """Nothing was to be done. For power-on that is no success by itself: look where the VM runs."""

    why: str


@dataclass(frozen=True, slots=True)
class Refused:
    kind: Kind
    sentence: str
    privilege: str = ""  # the one that is missing, where that is why


Outcome: TypeAlias = Started | AlreadySo | Refused

_TABLE: tuple[tuple[Any, Kind, str], ...] = (
    (vim.fault.NotAuthenticated, Kind.NOT_CONNECTED, "the session has expired; a new one is being opened"),
    (vim.fault.InvalidLogin, Kind.NOT_CONNECTED, "user or password is wrong"),
    (vim.fault.NoPermission, Kind.NO_PERMISSION, "our user may not do this"),
    (vmodl.fault.ManagedObjectNotFound, Kind.GONE, "it does not exist any more"),
    (vim.fault.InvalidPowerState, Kind.POWER_STATE, "it is not in the power state this needs"),
    (vim.fault.NoCompatibleHost, Kind.NO_COMPATIBLE_HOST, "no host can take the VM"),
    (vim.fault.InsufficientResourcesFault, Kind.NO_RESOURCES, "CPU, memory or a device is not free"),
    (vim.fault.TaskInProgress, Kind.IN_PROGRESS, "another task works on it; it is tried again later"),
    (vim.fault.ToolsUnavailable, Kind.NO_TOOLS, "VMware Tools do not run in the guest, so it cannot be asked"),
    (vmodl.fault.HostCommunication, Kind.HOST_AWAY, "vCenter has no connection to the ESXi host"),
    (vmodl.fault.RequestCanceled, Kind.CANCELLED, "it was cancelled"),
    (vim.fault.Timedout, Kind.TIMED_OUT, "it took longer than its own time limit"),
    (vim.fault.InvalidState, Kind.STATE, "the VM or its host is not in a state that allows it"),
    (vim.fault.MigrationFault, Kind.CANNOT_MOVE, "the VM cannot move there"),
    (vim.fault.VmConfigFault, Kind.CANNOT_MOVE, "the VM's devices do not fit there"),
    (vmodl.fault.NotSupported, Kind.NOT_SUPPORTED, "this vCenter cannot do that"),
)  # fmt: skip
# Raised by a call instead of an answer: a fault of the server, or a connection that broke.
RAISED: tuple[type[Exception], ...] = (vmodl.MethodFault, Unreadable, *BROKEN)


def read(fault: Any) -> Fault:
    """The fault of a task or of a call; also a broken connection."""
    name = type(fault).__name__.rpartition(".")[2]
    if isinstance(fault, BROKEN):
        return Fault(Kind.NOT_CONNECTED, name, f"the connection broke: {fault}")
    if isinstance(fault, Unreadable):
        return Fault(Kind.OTHER, name, f"its answer cannot be read: {fault}")
    for type_, kind, meaning in _TABLE:
        if isinstance(fault, type_):
            return Fault(kind, name, f"{meaning} ({_detail(fault, name)})", _already(fault))
    return Fault(Kind.OTHER, name, f"vCenter answered {_detail(fault, name)}")


def refusal(what: str, error: Any, wanted: str = "") -> AlreadySo | Refused:
    """What a caller gets instead of an exception. `what`: "powering off vm-12"; `wanted`: the power state meant."""
    fault = read(error)
    so = bool(wanted) and isinstance(error, vim.fault.InvalidPowerState) and error.existingState == wanted
    if fault.already or so:
        return AlreadySo(f"{what} was not needed: {fault.sentence}")
    return Refused(fault.kind, f"{what} was refused: {fault.sentence}.", privilege(error))


def privilege(fault: Any) -> str:
    return str(getattr(fault, "privilegeId", None) or "") if isinstance(fault, vim.fault.NoPermission) else ""


def _already(fault: Any) -> bool:
    return isinstance(fault, vim.fault.InvalidPowerState) and fault.requestedState == fault.existingState


def _detail(fault: Any, name: str) -> str:
    """The type, and the few fields that say more than the type. The server's own text is for people only."""
    if isinstance(fault, vim.fault.NoPermission):
        return f"{name}: {privilege(fault) or 'no privilege named'} on {moref(fault.object) or 'an object'}"
    if isinstance(fault, vim.fault.InvalidPowerState):
        return f"{name}: it is {fault.existingState}"
    said = " ".join(str(getattr(fault, "msg", "") or "").split())[:200]
    return f"{name}: {said}" if said else name
