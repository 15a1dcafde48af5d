"""The infrastructure kinds that Hostler installs: whole, as published, and described in words of our own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hostler.compact_schema import expand_shape
from hostler.metal.kinds.definitions import CONTRACTS, infrastructure_definitions

PUBLISHED = Path(__file__).resolve().parents[3] / "shared" / "crds" / "metal3"
OURS = {one["metadata"]["name"]: one for one in infrastructure_definitions()}
Json = dict[str, Any]
Version = tuple[str, str]


def fields(schema: Json, path: str = "") -> Iterator[tuple[str, Json]]:
    """Every field below by its path, with all that is said of it but its description and what is in it."""
    inner = ("properties", "items", "additionalProperties", "description")
    facts = {name: value for name, value in schema.items() if name not in inner}
    yield path, facts | {"required": sorted(schema.get("required", []))}
    for name, field in schema.get("properties", {}).items():
        yield from fields(field, f"{path}.{name}")
    for part, suffix in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(schema.get(part), dict):
            yield from fields(schema[part], f"{path}{suffix}")


def versions(definition: Json) -> dict[str, Json]:
    return {one["name"]: one for one in definition["spec"]["versions"]}


def described(version: Json) -> dict[str, Json]:
    return dict(fields(version["schema"]["openAPIV3Schema"]))


def columns(version: Json) -> set[tuple[str, str, str]]:
    return {(one["name"], one["type"], one["jsonPath"]) for one in version.get("additionalPrinterColumns", [])}


def sentences(schema: Any) -> Iterator[str]:
    match schema:
        case dict():
            if isinstance(schema.get("description"), str):
                yield " ".join(schema["description"].split())
            for value in schema.values():
                yield from sentences(value)
        case list():
            for value in schema:
                yield from sentences(value)


def published(name: str) -> Json:
    plural, _, group = name.partition(".")
    file = PUBLISHED / f"{group}_{plural}.yaml"
    if not file.exists():
        pytest.skip(f"{plural} is not compared: the published definitions are not on this machine")
    return dict(yaml.safe_load(file.read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", OURS)
def test_every_field_and_limit_is_as_published(name: str) -> None:
    ours, theirs = versions(OURS[name]), versions(published(name))
    assert {*ours} == {*theirs}
    for version, one in theirs.items():
        mine, wanted = described(ours[version]), described(one)
        differs = {path: (mine.get(path), field) for path, field in wanted.items() if mine.get(path) != field}
        assert differs == {}
        assert {*mine} == {*wanted}


@pytest.mark.parametrize("name", OURS)
def test_names_versions_and_columns_are_as_published(name: str) -> None:
    ours, theirs = OURS[name], published(name)
    for part in ("names", "scope", "group"):
        assert ours["spec"][part] == theirs["spec"][part]
    assert theirs["metadata"].get("labels", {}).items() <= ours["metadata"]["labels"].items()
    mine = versions(ours)
    for version, one in versions(theirs).items():
        assert columns(mine[version]) == columns(one)
        for part in ("served", "storage", "deprecated"):
            assert mine[version].get(part) == one.get(part)
        assert (mine[version].get("subresources") or {}) == (one.get("subresources") or {})


@pytest.mark.parametrize("name", OURS)
def test_no_description_is_copied(name: str) -> None:
    long = {one for one in sentences(published(name)) if len(one) > 30}
    assert not long & {*sentences(OURS[name])}


def test_every_field_is_described() -> None:
    def bare(schema: Json, path: str) -> Iterator[str]:
        for name, field in schema.get("properties", {}).items():
            if not field.get("description") and (path, name) != ("", "metadata"):
                yield f"{path}.{name}"
            yield from bare(field, f"{path}.{name}")
        for inner in (schema.get("items"), schema.get("additionalProperties")):
            if isinstance(inner, dict):
                yield from bare(inner, path)

    for definition in OURS.values():
        for version in definition["spec"]["versions"]:
            assert list(bare(version["schema"]["openAPIV3Schema"], "")) == []


def test_the_stored_version_is_the_contract_of_cluster_api() -> None:
    assert len(OURS) == 9
    for one in OURS.values():
        assert {version["name"]: version["storage"] for version in one["spec"]["versions"]} == {
            "v1beta1": False, "v1beta2": True,
        }  # fmt: skip
        assert CONTRACTS.items() <= one["metadata"]["labels"].items()
    assert CONTRACTS["cluster.x-k8s.io/v1beta2"] == "v1beta2"


@pytest.mark.parametrize(
    ("shape", "made"),
    [
        ("int32 1.. = 1", {"type": "integer", "format": "int32", "minimum": 1, "default": 1}),
        ("uri 1..512", {"type": "string", "format": "uri", "minLength": 1, "maxLength": 512}),
        ("any", {"x-kubernetes-preserve-unknown-fields": True}),
        (
            ["string", "1..", "by key"],
            {
                "type": "array", "items": {"type": "string"}, "minItems": 1, "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["key"],
            },
        ),
        (
            ["string", "..", "set"],
            {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        ),
        (
            {"@": "atomic", "name!": "string"},
            {
                "type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"],
                "x-kubernetes-map-type": "atomic",
            },
        ),
        (
            {"@": "1..", "name": "known"},
            {"type": "object", "properties": {"name": {"type": "boolean"}}, "minProperties": 1},
        ),
    ],
)  # fmt: skip
def test_a_shape_is_the_schema_it_stands_for(shape: Any, made: Json) -> None:
    assert expand_shape(shape, {"known": "boolean"}) == made
