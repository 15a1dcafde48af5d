"""One subject with all that was found known about it, as the decisions of each state read it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from hostler.host.facts import Known, Unknown
from hostler.instant import Instant
from hostler.kube.records import Node
from hostler.maintenance.hosts import Is, Stands, is_at_home, own_host, stands
from hostler.maintenance.model import (
    LIVE_MOVE_SECONDS,
    SETTLE_SECONDS,
    TARGET,
    Need,
    Policy,
    Site,
    Subject,
    Wish,
    World,
)
from hostler.maintenance.placement import (
    Ask,
    Judged,
    Placement,
    ask_for,
    destination,
    doubt_at_home,
    drs_of,
    judge,
    may_go,
    moves_of,
    needs_of,
    permitted,
    tied,
)
from hostler.maintenance.reservations import Reservations
from hostler.vsphere.devices import can_vmotion
from hostler.vsphere.records import POWER_OFF, POWER_ON, RELOCATE, Host, Task, Vm

# How long a task that vCenter gave us may stay unseen in its push before we stop believing in it.
UNSEEN_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class View:
    """Made only when node, VM and vCenter are known and fresh."""

    subject: Subject
    site: Site
    vm: Vm
    world: World
    reservations: Reservations
    policy: Policy
    now: Instant
    told: Instant  # when vCenter last said anything

    @property
    def node(self) -> Node:
        assert self.subject.node is not None, "asked for the node of a VM that has none"
        return self.subject.node

    @property
    def host_name(self) -> str:
        """Where the VM is now."""
        return self.site.name(self.vm.host)

    @property
    def own(self) -> Host | None:
        """The VM's own host, by id; None where nobody can tell."""
        return own_host(self.subject, self.site, self.vm)

    @property
    def at_home(self) -> bool:
        return is_at_home(self.subject, self.site, self.vm)

    @property
    def own_in_service(self) -> bool:
        return self.own is not None and stands(self.site, self.own).what is Is.OUT

    @property
    def drs_chooses(self) -> bool:
        """A start is given to vCenter: DRS places the VM, its owner wants it moved, and nothing ties it."""
        return self.drs == "fullyAutomated" and self.subject.wish is Wish.MIGRATE and not tied(self.vm)

    @property
    def here(self) -> Stands:
        return stands(self.site, self.site.host(self.vm.host))

    @property
    def drs(self) -> str | Unknown:
        return drs_of(self.site, self.vm)

    @property
    def promised(self) -> Mapping[str, list[Vm]]:
        return self.reservations.promised(self.subject.vcenter)

    def ask(self) -> Ask:
        return ask_for(self.subject, self.vm, self.site, self.policy)

    def placement(self) -> Placement | None:
        """Where the VM is to go; None where it is not for us to choose: it waits, or DRS chooses."""
        return destination(
            self.subject, self.vm, self.site, self.policy, self.promised, self.world.rights, self.now
        )  # fmt: skip

    def needs(self) -> tuple[Need, ...]:
        """What our user must be allowed to do before the VM is stopped."""
        return needs_of(self.vm)

    def permitted(self, placement: Placement) -> Placement:
        """Where our user may take the VM comes first."""
        return permitted(placement, self.vm, self.site, self.subject.vcenter, self.world.rights, self.now)

    def judged(self, max_age: float) -> Judged:
        """Whether it is, as looked at no longer ago than that."""
        return self.reservations.judged(self.subject, self.vm).within(max_age, self.now)

    def doubt(self) -> str:
        """Why the VM might not come back, by our model alone; "" where nothing speaks against it."""
        ask = self.ask()
        others = [one for one in self.promised.get(ask.own, ()) if one.moref != self.vm.moref]
        if found := doubt_at_home(ask, self.site, others):
            return f"{self.site.name(ask.own) or 'its own host'} may refuse it: {found}"
        if self.subject.wish is not Wish.MIGRATE or self.drs_chooses or tied(self.vm):
            return ""
        rights = judge(moves_of(self.vm), self.world.rights, self.subject.vcenter, self.now)
        return f"it cannot move, because our vCenter user lacks {rights}" if rights.lacking else ""

    def start_depends_on(self) -> tuple[object, ...]:
        """What vCenter's answer to a start may depend on: when any of it changes, a refused start is asked for again.

        Tasks of ours on the VM are left out: each try would be a change.
        """
        vm, site, clusters = self.vm, self.site, set(self.policy.clusters)
        near = [host for host in (self.own, site.host(vm.host)) if host is not None]
        hosts = (host for host in site.hosts() if any(may_go(site, one, host, clusters) for one in near))
        ours = (POWER_ON, POWER_OFF, RELOCATE)
        tasks = ((task.moref, task.state) for task in site.tasks_of(vm.moref) if task.kind not in ours)
        right = self.world.rights.get((self.subject.vcenter, vm.moref))
        return (
            replace(vm, attributes=(), tools=""),
            self.drs,
            right.value if isinstance(right, Known) else None,
            tuple(tasks),
            tuple(sorted((self._standing(host) for host in hosts), key=lambda one: str(one[0]))),
        )

    def _standing(self, host: Host) -> tuple[object, ...]:
        """What of a host decides whether it can take a VM: its state, what it offers, and who holds its devices."""
        running = (vm for vm in self.site.vms_on(host.moref) if vm.power != "poweredOff")
        holders = tuple(
            vm.moref for vm in running if (host.offers_devices if isinstance(vm.devices, Unknown) else bool(vm.devices))
        )
        how = stands(self.site, host).what
        offers = (host.passthrough, host.vgpu_profiles, host.datastores, host.networks, host.cpu_threads)
        return host.moref, how, host.power, host.standby, offers, holders

    def counted(self, since: Instant) -> Instant:
        """From when on a time counts that began then: what passed in a pause is nobody's fault, and it begins anew."""
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

    def reserved(self) -> tuple[str, str] | None:
        """The host it has reserved, so that the pass goes on counting it."""
        name = self.subject.annotations.get(TARGET, "")
        found = self.site.hosts_named(name) if name else []
        return (self.subject.vcenter, found[0].moref) if len(found) == 1 else None

    def task(self, *kinds: str) -> Task | None:
        """A task of one of these kinds that works on the VM now, ours or somebody else's."""
        return next((one for one in self.site.tasks_of(self.vm.moref) if one.kind in kinds and one.under_way), None)

    def under_way(self, *kinds: str) -> bool:
        """As `task`, and also true while one of ours has not been shown yet."""
        if self.task(*kinds) is not None:
            return True
        pending = self.subject.remembered.pending
        if pending is None or pending.what not in kinds or self.now - pending.at > UNSEEN_SECONDS:
            return False
        return self.site.task(pending.task) is None  # shown and not under way: it has ended
