"""What others see of a decision: one status patch of the Agent, one of its metadata, Events, metrics and the log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import structlog
from prometheus_client import Counter

from hostler.apis.assisted import AGENT, Agent
from hostler.host.conditions import cut
from hostler.instant import Instant, iso
from hostler.kube.events import EventType, Recorder
from hostler.kube.metrics import Family, Metrics
from hostler.kube.records import Condition
from hostler.reclaim import model
from hostler.reclaim.decision import (
    Action,
    AddFinalizer,
    AnswerRetry,
    ClearCancel,
    Enter,
    ForgetCluster,
    NoteCluster,
    RemoveFinalizer,
    SetCondition,
    WarnNotOneShot,
)
from hostler.reclaim.facts import CANCEL, CONFIRM, FINALIZER, MANAGED_BY, PINNED, RECLAIMED, RETRIED
from hostler.reclaim.model import UNDER_WAY, Cause, Cluster, Reason, State

log = structlog.get_logger("hostler.reclaim")

BOUND, NOT_ONE_SHOT = "Bound", "NotOneShot"
_BOUND_REASONS = {
    State.RECLAIMING: "Unbinding",
    State.REBOOTING: "Unbinding",
    State.PENDING: "UnbindingPendingUserAction",
    State.DISCOVERING: "Unbound",
}


class EventReporter:
    """Events on the Agent, the counter of transitions and the log."""

    def __init__(self, recorder: Recorder, metrics: Metrics) -> None:
        self.recorder = recorder
        self._entered = Family(
            Counter(
                "hostler_reclaim_transitions", "Hosts that changed their state.", ("transition", "reason"),
                registry=metrics.registry,
            ),
            2,
        )  # fmt: skip

    def report(self, agent: Agent, actions: Iterable[Action]) -> None:
        """What was decided and written on the Agent."""
        about, name = agent.metadata, agent.metadata.name
        for action in actions:
            match action:
                case Enter(transition, reason, message):
                    kind: EventType = "Warning" if transition.target == State.PENDING else "Normal"
                    refusing = "reclaim" if transition.target == State.PENDING else ""
                    self.recorder.event(AGENT, about, kind, reason, transition.name, message, refusing=refusing)
                    self._entered.of(transition.name, reason).inc()
                    log.info("host", agent=name, transition=transition.name, reason=reason, why=message)
                case WarnNotOneShot(message):
                    self.recorder.event(
                        AGENT, about, "Warning", Reason.NOT_ONE_SHOT, "Reclaim", message, refusing="reclaim"
                    )
                    log.warning("host", agent=name, reason=str(Reason.NOT_ONE_SHOT), why=message)
                case SetCondition(reason, message):  # it waits or stays, which is no trouble of its own
                    self.recorder.event(AGENT, about, "Normal", reason, "Reclaim", message, refusing="reclaim")


def status_patch(agent: Agent, actions: Iterable[Action], now: Instant) -> dict[str, Any] | None:
    """The merge patch of the status; None where the Agent says all that already."""
    status: dict[str, Any] = {}
    conditions = list(agent.status.conditions)
    for action in actions:
        match action:
            case NoteCluster(cluster):
                status["deprovision_info"] = _note_body(cluster)
                # It is about the last cluster; of this one there is nothing to say yet.
                conditions = [condition for condition in conditions if condition.type not in (RECLAIMED, NOT_ONE_SHOT)]
            case ForgetCluster():
                status["deprovision_info"] = None
            case Enter(transition, reason, message):
                if transition.target != State.DISCOVERING:  # another attempt, or its agent takes the entry back
                    conditions = [condition for condition in conditions if condition.type != NOT_ONE_SHOT]
                stage = model.next_stage(agent.status.progress.stage_start_time, now)
                status["debugInfo"] = {"state": str(transition.target), "stateInfo": cut(message)}
                status["progress"] = {"stageStartTime": stage, "stageUpdateTime": stage}
                conditions = _set_condition(
                    conditions, RECLAIMED, _condition_status(transition.target, reason), reason, message, now
                )
                conditions = _set_bound(conditions, transition.target, message, now)
            case WarnNotOneShot(message):
                conditions = _set_condition(conditions, NOT_ONE_SHOT, "True", "BootLoader", message, now)
            case SetCondition(reason, message):
                conditions = _set_condition(conditions, RECLAIMED, _condition_status("", reason), reason, message, now)
    if conditions != list(agent.status.conditions):
        status["conditions"] = [_to_body(condition) for condition in conditions]
    return {"status": status} if status else None


def notes_patch(agent: Agent, actions: Iterable[Action]) -> dict[str, Any] | None:
    """The merge patch of annotations and finalizers; None where there is nothing to note."""
    there, notes = agent.metadata.annotations, dict[str, str | None]()
    finalizers = agent.metadata.finalizers
    for action in actions:
        match action:
            case AnswerRetry(request) if there.get(RETRIED) != request:
                notes[RETRIED] = request
            case NoteCluster() | ForgetCluster() | Enter(transition=model.REBIND):
                # What was accepted, was for this time only.
                notes |= {name: None for name in (CONFIRM, MANAGED_BY) if name in there}
            case ClearCancel() if CANCEL in there:
                notes[CANCEL] = None
            case AddFinalizer(pin):
                notes |= {PINNED: str(pin)} if there.get(PINNED) != str(pin) else {}
                finalizers = finalizers if FINALIZER in finalizers else (*finalizers, FINALIZER)
            case RemoveFinalizer():
                notes |= {PINNED: None} if PINNED in there else {}
                finalizers = tuple(finalizer for finalizer in finalizers if finalizer != FINALIZER)
    changes: dict[str, Any] = {"annotations": notes} if notes else {}
    if finalizers != agent.metadata.finalizers:
        changes["finalizers"] = list(finalizers)
    return {"metadata": changes} if changes else None


def _note_body(cluster: Cluster) -> dict[str, str]:
    return {"cluster_namespace": cluster.namespace, "cluster_name": cluster.name, "node_name": cluster.node}


def _condition_status(target: str, reason: Cause) -> str:
    if target == State.DISCOVERING or reason == Reason.REGISTERED:
        return "True"
    return "Unknown" if reason == Reason.DECIDING else "False"


def _set_bound(conditions: list[Condition], target: State, message: str, now: Instant) -> list[Condition]:
    if target == State.INSTALLED:
        return _set_condition(conditions, BOUND, "True", "Bound", message, now)
    text = message if target in (*UNDER_WAY, State.PENDING) else "The host is bound to no cluster."
    return _set_condition(conditions, BOUND, "False", _BOUND_REASONS[target], text, now)


def _set_condition(
    conditions: list[Condition], kind: str, status: str, reason: str, message: str, now: Instant
) -> list[Condition]:
    """The conditions with this one in its place; its time changes with its status only."""
    old = next((condition for condition in conditions if condition.type == kind), None)
    since = old.last_transition_time if old is not None and old.status == status else None
    new = Condition(
        type=kind, status=status, reason=reason, message=cut(message), last_transition_time=since or iso(now),
        last_heartbeat_time=old.last_heartbeat_time if old is not None else None,
    )  # fmt: skip
    if old is None:
        return [*conditions, new]
    return [new if condition is old else condition for condition in conditions]


def _to_body(condition: Condition) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(condition)
    return {name: value for name, value in found.items() if value}
