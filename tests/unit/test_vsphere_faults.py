"""Faults by type, decoding by path: with the vendor's own objects, no server needed."""

from __future__ import annotations

import ssl
from typing import Any

import pytest

from hostler.errors import Complaint
from hostler.vsphere.decode import change, gone
from hostler.vsphere.faults import AlreadySo, Kind, Refused, read, refusal
from hostler.vsphere.records import Backing, Host, Unread, Vm
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
    assert found.unread == (
        Unread("config.hardware.device", "our user may not do this (NoPermission: System.Read on vm-7)"),
    )
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


def test_network_cards_and_usb_devices_of_the_host() -> None:
    """A card whose physical function vCenter chooses has no address, and a USB device of a client none of the host."""
    card, usb = vim.vm.device.VirtualSriovEthernetCard, vim.vm.device.VirtualUSB
    function = vim.vm.device.VirtualPCIPassthrough.DeviceBackingInfo
    ids = ("0000:5e:00.0", "Automatic-0000:5e:00.0")
    chosen = [function(id=id, deviceId="1", systemId="s", vendorId=1, deviceName="") for id in ids]
    devices = [
        *(card(key=1, sriovBacking=card.SriovBackingInfo(physicalFunctionBacking=one)) for one in chosen),
        card(key=2),
        usb(key=3, backing=usb.USBBackingInfo(deviceName="path:1/0/1")),
        usb(key=4, backing=usb.RemoteHostBackingInfo(deviceName="path:1/0/2", hostname="esx1")),
        usb(key=5, backing=usb.RemoteClientBackingInfo(deviceName="", hostname="laptop")),
        vim.vm.device.VirtualVmxnet3(key=6),
    ]
    found = change(VM, [("config.hardware.device", devices)])
    assert found is not None
    assert found.fields is not None
    assert [(one.backing, one.id) for one in found.fields["devices"]] == [
        (Backing.SRIOV, "0000:5e:00.0"), (Backing.SRIOV, ""), (Backing.SRIOV, ""), (Backing.USB, ""),
        (Backing.USB_REMOTE, ""),
    ]  # fmt: skip


def test_disks_labels_and_standalone_hosts() -> None:
    disk = vim.vm.device.VirtualDisk
    store = vim.Datastore("datastore-1", None)
    backing = disk.FlatVer2BackingInfo(fileName="[vsan] a/a.vmdk", diskMode="persistent", datastore=store)
    vm = change(VM, [("config.hardware.device", [disk(key=1, backing=backing)])])
    info = vim.host.PciPassthruInfo(
        id="0000:3b:00.0", dependentDevice="", passthruEnabled=True, passthruCapable=True, passthruActive=True,
        hardwareLabel="training",
    )  # fmt: skip
    host = change(vim.HostSystem("host-1", None), [("config.pciPassthruInfo", [info])])
    alone = change(vim.ComputeResource("domain-s1", None), [("name", "esx1")])
    cluster = change(vim.ClusterComputeResource("domain-c1", None), [("name", "gpu")])
    mount = vim.host.MountInfo(accessMode="readWrite", mounted=True, accessible=False)
    lost = [vim.Datastore.HostMount(key=vim.HostSystem("host-1", None), mountInfo=mount)]
    place = change(store, [("summary.accessible", True), ("host", lost)])
    assert vm is not None
    assert vm.fields == {"devices": (), "disks": ("datastore-1",)}
    assert host is not None
    assert host.fields == {"passthrough": ("0000:3b:00.0",), "labels": (("0000:3b:00.0", "training"),)}
    assert alone is not None
    assert alone.fields == {"standalone": True, "name": "esx1"}
    assert cluster is not None
    assert cluster.fields == {"standalone": False, "name": "gpu"}
    assert place is not None
    assert place.fields == {"accessible": True, "cut_off": ("host-1",)}
