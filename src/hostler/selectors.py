"""Labels: what a key and a value may be, when a requirement holds, and selectors as `kubectl -l` takes them. Pure.

`app=web,tier!=db,zone in (a,b),gpu,!spot,cores>8`: every requirement must hold. As in Kubernetes, `!=` and `notin` also
hold where there is no such label.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
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
_PREFIXES = re.compile(_PREFIX)
_PARTS = re.compile(_PART)
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")
_LARGEST = 2**63

_OPERATORS = {"=": "In", "==": "In", "!=": "NotIn", ">": "Gt", "<": "Lt"}

# The same as one pattern, for the schema of the chart's values.
_NAME = rf"([a-z0-9.-]{{1,253}}/)?{_PART}"
_SET = rf"\(\s*({_PART})?(\s*,\s*({_PART})?)*\s*\)"
_ONE = rf"(!\s*{_NAME}|{_NAME}(\s*(==?|!=)\s*({_PART})?|\s*[<>]\s*-?[0-9]+|\s+(in|notin)\s*{_SET})?)"
PATTERN = rf"\s*{_ONE}(\s*,\s*{_ONE})*\s*"


@dataclass(frozen=True, slots=True)
class Requirement:
    key: str
    operator: str  # as in a LabelSelector or a node affinity: In, NotIn, Exists, DoesNotExist, Gt, Lt
    values: tuple[str, ...] = ()
    text: str = ""  # as its author wrote it

    def holds(self, labels: Mapping[str, str]) -> bool:
        return requirement_holds(self.operator, labels.get(self.key), self.values)


def requirement_holds(operator: str, found: str | None, values: Collection[str]) -> bool:
    """Whether a label with the value `found` (None: there is no such label) meets a requirement.

    An operator we do not know is never met: Kubernetes treats an invalid selector the same way.
    """
    match operator:
        case "In":
            return found in values
        case "NotIn":
            return found not in values
        case "Exists":
            return found is not None
        case "DoesNotExist":
            return found is None
        case "Gt" | "Lt":
            bounds = [_number(value) for value in values]
            number = _number(found) if found is not None else None
            if number is None or len(bounds) != 1 or bounds[0] is None:
                return False
            return number > bounds[0] if operator == "Gt" else number < bounds[0]
    return False


def _number(text: str) -> int | None:
    number = int(text) if _WHOLE_NUMBER.fullmatch(text) else None
    return number if number is not None and -_LARGEST <= number < _LARGEST else None


def is_whole_number(text: str) -> bool:
    """Whether Gt and Lt can compare with it."""
    return _number(text) is not None


def is_label_prefix(text: str) -> bool:
    return len(text) <= 253 and _PREFIXES.fullmatch(text) is not None


def is_label_key(text: str) -> bool:
    prefix, slash, name = text.rpartition("/")
    return _PARTS.fullmatch(name) is not None and (not slash or is_label_prefix(prefix))


def is_label_value(text: str) -> bool:
    return not text or _PARTS.fullmatch(text) is not None


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
        operator = "In" if term["set"] == "in" else "NotIn"
        return Requirement(term["key"], operator, tuple(value.strip() for value in term["values"].split(",")))
    if term["left"] is not None:
        operator = _OPERATORS[term["op"]]
        return Requirement(term["left"], operator, (term["right"],))
    return Requirement(term["exists"], "DoesNotExist" if term["absent"] else "Exists")


def _checked(one: Requirement) -> Requirement:
    if not is_label_key(one.key):
        raise ValueError(f"{one.key!r} is no name of a label")
    for value in one.values:
        if not is_label_value(value):
            raise ValueError(f"{value!r} is no value of a label")
        if one.operator in ("Gt", "Lt") and not is_whole_number(value):
            raise ValueError(f"{value!r} after {'>' if one.operator == 'Gt' else '<'} is no whole number")
    return one
