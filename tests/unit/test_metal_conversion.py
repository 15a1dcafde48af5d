"""Conversion between v1beta1 and v1beta2: nothing is lost in either direction, and every row says what it should."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hostler.metal.kinds.conversion import NEWER, OLDER, convert
from hostler.metal.kinds.conversion_table import CHANGES, read_duration, write_duration
from hostler.metal.kinds.webhook_objects import KEPT
from hostler.webhooks.reviews import CannotConvert
from tests.real.whole_objects import whole_object
from tests.sizes import examples
from tests.unit.schema_objects import provider_definitions, provider_schemas, schema_values

Json = dict[str, Any]
SCHEMAS = provider_schemas()
VERSIONS = {"v1beta1": OLDER, "v1beta2": NEWER}


def made(kind: str, version: str, annotations: Json | None = None, **body: Any) -> Json:
    metadata = {"name": "m", "namespace": "n", **({"annotations": annotations} if annotations else {})}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **body}


def other(version: str) -> str:
    return OLDER if version == NEWER else NEWER


def without_kept(thing: Json) -> Json:
    """As Cluster API's own tests compare: without what conversion itself keeps."""
    thing = copy.deepcopy(thing)
    thing["metadata"].get("annotations", {}).pop(KEPT, None)
    if not thing["metadata"].get("annotations", True):
        del thing["metadata"]["annotations"]
    return thing


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("definition", provider_definitions(), ids=lambda one: str(one["spec"]["names"]["kind"]))
def test_an_object_with_every_field_comes_back_whole(definition: Json, version: str) -> None:
    thing = whole_object(definition, version, "whole", "n")
    there = convert(thing, other(VERSIONS[version]))
    assert there["apiVersion"] == other(VERSIONS[version])
    assert without_kept(convert(there, VERSIONS[version])) == thing


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", CHANGES)
def test_every_object_of_the_published_schema_comes_back_whole(kind: str, version: str) -> None:
    schema = SCHEMAS[kind][version]
    bodies = {name: schema_values(schema["properties"][name]) for name in ("spec", "status")
              if name in schema["properties"]}  # fmt: skip

    @settings(max_examples=examples(40))
    @given(st.fixed_dictionaries({}, optional=bodies))
    def comes_back(body: Json) -> None:
        thing = made(kind, VERSIONS[version], **body)
        there = convert(thing, other(VERSIONS[version]))
        assert there["metadata"].get("name") == "m"
        assert without_kept(convert(there, VERSIONS[version])) == thing
        # Again and again: what is kept on the one side does not hide what is kept on the other.
        assert without_kept(convert(convert(convert(there, VERSIONS[version]), other(VERSIONS[version])),
                                    VERSIONS[version])) == thing  # fmt: skip

    comes_back()


CONDITION = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
ROWS: list[tuple[str, Json, Json]] = [
    ("Metal3Cluster", {"spec": {"noCloudProvider": True}}, {"spec": {"cloudProviderEnabled": False}}),
    (
        "Metal3Cluster",
        {"spec": {"failureDomains": {"b": {"controlPlane": True}, "a": {"attributes": {"x": "y"}}}}},
        {"spec": {"failureDomains": [{"name": "a", "attributes": {"x": "y"}}, {"name": "b", "controlPlane": True}]}},
    ),
    (
        "Metal3Cluster",
        {"spec": {"controlPlaneEndpoint": {"host": "h", "port": 0}}},
        {"spec": {"controlPlaneEndpoint": {"host": "h"}}},
    ),
    (
        "Metal3Cluster",
        {"status": {"ready": True, "conditions": [CONDITION], "failureReason": "r", "v1beta2": {"conditions": []}}},
        {
            "status": {
                "initialization": {"provisioned": True}, "conditions": [],
                "deprecated": {"v1beta1": {"conditions": [CONDITION], "failureReason": "r"}},
            }
        },
    ),
    ("Metal3Cluster", {"status": {"failureDomains": {}}}, {"status": {}}),
    (
        "Metal3ClusterTemplate",
        {"spec": {"template": {"spec": {"noCloudProvider": False}}}},
        {"spec": {"template": {"spec": {"cloudProviderEnabled": True}}}},
    ),
    (
        "Metal3Machine",
        {"spec": {"image": {"url": "u", "checksum": "c", "format": "raw"}}},
        {"spec": {"image": {"url": "u", "checksum": "c", "diskFormat": "raw"}}},
    ),
    (
        "Metal3Machine",
        {"spec": {"dataTemplate": {"name": "t", "kind": "Metal3DataTemplate", "uid": "1"}}},
        {"spec": {"dataTemplate": {"name": "t"}}},
    ),
    (
        "Metal3Machine",
        {"status": {"phase": "p", "ready": False}},
        {"status": {"initialization": {"provisioned": False}}},
    ),
    (
        "Metal3MachineTemplate",
        {"spec": {"nodeReuse": True, "template": {"spec": {"image": {"format": "raw"}}}}},
        {"spec": {"nodeReuse": True, "template": {"spec": {"image": {"diskFormat": "raw"}}}}},
    ),
    (
        "Metal3Data",
        {"spec": {"claim": {"name": "c"}, "template": {"name": "t", "namespace": "n"}, "templateReference": "r"}},
        {"spec": {"claim": {"name": "c"}, "template": {"name": "t", "namespace": "n"}, "index": 0}},
    ),
    ("Metal3DataClaim", {"spec": {"template": {}}}, {"spec": {}}),
    (
        "Metal3DataTemplate",
        {"spec": {"metaData": {"ipAddressesFromIPPool": [1], "prefixesFromIPPool": [2], "gatewaysFromIPPool": [3],
                               "dnsServersFromIPPool": [4]}}},
        {"spec": {"metaData": {"ipAddressesFromPool": [1], "prefixesFromPool": [2], "gatewaysFromPool": [3],
                               "dnsServersFromPool": [4]}}},
    ),
    (
        "Metal3DataTemplate",
        {"spec": {"networkData": {"links": {"bonds": [{"id": "b", "parameters": {"y": 1, "x": {"z": True}}}]}}}},
        {"spec": {"networkData": {"links": {"bonds": [
            {"id": "b", "parameters": [{"name": "x", "value": {"z": True}}, {"name": "y", "value": 1}]}]}}}},
    ),
    (
        "Metal3DataTemplate",
        {"spec": {"networkData": {"networks": {"ipv6": [{"id": "i", "ipAddressFromIPPool": ""}]}}}},
        {"spec": {"networkData": {"networks": {"ipv6": [{"id": "i"}]}}}},
    ),
    (
        "Metal3DataTemplate",
        {"status": {"indexes": {"a": 2, "b": 0}}},
        {"status": {"indexes": [{"name": "b", "index": 0}, {"name": "a", "index": 2}]}},
    ),
    (
        "Metal3Remediation",
        {"spec": {"strategy": {"type": "Reboot", "timeout": "5m0s"}}},
        {"spec": {"strategy": {"type": "Reboot", "timeoutSeconds": 300}}},
    ),
    (
        "Metal3RemediationTemplate",
        {"spec": {"template": {"spec": {"strategy": {"timeout": "1.5s"}}}}},
        {"spec": {"template": {"spec": {"strategy": {"timeoutSeconds": 1}}}}},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "older", "newer"), ROWS, ids=[f"{row[0]}-{n}" for n, row in enumerate(ROWS)])
def test_a_v1beta1_object_reads_as_v1beta2_and_back(kind: str, older: Json, newer: Json) -> None:
    written = made(kind, OLDER, **older)
    stored = convert(written, NEWER)
    assert without_kept(stored) == made(kind, NEWER, **newer)
    assert without_kept(convert(stored, OLDER)) == written


def test_every_row_of_the_table_is_tried() -> None:
    assert {row[0] for row in ROWS} == {*CHANGES}


def test_nothing_is_kept_where_nothing_would_be_lost() -> None:
    machine = made("Metal3Machine", NEWER, spec={"image": {"url": "u", "diskFormat": "raw"}})
    assert "annotations" not in convert(machine, OLDER)["metadata"]


def test_a_change_in_the_older_version_keeps_all_that_it_cannot_say() -> None:
    newer = made("Metal3MachineTemplate", NEWER, {"a": "b"}, spec={"template": {
        "metadata": {"labels": {"x": "y"}}, "spec": {"image": {"url": "u", "diskFormat": "raw"}}}})  # fmt: skip
    older = convert(newer, OLDER)
    older["spec"]["template"]["spec"]["image"] = {"url": "other", "format": "raw"}
    newer["spec"]["template"]["spec"]["image"]["url"] = "other"
    assert convert(older, NEWER) == newer


def test_a_change_in_the_newer_version_keeps_all_that_it_cannot_say() -> None:
    older = made("Metal3Data", OLDER, spec={
        "index": 1, "claim": {"name": "c", "uid": "1"}, "template": {"name": "t", "uid": "2"}, "templateReference": "r",
    })  # fmt: skip
    newer = convert(older, NEWER)
    newer["spec"]["claim"]["name"] = "d"
    older["spec"]["claim"]["name"] = "d"
    assert without_kept(convert(newer, OLDER)) == older


def test_what_was_taken_away_in_the_older_version_stays_away() -> None:
    newer = made("Metal3Cluster", NEWER, spec={"failureDomains": [
        {"name": "b", "controlPlane": False}, {"name": "a", "attributes": {"x": "y"}}]})  # fmt: skip
    older = convert(newer, OLDER)
    del older["spec"]["failureDomains"]["a"]
    assert convert(older, NEWER)["spec"] == {"failureDomains": [{"name": "b", "controlPlane": False}]}


def test_entries_that_change_places_keep_what_is_theirs() -> None:
    names = [{"name": name, "kind": kind} for name, kind in (("a", "A"), ("b", "B"))]
    older = made("Metal3Machine", OLDER, spec={"x": names}, status={"phase": "p"})
    newer = convert(older, NEWER)
    newer["spec"]["x"].reverse()
    assert convert(newer, OLDER)["spec"]["x"] == names[::-1]


def test_data_kept_by_cluster_api_without_a_version_is_the_newer_one() -> None:
    """Its `MarshalData` leaves out apiVersion and kind."""
    kept = {"spec": {"template": {"metadata": {"labels": {"x": "y"}}}}}
    older = made("Metal3MachineTemplate", OLDER, {KEPT: msgspec.json.encode(kept).decode()}, spec={"template": {}})
    assert convert(older, NEWER)["spec"] == kept["spec"]


BAD: list[tuple[str, Json, str]] = [
    ("another kind", {**made("Pod", OLDER)}, "no kind 'Pod'"),
    ("another version", {**made("Metal3Data", f"{OLDER}x")}, "no version"),
    ("no duration", made("Metal3Remediation", OLDER, spec={"strategy": {"timeout": "soon"}}), "'soon'"),
    ("too long", made("Metal3Remediation", OLDER, spec={"strategy": {"timeout": "999999999h"}}), "more than"),
    ("kept data that is no JSON", made("Metal3Data", OLDER, {KEPT: "{"}), "cannot be read"),
    ("kept data that is a list", made("Metal3Data", OLDER, {KEPT: "[]"}), "cannot be read"),
    ("kept data of another kind", made("Metal3Data", OLDER, {KEPT: '{"kind":"Metal3Machine"}'}), "another kind"),
    ("kept data too deep", made("Metal3Data", OLDER, {KEPT: '{"a":' * 5000}), "cannot be read"),
]


@pytest.mark.parametrize(("thing", "why"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_what_cannot_be_converted_says_what_is_wrong(thing: Json, why: str) -> None:
    with pytest.raises(CannotConvert, match=why):
        convert(thing, NEWER)


def test_values_of_an_unexpected_form_are_left_alone() -> None:
    odd: Json = {"spec": {"failureDomains": "x", "controlPlaneEndpoint": 3, "noCloudProvider": "y"}, "status": []}
    stored = convert(made("Metal3Cluster", OLDER, **odd), NEWER)
    assert stored["spec"]["failureDomains"] == "x"
    assert without_kept(convert(stored, OLDER)) == made("Metal3Cluster", OLDER, **odd)


FIELDS = (
    "name", "key", "index", "spec", "status", "template", "metadata", "image", "format", "diskFormat", "conditions",
    "failureDomains", "indexes", "networkData", "links", "bonds", "parameters", "strategy", "timeout", "claim", "ready",
    "noCloudProvider", "controlPlaneEndpoint", "deprecated", "v1beta1", "v1beta2", "initialization",
)  # fmt: skip
ODD = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "x", "1s"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=3),
    max_leaves=12,
)


@given(st.sampled_from(sorted(CHANGES)), st.sampled_from([OLDER, NEWER]), ODD, ODD)
def test_odd_objects_and_odd_kept_data_are_no_bug(kind: str, version: str, spec: Any, kept: Any) -> None:
    annotations = {KEPT: msgspec.json.encode({"apiVersion": other(version), "spec": kept}).decode()}
    try:
        there = convert(made(kind, version, annotations, spec=spec), other(version))
    except CannotConvert:
        return
    assert without_kept(convert(there, version))["spec"] == spec


@given(st.integers(-(2**31) + 1, 2**31 - 1))
def test_whole_seconds_are_written_as_go_reads_them(seconds: int) -> None:
    assert read_duration(write_duration(seconds), "timeout") == seconds


@pytest.mark.parametrize(("seconds", "text"), [(600, "10m0s"), (3600, "1h0m0s"), (45, "45s"), (0, "0s")])
def test_durations_look_as_the_go_provider_writes_them(seconds: int, text: str) -> None:
    assert write_duration(seconds) == text
