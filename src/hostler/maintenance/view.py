"""One subject with all that was found known about it, as the decisions of each state read it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hostler.host.facts import Unknown
from hostler.instant import Instant
from hostler.kube.records import Node
from hostler.maintenance.allowed import ask_for, destination, drs_of, judged, needed, permitted
from hostler.maintenance.hosts import Stands, stands
from hostler.maintenance.ledger import Ledger
from hostler.maintenance.model import (
    LIVE_MOVE_SECONDS,
    SETTLE_SECONDS,
    TARGET,
    Decision,
    Policy,
    Site,
    State,
    Subject,
    World,
)
from hostler.maintenance.placement import Ask, Placement
from hostler.maintenance.rights import Judged, Need
from hostler.vsphere.records import Task, Vm

# How long a task that vCenter gave us may stay unseen in its push before we stop believing in it.
UNSEEN_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class View:
    """Made only when node, VM and vCenter are known and fresh."""

    subject: Subject
    site: Site
    vm: Vm
    world: World
    ledger: Ledger
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
    def here(self) -> Stands:
        return stands(self.site, self.site.host(self.vm.host))

    @property
    def drs(self) -> str | Unknown:
        return drs_of(self.site, self.vm)

    @property
    def promised(self) -> Mapping[str, list[Vm]]:
        return self.ledger.promised(self.subject.vcenter)

    def ask(self) -> Ask:
        return ask_for(self.subject, self.vm, self.site, self.policy)

    def placement(self) -> Placement | None:
        """Where the VM is to go; None where it is not for us to choose: it waits, or DRS chooses."""
        return destination(
            self.subject, self.vm, self.site, self.policy, self.promised, self.world.rights, self.now
        )  # fmt: skip

    def needs(self) -> tuple[Need, ...]:
        """What our user must be allowed to do before the VM is stopped."""
        return needed(self.subject, self.vm, self.site, self.policy, self.promised, self.world.rights, self.now)

    def permitted(self, placement: Placement) -> Placement:
        """Where our user may take the VM comes first."""
        return permitted(placement, self.vm, self.site, self.subject.vcenter, self.world.rights, self.now)

    def judged(self, max_age: float) -> Judged:
        """Whether it is, as looked at no longer ago than that."""
        return judged(
            self.subject, self.vm, self.site, self.world, self.policy, self.promised, self.now, max_age
        )  # fmt: skip

    def counted(self, since: Instant) -> Instant:
        """From when on a time counts that began then: what passed in a pause is nobody's fault, and it begins anew."""
        return max(since, self.world.resumed)

    def live_move(self) -> Instant | None:
        """Until when DRS may still move the VM by itself; None where nothing is to be waited for.

        A VM whose devices are not known may be such a one. After the time it counts as tied to its own host.
        """
        devices = self.vm.devices
        if not isinstance(devices, Unknown) and (devices or self.drs != "fullyAutomated"):
            return None
        since = self.subject.remembered.entering_since
        until = (since if since is not None else self.now) + LIVE_MOVE_SECONDS
        return until if self.now < until else None

    def settled(self) -> Instant | None:
        """None: the VM's host has been in service long enough to be believed; else when that will be."""
        since = self.world.out_since.get((self.subject.vcenter, self.vm.host))
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


def wait(
    subject: Subject,
    state: State | None,
    phase: str,
    why: str,
    release: str,
    *,
    wake: Instant | None = None,
    blocked: str = "",
) -> Decision:
    """Nothing to do now; `release` says what would change that."""
    return Decision(subject.name, state, phase, why, release, wake=wake, blocked=blocked)


def frozen(subject: Subject, state: State | None, why: str) -> Decision:
    """A fact is not known: nothing is done until it is."""
    return Decision(
        subject.name, state, "not known", why, "it goes on when that is known", blocked=f"unknown: {why}", unknown=True
    )
