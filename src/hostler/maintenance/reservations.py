"""What one pass counts once: drains under way, the ceiling, and devices promised. It lives for one pass. Pure.

Invariant: whatever order the subjects come in, no more than MAX_CONCURRENT_DRAINS of them are emptied at a time, and no
device is promised to two of them.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from hostler.drain import decide as drains
from hostler.drain import model as drain
from hostler.host.facts import Known, Unknown
from hostler.host.holds import MAINTENANCE, held_by
from hostler.instant import Instant
from hostler.maintenance.drain_clock import started
from hostler.maintenance.hosts import Restart, judge_restart, own_host, vm_doubt
from hostler.maintenance.model import SHUTDOWN_SINCE, TARGET, Policy, Site, State, Subject, World
from hostler.maintenance.placement import Judged, judge, needs_of
from hostler.vsphere.records import Vm

# A VM that vCenter does not let us stop after so many tries keeps nobody else waiting any more.
STUCK_TRIES = 3


class Reservations:
    def __init__(self, world: World, policy: Policy, now: Instant) -> None:
        self.room = world.room
        self.bugs: dict[str, Exception] = {}  # what went wrong here, by subject
        self._max = policy.max_drains
        self._now, self._resumed, self._rights = now, world.resumed, world.rights
        self._judged: dict[str, Judged] = {}
        self._drains: set[str] = set()
        self._found: dict[str, drain.Decision] = {}
        self._promised: dict[str, dict[str, list[Vm]]] = defaultdict(lambda: defaultdict(list))  # vCenter, host, VMs
        for subject in world.subjects:
            if subject.busy is not None and subject.busy.state is State.DRAINING:
                self._drains.add(subject.name)
                self.room = self.room.after(subject.name)
            self._note_promise(subject, world)
        begun = [one for one in world.subjects if one.state is State.DRAINING]
        going = [one for one in begun if not self._stuck(one, world, policy, now)]
        for subject in going:
            if subject.annotations.get(SHUTDOWN_SINCE):
                self._drains.add(subject.name)  # it is on its way: beyond the limit, if need be
        for subject in going:
            self.take_slot(subject.name)

    @property
    def drains(self) -> tuple[str, ...]:
        return tuple(sorted(self._drains))

    @property
    def limit(self) -> int:
        return self._max

    def take_slot(self, name: str) -> bool:
        """Whether this one is among those being emptied; there are only so many places."""
        if name in self._drains:
            return True
        if len(self._drains) >= self._max:
            return False
        self._drains.add(name)
        return True

    def promised(self, vcenter: str) -> dict[str, list[Vm]]:
        """VMs on their way to each host, by host id."""
        return self._promised[vcenter]

    def promise(self, vcenter: str, host: str, vm: Vm) -> None:
        """Kept once: a later promise of the same VM takes the earlier one's place."""
        for vms in self._promised[vcenter].values():
            vms[:] = [one for one in vms if one.moref != vm.moref]
        self._promised[vcenter][host].append(vm)

    def _note_promise(self, subject: Subject, world: World) -> None:
        """A reservation written on the node, or the right of a stopped VM to come back to where it was."""
        site = world.sites.get(subject.vcenter)
        if not isinstance(site, Known) or not isinstance(subject.vm, Known) or subject.refused is not None:
            return  # nobody reserves a device by a claim that is refused
        vm = subject.vm.value
        if subject.busy is not None and subject.busy.target is not None:
            self.promise(*subject.busy.target, vm)
            return
        host = _named(site.value, subject.annotations.get(TARGET, ""))
        if not host and vm.power == "poweredOff" and (subject.state is State.POWERED_OFF or subject.mark):
            own = own_host(subject, site.value, vm)
            host = own.moref if own is not None else ""
        if host and not (vm.host == host and vm.power == "poweredOn"):
            self.promise(subject.vcenter, host, vm)

    def drained(self, subject: Subject, policy: Policy, now: Instant) -> drain.Decision:
        """How the emptying of this node stands; decided once per pass."""
        if subject.name not in self._found:
            if subject.drain is None:
                return drain.Decision(drain.State.UNKNOWN, (), "Its pods have not been looked at yet.", None)
            facts = replace(subject.drain, started=started(subject, subject.drain.started, now, self._resumed))
            self._found[subject.name] = drains.decide(facts, policy.drain, now)
        return self._found[subject.name]

    def judged(self, subject: Subject, vm: Vm) -> Judged:
        """Whether our user may stop this VM and start it again, which needs no right to move it. Once per pass."""
        if subject.name not in self._judged:
            self._judged[subject.name] = judge(needs_of(vm), self._rights, subject.vcenter, self._now)
        return self._judged[subject.name]

    def _stuck(self, subject: Subject, world: World, policy: Policy, now: Instant) -> bool:
        """It cannot go on, so it does not keep others waiting; when it can, it takes its turn again."""
        try:
            return self._cannot_go_on(subject, world, policy, now)
        except Exception as bug:  # noqa: BLE001  # a bug that shows on one node never ends the pass; it is told of there
            self.bugs[subject.name] = bug
            return True

    def _cannot_go_on(self, subject: Subject, world: World, policy: Policy, now: Instant) -> bool:
        site = world.sites.get(subject.vcenter)
        if not isinstance(site, Known) or not isinstance(subject.vm, Known) or isinstance(subject.wish, Unknown):
            return True
        if subject.refused is not None or vm_doubt(site.value, subject.vm.value):
            return True
        hold = held_by(subject.node, MAINTENANCE) if subject.node is not None else None
        if isinstance(hold, Unknown) or (hold is not None and bool(hold.yielded)):
            return True
        known, since = subject.remembered, subject.annotations.get(SHUTDOWN_SINCE, "")
        # A guest that was asked has its time to go off; one that may not be stopped any more is not waited for.
        until = max(known.shutdown_at, self._resumed) + policy.guest_shutdown
        going = bool(since) and known.shutdown_asked == since and now < until
        rights = self.judged(subject, subject.vm.value)
        restart = judge_restart(site.value, subject.vm.value)
        # Rights that nobody has looked at yet hold nobody up.
        if not going and (rights.holds(now, policy.unknown_rights_hold) or restart != Restart()):
            return True
        if since:
            return known.power.number >= STUCK_TRIES
        return self.drained(subject, policy, now).state in (drain.State.UNKNOWN, drain.State.REFUSED)


def _named(site: Site, name: str) -> str:
    found = site.hosts_named(name) if name else []
    return found[0].moref if len(found) == 1 else ""
