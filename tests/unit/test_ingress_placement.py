"""Where an ingress runs: every combination of what can decide it, and that deciding twice changes nothing."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest

from hostler.fleet.model import IngressWorkload
from hostler.ingress.apply import apply, differences, placement_body
from hostler.ingress.model import (
    APPLIED,
    CONTROL_PLANE,
    EXTERNAL,
    MASTER,
    SINGLE,
    WORKER,
    ControllerSpec,
    Infrastructure,
    InfrastructureStatus,
    IngressConfig,
    IngressController,
    IngressStatus,
    NodePlacement,
    Placed,
    Placement,
    PlatformStatus,
    PublishingStrategy,
    Refused,
    Where,
)
from hostler.ingress.placement import control_plane_label, fewest, place
from hostler.ingress.workloads import decide_workload, place_workload
from hostler.kube.kinds import DEPLOYMENT
from hostler.kube.records import Metadata, Node, Selector

PLACEMENTS = ("ControlPlane", "Workers", "")
CONTROL_PLANES = ("SingleReplica", "DualReplica", "HighlyAvailable", "HighlyAvailableArbiter", "External", "")
INFRASTRUCTURES = ("SingleReplica", "HighlyAvailable", "")
REPLICAS = (None, 0, 1, 2, 3, 4)
SELECTED = Selector(match_labels={"ingress": "yes"})
SELECTORS = (None, SELECTED)
LINUX = {"kubernetes.io/os": "linux"}


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
        assert (found.budget is None) is single
        assert all(step.why and step.decided_by for step in found.steps)
        _is_a_fixed_point(found)


def _is_a_fixed_point(found: Placement) -> None:
    before = Placed(metadata=Metadata(name="router-default", namespace="openshift-ingress", uid="u"))
    (write,) = apply(DEPLOYMENT, before, found)
    after = applied(before, dict(write.body))
    assert differences(after, found) == []
    assert apply(DEPLOYMENT, after, found) == ()


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
        (False, 0, False, "50%", "25%", "50%", 0),
        (False, 1, False, "50%", "25%", "50%", 1),
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
    assert (found.budget, fewest(found)) == (budget, least)
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


def test_the_control_plane_label_is_detected_and_does_not_waver() -> None:
    plain, old = node("cp", "control-plane"), node("old", "master")
    assert control_plane_label((plain,), "", None, otherwise=MASTER) == CONTROL_PLANE
    assert control_plane_label((plain, old), "", None, otherwise=MASTER) == MASTER
    assert control_plane_label((plain,), "x/y", None, otherwise=MASTER) == "x/y"
    using = applied(Placed(), {"spec": {"template": {"spec": {"nodeSelector": {CONTROL_PLANE: ""}}}}})
    assert control_plane_label((), "", using, otherwise=MASTER) == CONTROL_PLANE, "its node registers anew"
    assert control_plane_label((plain, old), "", using, otherwise=MASTER) == CONTROL_PLANE, "a node joins"
    assert control_plane_label((old,), "", using, otherwise=CONTROL_PLANE) == MASTER


def test_what_others_own_is_left_alone_and_what_we_no_longer_say_is_taken_back() -> None:
    given = (infrastructure(SINGLE, SINGLE), controller())
    workers, pinned = placed(ingress("Workers"), *given, OPENSHIFT), placed(ingress("ControlPlane"), *given, OPENSHIFT)
    foreign = {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}}
    before = applied(
        Placed(metadata=Metadata(name="r", uid="u")), {"spec": {"template": {"spec": {"affinity": foreign}}}}
    )
    (write,) = apply(DEPLOYMENT, before, workers)
    after = applied(before, dict(write.body))
    assert after.spec.template.spec.affinity["podAffinity"] == foreign["podAffinity"]
    assert apply(DEPLOYMENT, after, workers) == ()
    # The server takes our node affinity back only if we apply without it: the digest says that we did not yet.
    same = applied(after, placement_body(pinned))
    assert differences(same, pinned) == []
    (write,) = apply(DEPLOYMENT, same, pinned)
    assert "affinity" not in write.body["spec"]["template"]["spec"]
    assert write.body["metadata"]["annotations"][APPLIED] != after.metadata.annotations[APPLIED]


def test_an_ingress_named_by_the_fleet() -> None:
    plain = (node("cp", "control-plane"), node("w1"), node("w2"))
    asked = IngressWorkload(kind="Deployment", namespace="nginx", name="nginx")
    mine = {"key": "mine", "operator": "Exists"}
    start = {"spec": {"replicas": 3, "template": {"spec": {"hostNetwork": True, "tolerations": [mine]}}}}
    before = applied(Placed(metadata=Metadata(name="nginx", namespace="nginx", uid="u")), start)
    decision, found = decide_workload(asked, before, plain, "")
    assert found.node_selector == {**LINUX, CONTROL_PLANE: ""}
    assert [one["key"] for one in found.tolerations] == ["mine", MASTER, CONTROL_PLANE], "its own are kept"
    assert "replicas" not in decision.writes[0].body["spec"], "not ours to say"
    assert found.strategy["rollingUpdate"]["maxSurge"] == 0
    after = applied(before, dict(decision.writes[0].body))
    assert decide_workload(asked, after, plain, "")[0].writes == ()
    assert decide_workload(asked, after, (*plain, node("w3"), node("w4", "worker")), "")[0].writes == ()
    assert decide_workload(asked, None, plain, "")[0].writes == ()
    asked = IngressWorkload(kind="DaemonSet", namespace="n", name="n", placement="Workers", replicas=4)
    found = place_workload(asked, None, plain, "")
    assert (found.node_selector, found.replicas, found.strategy) == (LINUX, None, {})
    assert CONTROL_PLANE in str(found.affinity)
    asked = IngressWorkload(kind="Deployment", namespace="n", name="n", node_selector={"edge": "yes"}, replicas=2)
    found = place_workload(asked, None, plain, "")
    assert (found.node_selector, found.replicas) == ({"edge": "yes"}, 2)
