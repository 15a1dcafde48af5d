"""What `hostler metal takeover --check` says of objects as another provider left them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from hostler.apis.capi import Cluster, Machine
from hostler.apis.metal3 import BareMetalHost, Metal3Machine
from hostler.apis.metal3_data import Data, DataClaim
from hostler.metal import names
from hostler.metal.decide import decide_machine
from hostler.metal.migration.stored_versions import Definition
from hostler.metal.migration.takeover import (
    Effect,
    Line,
    changed_fields,
    data_lines,
    definition_lines,
    machine_lines,
    outside_lines,
)
from hostler.metal.model import Facts
from hostler.metal.scope import Scope

OLD = "infrastructure.cluster.x-k8s.io/v1beta1"
READY = [{"type": "Ready", "status": "True"}, {"type": "AssociateBareMetalHost", "status": "True"}]
NAME = "metal3machines.infrastructure.cluster.x-k8s.io"


def definition(storage: str, *stored: str) -> Definition:
    body = {
        "metadata": {"name": NAME},
        "spec": {"versions": [{"name": one, "storage": one == storage} for one in ("v1beta1", "v1beta2")]},
        "status": {"storedVersions": list(stored)},
    }
    return msgspec.convert(body, Definition)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (definition("v1beta2", "v1beta2"), ()),
        (definition("v1beta2", "v1beta1", "v1beta2"), ("stored as v1beta1", f"for crd in {NAME}", "storedVersions")),
        (definition("v1beta1", "v1beta1"), ("stores v1beta1", "Bring the provider to a release")),
    ],
)
def test_objects_in_an_older_version_come_first(made: Definition, words: tuple[str, ...]) -> None:
    found = list(definition_lines([made]))
    assert [one.effect for one in found] == [Effect.FIRST] * bool(words)
    assert all(word in f"{found[0].why} {found[0].fix}" for word in words)


def test_a_write_is_told_by_its_fields() -> None:
    meta = {"annotations": {"a": None, "b": ""}, "labels": {"c": "x"}, "ownerReferences": None, "resourceVersion": "1"}
    body = {"metadata": meta, "spec": {"image": None}}
    assert changed_fields(body) == ["+label c", "-annotation a", "+annotation b", "ownerReferences", "spec.image"]


def facts(*, state: str = "provisioned", consumer: str = "m", **meta: Any) -> Facts:
    """A machine that is a node, as the Go provider 1.13 left it, with its host."""
    owner = {"apiVersion": OLD, "kind": "Metal3Machine", "name": "m", "uid": "u", "controller": True}
    host = {
        "metadata": {"name": "h", "namespace": "n", "resourceVersion": "1", "ownerReferences": [owner], **meta},
        "spec": {
            "consumerRef": {"apiVersion": OLD, "kind": "Metal3Machine", "name": consumer, "namespace": "n"},
            "image": {"url": "u"}, "online": True,
        },
        "status": {"provisioning": {"state": state}, "operationalStatus": "OK", "poweredOn": True},
    }  # fmt: skip
    machine = {
        "metadata": {
            "name": "m", "namespace": "n", "uid": "u", "finalizers": [names.MACHINE_FINALIZER],
            "annotations": {names.HOST_ANNOTATION: "n/h"},
        },
        "spec": {"providerID": "metal3://n/h/m", "image": {"url": "u", "checksum": "c"}},
        "status": {"initialization": {"provisioned": True}, "conditions": READY},
    }  # fmt: skip
    known = msgspec.convert(host, BareMetalHost)
    status = {"initialization": {"infrastructureProvisioned": True}}
    cluster = msgspec.convert({"metadata": {"name": "c", "namespace": "n"}, "status": status}, Cluster)
    spec = {"clusterName": "c", "bootstrap": {"dataSecretName": "b"}}
    capi = msgspec.convert({"metadata": {"name": "m", "namespace": "n"}, "spec": spec}, Machine)
    return Facts(msgspec.convert(machine, Metal3Machine), capi, cluster, None, known, owned=(known,))


def lines(found: Facts) -> list[Line]:
    return list(machine_lines(found, decide_machine(found)))


def test_an_owner_reference_is_removed_and_the_machine_stays_ready() -> None:
    (line,) = lines(facts())
    assert (line.effect, line.what) == (Effect.WRITE, "baremetalhost/n/h")
    assert "ownerReferences" in line.why
    assert f"+annotation {names.BLOCK_MOVE}" in line.why


@pytest.mark.parametrize("found", [facts(state="deprovisioning"), facts(consumer="other")])
def test_a_machine_that_would_be_ready_no_more_is_named(found: Facts) -> None:
    judged = [one for one in lines(found) if one.effect is Effect.JUDGED]
    assert [one.what for one in judged] == ["metal3machine/n/m"]
    assert "True to False" in judged[0].why


def test_what_is_out_of_scope_is_listed() -> None:
    machine = facts().machine
    assert list(outside_lines(Scope(), [machine])) == []
    (line,) = outside_lines(Scope(watch_filter="mine"), [machine])
    assert line.effect is Effect.OUTSIDE


def test_second_finalizers_of_data_are_counted() -> None:
    claim = msgspec.convert({"metadata": {"finalizers": [names.MACHINE_FINALIZER]}}, DataClaim)
    marked = {"metadata": {"annotations": {names.RENDERED_FOR: "u"}}}
    assert list(data_lines([], [msgspec.convert(marked, Data)])) == []
    found = list(data_lines([claim], [Data()]))
    assert "1 Metal3DataClaim and 0 Metal3Data" in found[0].why
    assert [one.effect for one in found] == [Effect.NOTE, Effect.WRITE]
