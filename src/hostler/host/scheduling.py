"""Which nodes the scheduler would take for a pod, by labels, required node affinity and taints. Pure.

Room on the node (CPU, memory, ports) is not looked at: it changes by the minute, and only the scheduler knows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hostler.kube.records import Node, Taint
from hostler.selectors import requirement_holds

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
Term = Mapping[str, Any]
# Taints that Kubernetes itself sets and takes back: a node that reboots, is cordoned or short of memory comes back.
PASSING_TAINTS = "node.kubernetes.io/"


def required_terms(affinity: Mapping[str, Any] | None) -> Sequence[Term] | None:
    """The terms of the required node affinity; None where there is none, and every node fits."""
    node = (affinity or {}).get("nodeAffinity") or {}
    rule = node.get(REQUIRED)
    return None if rule is None else tuple(rule.get("nodeSelectorTerms") or ())


def labels_fit(name: str, labels: Mapping[str, str], selector: Mapping[str, str], terms: Sequence[Term] | None) -> bool:
    """Whether a node has the labels that the selector and the required node affinity ask for."""
    if any(labels.get(key) != value for key, value in selector.items()):
        return False
    return terms is None or any(_term_matches(one, name, labels) for one in terms)


def untolerated(node: Node, tolerations: Iterable[Mapping[str, Any]], *, passing: bool = True) -> tuple[Taint, ...]:
    """The taints that keep a pod off the node. `passing=False` leaves out those that Kubernetes takes back itself."""
    known = tuple(tolerations)
    return tuple(
        taint
        for taint in node.spec.taints
        if taint.effect in ("NoSchedule", "NoExecute")
        and (passing or not taint.key.startswith(PASSING_TAINTS))
        and not any(_tolerates(one, taint) for one in known)
    )


def is_empty_term(term: Term) -> bool:
    """A term with nothing in it matches no node."""
    return not term.get("matchExpressions") and not term.get("matchFields")


def _tolerates(toleration: Mapping[str, Any], taint: Taint) -> bool:
    """As Kubernetes compares them: an empty key with Exists tolerates everything, an empty effect every effect."""
    if toleration.get("effect") and toleration["effect"] != taint.effect:
        return False
    key, operator = toleration.get("key") or "", toleration.get("operator") or "Equal"
    if key and key != taint.key:
        return False
    if operator == "Exists":
        return True
    return operator == "Equal" and bool(key) and (toleration.get("value") or "") == taint.value


def _term_matches(term: Term, name: str, labels: Mapping[str, str]) -> bool:
    if is_empty_term(term):
        return False
    return all(_holds(one, labels) for one in term.get("matchExpressions") or ()) and all(
        _holds(one, {"metadata.name": name}) for one in term.get("matchFields") or ()
    )


def _holds(rule: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    return requirement_holds(rule.get("operator", ""), labels.get(rule.get("key", "")), rule.get("values") or ())
