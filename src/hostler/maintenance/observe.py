"""What one pass knows: nodes, VMs and hosts joined from the caches, without asking anybody.

A node in service costs a few lookups and makes no subject: a pass over 5,000 nodes must not delay the cordon of one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from hostler.drain.model import Facts as DrainFacts
from hostler.drain.observe import Sources
from hostler.drain.observe import observe as observe_drain
from hostler.host.ceiling import Room
from hostler.host.facts import Fact, Known, Unknown
from hostler.host.identity import Rank
from hostler.host.label import Label
from hostler.instant import Instant
from hostler.kube.records import Node
from hostler.kube.watch import FRESH_SECONDS, Watch
from hostler.maintenance.conditions import left_behind
from hostler.maintenance.hosts import Is, own_host, stands
from hostler.maintenance.identities import Found, Identities
from hostler.maintenance.mark_store import Marks
from hostler.maintenance.memory import Memory
from hostler.maintenance.model import (
    NO_CLUSTER,
    POLICY,
    SINCE,
    STATE,
    InDoubt,
    Mark,
    Site,
    State,
    Subject,
    World,
    sorted_by_name,
)
from hostler.maintenance.stray import has_stray_hold
from hostler.vsphere.inventory import Inventory
from hostler.vsphere.records import Vm
from hostler.vsphere.vcenter import VCenter


class Observer:
    def __init__(
        self,
        nodes: Watch[Node],
        sources: Sources,
        vcenters: Iterable[VCenter],
        marks: Marks,
        identities: Identities,
        memory: Memory,
        label: str,
        room: Callable[[Iterable[str], Iterable[Node]], Room],
        resumed: Callable[[Instant], Instant] = lambda now: 0.0,
    ) -> None:
        self.nodes = nodes
        self._sources = sources
        self._vcenters = {one.name: one for one in vcenters}
        self._marks = marks
        self.identities = identities
        self._memory = memory
        self._label = Label(label)
        self._room = room
        self._resumed = resumed
        self._cluster = NO_CLUSTER  # until it has been read

    @property
    def cluster(self) -> str:
        """How our marks name this Kubernetes cluster."""
        return self._cluster

    @cluster.setter
    def cluster(self, name: str) -> None:
        self._cluster = name
        self.identities.name_cluster(name)

    # -- which VM a node is

    def looked_after(self, node: Node) -> bool:
        """It has the label, or a state or a hold from when it had."""
        return self._label.on(node) or STATE in node.metadata.annotations or has_stray_hold(node)

    def managed_vms(self, vcenter: str) -> frozenset[str]:
        """The VMs in this vCenter of every node we look after."""
        found = (self.found(node) for node in self.nodes.store.values() if self.looked_after(node))
        return frozenset(one.moref for one in found if isinstance(one, Found) and one.vcenter == vcenter)

    def found(self, node: Node) -> Found | Unknown:
        return self.identities.of(node.metadata.name)

    # -- the world

    def world(self, now: Instant, also: Collection[str] = ()) -> World:
        """`also`: these nodes too, whatever their state; for whoever explains."""
        sites: dict[str, Fact[Site]] = {name: site_of(one) for name, one in self._vcenters.items()}
        marks = {
            name: self._marks.of(name, fact.value, self.cluster)
            for name, fact in sites.items()
            if isinstance(fact, Known) and isinstance(fact.value, Inventory)
        }
        moving = {name: _not_in_service(fact.value) for name, fact in sites.items() if isinstance(fact, Known)}
        who: dict[str, Found | Unknown] = {
            node.metadata.name: self.found(node) for node in self.nodes.store.values() if self.looked_after(node)
        }
        found_none = not any(self._label.on(node) for node in self.nodes.store.values())
        for name in also:
            if name not in who and (node := self.nodes.store.get(name)) is not None:
                who[name] = self.found(node)
        subjects: list[Subject] = []
        claimed: set[tuple[str, str]] = set()
        for name, found in who.items():
            node = self.nodes.store.get(name)
            if node is None:
                continue
            refused = found if isinstance(found, InDoubt) else None
            if refused is not None and (off := self._stopped(node, refused, who, sites, marks)) is not None:
                found = off
            else:
                refused = None
            if isinstance(found, Found):
                claimed.add((found.vcenter, found.moref))
            elif name not in also and not self._label.on(node):
                continue  # a state that may be another controller's: without its VM it is not ours
            if name not in also and self._at_rest(node, found, sites, marks, moving):
                continue
            subjects.append(replace(self._subject(node, found, sites, marks), refused=refused))
        for vcenter, by_vm in marks.items():
            fact = sites[vcenter]
            assert isinstance(fact, Known)
            marked = Counter(mark.node for moref, mark in by_vm.items() if fact.value.vm(moref) is not None)
            for moref, mark in by_vm.items():
                nameless = mark.cluster == NO_CLUSTER and not self._marks.in_config_map(vcenter, moref)
                if (vcenter, moref) in claimed or nameless:
                    continue  # without a name it may be another cluster's
                if (vm := fact.value.vm(moref)) is not None:
                    doubt = _not_the_marked(vm, mark, marked[mark.node])
                    known: Fact[Vm] = InDoubt(doubt) if doubt else Known(vm, fact.at)
                    mark = self._with_policy(mark)
                    subjects.append(Subject(f"vm/{vm.name or moref}", None, vcenter, known, mark))
        chosen = sorted_by_name(self._remember(one, sites, now) for one in subjects)
        self._settle(chosen, sites, now)
        orphans = [one.name for one in chosen if one.node is None]
        touched = [node for node in self.nodes.store.values() if self.looked_after(node)]
        unread = self._unread()
        return World(
            chosen, sites, self._room(orphans, touched), self.cluster, unread,
            self._label.nowhere() if found_none and not unread else "", dict(self._memory.out_since),
            dict(self._memory.rights), self._resumed(now),
        )  # fmt: skip

    def _unread(self) -> str:
        age = self.nodes.age()
        if age is None or not self.nodes.store.synced:
            return self.nodes.problem or "nodes are still being read"
        if age > FRESH_SECONDS:
            return f"nodes have not been heard of for {age:.0f} s"
        if not self._marks.watch.absent and not self._marks.watch.store.synced and not self._marks.watch.problem:
            return "the marks of stopped VMs are still being read"
        return self.identities.unread()

    def _at_rest(
        self,
        node: Node,
        found: Found | Unknown,
        sites: dict[str, Fact[Site]],
        marks: dict[str, dict[str, Mark]],
        moving: dict[str, frozenset[str]],
    ) -> bool:
        """In service, on a host that plainly is: nothing to decide. Nearly every node, nearly always."""
        if (
            isinstance(found, Unknown)
            or STATE in node.metadata.annotations
            or left_behind(node)
            or has_stray_hold(node)
        ):
            return False
        site = sites[found.vcenter]
        if isinstance(site, Unknown) or found.moref in marks[found.vcenter]:
            return False
        vm = site.value.vm(found.moref)
        # One that is off is shown in the status, so that nobody has to ask for it by name.
        return vm is not None and vm.power == "poweredOn" and vm.host not in moving[found.vcenter]

    def _stopped(
        self,
        node: Node,
        doubt: InDoubt,
        who: Mapping[str, Found | Unknown],
        sites: dict[str, Fact[Site]],
        marks: dict[str, dict[str, Mark]],
    ) -> Found | None:
        """The VM of a node that has no proof and is in maintenance by its state: what we stopped is started again.

        Not where another node in maintenance claims it too, or where our mark says that it is another node's.
        """
        if doubt.vm is None or STATE not in node.metadata.annotations:
            return None
        vcenter, moref = doubt.vm
        mark = marks.get(vcenter, {}).get(moref)
        others = [
            name for name, one in who.items()
            if isinstance(one, InDoubt) and one.vm == doubt.vm and name != node.metadata.name
            and (other := self.nodes.store.get(name)) is not None and STATE in other.metadata.annotations
        ]  # fmt: skip
        if others or (mark is not None and mark.node != node.metadata.name) or isinstance(sites[vcenter], Unknown):
            return None
        return Found(vcenter, moref, doubt.why, Rank.SYSTEM_UUID)

    def _subject(
        self, node: Node, found: Found | Unknown, sites: dict[str, Fact[Site]], marks: dict[str, dict[str, Mark]]
    ) -> Subject:
        name = node.metadata.name
        if isinstance(found, Unknown):
            return Subject(name, node, "", found)
        fact = sites[found.vcenter]
        if isinstance(fact, Unknown):
            return Subject(name, node, found.vcenter, fact)
        vm = fact.value.vm(found.moref)
        known: Fact[Vm] = Known(vm, fact.at) if vm is not None else Unknown(f"vCenter no longer shows the VM of {name}")
        return Subject(name, node, found.vcenter, known, marks.get(found.vcenter, {}).get(found.moref))

    def _with_policy(self, mark: Mark) -> Mark:
        """A policy that its owner wrote on the node since then counts, also where nobody can tell which VM backs it."""
        node = self.nodes.store.get(mark.node)
        return mark if node is None else replace(mark, policy=node.metadata.annotations.get(POLICY, ""))

    # -- what this process adds

    def _remember(self, subject: Subject, sites: dict[str, Fact[Site]], now: Instant) -> Subject:
        memory, name = self._memory, subject.name
        known = memory.saw(subject, sites.get(subject.vcenter), now)
        return replace(subject, remembered=known, busy=memory.busy.get(name), drain=self._drain(subject, now))

    def _drain(self, subject: Subject, now: Instant) -> DrainFacts | None:
        if subject.node is None or subject.state not in (State.DRAINING, State.POWERED_OFF):
            return None
        name = subject.name
        started = subject.at(SINCE)
        facts = observe_drain(
            self._sources,
            name,
            started if started is not None else now,
            self._memory.evicted[name],
            now,
            self._memory.of(name).kept_volumes,
        )
        self._memory.evicted[name] = facts.memory
        return facts

    def _settle(self, subjects: Iterable[Subject], sites: dict[str, Fact[Site]], now: Instant) -> None:
        """Since when the hosts of our subjects are in service without a break. A vCenter that is away is a break."""
        wanted: set[tuple[str, str]] = set()
        for one in subjects:
            site = sites.get(one.vcenter)
            ours = one.mark is not None or one.state is not None or has_stray_hold(one.node)
            if isinstance(one.vm, Known) and ours:
                own = own_host(one, site.value, one.vm.value) if isinstance(site, Known) else None
                wanted |= {(one.vcenter, host) for host in (one.vm.value.host, own.moref if own else "") if host}
        out = self._memory.out_since
        for key in [key for key in out if key not in wanted]:
            del out[key]
        for vcenter, host in wanted:
            site = sites[vcenter]
            if isinstance(site, Known) and stands(site.value, site.value.host(host)).what is Is.OUT:
                out.setdefault((vcenter, host), now)
            else:
                out.pop((vcenter, host), None)


def site_of(vcenter: VCenter) -> Fact[Site]:
    match vcenter.facts():
        case Known(inventory, at):
            return Known(inventory, at)
        case Unknown() as unknown:
            return unknown


def _not_the_marked(vm: Vm, mark: Mark, marked: int) -> str:
    """Why a VM that is off and carries our mark may not be the one we stopped; "" where nothing speaks against it.

    Whoever copies a VM copies its attributes: two VMs with one mark are a doubt. What nodes claim now is none: a node
    that cannot be identified, or that another VM backs by now, holds back no VM that we stopped.
    """
    if vm.power != "poweredOff" or marked < 2:
        return ""
    said = f"VM {vm.name} carries our mark for node {mark.node}"
    return f"{said}, as another VM does; none is started on a guess: take the attribute hostler from the copy"


def _not_in_service(site: Site) -> frozenset[str]:
    return frozenset(host.moref for host in site.hosts() if stands(site, host).what is not Is.OUT)
