"""Says each thing that keeps a maintenance from going on once: an Event on the node, and a line in the log.

A fact that is not known for a moment is no news: an operator that has just started has not read its vCenter yet, and a
session that expired is opened again within a second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, NamedTuple

import structlog

from hostler.host.conditions import names
from hostler.instant import Instant
from hostler.kube.events import Recorder
from hostler.kube.kinds import NODE
from hostler.maintenance.decision import BlockedBy, Decision, Pass
from hostler.maintenance.hosts import is_not_back
from hostler.maintenance.metrics import MaintenanceMetrics
from hostler.maintenance.model import Subject, World, identity_doubt
from hostler.maintenance.stray import has_stray_hold, mend_command

log = structlog.get_logger("hostler.maintenance")

LASTS_SECONDS = 10.0  # so long a fact must be unknown before anybody is told
# Normal is to wait for the own host while that is in maintenance or reboots, for a spare host, for one's turn, below
# the ceiling, and for DRS. A person is wanted when the own host is back in service and the VM is not.
# The alert HostlerMaintenanceBlocked leaves them out.
NORMAL = (BlockedBy.NO_HOST, BlockedBy.SLOT, BlockedBy.CEILING, BlockedBy.DRS)
EVENT_REASONS = {
    BlockedBy.BUDGET: "DrainBlocked",
    BlockedBy.REFUSED: "DrainRefused",
    BlockedBy.NO_HOST: "NoHost",
    BlockedBy.NO_RESTART: "NotStopped",
    BlockedBy.PRIVILEGES: "Waiting",
    BlockedBy.POLICY: "Waiting",
    BlockedBy.CEILING: "Waiting",
    BlockedBy.STRAY_HOLD: "StrayHold",
}


class Said(NamedTuple):
    subject: str
    reason: str  # of the Event
    note: str  # a sentence without its dot
    core: str  # what of it is news: counts and times change all the time
    normal: bool = False  # a wait that wants nobody's attention


class EventReporter:
    def __init__(self, recorder: Recorder, metrics: MaintenanceMetrics) -> None:
        self._recorder, self._metrics = recorder, metrics
        self._told: dict[tuple[str, str], str] = {}
        self._unknown_since: dict[str, Instant] = {}
        self._unlabelled = ""

    def lasting(self, world: World, found: Pass, now: Instant) -> Pass:
        """The pass as it may be shown to others: what is unknown for a moment only does not count as that yet.

        Of whoever is busy nothing new is known: what was said of it stands.
        """
        unknown = {one.subject for one in found.decisions if one.unknown} | (self._unknown_since.keys() & _busy(world))
        self._unknown_since = {name: self._unknown_since.get(name, now) for name in unknown}
        return replace(found, decisions=tuple(self._patient(one, now) for one in found.decisions))

    def _patient(self, one: Decision, now: Instant) -> Decision:
        until = self._unknown_since.get(one.subject, now) + LASTS_SECONDS
        if not one.unknown or now >= until:
            return one
        return replace(one, unknown=False, wake=until if one.wake is None else min(until, one.wake))

    def tell(self, world: World, found: Pass) -> None:
        """Once each: what is overdue, what blocks, what froze, who else keeps a host waiting; and when that is over."""
        if world.unlabelled and world.unlabelled != self._unlabelled:
            log.warning(world.unlabelled, mend="Label the GPU workers, or set GPU_NODE_LABEL to the label they have.")
        self._unlabelled = world.unlabelled
        subjects = {one.name: one for one in world.subjects}
        said = {(one.reason, one.subject): one for one in _news(world, found, subjects)}
        for key, one in said.items():
            if self._told.get(key) == one.core:
                continue
            self._told[key] = one.core
            kind: Literal["Normal", "Warning"] = "Normal" if one.normal else "Warning"
            (log.info if one.normal else log.warning)(f"{one.note}.", node=one.subject, reason=one.reason)
            if one.reason == "PowerOnTimeout":
                self._metrics.overdue()
            node = subjects[one.subject].node
            if node is not None:
                self._recorder.event(NODE, node.metadata, kind, one.reason, "Maintenance", f"{one.note}.")
        busy = _busy(world)
        for reason, subject in [key for key in self._told if key not in said and key[1] not in busy]:
            log.info(f"No longer so: {self._told.pop((reason, subject))}.", node=subject, reason=reason)


def _busy(world: World) -> set[str]:
    return {one.name for one in world.subjects if one.busy is not None}


def _news(world: World, found: Pass, subjects: Mapping[str, Subject]) -> list[Said]:
    said: list[Said] = []
    for one in found.decisions:
        if one.overdue:
            # Once, however the reason changes from one try to the next.
            said.append(Said(one.subject, "PowerOnTimeout", one.overdue, f"{one.subject} is not back in time"))
        if one.doubt:
            note = f"{one.subject} is stopped, though its VM may not come back by what we know: {one.doubt}"
            said.append(Said(one.subject, "ReturnInDoubt", note, one.doubt))
        if one.blocked is not None and one.blocked.by in EVENT_REASONS:
            also = one.blocked.sentence
            note = f"{one.why}. {also}" if also and also not in one.why else one.why
            core = also if one.blocked.by is BlockedBy.BUDGET else note
            normal = is_normal_wait(subjects[one.subject], one, world)
            said.append(Said(one.subject, EVENT_REASONS[one.blocked.by], note, core, normal))
        if one.unknown and one.state is not None:
            # Once per freeze: on its way back a vCenter is away, then being read; the condition follows that.
            core = f"Nothing is done to {one.subject}"
            said.append(Said(one.subject, "Frozen", f"{core}: {one.why}", core))
        if one.unknown and has_stray_hold(subjects[one.subject].node):
            core = f"{one.subject} carries a hold of maintenance without a state"
            note = f"{core}: {one.why}. If it is to be in service: {mend_command(one.subject)}"
            said.append(Said(one.subject, "StrayHold", note, core))
        if one.unknown and (doubt := identity_doubt(subjects[one.subject])) is not None:
            note = f"{one.why}: {doubt.remedy}" if doubt.remedy else one.why
            said.append(Said(one.subject, "IdentityRefused" if doubt.reason else "InDoubt", note, one.why))
    for hanging in found.hanging:
        note = f"ESXi host {hanging.host} also waits for VMs that are not ours: {names(hanging.vms, 10)}"
        said += [Said(name, "ForeignVMs", note, note) for name in hanging.nodes]
    return said


def is_normal_wait(subject: Subject, one: Decision, world: World) -> bool:
    return one.blocked is not None and one.blocked.by in NORMAL and not is_not_back(subject, world)
