"""What a decision reads of one subject, and what one pass counts once: drains, the ceiling, devices promised. Pure.

Invariant of the reservations, which live for one pass: whatever order the subjects come in, no more than
MAX_CONCURRENT_DRAINS of them are emptied at a time, and no device is promised to two of them.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Any

from hostler.drain import decide as drains
from hostler.drain import model as drain
from hostler.host.facts import Known, Unknown
from hostler.host.holds import MAINTENANCE, Refusal, held_by
from hostler.instant import Instant
from hostler.kube.records import Node
from hostler.maintenance.decision import (
    Action,
    BlockedBy,
    Decision,
    PatchNode,
    Phase,
    SetMark,
    decide_to_freeze,
    decide_to_wait,
)
from hostler.maintenance.hosts import (
    HostStanding,
    Restart,
    is_at_home,
    is_in_service,
    judge_host,
    judge_restart,
    own_host,
    vm_doubt,
)
from hostler.maintenance.model import (
    DRAIN_HELD,
    LIVE_MOVE_SECONDS,
    NO_HOST,
    SETTLE_SECONDS,
    SHUTDOWN_SINCE,
    SINCE,
    TARGET,
    Mark,
    Marked,
    Policy,
    Site,
    State,
    Subject,
    Wish,
    World,
)
from hostler.maintenance.placement import (
    Ask,
    Judged,
    Placement,
    doubt_at_home,
    drs_of,
    find_places,
    is_tied_to_host,
    judge_rights,
    may_go,
    moves_of,
    needs_of,
    pool_for,
)
from hostler.vsphere.devices import can_vmotion
from hostler.vsphere.records import POWER_OFF, POWER_ON, RELOCATE, Host, Task, Vm

# How long a task that vCenter gave us may stay unseen in its push before we stop believing in it.
UNSEEN_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class View:
    """Made only when VM and vCenter are known and fresh. `state`: of the subject, where it can be read."""

    subject: Subject
    state: State | None
    vm: Vm
    site: Site
    told: Instant  # when vCenter last said anything
    reservations: Reservations

    @property
    def world(self) -> World:
        return self.reservations.world

    @property
    def policy(self) -> Policy:
        return self.reservations.policy

    @property
    def now(self) -> Instant:
        return self.reservations.now

    @property
    def node(self) -> Node:
        assert self.subject.node is not None, "asked for the node of a VM that has none"
        return self.subject.node

    # -- decisions

    def wait(
        self, phase: Phase, why: str, release: str, *, wake: Instant | None = None, blocked: BlockedBy | None = None,
        details: str = "",
    ) -> Decision:  # fmt: skip
        """Nothing to do now; `release` says what would change that."""
        return decide_to_wait(
            self.subject, self.state, phase, why, release, wake=wake, blocked=blocked, details=details
        )

    def freeze(self, why: str) -> Decision:
        """A fact is not known: nothing is done until it is."""
        return decide_to_freeze(self.subject, self.state, why)

    def act(self, phase: Phase, action: Action | Refusal, then: str, **more: Any) -> Decision:
        """Do this now; `then` is what comes next. A write that the holds of the node refuse freezes it."""
        if isinstance(action, Refusal):
            return self.freeze(action.why)
        state = action.state_after(self.state) if isinstance(action, PatchNode) else self.state
        return replace(Decision(self.subject.name, state, phase, action.why, then, action), **more)

    # -- where it is, and where it may go

    @property
    def host_name(self) -> str:
        """Where the VM is now."""
        return self.site.name(self.vm.host)

    @property
    def here(self) -> HostStanding:
        return judge_host(self.site, self.site.host(self.vm.host))

    @property
    def own(self) -> Host | None:
        """The VM's own host, by id; None where nobody can tell."""
        return own_host(self.subject, self.site, self.vm)

    @property
    def at_home(self) -> bool:
        return is_at_home(self.subject, self.site, self.vm)

    @property
    def own_in_service(self) -> bool:
        return is_in_service(self.site, self.own)

    @property
    def drs(self) -> str | Unknown:
        return drs_of(self.site, self.vm)

    @property
    def drs_chooses(self) -> bool:
        """A start is given to vCenter: DRS places the VM, its owner wants it moved, and nothing ties it."""
        return self.drs == "fullyAutomated" and self.subject.wish is Wish.MIGRATE and not is_tied_to_host(self.vm)

    def ask(self) -> Ask:
        wish, own, known = self.subject.wish, self.own, self.subject.remembered
        return Ask(
            self.vm,
            self.subject.origin or self.host_name,
            own.moref if own is not None else "",
            wish if isinstance(wish, Wish) else Wish.WAIT,
            self.subject.annotations.get(TARGET, ""),
            (*known.relocate.hosts, *known.power.hosts),
            self.policy.clusters,
        )

    def places(self) -> Placement:
        """Hosts that can take the VM and that our user may take it to, best first."""
        promised = self.reservations.promised(self.subject.vcenter)
        found = find_places(self.ask(), self.site, promised, brief=self.world.brief)
        return found.only_where_allowed({host.moref: self._lacks_to(host) for host in found.hosts})

    def _lacks_to(self, host: Host) -> str:
        """Which rights our user lacks to move the VM to that host; "" where it has them, or nobody has looked."""
        if host.moref == self.vm.host:
            return ""
        needs = moves_of(self.vm, pool_for(self.site, self.vm, host))
        found = judge_rights(needs, self.world.rights, self.subject.vcenter, self.now)
        return str(found) if found.lacking else ""

    def placement(self) -> Placement | None:
        """Where the VM is to go; None where it is not for us to choose: it waits, or DRS chooses."""
        if self.subject.wish is not Wish.MIGRATE or self.drs == "fullyAutomated" or is_tied_to_host(self.vm):
            return None
        return self.places()

    def reserved(self) -> tuple[str, str] | None:
        """The host it has reserved, so that the pass goes on counting it."""
        host = host_named(self.site, self.subject.annotations.get(TARGET, ""))
        return (self.subject.vcenter, host) if host else None

    def doubt(self) -> str:
        """Why the VM might not come back, by our model alone; "" where nothing speaks against it."""
        ask = self.ask()
        promised = self.reservations.promised(self.subject.vcenter).get(ask.own, ())
        if found := doubt_at_home(ask, self.site, [vm for vm in promised if vm.moref != self.vm.moref]):
            return f"{self.site.name(ask.own) or 'its own host'} may refuse it: {found}"
        if self.subject.wish is not Wish.MIGRATE or self.drs_chooses or is_tied_to_host(self.vm):
            return ""
        rights = judge_rights(moves_of(self.vm), self.world.rights, self.subject.vcenter, self.now)
        return f"it cannot move, because our vCenter user lacks {rights}" if rights.lacking else ""

    def start_depends_on(self) -> tuple[object, ...]:
        """What vCenter's answer to a start may depend on: when any of it changes, a refused start is asked for again.

        Tasks of ours on the VM are left out: each try would be a change.
        """
        vm, site, clusters = self.vm, self.site, set(self.policy.clusters)
        near = [host for host in (self.own, site.host(vm.host)) if host is not None]
        hosts = (host for host in site.hosts() if any(may_go(site, here, host, clusters) for here in near))
        ours = (POWER_ON, POWER_OFF, RELOCATE)
        tasks = ((task.moref, task.state) for task in site.tasks_of(vm.moref) if task.kind not in ours)
        right = self.world.rights.get((self.subject.vcenter, vm.moref))
        return (
            replace(vm, attributes=(), tools=""),
            self.drs,
            right.value if isinstance(right, Known) else None,
            tuple(tasks),
            tuple(sorted((self._standing(host) for host in hosts), key=lambda standing: str(standing[0]))),
        )

    def _standing(self, host: Host) -> tuple[object, ...]:
        """What of a host decides whether it can take a VM: its state, what it offers, and who holds its devices."""
        running = (vm for vm in self.site.vms_on(host.moref) if vm.power != "poweredOff")
        holders = tuple(
            vm.moref for vm in running if (host.offers_devices if isinstance(vm.devices, Unknown) else bool(vm.devices))
        )
        how = judge_host(self.site, host).what
        offers = (host.passthrough, host.vgpu_profiles, host.datastores, host.networks, host.cpu_threads)
        return host.moref, how, host.power, host.standby, offers, holders

    def counted(self, since: Instant) -> Instant:
        """From when on a time counts that began then: what passed in a pause does not count, so it begins again."""
        return max(since, self.world.resumed)

    def live_move(self) -> Instant | None:
        """Until when DRS may still move the VM by itself; None where nothing is to be waited for.

        A VM whose devices are not known may be such a one. After the time it counts as tied to its own host.
        """
        devices = self.vm.devices
        if not isinstance(devices, Unknown) and (
            not can_vmotion(devices, self.policy.vgpu_vmotion) or self.drs != "fullyAutomated"
        ):
            return None
        since = self.subject.remembered.entering_since
        until = (since if since is not None else self.now) + LIVE_MOVE_SECONDS
        return until if self.now < until else None

    def settled(self, host: str) -> Instant | None:
        """None: that host has been in service long enough to be believed; else when that will be."""
        since = self.world.out_since.get((self.subject.vcenter, host))
        if since is None:
            return self.now + SETTLE_SECONDS
        return None if self.now >= since + SETTLE_SECONDS else since + SETTLE_SECONDS

    def task(self, *kinds: str) -> Task | None:
        """A task of one of these kinds that works on the VM now, ours or another's."""
        return next((task for task in self.site.tasks_of(self.vm.moref) if task.kind in kinds and task.under_way), None)

    def under_way(self, *kinds: str) -> bool:
        """As `task`, and also true while one of ours has not been shown yet."""
        if self.task(*kinds) is not None:
            return True
        pending = self.subject.remembered.pending
        if pending is None or pending.what not in kinds or self.now - pending.at > UNSEEN_SECONDS:
            return False
        return self.site.task(pending.task) is None  # shown and not under way: it has ended


MARK_TRIES = 3


def mark_vm(view: View, what: Marked) -> Decision | None:
    """The VM itself says why; before the first eviction, and before it is stopped."""
    subject, known = view.subject, view.subject.remembered.mark
    if subject.refused is not None:
        return None  # a mark is evidence: nobody gets it on a kubelet's word
    wish = subject.wish
    since = SHUTDOWN_SINCE if what is Marked.ASKED else SINCE  # a drain may take longer than a guest's late stop
    mark = Mark(subject.name, subject.origin, subject.annotations.get(since, ""), what,
                str(wish) if not isinstance(wish, Unknown) else str(Wish.MIGRATE), view.world.cluster,
                view.own.moref if view.own is not None else NO_HOST)  # fmt: skip
    if mark in (subject.mark, subject.remembered.marked):
        return None
    if known.number and view.now < known.not_before:
        if known.number >= MARK_TRIES or what is Marked.DRAINING:
            return None  # while draining nothing depends on it
        why = f"VM {view.vm.name} could not be marked: {known.why}"
        return view.wait(Phase.STOPPING, why, "it is tried again", wake=known.not_before)
    action = SetMark(view.vm.moref, mark, f"VM {view.vm.name} says why its host waits")
    return view.act(Phase.MARKING, action, "", target=view.reserved())


# -- what one pass counts once

# A VM that vCenter does not let us stop after so many tries keeps nobody else waiting any more.
STUCK_TRIES = 3


class Reservations:
    def __init__(self, world: World, policy: Policy, now: Instant) -> None:
        self.world, self.policy, self.now = world, policy, now
        self.room = world.room
        self.bugs: dict[str, Exception] = {}  # what went wrong here, by subject
        self._judged: dict[str, Judged] = {}
        self._drains: set[str] = set()
        self._found: dict[str, drain.Decision] = {}
        self._promised: dict[str, dict[str, list[Vm]]] = defaultdict(lambda: defaultdict(list))  # vCenter, host, VMs
        for subject in world.subjects:
            if subject.busy is not None and subject.busy.state is State.DRAINING:
                self._drains.add(subject.name)
                self.room = self.room.after(subject.name)
            self._note_promise(subject)
        begun = (subject for subject in world.subjects if subject.state is State.DRAINING)
        going = [subject for subject in begun if not self._is_stuck(subject)]
        for subject in going:
            if subject.annotations.get(SHUTDOWN_SINCE):
                self._drains.add(subject.name)  # it is on its way: beyond the limit, if need be
        for subject in going:
            self.take_slot(subject.name)

    @property
    def drains(self) -> tuple[str, ...]:
        return tuple(sorted(self._drains))

    def take_slot(self, name: str) -> bool:
        """Whether this one is among those being emptied; there are only so many places."""
        if name in self._drains:
            return True
        if len(self._drains) >= self.policy.max_drains:
            return False
        self._drains.add(name)
        return True

    def promised(self, vcenter: str) -> dict[str, list[Vm]]:
        """VMs on their way to each host, by host id."""
        return self._promised[vcenter]

    def promise(self, vcenter: str, host: str, vm: Vm) -> None:
        """Kept once: a later promise of the same VM takes the earlier one's place."""
        for vms in self._promised[vcenter].values():
            vms[:] = [other for other in vms if other.moref != vm.moref]
        self._promised[vcenter][host].append(vm)

    def _note_promise(self, subject: Subject) -> None:
        """A reservation written on the node, or the right of a stopped VM to come back to where it was."""
        site = self.world.sites.get(subject.vcenter)
        if not isinstance(site, Known) or not isinstance(subject.vm, Known) or subject.refused is not None:
            return  # nobody reserves a device by a claim that is refused
        vm = subject.vm.value
        if subject.busy is not None and subject.busy.target is not None:
            self.promise(*subject.busy.target, vm)
            return
        host = host_named(site.value, subject.annotations.get(TARGET, ""))
        if not host and vm.power == "poweredOff" and (subject.state is State.POWERED_OFF or subject.mark):
            own = own_host(subject, site.value, vm)
            host = own.moref if own is not None else ""
        if host and not (vm.host == host and vm.power == "poweredOn"):
            self.promise(subject.vcenter, host, vm)

    def drained(self, subject: Subject) -> drain.Decision:
        """How the emptying of this node stands; decided once per pass."""
        if subject.name not in self._found:
            if subject.drain is None:
                return drain.Decision(drain.State.UNKNOWN, (), "Its pods have not been looked at yet.", None)
            began = drain_start(subject, subject.drain.started, self.now, self.world.resumed)
            self._found[subject.name] = drains.decide(
                replace(subject.drain, started=began), self.policy.drain, self.now
            )
        return self._found[subject.name]

    def judged(self, subject: Subject, vm: Vm) -> Judged:
        """Whether our user may stop this VM and start it again, which needs no right to move it. Once per pass."""
        if subject.name not in self._judged:
            self._judged[subject.name] = judge_rights(needs_of(vm), self.world.rights, subject.vcenter, self.now)
        return self._judged[subject.name]

    def _is_stuck(self, subject: Subject) -> bool:
        """It cannot go on, so it does not keep others waiting; when it can, it takes its turn again."""
        try:
            return self._cannot_go_on(subject)
        except Exception as bug:  # noqa: BLE001  # a bug that shows on one node never ends the pass; it is reported there
            self.bugs[subject.name] = bug
            return True

    def _cannot_go_on(self, subject: Subject) -> bool:
        site = self.world.sites.get(subject.vcenter)
        if not isinstance(site, Known) or not isinstance(subject.vm, Known) or isinstance(subject.wish, Unknown):
            return True
        if subject.refused is not None or vm_doubt(site.value, subject.vm.value):
            return True
        hold = held_by(subject.node, MAINTENANCE) if subject.node is not None else None
        if isinstance(hold, Unknown) or (hold is not None and bool(hold.yielded)):
            return True
        known, since = subject.remembered, subject.annotations.get(SHUTDOWN_SINCE, "")
        # A guest that was asked has its time to go off; one that may not be stopped any more is not waited for.
        until = max(known.shutdown_at, self.world.resumed) + self.policy.guest_shutdown
        going = bool(since) and known.shutdown_asked == since and self.now < until
        rights = self.judged(subject, subject.vm.value)
        restart = judge_restart(site.value, subject.vm.value)
        # Rights that nobody has looked at yet hold nobody up.
        if not going and (rights.holds(self.now, self.policy.unknown_rights_hold) or restart != Restart()):
            return True
        if since:
            return known.power.number >= STUCK_TRIES
        return self.drained(subject).state in (drain.State.UNKNOWN, drain.State.REFUSED)


def host_named(site: Site, name: str) -> str:
    """The id of the only host of this name; "" where there is none, or several."""
    found = site.hosts_named(name) if name else []
    return found[0].moref if len(found) == 1 else ""


def drain_start(subject: Subject, began: Instant, now: Instant, resumed: Instant) -> Instant:
    """When the drain would have begun had it never stood still. After a pause it begins again: nothing was written."""
    held = subject.at(DRAIN_HELD)
    return max(resumed, began if held is None else began + max(0.0, now - held))
