"""The rule that keeps a DaemonSet on its platform: ANDed into each term, never replacing a user's own, never twice."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostler.apis.fleet import PlatformPolicy, ScopedDaemonSet
from hostler.apis.openshift import ClusterCSIDriver, ClusterCSIDriverSpec
from hostler.host.facts import Known, Unknown
from hostler.host.platform import INSTANCE_TYPE, UNINITIALIZED, Class, classify
from hostler.host.reverts import Revert, RevertLimits, last_writer
from hostler.host.scheduling import REQUIRED, labels_fit, required_terms
from hostler.instant import iso
from hostler.kube.records import ManagedField, ManagedMetadata, Metadata, Node, NodeInfo, NodeSpec, NodeStatus, Taint
from hostler.platform.admission_policy import PREFIX, as_wanted, manifests, patch_expression
from hostler.platform.csi_driver import BEFORE, decide_driver
from hostler.platform.decide import decide_taint, other_clouds
from hostler.platform.model import MANAGER, DaemonSet, DaemonSetSpec, PlacedNode, Scope, State, Template, UpdateStrategy
from hostler.platform.scoping import (
    DEFAULT_TARGETS,
    ScopeFacts,
    add_rule,
    decide_scope,
    describe_rule,
    find_flaw,
    find_lag,
    has_rule,
    key_of_target,
    resolve,
    targets_of,
    without_rule,
)
from hostler.platform.status import ScopeLine

NOW, GRACE = 1_000_000.0, 300.0
TARGET = DEFAULT_TARGETS[1]
RULE = {"key": INSTANCE_TYPE, "operator": "Exists"}
ZONE = {"key": "zone", "operator": "In", "values": ["a", "b"]}
LIMITS = RevertLimits(reverts=3, seconds=60)


def affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}


def daemon_set(rule: dict[str, Any] | None = None, **status: int) -> DaemonSet:
    return msgspec.convert(
        {
            "metadata": {"name": TARGET.name, "namespace": TARGET.namespace, "uid": "u", "resourceVersion": "7",
                         "generation": 2, "managedFields": [
                {"manager": "helm", "operation": "Update", "time": "2026-01-02T00:00:00Z"},
                {"manager": "kubectl", "operation": "Update", "time": "2026-01-01T00:00:00Z"},
                {"manager": "kube-controller-manager", "subresource": "status", "time": "2026-01-03T00:00:00Z"},
                {"manager": MANAGER, "operation": "Apply", "time": "2026-01-04T00:00:00Z"},
            ]},
            "spec": {"template": {"spec": {"nodeSelector": {"kubernetes.io/os": "linux"}, "affinity": rule}}},
            "status": {"observedGeneration": 2, **status},
        },
        DaemonSet,
    )  # fmt: skip


def placed(name: str, provider: str = "", *, taint: bool = False, age: float = 9999.0, **labels: str) -> PlacedNode:
    known = {"kubernetes.io/os": "linux", **{key.replace("__", "/"): value for key, value in labels.items()}}
    node = Node(
        metadata=Metadata(
            name=name, uid=f"uid-{name}", resource_version="7", labels=known, creation_timestamp=iso(NOW - age)
        ),
        spec=NodeSpec(
            provider_id=provider,
            taints=(Taint(key="other"), Taint(key=UNINITIALIZED, effect="NoSchedule")) if taint else (),
        ),
        status=NodeStatus(node_info=NodeInfo(system_uuid="42100fe1-0a04-9eb7-1b73-9a3d4578b557")),
    )
    return PlacedNode(node, classify(node, NOW, GRACE))


VM = placed("vm-1", "vsphere://42100fe1-0a04-9eb7-1b73-9a3d4578b557")
LABELLED_VM = PlacedNode(
    msgspec.structs.replace(
        VM.node,
        metadata=Metadata(name="vm-2", labels={"kubernetes.io/os": "linux", INSTANCE_TYPE: "vsphere-vm.cpu-8"}),
    ),
    VM.found,
)
METAL = placed("metal-1")


def decided(rule: dict[str, Any] | None = None, *nodes: PlacedNode, reverts: tuple[float, ...] = ()) -> Scope:
    there = nodes or (LABELLED_VM, METAL)
    return decide_scope(
        ScopeFacts(TARGET, daemon_set(rule), there, [Revert(describe_rule(TARGET), at) for at in reverts]), LIMITS, NOW
    )


def test_the_default_is_the_csi_driver_in_both_spellings() -> None:
    assert [one.name for one in targets_of(PlatformPolicy())] == ["vmware-vsphere-csi-driver-node", "vsphere-csi-node"]
    assert targets_of(PlatformPolicy(daemon_sets=())) == ()


BY_LABEL = ScopedDaemonSet(labels={"csi": "vsphere"}, operator="In", values=("x",))


def about(namespace: str, name: str, **labels: str) -> Metadata:
    return Metadata(namespace=namespace, name=name, labels=labels)


def test_daemon_sets_are_chosen_by_name_or_label_and_the_first_entry_counts() -> None:
    there = [about("a", "one", csi="vsphere", more="x"), about("b", "two", csi="aws"), about("b", "three")]
    assert [key_of_target(one) for one in resolve([BY_LABEL], there)] == ["a/one"]
    named = ScopedDaemonSet(namespace="a", name="one")
    for entries, operator in (([named, BY_LABEL], "Exists"), ([BY_LABEL, named], "In")):
        (only,) = [one for one in resolve(entries, there) if one.name]
        assert (only.namespace, only.name, only.labels, only.operator) == ("a", "one", {}, operator)
    here = msgspec.structs.replace(BY_LABEL, namespace="b")
    assert [key_of_target(one) for one in resolve([here], there)] == ["b/csi=vsphere"], "none in that namespace"
    assert resolve([named], []) == [named]


@given(
    st.lists(st.builds(ScopedDaemonSet, namespace=st.sampled_from(["a", "b"]), name=st.sampled_from(["x", "y"]))),
    st.lists(st.builds(about, st.sampled_from(["a", "b"]), st.sampled_from(["x", "y", "z"]))),
)
def test_no_daemon_set_is_a_target_twice(entries: list[ScopedDaemonSet], there: list[Metadata]) -> None:
    found = [key_of_target(one) for one in resolve(entries, there)]
    assert sorted(found) == sorted({key_of_target(one) for one in entries})


def test_a_policy_by_label_leaves_out_what_is_held_back_or_another_s() -> None:
    first, second = manifests([TARGET, BY_LABEL], {"a/held", "b/held"}), manifests([BY_LABEL])
    (by_name,) = [one for one in first if one.rule.endswith("Exists")]
    (by_label,) = [one for one in first if one.rule.endswith("In x")]
    said = by_label.policy["matchConditions"][0]["expression"]
    assert said.count("!(") == 3, "two that are held back, and the one of the entry before"
    assert "held" not in by_name.policy["matchConditions"][0]["expression"]
    assert "!(" not in second[0].policy["matchConditions"][0]["expression"]
    assert [one.rule for one in manifests([TARGET, BY_LABEL], {key_of_target(TARGET)})] == [by_label.rule]


def driver(state: str = "", before: str = "") -> ClusterCSIDriver:
    noted = {BEFORE: before} if before else {}
    return ClusterCSIDriver(
        metadata=Metadata(uid="u", resource_version="7", annotations=noted),
        spec=ClusterCSIDriverSpec(management_state=state),
    )


@pytest.mark.parametrize(
    ("current", "wanted", "state", "note"),
    [
        (driver(), True, "Unmanaged", "Managed"),
        (driver("Managed"), True, "Unmanaged", "Managed"),
        (driver("Unmanaged", "Managed"), False, "Managed", None),
        (driver("Managed", "Managed"), False, ..., None),  # somebody did it; only our note goes
    ],
)
def test_the_csi_operator_is_set_aside_and_back(
    current: ClusterCSIDriver, wanted: bool, state: Any, note: str | None
) -> None:
    verdict = decide_driver(current, wanted=wanted)
    assert verdict.back is not wanted
    patch = verdict.patch
    assert patch is not None
    assert patch.get("spec", {}).get("managementState", ...) == state
    assert patch["metadata"] == {"uid": "u", "resourceVersion": "7", "annotations": {BEFORE: note}}


@pytest.mark.parametrize(
    ("current", "wanted", "word"),
    [
        (None, True, "there is no"),
        (driver("Unmanaged"), False, "not our doing"),
        (driver("Managed"), False, "not our doing"),
        (driver("Unmanaged"), True, "leaves the DaemonSet alone"),
        (driver("Unmanaged", "Managed"), True, "leaves the DaemonSet alone"),
        (driver("Managed", "Managed"), True, "another client set"),
        (driver("Removed"), True, "left as it is"),
    ],
)
def test_the_csi_operator_is_left_alone(current: ClusterCSIDriver | None, wanted: bool, word: str) -> None:
    verdict = decide_driver(current, wanted=wanted)
    assert verdict.patch is None
    assert word in verdict.why


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, [{"matchExpressions": [RULE]}]),
        ({}, [{"matchExpressions": [RULE]}]),
        ({"podAffinity": {}}, [{"matchExpressions": [RULE]}]),
        (affinity({"matchExpressions": [ZONE]}), [{"matchExpressions": [ZONE, RULE]}]),
        (
            affinity({"matchExpressions": [ZONE]}, {"matchFields": [ZONE]}),
            [{"matchExpressions": [ZONE, RULE]}, {"matchFields": [ZONE], "matchExpressions": [RULE]}],
        ),
        (affinity({}), [{}]),
        (affinity({"matchExpressions": [RULE]}), [{"matchExpressions": [RULE]}]),
    ],
)
def test_the_rule_is_anded_into_each_term(before: dict[str, Any] | None, after: list[dict[str, Any]]) -> None:
    assert add_rule(before, TARGET) == after
    assert has_rule(affinity(*after), TARGET)
    assert add_rule(affinity(*after), TARGET) == after, "a second time changes nothing"


rules = st.fixed_dictionaries(
    {
        "key": st.sampled_from(["zone", INSTANCE_TYPE, "x"]),
        "operator": st.sampled_from(["Exists", "In", "NotIn", "Gt"]),
    },
    optional={"values": st.lists(st.sampled_from(["a", "b", "5"]), max_size=2)},
)
terms = st.fixed_dictionaries({}, optional={"matchExpressions": st.lists(rules, max_size=3)})
labels = st.dictionaries(st.sampled_from(["zone", INSTANCE_TYPE, "x"]), st.sampled_from(["a", "b", "7"]))


@given(st.none() | st.lists(terms, min_size=1, max_size=4), labels)
def test_the_rule_narrows_and_does_nothing_else(given_terms: list[dict[str, Any]] | None, have: dict[str, str]) -> None:
    before = None if given_terms is None else affinity(*given_terms)
    after = affinity(*add_rule(before, TARGET))
    was, is_ = labels_fit("n", have, {}, required_terms(before)), labels_fit("n", have, {}, required_terms(after))
    assert is_ == (was and INSTANCE_TYPE in have)
    assert has_rule(after, TARGET)
    given_rules = [rule for term in given_terms or () for rule in term.get("matchExpressions", ())]
    theirs = [rule for rule in given_rules if (rule["key"], rule["operator"]) == (INSTANCE_TYPE, RULE["operator"])]
    if not has_rule(before, TARGET) and not theirs:  # one of theirs that is ours too cannot be told from it
        assert labels_fit("n", have, {}, without_rule(after, TARGET)) == was


def test_it_is_written_with_the_version_that_was_read() -> None:
    scope = decided(affinity({"matchExpressions": [ZONE]}))
    assert scope.state is State.WRITE
    assert scope.body is not None
    assert scope.body["metadata"] == {
        "name": TARGET.name, "namespace": TARGET.namespace, "uid": "u", "resourceVersion": "7",
    }  # fmt: skip
    assert decided(scope.body["spec"]["template"]["spec"]["affinity"]).state is State.IN_PLACE


def test_who_may_run_where() -> None:
    scope = decided()
    assert (scope.eligible, scope.kept_off) == (("vm-2",), ("metal-1",))
    again = decided(affinity({"matchExpressions": [RULE]}))
    assert (again.eligible, again.kept_off, again.body) == (("vm-2",), ("metal-1",), None)


def test_the_rule_is_held_back_where_it_would_take_the_driver_from_its_own_nodes() -> None:
    scope = decided(None, VM, METAL)
    assert scope.state is State.HELD_BACK
    assert "vm-1" in scope.why
    assert {one.reason for one in scope.notices} == {"NoEligibleNode", "PlatformNodeWithoutLabel"}


def test_a_rule_that_keeps_it_from_its_own_nodes_is_said_although_it_is_in_place() -> None:
    """The policy was there before the DaemonSet, and a VM has no label yet."""
    scope = decided(affinity({"matchExpressions": [RULE]}), VM, LABELLED_VM, METAL)
    assert (scope.state, scope.losing, scope.eligible) == (State.IN_PLACE, ("vm-1",), ("vm-2",))


def test_a_new_vm_may_have_its_provider_id_before_its_label() -> None:
    """Its kubelet writes the one, its cloud provider the other: nothing is said of that while it is new."""
    new = placed("vm-1", "vsphere://42100fe1-0a04-9eb7-1b73-9a3d4578b557", age=GRACE - 60)
    old = placed("vm-0", "vsphere://42100fe1-0a04-9eb7-1b73-9a3d4578b557", age=GRACE)

    def of(rule: dict[str, Any] | None, *nodes: PlacedNode) -> Scope:
        return decide_scope(ScopeFacts(TARGET, daemon_set(rule), nodes, grace=GRACE), LIMITS, NOW)

    for rule, state in ((None, State.HELD_BACK), (affinity({"matchExpressions": [RULE]}), State.IN_PLACE)):
        scope = of(rule, new, METAL)
        assert (scope.state, scope.losing, scope.young, scope.notices) == (state, (), ("vm-1",), ())
        assert scope.waits is (state is State.HELD_BACK), "never written where it would take the driver from it"
        assert scope.wake == 60.5, "then it is looked at again"
        both = of(rule, new, old, METAL)
        assert (both.losing, both.waits) == (("vm-0",), False)
        assert "PlatformNodeWithoutLabel" in {one.reason for one in both.notices}
    no_age = PlacedNode(msgspec.structs.replace(new.node, metadata=Metadata(name="vm-9")), new.found)
    fits_all = msgspec.structs.replace(
        daemon_set(), spec=msgspec.structs.replace(daemon_set().spec, template=Template())
    )
    unknown = decide_scope(ScopeFacts(TARGET, fits_all, (no_age,), grace=GRACE), LIMITS, NOW)
    assert unknown.losing == ("vm-9",), "of unknown age is not new"


def test_a_rule_that_leaves_no_node_is_held_back_and_warned_of() -> None:
    """Where no cloud provider labels nodes the driver may work all the same; it must not lose every node to us."""
    scope = decided(None, METAL, placed("metal-2"))
    assert (scope.state, scope.body, scope.nowhere) == (State.HELD_BACK, None, True)
    assert "from every node (metal-1 and metal-2): none is known to be of platform vsphere" in scope.why
    there = decided(affinity({"matchExpressions": [RULE]}), METAL)
    assert (there.state, there.nowhere) == (State.IN_PLACE, True), "what is there is not taken away, but said"
    assert decided(None, METAL, LABELLED_VM).state is State.WRITE
    coming = placed("new", taint=True, age=10)
    assert coming.found.kind is Class.UNINITIALISED
    for rule in (None, affinity({"matchExpressions": [RULE]})):
        assert decided(rule, METAL, coming).notices == (), "its label may yet come"
    elsewhere = msgspec.structs.replace(daemon_set(), spec=msgspec.convert(
        {"template": {"spec": {"nodeSelector": {"no": "where"}}}}, DaemonSetSpec))  # fmt: skip
    nobody = decide_scope(ScopeFacts(TARGET, elsewhere, [METAL]), LIMITS, NOW)
    assert (nobody.state, nobody.nowhere) == (State.WRITE, False), "it is not the rule that leaves it none"


def test_after_the_limit_a_fight_is_named_and_ends() -> None:
    assert decided(reverts=(NOW - 2, NOW - 1)).state is State.WRITE
    fight = decided(reverts=(NOW - 3, NOW - 2, NOW - 1))
    assert fight.state is State.FIGHT
    assert '"helm"' in fight.why
    assert fight.body is None
    assert fight.wake is not None
    assert decided(reverts=(NOW - 63, NOW - 62, NOW - 61)).state is State.WRITE, "it may try again later"
    other = ScopeFacts(TARGET, daemon_set(), [LABELLED_VM, METAL], [Revert("another rule", NOW - 1)] * 3)
    assert decide_scope(other, LIMITS, NOW).state is State.WRITE, "what was undone is not what is decided now"
    assert last_writer(DaemonSet().metadata, "x") == ""


def test_whoever_wrote_last_is_named_but_not_us_nor_who_counts_revisions() -> None:
    wrote = (("helm", "1", ""), ("argocd", "2", ""), ("kubelet", "3", "status"), ("ours", "4", ""),
             ("kube-controller-manager", "5", ""))  # fmt: skip
    fields = tuple(ManagedField(manager=who, time=at, subresource=part) for who, at, part in wrote)
    assert last_writer(ManagedMetadata(managed_fields=fields), "ours") == 'field manager "argocd"'


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ({"key": "not a label"}, "label's key"),
        ({"key": "a/b/c"}, "label's key"),
        ({"key": "/x"}, "label's key"),
        ({"key": "x" * 64}, "label's key"),
        ({"key": "UPPER.example/x"}, "label's key"),
        ({"operator": "In"}, "needs some values"),
        ({"operator": "Exists", "values": ("a",)}, "needs no values"),
        ({"operator": "NotIn", "values": ("a", "b c")}, "label's value"),
        ({"operator": "In", "values": ("", "a_B.c")}, ""),
        ({"key": "a.example/B_c.d"}, ""),
    ],
)
def test_a_rule_kubernetes_would_refuse_is_never_put_anywhere(rule: dict[str, Any], why: str) -> None:
    """In a policy it would lock the DaemonSet's owner out: every write would be refused."""
    target = msgspec.structs.replace(TARGET, **rule)
    assert why in find_flaw(target)
    scope = decide_scope(ScopeFacts(target, daemon_set(), [METAL]), LIMITS, NOW)
    assert ("the API server would refuse every write" in scope.why) is bool(why)
    assert scope.body is None or not why
    assert len(manifests([target])) == (0 if why else 1)


def test_where_nothing_is_known_of_a_daemon_set_nothing_is_said() -> None:
    for state, said in ((State.ABSENT, "-"), (State.UNREADABLE, "-"), (State.HELD_BACK, "no node")):
        line = ScopeLine("a/b", "vsphere", "x Exists", state, "why", "none yet")
        assert (line.may_run_words, line.kept_off_words) == (said, said)


def test_absent_and_unreadable() -> None:
    assert decide_scope(ScopeFacts(TARGET, None, ()), LIMITS, NOW).state is State.ABSENT
    assert decide_scope(ScopeFacts(TARGET, None, (), unreadable="x"), LIMITS, NOW).state is State.UNREADABLE


def test_lagging() -> None:
    outdated = daemon_set(desiredNumberScheduled=2, updatedNumberScheduled=0, numberAvailable=2)
    assert find_lag(outdated) == "0 of 2 pods updated"
    on_delete = msgspec.structs.replace(outdated.spec, update_strategy=UpdateStrategy(type="OnDelete"))
    assert find_lag(msgspec.structs.replace(outdated, spec=on_delete)) == "", "its owner updates the pods"
    assert find_lag(daemon_set(desiredNumberScheduled=2, updatedNumberScheduled=2, numberAvailable=2)) == ""
    assert "1 of 2 pods available" in find_lag(
        daemon_set(desiredNumberScheduled=2, updatedNumberScheduled=2, numberAvailable=1)
    )
    assert "updated" in find_lag(daemon_set(desiredNumberScheduled=2))
    assert "rolled out" in find_lag(daemon_set(observedGeneration=1))


# -- the admission policy


def test_one_policy_per_rule_and_text_stays_text() -> None:
    made = manifests(DEFAULT_TARGETS)
    assert len(made) == 1
    condition = made[0].policy["matchConditions"][0]["expression"]
    assert all(one.name in condition and one.namespace in condition for one in DEFAULT_TARGETS)
    odd = ScopedDaemonSet(namespace="a", name='b" || true || "', key='k"', operator="In", values=('v"]',))
    made = manifests([*DEFAULT_TARGETS, msgspec.structs.replace(odd, key="k", values=("v",))])
    assert len({one.name for one in made}) == 2
    assert all(one.name.startswith(PREFIX) for one in made)
    assert r"b\" || true || \"" in "".join(one.policy["matchConditions"][0]["expression"] for one in made)
    assert r"v\"]" in patch_expression(odd)


def test_what_the_api_server_adds_is_no_difference() -> None:
    assert as_wanted({"a": [{"b": 1, "c": 2}], "d": 3}, {"a": [{"b": 1}]})
    assert not as_wanted({"a": [{"b": 1}, {}]}, {"a": [{"b": 1}]})
    assert not as_wanted({}, {"a": None} | {"b": 1})
    assert not as_wanted(None, {"a": 1})


# -- the taint


def test_a_stale_taint_goes_only_when_every_vcenter_says_no() -> None:
    waiting = placed("metal-1", taint=True)
    verdict = decide_taint(waiting, Known(True, NOW), wanted=True)
    assert verdict is not None
    assert verdict.patch is not None
    assert [one["op"] for one in verdict.patch] == ["test", "test", "test", "remove"]
    assert verdict.patch[1]["value"] == waiting.node.metadata.resource_version, "what was judged is what is changed"
    assert verdict.patch[3]["path"] == "/spec/taints/1"
    for one, in_none, wanted in (
        (waiting, Known(False, NOW), True),
        (waiting, Unknown("vc does not answer"), True),
        (waiting, Known(True, NOW), False),
        (placed("metal-1", taint=True, age=10), Known(True, NOW), True),
        (placed("vm", "vsphere://x", taint=True), Known(True, NOW), True),
        (placed("aws", "aws:///x", taint=True), Known(True, NOW), True),
    ):
        kept = decide_taint(one, in_none, wanted=wanted)
        assert kept is not None
        assert kept.patch is None
        assert "stays" in kept.why
    assert decide_taint(METAL, Known(True, NOW), wanted=True) is None


def test_a_second_cloud_may_yet_initialise_a_node() -> None:
    waiting = placed("metal-1", taint=True)
    others = [placed("m", "metal3://x"), placed("vm", "vsphere://x")]
    assert other_clouds(others) == [], "no provider stands behind these, or it is vSphere's, which is asked"
    clouds = other_clouds([*others, placed("a", "aws:///x"), placed("k", "k3s://x")])
    assert clouds == ["aws", "k3s"]
    kept = decide_taint(waiting, Known(True, NOW), wanted=True, clouds=clouds)
    assert kept is not None
    assert kept.patch is None
    assert "aws and k3s" in kept.why
