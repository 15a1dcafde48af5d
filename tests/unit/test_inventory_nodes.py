"""What a Node says of a host by itself, and how lists show it."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from hostler.inventory.joining import host_of
from hostler.inventory.listing import Filter, age_text, select_rows, summarise_rows, where_of
from hostler.inventory.model import Layer, LayerKind, Line, Where
from hostler.inventory.nodes import node_layer
from hostler.inventory.overdue import Overdue
from hostler.inventory.states import HostKind, HostState, SortBy
from hostler.inventory.stopping import pods_that_stop
from hostler.inventory.wire import HostRow
from hostler.kube.records import (
    Condition,
    Metadata,
    Node,
    NodeSpec,
    NodeStatus,
    OwnerReference,
    Pod,
    PodAnnotations,
    PodMetadata,
    PodPhase,
    PodStatus,
)
from hostler.selectors import parse_selector

CREATED = "2026-01-01T00:00:00Z"
LATER = "2026-01-02T00:00:00Z"


def node_of(status: str, *, since: str = LATER, cordoned: bool = False, **annotations: str) -> Node:
    marks = {key.replace("__", "/").replace("_", "-"): text for key, text in annotations.items()}
    return Node(
        metadata=Metadata(name="a", creation_timestamp=CREATED, annotations=marks, labels={"rack": "r1"}),
        spec=NodeSpec(unschedulable=cordoned),
        status=NodeStatus(conditions=(Condition(type="Ready", status=status, last_transition_time=since),)),
    )


def held(*holders: str) -> str:
    return json.dumps([{"holder": one, "why": "disk", "since": LATER, "cordonedBefore": False} for one in holders])


@pytest.mark.parametrize(
    ("node", "state"),
    [
        (node_of("True"), HostState.IN_SERVICE),
        (node_of("True", cordoned=True), HostState.HELD),
        (node_of("False"), HostState.FAILED),
        (node_of("False", since=CREATED), HostState.JOINING),
        (node_of("Unknown"), HostState.UNKNOWN),
        (Node(metadata=Metadata(name="a")), HostState.UNKNOWN),
    ],
)
def test_the_state_of_a_node_without_a_capability(node: Node, state: HostState) -> None:
    assert host_of([node_layer(node, "prod")]).state is state


def with_maintenance(state: str, policy: str = "") -> Node:
    prefix = "vsphere-maintenance.boeye.net/"
    marks = {f"{prefix}state": state, f"{prefix}host": "esx-1", f"{prefix}transition-time": LATER}
    if policy:
        marks["hostler.dev/maintenance-policy"] = policy
    node = node_of("Unknown", cordoned=True)
    return Node(metadata=Metadata(name="a", annotations=marks), spec=node.spec, status=node.status)


@pytest.mark.parametrize(
    ("written", "state"),
    [
        ("draining", HostState.DRAINING),
        ("powered-off", HostState.STOPPED),
        ("migrated", HostState.RETURNING),
        ("nonsense", HostState.UNKNOWN),
    ],
)
def test_a_maintenance_is_read_from_the_node_alone(written: str, state: HostState) -> None:
    host = host_of([node_layer(with_maintenance(written), "prod")])
    assert host.state is state
    assert host.since is not None
    assert bool(host.mid_steps) is (state is not HostState.UNKNOWN)


def test_a_vm_that_stays_off_by_policy_is_waiting() -> None:
    assert (
        host_of([node_layer(with_maintenance("powered-off", "stay-off"), "p")]).waiting
        == "an administrator (policy stay-off)"
    )
    assert host_of([node_layer(with_maintenance("draining", "stay-off"), "p")]).waiting == ""


def test_a_hold_names_who_keeps_the_node_out() -> None:
    host = host_of([node_layer(node_of("True", cordoned=True, hostler_dev__holds=""), "prod")])
    assert host.why == "It is cordoned by hand."
    marked = Metadata(name="a", annotations={"hostler.dev/holds": held("ann", "bob")})
    node = node_of("True", cordoned=True)
    host = host_of([node_layer(Node(metadata=marked, spec=node.spec, status=node.status), "prod")])
    assert host.why == "It is cordoned and held by ann and bob."
    assert [holder.name for holder in host.holders] == ["ann", "bob"]


def test_holds_that_cannot_be_read_are_a_problem() -> None:
    marked = Metadata(name="a", annotations={"hostler.dev/holds": "{"})
    host = host_of([node_layer(Node(metadata=marked), "prod")])
    assert "cannot be read" in host.problems[0]


def pod_of(name: str, phase: PodPhase = PodPhase.RUNNING, owner: str = "", *, static: bool = False) -> Pod:
    owners = (OwnerReference(kind=owner, name="o", controller=True),) if owner else ()
    annotations = PodAnnotations(mirror="x" if static else None)
    metadata = PodMetadata(name=name, namespace="n", owner_references=owners, annotations=annotations)
    return Pod(metadata=metadata, status=PodStatus(phase=phase))


def test_only_pods_that_would_be_missed_are_in_the_way() -> None:
    pods = [
        pod_of("web", owner="ReplicaSet"),
        pod_of("bare"),
        pod_of("log", owner="DaemonSet"),
        pod_of("etcd", static=True),
        pod_of("job", PodPhase.SUCCEEDED),
        pod_of("dead", PodPhase.FAILED),
        pod_of("stuck", PodPhase.UNKNOWN),
    ]
    assert pods_that_stop(pods) == ("n/web", "n/bare", "n/stuck")


def row_of(name: str, state: HostState, *, late: bool = False, **fields: object) -> HostRow:
    layer = Layer(f"node:p/{name}", LayerKind.NODE, name, (Line("x", state, "w", float(len(name))),), cluster="p")
    return HostRow(replace(host_of([layer]), **fields), Overdue(1.0, 1.0, "x") if late else None)


ROWS = [
    row_of("b", HostState.IN_SERVICE, labels={"rack": "r1"}),
    row_of("a", HostState.IN_SERVICE, labels={"rack": "r2"}),
    row_of("ccc", HostState.STOPPED, late=True, where=Where(vcenter="vc", compute_cluster="gpu", esxi="esx-1")),
    row_of("dd", HostState.HELD, cluster="q", where=Where(namespace="metal", rack="r7")),
]


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (Filter(), ["a", "b", "ccc", "dd"]),
        (Filter(out=True), ["ccc", "dd"]),
        (Filter(overdue=True), ["ccc"]),
        (Filter(states=frozenset({HostState.HELD, HostState.STOPPED})), ["ccc", "dd"]),
        (Filter(cluster="q"), ["dd"]),
        (Filter(kinds=frozenset({HostKind.VM})), []),
        (Filter(selector=parse_selector("rack in (r1,r2)")), ["a", "b"]),
    ],
)
def test_a_filter_admits_what_fits_everything_given(wanted: Filter, names: list[str]) -> None:
    assert [row.host.name for row in select_rows(ROWS, wanted, SortBy.NAME)] == names


def test_lists_are_sorted_by_what_is_asked_for() -> None:
    by_since = [row.host.name for row in select_rows(ROWS, Filter(), SortBy.SINCE)]
    assert by_since == ["a", "b", "dd", "ccc"]
    assert next(row.host.name for row in select_rows(ROWS, Filter(), SortBy.STATE)) == "ccc"


def test_the_summary_counts_states_and_what_is_late() -> None:
    assert summarise_rows(ROWS) == "4 hosts: 2 in service, 1 stopped (1 overdue), 1 held"
    assert summarise_rows([]) == "No hosts."


def test_a_place_is_one_word() -> None:
    assert [where_of(row) for row in ROWS] == ["", "", "vc/gpu/esx-1", "metal/r7"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (119, "119s"), (125, "2m5s"), (600, "10m"), (7200, "120m"), (4 * 3600 + 300, "4h5m"), (90000, "25h"),
     (5 * 86400 + 3600, "5d1h"), (40 * 86400, "40d")],
)  # fmt: skip
def test_ages_read_as_kubectl_prints_them(seconds: int, text: str) -> None:
    assert age_text(1000.0, 1000.0 + seconds) == text
