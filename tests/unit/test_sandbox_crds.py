"""Our compact CRDs against the published ones: every field we know is there, with the same type and the same limits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hostler.errors import Complaint
from hostler.reclaim.hub.instructions import new_agent
from hostler.sandbox.build import Silent
from hostler.sandbox.crds import NAMES, OWN, check_names, definitions_of

PUBLISHED = Path(__file__).resolve().parents[3] / "shared" / "crds"
OURS = [(name, one) for name in OWN for one in definitions_of(name, Silent())]
BY_KIND = {one["spec"]["names"]["kind"]: one for _, one in OURS}
# What the API server holds an object against, and fills in. Not here: the merge rules of lists, formats of numbers.
LIMITS = (
    *("enum", "pattern", "default", "nullable", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"),
)
Schema = dict[str, Any]
Field = tuple[str, tuple[str, ...], dict[str, Any]]


def fields(schema: Schema, path: str = "") -> Iterator[tuple[str, Field]]:
    """Every field below: its path, and its type, required fields and limits."""
    kind = "time" if schema.get("format") == "date-time" else str(schema.get("type"))
    required = tuple(sorted(schema.get("required", ())))
    yield path, (kind, required, {limit: schema[limit] for limit in LIMITS if limit in schema})
    for name, one in schema.get("properties", {}).items():
        yield from fields(one, f"{path}.{name}")
    for inner, suffix in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(schema.get(inner), dict):
            yield from fields(schema[inner], f"{path}{suffix}")


def newest(definition: Schema) -> Schema:
    return next(dict(one) for one in definition["spec"]["versions"] if one["storage"])


def described(definition: Schema) -> dict[str, Field]:
    return dict(fields(newest(definition)["schema"]["openAPIV3Schema"]))


@pytest.mark.parametrize(("name", "ours"), OURS, ids=[one["metadata"]["name"] for _, one in OURS])
def test_every_field_and_limit_is_as_published(name: str, ours: Schema) -> None:
    group, plural = ours["spec"]["group"], ours["spec"]["names"]["plural"]
    file = PUBLISHED / name / f"{group}_{plural}.yaml"
    if not file.exists():
        pytest.skip(f"{plural}: {len(described(ours))} comparisons not made, the published CRDs are not here")
    published = yaml.safe_load(file.read_text())
    theirs = described(published)
    differs = {path: (one, theirs.get(path)) for path, one in described(ours).items() if theirs.get(path) != one}
    assert differs == {}
    assert ours["spec"]["scope"] == published["spec"]["scope"]
    for field in ("kind", "plural", "singular", "listKind"):
        assert ours["spec"]["names"][field] == published["spec"]["names"][field]
    assert set(ours["spec"]["names"]["shortNames"]) <= set(published["spec"]["names"].get("shortNames", []))
    assert newest(ours)["name"] == newest(published)["name"]
    assert newest(ours).get("subresources", {}) == newest(published).get("subresources", {})
    assert {v["name"] for v in ours["spec"]["versions"]} == {v["name"] for v in published["spec"]["versions"]}


@pytest.mark.parametrize(
    ("kind", "path", "required", "limits"),
    [
        ("Agent", ".spec", ("approved", "role"), {}),
        ("Agent", ".status.conditions[]", ("status", "type"), {}),
        ("InfraEnv", ".spec", ("pullSecretRef",), {}),
        ("InfraEnv", ".spec.kernelArguments[].operation", (), {"enum": ["append", "replace", "delete"]}),
        ("ClusterDeployment", ".spec", ("baseDomain", "clusterName", "platform"), {}),
        ("BareMetalHost", ".status.errorCount", (), {"default": 0}),
        ("BareMetalHost", ".status.operationHistory.provision.end", (), {"nullable": True}),
        ("Metal3Machine", ".spec.providerID", (), {"minLength": 1, "maxLength": 512}),
        ("Metal3Machine", ".status.addresses", (), {"minItems": 1, "maxItems": 32}),
        ("Metal3MachineTemplate", "", ("spec",), {}),
        ("Metal3Remediation", ".spec.strategy.timeoutSeconds", (), {"minimum": 100, "default": 600}),
    ],
)
def test_limits_are_part_of_the_sandbox_itself(
    kind: str, path: str, required: tuple[str, ...], limits: dict[str, Any]
) -> None:
    """Also on a machine that has no published definitions; each row is a fact of them."""
    _, found, bounds = described(BY_KIND[kind])[path]
    assert (found, bounds) == (required, limits)


def test_a_new_agent_has_every_field_its_definition_requires() -> None:
    made = new_agent("host", "env")
    _, required, _ = described(BY_KIND["Agent"])[".spec"]
    assert set(required) <= set(made["spec"])
    assert made["spec"]["approved"] is False


def test_bmo_is_metal3_without_the_kinds_of_its_provider() -> None:
    kinds = {one["spec"]["names"]["kind"] for one in definitions_of("bmo", Silent())}
    assert kinds == {"BareMetalHost", "HardwareData", "IPPool", "IPClaim", "IPAddress"}


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(Complaint, match=", ".join(NAMES)):
        check_names(["metal4"])
