"""Faults by type, decoding by path: with the vendor's own objects, no server needed."""

from __future__ import annotations

import ssl
from typing import Any

import pytest

from hostler.errors import Complaint
from hostler.vsphere.decode import change, gone
from hostler.vsphere.faults import AlreadySo, Kind, Refused, read, refusal
from hostler.vsphere.records import Backing, Host, Vm
from hostler.vsphere.session import NotConnected, Standing, Waiting, diagnose
from hostler.vsphere.vmomi import PropertyCollector, Unreadable, vim, vmodl

VM = vim.VirtualMachine("vm-7", None)


def power(existing: str, requested: str) -> Any:
    return vim.fault.InvalidPowerState(existingState=existing, requestedState=requested)


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (vim.fault.NotAuthenticated(object=VM, privilegeId="x"), Kind.NOT_CONNECTED),
        (vim.fault.NoPermission(object=VM, privilegeId="VirtualMachine.Interact.PowerOff"), Kind.NO_PERMISSION),
        (vmodl.fault.ManagedObjectNotFound(obj=VM), Kind.GONE),
        (power("suspended", "poweredOn"), Kind.POWER_STATE),
        (vim.fault.InvalidState(), Kind.STATE),
        (vim.fault.NoCompatibleHost(), Kind.NO_COMPATIBLE_HOST),
        (vim.fault.InsufficientHostMemoryCapacityFault(), Kind.NO_RESOURCES),
        (vim.fault.InsufficientResourcesFault(), Kind.NO_RESOURCES),
        (vim.fault.TaskInProgress(task=vim.Task("task-1", None)), Kind.IN_PROGRESS),
        (vim.fault.ToolsUnavailable(), Kind.NO_TOOLS),
        (vmodl.fault.HostNotConnected(), Kind.HOST_AWAY),
        (vmodl.fault.RequestCanceled(), Kind.CANCELLED),
        (vim.fault.Timedout(), Kind.TIMED_OUT),
        (vim.fault.MigrationFeatureNotSupported(), Kind.CANNOT_MOVE),
        (vmodl.fault.NotSupported(), Kind.NOT_SUPPORTED),
        (vim.fault.FileLocked(), Kind.OTHER),
        (vmodl.RuntimeFault(), Kind.OTHER),
        (ConnectionResetError("cut"), Kind.NOT_CONNECTED),
        (Unreadable("PowerOnVM_Task: KeyError"), Kind.OTHER),
    ],
)
def test_a_fault_is_known_by_its_type(fault: Any, kind: Kind) -> None:
    fault.msg = "Permission to power off was denied: the virtual machine is already powered off"  # text decides nothing
    found = read(fault)
    assert (found.kind, found.already) == (kind, False)
    refused = refusal("powering off vm-7", fault)
    assert isinstance(refused, Refused)
    assert refused.sentence.startswith("powering off vm-7 was refused: ")


def test_already_off_is_no_refusal_and_a_missing_privilege_is_named() -> None:
    assert isinstance(refusal("powering off vm-7", power("poweredOff", "poweredOff")), AlreadySo)
    assert isinstance(refusal("shutting down", power("poweredOff", "poweredOn"), "poweredOff"), AlreadySo)
    assert isinstance(refusal("powering on", power("poweredOff", "poweredOn"), "poweredOn"), Refused)
    refused = refusal(
        "powering off vm-7", vim.fault.NoPermission(object=VM, privilegeId="VirtualMachine.Interact.PowerOff")
    )
    assert isinstance(refused, Refused)
    assert refused.privilege == "VirtualMachine.Interact.PowerOff"
    assert "VirtualMachine.Interact.PowerOff on vm-7" in refused.sentence


@pytest.mark.parametrize(
    ("error", "standing"),
    [
        (vim.fault.InvalidLogin(), Standing.WRONG_CREDENTIAL),
        (Waiting(), Standing.WRONG_CREDENTIAL),
        (vim.fault.NotAuthenticated(object=VM, privilegeId="x"), Standing.EXPIRED),
        (ssl.SSLCertVerificationError(), Standing.BAD_CERTIFICATE),
        (ConnectionRefusedError("no"), Standing.UNREACHABLE),
        (TimeoutError(), Standing.UNREACHABLE),
        (NotConnected("no session"), Standing.UNREACHABLE),
        (Complaint("VCENTER_PASSWORD_FILE is empty."), Standing.REFUSED),
        (vim.fault.NoPermission(object=VM, privilegeId="System.View"), Standing.REFUSED),
        (Unreadable("Login: KeyError"), Standing.REFUSED),
        (ZeroDivisionError("a bug"), Standing.REFUSED),
    ],
)
def test_every_loss_has_a_standing_and_a_sentence(error: Exception, standing: Standing) -> None:
    if isinstance(error, ssl.SSLCertVerificationError):
        error.verify_message = "self-signed certificate"
    link = diagnose("vc1", error, clock=lambda: 7.0)
    assert (link.standing, link.since, link.connected) == (standing, 7.0, False)
    assert link.sentence.startswith("vCenter vc1 ")
    assert str(link).endswith("(since 1970-01-01T00:00:07Z)")


def test_what_we_may_not_read_is_named_and_not_taken_for_absent() -> None:
    refused = PropertyCollector.MissingProperty(
        path="config.hardware.device", fault=vim.fault.NoPermission(object=VM, privilegeId="System.Read")
    )
    found = change(VM, [("name", "vCLS-1"), ("summary.nobody", "asked")], [refused])
    assert found is not None
    assert (found.kind, found.moref, found.fields) == (Vm, "vm-7", {"name": "vCLS-1"})
    assert found.unread == ("config.hardware.device: our user may not do this (NoPermission: System.Read on vm-7)",)
    left = gone(vim.HostSystem("host-1", None))
    assert left is not None
    assert (left.kind, left.fields) == (Host, None)
    assert change(vim.Folder("group-1", None), []) is None


def test_devices_by_how_they_are_held() -> None:
    through = vim.vm.device.VirtualPCIPassthrough
    backings = [
        through.DeviceBackingInfo(id="0000:3b:00.0", deviceId="20b5", systemId="s", vendorId=0x10DE, deviceName="A100"),
        through.DynamicBackingInfo(
            deviceName="", customLabel="big", assignedId="",
            allowedDevice=[through.AllowedDevice(vendorId=0x8086, deviceId=0x56C0)],
        ),
        through.VmiopBackingInfo(vgpu="grid_a100-40c"),
        through.PluginBackingInfo(),
    ]  # fmt: skip
    devices = [through(key=index, backing=one) for index, one in enumerate(backings)]
    found = change(VM, [("config.hardware.device", [*devices, vim.vm.device.VirtualDisk(key=9)])])
    assert found is not None
    assert found.fields is not None
    fixed, dynamic, share, other = found.fields["devices"]
    assert (fixed.backing, fixed.id, fixed.allowed) == (Backing.FIXED, "0000:3b:00.0", ("10de:20b5",))
    assert (dynamic.backing, dynamic.allowed, dynamic.label) == (Backing.DYNAMIC, ("8086:56c0",), "big")
    assert (share.backing, share.profile) == (Backing.VGPU, "grid_a100-40c")
    assert other.backing is Backing.OTHER
