"""Objects as a CRD's schema allows them, for properties that must hold for every one; see `schema_values`."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st

from hostler.metal.kinds.definitions import infrastructure_definitions

# Definitions as they are published, where this machine has them.
PUBLISHED = Path(__file__).resolve().parents[3] / "shared" / "crds" / "metal3"
Json = dict[str, Any]

_WORD = st.text(string.ascii_lowercase + string.digits, min_size=1, max_size=4)
# Those of which the pattern matters to what is converted; for all others a word will do.
_SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "integer": st.integers(0, 4) | st.integers(-(2**31), 2**31 - 1),
    "number": st.integers(-9, 9),
}
_ANYTHING = st.recursive(
    st.booleans() | st.integers(-3, 3) | _WORD,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_WORD, inner, max_size=2),
    max_leaves=4,
)


def provider_definitions() -> list[Json]:
    """Of the provider's kinds as published; ours, which have the same fields, where those are not here."""
    files = sorted(PUBLISHED.glob("infrastructure.cluster.x-k8s.io_*.yaml"))
    found = [yaml.load(file.read_text(), Loader=yaml.CSafeLoader) for file in files]
    return found or infrastructure_definitions()


def provider_schemas() -> dict[str, dict[str, Json]]:
    """The schemas of the provider's kinds, by kind and version."""
    specs = [definition["spec"] for definition in provider_definitions()]
    return {
        spec["names"]["kind"]: {one["name"]: one["schema"]["openAPIV3Schema"] for one in spec["versions"]}
        for spec in specs
    }


def schema_values(schema: Json, name: str = "") -> st.SearchStrategy[Any]:
    """Values with the fields, types, enums and required fields of a structural schema; texts are short words."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    kind = schema.get("type")
    if kind in _SCALARS:
        return _SCALARS[kind]
    if kind == "string":
        if name == "timeout":
            return st.sampled_from(["0", "45s", "10m0s", "1.5s", "600s", "1h0m0s", "90m"])
        return _WORD | st.just("") if not schema.get("minLength") else _WORD
    if kind == "array":
        return _lists(schema)
    if schema.get("properties"):
        return _objects(schema)
    named = schema.get("additionalProperties")
    if isinstance(named, dict):
        return st.dictionaries(_WORD, schema_values(named), max_size=3)
    return st.dictionaries(_WORD, _ANYTHING, max_size=2) if kind == "object" else _ANYTHING


def _objects(schema: Json) -> st.SearchStrategy[Json]:
    required = set(schema.get("required", ()))
    fields = {name: schema_values(one, name) for name, one in schema["properties"].items()}
    return st.fixed_dictionaries(
        {name: one for name, one in fields.items() if name in required},
        optional={name: one for name, one in fields.items() if name not in required},
    )


def _lists(schema: Json) -> st.SearchStrategy[list[Any]]:
    keys = schema.get("x-kubernetes-list-map-keys")
    least = schema.get("minItems", 0)
    unique = (lambda one: tuple(one[key] for key in keys)) if keys else None
    return st.lists(schema_values(schema["items"]), min_size=least, max_size=least + 2, unique_by=unique)
