"""Looks what our user may do with the VMs we look after and where they go; names what it lacks once, and remembers it.

All of them now and then; those at hand (about to be emptied or stopped, or lacking something) again and again: what is
granted counts within seconds, and what is taken away before the next step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Coroutine
from typing import Any

import structlog

from hostler.host.facts import Known, Unknown
from hostler.instant import Instant
from hostler.kube.events import Recorder
from hostler.kube.kinds import NODE
from hostler.maintenance.hosts import stands
from hostler.maintenance.memory import Memory
from hostler.maintenance.model import Policy, State, Unanswered, World
from hostler.maintenance.observe import Observer
from hostler.maintenance.placement import ON_VM, POOL, UNANSWERED_SECONDS
from hostler.vsphere.bulk import NEEDED, OPTIONAL, Privilege
from hostler.vsphere.vcenter import VCenter

log = structlog.get_logger("hostler.maintenance")

AGAIN_SECONDS, AT_HAND_SECONDS, NEW_VM_SECONDS = 600.0, 10.0, 2.0


async def look_at(
    vcenter: VCenter, memory: Memory, objects: Collection[str], now: Instant
) -> dict[str, list[Privilege]] | Unknown:
    """What our user lacks on these VMs and resource pools, in one call; remembered, and returned by object."""
    answer = await vcenter.lacking_privileges(objects, (*NEEDED, *OPTIONAL))
    if isinstance(answer, Unknown):
        return answer
    for one in objects:
        matter = ON_VM if vcenter.inventory.vm(one) is not None else (POOL,)  # each right only on what it is needed on
        lacks = answer.value.get(one)
        if lacks is None:
            memory.unanswered((vcenter.name, one), "vCenter said nothing of it", now)
        else:
            memory.rights[(vcenter.name, one)] = Known(
                tuple(found.id for found in lacks if found.id in matter), answer.at
            )
    return answer.value


class Privileges:
    def __init__(
        self,
        observer: Observer,
        memory: Memory,
        policy: Policy,
        recorder: Recorder,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        wake: Callable[[float], None],
    ) -> None:
        self._observer, self._memory, self._policy, self._recorder = observer, memory, policy, recorder
        self._spawn, self._wake = spawn, wake
        self._checked: dict[str, tuple[Instant, frozenset[str]]] = {}  # all of them, by vCenter
        self._asked: dict[tuple[str, str], Instant] = {}  # those at hand
        self._looking: set[str] = set()
        self._warned: set[str] = set()
        self._unanswered: set[tuple[str, str]] = set()  # nodes that carry the Event, by vCenter

    def check(self, vcenter: VCenter, world: World, now: Instant) -> None:
        """Begin a look where one is due; one at a time per vCenter."""
        name = vcenter.name
        self._tell_unanswered(vcenter, world, now)
        if not vcenter.link.connected or not self._observer.nodes.store.synced or name in self._looking:
            return
        due = frozenset(one for one in self._at_hand(vcenter, world) if self._due(name, one, now))
        at, before = self._checked.get(name, (-AGAIN_SECONDS, frozenset()))
        if not due and now - at < NEW_VM_SECONDS:
            return
        vms = self._observer.managed_vms(name) if now - at >= NEW_VM_SECONDS else frozenset()
        if vms and (now - at >= AGAIN_SECONDS or not vms <= before):
            self._checked[name] = (now, vms)
            self._begin(vcenter, self._all(vcenter, vms, now))
        elif due:
            self._asked.update({(name, one): now for one in due})
            self._begin(vcenter, self._some(vcenter, due, now))

    def _due(self, vcenter: str, one: str, now: Instant) -> bool:
        fact = self._memory.rights.get((vcenter, one))
        seen = fact.at if isinstance(fact, Known) else 0.0
        return now - max(seen, self._asked.get((vcenter, one), 0.0)) >= AT_HAND_SECONDS

    def _at_hand(self, vcenter: VCenter, world: World) -> frozenset[str]:
        """VMs that are about to be emptied or stopped, and those that lack something; with them where they may go.

        A VM that is off may wait for a right on a resource pool alone.
        """
        name, off, found = vcenter.name, False, set[str]()
        for one in world.subjects:
            if one.vcenter == name and isinstance(one.vm, Known):
                vm = one.vm.value
                leaves = stands(vcenter.inventory, vcenter.inventory.host(vm.host)).leaving
                if (leaves and one.state in (None, State.DRAINING)) or self._lacks(name, vm.moref):
                    found.add(vm.moref)
                off = off or vm.power == "poweredOff"
        pools = self._pools(vcenter)
        return frozenset(found | pools) if found else frozenset(one for one in pools if off and self._lacks(name, one))

    def _lacks(self, vcenter: str, one: str) -> bool:
        fact = self._memory.rights.get((vcenter, one))
        return not isinstance(fact, Known) or bool(fact.value)

    def _pools(self, vcenter: VCenter) -> frozenset[str]:
        """Resource pools of the clusters and standalone hosts that VMs may move to."""
        named = (one for one in vcenter.inventory.clusters() if one.name in self._policy.clusters or one.standalone)
        return frozenset(one.pool for one in named if one.pool)

    def _begin(self, vcenter: VCenter, look: Coroutine[Any, Any, None]) -> None:
        self._looking.add(vcenter.name)
        self._spawn(look)

    async def _all(self, vcenter: VCenter, vms: frozenset[str], now: Instant) -> None:
        try:
            found = await look_at(vcenter, self._memory, vms | self._pools(vcenter), now)
            if isinstance(found, Unknown) and not vcenter.link.connected:
                self._checked.pop(vcenter.name, None)
            elif isinstance(found, Unknown):
                self._say(f"Our privileges in vCenter {vcenter.name} cannot be looked at: {found.why}.")
            else:
                self._warn(vcenter, found, vms)
        finally:
            self._looking.discard(vcenter.name)
            self._wake(0.0 if vcenter.link.connected else 1.0)

    async def _some(self, vcenter: VCenter, objects: frozenset[str], now: Instant) -> None:
        """Those at hand. One that is refused must not keep the others from being known: then each is asked for."""
        try:
            found = await look_at(vcenter, self._memory, objects, now)
            for one in sorted(objects) if isinstance(found, Unknown) and vcenter.link.connected else ():
                alone = await look_at(vcenter, self._memory, (one,), now) if len(objects) > 1 else found
                if isinstance(alone, Unknown) and vcenter.link.connected:
                    self._memory.unanswered((vcenter.name, one), alone.why, now)
            if not vcenter.link.connected:
                for one in objects:
                    self._asked.pop((vcenter.name, one), None)
        finally:
            self._looking.discard(vcenter.name)
            self._wake(0.0 if vcenter.link.connected else 1.0)

    def _tell_unanswered(self, vcenter: VCenter, world: World, now: Instant) -> None:
        """One Warning on each node that goes on, or waits, without an answer; another one only after an answer."""
        for one in world.subjects:
            if one.vcenter != vcenter.name or one.node is None or not isinstance(one.vm, Known):
                continue
            vm = one.vm.value
            fact, key = self._memory.rights.get((vcenter.name, vm.moref)), (vcenter.name, one.name)
            leaves = stands(vcenter.inventory, vcenter.inventory.host(vm.host)).leaving
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
                log.warning(note, vcenter=vcenter.name, node=one.name)
                self._recorder.event(NODE, one.node.metadata, "Warning", "RightsUnknown", "Maintenance", note)

    def _warn(self, vcenter: VCenter, found: dict[str, list[Privilege]], vms: frozenset[str]) -> None:
        """Each privilege once, with how many VMs; on a resource pool only the one that is needed there."""
        lacking = Counter(one for vm, some in found.items() if vm in vms for one in some if one.id != POOL)
        for privilege, count in lacking.items():
            self._name(vcenter.name, privilege, f"on {count} of {len(vms)} VMs")
        for cluster in vcenter.inventory.clusters():
            for privilege in found.get(cluster.pool, ()) if cluster.pool not in vms else ():
                if privilege.id == POOL:
                    self._name(vcenter.name, privilege, f"on the resource pool of cluster {cluster.name}")

    def _name(self, vcenter: str, one: Privilege, where: str) -> None:
        sentence = f"Our user in vCenter {vcenter} lacks {one.id}, which it needs {one.why}, {where}."
        self._say(sentence, privilege=one.id, vcenter=vcenter, optional=one in OPTIONAL)

    def _say(self, sentence: str, **more: object) -> None:
        if sentence not in self._warned:
            self._warned.add(sentence)
            log.warning(sentence, **more)
