"""Which managed nodes a pass has to look at, kept up to date change by change: the rest is plainly in service.

Invariant: whatever could make a decision of a node other than "in service" marks the node here: its own change,
another answer to which VM it is, its VM, that VM's mark or host, and a vCenter that comes or goes. A node that is left
out has a known VM that runs unmarked on a host in service, and neither a state nor a hold of maintenance.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

from hostler.host.facts import Known
from hostler.host.label import Label
from hostler.kube.records import Node
from hostler.maintenance.hosts import is_in_service
from hostler.maintenance.identities import Found, Identities, VmId
from hostler.maintenance.model import NO_CLUSTER, STATE, has_stray_hold
from hostler.maintenance.status import has_conditions_left
from hostler.vsphere.records import ENTER_MAINTENANCE, Fields


class Attention:
    def __init__(self, identities: Identities, label: Label) -> None:
        self._identities, self._label = identities, label
        self._nodes, self._vcenters, self._marks = identities.nodes, identities.vcenters, identities.marks
        self.managed: set[str] = set()
        self.labelled: set[str] = set()
        self._wanted: set[str] = set()
        self._stale: set[str] = set(self._nodes.store.keys())
        self._vm_of: dict[str, VmId] = {}
        self._nodes_of: dict[VmId, set[str]] = {}
        self._vms_in: dict[str, set[str]] = {name: set() for name in self._vcenters}  # of managed nodes
        self._leaving: set[VmId] = set()  # hosts that are not plainly in service
        self._entering: dict[VmId, str] = {}  # tasks to enter maintenance, and the host of each
        self._seen: dict[str, tuple[bool, Fields]] = {}  # by vCenter: whether it is known, its custom attributes
        self._take_judged = identities.follow()
        self._nodes.store.listen(lambda name, *_: self._stale.add(name))
        for name, vcenter in self._vcenters.items():
            self._vcenter_changed(name, {host.moref for host in vcenter.inventory.hosts()})
            self._vcenter_changed(name, {task.moref for task in vcenter.inventory.tasks()})
            vcenter.listen(lambda changed, name=name: self._vcenter_changed(name, changed))  # type: ignore[misc]

    def is_managed(self, node: Node) -> bool:
        """It has the label, or a state or a hold from when it had."""
        return self._label.on(node) or STATE in node.metadata.annotations or has_stray_hold(node)

    def wanted(self) -> Set[str]:
        """The managed nodes that a pass has to look at."""
        self.refresh()
        return self._wanted

    def vms_in(self, vcenter: str) -> frozenset[str]:
        """The VMs of managed nodes in this vCenter."""
        self.refresh()
        return frozenset(self._vms_in[vcenter])

    def is_claimed(self, vm_id: VmId) -> bool:
        """It is the VM of a managed node."""
        return bool(self._nodes_of.get(vm_id))

    # -- what changed

    def _vcenter_changed(self, vcenter: str, changed: Iterable[str]) -> None:
        inventory = self._vcenters[vcenter].inventory
        vms: set[str] = set()
        for moref in changed:
            task = inventory.task(moref)
            if task is not None and task.kind == ENTER_MAINTENANCE:
                self._entering[vcenter, moref] = task.entity
                self._judge_host(vcenter, task.entity)
            elif (host := self._entering.pop((vcenter, moref), None)) is not None:
                self._judge_host(vcenter, host)
            elif inventory.host(moref) is not None or (vcenter, moref) in self._leaving:
                self._judge_host(vcenter, moref)
            elif task is None:
                vms.add(moref)
        self._mark_stale(vcenter, vms)

    def _judge_host(self, vcenter: str, moref: str) -> None:
        inventory, key = self._vcenters[vcenter].inventory, (vcenter, moref)
        host = inventory.host(moref)
        leaves = host is not None and not is_in_service(inventory, host)
        if leaves == (key in self._leaving):
            return
        if leaves:
            self._leaving.add(key)
        else:
            self._leaving.discard(key)
        self._mark_stale(vcenter, (vm.moref for vm in inventory.vms_on(moref)))

    def _mark_stale(self, vcenter: str, vms: Iterable[str]) -> None:
        for moref in vms:
            self._stale |= self._nodes_of.get((vcenter, moref), set())

    # -- bringing up to date

    def refresh(self) -> None:
        self._stale |= self._take_judged()
        for name, vcenter in self._vcenters.items():
            now = (isinstance(vcenter.facts(), Known), vcenter.inventory.fields)
            if self._seen.get(name) != now:
                self._seen[name] = now
                self._stale |= self.managed  # one that is away may hold a second VM of each of them
        stale, self._stale = self._stale, set()
        for name in stale:
            self._judge(name)

    def _judge(self, name: str) -> None:
        if (before := self._vm_of.pop(name, None)) is not None:
            self._nodes_of[before].discard(name)
            if not self._nodes_of[before]:
                del self._nodes_of[before]
                self._vms_in[before[0]].discard(before[1])
        for names in (self.managed, self.labelled, self._wanted):
            names.discard(name)
        node = self._nodes.store.get(name)
        if node is None or not self.is_managed(node):
            return
        self.managed.add(name)
        if self._label.on(node):
            self.labelled.add(name)
        found = self._identities.of(name)
        if isinstance(found, Found):
            self._vm_of[name] = vm_id = (found.vcenter, found.moref)
            self._nodes_of.setdefault(vm_id, set()).add(name)
            self._vms_in[found.vcenter].add(found.moref)
        if not isinstance(found, Found) or not self._is_at_rest(node, found):
            self._wanted.add(name)

    def _is_at_rest(self, node: Node, found: Found) -> bool:
        if STATE in node.metadata.annotations or has_conditions_left(node) or has_stray_hold(node):
            return False
        vcenter, cluster = self._vcenters[found.vcenter], self._identities.cluster or NO_CLUSTER
        if not isinstance(vcenter.facts(), Known):
            return False
        if self._marks.find(found.vcenter, vcenter.inventory, found.moref, cluster) is not None:
            return False
        vm = vcenter.inventory.vm(found.moref)
        # One that is off is shown in the status, so that nobody has to ask for it by name.
        return vm is not None and vm.power == "poweredOn" and (found.vcenter, vm.host) not in self._leaving
