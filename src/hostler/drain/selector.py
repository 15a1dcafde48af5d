"""Label selectors of Kubernetes objects: what they match. Their text form is in `hostler.selectors`."""

from __future__ import annotations

from collections.abc import Mapping

from hostler.kube.records import Selector
from hostler.selectors import requirement_holds

OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


def matches(selector: Selector, labels: Mapping[str, str]) -> bool:
    """Whether every requirement holds; an empty selector has none and matches everything.

    An operator we do not know matches nothing: the API server treats an invalid selector the same way.
    """
    return all(labels.get(key) == value for key, value in selector.match_labels.items()) and all(
        term.operator in OPERATORS and requirement_holds(term.operator, labels.get(term.key), term.values)
        for term in selector.match_expressions
    )
