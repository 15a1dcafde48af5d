"""What went wrong in vCenter, recognised by the fault's type and never by its text.

RuntimeFaults (NoPermission, NotAuthenticated, ManagedObjectNotFound) are no VimFaults, and NotAuthenticated is a
NoPermission: so the order of the table matters, the first match wins.
"""

from __future__ import annotations

from typing import Any

from hostler.vsphere.outcomes import AlreadySo as AlreadySo
from hostler.vsphere.outcomes import Fault as Fault
from hostler.vsphere.outcomes import Kind as Kind
from hostler.vsphere.outcomes import Outcome as Outcome
from hostler.vsphere.outcomes import Refused as Refused
from hostler.vsphere.outcomes import Started as Started
from hostler.vsphere.vmomi import BROKEN, Unreadable, moref, vim, vmodl

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
