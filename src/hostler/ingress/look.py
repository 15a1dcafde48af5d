"""One look at a cluster, for the CLI: the same view the operator has, without an operator."""

from __future__ import annotations

import time
from typing import TypeVar

import msgspec

from hostler.apis.fleet import NAME, Fleet, IngressPolicy, IngressWorkload
from hostler.apis.openshift import (
    INFRASTRUCTURE,
    INGRESS,
    INGRESS_CONTROLLER,
    Infrastructure,
    IngressConfig,
    IngressController,
)
from hostler.host.conditions import count
from hostler.host.facts import Fact, Known
from hostler.ingress.decide import decide
from hostler.ingress.explain import describe_pod
from hostler.ingress.lookup import resolve
from hostler.ingress.marking import SETTING
from hostler.ingress.model import CLUSTER, CONTROLLERS_IN, ROUTERS_IN, Placed, Placement
from hostler.ingress.observe import View, domain_of, facts_of, pods_counted, pods_of
from hostler.ingress.wildcard import PROBE
from hostler.ingress.workloads import decide_workload
from hostler.kube.client import Client
from hostler.kube.errors import NotFound
from hostler.kube.kinds import DAEMON_SET, DEPLOYMENT, FLEET, NODE, POD, POD_DISRUPTION_BUDGET, Kind
from hostler.kube.records import Node, Pod, PodDisruptionBudget, key_of

T = TypeVar("T")


class Line(msgspec.Struct, rename="camel", frozen=True):
    """One ingress: where it belongs, what decided that, where it is, and what is wrong, if anything."""

    name: str
    placement: str
    decided_by: str
    replicas: str
    pods: tuple[str, ...]
    state: str
    wildcard: str = ""


async def status_of(client: Client, *, resolving: bool, named: tuple[str, ...] = ()) -> list[Line]:
    """Every ingress of the cluster, IngressControllers first. `named`: workloads that the operator's setting names."""
    controllers = await _controllers(client)
    view = await _view(client, controllers)
    lines = [await _router(view, one, resolving) for one in controllers]
    return lines + [_workload(view, asked, named) for asked in view.policy.workloads]


async def _controllers(client: Client) -> list[IngressController]:
    try:
        found = await client.list(INGRESS_CONTROLLER, CONTROLLERS_IN, type=IngressController)
    except NotFound:
        return []  # no OpenShift
    return sorted(found, key=lambda one: one.metadata.name)


async def _one(client: Client, kind: Kind, name: str, namespace: str | None, type: type[T]) -> T | None:
    """What is not there is not there; what may not be read is an error."""
    try:
        return await client.get(kind, name, namespace, type=type)
    except NotFound:
        return None


async def _view(client: Client, controllers: list[IngressController]) -> View:
    fleet = await _one(client, FLEET, NAME, None, Fleet)
    policy = fleet.spec.ingress if fleet is not None else IngressPolicy()
    deployments = await client.list(DEPLOYMENT, ROUTERS_IN, type=Placed) if controllers else []
    daemon_sets: list[Placed] = []
    for asked in policy.workloads:
        kind, into = (DAEMON_SET, daemon_sets) if asked.kind == "DaemonSet" else (DEPLOYMENT, deployments)
        found = await _one(client, kind, asked.name, asked.namespace, Placed)
        into += [found] if found is not None else []
    budgets = await client.list(POD_DISRUPTION_BUDGET, ROUTERS_IN, type=PodDisruptionBudget) if controllers else []
    pods: list[Pod] = []
    for namespace in sorted({one.metadata.namespace for one in (*deployments, *daemon_sets)}):
        pods += await client.list(POD, namespace, type=Pod)
    return View(
        ingress=await _one(client, INGRESS, CLUSTER, None, IngressConfig),
        infrastructure=await _one(client, INFRASTRUCTURE, CLUSTER, None, Infrastructure),
        controller={key_of(one.metadata): one for one in controllers}.get,
        deployment={key_of(one.metadata): one for one in deployments}.get,
        daemon_set={key_of(one.metadata): one for one in daemon_sets}.get,
        budget={key_of(one.metadata): one for one in budgets}.get,
        pods=pods,
        nodes=tuple(await client.list(NODE, type=Node)),
        policy=policy,
    )


async def _router(view: View, controller: IngressController, resolving: bool) -> Line:
    name, now = controller.metadata.name, time.time()
    domain = domain_of(controller, view.ingress)
    addresses: Fact[tuple[str, ...]] | None = None
    if view.policy.wildcard_addresses:
        addresses = Known(view.policy.wildcard_addresses, now)
    elif resolving and domain:
        addresses = await resolve(f"{PROBE}.{domain}", now)
    facts = facts_of(view, controller, addresses)
    decision = decide(facts, view.rules(), now)
    placed = decision.placement
    available = facts.router.status.available_replicas if facts.router is not None else 0
    return Line(
        name=f"ingresscontroller/{name}",
        placement=str(placed.where) if placed is not None else "not decided",
        decided_by=placed.steps[0].decided_by if placed is not None else decision.why,
        replicas=f"{available} of {placed.replicas}" if placed is not None else str(available),
        pods=_pods(view, facts.pods, placed),
        state=_state(controller),
        wildcard=facts.pointing.why if facts.pointing is not None else "",
    )


def _workload(view: View, asked: IngressWorkload, named: tuple[str, ...]) -> Line:
    found, label = view.workload(asked), view.policy.control_plane_label
    decision = decide_workload(asked, found, view.nodes, label, time.time(), named=named)
    current, placed = (found if isinstance(found, Placed) else None), decision.placement
    available, wanted = pods_counted(current)
    state = decision.why
    if not named and decision.refusal is not None:
        state = f"{state} That is unless the operator's {SETTING} names it: give it here by --ingress-workloads."
    if available < wanted:
        state = f"Only {available} of {count(wanted, 'pod')} available. {state}"
    return Line(
        name=f"{asked.kind.lower()}/{asked.namespace}/{asked.name}",
        placement=str(placed.where) if placed is not None else "not decided",
        decided_by="the Fleet, spec.ingress.workloads",
        replicas=f"{available} of {wanted}",
        pods=_pods(view, pods_of(view.pods, current), placed),
        state=state,
    )


def _pods(view: View, pods: tuple[Pod, ...], placed: Placement | None) -> tuple[str, ...]:
    labels = {node.metadata.name: node.metadata.labels for node in view.nodes}
    return tuple(describe_pod(pod, labels.get(pod.spec.node_name), placed) for pod in pods)


def _state(controller: IngressController) -> str:
    """The first thing an on-call engineer wants to read."""
    said = {one.type: one for one in controller.status.conditions}
    for type, bad in (("Admitted", "False"), ("Degraded", "True"), ("Available", "False"), ("Progressing", "True")):
        if type in said and said[type].status == bad:
            return f"{type} is {bad}: {said[type].message}"
    return "as expected" if said else "nobody has written its status yet"
