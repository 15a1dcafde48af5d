"""The admission policies as a table: what is theirs to refuse, and what doctor says of those in a cluster."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from hostler.explain.doctor import Level
from hostler.host.facts import Known, Unknown
from hostler.host.holds import HOLDS
from hostler.host.maintenance import STATE
from hostler.install.admission import (
    BINDING_SPEC,
    EXPECTED_HOSTS,
    NODE_MARKS,
    POLICIES,
    AdmissionPolicy,
    PolicySeen,
    find_problem,
    is_ours,
    policy_findings,
)
from hostler.install.manifests import Wanted, list_manifests
from hostler.install.roles import Account
from hostler.join.kubeadm import reserved
from hostler.kube.records import Metadata


def as_stored(policy: AdmissionPolicy, **changed: Any) -> PolicySeen:
    """As the API server keeps it: with its defaults filled in."""
    spec = copy.deepcopy({**policy.spec, **changed})
    spec["matchConstraints"] |= {"matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}}
    return PolicySeen(Metadata(name=policy.name), spec)


def bound(policy: AdmissionPolicy, **changed: Any) -> PolicySeen:
    return PolicySeen(Metadata(name=policy.name), {"policyName": policy.name, **BINDING_SPEC, **changed})


@pytest.mark.parametrize("policy", POLICIES, ids=lambda one: one.name)
def test_a_policy_that_does_not_refuse_is_named(policy: AdmissionPolicy) -> None:
    there, held = [as_stored(policy)], [bound(policy)]
    assert find_problem(policy, there, held) == ""
    assert find_problem(policy, [], held) == "is missing"
    lesser: list[dict[str, Any]] = [
        {"failurePolicy": "Ignore"}, {"validations": []}, {"matchConstraints": {"resourceRules": []}},
    ]  # fmt: skip
    for changed in lesser:
        assert find_problem(policy, [as_stored(policy, **changed)], held) == "is not as this version ships it"
    other = next(one for one in POLICIES if one is not policy)
    unbound: tuple[list[PolicySeen], ...] = (
        [], [bound(policy, validationActions=["Audit"])], [bound(other)], [bound(policy, matchResources={})],
    )  # fmt: skip
    for bindings in unbound:
        assert "is not bound" in find_problem(policy, there, bindings)


def test_doctor_says_what_is_possible_without_them() -> None:
    both = [as_stored(one) for one in POLICIES], [bound(one) for one in POLICIES]
    (fine,) = policy_findings(Known(both, 0.0))
    assert (fine.level, fine.why) == (Level.FINE, "In force: hostler-expected-hosts, hostler-node-marks.")
    found = list(policy_findings(Known(([as_stored(NODE_MARKS)], [bound(NODE_MARKS)]), 0.0)))
    assert [one.level for one in found] == [Level.WARNING, Level.FINE]
    assert EXPECTED_HOSTS.without in found[0].why
    assert found[0].fix
    (older,) = policy_findings(Known(None, 0.0))
    assert "1.30" in older.why
    (unseen,) = policy_findings(Unknown("no right"))
    assert (unseen.level, unseen.why) == (Level.WARNING, "no right")


def test_every_mark_on_a_node_is_covered() -> None:
    for key in (HOLDS, STATE, "reclaim.hostler.dev/token", "hostler.dev/anything"):
        assert is_ours(key)
        assert reserved(key), "no kubelet is configured with it either"
    for key in ("nothostler.dev/x", "hostler.development/x", "kubernetes.io/os", "hostler.dev"):
        assert not is_ours(key)


def test_manifests_has_them_unless_told_not_to() -> None:
    def kinds(**more: Any) -> set[str]:
        made = list_manifests(Wanted(Account("hostler"), "image", **more))
        return {f"{one['kind']} {one['metadata']['name']}" for one in made if "Admission" in one["kind"]}

    assert kinds() == {f"{kind} {one.name}" for one in POLICIES
                       for kind in ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")}  # fmt: skip
    assert kinds(policies=False) == set()
