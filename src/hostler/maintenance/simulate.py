"""Runs `decide` forward on a world in memory: what would be done if an ESXi host entered maintenance. Pure.

The decisions are the operator's own. The rest of the world is played in its simplest form:

- vCenter and the API server do at once what they are asked; a guest that is asked shuts down; after a power-on the
  kubelet reports Ready from a new boot;
- DRS moves a running VM live where `cannot_move` sees no obstacle and a host of its cluster reaches what it needs;
- a host reaches maintenance when no VM runs on it that cannot move, and takes no VM until it leaves again;
- a PodDisruptionBudget that lets no pod go now never does; volumes are detached when no pod is left;
- when nothing goes on any more, the host leaves maintenance, once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from hostler.drain import model as drain
from hostler.host.facts import Known, Unknown
from hostler.instant import Instant
from hostler.maintenance.decide import decide
from hostler.maintenance.decision import Action, Decision, Pass
from hostler.maintenance.hosts import cannot_move, in_service, stands
from hostler.maintenance.model import Policy, Subject, World
from hostler.maintenance.placement import drs_of
from hostler.maintenance.simulated import SimulatedWorld
from hostler.vsphere.inventory import Inventory
from hostler.vsphere.records import ENTER_MAINTENANCE, Host, Task, Vm

_TASK: Final = "task-simulated"
# A simulation ends after so many passes, or after so many in a row in which nothing came of waiting.
PASSES_MOST, IDLE_MOST = 1000, 200


@dataclass(frozen=True, slots=True)
class LiveMove:
    """DRS moves the running VM; nothing is asked of anybody."""

    host: str  # where it may go; DRS chooses
    why: str


@dataclass(frozen=True, slots=True)
class HostLeaves:
    """The host leaves maintenance, or its task is cancelled."""

    host: str
    why: str  # what the decision waited for


Happening: TypeAlias = Action | LiveMove | HostLeaves


@dataclass(frozen=True, slots=True)
class Step:
    subject: str
    what: Happening
    decision: Decision
    refused: tuple[drain.Blocker, ...] = ()  # pods whose eviction is refused, and why
    done: bool = True  # False: vCenter refuses it


@dataclass(frozen=True, slots=True)
class Forecast:
    """What would happen, in order. `first` and `last`: what is decided before it all and after it."""

    steps: tuple[Step, ...]
    first: Pass
    last: Pass
    power: Mapping[str, str]  # of each subject's VM, at the end
    hangs_for: tuple[str, ...] = ()  # names of the VMs for which the host does not reach maintenance

    def of(self, subject: str) -> tuple[Step, ...]:
        return tuple(one for one in self.steps if one.subject == subject)


def simulate(
    world: World, policy: Policy, now: Instant, vcenter: str, host: str, pods: Mapping[str, drain.Facts]
) -> Forecast:
    """The course of a maintenance of this host (its id) that begins now. `pods`: those on each subject's node."""
    return _Course(SimulatedWorld(world, policy, now, pods), world.subjects, vcenter, host).run(policy)


class _Course:
    def __init__(self, world: SimulatedWorld, subjects: tuple[Subject, ...], vcenter: str, host: str) -> None:
        self._world, self._subjects = world, subjects
        self._vcenter, self._host = vcenter, host
        self._steps: list[Step] = []
        self._left = False
        self._hangs_for: tuple[str, ...] = ()
        here = self._site.host(host)
        if here is not None and here.in_maintenance is not True:
            self._site.put(Task(_TASK, ENTER_MAINTENANCE, "running", host))

    @property
    def _site(self) -> Inventory:
        return self._world.sites[self._vcenter]

    def run(self, policy: Policy) -> Forecast:
        first = found = decide(self._world.world(), policy, self._world.now)
        idle = 0
        for _ in range(PASSES_MOST):
            acted = [self._act(one) for one in found.decisions if one.action is not None]
            moved = any(acted) or self._goes_on(found, policy)
            idle = 0 if moved else idle + 1
            if not moved and (idle > IDLE_MOST or not self._later(found)):
                if self._left:
                    break
                self._leave(found)
                idle = 0
            self._world.now += 1.0
            found = decide(self._world.world(), policy, self._world.now)
        power = {one.name: vm.power for one in self._subjects if (vm := self._world.vm_of(one)) is not None}
        return Forecast(tuple(self._steps), first, found, power, self._hangs_for)

    def _act(self, one: Decision) -> bool:
        """Do it. False: it was refused."""
        done, refused = self._world.act(one)
        if one.action is not None:
            self._steps.append(Step(one.subject, one.action, one, refused, done or bool(refused)))
        return done

    # -- what happens by itself

    def _goes_on(self, found: Pass, policy: Policy) -> bool:
        """Pods end, volumes are detached, DRS moves VMs, the host reaches maintenance, kubelets show that they live."""
        changed = False
        for one in found.decisions:
            if one.pulse and not self._world.memory.of(one.subject).alive:
                self._world.memory.note(one.subject, alive=True)
                changed = True
            waits = one.drain is not None and one.drain.state is drain.State.WAITING_FOR_VOLUMES
            changed = (self._world.end_pods(one.subject) or waits) or changed
            if waits:
                self._world.pods[one.subject] = replace(
                    self._world.pods[one.subject], attachments=Known((), self._world.now)
                )
        return self._live_moves(found, policy) or self._completes() or changed

    def _live_moves(self, found: Pass, policy: Policy) -> bool:
        host = self._site.host(self._host)
        if host is None or not stands(self._site, host).leaving:
            return False
        moved = False
        for vm in self._site.vms_on(self._host):
            if vm.power != "poweredOn" or isinstance(vm.devices, Unknown) or drs_of(self._site, vm) != "fullyAutomated":
                continue
            if cannot_move(self._site, vm, policy.vgpu_vmotion):
                continue
            best = next(self._takes_live(vm, host.cluster), None)
            if best is None:
                continue
            moved = True
            self._site.put(replace(vm, host=best.moref))
            for one in self._subjects:
                ours, decision = self._world.vm_of(one), found.of(one.name)
                if (
                    one.vcenter == self._vcenter
                    and ours is not None
                    and ours.moref == vm.moref
                    and decision is not None
                ):
                    what = LiveMove(best.moref, "DRS moves it live, to a host of its choice")
                    self._steps.append(Step(one.name, what, decision))
        return moved

    def _takes_live(self, vm: Vm, cluster: str) -> Iterator[Host]:
        """Hosts of its cluster that are in service and reach what the VM reaches."""
        for host in sorted(self._site.hosts(), key=lambda one: one.name):
            reaches = set(vm.datastores) <= set(host.datastores) and set(vm.networks) <= set(host.networks)
            if host.cluster == cluster and reaches and in_service(self._site, host):
                yield host

    def _completes(self) -> bool:
        """The host reaches maintenance once nothing runs on it."""
        task, host = self._site.task(_TASK), self._site.host(self._host)
        running = any(one.power == "poweredOn" and not one.template for one in self._site.vms_on(self._host))
        if task is None or host is None or not task.under_way or running:
            return False
        self._site.put(replace(task, state="success"))
        self._site.put(replace(host, in_maintenance=True))
        return True

    def _leave(self, found: Pass) -> None:
        self._left = True
        host, task = self._site.host(self._host), self._site.task(_TASK)
        assert host is not None, "the host of a plan is known"
        if host.in_maintenance is not True:
            running = (one for one in self._site.vms_on(self._host) if one.power == "poweredOn" and not one.template)
            self._hangs_for = tuple(sorted(one.name or one.moref for one in running))
        if task is not None and task.under_way:
            self._site.put(replace(task, state="error", cancelled=True))
        self._site.put(replace(host, in_maintenance=False))
        for one in found.decisions:
            self._steps.append(Step(one.subject, HostLeaves(host.moref, one.why), one))

    def _later(self, found: Pass) -> bool:
        """Go to the next moment at which something is decided anew."""
        if found.wake is None or found.wake <= self._world.now:
            return found.wake is not None
        self._world.now = found.wake
        return True
