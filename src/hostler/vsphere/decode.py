"""From pyVmomi's objects to fields of our records: one table per kind, one line per property.

The left side is all we ever ask vCenter for. Heavy properties (a VM's devices, a host's whole PCI list) are asked for
only where a host offers devices: for 5,000 VMs they would be most of the bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from hostler.instant import Instant
from hostler.vsphere import faults
from hostler.vsphere.records import (
    NOT_SAID,
    Backing,
    Cluster,
    Fields,
    Host,
    Names,
    Pci,
    Place,
    Record,
    Task,
    Unread,
    Vm,
    VmDevice,
)
from hostler.vsphere.records import Change as Change
from hostler.vsphere.vmomi import moref, vim

Paths: TypeAlias = Mapping[str, tuple[str, Callable[[Any], Any]]]


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _whole(value: Any) -> int:
    return int(value or 0)


def _flag(value: Any) -> Any:
    return NOT_SAID if value is None else bool(value)


def _morefs(value: Any) -> Names:
    return tuple(sorted(moref(one) for one in value or ()))


def _instant(value: Any) -> Instant | None:
    return None if value is None else float(value.timestamp())


def _passthrough(value: Any) -> dict[str, Any]:
    """Two fields from one property: which devices a VM may have, and how an administrator labelled them."""
    offered = [one for one in value or () if one.passthruEnabled and one.passthruActive]
    labels = ((str(one.id), _text(getattr(one, "hardwareLabel", ""))) for one in offered)
    return {
        "passthrough": tuple(sorted(str(one.id) for one in offered)),
        "labels": tuple(sorted((id, label) for id, label in labels if label)),
    }


def _hex(word: Any) -> str:
    """Vendor and device ids are signed 16-bit words in one place and longer numbers or texts in another."""
    number = int(word, 16) if isinstance(word, str) else int(word or 0)
    return f"{number & 0xFFFF:04x}"


def _pci(value: Any) -> tuple[Pci, ...]:
    return tuple(Pci(str(one.id), _hex(one.vendorId), _hex(one.deviceId), _text(one.deviceName)) for one in value or ())


def _attributes(value: Any) -> tuple[tuple[int, str], ...]:
    return tuple(sorted((int(one.key), _text(getattr(one, "value", ""))) for one in value or ()))


def _fields(value: Any) -> tuple[tuple[int, str], ...]:
    """Definitions that a VM can have: those for VMs and those for everything."""
    return tuple(
        (int(one.key), str(one.name)) for one in value or () if one.managedObjectType in (None, vim.VirtualMachine)
    )


def _devices(value: Any) -> tuple[VmDevice, ...]:
    return tuple(found for one in value or () if (found := _held(one)) is not None)


def _held(one: Any) -> VmDevice | None:
    """What a virtual device holds of the host; None for all that a VM has of its own."""
    usb = vim.vm.device.VirtualUSB
    match one:
        case vim.vm.device.VirtualPCIPassthrough():
            return _device(one)
        case vim.vm.device.VirtualSriovEthernetCard():
            function = _text(getattr(getattr(one.sriovBacking, "physicalFunctionBacking", None), "id", ""))
            # "Automatic-" and the one it has now: another will do as well.
            return VmDevice(Backing.SRIOV, "" if function.startswith("Automatic-") else function)
        case usb() if isinstance(one.backing, usb.USBBackingInfo):
            return VmDevice(Backing.USB, label=_text(one.backing.deviceName))
        case usb() if isinstance(one.backing, usb.RemoteHostBackingInfo):
            return VmDevice(Backing.USB_REMOTE, label=_text(one.backing.deviceName))
    return None


def _hardware(value: Any) -> dict[str, Any]:
    """Two fields from one property: what ties the VM to hosts, and where its disks are."""
    disks = (one.backing for one in value or () if isinstance(one, vim.vm.device.VirtualDisk))
    stores = {moref(store) for backing in disks if (store := getattr(backing, "datastore", None)) is not None}
    return {"devices": _devices(value), "disks": tuple(sorted(stores))}


def _device(one: Any) -> VmDevice:
    kind, backing = vim.vm.device.VirtualPCIPassthrough, one.backing
    match backing:
        case kind.DynamicBackingInfo():
            allowed = tuple(sorted(f"{_hex(a.vendorId)}:{_hex(a.deviceId)}" for a in backing.allowedDevice or ()))
            return VmDevice(Backing.DYNAMIC, _text(backing.assignedId), allowed, _text(backing.customLabel))
        case kind.VmiopBackingInfo():
            return VmDevice(Backing.VGPU, profile=_text(backing.vgpu))
        case kind.DeviceBackingInfo():
            pair = f"{_hex(backing.vendorId)}:{_hex(backing.deviceId)}"
            return VmDevice(Backing.FIXED, _text(backing.id), (pair,), _text(backing.deviceName))
        case _:
            return VmDevice(Backing.OTHER, label=type(backing).__name__)


def _cut_off(value: Any) -> Names:
    """The hosts that mount a datastore and say that they cannot reach it."""
    found = (one for one in value or () if one.mountInfo.accessible is False or one.mountInfo.mounted is False)
    return tuple(sorted(moref(one.key) for one in found))


def _error(value: Any) -> faults.Fault | None:
    return None if value is None else faults.read(value)


def _drs(value: Any) -> dict[str, Any]:
    """Several fields from one property: asked for whole, because its type depends on the kind of compute resource."""
    drs = getattr(value, "drsConfig", None)
    if drs is None:
        return {}
    return {
        "drs_enabled": bool(drs.enabled),
        "drs_behaviour": _text(drs.defaultVmBehavior),
        "overrides_allowed": drs.enableVmBehaviorOverrides is not False,
        "drs_vms": tuple(
            sorted((moref(one.key), one.enabled is not False, _text(one.behavior)) for one in value.drsVmConfig or ())
        ),
    }


HOST: Paths = {
    "name": ("name", _text),
    "summary.hardware.uuid": ("uuid", _text),
    "parent": ("cluster", moref),
    "runtime.connectionState": ("connection", _text),
    "runtime.powerState": ("power", _text),
    "runtime.inMaintenanceMode": ("in_maintenance", _flag),
    "runtime.standbyMode": ("standby", _text),
    "config.product.version": ("version", _text),
    "config.product.build": ("build", _text),
    "summary.hardware.cpuMhz": ("cpu_mhz", _whole),
    "summary.hardware.numCpuCores": ("cpu_cores", _whole),
    "summary.hardware.numCpuThreads": ("cpu_threads", _whole),
    "summary.hardware.memorySize": ("memory_mb", lambda size: _whole(size) // 2**20),
    "config.pciPassthruInfo": ("", _passthrough),
    "config.sharedPassthruGpuTypes": ("vgpu_profiles", lambda names: tuple(sorted(names or ()))),
    "datastore": ("datastores", _morefs),
    "network": ("networks", _morefs),
    "vm": ("vms", _morefs),
}
VM: Paths = {
    "name": ("name", _text),
    "config.uuid": ("uuid", _text),
    "config.instanceUuid": ("instance_uuid", _text),
    "runtime.host": ("host", moref),
    "runtime.powerState": ("power", _text),
    "runtime.connectionState": ("connection", _text),
    "guest.toolsRunningStatus": ("tools", _text),
    "guest.hostName": ("guest_name", _text),
    "config.version": ("hardware_version", _text),
    "config.hardware.numCPU": ("cpus", _whole),
    "config.hardware.memoryMB": ("memory_mb", _whole),
    "config.template": ("template", bool),
    "datastore": ("datastores", _morefs),
    "network": ("networks", _morefs),
    "customValue": ("attributes", _attributes),
}
TASK: Paths = {
    "info.descriptionId": ("kind", _text),
    "info.state": ("state", _text),
    "info.entity": ("entity", moref),
    "info.cancelled": ("cancelled", bool),
    "info.queueTime": ("queued", _instant),
    "info.startTime": ("started", _instant),
    "info.error": ("error", _error),
}
CLUSTER: Paths = {"name": ("name", _text), "resourcePool": ("pool", moref), "configurationEx": ("", _drs)}
PLACE: Paths = {"name": ("name", _text)}
DATASTORE: Paths = {**PLACE, "summary.accessible": ("accessible", _flag), "host": ("cut_off", _cut_off)}
FIELDS: Paths = {"field": ("names", _fields)}
# Only where a host offers devices.
HEAVY_HOST: Paths = {"hardware.pciDevice": ("pci", _pci)}
HEAVY_VM: Paths = {"config.hardware.device": ("", _hardware)}

KINDS: tuple[tuple[Any, type[Record], Paths], ...] = (
    (vim.HostSystem, Host, {**HOST, **HEAVY_HOST}),
    (vim.VirtualMachine, Vm, {**VM, **HEAVY_VM}),
    (vim.Task, Task, TASK),
    (vim.ComputeResource, Cluster, CLUSTER),  # clusters too
    (vim.Datastore, Place, DATASTORE),
    (vim.Network, Place, PLACE),
    (vim.CustomFieldsManager, Fields, FIELDS),
)


def change(obj: Any, values: Iterable[tuple[str, Any]], missing: Iterable[Any] = ()) -> Change | None:
    """One object's properties as a change of a record; None for a kind that nobody asked for."""
    known = _kind(obj)
    if known is None:
        return None
    kind, paths = known
    fields: dict[str, Any] = {}
    if kind is Cluster:
        fields["standalone"] = not isinstance(obj, vim.ClusterComputeResource)
    told: list[str] = []
    for path, value in values:
        if path not in paths:
            continue
        told.append(path)
        name, convert = paths[path]
        if name:
            fields[name] = convert(value)
        else:
            fields |= convert(value)
    unread = tuple(sorted(Unread(one.path, faults.read(one.fault).sentence) for one in missing))
    return Change(kind, moref(obj), fields, unread, tuple(told))


def gone(obj: Any) -> Change | None:
    known = _kind(obj)
    return None if known is None else Change(known[0], moref(obj), None)


def _kind(obj: Any) -> tuple[type[Record], Paths] | None:
    return next(((kind, paths) for type_, kind, paths in KINDS if isinstance(obj, type_)), None)
