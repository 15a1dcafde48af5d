"""Schemas of CustomResourceDefinitions in a compact notation. Pure.

string boolean integer number int32 int64 uri      a scalar; the last three have a format
string(a|b)  string 1..512  integer 0..  = x  ~ x  its enum, length or range, default, pattern; in this order
time  timeOrNull  object  map  any                 a a time, one or null, any object, strings by name, any value
[x]  [x, 1..512]  [x, 1..512, by key]              a list, of so many, whose elements are told apart by this field
[x, .., set]  [x, .., atomic]                      a list without doubles, a list that is only replaced as a whole
{field: x, field!: x}  {"*": x}                    an object with these fields (`!`: required) or more; any fields
{"@": atomic, ...}  {"@": 1.., ...}                one that is only replaced as a whole, one with so many fields
word                                               a shape that is defined elsewhere under this name
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

Schema = dict[str, Any]
_SCALAR = re.compile(
    r"(string|boolean|integer|number|int32|int64|uri)(?:\(([^)]*)\))?(?: (\d*\.\.\d*))?(?: = (\S+))?(?: ~ (.+))?"
)
_FORMATS = {"int32": "integer", "int64": "integer", "uri": "string"}
_MARK = "@"


def expand_shape(shape: Any, shapes: Mapping[str, Any], *, keep_unknown: bool = False) -> Schema:
    """The OpenAPI schema of a shape. `keep_unknown`: objects keep fields that they do not have."""
    match shape:
        case {"*": one}:
            return {"type": "object", "additionalProperties": expand_shape(one, shapes, keep_unknown=keep_unknown)}
        case dict():
            return _object(shape, shapes, keep_unknown=keep_unknown)
        case [one, *rules]:
            return {
                "type": "array",
                "items": expand_shape(one, shapes, keep_unknown=keep_unknown),
                **dict(_list_rules(*rules)),
            }
        case "time":
            return {"type": "string", "format": "date-time"}
        case "timeOrNull":
            return {"type": "string", "format": "date-time", "nullable": True}
        case "map":
            return {"type": "object", "additionalProperties": {"type": "string"}}
        case "object":
            return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        case "any":
            return {"x-kubernetes-preserve-unknown-fields": True}
        case str() if scalar := _SCALAR.fullmatch(shape):
            return _scalar(scalar)
        case _:
            return expand_shape(shapes[shape], shapes, keep_unknown=keep_unknown)


def _object(shape: Mapping[str, Any], shapes: Mapping[str, Any], *, keep_unknown: bool) -> Schema:
    fields = {name: one for name, one in shape.items() if name != _MARK}
    required = sorted(name[:-1] for name in fields if name.endswith("!"))
    made: Schema = {
        "type": "object",
        "properties": {
            name.rstrip("!"): expand_shape(one, shapes, keep_unknown=keep_unknown) for name, one in fields.items()
        },
    }
    if required:
        made["required"] = required
    match shape.get(_MARK):
        case "atomic":
            made["x-kubernetes-map-type"] = "atomic"
        case str() as bounds:
            made |= _bounds(bounds, "minProperties", "maxProperties")
    if keep_unknown:
        made["x-kubernetes-preserve-unknown-fields"] = True
    return made


def _list_rules(bounds: str = "..", kind: str = "") -> Iterator[tuple[str, Any]]:
    yield from _bounds(bounds, "minItems", "maxItems").items()
    if kind.startswith("by "):
        yield "x-kubernetes-list-type", "map"
        yield "x-kubernetes-list-map-keys", [kind.removeprefix("by ")]
    elif kind:
        yield "x-kubernetes-list-type", kind


def _scalar(found: re.Match[str]) -> Schema:
    word, enum, bounds, default, pattern = found.groups()
    kind = _FORMATS.get(word, word)
    names = ("minLength", "maxLength") if kind == "string" else ("minimum", "maximum")
    return {
        "type": kind,
        **({"format": word} if word in _FORMATS else {}),
        **({"enum": enum.split("|")} if enum is not None else {}),
        **(_bounds(bounds, *names) if bounds is not None else {}),
        **({"default": yaml.safe_load(default)} if default is not None else {}),
        **({"pattern": pattern} if pattern is not None else {}),
    }


def _bounds(text: str, least: str, most: str) -> Schema:
    low, _, high = text.partition("..")
    return {name: int(value) for name, value in ((least, low), (most, high)) if value}
