"""Label selectors in their text form, equality- and set-based, as `kubectl -l` takes them. Pure.

`app=web,tier!=db,zone in (a,b),gpu,!spot,cores>8`: every requirement must hold. As in Kubernetes, `!=` and `notin` also
hold where there is no such label.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_TERM = re.compile(
    r"\s*(?:"
    r"(?P<key>[^\s!=<>,()]+)\s+(?P<set>in|notin)\s*\((?P<values>[^()]*)\)"
    r"|(?P<left>[^\s!=<>,()]+)\s*(?P<op>==|=|!=|<|>)\s*(?P<right>[^\s!=<>,()]*)"
    r"|(?P<absent>!)?\s*(?P<exists>[^\s!=<>,()]+)"
    r")\s*(?P<end>,|$)"
)
_PART = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_PREFIX = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*"
_KEY = re.compile(rf"((?P<prefix>{_PREFIX})/)?{_PART}")
_VALUE = re.compile(rf"({_PART})?")
_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,18}")

# The same as one pattern, for the schema of the chart's values.
_NAME = rf"([a-z0-9.-]{{1,253}}/)?{_PART}"
_SET = rf"\(\s*({_PART})?(\s*,\s*({_PART})?)*\s*\)"
_ONE = rf"(!\s*{_NAME}|{_NAME}(\s*(==?|!=)\s*({_PART})?|\s*[<>]\s*-?[0-9]+|\s+(in|notin)\s*{_SET})?)"
PATTERN = rf"\s*{_ONE}(\s*,\s*{_ONE})*\s*"


@dataclass(frozen=True, slots=True)
class Requirement:
    key: str
    operator: str  # in, notin, exists, !, >, <
    values: tuple[str, ...] = ()

    def holds(self, labels: Mapping[str, str]) -> bool:
        found = labels.get(self.key)
        match self.operator:
            case "in":
                return found in self.values
            case "notin":
                return found not in self.values
            case "exists":
                return found is not None
            case "!":
                return found is None
        if found is None or not _WHOLE_NUMBER.fullmatch(found):
            return False
        return int(found) > int(self.values[0]) if self.operator == ">" else int(found) < int(self.values[0])


def parse_selector(text: str) -> tuple[Requirement, ...]:
    """Its requirements; none for an empty text, which selects everything. ValueError says what is wrong, and where."""
    at, found, more = 0, [], bool(text.strip())
    while more:
        term = _TERM.match(text, at)
        if term is None:
            raise ValueError(f"the selector {text!r} cannot be read at {text[at:]!r}")
        found.append(_checked(_requirement(term)))
        at, more = term.end(), term["end"] == ","
    return tuple(found)


def _requirement(term: re.Match[str]) -> Requirement:
    if term["key"] is not None:
        return Requirement(term["key"], term["set"], tuple(value.strip() for value in term["values"].split(",")))
    if term["left"] is not None:
        operator = {"=": "in", "==": "in", "!=": "notin"}.get(term["op"], term["op"])
        return Requirement(term["left"], operator, (term["right"],))
    return Requirement(term["exists"], "!" if term["absent"] else "exists")


def _checked(one: Requirement) -> Requirement:
    key = _KEY.fullmatch(one.key)
    if key is None or len(key["prefix"] or "") > 253:
        raise ValueError(f"{one.key!r} is no name of a label")
    for value in one.values:
        if not _VALUE.fullmatch(value):
            raise ValueError(f"{value!r} is no value of a label")
        if one.operator in "<>" and not _WHOLE_NUMBER.fullmatch(value):
            raise ValueError(f"{value!r} after {one.operator} is no whole number")
    return one
