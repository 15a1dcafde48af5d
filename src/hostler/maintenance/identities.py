"""Which VM each Node is, kept up to date change by change: what one change costs does not grow with the fleet.

Nodes, VMs, marks and Machines come from the caches; `host.identity` decides. All Nodes count, labelled or not: a Node
that nobody looks after may have the stronger claim to a VM. The marks of the VMs that we stop are evidence, so they are
read and written here too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import msgspec

from hostler.apis.capi import cluster_of_node
from hostler.host.facts import Unknown
from hostler.host.identity import (
    ATTRIBUTE,
    Claimant,
    Claims,
    Doubt,
    Machine,
    NotFound,
    Rank,
    Same,
    claim,
    claimant_of,
    named_node,
    remedy,
    settle,
)
from hostler.kube import errors
from hostler.kube.records import Metadata, Node, Record
from hostler.kube.watch import Watch
from hostler.kube.writer import Writer
from hostler.maintenance.machines import NodeMachines
from hostler.maintenance.model import NO_CLUSTER, InDoubt, Mark, read_mark
from hostler.vsphere.inventory import Inventory
from hostler.vsphere.records import Fields, Vm
from hostler.vsphere.vcenter import VCenter

VmId = tuple[str, str]  # vCenter, managed object id


@dataclass(frozen=True, slots=True)
class Found:
    """Which VM a node is, and how that is known."""

    vcenter: str
    moref: str
    why: str
    rank: Rank = Rank.NAME


@dataclass(frozen=True, slots=True)
class Own:
    """What one Node claims. `vms`: the VMs in it, by key."""

    node: Claimant
    claims: Claims
    vms: Mapping[str, VmId]


class Identities:
    def __init__(
        self,
        nodes: Watch[Node],
        vcenters: Mapping[str, VCenter],
        marks: Marks,
        machines: NodeMachines | None = None,
        *,
        by_uuid: bool = False,
    ) -> None:
        self.nodes, self.vcenters, self.marks, self._machines = nodes, vcenters, marks, machines
        self.by_uuid = by_uuid
        self._cluster = ""
        self._own: dict[str, Own] = {}
        self._settled: dict[str, Found | InDoubt] = {}  # the answers, until a claim changes
        self._claimants: dict[VmId, set[str]] = {}  # Nodes that claim a VM
        self._evidence: dict[VmId, Machine] = {}  # each VM as it was last looked at
        self._fields: dict[str, Fields] = {}  # by vCenter: the custom attributes when its VMs were last looked through
        self._by_uuid: dict[str, set[str]] = {}  # Nodes by what their kubelets and Machines say
        self._by_word: dict[str, set[VmId]] = {}  # VMs by the Node that vCenter or our own mark names
        self._clusters: dict[str, str] = {}  # by Node of the control plane: how Cluster API names this cluster
        self._stale: set[str] = set(nodes.store.keys())
        self._judged_again: list[set[str]] = []  # by reader: Nodes whose answer may be another one
        self._listeners: list[Callable[[], None]] = []
        nodes.store.listen(self._node_changed)
        marks.watch.store.listen(self._marks_changed)
        for name, vcenter in vcenters.items():
            vcenter.listen(lambda changed, name=name: self._vms_changed(name, changed))  # type: ignore[misc]
        if machines is not None:
            machines.listen(self._stale.update)

    # -- asking

    def follow(self, changed: Callable[[], None] = lambda: None) -> Callable[[], frozenset[str]]:
        """A reader of its own: each call returns the Nodes whose answer may be another one since its last call.

        `changed` is called when there may be some. It must be quick.
        """
        judged = set(self._own)
        self._judged_again.append(judged)
        self._listeners.append(changed)

        def take() -> frozenset[str]:
            self._refresh()
            found = frozenset(judged)
            judged.clear()
            return found

        return take

    def is_marked(self, vm_id: VmId) -> bool:
        """The VM carries our mark: we stopped it, or are about to."""
        machine = self._evidence.get(vm_id)
        return machine is not None and bool(machine.marked)

    def of(self, name: str) -> Found | Unknown:
        """The VM that a Node is; InDoubt where nobody may act on what it says."""
        self._refresh()
        if (settled := self._settled.get(name)) is not None:
            return settled
        own = self._own.get(name)
        if own is None:
            return Unknown(f"node {name} is not known")
        answer = self._settle(own)
        if isinstance(answer, InDoubt) or (isinstance(answer, Found) and not _by_name_alone(own)):
            self._settled[name] = answer  # the rest depends on which vCenters are away
        return answer

    def _settle(self, own: Own) -> Found | Unknown:
        name = own.node.name
        match settle(own.node, own.claims, self._others(own), by_uuid=self.by_uuid):
            case Same(machine, rank, why):
                return self._found(own, machine, rank, why)
            case Doubt(reason, why, machine):
                vm = own.vms[machine.key] if machine is not None else None
                mend = remedy(reason, name, self._cluster)
                return InDoubt(f"{why}; nothing is done to it on a guess", reason, mend, vm)
            case NotFound(why):
                return Unknown(_not_found(name, why, self._away(), of=len(self.vcenters)))

    def unread(self) -> str:
        """Why nobody can tell yet; "" once everything has been read."""
        return self._machines.unread() if self._machines is not None else ""

    def not_the_vm(self, name: str, vcenter: str, moref: str) -> str:
        """Why a Node is not, or not surely, that VM; "" where it is. Asked right before the VM is stopped."""
        found = self.of(name)
        if isinstance(found, Unknown):
            return found.why
        same = (found.vcenter, found.moref) == (vcenter, moref)
        return "" if same else f"node {name} is another VM by now: {found.why}"

    def _found(self, own: Own, machine: Machine, rank: Rank, why: str) -> Found | Unknown:
        if _by_name_alone(own) and (away := self._away()):
            said = f"{machine.key} has only the name of node {own.node.name}, and another may have its UUID"
            return Unknown(f"{said}: {'; '.join(sorted(away))}")
        # A vCenter that is away may hold a second one: when it is back, its VMs make us look again.
        return Found(*own.vms[machine.key], why, rank)

    def _others(self, own: Own) -> dict[str, Rank]:
        """The ranks of other Nodes' claims to the VM that this one would be."""
        if not isinstance(own.claims.answer, Same):
            return {}
        vm = own.vms[own.claims.answer.machine.key]
        found: dict[str, Rank] = {}
        for name in self._claimants.get(vm, ()):
            theirs = self._own[name]
            ranks = [rank for key, rank in theirs.claims.ranks.items() if theirs.vms[key] == vm]
            if name != own.node.name and ranks:
                found[name] = min(ranks)
        return found

    def _away(self) -> list[str]:
        """Why some vCenter's VMs are not known."""
        return [facts.why for vcenter in self.vcenters.values() if isinstance(facts := vcenter.facts(), Unknown)]

    # -- what changed

    @property
    def cluster(self) -> str:
        """How marks and attributes of VMs name this Kubernetes cluster; "" while that is not known."""
        return self._cluster

    def name_cluster(self, cluster: str) -> None:
        known = cluster if cluster != NO_CLUSTER else ""
        if known != self._cluster:
            self._cluster = known
            self._fields.clear()  # every attribute is read again
            self._stale.update(self.nodes.store.keys())

    def _vms_changed(self, vcenter: str, changed: Iterable[str]) -> None:
        """A VM came, went, was renamed or marked, or its guest says another name."""
        inventory = self.vcenters[vcenter].inventory
        if self._fields.get(vcenter) is not inventory.fields:
            return  # all of them are looked through anyway
        for moref in changed:
            if inventory.vm(moref) is not None or (vcenter, moref) in self._evidence:
                self._vm_changed(vcenter, moref)

    def _vm_changed(self, vcenter: str, moref: str) -> None:
        inventory, vm_id = self.vcenters[vcenter].inventory, (vcenter, moref)
        vm, before = inventory.vm(moref), self._evidence.get(vm_id)
        now = self._look(vcenter, inventory, vm) if vm is not None else None
        if now == before:
            return
        self._stale |= self._claimants.get(vm_id, set())
        for machine in (before, now):
            if machine is None:
                continue
            word = self._word(machine)
            for uuid in machine.known:
                self._stale |= self._by_uuid.get(uuid, set())
            self._stale |= {name for name in (machine.name, word) if name}
            if machine is before:
                self._by_word.get(word, set()).discard(vm_id)
            else:
                self._by_word.setdefault(word, set()).add(vm_id)
        if now is None:
            del self._evidence[vm_id]
        else:
            self._evidence[vm_id] = now

    def _word(self, machine: Machine) -> str:
        """The Node that vCenter or our own mark names; "" where nobody does."""
        return named_node(machine.attribute, self._cluster) or machine.marked

    def _look(self, vcenter: str, inventory: Inventory, vm: Vm) -> Machine:
        mark = self.marks.mark_of(vcenter, inventory, vm, self._cluster)
        return Machine(
            f"{vm.name} ({vm.moref} in {vcenter})", vm.name, (vm.uuid, vm.instance_uuid), vm.guest_name,
            inventory.attribute(vm, ATTRIBUTE), mark.node if mark is not None else "",
        )  # fmt: skip

    def _node_changed(self, name: str, before: Node | None, after: Node | None) -> None:
        if before is not None and after is not None and _claim_fields(before) == _claim_fields(after):
            return  # a heartbeat, most likely
        self._stale.add(name)
        for listener in self._listeners:
            listener()
        cluster = cluster_of_node(after) if after is not None else ""
        if cluster == self._clusters.get(name, ""):
            return
        known = set(self._clusters.values())
        if cluster:
            self._clusters[name] = cluster
        else:
            del self._clusters[name]
        if set(self._clusters.values()) != known:
            self._stale.update(self.nodes.store.keys())

    def _marks_changed(self, _: str, before: ConfigMap | None, after: ConfigMap | None) -> None:
        lines = {line for config in (before, after) if config is not None for line in config.data.items()}
        both = before.data.items() & after.data.items() if before is not None and after is not None else set()
        for vcenter in self.vcenters:
            self._vms_changed(vcenter, {vm for key, _ in lines - both if (vm := self.marks.vm_in(vcenter, key))})

    # -- bringing up to date

    def _refresh(self) -> None:
        for name, vcenter in self.vcenters.items():
            if self._fields.get(name) is not vcenter.inventory.fields:
                self._fields[name] = vcenter.inventory.fields
                known = [moref for whose, moref in self._evidence if whose == name]
                for moref in {*known, *(vm.moref for vm in vcenter.inventory.vms())}:
                    self._vm_changed(name, moref)
        while self._stale:
            self._claim(self._stale.pop())

    def _claim(self, name: str) -> None:
        before = self._own.pop(name, None)
        self._judge_again(name)
        if before is not None:
            for uuid in before.node.uuids | before.node.machines:
                self._by_uuid[uuid].discard(name)
            for vm_id in before.vms.values():
                self._claimants[vm_id].discard(name)
                self._unsettle(vm_id)
        node = self.nodes.store.get(name)
        if node is None:
            return
        clusters = frozenset(self._clusters.values())
        machines = self._machines.provider_ids(name, clusters) if self._machines is not None else ()
        claimant = claimant_of(node, machines)
        candidates = {self._evidence[vm_id].key: vm_id for vm_id in self._candidates(claimant)}
        claims = claim(claimant, [self._evidence[vm_id] for vm_id in candidates.values()], self._cluster)
        self._own[name] = Own(claimant, claims, candidates)
        for uuid in claimant.uuids | claimant.machines:
            self._by_uuid.setdefault(uuid, set()).add(name)
        for vm_id in candidates.values():
            self._unsettle(vm_id)
            self._claimants.setdefault(vm_id, set()).add(name)

    def _unsettle(self, vm_id: VmId) -> None:
        """A claim to this VM has changed: all who claim it are judged again."""
        for name in self._claimants.get(vm_id, ()):
            self._judge_again(name)

    def _judge_again(self, name: str) -> None:
        self._settled.pop(name, None)
        for judged in self._judged_again:
            judged.add(name)

    def _candidates(self, claimant: Claimant) -> set[VmId]:
        found: set[VmId] = set(self._by_word.get(claimant.name, ()))
        for name, vcenter in self.vcenters.items():
            inventory = vcenter.inventory
            found |= {(name, vm.moref) for vm in inventory.vms_named(claimant.name)}
            for uuid in claimant.uuids | claimant.machines:
                found |= {(name, vm.moref) for vm in inventory.vms_with_uuid(uuid)}
        return found & self._evidence.keys()


def _by_name_alone(own: Own) -> bool:
    """No UUID speaks for it: another VM may have the node's."""
    same = own.claims.answer
    return isinstance(same, Same) and same.rank is Rank.NAME and own.node.uuids.isdisjoint(same.machine.known)


def _claim_fields(node: Node) -> tuple[object, ...]:
    return node.spec.provider_id, node.status.node_info.system_uuid, cluster_of_node(node)


def _not_found(node: str, why: str, away: list[str], of: int) -> str:
    """Not found says nothing while a vCenter is not known: it may be there."""
    if not away:
        return why
    where = "" if len(away) == of else ", and it is in none of the others"
    return f"cannot tell which VM backs node {node}{where}: {'; '.join(sorted(away))}"


# -- marks on VMs: in vCenter where we may write them, else in the ConfigMap `hostler-stopped-vms`

CONFIG_MAP_NAME = "hostler-stopped-vms"
MARK_ATTRIBUTE = "hostler"


class ConfigMap(Record, frozen=True):
    metadata: Metadata = Metadata()
    data: dict[str, str] = msgspec.field(default_factory=dict)


def key_of(vcenter: str, vm: str) -> str:
    """A ConfigMap's keys may not hold every letter that a vCenter's name may."""
    return f"{re.sub('[^-._a-zA-Z0-9]', '_', vcenter)}.{vm}"


def _vm_of_line(vcenter: str, key: str) -> str:
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
        found = self.watch.store.get(f"{self._namespace}/{CONFIG_MAP_NAME}")
        return found.data if found is not None else {}

    def of(self, vcenter: str, inventory: Inventory, cluster: str) -> dict[str, Mark]:
        """Every VM of one vCenter that this Kubernetes cluster has marked, by id.

        Another cluster's stopped VM is not ours to start. The ConfigMap is in this cluster, so its lines are ours.
        """
        kept = filter(None, (_vm_of_line(vcenter, line) for line in self.kept()))
        marked = {*kept, *(vm.moref for vm in inventory.vms_with_attribute(MARK_ATTRIBUTE))}
        return {vm: mark for vm in marked if (mark := self.find(vcenter, inventory, vm, cluster)) is not None}

    def find(self, vcenter: str, inventory: Inventory, moref: str, cluster: str) -> Mark | None:
        """One of `of`."""
        vm = inventory.vm(moref)
        mark = read_mark(inventory.attribute(vm, MARK_ATTRIBUTE)) if vm is not None else None
        if mark is not None and mark.cluster == cluster:
            return mark
        return read_mark(self.kept().get(key_of(vcenter, moref), ""))

    def mark_of(self, vcenter: str, inventory: Inventory, vm: Vm, cluster: str) -> Mark | None:
        """Our mark of one VM. `cluster`: "" while it has no name; then only the ConfigMap's lines are surely ours."""
        said = read_mark(inventory.attribute(vm, MARK_ATTRIBUTE))
        if said is not None and cluster and said.cluster == cluster:
            return said
        return read_mark(self.kept().get(key_of(vcenter, vm.moref), ""))

    def vm_in(self, vcenter: str, line: str) -> str:
        """The VM of a line of the ConfigMap, by its key; "" for another vCenter's."""
        return _vm_of_line(vcenter, line)

    def in_config_map(self, vcenter: str, vm: str) -> bool:
        return key_of(vcenter, vm) in self.kept()

    def gone(self, vcenter: str, inventory: Inventory) -> tuple[str, ...]:
        """VMs the ConfigMap still speaks of and vCenter does not. Only asked while vCenter is connected."""
        kept = [vm for name in self.kept() if (vm := _vm_of_line(vcenter, name))]
        hidden = inventory.missing  # there, and not to be seen by us
        return tuple(vm for vm in kept if inventory.complete and inventory.vm(vm) is None and vm not in hidden)

    async def keep(self, vcenter: str, vm: str, mark: Mark | None, why: str) -> None:
        """Write or take away the ConfigMap's line. Raises what the API server says."""
        line = {key_of(vcenter, vm): mark.text() if mark is not None else None}
        if mark is None and key_of(vcenter, vm) not in self.kept():
            return
        try:
            await self.watch.patch(self._writer, CONFIG_MAP_NAME, {"data": line}, self._namespace, why=why)
        except errors.NotFound:
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": CONFIG_MAP_NAME}, "data": line}
            try:
                await self.watch.create(self._writer, body, self._namespace, why=why)
            except errors.AlreadyExists:  # another replica, this very moment
                await self.watch.patch(self._writer, CONFIG_MAP_NAME, {"data": line}, self._namespace, why=why)
