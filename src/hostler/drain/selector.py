"""Label selectors: what they match, and their text form as `kubectl drain --pod-selector` takes it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from hostler.errors import Complaint, Exit
from hostler.kube.records import Selector

_TERM = re.compile(
    r"\s*(?:"
    r"(?P<key>[^\s!=,()]+)\s+(?P<set>in|notin)\s*\((?P<values>[^()]*)\)"
    r"|(?P<left>[^\s!=,()]+)\s*(?P<op>==|=|!=)\s*(?P<right>[^\s!=,()]*)"
    r"|(?P<absent>!)?\s*(?P<exists>[^\s!=,()]+)"
    r")\s*(?:,|$)"
)


def matches(selector: Selector, labels: Mapping[str, str]) -> bool:
    """Whether every requirement holds; an empty selector has none and matches everything.

    An operator we do not know matches nothing: the API server treats an invalid selector the same way.
    """
    return all(labels.get(key) == value for key, value in selector.match_labels.items()) and all(
        _holds(term, labels) for term in selector.match_expressions
    )


def _holds(term: Selector.Expression, labels: Mapping[str, str]) -> bool:
    match term.operator:
        case "In":
            return labels.get(term.key) in term.values
        case "NotIn":
            return labels.get(term.key) not in term.values
        case "Exists":
            return term.key in labels
        case "DoesNotExist":
            return term.key not in labels
        case _:
            return False


def parse_selector(text: str) -> Selector:
    """`app=web,tier!=db,zone in (a,b),gpu,!spot` as a selector; a Complaint where it is none."""
    at, terms = 0, []
    while at < len(text.rstrip()):
        term = _TERM.match(text, at)
        if term is None:
            raise Complaint(
                f"The pod selector {text!r} cannot be read at {text[at:]!r}.",
                hint="Write for example app=web,tier!=db or zone in (a,b).",
                code=Exit.USAGE,
            )
        terms.append(_expression(term))
        at = term.end()
    return Selector(match_expressions=tuple(terms))


def _expression(term: re.Match[str]) -> Selector.Expression:
    if term["key"] is not None:
        values = tuple(value.strip() for value in term["values"].split(","))
        return Selector.Expression(key=term["key"], operator="In" if term["set"] == "in" else "NotIn", values=values)
    if term["left"] is not None:
        operator = "NotIn" if term["op"] == "!=" else "In"
        return Selector.Expression(key=term["left"], operator=operator, values=(term["right"],))
    return Selector.Expression(key=term["exists"], operator="DoesNotExist" if term["absent"] else "Exists")
