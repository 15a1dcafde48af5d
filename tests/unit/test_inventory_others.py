"""What ingress, join and platform know of hosts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from hostler.apis.fleet import ExpectedHost, Fleet, FleetSpec, JoinPolicy
from hostler.apis.openshift import (
    INFRASTRUCTURE,
    INGRESS,
    INGRESS_CONTROLLER,
    Infrastructure,
    IngressConfig,
    IngressController,
)
from hostler.host.facts import Known, Unknown
from hostler.ingress.controller import IngressReconciler
from hostler.ingress.executor import IngressExecutor
from hostler.ingress.explain import IngressSource
from hostler.ingress.model import CONTROLLERS_IN, ROUTERS_IN, Placed
from hostler.ingress.observe import Caches as IngressCaches
from hostler.ingress.observe import Observer as IngressObserver
from hostler.ingress.observe import Options
from hostler.ingress.status import IngressReport
from hostler.instant import iso
from hostler.inventory.joining import host_of, join_layers
from hostler.inventory.nodes import node_layer
from hostler.inventory.sources import RecordedAs
from hostler.inventory.states import HostKind, HostState
from hostler.join.controller import JoinReconciler
from hostler.join.host_layers import JoinSource
from hostler.join.invitations import OLDER, SOURCES
from hostler.join.model import SIGNING_REQUEST, USED, Act, Decision, SigningRequest, Verdict
from hostler.join.observe import SOURCE_INDEXES, Memory
from hostler.join.observe import Caches as JoinCaches
from hostler.join.status import HubReport
from hostler.kube.clock import boottime
from hostler.kube.kinds import CONFIG_MAP, DAEMON_SET, DEPLOYMENT, FLEET, NODE, POD, POD_DISRUPTION_BUDGET
from hostler.kube.records import Metadata, Node, Pod, PodDisruptionBudget
from tests.unit.dry_runs import DryRun, put
from tests.unit.joining import NOW, POLICY, node

ROUTER = {"matchLabels": {"app": "router"}}


def read(record: type[Any], **fields: Any) -> Any:
    return msgspec.convert(fields, record)


def pod_on(node: str, name: str, *, ready: bool = True, app: str = "router") -> Pod:
    about = {"name": name, "namespace": ROUTERS_IN, "labels": {"app": app}}
    told = {"conditions": [{"type": "Ready", "status": str(ready)}]}
    pod: Pod = read(Pod, metadata=about, spec={"nodeName": node}, status=told)
    return pod


def ingress_of(*pods: Pod) -> tuple[IngressSource, IngressCaches]:
    run = DryRun("ingress")
    controller = read(IngressController, metadata={"name": "default", "namespace": CONTROLLERS_IN})
    router = read(Placed, metadata={"name": "router-default", "namespace": ROUTERS_IN}, spec={"selector": ROUTER})
    caches = IngressCaches(
        ingress=run.watch(INGRESS, IngressConfig),
        infrastructure=run.watch(INFRASTRUCTURE, Infrastructure),
        controllers=run.watch(INGRESS_CONTROLLER, IngressController, controller),
        deployments=run.watch(DEPLOYMENT, Placed, router),
        daemon_sets=run.watch(DAEMON_SET, Placed),
        budgets=run.watch(POD_DISRUPTION_BUDGET, PodDisruptionBudget),
        pods=run.watch(POD, Pod, *pods),
        nodes=run.watch(NODE, Node),
        fleet=run.watch(FLEET, Fleet),
    )
    observer = IngressObserver(caches, Options(), clock=lambda: NOW)
    executor = IngressExecutor(caches, run.writer, run.recorder)
    reconciler = IngressReconciler(observer, executor, IngressReport(run.metrics, lambda: None))
    caches.pods.heard = boottime()
    return IngressSource(reconciler, lambda: NOW), caches


def last_on(source: IngressSource, node: str) -> tuple[str, ...]:
    match source.last_ingress_pods(node):
        case Known(found):
            return tuple(found)
        case other:
            raise AssertionError(other)


@pytest.mark.parametrize(
    ("pods", "last"),
    [
        ((pod_on("a", "r1"),), True),
        ((pod_on("a", "r1"), pod_on("a", "r2")), True),
        ((pod_on("a", "r1"), pod_on("b", "r2")), False),
        ((pod_on("a", "r1"), pod_on("b", "r2", ready=False)), True),
        ((pod_on("b", "r1"), pod_on("a", "other", app="web")), False),
        ((), False),
    ],
)
def test_the_node_of_the_last_ready_router_pod_is_known(pods: tuple[Pod, ...], *, last: bool) -> None:
    source, _ = ingress_of(*pods)
    assert last_on(source, "a") == ((f"Deployment/{ROUTERS_IN}/router-default",) if last else ())


def test_a_pod_that_comes_or_goes_changes_where_the_last_one_is() -> None:
    source, caches = ingress_of(pod_on("a", "r1"))
    assert last_on(source, "a")
    second = put(caches.pods, pod_on("b", "r2"))
    assert not last_on(source, "a")
    caches.pods.store.remove(second)
    assert last_on(source, "a")


def test_while_ingress_is_not_read_where_its_pods_are_is_unknown() -> None:
    source, caches = ingress_of(pod_on("a", "r1"))
    caches.deployments.store.synced = False
    assert isinstance(source.last_ingress_pods("a"), Unknown)


def join_of(*expected: str, nodes: tuple[Node, ...] = ()) -> tuple[JoinSource, JoinReconciler]:
    run = DryRun("join")
    entries = tuple(ExpectedHost(name=name, since=iso(NOW - 600), until=iso(NOW + 600)) for name in expected)
    fleet = Fleet(metadata=Metadata(name="cluster"), spec=FleetSpec(join=JoinPolicy(expected=entries)))
    caches = JoinCaches(
        requests=run.watch(SIGNING_REQUEST, SigningRequest),
        sources={
            kind: run.watch(kind, record, versions=OLDER.get(kind, ()), indexes=SOURCE_INDEXES)
            for kind, record in SOURCES.items()
        },
        memory=run.watch(CONFIG_MAP, Memory, Memory(metadata=Metadata(name=USED, namespace="hostler"))),
        nodes=run.watch(NODE, Node, *nodes),
        fleet=run.watch(FLEET, Fleet, fleet),
        namespace="hostler",
    )
    keeper = JoinReconciler(
        caches, run.writer, HubReport(run.recorder, run.metrics), POLICY, clock=lambda: NOW,
    )  # fmt: skip
    return JoinSource(keeper, "prod", lambda: NOW), keeper


def test_an_expected_host_is_joining_until_its_node_is_there() -> None:
    source, keeper = join_of("worker-1", "worker-2", nodes=(node("worker-2"),))
    (layer,) = (one for one in source.take().values() if one is not None)
    (host,) = join_layers([layer])
    assert (host.id, host.kind, host.state) == ("expected:prod/worker-1", HostKind.EXPECTED, HostState.JOINING)
    assert host.waiting
    put(keeper.caches.nodes, node("worker-1"))
    assert source.take() == {"expected:prod/worker-1": None}
    assert source.take() == {}


def test_a_request_that_waits_says_why_its_host_has_not_joined() -> None:
    source, keeper = join_of("worker-1")
    source.take()
    keeper.decision = Decision(verdicts={"csr-1": Verdict("csr-1", "u", Act.LEAVE, "It is no new node.", "worker-1")})
    (layer,) = (one for one in source.take().values() if one is not None)
    assert layer.lines[0].why == "Certificate request csr-1 is pending: It is no new node."
    assert not layer.lines[0].waiting
    shown = host_of([node_layer(node("worker-1"), "prod")])
    assert source.notes(shown) == ("Certificate request csr-1 is pending: It is no new node.",)


def test_a_request_is_recorded_about_its_node_unless_nobody_knows_that_name() -> None:
    source, keeper = join_of("worker-1")
    known = Verdict("csr-1", "u1", Act.APPROVE, "It is expected.", "worker-1")
    strange = Verdict("csr-2", "u2", Act.WAIT, "Nobody expects it.", "made-up", unknown_name=True)
    keeper.decision = Decision(verdicts={one.csr: one for one in (known, strange)})
    about = {name: source.recorded_as(SIGNING_REQUEST, "", name) for name in ("csr-1", "csr-2", "csr-3")}
    assert about == {"csr-1": RecordedAs("node:prod/worker-1"), "csr-2": None, "csr-3": None}
    assert source.recorded_as(NODE, "", "csr-1") is None


def test_who_is_expected_no_longer_is_gone() -> None:
    source, _ = join_of("worker-1")
    source.take()
    source._clock = lambda: NOW + 601  # the time of the entry is over, and nothing else happens
    assert source.take() == {"expected:prod/worker-1": None}
