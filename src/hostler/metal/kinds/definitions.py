"""The CustomResourceDefinitions of Metal3's infrastructure kinds, for those who install Hostler with clusterctl. Pure.

Made from definitions.yaml, which has every field of the published ones in both versions, and our own descriptions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Any

import yaml

from hostler.apis.metal3 import GROUP
from hostler.compact_schema import Schema, expand_shape
from hostler.metal.kinds.webhook_objects import OLDER, STORED

# By these labels Cluster API and clusterctl find the version of a kind that follows each of their contracts.
CONTRACTS = {f"cluster.x-k8s.io/{contract}": contract for contract in (OLDER, STORED)}
# clusterctl takes data for a plural, and refuses `metal3datas` without this. Cluster API's own objects never name a
# Metal3Data, which is where the name would matter.
UNUSUAL_NAME = "clusterctl.cluster.x-k8s.io/skip-crd-name-preflight-check"
_ROOT = {
    "apiVersion": {"type": "string", "description": "The version of this API."},
    "kind": {"type": "string", "description": "The kind of this object."},
    "metadata": {"type": "object"},
}


def infrastructure_definitions() -> list[Schema]:
    """The nine kinds; without the conversion between their versions, which the installation adds."""
    content = _content()
    return [_definition(kind, content["shapes"], content["help"]) for kind in content["kinds"]]


@cache
def _content() -> Mapping[str, Any]:
    text = (resources.files("hostler.metal.kinds") / "definitions.yaml").read_text(encoding="utf-8")
    return dict(yaml.safe_load(text))


def _definition(kind: Schema, shapes: Schema, help_: Mapping[str, str]) -> Schema:
    name = kind["kind"]
    plural = f"{name.lower()}s"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{GROUP}", "labels": {**CONTRACTS, **kind.get("labels", {})},
            **({"annotations": {UNUSUAL_NAME: ""}} if name.endswith("Data") else {}),
        },
        "spec": {
            "group": GROUP,
            "names": {
                "kind": name, "listKind": f"{name}List", "plural": plural, "singular": name.lower(),
                "shortNames": list(kind["short"]), "categories": ["cluster-api"],
            },
            "scope": "Namespaced",
            "versions": [_version(kind, version, shapes, help_) for version in (OLDER, STORED)],
        },
    }  # fmt: skip


def _version(kind: Schema, name: str, shapes: Schema, help_: Mapping[str, str]) -> Schema:
    described = kind[name]
    parts = {part: shape for part, shape in described.items() if part != "columns"}
    schema = expand_shape(parts, shapes)
    for path, field in _fields(schema, (kind["kind"],)):
        field["description"] = _help_of(path, help_)
    schema = {**schema, "description": kind["help"], "properties": {**_ROOT, **schema["properties"]}}
    columns = [_column(title, place) for title, place in described.get("columns", {}).items()]
    return {
        "name": name,
        "served": True,
        "storage": name == STORED,
        **({"deprecated": True} if name == OLDER else {}),
        "schema": {"openAPIV3Schema": schema},
        **({"subresources": {"status": {}}} if "status" in described else {}),
        **({"additionalPrinterColumns": columns} if columns else {}),
    }


def _fields(schema: Schema, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Schema]]:
    """Every field below, with the names that lead to it."""
    for name, field in schema.get("properties", {}).items():
        yield (*path, name), field
        yield from _fields(field, (*path, name))
    for inner in (schema.get("items"), schema.get("additionalProperties")):
        if isinstance(inner, dict):
            yield from _fields(inner, path)


def _help_of(path: tuple[str, ...], help_: Mapping[str, str]) -> str:
    """By the field's name, or where the names before it lead to another meaning: `image.url`, `Metal3Machine.image`."""
    *before, name = path
    return next(help_[one] for one in (*(f"{parent}.{name}" for parent in reversed(before)), name) if one in help_)


def _column(title: str, place: str | list[str]) -> Schema:
    path, kind = (place, "string") if isinstance(place, str) else place
    return {"name": title, "type": kind, "jsonPath": path}
