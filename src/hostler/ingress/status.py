"""What others see: metrics, and what `hostler ingress status` shows from one look at a cluster without an operator."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec
import structlog
from prometheus_client import Counter, Gauge

from hostler.apis.fleet import NAME, Fleet, IngressPolicy, IngressWorkload
from hostler.apis.openshift import (
    INFRASTRUCTURE,
    INGRESS,
    INGRESS_CONTROLLER,
    Infrastructure,
    IngressConfig,
    IngressController,
)
from hostler.host.conditions import Condition, Status, count
from hostler.host.facts import Fact, Known
from hostler.ingress.conditions import PROBE, Pointing
from hostler.ingress.decide import Facts, astray, decide, waiting
from hostler.ingress.model import CLUSTER, CONTROLLERS_IN, ROUTERS_IN, Decision, Placed, Placement, RefusedBy
from hostler.ingress.observe import View, domain_of, facts_of, is_ready, pods_counted, pods_of_workload, resolve_name
from hostler.ingress.placement_patch import selects
from hostler.ingress.refusals import WORKLOADS_SETTING
from hostler.ingress.workloads import WorkloadFacts, decide_workload
from hostler.kube.client import Client
from hostler.kube.errors import NotFound
from hostler.kube.kinds import DAEMON_SET, DEPLOYMENT, FLEET, NODE, POD, POD_DISRUPTION_BUDGET
from hostler.kube.metrics import Metrics
from hostler.kube.records import Node, Pod, PodDisruptionBudget, key_of

log = structlog.get_logger("hostler.ingress")

_WHATS = ("wanted", "available", "waiting", "astray")


class IngressMetrics:
    """One set of series per ingress: the name of an IngressController, or `Deployment/NAMESPACE/NAME`."""

    def __init__(self, metrics: Metrics) -> None:
        registry = metrics.registry
        self._routers = Gauge(
            "hostler_ingress_routers", "Pods of an ingress, by their state.", ["controller", "what"], registry=registry
        )
        self._no_node = Gauge(
            "hostler_ingress_no_fitting_node", "1: no node fits where it belongs.", ["controller"], registry=registry
        )
        self._wildcard = Gauge(
            "hostler_ingress_wildcard_reaches_router", "1: it does, 0: traffic is lost, -1: unknown.", ["controller"],
            registry=registry,
        )  # fmt: skip
        self._reverts = Counter(
            "hostler_ingress_reverts", "How often another controller undid a placement.", ["controller"],
            registry=registry,
        )  # fmt: skip
        self._refused = Gauge(
            "hostler_ingress_refused", "1: what the Fleet asks for is refused, and by which rule.",
            ["controller", "reason"], registry=registry,
        )  # fmt: skip
        self._known: set[str] = set()

    def count(self, name: str, available: int, wanted: int, waiting: int = 0, astray: int = 0) -> None:
        self._known.add(name)
        for what, number in zip(_WHATS, (wanted, available, waiting, astray), strict=True):
            self._routers.labels(name, what).set(number)

    def show(self, name: str, decision: Decision) -> None:
        self._known.add(name)
        self._no_node.labels(name).set(decision.no_node is not None)
        by = decision.refusal.by if decision.refusal is not None else None
        for reason in RefusedBy:
            self._refused.labels(name, reason).set(reason is by)
        self._reverts.labels(name)  # there as 0, so that Prometheus sees the first one

    def point(self, name: str, pointing: Pointing | None) -> None:
        """None: there is nothing to judge, such as behind a load balancer."""
        if pointing is None:
            _remove(self._wildcard, name)
            return
        self._wildcard.labels(name).set({Status.TRUE: 1, Status.FALSE: 0}.get(pointing.status, -1))

    def reverted(self, name: str) -> None:
        self._reverts.labels(name.removeprefix("controller/")).inc()

    def forget(self, name: str) -> None:
        if name in self._known:
            self._known.discard(name)
            for what in _WHATS:
                _remove(self._routers, name, what)
            _remove(self._no_node, name)
            _remove(self._wildcard, name)
            for reason in RefusedBy:
                _remove(self._refused, name, reason)
            # The counter stays: one that begins again at 0 hides what it counted.

    def clear(self) -> None:
        for name in tuple(self._known):
            self.forget(name)


def _remove(gauge: Gauge, *labels: str) -> None:
    gauge.labels(*labels)  # a series that was never set cannot be removed
    gauge.remove(*labels)


class IngressReport:
    """Reports decisions: metrics, the log, and conditions in the Fleet's status."""

    def __init__(self, metrics: Metrics, changed: Callable[[], None]) -> None:
        """`changed` is called when our conditions in the Fleet's status changed."""
        self.conditions: tuple[Condition, ...] = ()
        self.metrics = IngressMetrics(metrics)
        self._changed = changed
        self._warned: set[tuple[str, str]] = set()

    def set_conditions(self, conditions: tuple[Condition, ...]) -> None:
        if conditions != self.conditions:
            self.conditions = conditions
            self._changed()

    def show_router(self, name: str, facts: Facts, decision: Decision) -> None:
        placed, router = decision.placement, facts.router
        available = router.status.available_replicas if router is not None else 0
        wanted = placed.replicas or 0 if placed is not None else 0
        self.metrics.count(name, available, wanted, len(waiting(facts.pods)), len(astray(facts, placed)))
        self.metrics.show(name, decision)
        self.metrics.point(name, facts.pointing)

    def show_workload(self, key: str, current: Placed | None, decision: Decision) -> None:
        self.metrics.show(key, decision)
        self.metrics.count(key, *pods_counted(current))

    def warn(self, name: str, note: str) -> None:
        """Logged once; the Event counts the repeats."""
        if (name, note) not in self._warned:
            self._warned.add((name, note))
            log.warning("ingress cannot be as it is asked for", name=name, why=note)


class IngressLine(msgspec.Struct, rename="camel", frozen=True):
    """One ingress: where it belongs, what decided that, where it is, and what is wrong, if anything."""

    name: str
    placement: str
    decided_by: str
    replicas: str
    pods: tuple[str, ...]
    state: str
    wildcard: str = ""
    namespace: str = ""


async def status_of(client: Client, *, resolving: bool, named: tuple[str, ...] = ()) -> list[IngressLine]:
    """Every ingress of the cluster, IngressControllers first. `named`: workloads that the operator's setting names."""
    controllers = await _controllers(client)
    view = await _view(client, controllers)
    lines = [await _router(view, controller, resolving) for controller in controllers]
    return lines + [_workload(view, asked, named) for asked in view.policy.workloads]


async def _controllers(client: Client) -> list[IngressController]:
    try:
        found = await client.list(INGRESS_CONTROLLER, CONTROLLERS_IN, type=IngressController)
    except NotFound:
        return []  # no OpenShift
    return sorted(found, key=lambda controller: controller.metadata.name)


async def _view(client: Client, controllers: list[IngressController]) -> View:
    fleet = await client.find(FLEET, NAME, type=Fleet)
    policy = fleet.spec.ingress if fleet is not None else IngressPolicy()
    deployments = await client.list(DEPLOYMENT, ROUTERS_IN, type=Placed) if controllers else []
    daemon_sets: list[Placed] = []
    for asked in policy.workloads:
        kind, into = (DAEMON_SET, daemon_sets) if asked.kind == "DaemonSet" else (DEPLOYMENT, deployments)
        found = await client.find(kind, asked.name, asked.namespace, type=Placed)
        into += [found] if found is not None else []
    budgets = await client.list(POD_DISRUPTION_BUDGET, ROUTERS_IN, type=PodDisruptionBudget) if controllers else []
    pods: list[Pod] = []
    for namespace in sorted({workload.metadata.namespace for workload in (*deployments, *daemon_sets)}):
        pods += await client.list(POD, namespace, type=Pod)
    return View(
        ingress=await client.find(INGRESS, CLUSTER, type=IngressConfig),
        infrastructure=await client.find(INFRASTRUCTURE, CLUSTER, type=Infrastructure),
        controller={key_of(controller.metadata): controller for controller in controllers}.get,
        deployment={key_of(deployment.metadata): deployment for deployment in deployments}.get,
        daemon_set={key_of(daemon_set.metadata): daemon_set for daemon_set in daemon_sets}.get,
        budget={key_of(budget.metadata): budget for budget in budgets}.get,
        pods=pods,
        nodes=tuple(await client.list(NODE, type=Node)),
        policy=policy,
    )


async def _router(view: View, controller: IngressController, resolving: bool) -> IngressLine:
    name, now = controller.metadata.name, time.time()
    domain = domain_of(controller, view.ingress)
    addresses: Fact[tuple[str, ...]] | None = None
    if view.policy.wildcard_addresses:
        addresses = Known(view.policy.wildcard_addresses, now)
    elif resolving and domain:
        addresses = await resolve_name(f"{PROBE}.{domain}", now)
    facts = facts_of(view, controller, addresses)
    decision = decide(facts, view.rules(), now)
    placed = decision.placement
    available = facts.router.status.available_replicas if facts.router is not None else 0
    return IngressLine(
        name=f"ingresscontroller/{name}",
        placement=str(placed.where) if placed is not None else "not decided",
        decided_by=placed.steps[0].decided_by if placed is not None else decision.why,
        replicas=f"{available} of {placed.replicas}" if placed is not None else str(available),
        pods=_pods(view, facts.pods, placed),
        state=_state(controller),
        wildcard=facts.pointing.why if facts.pointing is not None else "",
        namespace=CONTROLLERS_IN,
    )


def _workload(view: View, asked: IngressWorkload, named: tuple[str, ...]) -> IngressLine:
    found, label = view.workload(asked), view.policy.control_plane_label
    decision = decide_workload(WorkloadFacts(asked, found, view.nodes, label, named=named), time.time())
    current, placed = (found if isinstance(found, Placed) else None), decision.placement
    available, wanted = pods_counted(current)
    state = decision.why
    if not named and decision.refusal is not None:
        state = (
            f"{state} That is unless the operator's {WORKLOADS_SETTING} names it: give it here by --ingress-workloads."
        )
    if available < wanted:
        state = f"Only {available} of {count(wanted, 'pod')} available. {state}"
    return IngressLine(
        name=f"{asked.kind.lower()}/{asked.namespace}/{asked.name}",
        placement=str(placed.where) if placed is not None else "not decided",
        decided_by="the Fleet, spec.ingress.workloads",
        replicas=f"{available} of {wanted}",
        pods=_pods(view, pods_of_workload(view.pods, current), placed),
        state=state,
        namespace=asked.namespace,
    )


def _pods(view: View, pods: tuple[Pod, ...], placed: Placement | None) -> tuple[str, ...]:
    labels = {node.metadata.name: node.metadata.labels for node in view.nodes}
    return tuple(describe_pod(pod, labels.get(pod.spec.node_name), placed) for pod in pods)


def _state(controller: IngressController) -> str:
    """The first thing an on-call engineer wants to read."""
    shown = {condition.type: condition for condition in controller.status.conditions}
    for type, bad in (("Admitted", "False"), ("Degraded", "True"), ("Available", "False"), ("Progressing", "True")):
        if type in shown and shown[type].status == bad:
            return f"{type} is {bad}: {shown[type].message}"
    return "as expected" if shown else "its status is not written yet"


def describe_pod(pod: Pod, labels: dict[str, str] | None, placed: Placement | None) -> str:
    """A sentence: where a pod is."""
    if pod.metadata.deletion_timestamp:
        return f"ending on {pod.spec.node_name or 'no node'}"
    if not pod.spec.node_name:
        return "waiting: no node has the labels, the room and no taint in the way"
    state = "ready" if is_ready(pod) else "not ready"
    if labels is None:
        return f"{state} on {pod.spec.node_name}, which is not in the cluster any more"
    fits = placed is None or selects(placed, pod.spec.node_name, labels)
    return f"{state} on {pod.spec.node_name}, {'where it belongs' if fits else 'where it does not belong'}"
