"""Which DaemonSets belong only on one platform, the rule that keeps them there, and what is done about each. Pure.

The rule is one expression, ANDed into every term of the required node affinity: terms are alternatives, so it must be
in each. A user's own terms stay. A term with nothing in it matches no node, and stays that way.
Invariant: the rule is never written where it would take the DaemonSet from a node of its own platform, or from every
node it has; after a few reverts within some minutes we stop and name the other writer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from hostler.apis.fleet import PlatformPolicy, ScopedDaemonSet
from hostler.host.conditions import count, names
from hostler.host.platform import Class
from hostler.host.reverts import Revert, RevertLimits, last_writer
from hostler.host.scheduling import REQUIRED, Term, is_empty_term, labels_fit, required_terms
from hostler.host.writes import EventNote
from hostler.instant import Instant, parse
from hostler.kube.records import Metadata, key_of
from hostler.platform.model import MANAGER, MOST_TERMS, NOWHERE, DaemonSet, PlacedNode, Scope, State
from hostler.selectors import is_label_key, is_label_value

# The vSphere CSI node DaemonSet as OpenShift names it, and as upstream does.
OPENSHIFT_DRIVER = ScopedDaemonSet(namespace="openshift-cluster-csi-drivers", name="vmware-vsphere-csi-driver-node")
DEFAULT_TARGETS = (OPENSHIFT_DRIVER, ScopedDaemonSet(namespace="vmware-system-csi", name="vsphere-csi-node"))


def targets_of(policy: PlatformPolicy) -> tuple[ScopedDaemonSet, ...]:
    """What the Fleet names; the vSphere CSI driver where it names nothing. An empty list names none."""
    return DEFAULT_TARGETS if policy.daemon_sets is None else policy.daemon_sets


def chooses(entry: ScopedDaemonSet, about: Metadata) -> bool:
    """Whether an entry is about this DaemonSet. Without a namespace it is about those of every namespace."""
    if entry.namespace and entry.namespace != about.namespace:
        return False
    if entry.labels:
        return entry.labels.items() <= about.labels.items()
    return bool(entry.name) and entry.name == about.name


def resolve(entries: Sequence[ScopedDaemonSet], there: Iterable[Metadata]) -> list[ScopedDaemonSet]:
    """One target per DaemonSet, with its namespace and name; an entry that chooses none that is there stays itself."""
    found: dict[str, tuple[int, ScopedDaemonSet]] = {}
    for about in there:
        for number, entry in enumerate(entries):
            if chooses(entry, about):
                named = msgspec.structs.replace(entry, namespace=about.namespace, name=about.name, labels={})
                found[key_of(about)] = (number, named)
                break
    chosen = {number for number, _ in found.values()}
    absent = [(number, entry) for number, entry in enumerate(entries) if number not in chosen]
    made: dict[str, tuple[int, ScopedDaemonSet]] = {}
    for number, target in (*found.values(), *absent):
        made.setdefault(key_of_target(target), (number, target))  # a later entry of the same one does not count
    return [target for _, target in sorted(made.values(), key=lambda entry: (entry[0], key_of_target(entry[1])))]


def key_of_target(target: ScopedDaemonSet) -> str:
    """`NAMESPACE/NAME`; of an entry by label that chose none yet, `NAMESPACE/KEY=VALUE`, with * for any namespace."""
    labels = ",".join(f"{key}={value}" for key, value in sorted(target.labels.items()))
    return f"{target.namespace or '*'}/{target.name or labels}"


def expression(target: ScopedDaemonSet) -> dict[str, Any]:
    """The rule as Kubernetes writes it."""
    made: dict[str, Any] = {"key": target.key, "operator": target.operator}
    if target.values:
        made["values"] = list(target.values)
    return made


def describe_rule(target: ScopedDaemonSet) -> str:
    """`node.kubernetes.io/instance-type Exists`."""
    return " ".join((target.key, target.operator, ",".join(target.values))).strip()


def find_flaw(target: ScopedDaemonSet) -> str:
    """Why Kubernetes would take no DaemonSet with this rule; "" where it would.

    A policy that puts such a rule into every write would lock its owner out.
    """
    if not is_label_key(target.key):
        return f'"{target.key}" can be no label\'s key'
    if (target.operator in ("In", "NotIn")) is not bool(target.values):
        return f"{target.operator} needs {'no' if target.values else 'some'} values"
    wrong = [value for value in target.values if not is_label_value(value)]
    return f'"{wrong[0]}" can be no label\'s value' if wrong else ""


def has_rule(affinity: Mapping[str, Any] | None, target: ScopedDaemonSet) -> bool:
    """Whether the rule is in force: there are terms, and it is in each that can match anything."""
    terms = required_terms(affinity)
    return terms is not None and all(is_empty_term(term) or _has(term, target) for term in terms)


def add_rule(affinity: Mapping[str, Any] | None, target: ScopedDaemonSet) -> list[dict[str, Any]]:
    """The terms with the rule in each; a second time changes nothing."""
    rule = expression(target)
    terms = required_terms(affinity)
    if terms is None:
        return [{"matchExpressions": [rule]}]
    return [
        dict(term)
        if is_empty_term(term) or _has(term, target)
        else {**term, "matchExpressions": [*(term.get("matchExpressions") or ()), rule]}
        for term in terms
    ]


def _has(term: Term, target: ScopedDaemonSet) -> bool:
    wanted = expression(target)
    return any(_same(rule, wanted) for rule in term.get("matchExpressions") or ())


def _same(rule: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    def read(rule: Mapping[str, Any]) -> tuple[Any, Any, list[str]]:
        return rule.get("key"), rule.get("operator"), sorted(_texts(rule.get("values")))

    return read(rule) == read(other)


def _texts(values: Iterable[Any] | None) -> list[str]:
    return [str(value) for value in values or ()]


def without_rule(affinity: Mapping[str, Any] | None, target: ScopedDaemonSet) -> Sequence[Term] | None:
    """The terms without the rule: what the DaemonSet's owner asked for. None: every node."""
    terms = required_terms(affinity)
    if terms is None:
        return None
    wanted = expression(target)
    left = []
    for term in terms:
        kept = [rule for rule in term.get("matchExpressions") or () if not _same(rule, wanted)]
        bare = {**term, "matchExpressions": kept}
        if is_empty_term(bare) and not is_empty_term(term):
            return None  # nothing but the rule stood there
        left.append(bare)
    return tuple(left)


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
    lacking = [placed for placed in facts.nodes if placed.name in kept_off]
    losing, young, wake = _losing(lacking, facts, now)
    nowhere = bool(lacking) and not eligible
    soon = bool(young) or any(placed.found.kind is Class.UNINITIALISED for placed in lacking)  # a label may yet come
    lost = nowhere and not soon
    notices = _warnings(target, kept_off if lost else (), losing)
    if has_rule(affinity, target):
        why = f"{rule} is required; it may run on {count(len(eligible), 'node')}"
        return Scope(target, State.IN_PLACE, why, None, eligible, kept_off, losing, young, lost, notices, wake)
    if losing or young:
        why = f"{rule} would take it from {names((*losing, *young))}, which it belongs on: "
        why += "those nodes lack the label" if losing else "their labels have not come yet"
        return Scope(target, State.HELD_BACK, why, None, eligible, kept_off, losing, young, lost, notices, wake)
    if nowhere:
        # Perhaps no cloud provider labels nodes here, and the driver works all the same.
        why = f"{rule} would take it from every node ({names(kept_off)}): none is known to be of platform "
        why += target.platform
        return Scope(target, State.HELD_BACK, why, None, eligible, kept_off, nowhere=lost, notices=notices)
    pause = limits.pause(facts.reverts, rule, now)
    if pause is not None:
        who = last_writer(current.metadata, MANAGER) or "another controller"
        why = f"{who} removes the rule ({rule}) whenever it is put back; we stopped for now"
        return Scope(target, State.FIGHT, why, None, eligible, kept_off, notices=notices, wake=pause)
    if len(terms) > MOST_TERMS:
        notices = (
            *notices,
            EventNote("Warning", "ManyTerms", f"It has more than {MOST_TERMS} terms; the policy covers no more."),
        )
    why = f"it may run on {count(len(kept_off), 'node')} without the integration; {rule} is put in each term"
    return Scope(target, State.WRITE, why, _body(current, terms), eligible, kept_off, notices=notices)


def _losing(
    lacking: Sequence[PlacedNode], facts: ScopeFacts, now: Instant
) -> tuple[tuple[str, ...], tuple[str, ...], float | None]:
    """Of nodes without the label, those of the platform: old ones, new ones, and when the next of these is old.

    A kubelet may write a providerID before its cloud provider writes the label. A node of unknown age is not new.
    """
    old, young, wakes = list[str](), list[str](), list[float]()
    for placed in lacking:
        if not placed.of(facts.target.platform):
            continue
        created = parse(placed.node.metadata.creation_timestamp)
        if created is None or now - created >= facts.grace:
            old.append(placed.name)
        else:
            young.append(placed.name)
            wakes.append(created + facts.grace - now + 0.5)
    return tuple(sorted(old)), tuple(sorted(young)), min(wakes, default=None)


def _fitting(facts: ScopeFacts, terms: Sequence[Term] | None) -> tuple[str, ...]:
    assert facts.current is not None
    selector = facts.current.spec.template.spec.node_selector
    return tuple(
        sorted(
            placed.name
            for placed in facts.nodes
            if labels_fit(placed.name, placed.node.metadata.labels, selector, terms)
        )
    )


def _warnings(target: ScopedDaemonSet, nowhere: Sequence[str], losing: Sequence[str]) -> tuple[EventNote, ...]:
    notices, rule = list[EventNote](), describe_rule(target)
    if nowhere:
        note = f"{rule} leaves no node it may run on; without the rule: {names(nowhere)}."
        notices.append(EventNote("Warning", NOWHERE, note))
    if losing:
        note = f"{names(losing)} is of platform {target.platform} and lacks what the rule asks for ({rule})."
        notices.append(EventNote("Warning", "PlatformNodeWithoutLabel", note))
    return tuple(notices)


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
