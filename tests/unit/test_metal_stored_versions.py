"""What doctor says of objects that may still be stored in v1beta1."""

from __future__ import annotations

import msgspec

from hostler.explain.doctor import Finding, Level
from hostler.host.facts import Known, Unknown
from hostler.metal.migration.stored_versions import Definition, stored_version_findings


def definition(name: str, strategy: str, *versions: str) -> Definition:
    thing = {
        "metadata": {"name": name}, "spec": {"conversion": {"strategy": strategy}},
        "status": {"storedVersions": versions},
    }  # fmt: skip
    return msgspec.convert(thing, Definition)


def said(*definitions: Definition) -> list[Finding]:
    return [*stored_version_findings(Known(definitions, 0.0), on=True)]


def test_objects_that_nobody_converts_are_a_problem_and_named() -> None:
    (found,) = said(definition("metal3datas.x", "None", "v1beta1", "v1beta2"), definition("b.x", "None", "v1beta2"))
    assert found.level is Level.PROBLEM
    assert "metal3datas.x" in found.why
    assert "b.x" not in found.why
    assert "kubectl get $crd -A -o json | kubectl replace -f - || break" in found.fix
    assert '{"status":{"storedVersions":["v1beta2"]}}' in found.fix


def test_objects_that_a_webhook_converts_are_a_warning() -> None:
    (found,) = said(definition("a.x", "Webhook", "v1beta1"))
    assert found.level is Level.WARNING
    assert found.fix.startswith("for crd in a.x; do ")


def test_objects_all_in_v1beta2_are_fine() -> None:
    assert [one.level for one in said(definition("a.x", "Webhook", "v1beta2"))] == [Level.FINE]


def test_nothing_is_said_where_metal_is_off_or_not_installed() -> None:
    old = definition("a.x", "None", "v1beta1")
    assert [*stored_version_findings(Known((old,), 0.0), on=False)] == []
    assert said() == []


def test_what_cannot_be_read_is_not_taken_for_fine() -> None:
    (found,) = stored_version_findings(Unknown("forbidden"), on=True)
    assert found.level is Level.WARNING
    assert "forbidden" in found.why
