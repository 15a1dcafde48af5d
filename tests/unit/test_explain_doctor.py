"""`hostler doctor` over facts: each thing that can be amiss is found, named, and comes with what mends it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from hostler.apis.fleet import FleetStatus
from hostler.explain.doctor import Facts, Finding, Level, VCenterSeen, begun, examine, left_behind
from hostler.explain.wire import StatusAnswer
from hostler.host.conditions import Condition, Status
from hostler.host.facts import Known, Unknown
from hostler.host.holds import HOLDS, Hold, write
from hostler.host.maintenance import OUT_OF_SERVICE, SINCE, STATE
from hostler.instant import iso
from hostler.kube.records import Metadata, Node, NodeSpec, Taint

NOW = 1_750_000_000.0
LABEL = "gpu=true"
DAY = 86_400.0


def node(annotations: dict[str, str] | None = None, taints: tuple[Taint, ...] = (), **labels: str) -> Node:
    return Node(
        metadata=Metadata(name="w1", annotations=annotations or {}, labels=labels), spec=NodeSpec(taints=taints)
    )


def answer(**changes: Any) -> StatusAnswer:
    fine = StatusAnswer(
        version="1.0", identity="pod_x", leads=True, leadership="This replica leads.", dry_run=False, paused=False,
        pause="Nothing is paused.", status=FleetStatus(leader="pod_x"),
    )  # fmt: skip
    return msgspec.structs.replace(fine, **changes)


def condition(type: str, status: Status) -> FleetStatus:
    said = Condition(type=type, status=status, reason="R", message=f"{type} says so.")
    return FleetStatus(leader="pod_x", conditions=(said,))


def found(*nodes: Node, **changes: Any) -> list[Finding]:
    facts: dict[str, Any] = {
        "version": "1.0",
        "server": Known("v1.37.1", NOW),
        "fleet_kind": Known(True, NOW),
        "pause_kind": Known(True, NOW),
        "operator": Known(answer(), NOW),
        "nodes": Known(nodes, NOW),
        "label": LABEL if "vcenters" in changes else "",
    }
    return examine(Facts(**{**facts, **changes}), NOW)


def test_an_operator_that_does_not_answer_is_found_with_its_own_way_to_it() -> None:
    for way, fix in (
        ("See its pod.", "See its pod."),
        ("", "Start it, or say where it is: --operator-namespace, --operator."),
    ):
        (seen,) = [one for one in found(operator=Unknown("None is ready."), way=way) if one.what == "operator"]
        assert seen == Finding(Level.PROBLEM, "operator", "None is ready.", fix)


def test_a_fleet_in_order_is_said_to_be() -> None:
    seen = found(node(gpu="true"), vcenters={"vc": VCenterSeen("vc")})
    assert {one.level for one in seen} == {Level.FINE}
    assert [one.what for one in seen] == ["Kubernetes", "operator", "GPU_NODE_LABEL", "nodes", "vCenter vc"]


def held(*holders: str, yielded: str = "") -> dict[str, str]:
    holds = (Hold(one, "disks", iso(NOW), cordoned_before=False, yielded=yielded) for one in holders or ("ada",))
    return {HOLDS: str(write(tuple(holds)))}


def test_whose_hold_is_to_be_released_is_said() -> None:
    def mend(*holders: str) -> str:
        (seen,) = [one for one in found(node(held(*holders))) if one.what == "node/w1"]
        return seen.fix

    assert mend("ada") == "hostler release w1 --holder ada"
    assert mend("ada of ops") == "hostler release w1 --holder 'ada of ops'"
    assert mend("ada", "bob") == "hostler release w1 --holder NAME"


@pytest.mark.parametrize(
    ("changes", "nodes", "level", "what", "words"),
    [
        ({"server": Known("v1.25.3", NOW)}, (), Level.PROBLEM, "Kubernetes", "needs 1.26"),
        ({"server": Unknown("no answer")}, (), Level.PROBLEM, "Kubernetes", "no answer"),
        ({"fleet_kind": Known(False, NOW)}, (), Level.WARNING, "Fleet", "no status in the cluster"),
        ({"pause_kind": Known(False, NOW)}, (), Level.WARNING, "Pause", "no stop button"),
        ({"pause_kind": Unknown("forbidden")}, (), Level.WARNING, "Pause", "forbidden"),
        ({"paused_field": True}, (), Level.PROBLEM, "stop button", "it pauses nothing"),
        ({"fleet_kind": Unknown("forbidden")}, (), Level.WARNING, "Fleet", "forbidden"),
        ({"rights": Unknown("It is no pod.")}, (), Level.WARNING, "rights", "It is no pod."),
        ({"rights": Known(("patch nodes",), NOW)}, (), Level.PROBLEM, "rights", "may not patch nodes"),
        (
            {"operator": Known(answer(status=condition("Paused", Status.UNKNOWN)), NOW)},
            (), Level.PROBLEM, "stop button", "Paused says so.",
        ),
        ({"operator": Unknown("No operator leads.")}, (), Level.PROBLEM, "operator", "No operator leads."),
        ({"operator": Known(answer(version="2"), NOW)}, (), Level.WARNING, "versions", "operator is 2"),
        ({"operator": Known(answer(dry_run=True), NOW)}, (), Level.WARNING, "operator", "dry run"),
        ({"operator": Known(answer(paused=True, pause="fire"), NOW)}, (), Level.WARNING, "stop button", "fire"),
        (
            {"operator": Known(answer(status=condition("IncumbentFound", Status.TRUE)), NOW)},
            (), Level.WARNING, "incumbent", "IncumbentFound says so.",
        ),
        (
            {"operator": Known(answer(status=condition("Ready", Status.FALSE)), NOW)},
            (), Level.PROBLEM, "operator", "Ready says so.",
        ),
        ({"nodes": Unknown("forbidden")}, (), Level.PROBLEM, "nodes", "forbidden"),
        ({"vcenters": {"vc": VCenterSeen("vc")}}, (node(gpu="false"),), Level.PROBLEM, "GPU_NODE_LABEL", "No node has"),
        ({}, (node({HOLDS: "not json"}),), Level.PROBLEM, "node/w1", "cannot be read"),
        ({}, (node({STATE: "asleep"}),), Level.PROBLEM, "node/w1", '"asleep", which is no state'),
        (
            {}, (node({STATE: "powered-off", SINCE: iso(NOW - 3 * DAY)}),),
            Level.WARNING, "node/w1", "powered-off for maintenance since 3 days",
        ),
        ({}, (node(taints=(Taint(OUT_OF_SERVICE, "nodeshutdown", "NoExecute"),)),), Level.PROBLEM, "node/w1", "taint"),
        ({}, (node(held()),), Level.WARNING, "node/w1", "held by ada (disks)"),
        ({}, (node(held(yielded=iso(NOW))),), Level.WARNING, "node/w1", "has given way"),
        (
            {"vcenters": {"vc": VCenterSeen("vc", trouble="vCenter vc cannot be reached.")}},
            (node(gpu="true"),), Level.PROBLEM, "vCenter vc", "cannot be reached",
        ),
        (
            {"vcenters": {"vc": VCenterSeen("vc", lacks=("X.Y (to see)",))}},
            (node(gpu="true"),), Level.PROBLEM, "vCenter vc", "lacks X.Y (to see)",
        ),
        (
            {"vcenters": {"vc": VCenterSeen("vc", lacks_optional=("Z (to mark)",))}},
            (node(gpu="true"),), Level.WARNING, "vCenter vc", "kept in a ConfigMap",
        ),
        (
            {"vcenters": {"vc": VCenterSeen("vc", untrusted="Nothing says which certificate to expect.")}},
            (node(gpu="true"),), Level.WARNING, "vCenter vc", "not logged in to from here",
        ),
        (
            {"vcenters": {"vc": VCenterSeen("vc", unverified=True)}},
            (node(gpu="true"),), Level.WARNING, "vCenter vc", "not verified",
        ),
    ],
)  # fmt: skip
def test_what_is_amiss_is_found(
    changes: dict[str, Any], nodes: tuple[Node, ...], level: Level, what: str, words: str
) -> None:
    seen = found(*nodes, **changes)
    assert any(one.level is level and one.what == what and words in one.why for one in seen), seen
    assert [one.level for one in seen] == sorted((one.level for one in seen), key=["problem", "warning", "ok"].index)
    assert [one for one in seen if bool(one.fix) is (one.level is Level.FINE)] == [], "what is amiss says what mends it"


def test_a_maintenance_under_way_is_no_finding() -> None:
    fresh = node({STATE: "draining", SINCE: iso(NOW - 60)}, (Taint(OUT_OF_SERVICE, "", "NoExecute"),))
    assert all(one.level is Level.FINE for one in found(fresh))


def test_what_nobody_goes_on_with_is_named() -> None:
    nodes: tuple[Node, ...] = (node({STATE: "powered-off", SINCE: iso(NOW)}), node({STATE: "asleep"}))
    left = begun(Known(nodes, NOW))
    (seen,) = left_behind("maintenance", left, on=Known(False, NOW))
    assert (seen.level, seen.what) == (Level.PROBLEM, "maintenance")
    assert "nobody goes on with node/w1 (powered-off)." in seen.why
    assert "docs/install.md" in seen.fix
    assert list(left_behind("maintenance", left, on=Known(True, NOW))) == []
    assert list(left_behind("maintenance", begun(Unknown("forbidden")), on=Known(False, NOW))) == []
    (unsure,) = left_behind("maintenance", left, on=Unknown("No operator answers."))
    assert (unsure.level, "is not known: No operator answers." in unsure.why) == (Level.WARNING, True)
    (unseen,) = left_behind("reclaim", Unknown("may not list agents"), on=Known(False, NOW))
    assert (unseen.level, "could not be looked at" in unseen.why) == (Level.WARNING, True)
    assert "`list` on agents.agent-install.openshift.io" in unseen.fix


def test_rights_that_are_missing_are_named() -> None:
    def said(rights: Any) -> list[Finding]:
        return [one for one in found(rights=rights) if one.what == "rights"]

    (seen,) = said(Known(("patch nodes", "create pods/eviction"), NOW))
    assert seen.level is Level.PROBLEM
    assert seen.why == "The operator's ServiceAccount may not create pods/eviction and patch nodes."
    assert "helm upgrade" in seen.fix
    assert [one.level for one in said(Known((), NOW))] == [Level.FINE]
    assert [one.level for one in said(Unknown("The operator is no pod."))] == [Level.WARNING]
    assert said(None) == []


def test_where_the_right_on_resource_pools_belongs_is_said() -> None:
    def fix(lacks: str) -> str:
        seen = VCenterSeen("vc", lacks=(lacks,))
        one_by_one = found(node(gpu="true"), vcenters={"vc": seen})
        return next(one.fix for one in one_by_one if one.what == "vCenter vc")

    assert "on the resource pools of HOSTLER_MAINTENANCE_CLUSTERS" in fix("Resource.AssignVMToPool (to move)")
    assert "resource pools" not in fix("Resource.ColdMigrate (to move)")
