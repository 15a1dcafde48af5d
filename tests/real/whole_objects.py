"""Objects with every field that a CustomResourceDefinition has, each with a value that its schema allows. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]
_DURATION = "10m0s"  # of v1beta1, where the schema says no more than that it is a text
# One of these is good for every pattern of the kinds we look at.
_WORDS = ("word", "Word", "IPPool", "192.0.2.1", "2001:db8:0:0:0:0:0:1")


def whole_object(definition: Json, version: str, name: str, namespace: str) -> Json:
    """An object of this version with every field of spec and status."""
    (schema,) = [one["schema"]["openAPIV3Schema"] for one in definition["spec"]["versions"] if one["name"] == version]
    parts = {part: _value(schema["properties"][part]) for part in ("spec", "status") if part in schema["properties"]}
    return {
        "apiVersion": f"{definition['spec']['group']}/{version}",
        "kind": definition["spec"]["names"]["kind"],
        "metadata": {"name": name, "namespace": namespace},
        **parts,
    }


def _value(schema: Mapping[str, Any]) -> Any:
    match schema:
        case {"enum": [first, *_]}:
            return first
        case {"type": "object", "properties": properties}:
            return {name: _DURATION if name == "timeout" else _value(one) for name, one in properties.items()}
        case {"type": "object", "additionalProperties": dict() as inner}:
            return {"key": _value(inner)}
        case {"type": "array", "items": inner}:
            return [_value(inner)]
        case {"type": "boolean"}:
            return True
        case {"type": "integer"}:
            return schema.get("minimum", 1) or 1
        case {"type": "string"}:
            return _text(schema)
    return {"anything": ["at", "all"]}


def _text(schema: Mapping[str, Any]) -> str:
    match schema.get("format"):
        case "date-time":
            return "2026-11-18T12:00:00Z"
        case "uri":
            return "http://images.invalid/node.qcow2"
    pattern = schema.get("pattern", "")
    return next(word for word in _WORDS if re.search(pattern, word))
