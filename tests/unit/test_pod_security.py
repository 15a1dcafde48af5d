"""Pod Security baseline as one table: each field accepted and refused, whatever else a template holds."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostler.apis.pod_security import BASELINE, Control, find_violations, template_schema
from hostler.ingress.refusals import check_template, router_template
from tests.unit.podding import refused_value, rows, template_with

ROWS = rows()
IDS = [field for _, field in ROWS]


@pytest.mark.parametrize(("control", "field"), ROWS, ids=IDS)
def test_each_field_is_refused_by_its_name(control: Control, field: str) -> None:
    (found,) = find_violations(template_with(control, field, refused_value(control)))
    wanted = field.replace("[]", "[0]") + (f"[{control.keys}c]" if control.keys else "")
    assert (found.field, found.control) == (wanted, control.name)
    assert found.wanted.startswith("must be unset")


@pytest.mark.parametrize(("control", "field"), ROWS, ids=IDS)
def test_each_allowed_value_passes(control: Control, field: str) -> None:
    beyond = [f"{control.prefix}mine"] if control.prefix else []
    for value in (*control.allowed, *beyond):
        assert find_violations(template_with(control, field, value)) == ()


@pytest.mark.parametrize("value", [1, "true", [True], {"a": 1}, 0.0])
def test_a_value_of_another_type_is_refused_too(value: Any) -> None:
    assert [field for control, field in ROWS if not find_violations(template_with(control, field, value))] == []


@pytest.mark.parametrize("wrong", [{"a": 1}, "text", 7, [["nested"]]])
def test_a_wrong_shape_is_refused(wrong: Any) -> None:
    for field in ("containers", "volumes"):
        assert find_violations({"spec": {field: wrong}})
    assert find_violations({"spec": wrong if not isinstance(wrong, dict) else "text"})
    assert find_violations([wrong])


def test_our_own_template_and_a_host_network_pass() -> None:
    ours = router_template("router:1")
    ours["spec"] |= {"hostNetwork": True}
    ours["spec"]["containers"][0]["ports"][0]["hostPort"] = 80
    assert check_template(ours) is None
    assert check_template(None) is None


@given(st.data())
def test_what_surrounds_a_refused_field_does_not_hide_it(data: st.DataObject) -> None:
    control, field = data.draw(st.sampled_from(ROWS))
    template = template_with(control, field, refused_value(control))
    other, beside = data.draw(st.sampled_from(ROWS))
    if other.allowed and beside != field:
        _merge(template, template_with(other, beside, other.allowed[0]))
    for kind in ("containers", "initContainers", "ephemeralContainers"):
        fine = data.draw(st.integers(0, 3))
        if kind in template["spec"]:
            template["spec"][kind] = [{"name": f"a{n}"} for n in range(fine)] + template["spec"][kind]
    assert find_violations(template)


def _merge(into: Any, more: Any) -> None:
    for key, value in more.items():
        if key not in into:
            into[key] = copy.deepcopy(value)
        elif isinstance(value, dict) and isinstance(into[key], dict):
            _merge(into[key], value)


def test_the_schema_has_a_rule_for_each_field() -> None:
    def rules(schema: dict[str, Any]) -> int:
        own = len(schema.get("x-kubernetes-validations", ()))
        inner = [*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])]
        return own + sum(rules(one) for one in inner)

    assert rules(template_schema()) == len(ROWS)
    assert len({field for one in BASELINE for field in one.fields}) == len(ROWS)


def test_a_refusal_is_bounded_whatever_its_fields_are_called() -> None:
    key = "container.apparmor.security.beta.kubernetes.io/" + "x" * 100_000
    refusal = check_template({"metadata": {"annotations": {key: "unconfined"}}})
    assert refusal is not None
    assert len(refusal.why) < 2000
