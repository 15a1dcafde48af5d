"""What one pass knows: nodes, VMs and hosts joined from the caches, and what our vCenter user may do.

A node in service makes no subject and is not looked at (`attention.py`): a pass does not grow with the fleet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import structlog

from hostler.drain.model import Facts as DrainFacts
from hostler.drain.observe import Sources
from hostler.drain.observe import observe as observe_drain
from hostler.host.ceiling import Room
from hostler.host.facts import Fact, Known, Unknown
from hostler.host.identity import Rank
from hostler.host.label import Label
from hostler.instant import Instant
from hostler.kube.events import Recorder
from hostler.kube.kinds import NODE
from hostler.kube.records import Node
from hostler.kube.watch import FRESH_SECONDS
from hostler.maintenance.attention import Attention
from hostler.maintenance.hosts import is_in_service, judge_host, own_host
from hostler.maintenance.identities import Found, Identities
from hostler.maintenance.memory import Memory
from hostler.maintenance.model import (
    NO_CLUSTER,
    POLICY,
    SINCE,
    STATE,
    InDoubt,
    Lacks,
    Mark,
    Object,
    Policy,
    Site,
    State,
    Subject,
    Unanswered,
    World,
    has_stray_hold,
    sorted_by_name,
)
from hostler.maintenance.placement import ON_VM, POOL, UNANSWERED_SECONDS
from hostler.vsphere.bulk import NEEDED, OPTIONAL, Privilege
from hostler.vsphere.records import Vm
from hostler.vsphere.vcenter import VCenter


@dataclass(frozen=True, slots=True)
class _Look:
    """What one pass reads before it looks at single nodes, by vCenter and by node."""

    sites: dict[str, Fact[Site]]
    marks: dict[str, dict[str, Mark]]  # by VM
    vms: dict[str, Found | Unknown]  # which VM each node is that the pass looks at


class Observer:
    def __init__(
        self,
        identities: Identities,
        sources: Sources,
        memory: Memory,
        label: str,
        room: Callable[[Iterable[str], Collection[str]], Room],
        resumed: Callable[[Instant], Instant] = lambda now: 0.0,
    ) -> None:
        self.identities, self.sources, self.memory = identities, sources, memory
        self.nodes, self.vcenters, self.marks = identities.nodes, identities.vcenters, identities.marks
        self.label = Label(label)
        self.attention = Attention(identities, self.label)
        self._room = room
        self._resumed = resumed

    @property
    def cluster(self) -> str:
        """How our marks name this Kubernetes cluster; NO_CLUSTER until that has been read."""
        return self.identities.cluster or NO_CLUSTER

    # -- which VM a node is

    def is_managed(self, node: Node) -> bool:
        return self.attention.is_managed(node)

    def managed_nodes(self) -> list[Node]:
        self.attention.refresh()
        return [node for name in self.attention.managed if (node := self.nodes.store.get(name)) is not None]

    def managed_vms(self, vcenter: str) -> frozenset[str]:
        """The VMs of managed nodes in this vCenter."""
        return self.attention.vms_in(vcenter)

    def found(self, node: Node) -> Found | Unknown:
        return self.identities.of(node.metadata.name)

    # -- the world

    def world(self, now: Instant, also: Collection[str] = (), *, brief: bool = False) -> World:
        """`also`: these nodes too, whatever their state; for whoever explains. `brief`: nobody explains anything."""
        look = self._look({*self.attention.wanted(), *also})
        doubts = {name: found for name, found in look.vms.items() if isinstance(found, InDoubt)}
        stopped = {
            name: vm for name, doubt in doubts.items() if (vm := self._stopped_vm(name, doubt, look)) is not None
        }
        look.vms.update(stopped)
        subjects = [
            replace(subject, refused=doubts[subject.name] if subject.name in stopped else None)
            for subject in self._node_subjects(look, also)
        ]
        subjects += self._nodeless_subjects(look)
        chosen = sorted_by_name(self._remember(subject, look.sites, now) for subject in subjects)
        self._note_hosts_in_service(chosen, look.sites, now)
        nodeless = [subject.name for subject in chosen if subject.node is None]
        unread = self._unread()
        unlabelled = not unread and not self.attention.labelled
        return World(
            chosen, look.sites, self._room(nodeless, self.attention.managed), self.cluster, unread,
            self.label.nowhere() if unlabelled else "", dict(self.memory.out_since), self._rights(chosen, look.sites),
            self._resumed(now), brief,
        )  # fmt: skip

    def _look(self, names: Iterable[str]) -> _Look:
        sites: dict[str, Fact[Site]] = {name: site_of(vcenter) for name, vcenter in self.vcenters.items()}
        marks = {
            name: self.marks.of(name, self.vcenters[name].inventory, self.cluster)
            for name, fact in sites.items()
            if isinstance(fact, Known)
        }
        vms = {name: self.identities.of(name) for name in names if self.nodes.store.get(name) is not None}
        return _Look(sites, marks, vms)

    def _rights(self, subjects: Iterable[Subject], sites: Mapping[str, Fact[Site]]) -> dict[Object, Lacks]:
        """What our user lacks on the subjects' VMs and on resource pools."""
        wanted = {(one.vcenter, one.vm.value.moref) for one in subjects if isinstance(one.vm, Known)}
        for vcenter, site in sites.items():
            if isinstance(site, Known):
                wanted |= {(vcenter, cluster.pool) for cluster in site.value.clusters()}
        return {key: self.memory.rights[key] for key in wanted if key in self.memory.rights}

    def _unread(self) -> str:
        age = self.nodes.age()
        if age is None or not self.nodes.store.synced:
            return self.nodes.problem or "nodes are still being read"
        if age > FRESH_SECONDS:
            return f"nodes have not been heard of for {age:.0f} s"
        if not self.marks.watch.absent and not self.marks.watch.store.synced and not self.marks.watch.problem:
            return "the marks of stopped VMs are still being read"
        return self.identities.unread()

    def _stopped_vm(self, name: str, doubt: InDoubt, look: _Look) -> Found | None:
        """The VM of a node that has no proof and is in maintenance by its state: what we stopped is started again.

        Not where another node in maintenance claims it too, or where our mark says that it is another node's.
        """
        if doubt.vm is None or not self._has_state(name):
            return None
        vcenter, moref = doubt.vm
        mark = look.marks.get(vcenter, {}).get(moref)
        others = (
            other for other, found in look.vms.items()
            if isinstance(found, InDoubt) and found.vm == doubt.vm and other != name and self._has_state(other)
        )  # fmt: skip
        claimed = (mark is not None and mark.node != name) or any(others)
        return None if claimed or isinstance(look.sites[vcenter], Unknown) else Found(
            vcenter, moref, doubt.why, Rank.SYSTEM_UUID
        )  # fmt: skip

    def _has_state(self, name: str) -> bool:
        node = self.nodes.store.get(name)
        return node is not None and STATE in node.metadata.annotations

    # -- subjects

    def _node_subjects(self, look: _Look, also: Collection[str]) -> Iterator[Subject]:
        for name, found in look.vms.items():
            node = self.nodes.store.get(name)
            if node is None:
                continue
            if name not in also and isinstance(found, Unknown) and not self.label.on(node):
                continue  # a state that may be another controller's: without its VM it is not ours
            yield self._node_subject(node, found, look)

    def _node_subject(self, node: Node, found: Found | Unknown, look: _Look) -> Subject:
        name = node.metadata.name
        if isinstance(found, Unknown):
            return Subject(name, node, "", found)
        fact = look.sites[found.vcenter]
        if isinstance(fact, Unknown):
            return Subject(name, node, found.vcenter, fact)
        vm = fact.value.vm(found.moref)
        known: Fact[Vm] = Known(vm, fact.at) if vm is not None else Unknown(f"vCenter no longer shows the VM of {name}")
        return Subject(name, node, found.vcenter, known, look.marks.get(found.vcenter, {}).get(found.moref))

    def _nodeless_subjects(self, look: _Look) -> Iterator[Subject]:
        """VMs that carry our mark and are no managed node's."""
        claimed = {(found.vcenter, found.moref) for found in look.vms.values() if isinstance(found, Found)}
        for vcenter, by_vm in look.marks.items():
            fact = look.sites[vcenter]
            assert isinstance(fact, Known)
            marked = Counter(mark.node for moref, mark in by_vm.items() if fact.value.vm(moref) is not None)
            for moref, mark in by_vm.items():
                nameless = mark.cluster == NO_CLUSTER and not self.marks.in_config_map(vcenter, moref)
                if (vcenter, moref) in claimed or self.attention.is_claimed((vcenter, moref)) or nameless:
                    continue  # without a name it may be another cluster's
                if (vm := fact.value.vm(moref)) is not None:
                    doubt = _copy_doubt(vm, mark, marked[mark.node])
                    known: Fact[Vm] = InDoubt(doubt) if doubt else Known(vm, fact.at)
                    yield Subject(f"vm/{vm.name or moref}", None, vcenter, known, self._with_policy(mark))

    def _with_policy(self, mark: Mark) -> Mark:
        """A policy that its owner wrote on the node since then counts, also where nobody can tell which VM backs it."""
        node = self.nodes.store.get(mark.node)
        return mark if node is None else replace(mark, policy=node.metadata.annotations.get(POLICY, ""))

    # -- what this process adds

    def _remember(self, subject: Subject, sites: Mapping[str, Fact[Site]], now: Instant) -> Subject:
        memory, name = self.memory, subject.name
        known = memory.saw(subject, sites.get(subject.vcenter), now)
        return replace(subject, remembered=known, busy=memory.busy.get(name), drain=self._drain_facts(subject, now))

    def _drain_facts(self, subject: Subject, now: Instant) -> DrainFacts | None:
        if subject.node is None or subject.state not in (State.DRAINING, State.POWERED_OFF):
            return None
        name, began = subject.name, subject.at(SINCE)
        evicted, kept = self.memory.evicted[name], self.memory.of(name).kept_volumes
        facts = observe_drain(self.sources, name, began if began is not None else now, evicted, now, kept)
        self.memory.evicted[name] = facts.memory
        return facts

    def _note_hosts_in_service(
        self, subjects: Iterable[Subject], sites: Mapping[str, Fact[Site]], now: Instant
    ) -> None:
        """Since when the hosts of our subjects are in service without a break. A vCenter that is away is a break."""
        wanted: set[tuple[str, str]] = set()
        for subject in subjects:
            site = sites.get(subject.vcenter)
            ours = subject.mark is not None or subject.state is not None or has_stray_hold(subject.node)
            if isinstance(subject.vm, Known) and ours:
                vm = subject.vm.value
                own = own_host(subject, site.value, vm) if isinstance(site, Known) else None
                wanted |= {(subject.vcenter, host) for host in (vm.host, own.moref if own else "") if host}
        out = self.memory.out_since
        for key in out.keys() - wanted:
            del out[key]
        for vcenter, host in wanted:
            site = sites[vcenter]
            if isinstance(site, Known) and is_in_service(site.value, site.value.host(host)):
                out.setdefault((vcenter, host), now)
            else:
                out.pop((vcenter, host), None)


def site_of(vcenter: VCenter) -> Fact[Site]:
    match vcenter.facts():
        case Known(inventory, at):
            return Known(inventory, at)
        case Unknown() as unknown:
            return unknown


def _copy_doubt(vm: Vm, mark: Mark, marked: int) -> str:
    """Why a VM that is off and carries our mark may not be the one we stopped; "" where nothing speaks against it.

    Whoever copies a VM copies its attributes: two VMs with one mark are a doubt. What nodes claim now is none: a node
    that cannot be identified, or that another VM backs by now, holds back no VM that we stopped.
    """
    if vm.power != "poweredOff" or marked < 2:
        return ""
    said = f"VM {vm.name} carries our mark for node {mark.node}"
    return f"{said}, as another VM does; neither is started on a guess: remove the attribute hostler from the copy"


# -- what our vCenter user may do

log = structlog.get_logger("hostler.maintenance")

AGAIN_SECONDS, AT_HAND_SECONDS, NEW_VM_SECONDS = 600.0, 10.0, 2.0


async def look_at(
    vcenter: VCenter, memory: Memory, objects: Collection[str], now: Instant
) -> dict[str, list[Privilege]] | Unknown:
    """What our user lacks on these VMs and resource pools, in one call; remembered, and returned by object."""
    answer = await vcenter.lacking_privileges(objects, (*NEEDED, *OPTIONAL))
    if isinstance(answer, Unknown):
        return answer
    for moref in objects:
        # Each right matters only on what it is needed on.
        matter = ON_VM if vcenter.inventory.vm(moref) is not None else (POOL,)
        lacks = answer.value.get(moref)
        if lacks is None:
            memory.unanswered((vcenter.name, moref), "vCenter did not answer for it", now)
        else:
            memory.rights[(vcenter.name, moref)] = Known(
                tuple(found.id for found in lacks if found.id in matter), answer.at
            )
    return answer.value


class Privileges:
    def __init__(
        self,
        observer: Observer,
        policy: Policy,
        recorder: Recorder,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        wake: Callable[[float], None],
    ) -> None:
        self._observer, self._policy, self._recorder = observer, policy, recorder
        self._memory = observer.memory
        self._spawn, self._wake = spawn, wake
        self._checked: dict[str, tuple[Instant, frozenset[str]]] = {}  # all of them, by vCenter
        self._asked: dict[tuple[str, str], Instant] = {}  # those at hand
        self._looking: set[str] = set()
        self._warned: set[str] = set()
        self._unanswered: set[tuple[str, str]] = set()  # nodes that carry the Event, by vCenter

    def check(self, vcenter: VCenter, world: World, now: Instant) -> None:
        """Begin a look where one is due; one at a time per vCenter."""
        name = vcenter.name
        self._report_unanswered(vcenter, world, now)
        if not vcenter.link.connected or not self._observer.nodes.store.synced or name in self._looking:
            return
        due = frozenset(moref for moref in self._at_hand(vcenter, world) if self._is_due(name, moref, now))
        at, before = self._checked.get(name, (-AGAIN_SECONDS, frozenset()))
        if not due and now - at < NEW_VM_SECONDS:
            return
        vms = self._observer.managed_vms(name) if now - at >= NEW_VM_SECONDS else frozenset()
        if vms and (now - at >= AGAIN_SECONDS or not vms <= before):
            self._checked[name] = (now, vms)
            self._begin(vcenter, self._look_at_all(vcenter, vms, now))
        elif due:
            self._asked.update({(name, moref): now for moref in due})
            self._begin(vcenter, self._look_at_some(vcenter, due, now))

    def _is_due(self, vcenter: str, moref: str, now: Instant) -> bool:
        fact = self._memory.rights.get((vcenter, moref))
        seen = fact.at if isinstance(fact, Known) else 0.0
        return now - max(seen, self._asked.get((vcenter, moref), 0.0)) >= AT_HAND_SECONDS

    def _at_hand(self, vcenter: VCenter, world: World) -> frozenset[str]:
        """VMs that are about to be emptied or stopped, and those that lack something; with them where they may go.

        A VM that is off may wait for a right on a resource pool alone.
        """
        name, off, found = vcenter.name, False, set[str]()
        for subject in world.subjects:
            if subject.vcenter == name and isinstance(subject.vm, Known):
                vm = subject.vm.value
                leaves = judge_host(vcenter.inventory, vcenter.inventory.host(vm.host)).leaving
                if (leaves and subject.state in (None, State.DRAINING)) or self._lacks(name, vm.moref):
                    found.add(vm.moref)
                off = off or vm.power == "poweredOff"
        pools = self._pools(vcenter)
        if found:
            return frozenset(found | pools)
        return frozenset(moref for moref in pools if off and self._lacks(name, moref))

    def _lacks(self, vcenter: str, moref: str) -> bool:
        fact = self._memory.rights.get((vcenter, moref))
        return not isinstance(fact, Known) or bool(fact.value)

    def _pools(self, vcenter: VCenter) -> frozenset[str]:
        """Resource pools of the clusters and standalone hosts that VMs may move to."""
        return frozenset(
            cluster.pool for cluster in vcenter.inventory.clusters()
            if cluster.pool and (cluster.name in self._policy.clusters or cluster.standalone)
        )  # fmt: skip

    def _begin(self, vcenter: VCenter, look: Coroutine[Any, Any, None]) -> None:
        async def look_and_wake() -> None:
            try:
                await look
            finally:
                self._looking.discard(vcenter.name)
                self._wake(0.0 if vcenter.link.connected else 1.0)

        self._looking.add(vcenter.name)
        self._spawn(look_and_wake())

    async def _look_at_all(self, vcenter: VCenter, vms: frozenset[str], now: Instant) -> None:
        found = await look_at(vcenter, self._memory, vms | self._pools(vcenter), now)
        if isinstance(found, Unknown) and not vcenter.link.connected:
            self._checked.pop(vcenter.name, None)
        elif isinstance(found, Unknown):
            self._warn_once(f"Our privileges in vCenter {vcenter.name} cannot be looked at: {found.why}.")
        else:
            self._warn(vcenter, found, vms)

    async def _look_at_some(self, vcenter: VCenter, objects: frozenset[str], now: Instant) -> None:
        """Those at hand. One that is refused must not keep the others from being known: then each is asked for."""
        found = await look_at(vcenter, self._memory, objects, now)
        for moref in sorted(objects) if isinstance(found, Unknown) and vcenter.link.connected else ():
            alone = await look_at(vcenter, self._memory, (moref,), now) if len(objects) > 1 else found
            if isinstance(alone, Unknown) and vcenter.link.connected:
                self._memory.unanswered((vcenter.name, moref), alone.why, now)
        if not vcenter.link.connected:
            for moref in objects:
                self._asked.pop((vcenter.name, moref), None)

    def _report_unanswered(self, vcenter: VCenter, world: World, now: Instant) -> None:
        """One Warning on each node that goes on, or waits, without an answer; another one only after an answer."""
        for subject in world.subjects:
            if subject.vcenter != vcenter.name or subject.node is None or not isinstance(subject.vm, Known):
                continue
            vm = subject.vm.value
            fact, key = self._memory.rights.get((vcenter.name, vm.moref)), (vcenter.name, subject.name)
            leaves = judge_host(vcenter.inventory, vcenter.inventory.host(vm.host)).leaving
            if not isinstance(fact, Unanswered):
                self._unanswered.discard(key)
            elif leaves and now >= fact.since + UNANSWERED_SECONDS and key not in self._unanswered:
                self._unanswered.add(key)
                then = (
                    "it is not stopped, because HOSTLER_MAINTENANCE_UNKNOWN_RIGHTS_HOLD is set"
                    if self._policy.unknown_rights_hold
                    else "its maintenance goes on; HOSTLER_MAINTENANCE_UNKNOWN_RIGHTS_HOLD=true would hold it"
                )
                note = f"Cannot tell whether our vCenter user may start VM {vm.name} again: {fact.why}; {then}."
                log.warning(note, vcenter=vcenter.name, node=subject.name)
                about = subject.node.metadata
                self._recorder.event(
                    NODE, about, "Warning", "RightsUnknown", "Maintenance", note, refusing="maintenance"
                )

    def _warn(self, vcenter: VCenter, found: dict[str, list[Privilege]], vms: frozenset[str]) -> None:
        """Each privilege once, with how many VMs; on a resource pool only the one that is needed there."""
        lacking = Counter(
            privilege for vm, some in found.items() if vm in vms for privilege in some if privilege.id != POOL
        )
        for privilege, count in lacking.items():
            self._warn_of(vcenter.name, privilege, f"on {count} of {len(vms)} VMs")
        for cluster in vcenter.inventory.clusters():
            for privilege in found.get(cluster.pool, ()) if cluster.pool not in vms else ():
                if privilege.id == POOL:
                    self._warn_of(vcenter.name, privilege, f"on the resource pool of cluster {cluster.name}")

    def _warn_of(self, vcenter: str, privilege: Privilege, where: str) -> None:
        sentence = f"Our user in vCenter {vcenter} lacks {privilege.id}, which it needs {privilege.why}, {where}."
        self._warn_once(sentence, privilege=privilege.id, vcenter=vcenter, optional=privilege in OPTIONAL)

    def _warn_once(self, sentence: str, **more: object) -> None:
        if sentence not in self._warned:
            self._warned.add(sentence)
            log.warning(sentence, **more)
