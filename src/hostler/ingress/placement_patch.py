"""From a placement to the one patch that makes it so, and when that is not written. Pure.

Invariant: where a workload runs is changed only to where some node has the labels and no taint in the way. Whatever
else is wrong, the last placement that worked stays.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hostler.host.conditions import names
from hostler.host.reverts import Revert, RevertLimits, last_writer
from hostler.host.scheduling import Term, labels_fit, required_terms, untolerated
from hostler.host.writes import Verb, Write
from hostler.ingress.model import (
    APPLIED,
    MANAGED_BY,
    OS_LINUX,
    WORKER,
    Contest,
    NoFittingNode,
    Placed,
    Placement,
    Where,
)
from hostler.ingress.placement import describe_selector
from hostler.instant import Instant
from hostler.kube.kinds import Kind
from hostler.kube.records import Node

# Of a pod spec. A workload that we create leaves them out: server-side apply then owns them alone.
PLACEMENT_FIELDS = ("nodeSelector", "tolerations", "affinity", "topologySpreadConstraints")


# Those that decide which nodes the pods may run on.
WHERE_FIELDS = frozenset(("nodeSelector", "tolerations", "affinity"))


def placement_writes(kind: Kind, current: Placed, placed: Placement) -> tuple[Write, ...]:
    """The patch that makes the workload as decided; nothing where it is so already."""
    body = placement_body(placed, current)
    digest = digest_of(placed)
    differs = differences(current, placed)
    if not differs and current.metadata.annotations.get(APPLIED) == digest:
        return ()
    meta = current.metadata
    # The uid: applying to an object deleted a moment ago is a conflict then, and not a new object with half a template.
    about = {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid, "annotations": {APPLIED: digest}}
    body = {"metadata": about, **body}
    what = f"{names(differs)} not as decided" if differs else "what was applied before is out of date"
    why = f"{what}; its pods belong on {placed.where} nodes ({describe_selector(placed.node_selector)})"
    return (Write(Verb.APPLY, kind, meta.name, why, meta.namespace, body),)


def placement_body(placed: Placement, current: Placed | None = None) -> dict[str, Any]:
    """The fields we own, as server-side apply wants them; what is not here is left to its owners.

    Tolerations keep the order that `current` has: another order means the same, and would replace every pod.
    """
    there = current.spec.template.spec.tolerations if current is not None else ()
    tolerations = there if _alike(there, placed.tolerations) else placed.tolerations
    pod: dict[str, Any] = {
        "nodeSelector": dict(placed.node_selector),
        "tolerations": [dict(toleration) for toleration in tolerations],
    }
    if placed.affinity:
        pod["affinity"] = dict(placed.affinity)
    if placed.spread:
        pod["topologySpreadConstraints"] = [dict(constraint) for constraint in placed.spread]
    spec: dict[str, Any] = {"template": {"spec": pod}}
    if placed.replicas is not None:
        spec["replicas"] = placed.replicas
    if placed.strategy:
        spec["strategy"] = dict(placed.strategy)
    return {"spec": spec}


def digest_of(placed: Placement) -> str:
    """Equal placements have equal digests, in whatever order their tolerations are."""
    body = placement_body(placed)
    body["spec"]["template"]["spec"]["tolerations"] = _ordered(placed.tolerations)
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16]


def _ordered(tolerations: Iterable[Mapping[str, Any]]) -> list[str]:
    return sorted(json.dumps(dict(toleration), sort_keys=True) for toleration in tolerations)


def _alike(some: Iterable[Mapping[str, Any]], others: Iterable[Mapping[str, Any]]) -> bool:
    return _ordered(some) == _ordered(others)


def differences(current: Placed, placed: Placement) -> list[str]:
    """The names of the fields that are not as decided. In affinity and spread, others' entries do not count."""
    pod = current.spec.template.spec
    found = []
    if placed.replicas is not None and current.spec.replicas != placed.replicas:
        found.append("replicas")
    if pod.node_selector != placed.node_selector:
        found.append("nodeSelector")
    if not _alike(pod.tolerations, placed.tolerations):
        found.append("tolerations")
    if any(
        (pod.affinity.get(group) or {}).get(rule) != wanted
        for group, rules in placed.affinity.items()
        for rule, wanted in rules.items()
    ):
        found.append("affinity")
    if any(wanted not in pod.topology_spread_constraints for wanted in placed.spread):
        found.append("topologySpreadConstraints")
    if placed.strategy and current.spec.strategy != placed.strategy:
        found.append("strategy")
    return found


MANAGER = "hostler"  # the field manager of our writes
_HOSTNAME = "kubernetes.io/hostname"
LIMITS = RevertLimits()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is written to put a workload where it belongs, or why nothing is."""

    writes: tuple[Write, ...] = ()
    no_node: NoFittingNode | None = None
    contest: Contest | None = None
    wake: float | None = None
    in_place: bool = False


def put_in_place(
    kind: Kind, current: Placed, placed: Placement, nodes: Sequence[Node], reverts: Sequence[Revert], now: Instant
) -> Outcome:
    """Write the placement, unless no node fits it, it holds already, or another controller keeps undoing it."""
    writes = placement_writes(kind, current, placed)
    differs = differences(current, placed)
    moved = WHERE_FIELDS.intersection(differs)
    # What is in place already stays even if its last node reboots or is cordoned: it comes back.
    no_node = _no_fitting_node(placed, nodes, _terms_after(current, placed), passing=bool(moved))
    if not writes:
        return Outcome(no_node=no_node, in_place=True)
    if moved and no_node and not _is_new(current):
        return Outcome(no_node=replace(no_node, stays=True))
    pause = LIMITS.pause(reverts, digest_of(placed), now)
    if pause is not None and differs:
        who = last_writer(current.metadata, MANAGER) or "another controller"
        contest = Contest(who, tuple(differs), f"{kind.kind} {current.metadata.name}")
        return Outcome(no_node=no_node, contest=contest, wake=pause)
    return Outcome(writes, no_node=no_node, in_place=not differs)


def _is_new(current: Placed) -> bool:
    """We made it a moment ago without pods: it has no placement to lose, and pods that wait show what is missing."""
    ours = current.metadata.labels.get(MANAGED_BY) == "hostler"
    return ours and APPLIED not in current.metadata.annotations and current.spec.replicas == 0


# -- nodes


def fitting_nodes(
    nodes: Iterable[Node],
    node_selector: Mapping[str, str],
    affinity: Mapping[str, Any],
    tolerations: Sequence[Mapping[str, Any]],
    *,
    passing: bool = True,
) -> tuple[str, ...]:
    """The nodes that have the labels and no taint in the way; `passing=False` counts nodes that will come back."""
    terms = required_terms(affinity)
    return tuple(
        sorted(
            node.metadata.name
            for node in nodes
            if labels_fit(node.metadata.name, node.metadata.labels, node_selector, terms)
            and _is_free(node, tolerations, passing=passing)
        )
    )


def _is_free(node: Node, tolerations: Sequence[Mapping[str, Any]], *, passing: bool) -> bool:
    return not untolerated(node, tolerations, passing=passing) and not (passing and node.spec.unschedulable)


def selects(placed: Placement, name: str, labels: Mapping[str, str]) -> bool:
    """Whether the placement wants its pods on a node with these labels."""
    return labels_fit(name, labels, placed.node_selector, required_terms(placed.affinity))


def _terms_after(current: Placed, placed: Placement) -> Sequence[Term] | None:
    """The required node affinity once the placement is written: ours, or what its owner put there.

    Server-side apply takes back what we wrote before and do not say any more; that has one rule on a label of ours.
    """
    ours, there = required_terms(placed.affinity), required_terms(current.spec.template.spec.affinity)
    if ours is not None or there is None or APPLIED not in current.metadata.annotations:
        return ours if ours is not None else there
    rules = [rule for term in there for part in ("matchExpressions", "matchFields") for rule in term.get(part) or ()]
    taken_back = len(rules) == 1 and rules[0].get("operator") in ("Exists", "DoesNotExist", "NotIn")
    return None if taken_back else there


def _no_fitting_node(
    placed: Placement, nodes: Sequence[Node], terms: Sequence[Term] | None, *, passing: bool
) -> NoFittingNode | None:
    """Why no node fits; None where one does, or no pod is asked for."""
    if placed.replicas == 0:
        return None
    labelled = [
        node for node in nodes if labels_fit(node.metadata.name, node.metadata.labels, placed.node_selector, terms)
    ]
    if any(_is_free(node, placed.tolerations, passing=passing) for node in labelled):
        return None
    asked = describe_nodes(placed)
    if terms is not None and required_terms(placed.affinity) is None:
        asked += " and its owner's node affinity"
    taints = {taint.key for node in labelled for taint in untolerated(node, placed.tolerations, passing=passing)}
    if any(node.spec.unschedulable for node in labelled):
        taints.add("node.kubernetes.io/unschedulable")
    return NoFittingNode(asked, len(nodes), tuple(node.metadata.name for node in labelled), tuple(sorted(taints)))


def describe_nodes(placed: Placement) -> str:
    """What a node must have, as text: the node selector, and the labels that the node affinity asks for."""
    rules = [rule for term in required_terms(placed.affinity) or () for rule in term.get("matchExpressions") or ()]
    rules_text = [
        f"{rule['key']} {rule['operator']}" for rule in rules if rule["operator"] in ("Exists", "DoesNotExist")
    ]
    return ", ".join([describe_selector(placed.node_selector), *rules_text])


# -- what is placed right already


def is_placed_right(current: Placed, placed: Placement, nodes: Sequence[Node]) -> bool:
    """Its owner placed it where it belongs in another way: that is not rewritten, which would replace every pod.

    Its owner's placement counts if it admits the same nodes as ours would, and no node of the other sort that may
    join later. Once we have written the placement ourselves, its fields are ours and this does not apply.
    """
    if APPLIED in current.metadata.annotations:
        return False
    if set(differences(current, placed)) - WHERE_FIELDS - {"strategy"}:
        return False
    pod = current.spec.template.spec
    theirs = fitting_nodes(nodes, pod.node_selector, pod.affinity, pod.tolerations)
    ours = fitting_nodes(nodes, placed.node_selector, placed.affinity, placed.tolerations)
    if not ours or theirs != ours:
        return False
    terms = required_terms(pod.affinity)
    return not any(labels_fit("a-new-node", labels, pod.node_selector, terms) for labels in _outsiders(placed))


def _outsiders(placed: Placement) -> Iterable[Mapping[str, str]]:
    """Labels of nodes that may join and that the placement does not want."""
    plain = {**OS_LINUX, "kubernetes.io/arch": "amd64", _HOSTNAME: "a-new-node"}
    joining = [plain, {**plain, WORKER: ""}, {**plain, WORKER: "true"}]
    if placed.where is Where.WORKERS:
        rules = [rule for term in required_terms(placed.affinity) or () for rule in term.get("matchExpressions") or ()]
        joining = [{**plain, rule["key"]: value} for rule in rules for value in ("", "true")]
    return [labels for labels in joining if not selects(placed, "a-new-node", labels)]
