"""An ingress that is no OpenShift router but named by the Fleet (ingress-nginx, Traefik ...): the same rule. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from hostler.apis.fleet import IngressWorkload
from hostler.host.conditions import Condition, Status
from hostler.host.reverts import Revert
from hostler.host.writes import EventNote
from hostler.ingress.conditions import NO_NODE, REFUSED, REVERTED
from hostler.ingress.decide import warnings
from hostler.ingress.model import (
    CONTROL_PLANE,
    OS_LINUX,
    Decision,
    Placed,
    Placement,
    Refusal,
    Step,
    Unreadable,
    Where,
    undecided,
)
from hostler.ingress.placement import (
    control_plane_role,
    control_plane_tolerations,
    describe_selector,
    node_rule,
    required_affinity,
    role_selector,
    role_step,
    rolling_update,
)
from hostler.ingress.placement_patch import Outcome, describe_nodes, fitting_nodes, is_placed_right, put_in_place
from hostler.ingress.refusals import check_workload
from hostler.instant import Instant
from hostler.kube.kinds import DAEMON_SET, DEPLOYMENT
from hostler.kube.records import Node


@dataclass(frozen=True, slots=True)
class WorkloadFacts:
    """What is known of an ingress that the Fleet names."""

    asked: IngressWorkload
    found: Placed | Unreadable | None
    nodes: tuple[Node, ...]
    label: str = ""  # of control-plane nodes, as the Fleet says
    reverts: Sequence[Revert] = ()
    named: Collection[str] = ()  # the workloads that the operator's own setting names


def decide_workload(facts: WorkloadFacts, now: Instant) -> Decision:
    """Decide only where it runs, and its replicas if the Fleet says them; its budget is its owner's.

    One that is refused stays as it is.
    """
    asked, found, nodes = facts.asked, facts.found, facts.nodes
    if isinstance(found, Unreadable):
        return undecided(found)
    current, placed = found, place_workload(asked, found, nodes, facts.label)
    target = f"{asked.kind} {asked.namespace}/{asked.name}"
    if current is None:
        return Decision(f"There is no {target}; it is placed as soon as it is there.", placement=placed)
    refusal = check_workload(asked, current, facts.named)
    if refusal is not None:
        warning = EventNote("Warning", refusal.by, refusal.why)
        return Decision(refusal.why, notices=(warning,), placement=placed, refusal=refusal)
    kind = DAEMON_SET if asked.kind == "DaemonSet" else DEPLOYMENT
    kept = is_placed_right(current, placed, nodes)
    outcome = Outcome(in_place=True) if kept else put_in_place(kind, current, placed, nodes, facts.reverts, now)
    writes = outcome.writes
    where = f"{target} belongs on {placed.where} nodes ({describe_nodes(placed)}; decided by the Fleet)"
    why = f"{where}: {writes[0].why}." if writes else f"{where}, and so it is."
    if kept:
        why = f"{where}, and its owner has placed it there."
    if outcome.no_node or outcome.contest:
        why = f"{where}. {outcome.no_node or outcome.contest}"
    notices = (*warnings(placed, outcome), *(EventNote("Normal", "IngressPlaced", write.why) for write in writes))
    return Decision(why, writes, notices, outcome.wake, placed, outcome.no_node, outcome.contest, outcome.in_place)


def place_workload(asked: IngressWorkload, current: Placed | None, nodes: tuple[Node, ...], label: str) -> Placement:
    """The same rule, without what only OpenShift has: the topology is the number of nodes selected."""
    where = Where.WORKERS if asked.placement == Where.WORKERS else Where.CONTROL_PLANE
    role = control_plane_role(nodes, label, current, otherwise=CONTROL_PLANE)
    selector: dict[str, str] = dict(asked.node_selector)
    decided = Step("nodeSelector", describe_selector(selector), "Fleet, nodeSelector", "it replaces the default")
    affinity: dict[str, Any] = {}
    if not selector and where is Where.WORKERS:
        # Plain Kubernetes has no label for workers: they are the nodes that are not control plane.
        selector, affinity = dict(OS_LINUX), required_affinity(node_rule(role.label, "DoesNotExist"))
        decided = Step("nodeSelector", describe_selector(selector), "default by placement", f"the default for {where}")
    elif not selector:
        selector, decided = role_selector(role), role_step(role)
        affinity = required_affinity(node_rule(role.label, "Exists")) if role.value is None else {}
    there = current.spec.template.spec.tolerations if current is not None else ()
    needed = control_plane_tolerations(label) if where is Where.CONTROL_PLANE else ()
    tolerations = (*there, *(toleration for toleration in needed if toleration not in there))
    fitting = len(fitting_nodes(nodes, selector, affinity, tolerations, passing=False))
    host_network = current is not None and current.spec.template.spec.host_network
    deployment = asked.kind != "DaemonSet"
    steps = (
        Step("placement", where, "Fleet, spec.ingress.workloads", f"it says {where}"),
        decided,
        Step("nodes", str(fitting), "the cluster's nodes", "so many have these labels and no taint in the way"),
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
        strategy=rolling_update("25%", True) if deployment and host_network else {},
        steps=steps,
    )


def fleet_conditions(
    decisions: Sequence[tuple[str, Decision]], template: Refusal | None = None
) -> tuple[Condition, ...]:
    """What the Fleet's status says of what it asks for: nothing where it asks for nothing."""
    if not decisions and template is None:
        return ()
    asked = [*((key, decision.refusal) for key, decision in decisions), ("routerTemplate", template)]
    refused = [(key, refusal) for key, refusal in asked if refusal is not None]
    reasons = {str(refusal.by) for _, refusal in refused}
    by = reasons.pop() if len(reasons) == 1 else "SeveralReasons"
    no_node = [(key, decision.no_node) for key, decision in decisions]
    contested = [(key, decision.contest) for key, decision in decisions]
    sentences = [(key, refusal.why) for key, refusal in refused]
    return (
        _condition(NO_NODE, "NoNodeFits", "A node fits every ingress.", no_node),
        _condition(REVERTED, "Waiting", "No other controller undoes a placement.", contested),
        _condition(REFUSED, by, "Nothing that the Fleet asks for is refused.", sentences),
    )


def _condition(type: str, reason: str, otherwise: str, found: Sequence[tuple[str, object]]) -> Condition:
    bad = [f"{key}: {why}" for key, why in found if why]
    status, reason = (Status.TRUE, reason) if bad else (Status.FALSE, "AsDecided")
    return Condition(type=f"Ingress{type}", status=status, reason=reason, message=" ".join(bad) or otherwise)
