"""One IngressController: what is written, what is said, and that a second look writes nothing."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from hostler.apis.openshift import IngressConfig, IngressController, IngressStatus, PublishingStrategy
from hostler.host.conditions import Status
from hostler.host.facts import Fact, Known, Unknown
from hostler.ingress import conditions
from hostler.ingress.cluster_defaults import choose_backfill, decide_backfill, decide_default
from hostler.ingress.conditions import judge_wildcard
from hostler.ingress.decide import Facts, Policy, decide
from hostler.ingress.model import BACKFILL, EXTERNAL, HIGHLY, MANAGED_BY, SINGLE, Decision, Placed, Where
from hostler.ingress.refusals import router_template
from hostler.instant import iso
from hostler.kube.kinds import DEPLOYMENT, POD_DISRUPTION_BUDGET
from hostler.kube.records import (
    Condition,
    Metadata,
    Node,
    NodeAddress,
    NodeStatus,
    PodDisruptionBudget,
    Selector,
)
from tests.unit.test_ingress_placement import OPENSHIFT, applied, controller, infrastructure, ingress, node

NOW = 1_000_000.0
TEMPLATE = Policy(template=router_template("router:1"))


def facts(**more: Any) -> Facts:
    known: dict[str, Any] = {
        "controller": controller(),
        "ingress": ingress("ControlPlane"),
        "infrastructure": infrastructure(SINGLE, SINGLE),
        "nodes": OPENSHIFT,
        "router": None,
        "budget": None,
        "pods": (),
    }
    return Facts(**{**known, **more})


def router(replicas: int = 1, available: int = 1) -> Placed:
    """A router Deployment that is rolled out."""
    status = {"replicas": replicas, "updatedReplicas": replicas, "availableReplicas": available}
    said = [{"type": "Available", "status": "True" if available else "False"}]
    return msgspec.convert(
        {
            "metadata": {"name": "router-default", "namespace": "openshift-ingress", "uid": "u"},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "r"}}},
            "status": {**status, "conditions": said},
        },
        Placed,
    )


def taken(known: Facts, decision: Decision) -> Facts:
    """The facts after everything decided was written."""
    changed: dict[str, Any] = {}
    for write in decision.writes:
        body = dict(write.body)
        if write.kind is DEPLOYMENT and write.verb == "create":
            changed["router"] = applied(
                msgspec.structs.replace(router(1, 0), metadata=Metadata(name="x", uid="u")), body
            )
        elif write.kind is DEPLOYMENT:
            assert known.router is not None
            changed["router"] = applied(known.router, body)
        elif write.kind is POD_DISRUPTION_BUDGET:
            changed["budget"] = None if write.verb == "delete" else msgspec.convert(body, PodDisruptionBudget)
        else:
            status = {**msgspec.to_builtins(known.controller.status), **body["status"]}
            changed["controller"] = msgspec.convert(
                {**msgspec.to_builtins(known.controller), "status": status}, IngressController
            )
    return Facts(**{**{name: getattr(known, name) for name in Facts.__dataclass_fields__}, **changed})


def said(known: Facts) -> dict[str, Condition]:
    return {one.type: one for one in known.controller.status.conditions}


@pytest.mark.parametrize("where", ["ControlPlane", "Workers", ""])
@pytest.mark.parametrize("topology", [SINGLE, HIGHLY])
@pytest.mark.parametrize("existing", [None, router()])
def test_a_second_look_writes_nothing(where: str, topology: str, existing: Placed | None) -> None:
    known = facts(ingress=ingress(where), infrastructure=infrastructure(SINGLE, topology), router=existing)
    writes = []
    for _ in range(4):  # made, then placed; the budget and the counts follow it, the status follows both
        decision = decide(known, TEMPLATE, NOW)
        writes.append(len(decision.writes))
        known = taken(known, decision)
    assert writes[0] > 0
    assert writes[-1] == 0
    assert len({write.kind for write in decide(known, TEMPLATE, NOW + 1).writes}) == 0


@pytest.mark.parametrize("topology", [SINGLE, HIGHLY])
@pytest.mark.parametrize("existing", [None, router()])
def test_cut_off_after_any_write_the_next_pass_goes_on_to_the_same_end(topology: str, existing: Placed | None) -> None:
    start = facts(ingress=ingress("Workers"), infrastructure=infrastructure(HIGHLY, topology), router=existing)
    ends = []
    for cut in range(1 + len(decide(start, TEMPLATE, NOW).writes)):
        known = start
        for number in range(6):
            decision = decide(known, TEMPLATE, NOW)
            done = decision.writes[:cut] if number == 0 else decision.writes
            known = taken(known, Decision(decision.why, done))
        assert decide(known, TEMPLATE, NOW).writes == ()
        ends.append((known.router, known.budget, said(known)))
    assert all(end == ends[0] for end in ends)


def test_one_patch_per_object_and_pass() -> None:
    known = facts(ingress=ingress("Workers"), infrastructure=infrastructure(HIGHLY, HIGHLY), router=router())
    writes = decide(known, TEMPLATE, NOW).writes
    assert [write.kind.kind for write in writes] == ["Deployment", "PodDisruptionBudget", "IngressController"]
    assert writes[0].body["metadata"]["uid"] == "u"
    assert writes[2].body["metadata"]["resourceVersion"] == known.controller.metadata.resource_version


def test_a_router_is_made_from_the_template_and_without_one_that_is_said() -> None:
    made = decide(facts(), TEMPLATE, NOW).writes[0]
    assert (made.verb, made.name, made.namespace) == ("create", "router-default", "openshift-ingress")
    pod = made.body["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == "router:1"
    assert pod["hostNetwork"] is True
    assert made.body["spec"]["replicas"] == 0, "no pod starts before it is known where"
    assert "nodeSelector" not in pod, "server-side apply takes back only what it said itself"
    placing = decide(taken(facts(), decide(facts(), TEMPLATE, NOW)), TEMPLATE, NOW).writes[0]
    assert (placing.verb, placing.body["spec"]["replicas"]) == ("apply", 1)
    assert "node-role.kubernetes.io/master" in placing.body["spec"]["template"]["spec"]["nodeSelector"]
    decision = decide(facts(), Policy(), NOW)
    after = taken(facts(), decision)
    assert [write.kind.kind for write in decision.writes] == ["IngressController"]
    assert said(after)["Available"].reason == "NoRouterTemplate"
    assert "--ingress-router-image" in said(after)["Available"].message


def test_an_external_control_plane_warns_and_goes_on() -> None:
    known = facts(infrastructure=infrastructure(EXTERNAL, SINGLE), router=router())
    decision = decide(known, TEMPLATE, NOW)
    assert [one.reason for one in decision.notices if one.type == "Warning"] == ["ExternalControlPlane"]
    assert decision.placement is not None
    assert decision.placement.where is Where.WORKERS
    after = taken(known, decision)
    assert said(after)["DefaultPlacementIgnored"].status == "True"
    mended = Facts(**{**{n: getattr(after, n) for n in Facts.__dataclass_fields__}, "ingress": ingress("Workers")})
    assert said(taken(mended, decide(mended, TEMPLATE, NOW)))["DefaultPlacementIgnored"].status == "False"


def test_an_invalid_selector_changes_no_router_and_is_said_once_and_clearly() -> None:
    wrong = Selector(match_expressions=(Selector.Expression(key="a", operator="Exists"),))
    known = facts(controller=controller(None, wrong), router=router())
    decision = decide(known, TEMPLATE, NOW)
    assert [write.kind.kind for write in decision.writes] == ["IngressController"]
    after = taken(known, decision)
    assert (said(after)["Admitted"].status, said(after)["Degraded"].status) == ("False", "True")
    assert said(after)["Admitted"].message == decision.why
    assert "IngressController default: spec.nodePlacement.nodeSelector" in decision.why


@pytest.mark.parametrize("missing", ["ingress", "infrastructure"])
def test_what_is_not_known_places_nothing(missing: str) -> None:
    decision = decide(facts(**{missing: None}, router=router()), TEMPLATE, NOW)
    assert all(write.subresource == "status" for write in decision.writes)
    assert "nothing is placed" in decision.why


def test_a_controller_that_goes_is_left_alone() -> None:
    going = IngressController(metadata=Metadata(name="x", deletion_timestamp=iso(NOW)))
    assert decide(facts(controller=going, router=router()), TEMPLATE, NOW).writes == ()


def test_conditions_of_others_stay_as_they_are() -> None:
    theirs = Condition(type="LoadBalancerReady", status="True", last_transition_time=iso(5))
    mine = controller()
    mine = msgspec.structs.replace(mine, status=msgspec.structs.replace(mine.status, conditions=(theirs,)))
    after = taken(facts(controller=mine), decide(facts(controller=mine), TEMPLATE, NOW))
    assert said(after)["LoadBalancerReady"] == theirs


@pytest.mark.parametrize(("type", "grace"), conditions.GRACE.items())
def test_degraded_comes_after_its_grace_and_goes_when_it_is_mended(type: str, grace: float) -> None:
    available = {"DeploymentAvailable": 0, "DeploymentReplicasMinAvailable": 0, "DeploymentReplicasAllAvailable": 1}[
        type
    ]
    broken = router(2, available)
    if type != "DeploymentAvailable":
        fine = (Condition(type="Available", status="True"),)
        broken = msgspec.structs.replace(broken, status=msgspec.structs.replace(broken.status, conditions=fine))
    topology = infrastructure(HIGHLY, HIGHLY)
    since = {type: NOW}
    known = facts(ingress=ingress("Workers"), infrastructure=topology, router=broken, since=since)
    known = taken(known, first := decide(known, TEMPLATE, NOW + grace - 1))
    assert said(known)[type].status == "False"
    assert said(known)["Degraded"].status == "False"
    assert first.wake is not None
    known = taken(known, decide(known, TEMPLATE, NOW + grace))
    assert said(known)["Degraded"].status == "True"
    # A new leader has seen nothing yet, but its predecessor's word counts on.
    fresh = Facts(**{**{n: getattr(known, n) for n in Facts.__dataclass_fields__}, "since": {}})
    assert said(taken(fresh, decide(fresh, TEMPLATE, NOW)))["Degraded"].status == "True"
    mended = Facts(
        **{**{n: getattr(known, n) for n in Facts.__dataclass_fields__}, "router": router(2, 2), "since": {}}
    )
    assert said(taken(mended, decide(mended, TEMPLATE, NOW)))["Degraded"].status == "False"


def with_status(replicas: int | None, have: int, updated: int, available: int, **status: Any) -> Placed:
    """A router Deployment with these numbers, seen by its controller."""
    numbers = {"replicas": have, "updatedReplicas": updated, "availableReplicas": available, **status}
    spec = {"selector": {"matchLabels": {"app": "r"}}, **({} if replicas is None else {"replicas": replicas})}
    about = {"name": "router-default", "namespace": "openshift-ingress", "uid": "u"}
    return msgspec.convert({"metadata": about, "spec": spec, "status": numbers}, Placed)


def conditions_of(router: Placed, **more: Any) -> dict[str, Condition]:
    known = facts(router=router, **more)
    return said(taken(known, decide(known, TEMPLATE, NOW)))


@pytest.mark.parametrize(
    ("wanted", "have", "updated", "available", "rolling", "words"),
    [  # as OpenShift's cluster-ingress-operator judges them; the names are those of its cases
        (2, 2, 2, 2, "False", "Every router pod is of the latest revision"),  # not rolling out
        (4, 1, 1, 2, "True", "1 of 4 pods updated"),  # have and updated are fewer than wanted
        (1, 3, 1, 1, "True", "2 pods of an older revision still to end"),  # more than updated
        (None, 3, 1, 1, "True", "2 pods of an older revision"),  # the same without spec.replicas
        (4, 4, 4, 1, "True", "1 of 4 updated pods available"),  # available are fewer than updated
        (2, 2, 2, 0, "True", "0 of 2 updated pods available"),
        (None, 4, 4, 1, "True", "1 of 4 updated pods available"),
        (None, 1, 1, 1, "False", ""),
        (1, 1, 2, 2, "False", ""),  # fewer than updated: not possible
        (2, 3, 3, 3, "False", ""),  # scale-in: every pod is of the latest revision
        (0, 0, 0, 0, "False", ""),
    ],
)
def test_progressing_is_as_upstream_has_it(
    wanted: int | None, have: int, updated: int, available: int, rolling: str, words: str
) -> None:
    found = conditions_of(with_status(wanted, have, updated, available))
    assert (found["DeploymentRollingOut"].status, found["Progressing"].status) == (rolling, rolling)
    assert words in found["DeploymentRollingOut"].message


def test_a_scale_in_that_nobody_has_looked_at_is_not_progressing() -> None:
    scaled = with_status(2, 3, 3, 3, observedGeneration=1)
    scaled = msgspec.structs.replace(scaled, metadata=msgspec.structs.replace(scaled.metadata, generation=2))
    assert conditions_of(scaled)["Progressing"].status == "False"


@pytest.mark.parametrize(
    ("listed", "deployment", "available"),
    [
        ([], "Unknown", "False"),
        ([{"type": "Available", "status": "Unknown"}], "Unknown", "False"),
        ([{"type": "Available", "status": "False"}], "False", "False"),
        ([{"type": "Available", "status": "True"}], "True", "True"),
    ],
)
def test_available_is_as_upstream_has_it(listed: list[Any], deployment: str, available: str) -> None:
    found = conditions_of(with_status(1, 1, 1, 1, conditions=listed))
    assert (found["DeploymentAvailable"].status, found["Available"].status) == (deployment, available)


def test_an_unknown_availability_is_degraded_after_its_grace_too() -> None:
    silent = with_status(1, 1, 1, 1)
    assert conditions_of(silent, since={"DeploymentAvailable": NOW - 29})["Degraded"].status == "False"
    assert conditions_of(silent, since={"DeploymentAvailable": NOW - 31})["Degraded"].status == "True"


def test_degraded_does_not_stick_from_one_cause_to_the_next() -> None:
    """All pods were gone for a minute; one is back. The other one missing has an hour."""
    topology = {"ingress": ingress("Workers"), "infrastructure": infrastructure(HIGHLY, HIGHLY)}
    gone = with_status(2, 2, 2, 0, conditions=[{"type": "Available", "status": "False"}])
    known = facts(router=gone, since={"DeploymentAvailable": NOW - 60}, **topology)
    known = taken(known, decide(known, TEMPLATE, NOW))
    assert (said(known)["Degraded"].status, said(known)["Degraded"].reason) == ("True", "DeploymentAvailable")
    half = with_status(2, 2, 2, 1, conditions=[{"type": "Available", "status": "True"}])
    since = {"DeploymentReplicasAllAvailable": NOW}
    known = Facts(**{**{n: getattr(known, n) for n in Facts.__dataclass_fields__}, "router": half, "since": since})
    decision = decide(known, TEMPLATE, NOW)
    assert said(taken(known, decision))["Degraded"].status == "False"
    assert decision.wake == conditions.GRACE["DeploymentReplicasAllAvailable"]


def test_a_router_that_no_node_fits_stays_and_the_condition_says_so() -> None:
    nowhere = controller(None, Selector(match_labels={"ingress": "yes"}))
    running = taken(facts(router=router()), decide(facts(router=router()), TEMPLATE, NOW))
    known = Facts(**{**{n: getattr(running, n) for n in Facts.__dataclass_fields__}, "controller": nowhere})
    decision = decide(known, TEMPLATE, NOW)
    assert [write.kind.kind for write in decision.writes] == ["IngressController"]
    assert ("Warning", "NoFittingNode") in [(one.type, one.reason) for one in decision.notices]
    after = taken(known, decision)
    assert said(after)["NoFittingNode"].status == "True"
    assert "No node fits ingress=yes: none of 2 nodes has these labels" in said(after)["NoFittingNode"].message
    there = msgspec.structs.replace(node("w"), metadata=Metadata(name="w", labels={"ingress": "yes"}))
    after = Facts(**{**{n: getattr(after, n) for n in Facts.__dataclass_fields__}, "nodes": (*OPENSHIFT, there)})
    decision = decide(after, TEMPLATE, NOW)
    assert decision.writes[0].body["spec"]["template"]["spec"]["nodeSelector"] == {"ingress": "yes"}
    assert said(taken(after, decision))["NoFittingNode"].status == "False"


def test_a_router_we_make_is_rolled_out_beside_its_old_pods() -> None:
    single = decide(facts(), TEMPLATE, NOW)
    assert single.writes[0].body["spec"]["minReadySeconds"] == 0, "a single router has no other to wait for"
    private = controller(endpoint_publishing_strategy=PublishingStrategy(type="Private"))
    known = facts(controller=private, ingress=ingress("Workers"), infrastructure=infrastructure(HIGHLY, HIGHLY))
    several = decide(known, TEMPLATE, NOW)
    assert several.writes[0].body["spec"]["minReadySeconds"] == 30
    placing = decide(taken(known, several), TEMPLATE, NOW).writes[0].body["spec"]["template"]["spec"]["affinity"]
    (beside,) = placing["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert (beside["weight"], beside["podAffinityTerm"]["mismatchLabelKeys"]) == (100, ["pod-template-hash"])
    theirs = decide(facts(**{**_fields(known), "router": router()}), TEMPLATE, NOW).writes[0]
    assert "podAffinity" not in theirs.body["spec"]["template"]["spec"]["affinity"], "another's preferences stay"


def _fields(known: Facts) -> dict[str, Any]:
    return {name: getattr(known, name) for name in Facts.__dataclass_fields__}


def test_pods_that_cannot_be_made_are_explained_in_the_words_of_who_refused_them() -> None:
    failed = Condition(type="ReplicaFailure", status="True", message='serviceaccount "router" not found')
    broken = router(1, 0)
    broken = msgspec.structs.replace(broken, status=msgspec.structs.replace(broken.status, conditions=(failed,)))
    after = taken(facts(router=broken), decide(facts(router=broken), TEMPLATE, NOW))
    assert said(after)["DeploymentReplicasAllAvailable"].message == (
        '0 of 1 router pod available; serviceaccount "router" not found.'
    )


def test_a_deployment_that_nobody_has_looked_at_is_no_news() -> None:
    known = taken(facts(router=router()), decide(facts(router=router()), TEMPLATE, NOW))
    known = taken(known, decide(known, TEMPLATE, NOW))
    assert known.router is not None
    annotated = msgspec.structs.replace(
        known.router, metadata=msgspec.structs.replace(known.router.metadata, generation=7)
    )
    after = Facts(**{**{n: getattr(known, n) for n in Facts.__dataclass_fields__}, "router": annotated})
    assert decide(after, TEMPLATE, NOW).writes == ()


def test_a_budget_of_ours_goes_when_it_is_not_wanted_and_a_foreign_one_stays() -> None:
    ours = PodDisruptionBudget(metadata=Metadata(name="router-default", uid="b", labels={MANAGED_BY: "hostler"}))
    theirs = PodDisruptionBudget(metadata=Metadata(name="router-default", uid="b"))
    verbs = [write.verb for write in decide(facts(router=router(), budget=ours), TEMPLATE, NOW).writes]
    assert "delete" in verbs
    verbs = [write.verb for write in decide(facts(router=router(), budget=theirs), TEMPLATE, NOW).writes]
    assert "delete" not in verbs


# -- the wildcard


def addressed(name: str, address: str) -> Node:
    return msgspec.structs.replace(
        node(name), status=NodeStatus(addresses=(NodeAddress(type="InternalIP", address=address),))
    )


@pytest.mark.parametrize(
    ("addresses", "running", "status", "words"),
    [
        (Known(("10.0.0.1",), NOW), {"cp"}, Status.TRUE, "points at cp, where a router is ready"),
        (Known(("10.0.0.1",), NOW), {"w"}, Status.FALSE, "where no router is ready. Routers run on w."),
        (Known(("10.0.0.1",), NOW), set(), Status.FALSE, "No router is ready anywhere."),
        (Known(("fd00:0::2",), NOW), {"w"}, Status.TRUE, "points at w"),
        (Known(("10.9.9.9",), NOW), {"w"}, Status.UNKNOWN, "no node's address"),
        (Unknown("no answer"), {"w"}, Status.UNKNOWN, "Cannot tell where *.apps.example.org points: no answer"),
    ],
)
def test_the_wildcard_name(addresses: Fact[tuple[str, ...]], running: set[str], status: Status, words: str) -> None:
    nodes = (addressed("cp", "10.0.0.1"), addressed("w", "fd00::2"))
    found = judge_wildcard("apps.example.org", "HostNetwork", addresses, nodes, running)
    assert found is not None
    assert found.status is status
    assert words in found.why


def test_a_load_balancer_is_not_judged() -> None:
    assert judge_wildcard("apps.example.org", "LoadBalancerService", Known(("10.0.0.1",), NOW), (), ()) is None
    assert judge_wildcard("", "HostNetwork", Known(("10.0.0.1",), NOW), (), ()) is None


# -- once for the cluster


@pytest.mark.parametrize("nodes", [0, 1, 2])
@pytest.mark.parametrize("control_plane", [SINGLE, HIGHLY])
@pytest.mark.parametrize("infra", [SINGLE, HIGHLY])
@pytest.mark.parametrize("platform", ["None", "External", "AWS", "BareMetal", ""])
def test_what_is_filled_in(nodes: int, control_plane: str, infra: str, platform: str) -> None:
    found, why = choose_backfill(infrastructure(control_plane, infra, platform), OPENSHIFT[:1] * nodes)
    alone = nodes == 1 and control_plane == infra == SINGLE and platform in ("None", "External")
    assert found is (Where.CONTROL_PLANE if alone else Where.WORKERS)
    assert why


def test_the_backfill_is_off_by_default_and_then_done_once_and_never_again() -> None:
    infra = infrastructure(SINGLE, SINGLE)
    now = IngressConfig(metadata=Metadata(name="cluster", resource_version="1"))
    assert decide_backfill(now, infra, OPENSHIFT[:1], wanted=False).writes == ()
    steps: list[str] = []
    for _ in range(4):  # interrupted and taken up again after every write; workers join in between
        decision = decide_backfill(now, infra, OPENSHIFT[: 1 + len(steps)], wanted=True)
        for write in decision.writes:
            steps.append(write.subresource or "mark")
            assert write.body["metadata"]["resourceVersion"] == "1"
            now = _filled(now, write.body)
    assert steps == ["mark", "status", "mark"]
    assert now.status.default_placement == "ControlPlane", "as decided first, though workers have joined since"
    assert now.metadata.annotations[BACKFILL] == "ControlPlane"
    emptied = msgspec.structs.replace(now, status=IngressStatus())
    assert decide_backfill(emptied, infra, OPENSHIFT[:1], wanted=True).writes == ()


def _filled(now: IngressConfig, body: Any) -> IngressConfig:
    metadata = msgspec.structs.replace(
        now.metadata, annotations={**now.metadata.annotations, **body["metadata"].get("annotations", {})}
    )
    placement = body.get("status", {}).get("defaultPlacement", now.status.default_placement)
    return msgspec.structs.replace(now, metadata=metadata, status=IngressStatus(default_placement=placement))


def test_what_was_decided_at_installation_is_not_filled_in() -> None:
    for said_before in ("ControlPlane", "Workers"):
        assert decide_backfill(ingress(said_before), infrastructure(SINGLE, SINGLE), OPENSHIFT[:1], True).writes == ()
    assert decide_backfill(None, infrastructure(SINGLE, SINGLE), OPENSHIFT, True).writes == ()
    assert decide_backfill(ingress(""), None, OPENSHIFT, True).writes == ()


def test_the_default_controller_is_made_with_the_defaults_filled_in() -> None:
    made = decide_default(ingress("ControlPlane"), infrastructure(SINGLE, SINGLE), None, OPENSHIFT, "")
    spec = made.writes[0].body["spec"]
    assert spec["replicas"] == 1
    labels = spec["nodePlacement"]["nodeSelector"]["matchLabels"]
    assert labels == {"kubernetes.io/os": "linux", "node-role.kubernetes.io/master": ""}
    workers = (
        decide_default(ingress("Workers"), infrastructure(HIGHLY, HIGHLY), None, OPENSHIFT, "").writes[0].body["spec"]
    )
    assert (workers["replicas"], "tolerations" in workers["nodePlacement"]) == (2, False)
    assert decide_default(ingress(""), infrastructure(EXTERNAL, HIGHLY), None, OPENSHIFT, "").writes == ()
    assert decide_default(ingress(""), None, None, OPENSHIFT, "").writes == ()
    empty = decide_default(ingress(""), infrastructure(SINGLE, SINGLE), None, OPENSHIFT, "").writes[0].body["spec"]
    assert empty == {}, "what the installation writes a moment later must still count"
    assert decide_default(ingress("Workers"), infrastructure("", ""), None, OPENSHIFT, "").writes == ()
    assert decide_default(ingress(""), infrastructure(HIGHLY, HIGHLY), controller(), OPENSHIFT, "").writes == ()
