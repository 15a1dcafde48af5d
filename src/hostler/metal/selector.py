"""A Metal3Machine's hostSelector: every operator in any case, and a clear sentence for one that is wrong. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from hostler.apis.metal3 import HostSelector
from hostler.selectors import Requirement, is_label_key, is_label_value, is_whole_number

_OPERATORS = {
    "in": "In", "=": "In", "==": "In", "notin": "NotIn", "!=": "NotIn", "exists": "Exists",
    "!": "DoesNotExist", "doesnotexist": "DoesNotExist", "gt": "Gt", "lt": "Lt",
}  # fmt: skip


class WrongSelector(ValueError):
    """The sentence says which expression is wrong and why."""


def compile_selector(selector: HostSelector) -> tuple[Requirement, ...]:
    """The requirements a host's labels must meet, all of them; raises WrongSelector."""
    found = []
    for name, value in sorted(selector.match_labels.items()):
        _check_name(name)
        _check_value(name, value)
        found.append(Requirement(name, "In", (value,), f"{name}={value}"))
    found += [_requirement(one) for one in selector.match_expressions]
    return tuple(found)


def unmet(requirements: tuple[Requirement, ...], labels: Mapping[str, str]) -> Requirement | None:
    """The first requirement these labels do not meet; None: they meet all."""
    return next((one for one in requirements if not one.holds(labels)), None)


def _requirement(expression: HostSelector.Expression) -> Requirement:
    name, values = expression.key, expression.values
    word = expression.operator.lower()
    text = f"{name} {expression.operator} {', '.join(values)}".strip()
    _check_name(name)
    operator = _OPERATORS.get(word)
    if operator is None:
        raise WrongSelector(
            f"hostSelector: {name} has the operator {expression.operator!r}; known are In, NotIn, Exists, "
            "DoesNotExist, !, =, ==, !=, Gt and Lt"
        )
    if word in ("in", "notin"):
        if not values:
            raise WrongSelector(f"hostSelector: {name} {expression.operator} needs at least one value")
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            raise WrongSelector(f"hostSelector: {name} {expression.operator} takes no values")
    elif len(values) != 1:
        raise WrongSelector(f"hostSelector: {name} {expression.operator} takes exactly one value")
    if operator in ("Gt", "Lt") and not is_whole_number(values[0]):
        raise WrongSelector(f"hostSelector: {name} {word} needs a whole number, not {values[0]!r}")
    for value in () if operator in ("Gt", "Lt") else values:
        _check_value(name, value)
    return Requirement(name, operator, values, text)


def _check_name(name: str) -> None:
    if not is_label_key(name):
        raise WrongSelector(f"hostSelector: {name!r} is no label name")


def _check_value(name: str, value: str) -> None:
    if not is_label_value(value):
        raise WrongSelector(f"hostSelector: {name} cannot have the value {value!r}, which is no label value")
