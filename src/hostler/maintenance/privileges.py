"""Looks now and then what our user may do with the VMs we look after, names what it lacks once, and remembers it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from hostler.host.facts import Unknown
from hostler.instant import Instant
from hostler.maintenance.memory import Memory
from hostler.maintenance.observe import Found, Observer
from hostler.maintenance.rights import MATTER
from hostler.vsphere.bulk import NEEDED, OPTIONAL, Privilege
from hostler.vsphere.vcenter import VCenter

log = structlog.get_logger("hostler.maintenance")

AGAIN_SECONDS, LACKING_SECONDS, NEW_VM_SECONDS = 600.0, 60.0, 2.0


class Privileges:
    def __init__(
        self,
        observer: Observer,
        memory: Memory,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        wake: Callable[[float], None],
    ) -> None:
        self._observer, self._memory = observer, memory
        self._spawn, self._wake = spawn, wake
        self._checked: dict[str, tuple[Instant, frozenset[str]]] = {}
        self._warned: set[str] = set()

    def check(self, vcenter: VCenter, now: Instant) -> None:
        """Begin a look where one is due: for a VM that is new to us at once, else every few minutes."""
        at, before = self._checked.get(vcenter.name, (-AGAIN_SECONDS, frozenset()))
        if not vcenter.link.connected or not self._observer.nodes.store.synced or now - at < NEW_VM_SECONDS:
            return
        vms = self._vms_of(vcenter.name)
        lacking = any(name == vcenter.name for name, _ in self._memory.lacks)
        if vms and (now - at >= (LACKING_SECONDS if lacking else AGAIN_SECONDS) or not vms <= before):
            self._checked[vcenter.name] = (now, vms)
            self._spawn(self._look(vcenter, vms))

    def _vms_of(self, vcenter: str) -> frozenset[str]:
        nodes = (one for one in self._observer.nodes.store.values() if self._observer.looked_after(one))
        found = (self._observer.found(node) for node in nodes)
        return frozenset(one.moref for one in found if isinstance(one, Found) and one.vcenter == vcenter)

    async def _look(self, vcenter: VCenter, vms: frozenset[str]) -> None:
        answer = await vcenter.lacking_privileges(vms, (*NEEDED, *OPTIONAL))
        if isinstance(answer, Unknown):
            if not vcenter.link.connected:
                self._checked.pop(vcenter.name, None)
                self._wake(1.0)
                return
            # It answers, but not this: that must not keep a host waiting for ever, nor be asked again each second.
            self._memory.looked |= {(vcenter.name, vm) for vm in vms}
            self._checked[vcenter.name] = (self._checked[vcenter.name][0] - AGAIN_SECONDS + LACKING_SECONDS, vms)
            self._say(f"Our privileges in vCenter {vcenter.name} cannot be looked at: {answer.why}.")
            self._wake(0.0)
            return
        self._memory.looked |= {(vcenter.name, vm) for vm in vms}
        for key in [key for key in self._memory.lacks if key[0] == vcenter.name]:
            del self._memory.lacks[key]
        everywhere: dict[str, tuple[Privilege, int]] = {}
        for vm, lacking in answer.value.items():
            for one in lacking:
                everywhere[one.id] = (one, everywhere.get(one.id, (one, 0))[1] + 1)
            matter = tuple(one.id for one in lacking if one.id in MATTER)
            if matter:
                self._memory.lacks[(vcenter.name, vm)] = matter
        for one, count in everywhere.values():
            self._warn(vcenter.name, one, count, len(vms))
        self._wake(0.0)

    def _warn(self, vcenter: str, one: Privilege, count: int, of: int) -> None:
        sentence = f"Our user in vCenter {vcenter} lacks {one.id}, which it needs {one.why}, on {count} of {of} VMs."
        self._say(sentence, privilege=one.id, vcenter=vcenter, optional=one in OPTIONAL)

    def _say(self, sentence: str, **more: object) -> None:
        if sentence not in self._warned:
            self._warned.add(sentence)
            log.warning(sentence, **more)
