"""Runs `decide` forward on a world in memory: what would be done if an ESXi host entered maintenance. Pure.

The decisions are the operator's own. The rest of the world starts as a copy of what a pass sees, changes nothing
outside of itself, and is played in its simplest form:

- vCenter and the API server do at once what they are asked; a guest that is asked shuts down; after a power-on the
  kubelet reports Ready from a new boot;
- DRS moves a running VM live where `cannot_move` sees no obstacle and a host of its cluster reaches what it needs;
- a host reaches maintenance when no VM runs on it that cannot move, and takes no VM until it leaves again;
- a PodDisruptionBudget that lets no pod go now never does; volumes are detached when no pod is left;
- when nothing goes on any more, the host leaves maintenance, once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final, TypeAlias, TypeVar, assert_never

import msgspec

from hostler.drain import model as drain
from hostler.drain.blockers import foreseen
from hostler.host.ceiling import Room, is_out
from hostler.host.facts import Fact, Known, Unknown, fresh, value_or
from hostler.host.taints import out_of_service
from hostler.instant import Instant
from hostler.kube.records import Condition, Taint
from hostler.maintenance.decide import decide
from hostler.maintenance.decision import (
    Action,
    CancelTask,
    Decision,
    Evictions,
    Pass,
    PatchNode,
    PowerOff,
    PowerOn,
    Relocate,
    SetMark,
    ShutDown,
    TellMachine,
)
from hostler.maintenance.hosts import HostMode, is_in_service, judge_host, why_not_moved_live
from hostler.maintenance.memory import Memory
from hostler.maintenance.model import (
    RELOCATE_SINCE,
    SHUTDOWN_SINCE,
    SINCE,
    TARGET,
    Mark,
    Policy,
    Site,
    State,
    Subject,
    World,
)
from hostler.maintenance.placement import drs_of
from hostler.vsphere.inventory import Inventory
from hostler.vsphere.records import ENTER_MAINTENANCE, POWER_OFF, POWER_ON, RELOCATE, Host, Task, Vm

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
        return tuple(step for step in self.steps if step.subject == subject)


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
            acted = [self._act(decision) for decision in found.decisions if decision.action is not None]
            moved = any(acted) or self._goes_on(found, policy)
            idle = 0 if moved else idle + 1
            if not moved and (idle > IDLE_MOST or not self._later(found)):
                if self._left:
                    break
                self._leave(found)
                idle = 0
            self._world.now += 1.0
            found = decide(self._world.world(), policy, self._world.now)
        power = {subject.name: vm.power for subject in self._subjects if (vm := self._world.vm_of(subject)) is not None}
        return Forecast(tuple(self._steps), first, found, power, self._hangs_for)

    def _act(self, decision: Decision) -> bool:
        """Do it. False: it was refused."""
        done, refused = self._world.act(decision)
        if decision.action is not None:
            self._steps.append(Step(decision.subject, decision.action, decision, refused, done or bool(refused)))
        return done

    # -- what happens by itself

    def _goes_on(self, found: Pass, policy: Policy) -> bool:
        """Pods end, volumes are detached, DRS moves VMs, the host reaches maintenance, kubelets show that they live."""
        changed = False
        for decision in found.decisions:
            if decision.pulse and not self._world.memory.of(decision.subject).alive:
                self._world.memory.note(decision.subject, alive=True)
                changed = True
            waits = decision.drain is not None and decision.drain.state is drain.State.WAITING_FOR_VOLUMES
            changed = (self._world.end_pods(decision.subject) or waits) or changed
            if waits:
                self._world.pods[decision.subject] = replace(
                    self._world.pods[decision.subject], attachments=Known((), self._world.now)
                )
        return self._live_moves(found, policy) or self._completes() or changed

    def _live_moves(self, found: Pass, policy: Policy) -> bool:
        host = self._site.host(self._host)
        if host is None or not judge_host(self._site, host).leaving:
            return False
        moved = False
        for vm in self._site.vms_on(self._host):
            if vm.power != "poweredOn" or isinstance(vm.devices, Unknown) or drs_of(self._site, vm) != "fullyAutomated":
                continue
            if why_not_moved_live(self._site, vm, policy.vgpu_vmotion):
                continue
            best = next(self._takes_live(vm, host.cluster), None)
            if best is None:
                continue
            moved = True
            self._site.put(replace(vm, host=best.moref))
            for subject in self._subjects:
                ours, decision = self._world.vm_of(subject), found.of(subject.name)
                if (
                    subject.vcenter == self._vcenter
                    and ours is not None
                    and ours.moref == vm.moref
                    and decision is not None
                ):
                    what = LiveMove(best.moref, "DRS moves it live, to a host of its choice")
                    self._steps.append(Step(subject.name, what, decision))
        return moved

    def _takes_live(self, vm: Vm, cluster: str) -> Iterator[Host]:
        """Hosts of its cluster that are in service and reach what the VM reaches."""
        for host in sorted(self._site.hosts(), key=lambda host: host.name):
            reaches = set(vm.datastores) <= set(host.datastores) and set(vm.networks) <= set(host.networks)
            if host.cluster == cluster and reaches and is_in_service(self._site, host):
                yield host

    def _completes(self) -> bool:
        """The host reaches maintenance once nothing runs on it."""
        task, host = self._site.task(_TASK), self._site.host(self._host)
        running = any(vm.power == "poweredOn" and not vm.template for vm in self._site.vms_on(self._host))
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
            running = (vm for vm in self._site.vms_on(self._host) if vm.power == "poweredOn" and not vm.template)
            self._hangs_for = tuple(sorted(vm.name or vm.moref for vm in running))
        if task is not None and task.under_way:
            self._site.put(replace(task, state="error", cancelled=True))
        self._site.put(replace(host, in_maintenance=False))
        for decision in found.decisions:
            self._steps.append(Step(decision.subject, HostLeaves(host.moref, decision.why), decision))

    def _later(self, found: Pass) -> bool:
        """Go to the next moment at which another decision is due."""
        if found.wake is None or found.wake <= self._world.now:
            return found.wake is not None
        self._world.now = found.wake
        return True


T = TypeVar("T")


class SimulatedWorld:
    """`now` is moved on by whoever runs it. `pods`: those on each subject's node."""

    def __init__(self, world: World, policy: Policy, now: Instant, pods: Mapping[str, drain.Facts]) -> None:
        self._base, self._policy, self._began, self.now = world, policy, now, now
        self.sites = {
            name: fact.value.copy() for name, fact in world.sites.items()
            if isinstance(fresh(fact, now, policy.max_age), Known) and isinstance(fact, Known)
            and isinstance(fact.value, Inventory)
        }  # fmt: skip
        self._nodes = {subject.name: subject.node for subject in world.subjects if subject.node is not None}
        self._marks = {subject.name: subject.mark for subject in world.subjects}
        self.pods = dict(pods)
        self._out_since = dict(world.out_since)
        self.memory = Memory()
        self._boots = 0
        for subject in world.subjects:
            known = {field.name: getattr(subject.remembered, field.name) for field in fields(subject.remembered)}
            self.memory.note(subject.name, **{**known, "pending": None})
            self._finish_tasks(subject)

    def world(self) -> World:
        """As the next pass sees it."""
        sites: dict[str, Fact[Site]] = dict(self._base.sites)
        sites.update({name: Known(site, self.now) for name, site in self.sites.items()})
        subjects = tuple(self._subject(subject, sites) for subject in self._base.subjects)
        self._settle()
        rights = {key: self._renewed(fact) for key, fact in self._base.rights.items()}
        return replace(
            self._base, subjects=subjects, sites=sites, room=self._room(), out_since=dict(self._out_since),
            rights=rights,
        )  # fmt: skip

    def _subject(self, base: Subject, sites: Mapping[str, Fact[Site]]) -> Subject:
        vm = self.vm_of(base)
        known: Fact[Vm] = Known(vm, self.now) if vm is not None else base.vm
        subject = replace(
            base, node=self._nodes.get(base.name), vm=known, mark=self._marks[base.name], busy=None, drain=None
        )
        subject = replace(subject, remembered=self.memory.saw(subject, sites.get(subject.vcenter), self.now))
        if subject.state not in (State.DRAINING, State.POWERED_OFF) or subject.name not in self.pods:
            return subject
        facts, began = self.pods[subject.name], subject.at(SINCE)
        facts = replace(
            facts,
            started=began if began is not None else self.now,
            pods=self._renewed(facts.pods),
            attachments=self._renewed(facts.attachments),
            budgets=self._renewed(facts.budgets),
            daemon_sets=self._renewed(facts.daemon_sets),
        )
        return replace(subject, drain=facts)

    def _renewed(self, fact: Fact[T]) -> Fact[T]:
        """What is known stays so; the first pass sees it as old as it is."""
        return replace(fact, at=self.now) if isinstance(fact, Known) and self.now > self._began else fact

    def vm_of(self, subject: Subject) -> Vm | None:
        site = self.sites.get(subject.vcenter)
        return site.vm(subject.vm.value.moref) if isinstance(subject.vm, Known) and site is not None else None

    def _settle(self) -> None:
        """Since when each host is in service."""
        for vcenter, site in self.sites.items():
            for host in site.hosts():
                if judge_host(site, host).what is HostMode.IN_SERVICE:
                    self._out_since.setdefault((vcenter, host.moref), self.now)
                else:
                    self._out_since.pop((vcenter, host.moref), None)

    def _room(self) -> Room:
        """The ceiling with our subjects as they are by now; every other node as it was."""
        room = self._base.room
        out = set(room.out) - self._nodes.keys() | {name for name, node in self._nodes.items() if is_out(node)}
        return replace(room, out=tuple(sorted(out)), left=max(0, room.allowed - len(out)))

    # -- what the operator does

    def act(self, decision: Decision) -> tuple[bool, tuple[drain.Blocker, ...]]:
        """Do what was decided. False: it was refused; of evictions, for which pods."""
        subject = next(each for each in self._base.subjects if each.name == decision.subject)
        action, name, done, refused = decision.action, decision.subject, True, tuple[drain.Blocker, ...]()
        match action:
            case PatchNode(body):
                self._patch(subject, body)
            case Evictions(evictions):
                refused = self._evict(name, evictions)
                done = len(refused) < len(evictions)
            case SetMark(_, mark):
                self._mark(name, mark)
            case ShutDown(since=since):
                self.memory.note(name, shutdown_asked=since, shutdown_at=self.now)
                self._switch(subject, "poweredOff")
            case PowerOff():
                self._switch(subject, "poweredOff")
            case Relocate(host=to):
                since = self._nodes[name].metadata.annotations.get(RELOCATE_SINCE, "") if name in self._nodes else ""
                self.memory.note(name, relocate_asked=since)
                self._put(subject, host=to)
            case PowerOn():
                done = self._start(subject, action, decision)
            case TellMachine(machine):
                self.memory.note(name, machine_told=machine)
            case CancelTask() | None:
                pass
            case _:
                assert_never(action)
        return done, refused

    def _patch(self, subject: Subject, body: Mapping[str, Any]) -> None:
        node, annotations = self._nodes[subject.name], body["metadata"].get("annotations", {})
        if since := annotations.get(SHUTDOWN_SINCE):
            self.memory.stop_noted(replace(subject, node=node), since)
        merged = {**node.metadata.annotations, **annotations}
        kept = {key: value for key, value in merged.items() if value is not None}
        spec, wanted = node.spec, body.get("spec", {})
        if "unschedulable" in wanted:
            spec = msgspec.structs.replace(spec, unschedulable=bool(wanted["unschedulable"]))
        if "taints" in wanted:
            spec = msgspec.structs.replace(spec, taints=msgspec.convert(wanted["taints"] or [], tuple[Taint, ...]))
        metadata = msgspec.structs.replace(node.metadata, annotations=kept)
        self._nodes[subject.name] = patched = msgspec.structs.replace(node, metadata=metadata, spec=spec)
        if out_of_service(patched):
            self._empty(subject.name)

    def _evict(self, name: str, evictions: tuple[drain.Evict, ...]) -> tuple[drain.Blocker, ...]:
        """The pods go, but for those whose budget lets none go."""
        facts = self.pods[name]
        asked = {evict.uid: evict for evict in evictions}
        verdicts = [
            drain.Verdict(pod, drain.Act.EVICT, "")
            for pod in value_or(facts.pods, ()) if pod.metadata.uid in asked
        ]  # fmt: skip
        refused = foreseen(verdicts, facts.budgets.value if isinstance(facts.budgets, Known) else ())
        held, memory = {blocker.pod for blocker in refused}, facts.memory
        for verdict in verdicts:
            if verdict.key in held:
                said = drain.Answer(drain.Outcome.REFUSED, "its budget lets none go")
                memory = memory.after(asked[verdict.pod.metadata.uid], said, self._policy.drain, self.now)
        gone = {verdict.pod.metadata.uid for verdict in verdicts if verdict.key not in held}
        left = tuple(pod for pod in value_or(facts.pods, ()) if pod.metadata.uid not in gone)
        self.pods[name] = replace(facts, pods=Known(left, self.now), memory=memory)
        return refused

    def _mark(self, name: str, mark: Mark | None) -> None:
        self._marks[name] = mark
        self.memory.note(name, marked=mark)

    def _start(self, subject: Subject, action: PowerOn, decision: Decision) -> bool:
        vm, site = self.vm_of(subject), self.sites[subject.vcenter]
        assert vm is not None, "only a VM that is known is started"
        chosen = decision.target[1] if action.drs and decision.target is not None else vm.host
        if judge_host(site, site.host(chosen)).what is not HostMode.IN_SERVICE:
            self.memory.failed(subject.name, "power", "no host takes it", self.now, host=chosen, returns=True)
            return False
        self._put(subject, host=chosen)
        self._switch(subject, "poweredOn")
        self.memory.note(subject.name, started=True)
        return True

    def _switch(self, subject: Subject, power: str) -> None:
        on = power == "poweredOn"
        self._put(subject, power=power, tools="guestToolsRunning" if on else "guestToolsNotRunning")
        node = self._nodes.get(subject.name)
        if not on or node is None:
            return
        self._boots += 1
        others = tuple(condition for condition in node.status.conditions if condition.type != "Ready")
        info = msgspec.structs.replace(node.status.node_info, boot_id=f"simulated-{self._boots}")
        ready = Condition(type="Ready", status="True", last_heartbeat_time=f"simulated-{self._boots}")
        status = msgspec.structs.replace(node.status, conditions=(ready, *others), node_info=info)
        self._nodes[subject.name] = msgspec.structs.replace(node, status=status)

    def _put(self, subject: Subject, **changes: Any) -> None:
        vm = self.vm_of(subject)
        assert vm is not None, "only a VM that is known is changed"
        self.sites[subject.vcenter].put(replace(vm, **changes))

    # -- what happens by itself

    def end_pods(self, name: str) -> bool:
        """Pods that are terminating already are gone."""
        facts = self.pods.get(name)
        if facts is None or not isinstance(facts.pods, Known):
            return False
        left = tuple(pod for pod in facts.pods.value if not pod.metadata.deletion_timestamp)
        self.pods[name] = replace(facts, pods=Known(left, self.now))
        return len(left) < len(facts.pods.value)

    def _empty(self, name: str) -> None:
        if (facts := self.pods.get(name)) is not None:
            self.pods[name] = replace(facts, pods=Known((), self.now), attachments=Known((), self.now))

    def _finish_tasks(self, subject: Subject) -> None:
        """What vCenter is doing to the VM already comes to its end."""
        site, vm = self.sites.get(subject.vcenter), self.vm_of(subject)
        for task in site.tasks_of(vm.moref) if site is not None and vm is not None else ():
            if not task.under_way or site is None:
                continue
            site.put(replace(task, state="success"))
            hosts = site.hosts_named(subject.annotations.get(TARGET, ""))
            if task.kind in (POWER_ON, POWER_OFF):
                self._switch(subject, "poweredOn" if task.kind == POWER_ON else "poweredOff")
            elif task.kind == RELOCATE and len(hosts) == 1:
                self._put(subject, host=hosts[0].moref)
