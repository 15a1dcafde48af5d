"""An ingress that is no OpenShift router but named by the Fleet (ingress-nginx, Traefik ...): the same rule. Pure."""

from __future__ import annotations

from typing import Any

from hostler.fleet.model import IngressWorkload
from hostler.ingress.apply import apply
from hostler.ingress.model import CONTROL_PLANE, OS_LINUX, Decision, News, Placed, Placement, Step, Where
from hostler.ingress.placement import control_plane_label, control_plane_tolerations, rolling, words
from hostler.kube.kinds import DAEMON_SET, DEPLOYMENT
from hostler.kube.records import Node


def decide_workload(
    asked: IngressWorkload, current: Placed | None, nodes: tuple[Node, ...], label: str
) -> tuple[Decision, Placement]:
    """Decide only where it runs, and its replicas if the Fleet says them; its budget is its owner's."""
    placed = place_workload(asked, current, nodes, label)
    target = f"{asked.kind} {asked.namespace}/{asked.name}"
    if current is None:
        return Decision(f"There is no {target}; it is placed as soon as it is there.", placement=placed), placed
    kind = DAEMON_SET if asked.kind == "DaemonSet" else DEPLOYMENT
    writes = apply(kind, current, placed)
    where = f"{target} belongs on {placed.where} nodes ({words(placed.node_selector)}; decided by the Fleet)"
    why = f"{where}: {writes[0].why}." if writes else f"{where}, and so it is."
    news = tuple(News("Normal", "IngressPlaced", one.why) for one in writes)
    return Decision(why, writes, news, placement=placed), placed


def place_workload(asked: IngressWorkload, current: Placed | None, nodes: tuple[Node, ...], label: str) -> Placement:
    """The same rule, without what only OpenShift has: the topology is the number of nodes selected."""
    where = Where.WORKERS if asked.placement == Where.WORKERS else Where.CONTROL_PLANE
    role = control_plane_label(nodes, label, current, otherwise=CONTROL_PLANE)
    selector: dict[str, str] = dict(asked.node_selector)
    decided = Step("nodeSelector", words(selector), "Fleet, nodeSelector", "it replaces the default")
    affinity: dict[str, Any] = {}
    if not selector:
        selector = {**OS_LINUX, **({role: ""} if where is Where.CONTROL_PLANE else {})}
        decided = Step("nodeSelector", words(selector), "default by placement", f"the default for {where}")
        if where is Where.WORKERS:
            # Plain Kubernetes has no label for workers: they are the nodes that are not control plane.
            term = {"matchExpressions": [{"key": role, "operator": "DoesNotExist"}]}
            affinity = {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
            }
    there = current.spec.template.spec.tolerations if current is not None else ()
    needed = control_plane_tolerations(label) if where is Where.CONTROL_PLANE else ()
    tolerations = (*there, *(one for one in needed if one not in there))
    fitting = sum(selector.items() <= node.metadata.labels.items() for node in nodes)
    host_network = current is not None and current.spec.template.spec.host_network
    deployment = asked.kind != "DaemonSet"
    steps = (
        Step("placement", where, "Fleet, spec.ingress.workloads", f"it says {where}"),
        decided,
        Step("nodes", str(fitting), "the cluster's nodes", "so many have these labels"),
    )
    return Placement(
        where=where,
        single=fitting == 1,
        node_selector=selector,
        tolerations=tolerations,
        affinity=affinity,
        spread=(),
        replicas=asked.replicas if deployment else None,
        # A pod on the host's network waits for ever for ports its predecessor holds; elsewhere the owner's strategy is
        # as good as ours.
        strategy=rolling("25%", True) if deployment and host_network else {},
        steps=steps,
    )
