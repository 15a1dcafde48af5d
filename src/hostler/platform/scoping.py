"""What is done about one scoped DaemonSet. Pure.

Invariant: the rule is never written where it would take the DaemonSet from a node of its own platform, or from every
node it has; after a few reverts within some minutes we stop and name the other writer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hostler.apis.fleet import ScopedDaemonSet
from hostler.host.conditions import count, names
from hostler.host.platform import Class
from hostler.host.reverts import Revert, RevertLimits, last_writer
from hostler.host.scheduling import REQUIRED, Term, labels_fit
from hostler.instant import Instant, parse
from hostler.platform.model import MANAGER, NOWHERE, DaemonSet, News, PlacedNode, Scope, State
from hostler.platform.policy import MOST_TERMS
from hostler.platform.scope import add_rule, describe_rule, find_flaw, has_rule, without_rule


@dataclass(frozen=True, slots=True)
class ScopeFacts:
    target: ScopedDaemonSet
    current: DaemonSet | None
    nodes: Sequence[PlacedNode]
    reverts: Sequence[Revert] = ()  # when we saw the rule gone that had been there
    unreadable: str = ""
    grace: float = 0.0  # so long a new node may lack the label its cloud provider gives it


def decide_scope(facts: ScopeFacts, limits: RevertLimits, now: Instant) -> Scope:
    """Write the rule, leave it as it is, or give the reason why it is not written."""
    target, current, rule = facts.target, facts.current, describe_rule(facts.target)
    if facts.unreadable:
        return Scope(target, State.UNREADABLE, f"it cannot be read: {facts.unreadable}")
    if why := find_flaw(target):
        return Scope(target, State.HELD_BACK, f"{why}; with it the API server would refuse every write of it")
    if current is None:
        return Scope(target, State.ABSENT, "there is no such DaemonSet")
    affinity = current.spec.template.spec.affinity
    terms = add_rule(affinity, target)
    eligible = _fitting(facts, terms)
    kept_off = tuple(sorted(set(_fitting(facts, without_rule(affinity, target))) - set(eligible)))
    lacking = [one for one in facts.nodes if one.name in kept_off]
    losing, young, wake = _losing(lacking, facts, now)
    nowhere = bool(lacking) and not eligible
    soon = bool(young) or any(one.found.kind is Class.UNINITIALISED for one in lacking)  # a label may yet come
    lost = nowhere and not soon
    news = _warnings(target, kept_off if lost else (), losing)
    if has_rule(affinity, target):
        why = f"{rule} is required; it may run on {count(len(eligible), 'node')}"
        return Scope(target, State.IN_PLACE, why, None, eligible, kept_off, losing, young, lost, news, wake)
    if losing or young:
        why = f"{rule} would take it from {names((*losing, *young))}, which it belongs on: "
        why += "those nodes lack the label" if losing else "their labels have not come yet"
        return Scope(target, State.HELD_BACK, why, None, eligible, kept_off, losing, young, lost, news, wake)
    if nowhere:
        # Perhaps no cloud provider labels nodes here, and the driver works all the same.
        why = f"{rule} would take it from every node ({names(kept_off)}): none is known to be of platform "
        why += target.platform
        return Scope(target, State.HELD_BACK, why, None, eligible, kept_off, nowhere=lost, news=news)
    pause = limits.pause(facts.reverts, rule, now)
    if pause is not None:
        who = last_writer(current.metadata, MANAGER) or "another controller"
        why = f"{who} removes the rule ({rule}) whenever it is put back; we stopped for now"
        return Scope(target, State.FIGHT, why, None, eligible, kept_off, news=news, wake=pause)
    if len(terms) > MOST_TERMS:
        news = (*news, News("Warning", "ManyTerms", f"It has more than {MOST_TERMS} terms; the policy covers no more."))
    why = f"it may run on {count(len(kept_off), 'node')} without the integration; {rule} is put in each term"
    return Scope(target, State.WRITE, why, _body(current, terms), eligible, kept_off, news=news)


def _losing(
    lacking: Sequence[PlacedNode], facts: ScopeFacts, now: Instant
) -> tuple[tuple[str, ...], tuple[str, ...], float | None]:
    """Of nodes without the label, those of the platform: old ones, new ones, and when the next of these is old.

    A kubelet may write a providerID before its cloud provider writes the label. A node of unknown age is not new.
    """
    old, young, wakes = list[str](), list[str](), list[float]()
    for one in lacking:
        if not one.of(facts.target.platform):
            continue
        created = parse(one.node.metadata.creation_timestamp)
        if created is None or now - created >= facts.grace:
            old.append(one.name)
        else:
            young.append(one.name)
            wakes.append(created + facts.grace - now + 0.5)
    return tuple(sorted(old)), tuple(sorted(young)), min(wakes, default=None)


def _fitting(facts: ScopeFacts, terms: Sequence[Term] | None) -> tuple[str, ...]:
    assert facts.current is not None
    selector = facts.current.spec.template.spec.node_selector
    return tuple(
        sorted(one.name for one in facts.nodes if labels_fit(one.name, one.node.metadata.labels, selector, terms))
    )


def _warnings(target: ScopedDaemonSet, nowhere: Sequence[str], losing: Sequence[str]) -> tuple[News, ...]:
    news, rule = list[News](), describe_rule(target)
    if nowhere:
        note = f"{rule} leaves no node it may run on; without the rule: {names(nowhere)}."
        news.append(News("Warning", NOWHERE, note))
    if losing:
        note = f"{names(losing)} is of platform {target.platform} and lacks what the rule asks for ({rule})."
        news.append(News("Warning", "PlatformNodeWithoutLabel", note))
    return tuple(news)


def _body(current: DaemonSet, terms: Sequence[Any]) -> dict[str, Any]:
    meta = current.metadata
    # The version: the terms are written whole, so what another client added a moment ago must not be lost.
    about = {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid, "resourceVersion": meta.resource_version}
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}
    return {"metadata": about, "spec": {"template": {"spec": {"affinity": affinity}}}}


def find_lag(current: DaemonSet) -> str:
    """Why a DaemonSet is not rolled out, or empty. With OnDelete its owner decides when a pod is updated."""
    status, wanted = current.status, current.status.desired_number_scheduled
    if status.observed_generation < current.metadata.generation:
        return "its latest change is not rolled out yet"
    if status.updated_number_scheduled < wanted and current.spec.update_strategy.type != "OnDelete":
        return f"{status.updated_number_scheduled} of {count(wanted, 'pod')} updated"
    if status.number_available < wanted:
        return f"{status.number_available} of {count(wanted, 'pod')} available"
    return ""
