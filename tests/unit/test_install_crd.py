"""The CRD generator: what a record type says is what the API server enforces."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostler.apis.fleet import Fleet, Rule, doc
from hostler.host.conditions import Condition
from hostler.install.crd import Column, definition, fleet_definition, pause_definition, schema_of
from hostler.kube.kinds import Kind
from hostler.kube.records import Metadata, Record

BARN = Kind("farm.example.org", "v1", "barns", "Barn", True)


class Colour(StrEnum):
    RED = "red"
    GREEN = "green"


class Animal(Record, frozen=True):
    """One animal."""

    name: Annotated[str, doc("Its name.", pattern="^[a-z]+$", max_length=20)]
    legs: Annotated[int, doc("How many legs.", least=0, most=8, defaulted=True)] = 4
    weight: float = 0.0


class BarnSpec(Record, frozen=True):
    """What stands in it."""

    colour: Annotated[Colour, doc("Its colour.", defaulted=True)] = Colour.RED
    roof: Literal["tin", "straw"] = "tin"
    animals: Annotated[tuple[Animal, ...], doc("Who lives there.", keys=("name",), most=10)] = ()
    tags: Annotated[list[str], doc("Words.", least=1, most=3)] = msgspec.field(default_factory=list)
    notes: Annotated[dict[str, str], doc("Anything.", most=5)] = msgspec.field(default_factory=dict)
    share: Annotated[int | str | None, doc("Some.", rules=(Rule("true", "never"),))] = None
    best: Animal | None = None
    nick: Annotated[str, doc("Inside.", max_length=3)] | None = None
    free: Any = None


class Barn(Record, frozen=True):
    """A barn."""

    metadata: Metadata = Metadata()
    spec: BarnSpec = BarnSpec()


def spec_of(made: dict[str, Any]) -> dict[str, Any]:
    schema: dict[str, Any] = made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def walk(schema: Any) -> list[dict[str, Any]]:
    """Every schema inside a schema."""
    found = []
    if isinstance(schema, dict):
        found.append(schema)
        for value in schema.values():
            found += walk(value)
    elif isinstance(schema, list):
        for value in schema:
            found += walk(value)
    return found


def test_every_kind_of_field_is_said() -> None:
    made = definition(
        BARN,
        Barn,
        rules=(Rule("self.metadata.name != 'x'", "not x"),),
        columns=(Column("Colour", ".spec.colour", wide=True, description="What it looks like."),),
        short_names=("bn",),
        categories=("all",),
    )
    assert made["metadata"]["name"] == "barns.farm.example.org"
    assert made["spec"]["scope"] == "Namespaced"
    assert made["spec"]["names"]["shortNames"] == ["bn"]
    version = made["spec"]["versions"][0]
    assert "subresources" not in version  # it has no status
    assert version["additionalPrinterColumns"] == [
        {
            "name": "Colour",
            "jsonPath": ".spec.colour",
            "type": "string",
            "description": "What it looks like.",
            "priority": 1,
        }
    ]
    root = spec_of(made)
    assert root["x-kubernetes-validations"] == [{"rule": "self.metadata.name != 'x'", "message": "not x"}]
    assert root["properties"]["metadata"] == {"type": "object"}
    fields = root["properties"]["spec"]["properties"]
    assert fields["colour"] == {
        "type": "string", "enum": ["red", "green"], "description": "Its colour.", "default": "red",
    }  # fmt: skip
    assert fields["roof"] == {"type": "string", "enum": ["straw", "tin"]}
    assert fields["animals"]["x-kubernetes-list-map-keys"] == ["name"]
    assert fields["animals"]["maxItems"] == 10
    animal = fields["animals"]["items"]
    assert animal["required"] == ["name"]
    assert animal["description"] == "One animal."
    assert animal["properties"]["name"] == {
        "type": "string", "description": "Its name.", "maxLength": 20, "pattern": "^[a-z]+$",
    }  # fmt: skip
    assert animal["properties"]["legs"] == {
        "type": "integer", "format": "int64", "description": "How many legs.", "minimum": 0, "maximum": 8, "default": 4,
    }  # fmt: skip
    assert fields["tags"]["x-kubernetes-list-type"] == "atomic"
    assert (fields["tags"]["minItems"], fields["tags"]["maxItems"]) == (1, 3)
    assert fields["notes"]["additionalProperties"] == {"type": "string"}
    assert fields["notes"]["maxProperties"] == 5
    assert fields["share"]["x-kubernetes-int-or-string"] is True
    assert fields["share"]["x-kubernetes-validations"] == [{"rule": "true", "message": "never"}]
    assert fields["best"]["properties"]["name"]["pattern"] == "^[a-z]+$"
    assert fields["nick"] == {"type": "string", "description": "Inside.", "maxLength": 3}
    assert fields["free"] == {"x-kubernetes-preserve-unknown-fields": True}


def test_what_a_crd_cannot_say_is_refused_with_the_field_s_name() -> None:
    class Odd(Record, frozen=True):
        """Odd."""

        metadata: Metadata = Metadata()
        spec: int | bool | str = 0

    class Bytes(Record, frozen=True):
        """Bytes."""

        metadata: Metadata = Metadata()
        spec: bytes = b""

    class Limit(Record, frozen=True):
        """A limit that means nothing."""

        metadata: Metadata = Metadata()
        spec: Annotated[int | str, doc("x", pattern="^a$")] = 0

    class NoDefault(Record, frozen=True):
        """A default that is not there."""

        spec: Annotated[str, doc("x", defaulted=True)]

    for record, words in (
        (Odd, "Odd.spec: the only unions"),
        (Bytes, "Bytes.spec: a CRD cannot say bytes"),
        (Limit, "Limit.spec: such a limit means nothing"),
        (NoDefault, "NoDefault.spec is to be defaulted"),
    ):
        with pytest.raises(TypeError, match=words):
            definition(BARN, record)
    with pytest.raises(TypeError, match="made from a record"):
        definition(BARN, int)  # type: ignore[arg-type]


def test_the_fleet_s_own_definition() -> None:
    made = fleet_definition()
    version = made["spec"]["versions"][0]
    assert made["spec"]["scope"] == "Cluster"
    assert version["subresources"] == {"status": {}}
    assert {column["name"] for column in version["additionalPrinterColumns"]} >= {"Ready", "Paused", "Nodes", "Age"}
    schema = spec_of(made)
    assert "self.metadata.name == 'cluster'" in schema["x-kubernetes-validations"][0]["rule"]
    for part in ("spec", "status"):
        for field in schema["properties"][part]["properties"].values():
            assert field.get("description"), field


def test_a_pause_needs_nothing_but_a_name() -> None:
    """At three in the morning `kubectl create` of the shortest Pause must work: no field of it is required."""
    made = pause_definition()
    assert made["spec"]["scope"] == "Cluster"
    for found in walk(spec_of(made)):
        assert "required" not in found
    columns = made["spec"]["versions"][0]["additionalPrinterColumns"]
    assert [column["name"] for column in columns] == ["Claims-to-be", "Why", "Age"]


def test_every_schema_is_structural() -> None:
    """A type on each node, or int-or-string, or unknown fields; never a reference. The API server insists on it."""

    def structural(schema: dict[str, Any], where: str) -> None:
        assert "$ref" not in schema, where
        free = schema.get("x-kubernetes-int-or-string") or schema.get("x-kubernetes-preserve-unknown-fields")
        assert free or "type" in schema, where
        for name, field in schema.get("properties", {}).items():
            structural(field, f"{where}.{name}")
        for inner in ("items", "additionalProperties"):
            if inner in schema:
                structural(schema[inner], f"{where}.{inner}")

    for made in (fleet_definition(), pause_definition(), definition(BARN, Barn)):
        structural(spec_of(made), made["metadata"]["name"])


def test_a_condition_has_the_schema_everybody_expects() -> None:
    schema = schema_of(msgspec.inspect.type_info(Condition), "")
    assert set(schema["properties"]) == {
        "type", "status", "reason", "message", "lastTransitionTime", "observedGeneration",
    }  # fmt: skip
    assert {field.encode_name for field in msgspec.structs.fields(Condition)} == set(schema["properties"])


FLAT = st.sampled_from([str, int, bool, float, Colour])
TYPES = st.recursive(FLAT, lambda inner: inner.map(lambda t: list[t]) | inner.map(lambda t: dict[str, t]), max_leaves=4)  # type: ignore[valid-type]


@given(
    st.dictionaries(st.from_regex(r"[a-z]{1,8}", fullmatch=True), TYPES, min_size=1, max_size=5), st.text(max_size=40)
)
def test_any_record_gives_a_schema_with_its_fields_and_descriptions(fields: dict[str, Any], words: str) -> None:
    made = msgspec.defstruct(
        "Made", [(f"f_{name}", Annotated[kind, doc(words)], None) for name, kind in fields.items()], rename="camel"
    )
    outer = msgspec.defstruct("Outer", [("metadata", Metadata), ("spec", made)])
    schema = spec_of(definition(BARN, outer))["properties"]["spec"]
    assert set(schema["properties"]) == {f"f{name[0].upper()}{name[1:]}" for name in fields}
    for field in schema["properties"].values():
        assert field.get("description", "") == words
    for found in walk(schema):
        assert "$ref" not in found


def test_limits_are_the_api_server_s_not_our_decoder_s() -> None:
    """A Fleet written under an older CRD must stay readable: it carries the owner's decisions."""
    text = b'{"metadata":{"name":"cluster"},"spec":{"paused":true,"maxUnavailable":-3}}'
    assert msgspec.json.decode(text, type=Fleet).spec.max_unavailable == -3
