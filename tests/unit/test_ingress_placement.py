"""Where an ingress runs: every combination of what can decide it, and that deciding twice changes nothing."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest

from hostler.apis.fleet import IngressWorkload
from hostler.apis.openshift import (
    ControllerSpec,
    Infrastructure,
    InfrastructureStatus,
    IngressConfig,
    IngressController,
    IngressStatus,
    NodePlacement,
    PlatformStatus,
    PublishingStrategy,
)
from hostler.host.reverts import RevertLog
from hostler.ingress.model import (
    APPLIED,
    CONTROL_PLANE,
    EXTERNAL,
    MASTER,
    SINGLE,
    WORKER,
    Decision,
    Placed,
    Placement,
    Refused,
    Where,
)
from hostler.ingress.placement import control_plane_role, least_available, node_rule, place, required_affinity
from hostler.ingress.placement_patch import differences, digest_of, placement_body, placement_writes
from hostler.ingress.refusals import MANAGED, MARK
from hostler.ingress.workloads import WorkloadFacts, decide_workload, fleet_conditions, place_workload
from hostler.kube.kinds import DEPLOYMENT
from hostler.kube.records import ManagedMetadata, Metadata, Node, NodeSpec, Selector, Taint

PLACEMENTS = ("ControlPlane", "Workers", "")
CONTROL_PLANES = ("SingleReplica", "DualReplica", "HighlyAvailable", "HighlyAvailableArbiter", "External", "")
INFRASTRUCTURES = ("SingleReplica", "HighlyAvailable", "")
REPLICAS = (None, 0, 1, 2, 3, 4)
SELECTED = Selector(match_labels={"ingress": "yes"})
SELECTORS = (None, SELECTED)
LINUX = {"kubernetes.io/os": "linux"}
NOW = 1_000_000.0


def ingress(placement: str) -> IngressConfig:
    return IngressConfig(status=IngressStatus(default_placement=placement))


def infrastructure(control_plane: str, infra: str, platform: str = "None") -> Infrastructure:
    status = InfrastructureStatus(
        control_plane_topology=control_plane,
        infrastructure_topology=infra,
        platform_status=PlatformStatus(type=platform),
    )
    return Infrastructure(status=status)


def controller(replicas: int | None = None, selector: Selector | None = None, **spec: Any) -> IngressController:
    placement = NodePlacement(node_selector=selector) if selector is not None else None
    return IngressController(
        metadata=Metadata(name="default", namespace="openshift-ingress-operator"),
        spec=ControllerSpec(**{"replicas": replicas, "node_placement": placement, **spec}),
    )


def node(name: str, *roles: str) -> Node:
    labels = {**LINUX, **{f"node-role.kubernetes.io/{role}": "" for role in roles}}
    return Node(metadata=Metadata(name=name, labels=labels))


OPENSHIFT = (node("cp", "master", "control-plane"), node("w", "worker"))


def placed(*args: Any, **more: Any) -> Placement:
    found = place(*args, **more)
    assert isinstance(found, Placement)
    return found


def applied(current: Placed, body: dict[str, Any]) -> Placed:
    """What the API server has after the patch, as far as our fields go."""
    return msgspec.convert(_merged(msgspec.to_builtins(current), body), Placed)


def _merged(old: Any, new: Any) -> Any:
    if isinstance(old, dict) and isinstance(new, dict):
        whole = ("nodeSelector", "tolerations")  # atomic for server-side apply
        return {**old, **{key: value if key in whole else _merged(old.get(key), value) for key, value in new.items()}}
    return new


@pytest.mark.parametrize("said", PLACEMENTS)
@pytest.mark.parametrize("control_plane", CONTROL_PLANES)
@pytest.mark.parametrize("infra", INFRASTRUCTURES)
def test_every_combination(said: str, control_plane: str, infra: str) -> None:
    for replicas, selector in itertools.product(REPLICAS, SELECTORS):
        found = placed(ingress(said), infrastructure(control_plane, infra), controller(replicas, selector), OPENSHIFT)
        at_control_plane = said == "ControlPlane" and control_plane != EXTERNAL
        single = (control_plane if at_control_plane else infra) == SINGLE
        assert found.where is (Where.CONTROL_PLANE if at_control_plane else Where.WORKERS)
        assert bool(found.warning) is (said == "ControlPlane" and control_plane == EXTERNAL)
        assert found.replicas == (replicas if replicas is not None else 1 if single else 2)
        default = {**LINUX, (MASTER if at_control_plane else WORKER): ""}
        assert found.node_selector == (SELECTED.match_labels if selector else default)
        keys = [one["key"] for one in found.tolerations]
        assert keys == ([MASTER, CONTROL_PLANE] if at_control_plane and not selector else [])
        assert ("nodeAffinity" in found.affinity) is (not at_control_plane)
        assert (found.budget is None) is ((found.replicas or 0) < 2)
        assert all(step.why and step.decided_by for step in found.steps)
        _is_a_fixed_point(found)


def _is_a_fixed_point(found: Placement) -> None:
    before = Placed(metadata=ManagedMetadata(name="router-default", namespace="openshift-ingress", uid="u"))
    (write,) = placement_writes(DEPLOYMENT, before, found)
    after = applied(before, dict(write.body))
    assert differences(after, found) == []
    assert placement_writes(DEPLOYMENT, after, found) == ()


def test_placement_is_where_the_workers_join_or_not() -> None:
    alone, joined = OPENSHIFT[:1], (*OPENSHIFT, node("w2", "worker"), node("w3", "worker"))
    given = (ingress("ControlPlane"), infrastructure(SINGLE, SINGLE), controller())
    assert place(*given, alone) == place(*given, joined)


@pytest.mark.parametrize(
    ("single", "replicas", "host", "unavailable", "surge", "budget", "least"),
    [
        (True, None, False, "25%", "25%", None, 1),
        (True, None, True, "25%", 0, None, 0),
        (False, None, False, "50%", "25%", 1, 1),
        (False, None, True, "50%", 0, 1, 1),
        (False, 0, False, "50%", "25%", None, 0),
        (False, 1, False, "50%", "25%", None, 1),
        (True, 2, False, "25%", "25%", 1, 2),
        (True, 3, True, "25%", 0, "25%", 2),
        (False, 3, False, "50%", "25%", "25%", 2),
        (False, 4, False, "25%", "25%", "25%", 3),
        (False, 9, True, "25%", 0, "25%", 7),
    ],
)
def test_how_it_is_updated_and_how_much_of_it_may_be_evicted(
    single: bool,
    replicas: int | None,
    host: bool,
    unavailable: str,
    surge: int | str,
    budget: int | str | None,
    least: int,
) -> None:
    strategy = PublishingStrategy(type="HostNetwork" if host else "Private")
    topology = SINGLE if single else "HighlyAvailable"
    asked = controller(replicas, endpoint_publishing_strategy=strategy)
    found = placed(ingress("Workers"), infrastructure(SINGLE, topology), asked, OPENSHIFT)
    assert found.strategy["rollingUpdate"] == {"maxUnavailable": unavailable, "maxSurge": surge}
    assert (found.budget, least_available(found)) == (budget, least)
    assert ("podAntiAffinity" in found.affinity) is (not single and not host)


@pytest.mark.parametrize(("platform", "host"), [("None", True), ("BareMetal", True), ("AWS", False), ("", True)])
def test_without_a_publishing_strategy_the_platform_says_it(platform: str, host: bool) -> None:
    found = placed(ingress(""), infrastructure("", "", platform), controller(), OPENSHIFT)
    assert (found.strategy["rollingUpdate"]["maxSurge"] == 0) is host


def expression(key: str, operator: str, *values: str) -> Selector.Expression:
    return Selector.Expression(key=key, operator=operator, values=values)


def test_an_expression_with_one_value_is_a_node_selector() -> None:
    selector = Selector(match_labels={"a": "1"}, match_expressions=(expression("b", "In", "2"),))
    found = placed(ingress(""), infrastructure("", ""), controller(None, selector), OPENSHIFT)
    assert found.node_selector == {"a": "1", "b": "2"}
    empty = placed(ingress("ControlPlane"), infrastructure("", ""), controller(None, Selector()), OPENSHIFT)
    assert empty.node_selector == {}, "an empty selector is set, and selects everything"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (expression("b", "NotIn", "2"), "matchExpressions[0] has operator NotIn"),
        (expression("b", "Exists"), "matchExpressions[0] has operator Exists"),
        (expression("b", "DoesNotExist"), "operator DoesNotExist"),
        (expression("b", "In", "2", "3"), "has 2 values"),
        (expression("b", "In"), "has 0 values"),
        (expression("a", "In", "2"), "a is to be '1' and '2' at once"),
    ],
)
def test_what_no_node_selector_can_say_is_one_clear_error(wrong: Selector.Expression, words: str) -> None:
    selector = Selector(match_labels={"a": "1"}, match_expressions=(wrong,))
    found = place(ingress(""), infrastructure("", ""), controller(None, selector), OPENSHIFT)
    assert isinstance(found, Refused)
    assert found.why.startswith("IngressController default: spec.nodePlacement.nodeSelector cannot be used: ")
    assert words in found.why


def test_the_users_tolerations_are_taken_as_they_are() -> None:
    mine = {"key": "x", "operator": "Exists"}
    asked = controller(node_placement=NodePlacement(tolerations=(mine,)))
    found = placed(ingress("ControlPlane"), infrastructure(SINGLE, SINGLE), asked, OPENSHIFT)
    assert found.tolerations == (mine,)


def test_who_selects_control_plane_nodes_gets_their_tolerations() -> None:
    asked = controller(None, Selector(match_labels={CONTROL_PLANE: ""}))
    found = placed(ingress("Workers"), infrastructure(SINGLE, SINGLE), asked, OPENSHIFT)
    assert [one["key"] for one in found.tolerations] == [MASTER, CONTROL_PLANE]


def labelled(name: str, value: str, *labels: str, taints: tuple[Taint, ...] = ()) -> Node:
    """A node whose role labels have this value: k3s and RKE2 write "true"."""
    known = {**LINUX, **dict.fromkeys(labels or (CONTROL_PLANE,), value)}
    return Node(metadata=Metadata(name=name, labels=known), spec=NodeSpec(taints=taints))


def selecting(**selector: str) -> Placed:
    return applied(Placed(), {"spec": {"template": {"spec": {"nodeSelector": selector}}}})


def test_the_control_plane_label_is_detected_and_does_not_waver() -> None:
    plain, old = node("cp", "control-plane"), node("old", "master")

    def label(
        nodes: tuple[Node, ...], configured: str = "", current: Placed | None = None, otherwise: str = MASTER
    ) -> str:
        return control_plane_role(nodes, configured, current, otherwise=otherwise).label

    assert label((plain,)) == CONTROL_PLANE
    assert label((plain, old)) == MASTER
    assert label((plain, old), otherwise=CONTROL_PLANE) == CONTROL_PLANE
    assert label((plain,), "x/y") == "x/y"
    older = labelled("older", "true", MASTER, CONTROL_PLANE)
    assert label((labelled("new", "true"), older), otherwise=CONTROL_PLANE) == CONTROL_PLANE, "both have it"
    using = selecting(**{CONTROL_PLANE: ""})
    assert label((), current=using) == CONTROL_PLANE, "its node registers again"
    assert label((plain, old), current=using) == CONTROL_PLANE, "a node joins"
    assert label((old,), current=using, otherwise=CONTROL_PLANE) == MASTER


def test_the_value_of_the_control_plane_label_is_the_one_the_nodes_have() -> None:
    kubeadm, k3s = node("cp", "control-plane"), labelled("server", "true")

    def value(*nodes: Node, current: Placed | None = None) -> str | None:
        return control_plane_role(nodes, "", current, otherwise=CONTROL_PLANE).value

    assert (value(kubeadm), value(k3s), value(kubeadm, k3s), value()) == ("", "true", None, "")
    assert value(current=selecting(**{CONTROL_PLANE: "true"})) == "true", "its only node registers again"
    exists = applied(Placed(), placement_body(workload_placed(nodes=(kubeadm, k3s))))
    assert value(k3s, current=exists) is None, "the node with the other value left: that moves nothing"


NAMED = IngressWorkload(kind="Deployment", namespace="kube-system", name="traefik")
BY_SETTING = ("Deployment/kube-system/traefik",)  # the operator's own setting names it, as k3s needs
TAINTED = (Taint(key=CONTROL_PLANE, effect="NoSchedule"),)


def deployed(**pod: Any) -> Placed:
    """An ingress as its chart made it."""
    about = ManagedMetadata(name="traefik", namespace="kube-system", uid="u")
    return applied(Placed(metadata=about), {"spec": {"replicas": 1, "template": {"spec": pod}}})


def workload_placed(current: Placed | None = None, nodes: tuple[Node, ...] = (), **asked: Any) -> Placement:
    return place_workload(msgspec.structs.replace(NAMED, **asked), current, nodes, "")


def decided(current: Placed, *nodes: Node, **asked: Any) -> Decision:
    return decide_workload(
        WorkloadFacts(msgspec.structs.replace(NAMED, **asked), current, nodes, "", named=BY_SETTING), NOW
    )


def test_an_ingress_on_k3s_goes_where_its_servers_are() -> None:
    servers = (labelled("server-0", "true", taints=TAINTED), labelled("server-1", "true"))
    found = decided(deployed(), *servers, node("agent"))
    pod = found.writes[0].body["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {**LINUX, CONTROL_PLANE: "true"}
    assert (found.no_node, found.in_place) == (None, False)
    mixed = decided(deployed(), *servers, node("cp", "control-plane"), node("agent"))
    pod = mixed.writes[0].body["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == LINUX
    (term,) = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term == {"matchExpressions": [{"key": CONTROL_PLANE, "operator": "Exists"}]}
    after = applied(deployed(), dict(mixed.writes[0].body))
    assert decided(after, *servers, node("cp", "control-plane"), node("agent")).writes == ()
    assert decided(after, *servers, node("agent")).writes == (), "one value is left: nothing to roll out"


CORDONED = NodeSpec(unschedulable=True, taints=(Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule"),))


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ((node("w"),), "none of 1 node has these labels"),
        ((), "none of 0 nodes has these labels"),
        ((labelled("s", "true", taints=(Taint(key="CriticalAddonsOnly", value="true", effect="NoExecute"),)),),
         "s would, but for the taint CriticalAddonsOnly"),
        ((msgspec.structs.replace(labelled("s", "true"), spec=CORDONED),), "taint node.kubernetes.io/unschedulable"),
    ],
)  # fmt: skip
def test_a_placement_that_no_node_fits_is_never_written(nodes: tuple[Node, ...], words: str) -> None:
    found = decided(deployed(), *nodes)
    assert found.writes == ()
    assert words in str(found.no_node)
    assert "stays where it is" in str(found.no_node)
    assert [(one.type, one.reason) for one in found.notices] == [("Warning", "NoFittingNode")]
    assert str(found.no_node) in found.why


def test_the_fleet_says_which_of_its_ingresses_no_node_fits() -> None:
    held, fine = decided(deployed(), node("w")), decided(deployed(), labelled("s", "true"))
    no_node, reverted, refused = fleet_conditions([("Deployment/a/b", held), ("Deployment/c/d", fine)])
    assert (no_node.type, no_node.status, reverted.status) == ("IngressNoFittingNode", "True", "False")
    assert refused.status == "False"
    assert no_node.message == f"Deployment/a/b: {held.no_node}"
    assert fleet_conditions([("Deployment/c/d", fine)])[0].status == "False"
    assert fleet_conditions([]) == (), "it names none"


def test_an_owners_affinity_that_leaves_no_node_counts_too() -> None:
    away = required_affinity(node_rule(CONTROL_PLANE, "DoesNotExist"))
    found = decided(deployed(affinity=away), labelled("s", "true"), node("w"))
    assert found.writes == ()
    assert "and its owner's node affinity" in str(found.no_node)
    # The same rule written by us for Workers is taken back, and in nobody's way.
    nodes = (labelled("s", "true"), node("w"))
    ours = decided(deployed(), *nodes, placement="Workers").writes[0]
    assert decided(applied(deployed(), dict(ours.body)), *nodes).writes != ()


def test_a_placement_in_force_stays_while_its_only_node_reboots_or_is_cordoned() -> None:
    server = labelled("server", "true")
    after = applied(deployed(), dict(decided(deployed(), server, node("w")).writes[0].body))
    down = (Taint(key="node.kubernetes.io/unreachable", effect="NoExecute"),)
    for spec in (NodeSpec(taints=down), CORDONED):
        found = decided(after, msgspec.structs.replace(server, spec=spec), node("w"))
        assert (found.writes, found.no_node, found.in_place) == ((), None, True)
    gone = decided(after, node("w"))
    assert gone.writes == ()
    assert str(gone.no_node).startswith("No node fits"), "and that is reported"


IN_THE_SAME_PLACE = (
    {"nodeSelector": {CONTROL_PLANE: "true"}},
    {"affinity": required_affinity(node_rule(CONTROL_PLANE, "Exists"))},
    {"affinity": required_affinity(node_rule(CONTROL_PLANE, "In", "true", ""))},
    {"nodeSelector": {"kubernetes.io/hostname": "server"}},
)
ELSEWHERE: tuple[dict[str, Any], ...] = (
    {},
    {"nodeSelector": LINUX},
    {"nodeSelector": {CONTROL_PLANE: ""}},
    {"nodeSelector": {"no": "where"}},
)


@pytest.mark.parametrize("pod", [*IN_THE_SAME_PLACE, *ELSEWHERE])
def test_a_workload_that_is_placed_right_is_not_rewritten(pod: dict[str, Any]) -> None:
    server = Node(metadata=Metadata(name="server", labels={
        **LINUX, CONTROL_PLANE: "true", "kubernetes.io/hostname": "server"}))  # fmt: skip
    right = pod in IN_THE_SAME_PLACE
    for nodes in ((server,), (server, node("w"))):
        found = decided(deployed(**pod), *nodes)
        assert (found.writes == (), found.in_place) == (right, right), "also while it is the only node"
    tainted = msgspec.structs.replace(server, spec=NodeSpec(taints=TAINTED))
    assert decided(deployed(**pod), tainted).writes != (), "it lacks the toleration"


def test_two_hundred_reverts_are_answered_five_times() -> None:
    nodes, log, now, writes = (labelled("s", "true"), node("w")), RevertLog(), NOW, 0
    for _ in range(200):  # another controller undoes each write a second later
        placed = workload_placed(deployed(), nodes)
        if log.is_undone("k", digest_of(placed), now):
            assert log.of("k")[-1].at == now
        found = decide_workload(WorkloadFacts(NAMED, deployed(), nodes, "", log.of("k"), named=BY_SETTING), now)
        writes += len(found.writes)
        if found.writes:
            log.is_in_place("k", digest_of(placed))
        now += 1
    assert writes == 5
    assert "another controller changes nodeSelector and tolerations of Deployment traefik back" in str(found.contest)
    assert found.wake is not None
    assert ("Warning", "PlacementReverted") in [(one.type, one.reason) for one in found.notices]
    later = decide_workload(
        WorkloadFacts(NAMED, deployed(), nodes, "", log.of("k"), named=BY_SETTING), now + found.wake
    )
    assert len(later.writes) == 1, "then it tries again"
    other = msgspec.structs.replace(NAMED, placement="Workers")
    assert (
        decide_workload(WorkloadFacts(other, deployed(), nodes, "", log.of("k"), named=BY_SETTING), now).writes != ()
    ), "a new decision counts"


def test_the_order_of_tolerations_replaces_no_pod() -> None:
    some, other = {"key": "a", "operator": "Exists"}, {"key": "b", "operator": "Exists"}

    def asking(*tolerations: dict[str, Any]) -> Placement:
        asked = controller(node_placement=NodePlacement(tolerations=tolerations))
        return placed(ingress("ControlPlane"), infrastructure(SINGLE, SINGLE), asked, OPENSHIFT)

    before = Placed(metadata=ManagedMetadata(name="r", uid="u"))
    (write,) = placement_writes(DEPLOYMENT, before, asking(some, other))
    after = applied(before, dict(write.body))
    assert placement_writes(DEPLOYMENT, after, asking(other, some)) == ()
    assert placement_writes(DEPLOYMENT, after, asking(other)) != ()


def test_an_empty_list_of_tolerations_switches_ours_off() -> None:
    for given, count in ((None, 2), ((), 0)):
        asked = controller(node_placement=NodePlacement(tolerations=given))
        found = placed(ingress("ControlPlane"), infrastructure(SINGLE, SINGLE), asked, OPENSHIFT)
        assert len(found.tolerations) == count


def test_what_others_own_is_left_alone_and_what_we_no_longer_say_is_taken_back() -> None:
    given = (infrastructure(SINGLE, SINGLE), controller())
    workers, pinned = placed(ingress("Workers"), *given, OPENSHIFT), placed(ingress("ControlPlane"), *given, OPENSHIFT)
    foreign = {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}}
    before = applied(
        Placed(metadata=ManagedMetadata(name="r", uid="u")), {"spec": {"template": {"spec": {"affinity": foreign}}}}
    )
    (write,) = placement_writes(DEPLOYMENT, before, workers)
    after = applied(before, dict(write.body))
    assert after.spec.template.spec.affinity["podAffinity"] == foreign["podAffinity"]
    assert placement_writes(DEPLOYMENT, after, workers) == ()
    # The server takes our node affinity back only if we apply without it: the digest says that we did not yet.
    same = applied(after, placement_body(pinned))
    assert differences(same, pinned) == []
    (write,) = placement_writes(DEPLOYMENT, same, pinned)
    assert "affinity" not in write.body["spec"]["template"]["spec"]
    assert write.body["metadata"]["annotations"][APPLIED] != after.metadata.annotations[APPLIED]


def test_an_ingress_named_by_the_fleet() -> None:
    plain = (node("cp", "control-plane"), node("w1"), node("w2"))
    asked = IngressWorkload(kind="Deployment", namespace="nginx", name="nginx")
    mine = {"key": "mine", "operator": "Exists"}
    start = {"spec": {"replicas": 3, "template": {"spec": {"hostNetwork": True, "tolerations": [mine]}}}}
    about = ManagedMetadata(name="nginx", namespace="nginx", uid="u", labels={MARK: MANAGED})
    before = applied(Placed(metadata=about), start)
    decision = decide_workload(WorkloadFacts(asked, before, plain, ""), NOW)
    found = decision.placement
    assert found is not None
    assert found.node_selector == {**LINUX, CONTROL_PLANE: ""}
    assert [one["key"] for one in found.tolerations] == ["mine", MASTER, CONTROL_PLANE], "its own are kept"
    assert "replicas" not in decision.writes[0].body["spec"], "not ours to say"
    assert found.strategy["rollingUpdate"]["maxSurge"] == 0
    after = applied(before, dict(decision.writes[0].body))
    assert decide_workload(WorkloadFacts(asked, after, plain, ""), NOW).writes == ()
    assert (
        decide_workload(WorkloadFacts(asked, after, (*plain, node("w3"), node("w4", "worker")), ""), NOW).writes == ()
    )
    assert decide_workload(WorkloadFacts(asked, None, plain, ""), NOW).writes == ()
    asked = IngressWorkload(kind="DaemonSet", namespace="n", name="n", placement="Workers", replicas=4)
    found = place_workload(asked, None, plain, "")
    assert (found.node_selector, found.replicas, found.strategy) == (LINUX, None, {})
    assert CONTROL_PLANE in str(found.affinity)
    asked = IngressWorkload(kind="Deployment", namespace="n", name="n", node_selector={"edge": "yes"}, replicas=2)
    found = place_workload(asked, None, plain, "")
    assert (found.node_selector, found.replicas) == ({"edge": "yes"}, 2)
