"""The rule that keeps a DaemonSet on nodes of its platform, and which nodes it leaves. Pure.

The rule is one expression, ANDed into every term of the required node affinity: terms are alternatives, so it must be
in each. A user's own terms stay. A term with nothing in it matches no node, and stays that way.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hostler.fleet.model import ScopedDaemonSet

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
Term = Mapping[str, Any]
# As Kubernetes has it for names and values of labels, and for the prefix of a name.
_NAME = re.compile(r"(?=.{1,63}\Z)[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_PREFIX = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def expression(target: ScopedDaemonSet) -> dict[str, Any]:
    """The rule as Kubernetes writes it."""
    made: dict[str, Any] = {"key": target.key, "operator": target.operator}
    if target.values:
        made["values"] = list(target.values)
    return made


def words(target: ScopedDaemonSet) -> str:
    """`node.kubernetes.io/instance-type Exists`."""
    return " ".join((target.key, target.operator, ",".join(target.values))).strip()


def unsound(target: ScopedDaemonSet) -> str:
    """Why Kubernetes would take no DaemonSet with this rule; "" where it would.

    A policy that puts such a rule into every write would lock its owner out.
    """
    prefix, slash, name = target.key.rpartition("/")
    if not _NAME.fullmatch(name) or (slash and not _PREFIX.fullmatch(prefix)):
        return f'"{target.key}" can be no label\'s key'
    if (target.operator in ("In", "NotIn")) is not bool(target.values):
        return f"{target.operator} needs {'no' if target.values else 'some'} values"
    wrong = [one for one in target.values if one and not _NAME.fullmatch(one)]
    return f'"{wrong[0]}" can be no label\'s value' if wrong else ""


def required(affinity: Mapping[str, Any] | None) -> Sequence[Term] | None:
    """The terms of the required node affinity; None where there is none, and every node fits."""
    node = (affinity or {}).get("nodeAffinity") or {}
    rule = node.get(REQUIRED)
    return None if rule is None else tuple(rule.get("nodeSelectorTerms") or ())


def in_place(affinity: Mapping[str, Any] | None, target: ScopedDaemonSet) -> bool:
    """Whether the rule is in force: there are terms, and it is in each that can match anything."""
    terms = required(affinity)
    return terms is not None and all(_empty(one) or _has(one, target) for one in terms)


def ruled(affinity: Mapping[str, Any] | None, target: ScopedDaemonSet) -> list[dict[str, Any]]:
    """The terms with the rule in each; a second time changes nothing."""
    rule = expression(target)
    terms = required(affinity)
    if terms is None:
        return [{"matchExpressions": [rule]}]
    return [
        dict(one)
        if _empty(one) or _has(one, target)
        else {**one, "matchExpressions": [*(one.get("matchExpressions") or ()), rule]}
        for one in terms
    ]


def fits(name: str, labels: Mapping[str, str], selector: Mapping[str, str], terms: Sequence[Term] | None) -> bool:
    """Whether a node is one the scheduler would take, by selector and required affinity (taints apart)."""
    if any(labels.get(key) != value for key, value in selector.items()):
        return False
    return terms is None or any(_matches(one, name, labels) for one in terms)


def _matches(term: Term, name: str, labels: Mapping[str, str]) -> bool:
    if _empty(term):
        return False
    return all(_holds(one, labels) for one in term.get("matchExpressions") or ()) and all(
        _holds(one, {"metadata.name": name}) for one in term.get("matchFields") or ()
    )


def _holds(rule: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, values = rule.get("key", ""), tuple(rule.get("values") or ())
    value = labels.get(key)
    match rule.get("operator"):
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Gt" | "Lt" as word:
            if value is None or not _whole(value) or len(values) != 1 or not _whole(values[0]):
                return False
            return int(value) > int(values[0]) if word == "Gt" else int(value) < int(values[0])
    return False  # an operator we do not know matches nothing, as for the scheduler


def _whole(text: str) -> bool:
    return text.removeprefix("-").isascii() and text.removeprefix("-").isdigit()


def _empty(term: Term) -> bool:
    return not term.get("matchExpressions") and not term.get("matchFields")


def _has(term: Term, target: ScopedDaemonSet) -> bool:
    wanted = expression(target)
    return any(_same(one, wanted) for one in term.get("matchExpressions") or ())


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    def read(rule: Mapping[str, Any]) -> tuple[Any, Any, list[str]]:
        return rule.get("key"), rule.get("operator"), sorted(_texts(rule.get("values")))

    return read(one) == read(other)


def _texts(values: Iterable[Any] | None) -> list[str]:
    return [str(one) for one in values or ()]


def unruled(affinity: Mapping[str, Any] | None, target: ScopedDaemonSet) -> Sequence[Term] | None:
    """The terms without the rule: what the DaemonSet's owner asked for. None: every node."""
    terms = required(affinity)
    if terms is None:
        return None
    wanted = expression(target)
    left = []
    for one in terms:
        kept = [rule for rule in one.get("matchExpressions") or () if not _same(rule, wanted)]
        bare = {**one, "matchExpressions": kept}
        if _empty(bare) and not _empty(one):
            return None  # nothing but the rule stood there
        left.append(bare)
    return tuple(left)
