"""The rule that keeps a DaemonSet on nodes of its platform, and which nodes it leaves. Pure.

The rule is one expression, ANDed into every term of the required node affinity: terms are alternatives, so it must be
in each. A user's own terms stay. A term with nothing in it matches no node, and stays that way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hostler.apis.fleet import ScopedDaemonSet
from hostler.host.scheduling import Term, is_empty_term, required_terms
from hostler.selectors import is_label_key, is_label_value


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
    wrong = [one for one in target.values if not is_label_value(one)]
    return f'"{wrong[0]}" can be no label\'s value' if wrong else ""


def has_rule(affinity: Mapping[str, Any] | None, target: ScopedDaemonSet) -> bool:
    """Whether the rule is in force: there are terms, and it is in each that can match anything."""
    terms = required_terms(affinity)
    return terms is not None and all(is_empty_term(one) or _has(one, target) for one in terms)


def add_rule(affinity: Mapping[str, Any] | None, target: ScopedDaemonSet) -> list[dict[str, Any]]:
    """The terms with the rule in each; a second time changes nothing."""
    rule = expression(target)
    terms = required_terms(affinity)
    if terms is None:
        return [{"matchExpressions": [rule]}]
    return [
        dict(one)
        if is_empty_term(one) or _has(one, target)
        else {**one, "matchExpressions": [*(one.get("matchExpressions") or ()), rule]}
        for one in terms
    ]


def _has(term: Term, target: ScopedDaemonSet) -> bool:
    wanted = expression(target)
    return any(_same(one, wanted) for one in term.get("matchExpressions") or ())


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    def read(rule: Mapping[str, Any]) -> tuple[Any, Any, list[str]]:
        return rule.get("key"), rule.get("operator"), sorted(_texts(rule.get("values")))

    return read(one) == read(other)


def _texts(values: Iterable[Any] | None) -> list[str]:
    return [str(one) for one in values or ()]


def without_rule(affinity: Mapping[str, Any] | None, target: ScopedDaemonSet) -> Sequence[Term] | None:
    """The terms without the rule: what the DaemonSet's owner asked for. None: every node."""
    terms = required_terms(affinity)
    if terms is None:
        return None
    wanted = expression(target)
    left = []
    for one in terms:
        kept = [rule for rule in one.get("matchExpressions") or () if not _same(rule, wanted)]
        bare = {**one, "matchExpressions": kept}
        if is_empty_term(bare) and not is_empty_term(one):
            return None  # nothing but the rule stood there
        left.append(bare)
    return tuple(left)
