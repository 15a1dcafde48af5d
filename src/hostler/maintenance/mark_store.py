"""Marks on VMs: in vCenter where we may write them, else in the ConfigMap `hostler-stopped-vms`."""

from __future__ import annotations

import re

import msgspec

from hostler.kube.errors import AlreadyExists, NotFound
from hostler.kube.records import Metadata, Record
from hostler.kube.watch import Watch
from hostler.kube.writer import Writer
from hostler.maintenance.model import Mark, read_mark
from hostler.vsphere.inventory import Inventory
from hostler.vsphere.records import Vm

NAME = "hostler-stopped-vms"
ATTRIBUTE = "hostler"


class ConfigMap(Record, frozen=True):
    metadata: Metadata = Metadata()
    data: dict[str, str] = msgspec.field(default_factory=dict)


def key_of(vcenter: str, vm: str) -> str:
    """A ConfigMap's keys may not hold every letter that a vCenter's name may."""
    return f"{re.sub('[^-._a-zA-Z0-9]', '_', vcenter)}.{vm}"


def _of(vcenter: str, key: str) -> str:
    """The VM of a line of this vCenter; "" for another's: `vc` and `vc.example.com` are two."""
    whose, _, vm = key.rpartition(".")
    return vm if f"{whose}." == key_of(vcenter, "") else ""


class Marks:
    """Both places as one: what vCenter says wins."""

    def __init__(self, watch: Watch[ConfigMap], writer: Writer, namespace: str) -> None:
        self.watch = watch
        self._writer = writer
        self._namespace = namespace

    def kept(self) -> dict[str, str]:
        found = self.watch.store.get(f"{self._namespace}/{NAME}")
        return found.data if found is not None else {}

    def of(self, vcenter: str, inventory: Inventory, cluster: str) -> dict[str, Mark]:
        """Every VM of one vCenter that this Kubernetes cluster has marked, by id.

        Another cluster's stopped VM is not ours to start. The ConfigMap is in this cluster, so its lines are ours.
        """
        found: dict[str, Mark] = {}
        kept = self.kept()
        key = inventory.attribute_key(ATTRIBUTE)
        if key is None and not kept:
            return found
        for name, text in kept.items():
            if (vm_of := _of(vcenter, name)) and (mark := read_mark(text)) is not None:
                found[vm_of] = mark
        for vm in inventory.vms():
            for own, text in vm.attributes:
                if own != key or (mark := read_mark(text)) is None:
                    continue
                if mark.cluster == cluster:
                    found[vm.moref] = mark
        return found

    def mark_of(self, vcenter: str, inventory: Inventory, vm: Vm, cluster: str) -> Mark | None:
        """Our mark of one VM. `cluster`: "" while it has no name; then only the ConfigMap's lines are surely ours."""
        said = read_mark(inventory.attribute(vm, ATTRIBUTE))
        if said is not None and cluster and said.cluster == cluster:
            return said
        return read_mark(self.kept().get(key_of(vcenter, vm.moref), ""))

    def vm_in(self, vcenter: str, line: str) -> str:
        """The VM of a line of the ConfigMap, by its key; "" for another vCenter's."""
        return _of(vcenter, line)

    def in_config_map(self, vcenter: str, vm: str) -> bool:
        return key_of(vcenter, vm) in self.kept()

    def gone(self, vcenter: str, inventory: Inventory) -> tuple[str, ...]:
        """VMs the ConfigMap still speaks of and vCenter does not. Only asked while vCenter is connected."""
        kept = [vm for name in self.kept() if (vm := _of(vcenter, name))]
        hidden = inventory.missing  # there, and not to be seen by us
        return tuple(vm for vm in kept if inventory.complete and inventory.vm(vm) is None and vm not in hidden)

    async def keep(self, vcenter: str, vm: str, mark: Mark | None, why: str) -> None:
        """Write or take away the ConfigMap's line. Raises what the API server says."""
        line = {key_of(vcenter, vm): mark.text() if mark is not None else None}
        if mark is None and key_of(vcenter, vm) not in self.kept():
            return
        try:
            await self.watch.patch(self._writer, NAME, {"data": line}, self._namespace, why=why)
        except NotFound:
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME}, "data": line}
            try:
                await self.watch.create(self._writer, body, self._namespace, why=why)
            except AlreadyExists:  # another replica, this very moment
                await self.watch.patch(self._writer, NAME, {"data": line}, self._namespace, why=why)
