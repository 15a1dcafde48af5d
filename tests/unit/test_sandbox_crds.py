"""Our compact CRDs against the published ones: every field we know is there, with the same type."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hostler.errors import Complaint
from hostler.sandbox.build import Silent
from hostler.sandbox.crds import NAMES, OWN, check_names, definitions_of

PUBLISHED = Path(__file__).resolve().parents[3] / "shared" / "crds"
OURS = [(name, one) for name in OWN for one in definitions_of(name, Silent())]


def fields(schema: dict[str, Any], path: str) -> Iterator[tuple[str, str]]:
    """Every field below, as (path, type)."""
    yield path, "time" if schema.get("format") == "date-time" else str(schema.get("type"))
    for name, one in schema.get("properties", {}).items():
        yield from fields(one, f"{path}.{name}")
    if "items" in schema:
        yield from fields(schema["items"], f"{path}[]")


def newest(definition: dict[str, Any]) -> dict[str, Any]:
    return next(dict(one) for one in definition["spec"]["versions"] if one["storage"])


def described(definition: dict[str, Any]) -> dict[str, str]:
    return dict(fields(newest(definition)["schema"]["openAPIV3Schema"], ""))


@pytest.mark.parametrize(("name", "ours"), OURS, ids=[one["metadata"]["name"] for _, one in OURS])
def test_every_field_is_in_the_published_definition(name: str, ours: dict[str, Any]) -> None:
    group, plural = ours["spec"]["group"], ours["spec"]["names"]["plural"]
    file = PUBLISHED / name / f"{group}_{plural}.yaml"
    if not file.exists():
        pytest.skip(f"{plural}: {len(described(ours))} comparisons not made, the published CRDs are not here")
    published = yaml.safe_load(file.read_text())
    theirs = described(published)
    assert {path: kind for path, kind in described(ours).items() if theirs.get(path) != kind} == {}
    assert ours["spec"]["scope"] == published["spec"]["scope"]
    for field in ("kind", "plural", "singular", "listKind"):
        assert ours["spec"]["names"][field] == published["spec"]["names"][field]
    assert set(ours["spec"]["names"]["shortNames"]) <= set(published["spec"]["names"].get("shortNames", []))
    assert newest(ours)["name"] == newest(published)["name"]
    assert newest(ours).get("subresources", {}) == newest(published).get("subresources", {})
    assert {v["name"] for v in ours["spec"]["versions"]} == {v["name"] for v in published["spec"]["versions"]}


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(Complaint, match=", ".join(NAMES)):
        check_names(["metal4"])
