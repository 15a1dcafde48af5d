"""Defaults and rules of the provider's kinds: every row with an object that passes and one that does not."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import pytest

from hostler.metal.kinds.defaulting import DEFAULTS, Default, fill_defaults
from hostler.metal.kinds.validation import RULES, Rule, is_url, judge
from hostler.metal.kinds.webhook_objects import KEPT, KINDS

Json = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """`rule`: kind and words of a row. What `right` and `wrong` replace is `before`; None: they are created."""

    rule: tuple[str, str]
    right: Json
    wrong: Json
    where: str
    before: Json | None = None
    versions: tuple[str, ...] = ("v1beta1", "v1beta2")
    metadata: Json = field(default_factory=dict)


def spec(**fields: Any) -> Json:
    return {"spec": fields}


def templated(**fields: Any) -> Json:
    return spec(template={"spec": fields})


def endpoint(**fields: Any) -> Json:
    return {"controlPlaneEndpoint": fields}


def image(**fields: Any) -> Json:
    return {"image": {"url": "http://i/os", "checksum": "abc", **fields}}


def strategy(**fields: Any) -> Json:
    return {"strategy": {"type": "Reboot", "retryLimit": 1, **fields}}


def named(name: str, **fields: Any) -> Json:
    return {"metadata": {"name": name}, **spec(**fields)}


def pooled(family: str, **fields: Any) -> Json:
    return spec(networkData={"networks": {family: [{"id": "i", **fields}]}})


OLD, NEW = ("v1beta1",), ("v1beta2",)
IMAGE = "an image, or a way to deploy without one"
STRATEGY = "a known strategy, tried at least once"
T = {"name": "t"}
CASES: list[Case] = [
    Case(("Metal3Cluster", "an endpoint names a host"), spec(**endpoint(host="h")), spec(**endpoint(host="")),
         "spec.controlPlaneEndpoint.host"),
    Case(("Metal3Cluster", "an endpoint names a host"), spec(**endpoint(host="h")), spec(),
         "spec.controlPlaneEndpoint.host"),
    Case(("Metal3Cluster", "with a cloud provider or without"),
         spec(**endpoint(host="h"), cloudProviderEnabled=True, noCloudProvider=False),
         spec(**endpoint(host="h"), cloudProviderEnabled=True, noCloudProvider=True), "spec.cloudProviderEnabled",
         versions=OLD),
    Case(("Metal3ClusterTemplate", "an endpoint names a host and a port"), templated(**endpoint(host="h", port=1)),
         templated(**endpoint(host="h")), "spec.template.spec.controlPlaneEndpoint.port"),
    Case(("Metal3Data", "named after template and index"), named("t-0", template=T), named("t-1", template=T),
         "metadata.name", versions=OLD),
    Case(("Metal3Data", "named after template and index"), named("t-3", template=T, index=3),
         named("t-4", template=T, index=3), "metadata.name"),
    Case(("Metal3Data", "its template is in its namespace"), named("t-0", template={**T, "namespace": "n"}, index=0),
         named("t-0", template={**T, "namespace": "other"}, index=0), "spec.template.namespace"),
    Case(("Metal3Data", "no negative index"), named("t-0", template=T, index=0), named("t--1", template=T, index=-1),
         "spec.index"),
    Case(("Metal3Data", "its index stays"), spec(index=0), spec(index=1), "spec.index", before=spec()),
    Case(("Metal3Data", "its template stays"), spec(template=T), spec(template={"name": "u"}), "spec.template",
         before=spec(template=T)),
    Case(("Metal3Data", "its claim stays"), spec(claim=T), spec(claim={**T, "namespace": "n"}), "spec.claim",
         before=spec(claim=T)),
    Case(("Metal3DataClaim", "it names a template"), spec(template=T), spec(template={}), "spec.template.name"),
    Case(("Metal3DataClaim", "its template is in its namespace"), spec(template={**T, "namespace": "n"}),
         spec(template={**T, "namespace": "m"}), "spec.template.namespace"),
    Case(("Metal3DataClaim", "its template stays"), spec(template=T), spec(template={"name": "u"}), "spec.template",
         before=spec(template=T)),
    Case(("Metal3DataTemplate", "interface or boot MAC"),
         spec(metaData={"fromHostInterfaces": [{"key": "k", "interface": "e"}, {"key": "l", "fromBootMAC": True}]}),
         spec(metaData={"fromHostInterfaces": [{"key": "k"}]}), "spec.metaData.fromHostInterfaces[0].interface"),
    Case(("Metal3DataTemplate", "interface or boot MAC"), spec(metaData={}),
         spec(metaData={"fromHostInterfaces": [{"interface": "e", "fromBootMAC": True}]}),
         "spec.metaData.fromHostInterfaces[0].interface"),
    Case(("Metal3DataTemplate", "every network has a pool"), pooled("ipv4", fromPoolRef={"name": "p"}), pooled("ipv4"),
         "spec.networkData.networks.ipv4[0].fromPoolRef.name"),
    Case(("Metal3DataTemplate", "every network has a pool"), pooled("ipv6", fromPoolAnnotation={"object": "machine"}),
         pooled("ipv6", fromPoolRef={}), "spec.networkData.networks.ipv6[0].fromPoolRef.name"),
    Case(("Metal3DataTemplate", "every network has a pool"), pooled("ipv6", ipAddressFromIPPool="p"),
         pooled("ipv6", ipAddressFromIPPool=""), "spec.networkData.networks.ipv6[0].fromPoolRef.name"),
    *(
        Case(("Metal3DataTemplate", f"{what} stays"), spec(**{what: {"x": [1]}}), spec(**{what: {"x": [2]}}),
             f"spec.{what}", before=spec(**{what: {"x": [1]}}))
        for what in ("metaData", "networkData")
    ),
    *(
        Case((kind, IMAGE), put(**right), put(**wrong), f"{at}.{where}", versions=versions)
        for kind, put, at in (
            ("Metal3Machine", spec, "spec"), ("Metal3MachineTemplate", templated, "spec.template.spec")
        )
        for right, wrong, where, versions in (
            (image(), {}, "image", OLD + NEW),
            ({"customDeploy": {"method": "m"}}, {"customDeploy": {"method": ""}}, "image", OLD + NEW),
            (image(), image(url=""), "image.url", OLD + NEW),
            (image(url="file:///x"), image(url="no url"), "image.url", OLD + NEW),
            (image(), image(checksum=""), "image.checksum", OLD + NEW),
            (image(checksum="https://s/u"), image(checksum="https://s u"), "image.checksum", OLD + NEW),
            (image(checksum="", format="live-iso"), image(checksum="", format="raw"), "image.checksum", OLD),
            (image(checksum="", diskFormat="live-iso"), image(checksum="", format="live-iso"), "image.checksum", NEW),
        )
    ),
    *(
        Case((kind, row), put(**right), put(**wrong), f"{at}.strategy.{where}", versions=versions)
        for kind, put, at in (
            ("Metal3Remediation", spec, "spec"), ("Metal3RemediationTemplate", templated, "spec.template.spec")
        )
        for row, right, wrong, where, versions in (
            (STRATEGY, strategy(), strategy(type="Other"), "type", OLD + NEW),
            (STRATEGY, strategy(), strategy(retryLimit=0), "retryLimit", OLD + NEW),
            ("time for a reboot", strategy(timeout="1m40s"), strategy(timeout="99.9s"), "timeout", OLD),
            ("time for a reboot", strategy(timeout="100s"), strategy(timeout="soon"), "timeout", OLD),
            ("time for a reboot", strategy(timeoutSeconds=100), strategy(timeoutSeconds=99), "timeoutSeconds", NEW),
        )
    ),
]  # fmt: skip
# An object of each kind that keeps every rule.
GOOD: dict[str, Json] = {
    "Metal3Cluster": spec(**endpoint(host="h", port=1)),
    "Metal3ClusterTemplate": templated(**endpoint(host="h", port=1)),
    "Metal3Data": named("t-0", template=T, index=0),
    "Metal3DataClaim": spec(template=T),
    "Metal3DataTemplate": spec(clusterName="c"),
    "Metal3Machine": spec(**image()),
    "Metal3MachineTemplate": templated(**image()),
    "Metal3Remediation": spec(**strategy()),
    "Metal3RemediationTemplate": templated(**strategy()),
}
KEPT_RULE = "what conversion keeps can be read"
CASES += [
    Case((kind, KEPT_RULE), good, {**good, "metadata": {**good.get("metadata", {}), "annotations": {KEPT: "{"}}},
         "metadata.annotations")
    for kind, good in GOOD.items()
]  # fmt: skip


def made(kind: str, version: str, body: Json) -> Json:
    body = copy.deepcopy(body)
    metadata = {"name": "m", "namespace": "n", **body.pop("metadata", {})}
    return {"apiVersion": f"infrastructure.cluster.x-k8s.io/{version}", "kind": kind, "metadata": metadata, **body}


def applies(rule: Rule, case: Case) -> bool:
    return (rule.kind, rule.what) == case.rule and bool(rule.versions & {*case.versions})


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule[0]}: {case.rule[1]}, {case.where}")
def test_a_rule_lets_one_pass_and_refuses_the_other(case: Case) -> None:
    assert any(applies(rule, case) for rule in RULES)
    for version in case.versions:
        before = made(case.rule[0], version, case.before) if case.before is not None else None
        for body, where in ((case.right, None), (case.wrong, case.where)):
            found = judge(made(case.rule[0], version, body), before, version)
            assert (where in [one.field for one in found.wrong]) if where else not found.wrong, (version, found)


def test_every_rule_has_a_case_in_each_of_its_versions() -> None:
    untried = [
        (rule.kind, rule.what, version)
        for rule in RULES
        for version in rule.versions
        if not any((rule.kind, rule.what) == case.rule and version in case.versions for case in CASES)
    ]
    assert untried == []


@pytest.mark.parametrize("kind", KINDS.values())
def test_what_was_wrong_before_is_only_warned_of(kind: str) -> None:
    """An object from before there were webhooks can still lose its finalizer."""
    wrong = {**GOOD[kind], "metadata": {**GOOD[kind].get("metadata", {}), "annotations": {KEPT: "{"}}}
    before = made(kind, "v1beta2", wrong)
    found = judge(made(kind, "v1beta2", wrong), before, "v1beta2")
    assert [one.field for one in found.warnings] == ["metadata.annotations"]
    assert not found.wrong


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("http://a/b", True), ("https://[::1]:8/x", True), ("file:///a", True), ("/a/b", True), ("urn:x", True),
        ("", False), ("a/b", False), ("http://a b", False), ("http://[::1", False), ("http://a:x/", False),
        ("http://a/%zz", False), ("http://a/\n", False),
    ],
)  # fmt: skip
def test_urls_are_told_from_what_is_none(text: str, good: bool) -> None:
    assert is_url(text) is good


# -- defaults

FILLED: list[tuple[str, str, Json, Json]] = [
    ("Metal3Cluster", "v1beta2", spec(**endpoint(host="h")), spec(**endpoint(host="h", port=6443))),
    ("Metal3Cluster", "v1beta2", spec(**endpoint(host="h", port=1)), spec(**endpoint(host="h", port=1))),
    ("Metal3Cluster", "v1beta1", spec(), spec(cloudProviderEnabled=True, noCloudProvider=False)),
    ("Metal3Cluster", "v1beta1", spec(noCloudProvider=True), spec(cloudProviderEnabled=False, noCloudProvider=True)),
    ("Metal3Cluster", "v1beta1", spec(cloudProviderEnabled=False),
     spec(cloudProviderEnabled=False, noCloudProvider=True)),
    ("Metal3Cluster", "v1beta1", spec(**endpoint(host="h", port=0), noCloudProvider=False),
     spec(**endpoint(host="h", port=6443), cloudProviderEnabled=True, noCloudProvider=False)),
    ("Metal3RemediationTemplate", "v1beta1", spec(), templated(**strategy(timeout="10m0s"))),
    ("Metal3RemediationTemplate", "v1beta2", templated(strategy={"retryLimit": 0}),
     templated(**strategy(timeoutSeconds=600))),
    ("Metal3RemediationTemplate", "v1beta2", templated(strategy={"type": "X", "retryLimit": 3, "timeoutSeconds": 5}),
     templated(strategy={"type": "X", "retryLimit": 3, "timeoutSeconds": 5})),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "version", "written", "filled"), FILLED)
def test_what_is_left_out_is_filled_in(kind: str, version: str, written: Json, filled: Json) -> None:
    thing = made(kind, version, written)
    assert fill_defaults(thing, version, created=True) == made(kind, version, filled)
    assert thing == made(kind, version, written)


def row_of(row: Default) -> str:
    return f"{row.kind}: {row.what}"


@pytest.mark.parametrize("row", DEFAULTS, ids=row_of)
def test_every_default_is_filled_in_by_some_case(row: Default) -> None:
    def without(thing: Json, version: str) -> Json:
        row.fill(thing["spec"])
        return thing

    changed = [
        case for case in FILLED
        if case[0] == row.kind and case[1] in row.versions
        and without(made(case[0], case[1], case[2]), case[1]) != made(case[0], case[1], case[2])
    ]  # fmt: skip
    assert changed


def test_a_cluster_that_lived_without_a_cloud_provider_keeps_meaning_no() -> None:
    cluster = made("Metal3Cluster", "v1beta1", spec(**endpoint(host="h", port=1)))
    assert fill_defaults(cluster, "v1beta1", created=False) == cluster


@pytest.mark.parametrize("kind", KINDS.values())
@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_odd_objects_are_no_bug(kind: str, version: str) -> None:
    odds: tuple[Json, ...] = ({}, {"spec": None}, {"spec": []}, {"spec": {"template": 3, "strategy": "x", "image": []}})
    for odd in odds:
        thing = {"apiVersion": f"infrastructure.cluster.x-k8s.io/{version}", "kind": kind, **odd}
        judge(fill_defaults(thing, version, created=True), thing, version)
