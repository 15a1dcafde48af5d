"""The table of rights: complete, narrow, and the same in roles, chart and docs."""

from __future__ import annotations

import pytest

from hostler.capabilities import BY_NAME, CAPABILITIES
from hostler.install.grants import rights_for, rights_of
from hostler.install.rights import OWN, Right
from hostler.install.roles import Account, roles
from hostler.metal import rbac as metal
from hostler.reclaim import rbac as reclaim
from hostler.ship.untried import UNTRIED, phrases

EVERY = rights_for([one.name for one in CAPABILITIES])
EVERY_BUT_METAL = rights_for([one.name for one in CAPABILITIES if one.name != "metal"])
# Whoever has one of these can give himself all others.
NEVER = {"*", "escalate", "bind", "impersonate", "update", "deletecollection"}
# What may be read or written everywhere although it is, or leads to, somebody's secrets; see the reasons in the table.
SECRETS_FOR = {"metal", "reclaim"}


@pytest.mark.parametrize("right", EVERY, ids=lambda one: f"{one.resource}-{'-'.join(one.verbs)}")
def test_a_right_is_narrow_and_has_a_reason(right: Right) -> None:
    assert not NEVER & {*right.verbs, right.resource, right.group, *right.names}
    assert right.why.endswith(".")
    assert len(right.why) > 8
    own = right.namespace == OWN
    assert "secrets" not in right.resource or own or right in (*metal.RIGHTS, *reclaim.RIGHTS)
    assert "secrets" not in right.resource or not own or right.names or right.verbs == ("create",)
    if "delete" in right.verbs:
        assert right.resource.partition(".")[0] not in ("nodes", "pods", "secrets", "namespaces")
        assert right.resource != "baremetalhosts.metal3.io" or right.openshift


def test_few_see_secrets_and_only_maintenance_evicts() -> None:
    for one in CAPABILITIES:
        seen = {right.resource for right in rights_of(one) if right.namespace != OWN}
        assert ("secrets" in seen) is (one.name in SECRETS_FOR)
        assert ("pods/eviction" in seen) is (one.name == "maintenance")


def test_what_is_off_is_not_granted() -> None:
    none, some = set(rights_for([])), set(rights_for(["join"]))
    assert none < some
    assert not any("certificates" in right.resource for right in none)
    assert rights_for(["nothing such"]) == rights_for([])


def test_incumbents_are_seen_by_name_only() -> None:
    found = [one for one in rights_of(BY_NAME["platform"]) if "still at work" in one.why]
    assert {one.resource for one in found} == {"deployments.apps", "leases.coordination.k8s.io", "daemonsets.apps"}
    assert all(one.names for one in found)


def test_a_role_per_namespace_holds_every_right() -> None:
    account = Account("there", "who", lease="mine")
    made = roles(EVERY, account, openshift=True)
    granted = {
        (one["metadata"].get("namespace", ""), rule["apiGroups"][0], rule["resources"][0], verb, name)
        for one in made
        for rule in one.get("rules", ())
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", [""])
    }
    wanted = {
        (place, right.group, right.plural, verb, name)
        for right in EVERY
        for place in account.places(right)
        for verb in right.verbs
        for name in account.names(right) or ("",)
    }
    assert granted == wanted
    assert ("there", "coordination.k8s.io", "leases", "patch", "mine") in granted
    assert ("", "hostler.dev", "fleets/status", "patch", "") in granted
    bound = [one for one in made if one["kind"].endswith("Binding")]
    assert {one["subjects"][0]["namespace"] for one in bound} == {"there"}
    assert len(bound) * 2 == len(made)


def test_openshift_namespaces_are_left_out_elsewhere() -> None:
    plain = {one["metadata"].get("namespace", "") for one in roles(EVERY, Account("there"), openshift=False)}
    assert plain == {"", "there", "kube-node-lease", "kube-system"}
    assert all(right.namespace != OWN for right in EVERY if right.openshift)


def test_a_host_may_be_deleted_only_where_its_owner_cannot_be_written_otherwise() -> None:
    def deletes(*, openshift: bool) -> bool:
        made = roles(rights_for(["metal"]), Account("there"), openshift=openshift)
        rules = [rule for one in made for rule in one.get("rules", ()) if rule["resources"] == ["baremetalhosts"]]
        return any("delete" in rule["verbs"] for rule in rules)

    assert deletes(openshift=True)
    assert not deletes(openshift=False)
    assert not any(
        right.resource == "baremetalhosts.metal3.io" and "delete" in right.verbs for right in EVERY_BUT_METAL
    )


def test_a_right_that_no_test_uses_is_granted_and_has_its_reason() -> None:
    granted = [name for name, _, _ in phrases()]
    assert [name for name in UNTRIED if name not in granted] == [], "no longer in the table"
    assert [name for name, why in UNTRIED.items() if not why.endswith(".") or len(why) < 20] == []
