"""Label selectors of Kubernetes objects: what they match. Their text form is in `hostler.selectors`."""

from __future__ import annotations

from collections.abc import Mapping

from hostler.kube.records import Selector


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
