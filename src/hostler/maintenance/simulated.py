"""A world in memory in which the operator's actions are done at once: Nodes, pods, VMs and hosts. Pure.

It starts as a copy of what a pass sees and changes nothing outside of itself. `simulate.py` lists what it assumes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar, assert_never

import msgspec

from hostler.drain import model as drain
from hostler.drain.blockers import foreseen
from hostler.host.ceiling import Room, is_out
from hostler.host.facts import Fact, Known, fresh, value_or
from hostler.host.maintenance import OUT_OF_SERVICE
from hostler.instant import Instant
from hostler.kube.records import Condition, Taint
from hostler.maintenance.decision import (
    CancelTask,
    Decision,
    Evictions,
    PatchNode,
    PowerOff,
    PowerOn,
    Relocate,
    SetMark,
    ShutDown,
    TellMachine,
)
from hostler.maintenance.hosts import Is, stands
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
from hostler.vsphere.inventory import Inventory
from hostler.vsphere.records import POWER_OFF, POWER_ON, RELOCATE, Vm

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
        self._nodes = {one.name: one.node for one in world.subjects if one.node is not None}
        self._marks = {one.name: one.mark for one in world.subjects}
        self.pods = dict(pods)
        self._out_since = dict(world.out_since)
        self.memory = Memory()
        self._boots = 0
        for one in world.subjects:
            known = {field.name: getattr(one.remembered, field.name) for field in fields(one.remembered)}
            self.memory.note(one.name, **{**known, "pending": None})
            self._finish_tasks(one)

    def world(self) -> World:
        """As the next pass sees it."""
        sites: dict[str, Fact[Site]] = dict(self._base.sites)
        sites.update({name: Known(site, self.now) for name, site in self.sites.items()})
        subjects = tuple(self._subject(one, sites) for one in self._base.subjects)
        self._settle()
        rights = {key: self._renewed(fact) for key, fact in self._base.rights.items()}
        return replace(
            self._base, subjects=subjects, sites=sites, room=self._room(), out_since=dict(self._out_since),
            rights=rights,
        )  # fmt: skip

    def _subject(self, base: Subject, sites: Mapping[str, Fact[Site]]) -> Subject:
        vm = self.vm_of(base)
        known: Fact[Vm] = Known(vm, self.now) if vm is not None else base.vm
        one = replace(
            base, node=self._nodes.get(base.name), vm=known, mark=self._marks[base.name], busy=None, drain=None
        )
        one = replace(one, remembered=self.memory.saw(one, sites.get(one.vcenter), self.now))
        if one.state not in (State.DRAINING, State.POWERED_OFF) or one.name not in self.pods:
            return one
        facts, began = self.pods[one.name], one.at(SINCE)
        facts = replace(
            facts,
            started=began if began is not None else self.now,
            pods=self._renewed(facts.pods),
            attachments=self._renewed(facts.attachments),
            budgets=self._renewed(facts.budgets),
            daemon_sets=self._renewed(facts.daemon_sets),
        )
        return replace(one, drain=facts)

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
                if stands(site, host).what is Is.OUT:
                    self._out_since.setdefault((vcenter, host.moref), self.now)
                else:
                    self._out_since.pop((vcenter, host.moref), None)

    def _room(self) -> Room:
        """The ceiling with our subjects as they are by now; every other node as it was."""
        room = self._base.room
        out = set(room.out) - self._nodes.keys() | {name for name, node in self._nodes.items() if is_out(node)}
        return replace(room, out=tuple(sorted(out)), left=max(0, room.allowed - len(out)))

    # -- what the operator does

    def act(self, one: Decision) -> tuple[bool, tuple[drain.Blocker, ...]]:
        """Do what was decided. False: it was refused; of evictions, for which pods."""
        subject = next(each for each in self._base.subjects if each.name == one.subject)
        action, name, done, refused = one.action, one.subject, True, tuple[drain.Blocker, ...]()
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
                done = self._start(subject, action, one)
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
        self._nodes[subject.name] = msgspec.structs.replace(node, metadata=metadata, spec=spec)
        if any(one.key == OUT_OF_SERVICE for one in spec.taints):
            self._empty(subject.name)

    def _evict(self, name: str, evictions: tuple[drain.Evict, ...]) -> tuple[drain.Blocker, ...]:
        """The pods go, but for those whose budget lets none go."""
        facts = self.pods[name]
        asked = {one.uid: one for one in evictions}
        verdicts = [
            drain.Verdict(pod, drain.Act.EVICT, "")
            for pod in value_or(facts.pods, ()) if pod.metadata.uid in asked
        ]  # fmt: skip
        refused = foreseen(verdicts, facts.budgets.value if isinstance(facts.budgets, Known) else ())
        held, memory = {one.pod for one in refused}, facts.memory
        for one in verdicts:
            if one.key in held:
                said = drain.Answer(drain.Outcome.REFUSED, "its budget lets none go")
                memory = memory.after(asked[one.pod.metadata.uid], said, self._policy.drain, self.now)
        gone = {one.pod.metadata.uid for one in verdicts if one.key not in held}
        left = tuple(pod for pod in value_or(facts.pods, ()) if pod.metadata.uid not in gone)
        self.pods[name] = replace(facts, pods=Known(left, self.now), memory=memory)
        return refused

    def _mark(self, name: str, mark: Mark | None) -> None:
        self._marks[name] = mark
        self.memory.note(name, marked=mark)

    def _start(self, subject: Subject, action: PowerOn, one: Decision) -> bool:
        vm, site = self.vm_of(subject), self.sites[subject.vcenter]
        assert vm is not None, "only a VM that is known is started"
        chosen = one.target[1] if action.drs and one.target is not None else vm.host
        if stands(site, site.host(chosen)).what is not Is.OUT:
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
        others = tuple(one for one in node.status.conditions if one.type != "Ready")
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
        left = tuple(one for one in facts.pods.value if not one.metadata.deletion_timestamp)
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
