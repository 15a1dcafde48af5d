"""What each kind of device means for moving its VM: can it move while it runs, can it start on one host only.

One table, each row with its source. A kind that we do not know keeps the VM where it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from hostler.vsphere.records import Backing, VmDevice


@dataclass(frozen=True, slots=True)
class DeviceKind:
    blocks_vmotion: bool
    ties: bool  # the VM can be started on one host only
    source: str


KINDS: Final[Mapping[Backing, DeviceKind]] = {
    Backing.FIXED: DeviceKind(
        True, True, "vSphere 8.0 Networking, DirectPath I/O: no vMotion, no DRS; backing.id and systemId name one host"
    ),
    Backing.DYNAMIC: DeviceKind(
        True,
        False,
        "vSphere API 7.0, DynamicBackingInfo: a device is assigned at power-on; no vMotion with it",
    ),
    Backing.VGPU: DeviceKind(
        False, False, "vSphere 7.0, vMotion of vGPU VMs: vgpu.hotmigrate.enabled; Broadcom KB 88271: DRS at maintenance"
    ),
    Backing.SRIOV: DeviceKind(
        True,
        False,
        "vSphere 8.0 Networking, SR-IOV: no vMotion; tied only where physicalFunctionBacking is set",
    ),
    Backing.USB: DeviceKind(
        True, True, "vSphere API, VirtualUSBUSBBackingOption: the VM stays on the host that the device is attached to"
    ),
    Backing.USB_REMOTE: DeviceKind(
        False, True, "vSphere API, VirtualUSBRemoteHostBackingInfo: vMotion is possible; the device stays where it is"
    ),
    Backing.OTHER: DeviceKind(True, True, "not known, so the careful answer"),
}


def is_tied(devices: Iterable[VmDevice]) -> bool:
    """One of them exists on one host only."""
    return any(KINDS[one.backing].ties or (one.backing is Backing.SRIOV and bool(one.id)) for one in devices)


def can_vmotion(devices: Iterable[VmDevice], vgpu: bool = True) -> bool:
    """None of them keeps a running VM from moving. `vgpu`: the clusters can move VMs with a vGPU."""
    return not any(KINDS[one.backing].blocks_vmotion or (one.backing is Backing.VGPU and not vgpu) for one in devices)
