"""The CustomResourceDefinition of a record type: a structural schema with descriptions, limits, defaults and CEL rules.

Only what such a schema can say is accepted; anything else in a type is an error here and not at the API server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import inspect

from hostler.apis.fleet import NAME, Fleet, Limits, Pause, Rule
from hostler.host.conditions import Condition
from hostler.kube.kinds import FLEET, PAUSE, Kind

Schema = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of `kubectl get`."""

    name: str
    path: str
    type: str = "string"
    description: str = ""
    wide: bool = False


# As metav1.Condition has it; our own Condition record is shared with objects that are not ours.
_CONDITION: Schema = {
    "type": "object",
    "description": "One aspect of the state of the object.",
    "required": ["type", "status", "reason", "message", "lastTransitionTime"],
    "properties": {
        "type": {"type": "string", "description": "What this is about, in CamelCase.", "maxLength": 316},
        "status": {"type": "string", "description": "Whether it holds.", "enum": ["True", "False", "Unknown"]},
        "reason": {"type": "string", "description": "One word for machines.", "minLength": 1, "maxLength": 1024},
        "message": {"type": "string", "description": "A sentence for people.", "maxLength": 32768},
        "lastTransitionTime": {
            "type": "string",
            "description": "When `status` last changed.",
            "format": "date-time",
        },
        "observedGeneration": {
            "type": "integer",
            "format": "int64",
            "minimum": 0,
            "description": "The generation of the spec this is about.",
        },
    },
}
_WHOLE: Mapping[type, Schema] = {Condition: _CONDITION}
_NO_LIMITS = Limits()


def definition(
    kind: Kind,
    record: type[msgspec.Struct],
    *,
    rules: tuple[Rule, ...] = (),
    columns: tuple[Column, ...] = (),
    short_names: tuple[str, ...] = (),
    categories: tuple[str, ...] = (),
) -> dict[str, Any]:
    """The CustomResourceDefinition of `record`, which has `metadata` and usually `spec` and `status`."""
    fields = {field.encode_name: field for field in _struct(inspect.type_info(record)).fields}
    properties: Schema = {
        "apiVersion": {"type": "string", "description": "The version of this API."},
        "kind": {"type": "string", "description": "The kind of this object."},
        "metadata": {"type": "object"},
    }
    properties |= {name: _field(field, record.__name__) for name, field in fields.items() if name != "metadata"}
    schema: Schema = {"type": "object", "description": _first_line(record), "properties": properties}
    if rules:
        schema["x-kubernetes-validations"] = [_rule(rule) for rule in rules]
    names = {
        "kind": kind.kind,
        "listKind": f"{kind.kind}List",
        "plural": kind.plural,
        "singular": kind.kind.lower(),
        **({"shortNames": list(short_names)} if short_names else {}),
        **({"categories": list(categories)} if categories else {}),
    }
    version = {
        "name": kind.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        **({"subresources": {"status": {}}} if "status" in fields else {}),
        **({"additionalPrinterColumns": [_column(column) for column in columns]} if columns else {}),
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{kind.group}", "labels": {"app.kubernetes.io/part-of": "hostler"}},
        "spec": {
            "group": kind.group,
            "names": names,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": [version],
        },
    }


def fleet_definition() -> dict[str, Any]:
    """The owner's decisions and our status."""
    return definition(
        FLEET,
        Fleet,
        rules=(Rule(f"self.metadata.name == '{NAME}'", f"there is one Fleet per cluster, and its name is '{NAME}'"),),
        columns=(
            Column("Ready", ".status.conditions[?(@.type=='Ready')].status"),
            Column("Paused", ".status.conditions[?(@.type=='Paused')].status"),
            Column("Nodes", ".status.counts.nodes", "integer"),
            Column("Held", ".status.counts.held", "integer"),
            Column("Unavailable", ".status.counts.unavailable", "integer"),
            Column("Ceiling", ".status.counts.ceiling", "integer"),
            Column("Leader", ".status.leader", wide=True),
            Column("Age", ".metadata.creationTimestamp", "date"),
        ),
        short_names=("fl",),
    )


def pause_definition() -> dict[str, Any]:
    """The stop button. It has a kind of its own, so that its right grants nothing else."""
    return definition(
        PAUSE,
        Pause,
        columns=(
            Column("Claims-to-be", ".spec.by", description="Who it says has paused; nobody has checked it."),
            Column("Why", ".spec.why"),
            Column("Age", ".metadata.creationTimestamp", "date"),
        ),
    )


def definitions() -> dict[Kind, dict[str, Any]]:
    """The CRD of each kind of our own."""
    return {FLEET: fleet_definition(), PAUSE: pause_definition()}


# -- one type at a time


def schema_of(found: inspect.Type, where: str) -> Schema:
    """The structural schema of one type. `where` is for the error message."""
    match found:
        case inspect.Metadata(type=inner):
            return schema_of(inner, where)
        case inspect.StructType(cls=cls) if cls in _WHOLE:
            return dict(_WHOLE[cls])
        case inspect.StructType():
            return _object(found)
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            return {"type": "array", "items": schema_of(item, f"{where}[]")}
        case inspect.DictType(key_type=inspect.StrType(), value_type=value):
            return {"type": "object", "additionalProperties": schema_of(value, f"{where}{{}}")}
        case inspect.EnumType(cls=cls):
            return {"type": "string", "enum": [str(member.value) for member in cls]}
        case inspect.LiteralType(values=values) if all(isinstance(value, str) for value in values):
            return {"type": "string", "enum": sorted(str(value) for value in values)}
        case inspect.UnionType():
            return _union(_solid(found), where)
        case inspect.BoolType():
            return {"type": "boolean"}
        case inspect.IntType():
            return {"type": "integer", "format": "int64"}
        case inspect.FloatType():
            return {"type": "number"}
        case inspect.StrType():
            return {"type": "string"}
        case inspect.AnyType():
            return {"x-kubernetes-preserve-unknown-fields": True}
    raise TypeError(f"{where}: a CRD cannot say {type(found).__name__.removesuffix('Type').lower()}")


def _union(solid: list[inspect.Type], where: str) -> Schema:
    """Optional (None means: the field is left out) or int-or-string; a structural schema knows no other union."""
    if len(solid) == 1:
        return schema_of(solid[0], where)
    kinds = {type(found) for found in solid}
    if kinds == {inspect.IntType, inspect.StrType}:
        return {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]}
    raise TypeError(f"{where}: the only unions a CRD can say are `X | None` and `int | str`")


def _object(found: inspect.StructType) -> Schema:
    schema: Schema = {"type": "object", "description": _first_line(found.cls)}
    schema["properties"] = {field.encode_name: _field(field, found.cls.__name__) for field in found.fields}
    required = [field.encode_name for field in found.fields if field.required]
    if required:
        schema["required"] = required
    return schema


def _field(field: inspect.Field, where: str) -> Schema:
    """A field: its type's schema, with the description and limits of `apis.fleet.doc` on top."""
    where = f"{where}.{field.encode_name}"
    found, description, limits = _said(field.type)
    schema = limits.schema() if limits.schema is not None else schema_of(found, where)
    if description:
        schema["description"] = description
    schema |= _limits(schema, limits, where)
    if limits.defaulted:
        schema["default"] = _default(field, where)
    return schema


def _said(found: inspect.Type) -> tuple[inspect.Type, str, Limits]:
    """What `doc` said about a type, be it around `X | None` or inside it; the outer word counts."""
    description, limits = "", _NO_LIMITS
    while True:
        if isinstance(found, inspect.Metadata):
            description = description or (found.extra_json_schema or {}).get("description", "")
            if limits is _NO_LIMITS:
                limits = (found.extra or {}).get("limits", limits)
            found = found.type
        elif isinstance(found, inspect.UnionType) and len(solid := _solid(found)) == 1:
            found = solid[0]
        else:
            return found, description, limits


def _solid(found: inspect.UnionType) -> list[inspect.Type]:
    return [member for member in found.types if not isinstance(member, inspect.NoneType)]


def _limits(schema: Schema, limits: Limits, where: str) -> Schema:
    said: Schema = {}
    match schema.get("type"):
        case "integer" | "number":
            said |= _some(minimum=limits.least, maximum=limits.most)
        case "string":
            said |= _some(
                minLength=limits.least, maxLength=limits.max_length, pattern=limits.pattern or None,
                format=limits.format or None,
            )  # fmt: skip
        case "array":
            said |= _some(minItems=limits.least, maxItems=limits.most)
            if limits.keys:
                said |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(limits.keys)}
            else:
                said["x-kubernetes-list-type"] = "atomic"
        case "object" if "additionalProperties" in schema:
            said |= _some(minProperties=limits.least, maxProperties=limits.most)
        case _ if limits.pattern or limits.format or limits.max_length is not None or limits.least is not None:
            raise TypeError(f"{where}: such a limit means nothing for this type; write a CEL rule")
    if limits.rules:
        said["x-kubernetes-validations"] = [_rule(rule) for rule in limits.rules]
    return said


def _some(**said: Any) -> Schema:
    return {name: value for name, value in said.items() if value is not None}


def _default(field: inspect.Field, where: str) -> Any:
    if field.default is not msgspec.NODEFAULT:
        return msgspec.to_builtins(field.default)
    if field.default_factory is not msgspec.NODEFAULT:
        return msgspec.to_builtins(field.default_factory())
    raise TypeError(f"{where} is to be defaulted but has no default")


def _rule(rule: Rule) -> Schema:
    return {"rule": rule.cel, "message": rule.message}


def _column(column: Column) -> Schema:
    return {
        "name": column.name,
        "jsonPath": column.path,
        "type": column.type,
        **({"description": column.description} if column.description else {}),
        **({"priority": 1} if column.wide else {}),
    }


def _struct(found: inspect.Type) -> inspect.StructType:
    if not isinstance(found, inspect.StructType):
        raise TypeError(f"a CRD is made from a record, not from {found}")
    return found


def _first_line(cls: type) -> str:
    return (cls.__doc__ or "").strip().partition("\n")[0]
