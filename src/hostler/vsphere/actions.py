"""Things done to vCenter. Each starts something and returns; none waits for an end. They block: threads only.

How a task ends is a fact of the watcher (`Inventory.task`). A refusal is a value with a sentence, never an exception.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hostler.vsphere import faults
from hostler.vsphere.faults import AlreadySo, Kind, Outcome, Refused, Started
from hostler.vsphere.session import NotConnected, Session
from hostler.vsphere.vmomi import moref, vim

ATTRIBUTE = "hostler"
_REFUSED: tuple[type[Exception], ...] = (NotConnected, *faults.RAISED)
SET_FIELD, MANAGE_FIELDS = "Global.SetCustomField", "Global.ManageCustomFields"


def shut_down_guest(session: Session, vm: str) -> Outcome:
    """Ask the guest to shut down. There is no task: the power state is the only witness."""
    return _try(f"shutting down the guest of {vm}", lambda: _vm(session, vm).ShutdownGuest(), "poweredOff")


def power_off(session: Session, vm: str) -> Outcome:
    return _try(f"powering off {vm}", lambda: _vm(session, vm).PowerOffVM_Task(), "poweredOff")


def power_on(session: Session, vm: str, host: str = "") -> Outcome:
    """Power on where it is registered, or on `host`; with DRS fully automated vCenter chooses."""

    def call() -> Any:
        return _vm(session, vm).PowerOnVM_Task(vim.HostSystem(host, session.calls) if host else None)

    return _try(f"powering on {vm}", call, "poweredOn")


def relocate(session: Session, vm: str, host: str, pool: str = "") -> Outcome:
    """Register the VM on another host: compute only, its disks stay where they are.

    Another cluster needs that cluster's resource pool.
    """

    def call() -> Any:
        spec = vim.vm.RelocateSpec(host=vim.HostSystem(host, session.calls))
        if pool:
            spec.pool = vim.ResourcePool(pool, session.calls)
        return _vm(session, vm).RelocateVM_Task(spec, vim.VirtualMachine.MovePriority.highPriority)

    return _try(f"moving {vm} to {host}", call)


def cancel_task(session: Session, task: str) -> Outcome:
    """Ask for the end of a task. One that has ended already is as good."""
    outcome = _try(f"cancelling {task}", lambda: vim.Task(task, session.calls).CancelTask())
    if isinstance(outcome, Refused) and outcome.kind in (Kind.GONE, Kind.STATE):
        return AlreadySo(f"{task} has ended")
    return outcome


def mark(session: Session, vm: str, text: str, key: int | None = None) -> tuple[Outcome, int | None]:
    """Write the attribute `hostler` on a VM, "" takes it away; also returns the attribute's key.

    The definition is made if there is none. Without the privileges the refusal names the one that is missing.
    """
    if key is None:
        made = _definition(session)
        if isinstance(made, Refused):
            return made, None
        key = made

    def call() -> None:
        _fields(session).SetField(vim.VirtualMachine(vm, session.calls), key, text)

    return _privileged(_try(f"marking {vm}", call), SET_FIELD), key


def _definition(session: Session) -> int | Refused:
    """The key of the attribute `hostler`, defined now if nobody has."""
    what = f"defining the attribute {ATTRIBUTE}"
    try:
        if (found := _defined(session)) is not None:
            return found
        try:
            return int(_fields(session).AddCustomFieldDef(ATTRIBUTE, vim.VirtualMachine).key)
        except vim.fault.DuplicateName:
            # Another replica was faster, or it is defined for another kind of object.
            found = _defined(session)
            return found if found is not None else Refused(
                Kind.STATE, f"An attribute {ATTRIBUTE} exists for other objects than VMs; remove it or make it global."
            )  # fmt: skip
    except _REFUSED as error:
        refused = _privileged(_refusal(what, error), MANAGE_FIELDS)
        return refused if isinstance(refused, Refused) else Refused(Kind.OTHER, f"{what} gave no answer.")


def _defined(session: Session) -> int | None:
    for one in _fields(session).field or ():
        if one.name == ATTRIBUTE and one.managedObjectType in (None, vim.VirtualMachine):
            return int(one.key)
    return None


def _fields(session: Session) -> Any:
    return vim.CustomFieldsManager(session.content.customFieldsManager._moId, session.calls)


def _vm(session: Session, vm: str) -> Any:
    return vim.VirtualMachine(vm, session.calls)


def _try(what: str, call: Callable[[], Any], wanted: str = "") -> Outcome:
    try:
        return Started(moref(call()))
    except _REFUSED as error:
        return _refusal(what, error, wanted)


def _refusal(what: str, error: Exception, wanted: str = "") -> AlreadySo | Refused:
    if isinstance(error, NotConnected):
        return Refused(Kind.NOT_CONNECTED, f"{what} was not tried: {error}.")
    return faults.refusal(what, error, wanted)


def _privileged(outcome: Outcome, privilege: str) -> Outcome:
    """Name the privilege also where the server does not."""
    if isinstance(outcome, Refused) and outcome.kind is Kind.NO_PERMISSION:
        needs = outcome.privilege or privilege
        return Refused(outcome.kind, f"{outcome.sentence} Our role needs {needs}.", needs)
    return outcome
