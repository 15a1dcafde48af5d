"""Whether a host can be stopped now without harm: Yes, No or Unknown, with the reason. Pure.

A rule that objects makes it No; a fact that is missing, or older than `MAX_AGE`, makes it Unknown; only where fresh
facts satisfy every rule it is Yes. What Hostler cannot know is stated beside every Yes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from hostler.host.conditions import count, names
from hostler.host.facts import Fact, Unknown, fresh
from hostler.instant import Instant
from hostler.inventory.model import Holder, Shape

MAX_AGE = 60.0  # seconds
CANNOT_KNOW = "Hostler cannot see replicated storage on local disks, nor anything outside Kubernetes and vCenter."


class StopAnswer(StrEnum):
    YES = "Yes"
    NO = "No"
    UNKNOWN = "Unknown"


class Against(StrEnum):
    """Why a host is not safe to stop."""

    PODS = "Pods"
    VOLUMES = "VolumeAttachments"
    QUORUM = "ControlPlaneQuorum"
    INGRESS = "LastIngressPod"
    LEADER = "OwnLeader"
    MID_STEP = "MidStep"
    HELD = "Held"
    RUNNING_VMS = "RunningVMs"
    MISSING_FACT = "MissingFact"


class Reason(Shape, frozen=True):
    against: Against
    why: str


class SafeToStop(Shape, frozen=True):
    """The answer as of a time, with a sentence and every reason against it."""

    answer: StopAnswer
    at: Instant
    why: str
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """The control-plane nodes of the host's cluster."""

    members: int
    ready_without_it: int
    is_member: bool


@dataclass(frozen=True, slots=True)
class StopFacts:
    """What the rules look at. A fact that cannot exist for this kind of host (pods of an ESXi host) is None."""

    holders: Fact[tuple[Holder, ...]]
    mid_steps: tuple[str, ...] = ()
    pods: Fact[tuple[str, ...]] | None = None  # those that are neither of a DaemonSet nor static nor finished
    attachments: Fact[tuple[str, ...]] | None = None
    control_plane: Fact[ControlPlane] | None = None
    last_ingress_pods: Fact[tuple[str, ...]] | None = None  # managed ingresses whose last ready pod is here
    own_leader: Fact[bool] | None = None
    running_vms: Fact[tuple[str, ...]] | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """One reason not to stop a host: the fact it needs, and the objection (empty: none) that a value of it makes."""

    against: Against
    what: str  # completes "Cannot tell ..."
    fact: Callable[[StopFacts], Fact[Any] | None]
    object_to: Callable[[Any, str], str]


def judge_stop(facts: StopFacts, asker: str, now: Instant) -> SafeToStop:
    """`asker`: the holder in whose name it would be stopped; its own hold is no objection."""
    objections = [Reason(Against.MID_STEP, f"A step is under way ({step.rstrip('.')})") for step in facts.mid_steps[:1]]
    missing: list[Reason] = []
    for rule in RULES:
        if (fact := rule.fact(facts)) is None:
            continue
        if isinstance(known := fresh(fact, now, MAX_AGE), Unknown):
            missing.append(Reason(Against.MISSING_FACT, f"Cannot tell {rule.what}: {known.why}"))
        elif why := rule.object_to(known.value, asker):
            objections.append(Reason(rule.against, why))
    reasons = (*objections, *missing)
    if not reasons:
        return SafeToStop(StopAnswer.YES, now, f"Nothing that Hostler sees needs it. {CANNOT_KNOW}")
    return SafeToStop(StopAnswer.NO if objections else StopAnswer.UNKNOWN, now, f"{reasons[0].why}.", reasons)


def _held_by_others(holders: tuple[Holder, ...], asker: str) -> str:
    if not holders:
        return ""
    others = [holder.name for holder in holders if holder.name != asker]
    return f"It is held by {names(others)}" if others else ""


def _pods_stop(pods: tuple[str, ...], _: str) -> str:
    return f"{count(len(pods), 'pod')} would be stopped: {names(pods)}" if pods else ""


def _volumes_attached(volumes: tuple[str, ...], _: str) -> str:
    return (
        f"{count(len(volumes), 'volume is', 'volumes are')} still attached to it: {names(volumes)}" if volumes else ""
    )


def _quorum_lost(plane: ControlPlane, _: str) -> str:
    if not plane.is_member or 2 * plane.ready_without_it > plane.members:
        return ""
    return (
        f"Without it {plane.ready_without_it} of {count(plane.members, 'control-plane node')} would be Ready, "
        "which is not more than half"
    )


def _ingress_lost(ingresses: tuple[str, ...], _: str) -> str:
    return f"It runs the last ready pod of ingress {names(ingresses)}" if ingresses else ""


def _leader_lost(is_here: bool, _: str) -> str:
    return "Hostler's own leader runs on it; `hostler drain` hands over first" if is_here else ""


def _vms_stop(vms: tuple[str, ...], _: str) -> str:
    return f"{count(len(vms), 'VM is', 'VMs are')} running on it: {names(vms)}" if vms else ""


RULES: tuple[Rule, ...] = (
    Rule(Against.HELD, "who holds it", lambda facts: facts.holders, _held_by_others),
    Rule(Against.PODS, "which pods run on it", lambda facts: facts.pods, _pods_stop),
    Rule(Against.VOLUMES, "which volumes are attached", lambda facts: facts.attachments, _volumes_attached),
    Rule(Against.QUORUM, "which control-plane nodes are Ready", lambda facts: facts.control_plane, _quorum_lost),
    Rule(Against.INGRESS, "where ingress pods run", lambda facts: facts.last_ingress_pods, _ingress_lost),
    Rule(Against.LEADER, "where Hostler's leader runs", lambda facts: facts.own_leader, _leader_lost),
    Rule(Against.RUNNING_VMS, "which VMs run on it", lambda facts: facts.running_vms, _vms_stop),
)
