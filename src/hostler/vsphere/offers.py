"""Which hosts may have a device to give, kept up to date change by change: an index that only supplies candidates.

Invariant: a host that could take a VM is never left out. A device counts as taken only where a VM that is not off holds
exactly that address.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from hostler.host.facts import Unknown
from hostler.vsphere.records import Backing, Host, Vm, VmDevice


class HostsAndVms(Protocol):
    def host(self, moref: str) -> Host | None: ...
    def vms_on(self, host: str) -> list[Vm]: ...


class Offers:
    def __init__(self, inventory: HostsAndVms) -> None:
        self._inventory = inventory
        self._hosts: dict[str, set[str]] = {}  # by what they offer
        self._offered: dict[str, frozenset[str]] = {}  # by host
        self._changed: set[str] = set()

    def changed(self, host: str) -> None:
        """The host, or a VM on it, is different now, or gone."""
        self._changed.add(host)

    def hosts_with(self, devices: Iterable[VmDevice]) -> frozenset[str] | None:
        """Ids of hosts that may have all of these devices to give; None where none of them narrows it down."""
        self._bring_up_to_date()
        found: frozenset[str] | None = None
        for device in devices:
            match device.backing:
                case Backing.DYNAMIC:
                    able = frozenset[str]().union(*(self._hosts.get(kind, ()) for kind in device.allowed))
                case Backing.VGPU:
                    able = frozenset(self._hosts.get(_profile(device.profile), ()))
                case _:
                    continue
            found = able if found is None else found & able
        return found

    def _bring_up_to_date(self) -> None:
        for moref in self._changed:
            before, now = self._offered.get(moref, frozenset()), self._offers_of(moref)
            for what in before - now:
                self._hosts[what].discard(moref)
            for what in now - before:
                self._hosts.setdefault(what, set()).add(moref)
            if now:
                self._offered[moref] = now
            else:
                self._offered.pop(moref, None)
        self._changed.clear()

    def _offers_of(self, moref: str) -> frozenset[str]:
        host = self._inventory.host(moref)
        if host is None or not host.offers_devices:
            return frozenset()
        running = [vm for vm in self._inventory.vms_on(moref) if vm.power != "poweredOff"]
        held = {device.id for vm in running if not isinstance(vm.devices, Unknown) for device in vm.devices}
        free = {f"{pci.vendor}:{pci.device}" for pci in host.devices if pci.id not in held}
        return frozenset(free | {_profile(profile) for profile in host.vgpu_profiles})


def _profile(name: str) -> str:
    return f"profile {name}"
