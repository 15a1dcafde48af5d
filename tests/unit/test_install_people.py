"""The roles for people: each as narrow as its name says, and only one of them is in `view`."""

from __future__ import annotations

import pytest

from hostler.explain.callers import READER
from hostler.install.people import ADMIN, OPERATOR, PEOPLE, VIEWER, PeopleRole, people_roles, rights_of_role

MADE = {one["metadata"]["name"]: one for one in people_roles("hostler", lease="mine", service="hostler:http")}
WRITES = {"create", "patch", "delete", "update"}


def granted(role: PeopleRole) -> set[tuple[str, str, str]]:
    """(resource, verb, name): an empty name is every object."""
    return {
        (right.resource, verb, name)
        for right in rights_of_role(role)
        for verb in right.verbs
        for name in right.names or ("",)
    }


@pytest.mark.parametrize("role", PEOPLE, ids=lambda role: role.name)
def test_no_role_can_give_itself_more(role: PeopleRole) -> None:
    for resource, verb, name in granted(role):
        assert "*" not in (resource, verb, name)
        assert verb not in ("update", "deletecollection", "escalate", "bind", "impersonate")
        assert resource not in ("pods/proxy", "pods/exec", "pods/portforward", "pods", "nodes/proxy") or verb in (
            "get", "list", "watch",
        )  # fmt: skip
        assert resource not in ("pods/proxy", "nodes/proxy"), "it would reach every pod"
        if resource in ("services/proxy", "serviceaccounts/token", "secrets"):
            assert name, f"{resource} only by name"
    assert {name for resource, _, name in granted(role) if resource == "serviceaccounts/token"} == {READER}


def test_a_viewer_writes_nothing_but_its_own_token() -> None:
    writes = {(resource, verb) for resource, verb, _ in granted(VIEWER) if verb in WRITES}
    assert writes == {("serviceaccounts/token", "create")}


def test_only_an_admin_decides_for_the_fleet() -> None:
    for role in (VIEWER, OPERATOR):
        assert not [one for one in granted(role) if one[0] == "fleets.hostler.dev" and one[1] in WRITES]
        assert not [one for one in granted(role) if one[0].startswith("secrets")]
    assert ("fleets.hostler.dev", "patch", "") in granted(ADMIN)


def test_each_role_contains_the_one_before_it() -> None:
    assert granted(VIEWER) < granted(OPERATOR) < granted(ADMIN)


def test_only_the_viewer_is_aggregated_and_only_to_view() -> None:
    labels = {name: one["metadata"].get("labels", {}) for name, one in MADE.items()}
    assert labels == {
        "hostler-viewer": {"rbac.authorization.k8s.io/aggregate-to-view": "true"},
        "hostler-operator": {}, "hostler-admin": {}, "hostler-metrics-reader": {},
    }  # fmt: skip


def test_rules_name_the_lease_and_the_service_of_this_operator() -> None:
    named = {rule["resources"][0]: rule.get("resourceNames") for rule in MADE["hostler-viewer"]["rules"]}
    assert (named["leases"], named["services/proxy"]) == (["mine"], ["hostler:http"])
    assert MADE["hostler-metrics-reader"]["rules"] == [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]


@pytest.mark.parametrize("role", PEOPLE, ids=lambda role: role.name)
def test_every_right_of_people_has_its_reason(role: PeopleRole) -> None:
    assert all(right.why.endswith(".") for right in role.rights)
    assert role.equals.endswith(".")
