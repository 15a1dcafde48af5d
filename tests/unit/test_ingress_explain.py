"""What `explain` and `plan` say of ingress is what the controller does, whatever the cluster looks like."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from hostler.apis.fleet import Fleet, FleetSpec, IngressPolicy, IngressWorkload
from hostler.apis.openshift import (
    INFRASTRUCTURE,
    INGRESS,
    INGRESS_CONTROLLER,
    Infrastructure,
    IngressConfig,
    IngressController,
)
from hostler.explain.registry import Registry, UnknownName
from hostler.host.reverts import RevertLimits
from hostler.ingress.controller import IngressReconciler
from hostler.ingress.executor import IngressExecutor
from hostler.ingress.explain import IngressExplainers
from hostler.ingress.model import BACKFILL, CLUSTER, CONTROLLERS_IN, MANAGED_BY, ROUTERS_IN, Placed
from hostler.ingress.observe import Caches, Observer, Options
from hostler.ingress.refusals import MANAGED, MARK, router_template
from hostler.ingress.status import IngressReport
from hostler.kube.kinds import DAEMON_SET, DEPLOYMENT, FLEET, NODE, POD, POD_DISRUPTION_BUDGET
from hostler.kube.records import Metadata, Node, Pod, PodDisruptionBudget
from tests.sizes import examples
from tests.unit.dry_runs import DryRun, put, writes_of

ROUTER = f"{ROUTERS_IN}/router-default"
NODES = {
    "cp": {"kubernetes.io/os": "linux", "node-role.kubernetes.io/master": ""},
    "w": {"kubernetes.io/os": "linux", "node-role.kubernetes.io/worker": ""},
    "other": {"kubernetes.io/os": "linux"},
}
UNREADABLE = ("ingress", "infrastructure", "controller", "router", "budget", "workload")
TOPOLOGY = st.sampled_from(["SingleReplica", "HighlyAvailable", "External", ""])


def read(record: type[Any], **fields: Any) -> Any:
    return msgspec.convert(fields, record)


@st.composite
def workloads(draw: st.DrawFn, name: str, namespace: str) -> Any:
    """A Deployment or DaemonSet in one of the states that its placement can be in."""
    labels = draw(st.sampled_from([{}, {MARK: MANAGED}, {MANAGED_BY: "hostler"}]))
    about = {"name": name, "namespace": namespace, "uid": "u", "labels": labels}
    pod = draw(st.sampled_from([{}, {"nodeSelector": NODES["cp"]}, {"nodeSelector": {"gone": "yes"}}]))
    replicas = draw(st.sampled_from([0, 1, 2]))
    selector = {"matchLabels": {"app": name}}
    return read(
        Placed, metadata=about, spec={"replicas": replicas, "selector": selector, "template": {"spec": pod}},
        status={"replicas": replicas, "availableReplicas": draw(st.integers(0, 2))},
    )  # fmt: skip


@st.composite
def keepers(draw: st.DrawFn) -> tuple[IngressReconciler, list[str]]:
    """A controller over a random cluster, and the keys that it knows."""
    run, spoiled = DryRun("ingress"), draw(st.sets(st.sampled_from(UNREADABLE), max_size=1))

    def some(record: Any) -> tuple[Any, ...]:
        return (record,) if draw(st.integers(0, 5)) else ()

    def unread(what: str, key: str) -> tuple[str, ...]:
        return (key,) if what in spoiled else ()

    mark = draw(st.sampled_from([None, "deciding ControlPlane", "ControlPlane", "Workers"]))
    ingress = read(
        IngressConfig, metadata={"name": CLUSTER, "annotations": {} if mark is None else {BACKFILL: mark}},
        status={"defaultPlacement": draw(st.sampled_from(["", "ControlPlane", "Workers"]))},
    )  # fmt: skip
    topologies = {"controlPlaneTopology": draw(TOPOLOGY), "infrastructureTopology": draw(TOPOLOGY)}
    infrastructure = read(
        Infrastructure, metadata={"name": CLUSTER}, status={**topologies, "platformStatus": {"type": "None"}}
    )
    selectors = [None, {"matchLabels": {"a": "b"}}, {"matchExpressions": [{"operator": "Exists"}]}]
    placement = draw(st.sampled_from(selectors))
    controller = read(
        IngressController,
        metadata={
            "name": "default", "namespace": CONTROLLERS_IN, "uid": "c",
            **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if not draw(st.integers(0, 5)) else {}),
        },
        spec={"replicas": draw(st.sampled_from([None, 0, 1, 3])), "nodePlacement": {"nodeSelector": placement}},
    )  # fmt: skip
    ours = {MANAGED_BY: "hostler"} if draw(st.booleans()) else {}
    budget = read(
        PodDisruptionBudget, metadata={"name": "router-default", "namespace": ROUTERS_IN, "uid": "b", "labels": ours}
    )
    asked = IngressWorkload(
        kind=draw(st.sampled_from(["Deployment", "DaemonSet"])), namespace="web", name="nginx",
        placement=draw(st.sampled_from(["ControlPlane", "Workers"])),
    )  # fmt: skip
    kind = DAEMON_SET if asked.kind == "DaemonSet" else DEPLOYMENT
    named = some(draw(workloads("nginx", "web")))
    template = draw(st.sampled_from([None, router_template("r:1"), {"spec": {"hostPID": True}}]))
    fleet = Fleet(
        metadata=Metadata(name="cluster"),
        spec=FleetSpec(ingress=IngressPolicy(workloads=(asked,), router_template=template)),
    )
    there = draw(st.sets(st.sampled_from([*NODES])))
    nodes = [Node(metadata=Metadata(name=name, labels=NODES[name])) for name in sorted(there)]
    caches = Caches(
        ingress=run.watch(INGRESS, IngressConfig, *some(ingress), unreadable=unread("ingress", CLUSTER)),
        infrastructure=run.watch(
            INFRASTRUCTURE, Infrastructure, *some(infrastructure), unreadable=unread("infrastructure", CLUSTER)
        ),
        controllers=run.watch(
            INGRESS_CONTROLLER, IngressController, *some(controller),
            unreadable=unread("controller", f"{CONTROLLERS_IN}/default"),
        ),
        deployments=run.watch(
            DEPLOYMENT, Placed, *some(draw(workloads("router-default", ROUTERS_IN))),
            *(named if kind is DEPLOYMENT else ()),
            unreadable=(*unread("router", ROUTER), *(unread("workload", "web/nginx") if kind is DEPLOYMENT else ())),
        ),
        daemon_sets=run.watch(
            DAEMON_SET, Placed, *(named if kind is DAEMON_SET else ()),
            unreadable=unread("workload", "web/nginx") if kind is DAEMON_SET else (),
        ),
        budgets=run.watch(
            POD_DISRUPTION_BUDGET, PodDisruptionBudget, *some(budget), unreadable=unread("budget", ROUTER)
        ),
        pods=run.watch(POD, Pod),
        nodes=run.watch(NODE, Node, *nodes),
        fleet=run.watch(FLEET, Fleet, fleet),
    )  # fmt: skip
    caches.controllers.absent = not draw(st.integers(0, 9))
    if draw(st.booleans()):
        caches.nodes.store.synced = bool(draw(st.integers(0, 5)))
    options = Options(
        draw(st.booleans()), draw(st.sampled_from(["", "r:2"])), False,
        frozenset({f"{asked.kind}/web/nginx"} if draw(st.booleans()) else ()),
    )  # fmt: skip
    keeper = reconciler_over(run, caches, options)
    return keeper, ["ingress/cluster", "ingresscontroller/default", f"{asked.kind.lower()}/web/nginx"]


def reconciler_over(run: DryRun, caches: Caches, options: Options) -> IngressReconciler:
    executor = IngressExecutor(caches, run.writer, run.recorder)
    return IngressReconciler(Observer(caches, options), executor, IngressReport(run.metrics, lambda: None))


def planned(keeper: IngressReconciler, thing: str) -> list[tuple[str, str, str]]:
    """What `hostler plan` says would be written; `hostler explain` must say the same."""
    registry = Registry()
    IngressExplainers(keeper, lambda: None).register(registry)
    kind, _, name = thing.partition("/")
    try:
        explained, answer = registry.explain(kind, name), registry.plan(kind, name)
    except UnknownName:
        return []
    assert explained == answer
    return [
        (action.verb, action.target.removesuffix(" (status)"), action.why)
        for one in answer.explanations
        for action in one.actions
    ]


def without_namespace(target: str) -> str:
    kind, *_, name = target.split("/")
    return f"{kind}/{name}"


def key_of(keeper: IngressReconciler, thing: str) -> str:
    kind, _, name = thing.partition("/")
    if kind in ("deployment", "daemonset"):
        return next(key for key, _ in keeper.observer.workloads())
    return CLUSTER if kind == "ingress" else f"controller/{name}"


@settings(max_examples=examples(200), deadline=None)
@given(keepers(), st.data())
def test_what_is_planned_is_what_the_controller_sends(
    given: tuple[IngressReconciler, list[str]], data: st.DataObject
) -> None:
    keeper, things = given
    thing = data.draw(st.sampled_from(things))
    sent = writes_of(lambda: keeper.reconcile(key_of(keeper, thing)))
    assert planned(keeper, thing) == [(verb, without_namespace(target), why) for verb, target, why in sent]


def test_a_plan_counts_the_revert_that_the_controller_counts_next() -> None:
    run = DryRun("ingress")
    asked = IngressWorkload(kind="Deployment", namespace="web", name="nginx")
    fleet = Fleet(metadata=Metadata(name="cluster"), spec=FleetSpec(ingress=IngressPolicy(workloads=(asked,))))
    about = {"name": "nginx", "namespace": "web", "uid": "u", "labels": {MARK: MANAGED}}
    undone = read(Placed, metadata=about)
    keeper = reconciler_over(
        run,
        Caches(
            ingress=run.watch(INGRESS, IngressConfig),
            infrastructure=run.watch(INFRASTRUCTURE, Infrastructure),
            controllers=run.watch(INGRESS_CONTROLLER, IngressController),
            deployments=run.watch(DEPLOYMENT, Placed, undone),
            daemon_sets=run.watch(DAEMON_SET, Placed),
            budgets=run.watch(POD_DISRUPTION_BUDGET, PodDisruptionBudget),
            pods=run.watch(POD, Pod),
            nodes=run.watch(NODE, Node, Node(metadata=Metadata(name="cp", labels=NODES["cp"]))),
            fleet=run.watch(FLEET, Fleet, fleet),
        ),
        Options(),
    )
    (write,) = keeper.decide_workload(asked)[1].writes
    placed = read(Placed, **{**write.body, "metadata": {**about, **write.body["metadata"]}})
    sent: list[bool] = []
    for _ in range(RevertLimits().reverts):
        put(keeper.observer.caches.deployments, placed)
        writes_of(lambda: keeper.reconcile("Deployment/web/nginx"))
        put(keeper.observer.caches.deployments, undone)
        sent.append(bool(planned(keeper, "deployment/web/nginx")))
        writes_of(lambda: keeper.reconcile("Deployment/web/nginx"))
        assert bool(planned(keeper, "deployment/web/nginx")) is sent[-1], "the same after the controller counted it"
    assert sent == [True] * (RevertLimits().reverts - 1) + [False]
    reverted = next(one for one in keeper.report.conditions if one.type == "IngressPlacementReverted")
    assert reverted.status == "True"
