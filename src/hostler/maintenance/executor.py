"""Does what was decided for one subject: one action, started and not waited for. Each answer is remembered.

Right before anything is done to a VM it is looked at once more, in one call: what was pushed may be a moment old.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Any, Literal

import structlog

from hostler.drain.executor import Executor
from hostler.drain.model import Policy
from hostler.host.facts import Unknown
from hostler.instant import Instant
from hostler.kube.client import Gate, How
from hostler.kube.errors import ApiError, Unreachable, WriteRefused
from hostler.kube.events import Recorder
from hostler.kube.kinds import NODE
from hostler.kube.writer import Writer
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
    as_sentence,
)
from hostler.maintenance.hosts import HostMode, Restart, judge_host, judge_restart, power_doubt
from hostler.maintenance.machines import Machines
from hostler.maintenance.model import RELOCATE_SINCE, SHUTDOWN_SINCE, Mark, Need, Subject
from hostler.maintenance.observe import Observer, look_at
from hostler.maintenance.placement import judge_rights
from hostler.maintenance.status import MaintenanceMetrics, patch_conditions
from hostler.vsphere.outcomes import AlreadySo, Kind, Outcome, Refused, Started
from hostler.vsphere.records import POWER_OFF, POWER_ON, RELOCATE, Vm
from hostler.vsphere.vcenter import VCenter

log = structlog.get_logger("hostler.maintenance")
_HARD = (Kind.NO_TOOLS, Kind.NOT_SUPPORTED)  # the guest cannot be asked: then it is switched off
_UNMARKABLE = (Kind.NO_PERMISSION, Kind.STATE, Kind.NOT_SUPPORTED)  # marks go into the ConfigMap instead
_LATER = (Kind.NOT_CONNECTED, Kind.NO_PERMISSION, Kind.HOST_AWAY, Kind.IN_PROGRESS, Kind.GONE)


class Changed(Exception):
    """The VM is not as it was when this was decided: decide again."""


class ActionExecutor:
    def __init__(
        self, observer: Observer, writer: Writer, recorder: Recorder, metrics: MaintenanceMetrics, gate: Gate,
        drain: Policy, *, machines: Machines | None = None, clock: Callable[[], Instant] = time.time,
    ) -> None:  # fmt: skip
        self.observer, self.writer, self.recorder, self.metrics = observer, writer, recorder, metrics
        self.gate, self.machines = gate, machines
        self._memory, self._vcenters, self._clock = observer.memory, observer.vcenters, clock
        self._drain, self._evictions = drain, Executor(writer, clock)
        self._logged: set[str] = set()  # in a dry run

    async def perform(self, subject: Subject, decision: Decision) -> None:
        """Raises what the API server says; a refusal of vCenter is remembered and tried again later."""
        match decision.action:
            case PatchNode() as patch:
                await self._patch(subject, decision, patch)
            case Evictions(evictions):
                memory = self._memory.evicted[subject.name]
                done = await self._evictions.perform(evictions, memory, self._drain)
                self._memory.evicted[subject.name] = done.memory
                if done.stopped:
                    raise WriteRefused(done.stopped)
            case SetMark(vm, mark, why):
                await self._mark(subject, vm, mark, why)
            case TellMachine(machine, why):
                if self.machines is not None:
                    await self.machines.tell(machine, subject.name, why)
                self._memory.note(subject.name, machine_told=machine)
            case None:
                pass
            case action:
                await self._vcenter(subject, action)
        await self._show(subject, decision)

    # -- Kubernetes

    async def _patch(self, subject: Subject, decision: Decision, patch: PatchNode) -> None:
        body: dict[str, Any] = dict(patch.body)
        if patch.off and not self.writer.dry_run:
            await self._must_be_off(self._vcenters[subject.vcenter], patch.off)
        if patch.frees and self.machines is not None:
            await self.machines.release(patch.frees, subject.name, patch.why)
        written = await self.observer.nodes.patch(self.writer, subject.name, body, why=patch.why)
        if patch.event:
            kind: Literal["Normal", "Warning"] = "Warning" if patch.warning else "Normal"
            self._event(subject, kind, patch.event, patch.why)
        if written is None:
            return
        if since := patch.body["metadata"].get("annotations", {}).get(SHUTDOWN_SINCE):
            self._memory.stop_noted(subject, since)
        self._measure(subject, decision, patch)

    def _measure(self, subject: Subject, decision: Decision, patch: PatchNode) -> None:
        now = self._clock()
        since = subject.remembered.entering_since
        if patch.event == "Draining" and since is not None:
            self.metrics.detected.observe(max(0.0, now - since))
        began = subject.drain.started if subject.drain is not None else None
        if patch.event in ("Drained", "DrainTimeout") and began is not None:
            self.metrics.drained.observe(max(0.0, now - began))

    async def _show(self, subject: Subject, decision: Decision) -> None:
        """The node's conditions; derived from what it says, so a crash before this loses nothing."""
        node = self.observer.nodes.store.get(subject.name) if subject.node is not None else None
        patch = patch_conditions(node, decision, self._clock()) if node is not None else None
        if patch is None:
            return
        why = "; ".join(f"{condition['type']} is {condition['status']}" for condition in patch["status"]["conditions"])
        await self.observer.nodes.patch(
            self.writer, subject.name, patch, why=why, how=How.STRATEGIC, subresource="status"
        )

    # -- marks

    async def _mark(self, subject: Subject, vm: str, mark: Mark | None, why: str) -> None:
        if not self._may(subject, vm, why):
            return
        vcenter, name = self._vcenters[subject.vcenter], subject.name
        if vcenter.name not in self._memory.unmarkable:
            outcome = await vcenter.mark(vm, mark.text() if mark is not None else "")
            if not isinstance(outcome, Refused):
                self._memory.note(name, mark=type(subject.remembered.mark)(), marked=mark)
                await self.observer.marks.keep(vcenter.name, vm, None, why)
                return
            if outcome.kind not in _UNMARKABLE:
                self._memory.failed(name, "mark", outcome.sentence, self._clock())
                return
            self._no_marks(vcenter.name, outcome)
        try:
            await self.observer.marks.keep(vcenter.name, vm, mark, why)
            self._memory.note(name, marked=mark)
        except (ApiError, Unreachable) as error:
            self._memory.failed(name, "mark", str(error), self._clock())
            log.warning("a VM could not be marked anywhere", vm=vcenter.inventory.name(vm), error=str(error))

    def _no_marks(self, vcenter: str, refused: Refused) -> None:
        needs = f" Grant {refused.privilege}." if refused.privilege else ""
        self._memory.unmarkable[vcenter] = refused.sentence
        log.warning(
            f"VMs of vCenter {vcenter} cannot be marked: {refused.sentence}{needs} "
            "Everything else works; the marks are kept in ConfigMap hostler-stopped-vms."
        )

    # -- vCenter

    async def _vcenter(self, subject: Subject, action: ShutDown | PowerOff | Relocate | PowerOn | CancelTask) -> None:
        if not self._may(subject, action.vm, action.why):
            return
        vcenter = self._vcenters[subject.vcenter]
        await self._look(subject, vcenter, action)
        if (refusal := self.gate()) is not None:  # the look took time
            raise WriteRefused(refusal)
        now = self._clock()
        match action:
            case ShutDown():
                starting = (vm := vcenter.inventory.vm(action.vm)) is not None and vm.tools_start
                self._shut_down(subject, action, await vcenter.shut_down_guest(action.vm), starting)
            case PowerOff():
                self._event(subject, "Warning", "PoweringOff", action.why)
                self._asked(subject, POWER_OFF, await vcenter.power_off(action.vm), now)
            case PowerOn():
                self._memory.note(subject.name, tried_in=action.seen)
                self._asked(subject, POWER_ON, await vcenter.power_on(action.vm), now, action.host)
            case Relocate():
                self._memory.note(
                    subject.name, relocate_asked=subject.annotations.get(RELOCATE_SINCE, ""), relocating=now,
                    tried_in=action.seen,
                )  # fmt: skip
                outcome = await vcenter.relocate(action.vm, action.host, action.pool)
                self._asked(subject, RELOCATE, outcome, now, action.host)
            case CancelTask():
                outcome = await vcenter.cancel_task(action.task)
                self.metrics.task("cancel", _result_label(outcome))
                self._event(subject, "Warning", "RelocateCancelled", action.why)

    async def _look(
        self, subject: Subject, vcenter: VCenter, action: ShutDown | PowerOff | Relocate | PowerOn | CancelTask
    ) -> None:
        if isinstance(action, CancelTask):
            return
        stops = isinstance(action, (ShutDown, PowerOff))
        wrong = await self._not_allowed(vcenter, action.needs) if isinstance(action, (ShutDown, PowerOff)) else ""
        # Each call takes time: the VM is looked at last, and after it only what was pushed meanwhile.
        vm = await _look_at_vm(vcenter, action.vm)
        wrong = wrong or _why_changed(vm, action)
        wrong = wrong or (_why_host_stays(vcenter, action.host) or _why_no_restart(vcenter, vm) if stops else "")
        if stops and not wrong and subject.node is not None:
            wrong = self.observer.identities.not_the_vm(subject.name, vcenter.name, action.vm)
        if wrong:
            raise Changed(wrong)

    async def _must_be_off(self, vcenter: VCenter, vm: str) -> None:
        """Kubernetes takes the volumes of what we call out of service from it: nothing may run there."""
        seen = await _look_at_vm(vcenter, vm)
        if seen is None:
            raise Changed("the VM is gone")
        if doubt := power_doubt(seen):
            raise Changed(doubt)
        if seen.power != "poweredOff":
            raise Changed(f"it is {seen.power}")
        if any(task.kind == POWER_ON and task.under_way for task in vcenter.inventory.tasks_of(vm)):
            raise Changed("it is being powered on")

    async def _not_allowed(self, vcenter: VCenter, needs: Collection[Need]) -> str:
        """What we may do was looked at a while ago: nothing is stopped that could not be started again by now."""
        now, objects = self._clock(), [need.on for need in needs]
        found = await look_at(vcenter, self._memory, objects, now)
        if isinstance(found, Unknown):
            if not vcenter.link.connected:
                return found.why
            for moref in objects:
                self._memory.unanswered((vcenter.name, moref), found.why, now)
        judged = judge_rights(needs, self._memory.rights, vcenter.name, now)
        if judged.lacking:
            return f"our vCenter user lacks {judged}"
        # Where it is to be held for ever, the decision has held it: this was decided without an answer.
        return judged.unknown if judged.holds(now, for_ever=False) else ""

    def _shut_down(self, subject: Subject, action: ShutDown, outcome: Outcome, starting: bool) -> None:
        """`starting`: its Tools are, so that a guest which cannot be asked now is asked again, until its time is up."""
        self.metrics.task("shutdown", _result_label(outcome))
        name = subject.name
        later = (*_LATER, Kind.NO_TOOLS) if starting else _LATER
        if isinstance(outcome, Refused) and outcome.kind in later:
            self._memory.failed(name, "power", outcome.sentence, self._clock(), kind=outcome.kind)
            if outcome.kind is Kind.NOT_CONNECTED:
                self._memory.note(name, stop_noted="")  # the answer is lost, the question perhaps not
            return
        refused = outcome.sentence if isinstance(outcome, Refused) and outcome.kind in _HARD else ""
        self._memory.note(name, shutdown_asked=action.since, shutdown_at=self._clock(), shutdown_refused=refused)
        self._event(subject, "Normal", "GuestShutdown", refused or action.why)

    def _asked(self, subject: Subject, what: str, outcome: Outcome, now: Instant, host: str = "") -> None:
        """A task is under way, or it is so already, or it was refused at once."""
        match outcome:
            case Started(task):
                self._memory.pending(subject.name, task, what, now, host)
                self._memory.note(subject.name, started=what == POWER_ON)
            case AlreadySo():
                self.metrics.task(_task_label(what), "already")
            case Refused() as refused:
                self.ended(subject, what, refused.kind, refused.sentence, host)

    def ended(self, subject: Subject, what: str, kind: Kind | None, why: str, host: str = "") -> None:
        """A task, or the call for one, has failed: later again, on another host first if there is one."""
        self.metrics.task(_task_label(what), str(kind) if kind is not None else "failed")
        why = self._vcenters[subject.vcenter].inventory.with_names(why)  # of a task: it speaks of objects by their ids
        book = "relocate" if what == RELOCATE else "power"
        self._memory.failed(
            subject.name, book, why, self._clock(), kind=kind, host=host, returns=what in (POWER_ON, RELOCATE)
        )
        log.warning(f"{_task_label(what)} of the VM of {subject.name} failed: {why}", vcenter=subject.vcenter)
        self._event(subject, "Warning", f"{_task_label(what)}Failed", why, "maintenance")

    def succeeded(self, subject: Subject, what: str) -> None:
        self.metrics.task(_task_label(what), "success")
        fresh = type(subject.remembered.power)()
        self._memory.note(subject.name, **({"relocate": fresh} if what == RELOCATE else {"power": fresh}))

    def _event(
        self, subject: Subject, kind: Literal["Normal", "Warning"], reason: str, note: str, refusing: str = ""
    ) -> None:
        if subject.node is not None:
            sentence = f"{as_sentence(note.rstrip('.'), subject.name)}."
            about = subject.node.metadata
            self.recorder.event(NODE, about, kind, reason, "Maintenance", sentence, refusing=refusing)

    def _may(self, subject: Subject, vm: str, why: str) -> bool:
        """False in a dry run, which says it once. Raises while nothing may be done at all."""
        if self.writer.dry_run:
            line = f"{subject.vcenter} {vm}: {why}"
            if line not in self._logged:
                self._logged.add(line)
                name = self._vcenters[subject.vcenter].inventory.name(vm)
                log.info("would ask vCenter", vcenter=subject.vcenter, vm=name, why=why)
            return False
        if (refusal := self.gate()) is not None:
            raise WriteRefused(refusal)
        return True


async def _look_at_vm(vcenter: VCenter, vm: str) -> Vm | None:
    """The VM as it is this moment; None where it is gone."""
    seen = await vcenter.look([vm])
    if isinstance(seen, Unknown):
        raise Changed(seen.why)
    return next((found for found in seen.value if found.moref == vm), None)


def _why_host_stays(vcenter: VCenter, host: str) -> str:
    """Why a VM on that host is not to be stopped; "" where the host still goes into maintenance."""
    found = judge_host(vcenter.inventory, vcenter.inventory.host(host))
    name = vcenter.inventory.name(host)
    if found.what is HostMode.UNKNOWN:
        return f"cannot tell whether {name} is in maintenance: {found.why}"
    return "" if found.leaving else f"{name} no longer goes into maintenance"


def _why_no_restart(vcenter: VCenter, vm: Vm | None) -> str:
    """Why the VM could not be started again, by what vCenter says this moment."""
    found = judge_restart(vcenter.inventory, vm) if vm is not None else Restart()
    return found.never or found.unknown


def _why_changed(vm: Vm | None, action: ShutDown | PowerOff | Relocate | PowerOn) -> str:
    """Why the VM is not as it was decided on; "" where it is."""
    if vm is None:
        return "the VM is gone"
    if found := power_doubt(vm):
        return found
    match action:
        case ShutDown() | PowerOff():
            if vm.power != "poweredOn":
                return f"it is {vm.power}"
            return "" if vm.host == action.host else "it is on another host"
        case PowerOn():
            if vm.power != "poweredOff":
                return f"it is {vm.power}"
            return "" if vm.host == action.host else "it is on another host"
        case Relocate():
            if vm.power != "poweredOff":
                return f"it is {vm.power}"
            return "it is there already" if vm.host == action.host else ""


def _result_label(outcome: Outcome) -> str:
    match outcome:
        case Started():
            return "started"
        case AlreadySo():
            return "already"
        case Refused(kind):
            return str(kind)


def _task_label(what: str) -> str:
    return {POWER_ON: "PowerOn", POWER_OFF: "PowerOff", RELOCATE: "Relocate"}.get(what, what)
