"""A Metal3Machine's hostSelector: every operator in any case, and a clear sentence for one that is wrong. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from hostler.metal.model import HostSelector

Labels: TypeAlias = Mapping[str, str]
Test: TypeAlias = Callable[[Labels], bool]

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_PREFIX = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")
OPERATORS = ("in", "notin", "exists", "!", "doesnotexist", "=", "==", "!=", "gt", "lt")


class WrongSelector(ValueError):
    """The sentence says which expression is wrong and why."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement, and the words for it."""

    words: str
    test: Test


def compile_selector(selector: HostSelector) -> tuple[Requirement, ...]:
    """The requirements a host's labels must meet, all of them; raises WrongSelector."""
    found = []
    for name, value in sorted(selector.match_labels.items()):
        _check_name(name)
        _check_value(name, value)
        found.append(Requirement(f"{name}={value}", _equal(name, value)))
    found += [_requirement(one) for one in selector.match_expressions]
    return tuple(found)


def unmet(requirements: tuple[Requirement, ...], labels: Labels) -> str:
    """The first requirement these labels do not meet; empty: they meet all."""
    return next((one.words for one in requirements if not one.test(labels)), "")


def _requirement(expression: HostSelector.Expression) -> Requirement:
    name, values = expression.key, expression.values
    operator = expression.operator.lower()
    words = f"{name} {expression.operator} {', '.join(values)}".strip()
    _check_name(name)
    if operator not in OPERATORS:
        raise WrongSelector(
            f"hostSelector: {name} has the operator {expression.operator!r}; known are In, NotIn, Exists, "
            "DoesNotExist, !, =, ==, !=, Gt and Lt"
        )
    if operator in ("in", "notin"):
        if not values:
            raise WrongSelector(f"hostSelector: {name} {expression.operator} needs at least one value")
    elif operator in ("exists", "!", "doesnotexist"):
        if values:
            raise WrongSelector(f"hostSelector: {name} {expression.operator} takes no values")
    elif len(values) != 1:
        raise WrongSelector(f"hostSelector: {name} {expression.operator} takes exactly one value")
    if operator in ("gt", "lt"):
        return Requirement(words, _compare(name, operator, values[0]))
    for value in values:
        _check_value(name, value)
    return Requirement(words, _test(name, operator, frozenset(values)))


def _test(name: str, operator: str, values: frozenset[str]) -> Test:
    match operator:
        case "in" | "=" | "==":
            return lambda labels: labels.get(name) in values
        case "notin" | "!=":
            return lambda labels: labels.get(name) not in values  # no such label meets it too
        case "exists":
            return lambda labels: name in labels
        case _:
            return lambda labels: name not in labels


def _equal(name: str, value: str) -> Test:
    return lambda labels: labels.get(name) == value


def _compare(name: str, operator: str, value: str) -> Test:
    if not _NUMBER.fullmatch(value):
        raise WrongSelector(f"hostSelector: {name} {operator} needs a whole number, not {value!r}")
    bound, above = int(value), operator == "gt"

    def test(labels: Labels) -> bool:
        has = labels.get(name, "")
        if not _NUMBER.fullmatch(has):
            return False
        return int(has) > bound if above else int(has) < bound

    return test


def _check_name(name: str) -> None:
    prefix, slash, rest = name.rpartition("/")
    if not _NAME.fullmatch(rest) or (slash and not (_PREFIX.fullmatch(prefix) and len(prefix) <= 253)):
        raise WrongSelector(f"hostSelector: {name!r} is no label name")


def _check_value(name: str, value: str) -> None:
    if value and not _NAME.fullmatch(value):
        raise WrongSelector(f"hostSelector: {name} cannot have the value {value!r}, which is no label value")
