"""What others see of a maintenance: conditions, Events, metrics, `/v1/maintenance`, findings of `hostler doctor`.

All of it follows from the decision, in text that is stable: it changes only when something changed.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import msgspec
import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from hostler.explain.doctor import RIGHTS_UNREAD, Finding, Level
from hostler.host.conditions import Condition, Status, names, node_condition_patch
from hostler.host.facts import Fact, Unknown
from hostler.host.identity import Refusal
from hostler.instant import Instant
from hostler.kube.events import Recorder
from hostler.kube.kinds import NODE
from hostler.kube.records import Node
from hostler.maintenance.decision import BlockedBy, Decision, Pass
from hostler.maintenance.hosts import is_not_back
from hostler.maintenance.model import (
    DRAIN_ENDED,
    EMPTY,
    HOST,
    LATE,
    SHUTDOWN_SINCE,
    STATE,
    State,
    Subject,
    World,
    has_stray_hold,
    identity_doubt,
    mend_command,
)

# -- the Node's conditions

DRAIN, DRAINED, MAINTENANCE = "DrainInProgress", "Drained", "MaintenanceInProgress"
_SHOWN = (BlockedBy.BUDGET, BlockedBy.REFUSED, BlockedBy.PRIVILEGES)
NOT_SAID = "not said"
_REASONS: dict[str, str] = {State.DRAINING: "Draining", State.POWERED_OFF: "PoweredOff", State.MIGRATED: "Migrated"}
_UNKNOWN = "Unknown"  # a state that we cannot read
_OURS = {
    DRAIN: ("Blocked", "Evicting", "Ended"),
    DRAINED: ("Evicting", "Ended", "DeadlinePassed", "NotKnown"),
    MAINTENANCE: (*_REASONS.values(), _UNKNOWN),
}


def conditions_of(node: Node, decision: Decision | None) -> Iterator[Condition]:
    """From the annotations as they are; the decision adds who blocks. No counts: each would be a write per pod."""
    state, host = node.metadata.annotations.get(STATE, ""), node.metadata.annotations.get(HOST, "")
    if not state:
        for name in (DRAIN, DRAINED, MAINTENANCE):
            if any(condition.type == name for condition in node.status.conditions):
                yield Condition(type=name, status=Status.FALSE, reason="InService", message="No maintenance.")
        return
    stopping = bool(node.metadata.annotations.get(SHUTDOWN_SINCE))
    draining = state == State.DRAINING and not stopping
    blocked = _blocked_sentence(decision)
    because = f"ESXi host {host} goes into maintenance."
    said = f"{because} {blocked}" if blocked else because
    yield Condition(
        type=DRAIN,
        status=Status.TRUE if draining else Status.FALSE,
        reason=("Blocked" if blocked else "Evicting") if draining else "Ended",
        message=said if draining else because,
    )
    yield _drained_condition(because, "" if draining else node.metadata.annotations.get(DRAIN_ENDED, NOT_SAID))
    reason = _REASONS.get(state, _UNKNOWN)
    waiting = f" {decision.why}." if decision is not None and decision.unknown else ""
    yield Condition(type=MAINTENANCE, status=Status.TRUE, reason=reason, message=f"{because}{waiting}")


def _drained_condition(because: str, ended: str) -> Condition:
    """It may have been moved, stopped or taken over before anybody said how its drain ended: that is not known."""
    status, reason, more = {
        "": (Status.FALSE, "Evicting", ""),
        EMPTY: (Status.TRUE, "Ended", ""),
        LATE: (Status.FALSE, "DeadlinePassed", " Not every pod had left when the time was up."),
    }.get(ended, (Status.UNKNOWN, "NotKnown", " Cannot tell whether every pod had left."))
    return Condition(type=DRAINED, status=status, reason=reason, message=f"{because}{more}")


def has_conditions_left(node: Node) -> bool:
    """It says that a maintenance of ours goes on, and none does: the write that ended it was our last one.

    Other controllers may use the same types. We write all three in one patch, each with a reason of ours.
    """
    if STATE in node.metadata.annotations:
        return False
    found = {
        condition.type: condition
        for condition in node.status.conditions
        if condition.reason in _OURS.get(condition.type, ())
    }
    return len(found) == len(_OURS) and found[MAINTENANCE].status == "True"


def _blocked_sentence(decision: Decision | None) -> str:
    if decision is None or decision.blocked is None or decision.blocked.by not in _SHOWN:
        return ""
    return f"{decision.blocked.sentence}."


def patch_conditions(node: Node, decision: Decision | None, now: Instant) -> dict[str, Any] | None:
    """One strategic patch for all that changed; None where the node already says so."""
    entries: list[Any] = []
    for condition in conditions_of(node, decision):
        patch = node_condition_patch(node, condition, now)
        if patch is not None:
            entries += patch["status"]["conditions"]
    return {"status": {"conditions": entries}} if entries else None


# -- Events and the log

log = structlog.get_logger("hostler.maintenance")

LASTS_SECONDS = 10.0  # so long a fact must be unknown before it is reported
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


class Notice(NamedTuple):
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
        unknown = {decision.subject for decision in found.decisions if decision.unknown} | (
            self._unknown_since.keys() & _busy_names(world)
        )
        self._unknown_since = {name: self._unknown_since.get(name, now) for name in unknown}
        return replace(found, decisions=tuple(self._patient(decision, now) for decision in found.decisions))

    def _patient(self, decision: Decision, now: Instant) -> Decision:
        until = self._unknown_since.get(decision.subject, now) + LASTS_SECONDS
        if not decision.unknown or now >= until:
            return decision
        return replace(decision, unknown=False, wake=until if decision.wake is None else min(until, decision.wake))

    def tell(self, world: World, found: Pass) -> None:
        """Once each: what is overdue, what blocks, what froze, who else keeps a host waiting; and when that is over."""
        if world.unlabelled and world.unlabelled != self._unlabelled:
            log.warning(world.unlabelled, mend="Label the GPU workers, or set GPU_NODE_LABEL to the label they have.")
        self._unlabelled = world.unlabelled
        subjects = {subject.name: subject for subject in world.subjects}
        said = {(news.reason, news.subject): news for news in _collect_news(world, found, subjects)}
        for key, news in said.items():
            if self._told.get(key) == news.core:
                continue
            self._told[key] = news.core
            kind: Literal["Normal", "Warning"] = "Normal" if news.normal else "Warning"
            (log.info if news.normal else log.warning)(f"{news.note}.", node=news.subject, reason=news.reason)
            if news.reason == "PowerOnTimeout":
                self._metrics.overdue()
            node = subjects[news.subject].node
            if node is not None:
                about, note = node.metadata, f"{news.note}."
                self._recorder.event(NODE, about, kind, news.reason, "Maintenance", note, refusing="maintenance")
        busy = _busy_names(world)
        for reason, subject in [key for key in self._told if key not in said and key[1] not in busy]:
            log.info(f"No longer so: {self._told.pop((reason, subject))}.", node=subject, reason=reason)


def _busy_names(world: World) -> set[str]:
    return {subject.name for subject in world.subjects if subject.busy is not None}


def _collect_news(world: World, found: Pass, subjects: Mapping[str, Subject]) -> list[Notice]:
    said: list[Notice] = []
    for decision in found.decisions:
        if decision.overdue:
            # Once, however the reason changes from one try to the next.
            said.append(
                Notice(decision.subject, "PowerOnTimeout", decision.overdue, f"{decision.subject} is not back in time")
            )
        if decision.doubt:
            note = f"{decision.subject} is stopped, though its VM may not come back by what we know: {decision.doubt}"
            said.append(Notice(decision.subject, "ReturnInDoubt", note, decision.doubt))
        if decision.blocked is not None and decision.blocked.by in EVENT_REASONS:
            also = decision.blocked.sentence
            note = f"{decision.why}. {also}" if also and also not in decision.why else decision.why
            core = also if decision.blocked.by is BlockedBy.BUDGET else note
            normal = is_normal_wait(subjects[decision.subject], decision, world)
            said.append(Notice(decision.subject, EVENT_REASONS[decision.blocked.by], note, core, normal))
        if decision.unknown and decision.state is not None:
            # Once per freeze: on its way back a vCenter is away, then being read; the condition follows that.
            core = f"Nothing is done to {decision.subject}"
            said.append(Notice(decision.subject, "Frozen", f"{core}: {decision.why}", core))
        if decision.unknown and has_stray_hold(subjects[decision.subject].node):
            core = f"{decision.subject} carries a hold of maintenance without a state"
            note = f"{core}: {decision.why}. To return it to service: {mend_command(decision.subject)}"
            said.append(Notice(decision.subject, "StrayHold", note, core))
        if decision.unknown and (doubt := identity_doubt(subjects[decision.subject])) is not None:
            note = f"{decision.why}: {doubt.remedy}" if doubt.remedy else decision.why
            said.append(Notice(decision.subject, "IdentityRefused" if doubt.reason else "InDoubt", note, decision.why))
    for hanging in found.hanging:
        note = f"ESXi host {hanging.host} also waits for VMs that are not ours: {names(hanging.vms, 10)}"
        said += [Notice(name, "ForeignVMs", note, note) for name in hanging.nodes]
    return said


def is_normal_wait(subject: Subject, decision: Decision, world: World) -> bool:
    return decision.blocked is not None and decision.blocked.by in NORMAL and not is_not_back(subject, world)


# -- metrics

_PASS_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60)
_DRAIN_SECONDS = (5, 15, 30, 60, 120, 300, 600, 1200, 3600)


class MaintenanceMetrics:
    def __init__(self, registry: CollectorRegistry, bug: Callable[[], None] = lambda: None) -> None:
        """`bug` counts an error that nobody foresaw."""
        self.bug = bug
        self._states = Gauge("hostler_maintenance_nodes", "Nodes per state.", ["state"], registry=registry)
        self._blocked = Gauge(
            "hostler_maintenance_blocked", "Nodes that do not go on, by why.", ["reason"], registry=registry
        )
        self._doubted = Gauge(
            "hostler_maintenance_return_in_doubt", "Nodes being stopped whose return our model doubts.",
            registry=registry,
        )  # fmt: skip
        self._refused = Gauge(
            "hostler_maintenance_identity_refused", "Nodes that are refused as the VM they say they are, by why.",
            ["reason"], registry=registry,
        )  # fmt: skip
        self._not_back = Gauge(
            "hostler_maintenance_not_back",
            "Nodes whose VM we stopped and whose ESXi host is in service again, while the VM is off.",
            registry=registry,
        )
        self.drained = Histogram(
            "hostler_maintenance_drain_seconds", "From the cordon to the stop of the VM.", registry=registry,
            buckets=_DRAIN_SECONDS,
        )  # fmt: skip
        self.detected = Histogram(
            "hostler_maintenance_detection_seconds",
            "From vCenter's push of the task to the cordon in the API server.",
            registry=registry,
            buckets=_PASS_SECONDS,
        )
        self._tasks = Counter(
            "hostler_maintenance_power_tasks", "Asked of vCenter, by result.", ["what", "result"], registry=registry
        )
        self._overdue = Counter(
            "hostler_maintenance_power_on_timeouts", "POWER_ON_TIMEOUT_SECONDS passed.", registry=registry
        )
        self._passes = Histogram(
            "hostler_maintenance_pass_seconds", "One pass over everything.", registry=registry, buckets=_PASS_SECONDS
        )

    def task(self, what: str, result: str) -> None:
        self._tasks.labels(what, result).inc()

    def overdue(self) -> None:
        self._overdue.inc()

    def passed(self, world: World, found: Pass, states: Tally[str], seconds: float) -> None:
        self._passes.observe(seconds)
        for state in State:
            self._states.labels(str(state)).set(states[str(state)])
        self._doubted.set(sum(bool(decision.doubt) for decision in found.decisions))
        self._not_back.set(sum(is_not_back(subject, world) for subject in world.subjects))
        doubts = (identity_doubt(subject) for subject in world.subjects)
        refused = Tally(doubt.reason for doubt in doubts if doubt is not None)
        for refusal in Refusal:
            self._refused.labels(str(refusal)).set(refused[refusal])
        blocked = Tally(decision.blocked.by for decision in found.decisions if decision.blocked is not None)
        for reason in BlockedBy:
            self._blocked.labels(reason.value).set(blocked[reason])


# -- `/v1/maintenance`: served by the operator, asked for by the CLI


class Row(msgspec.Struct, rename="camel", frozen=True):
    """One node, or one VM of ours without a node."""

    node: str
    vm: str
    host: str  # where the VM is
    state: str  # the annotation's word; "" before it has one
    phase: str
    since: str
    blocked_by: str
    next: str
    why: str
    vcenter: str = ""
    maintenance_of: str = ""  # the ESXi host that triggered it
    target: str = ""
    rejected: tuple[str, ...] = ()


class Waiting(msgspec.Struct, rename="camel", frozen=True):
    """VMs that are not ours and keep a host from maintenance."""

    host: str
    vcenter: str
    vms: tuple[str, ...]


class Standing(msgspec.Struct, rename="camel", frozen=True):
    vcenter: str
    connected: bool
    sentence: str
    rights_unknown: str = ""  # why it does not say what our user may do
    certificate_warning: str = ""  # what is wrong with how its certificate is judged


class IdentityRefused(msgspec.Struct, rename="camel", frozen=True):
    """A node whose VM has no proof, or is in doubt: nothing is done to that VM."""

    node: str
    reason: str
    why: str
    remedy: str  # what the owner can do


class MaintenanceStatus(msgspec.Struct, rename="camel", frozen=True):
    rows: tuple[Row, ...] = ()
    foreign: tuple[Waiting, ...] = ()
    vcenters: tuple[Standing, ...] = ()
    notes: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()  # why it cannot be said whether a host is entering maintenance
    untold_machines: tuple[str, ...] = ()  # Cluster API Machines of our nodes that nobody tells of a maintenance
    refused: tuple[IdentityRefused, ...] = ()
    by_uuid: bool = False  # HOSTLER_VM_IDENTITY=uuid: a kubelet's word alone counts


# -- what `hostler doctor` says of it

_UNTOLD = (
    "HOSTLER_MAINTENANCE_SKIP_REMEDIATION=true tells Machines in this cluster. Elsewhere their owner annotates them "
    "with cluster.x-k8s.io/skip-remediation for the time of a maintenance, or pauses the MachineHealthCheck."
)
_BY_UUID = "HOSTLER_VM_IDENTITY=uuid: anyone who has the key of one kubelet can have the VM of another machine stopped."
_PROVEN = "Set HOSTLER_VM_IDENTITY=proven; docs/maintenance.md (Which VM a node is) says how a node is proven."
_MEND = "See docs/vsphere.md. With the operator's VCENTER_ settings, `hostler doctor` tries the same from this machine."

_CERTIFICATE = "docs/vsphere.md, Who vCenter is, says how its certificate is judged and where that is kept."


def list_findings(found: Fact[MaintenanceStatus]) -> Iterator[Finding]:
    """One of each vCenter that the operator follows."""
    if isinstance(found, Unknown):
        why = f"How the operator stands with its vCenters could not be asked: {found.why}"
        yield Finding(Level.WARNING, "maintenance", why, "hostler maintenance status")
        return
    for vcenter in found.value.vcenters:
        what = f"vCenter {vcenter.vcenter}, for the operator"
        yield (
            Finding(Level.FINE, what, vcenter.sentence)
            if vcenter.connected
            else Finding(Level.PROBLEM, what, vcenter.sentence, _MEND)
        )
        if vcenter.certificate_warning:
            yield Finding(Level.WARNING, what, vcenter.certificate_warning, _CERTIFICATE)
        if vcenter.rights_unknown:
            why = f"It does not say what the operator's user may do: {vcenter.rights_unknown}."
            yield Finding(Level.WARNING, what, why, RIGHTS_UNREAD)
    for refused in found.value.refused:
        yield Finding(Level.WARNING, f"which VM {refused.node} is", f"{refused.why}.", refused.remedy)
    if found.value.by_uuid:
        yield Finding(Level.WARNING, "which VM a node is", _BY_UUID, _PROVEN)
    if found.value.untold_machines:
        machines = found.value.untold_machines
        why = f"{names(machines)} may be replaced by a MachineHealthCheck while off for maintenance."
        yield Finding(Level.WARNING, "Cluster API", why, _UNTOLD)
