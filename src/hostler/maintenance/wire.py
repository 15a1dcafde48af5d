"""The shape of `/v1/maintenance`, shared by the operator that serves it and the CLI that asks."""

from __future__ import annotations

import msgspec


class Row(msgspec.Struct, rename="camel", frozen=True):
    """One node, or one VM of ours without a node."""

    node: str
    vm: str
    host: str  # where the VM is
    state: str  # the annotation's word; "" before it has one
    phase: str
    since: str
    blocked_by: str
    next: str
    why: str
    vcenter: str = ""
    maintenance_of: str = ""  # the ESXi host that triggered it
    target: str = ""
    rejected: tuple[str, ...] = ()


class Waiting(msgspec.Struct, rename="camel", frozen=True):
    """VMs that are not ours and keep a host from maintenance."""

    host: str
    vcenter: str
    vms: tuple[str, ...]


class Standing(msgspec.Struct, rename="camel", frozen=True):
    vcenter: str
    connected: bool
    sentence: str
    rights_unknown: str = ""  # why it does not say what our user may do
    certificate_warning: str = ""  # what is wrong with how its certificate is judged


class IdentityRefused(msgspec.Struct, rename="camel", frozen=True):
    """A node whose VM has no proof, or is in doubt: nothing is done to that VM."""

    node: str
    reason: str
    why: str
    remedy: str  # what the owner can do


class MaintenanceStatus(msgspec.Struct, rename="camel", frozen=True):
    rows: tuple[Row, ...] = ()
    foreign: tuple[Waiting, ...] = ()
    vcenters: tuple[Standing, ...] = ()
    notes: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()  # why it cannot be said whether a host is entering maintenance
    untold_machines: tuple[str, ...] = ()  # Cluster API Machines of our nodes that nobody tells of a maintenance
    refused: tuple[IdentityRefused, ...] = ()
    by_uuid: bool = False  # HOSTLER_VM_IDENTITY=uuid: a kubelet's word alone counts
