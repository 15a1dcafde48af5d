"""What to do about one IngressController: its router, its budget, its status. Pure.

Invariant: writes are derived from the difference between what is and what ought to be, so a second pass over the
outcome of the first writes nothing, and a pass cut off anywhere is taken up by the next.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hostler.apis.openshift import INGRESS_CONTROLLER, Infrastructure, IngressConfig, IngressController
from hostler.host.conditions import Condition
from hostler.host.reverts import Revert
from hostler.host.writes import EventNote, Verb, Write
from hostler.ingress import conditions
from hostler.ingress.conditions import Pointing
from hostler.ingress.model import (
    CONTROLLERS_IN,
    MANAGED_BY,
    OWNING_LABEL,
    POD_LABEL,
    ROUTERS_IN,
    Decision,
    Placed,
    Placement,
    Refusal,
    Refused,
    Unreadable,
    undecided,
)
from hostler.ingress.placement import HOST_NETWORK, place, publishing, router_pod_selector, selector_body
from hostler.ingress.placement_patch import PLACEMENT_FIELDS, Outcome, describe_nodes, put_in_place, selects
from hostler.instant import Instant
from hostler.kube.kinds import DEPLOYMENT, POD_DISRUPTION_BUDGET
from hostler.kube.records import Node, Pod, PodDisruptionBudget, PodPhase


@dataclass(frozen=True, slots=True)
class Facts:
    """All that is known about one IngressController."""

    controller: IngressController
    ingress: IngressConfig | None
    infrastructure: Infrastructure | None
    nodes: tuple[Node, ...]
    router: Placed | None
    budget: PodDisruptionBudget | None
    pods: tuple[Pod, ...]
    pointing: Pointing | None = None
    since: Mapping[str, Instant] | None = None
    reverts: tuple[Revert, ...] = ()  # when we saw the router's placement undone
    unreadable: Unreadable | None = None  # one of the objects above


@dataclass(frozen=True, slots=True)
class Policy:
    """What the owner set: the control-plane label, and what a router is created from where there is none."""

    label: str = ""
    template: Mapping[str, Any] | None = None
    refusal: Refusal | None = None  # why the Fleet's own template is not used; no other one replaces it


def router_name(controller: str) -> str:
    return f"router-{controller}"


def decide(facts: Facts, policy: Policy, now: Instant) -> Decision:
    """Place one router, keep its budget, and say how it is.

    Never changes an IngressController's spec; changes nothing at all while the topology is not known.
    """
    controller, router = facts.controller, facts.router
    name = controller.metadata.name
    if facts.unreadable is not None:
        return undecided(facts.unreadable)
    if controller.metadata.deletion_timestamp:
        return Decision(f"IngressController {name} is being deleted; its router is left alone")
    missing = [what for what, found in _needed(facts) if found is None]
    if facts.infrastructure is None or missing:
        why = f"There is no {' and no '.join(missing)} named cluster, so nothing is decided and nothing is placed."
        return _with_status(Decision(why), facts, None, why, now)
    placed = place(facts.ingress, facts.infrastructure, controller, facts.nodes, configured=policy.label, router=router)
    if isinstance(placed, Refused):
        refused = Decision(placed.why, notices=(EventNote("Warning", "InvalidPlacement", placed.why),))
        return _with_status(refused, facts, placed, "", now)
    outcome = _router(facts, placed, policy, now)
    refusal = policy.refusal if router is None else None
    budget = _budget(facts, placed)
    writes = (*outcome.writes, *(() if outcome.contest else budget))
    notices = (
        *warnings(placed, outcome),
        *((EventNote("Warning", refusal.by, refusal.why),) if refusal is not None else ()),
        *(EventNote("Normal", "RouterPlaced", write.why) for write in writes if write.kind is DEPLOYMENT),
    )
    why = f"{_why(name, placed, router, writes, outcome)}{f' {refusal.why}' if refusal is not None else ''}"
    in_place = outcome.in_place and not budget
    decided = Decision(why, writes, notices, outcome.wake, placed, outcome.no_node, outcome.contest, in_place, refusal)
    return _with_status(decided, facts, placed, "", now, policy)


def _needed(facts: Facts) -> tuple[tuple[str, object], ...]:
    """What the installation left behind. Without an Ingress, Workers would be a guess that moves a pinned router."""
    return (("Ingress", facts.ingress), ("Infrastructure", facts.infrastructure))


def warnings(placed: Placement, outcome: Outcome) -> tuple[EventNote, ...]:
    """What an Event warns of."""
    given = (
        ("ExternalControlPlane", placed.warning),
        (conditions.NO_NODE, outcome.no_node),
        (conditions.REVERTED, outcome.contest),
    )
    return tuple(EventNote("Warning", reason, str(note)) for reason, note in given if note)


def _why(name: str, placed: Placement, router: Placed | None, writes: tuple[Write, ...], outcome: Outcome) -> str:
    by = placed.steps[0].decided_by
    where = f"{name} belongs on {placed.where} nodes ({describe_nodes(placed)}; decided by {by})"
    if outcome.no_node or outcome.contest:
        return f"{where}. {outcome.no_node or outcome.contest}"
    if writes:
        return f"{where}: {writes[0].why}."
    return f"{where}, and so it is." if router is not None else f"{where}, but there is nothing to make a router from."


# -- the router's Deployment


def _router(facts: Facts, placed: Placement, policy: Policy, now: Instant) -> Outcome:
    name = router_name(facts.controller.metadata.name)
    if facts.router is None:
        body = router_body(facts, policy, placed)
        if body is None:
            return Outcome()
        why = f"there is no router Deployment yet; its pods belong on {placed.where} nodes"
        return Outcome((Write(Verb.CREATE, DEPLOYMENT, name, why, ROUTERS_IN, body),))
    return put_in_place(DEPLOYMENT, facts.router, placed, facts.nodes, facts.reverts, now)


def router_body(facts: Facts, policy: Policy, placed: Placement) -> dict[str, Any] | None:
    """A router Deployment without its placement, and so without pods; None where there is no template.

    The placement follows by server-side apply, which can take back only what it said itself: what is created here stays
    until its owner changes it. Without replicas no pod starts before it is known where.
    """
    if policy.template is None or facts.infrastructure is None:
        return None
    name = facts.controller.metadata.name
    labels = {POD_LABEL: name}
    template = dict(policy.template)
    meta = dict(template.get("metadata") or {})
    pod = {key: value for key, value in dict(template.get("spec") or {}).items() if key not in PLACEMENT_FIELDS}
    if publishing(facts.controller, facts.infrastructure) == HOST_NETWORK:
        pod |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    return {
        "metadata": {
            "name": router_name(name),
            "namespace": ROUTERS_IN,
            "labels": {OWNING_LABEL: name, MANAGED_BY: "hostler"},
        },
        "spec": {
            "replicas": 0,
            # A load balancer needs some health checks to find a new router; a single one has no other to wait for.
            "minReadySeconds": 0 if placed.single else 30,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {**meta, "labels": {**dict(meta.get("labels") or {}), **labels}}, "spec": pod},
        },
    }


# -- its disruption budget


def _budget(facts: Facts, placed: Placement) -> tuple[Write, ...]:
    controller, current = facts.controller.metadata.name, facts.budget
    name = router_name(controller)
    if placed.budget is None:
        if current is None or current.metadata.labels.get(MANAGED_BY) != "hostler":
            return ()
        why = "a single router needs no disruption budget; it would only hold drains up"
        return (Write(Verb.DELETE, POD_DISRUPTION_BUDGET, name, why, ROUTERS_IN, uid=current.metadata.uid),)
    if facts.router is None:
        return ()  # its selector is the Deployment's
    pods = router_pod_selector(controller, facts.router)
    if current is not None and _as_wanted(current, placed.budget, pods):
        return ()
    body = {
        "metadata": {
            "name": name,
            "namespace": ROUTERS_IN,
            "labels": {MANAGED_BY: "hostler", OWNING_LABEL: controller},
        },
        "spec": {"maxUnavailable": placed.budget, "selector": pods, "unhealthyPodEvictionPolicy": "AlwaysAllow"},
    }
    why = f"at most {placed.budget} of {placed.replicas} router pods may be evicted at a time"
    return (Write(Verb.APPLY, POD_DISRUPTION_BUDGET, name, why, ROUTERS_IN, body),)


def _as_wanted(current: PodDisruptionBudget, most: int | str, pods: Mapping[str, Any]) -> bool:
    spec = current.spec
    return (
        spec.max_unavailable == most
        and spec.unhealthy_pod_eviction_policy == "AlwaysAllow"
        and spec.selector is not None
        and selector_body(spec.selector) == pods
        and current.metadata.labels.get(MANAGED_BY) == "hostler"
    )


# -- its status


def _with_status(
    decision: Decision,
    facts: Facts,
    placed: Placement | Refused | None,
    unplaced: str,
    now: Instant,
    policy: Policy | None = None,
) -> Decision:
    controller, router = facts.controller, facts.router
    seen = conditions.Seen(
        controller, placed, router, waiting=waiting(facts.pods), astray=astray(facts, placed),
        pointing=facts.pointing, unplaced=unplaced, since=facts.since,
        no_template=router is None and policy is not None and policy.template is None,
        refusal=decision.refusal,
        no_node=decision.no_node,
        contest=decision.contest,
    )  # fmt: skip
    made, grace = conditions.decide_conditions(seen, now)
    wake = min((seconds for seconds in (grace, decision.wake) if seconds is not None), default=None)
    status: dict[str, Any] = {}
    listed = conditions.conditions_body(made, controller.status.conditions)
    if listed != conditions.conditions_body((), ()) and not _same_conditions(controller, made):
        status["conditions"] = listed
    if controller.status.observed_generation != controller.metadata.generation:
        status["observedGeneration"] = controller.metadata.generation
    if router is not None:
        status |= _counted(controller, router)
    status |= _published(facts)
    if not status:
        return _replace(decision, wake=wake)
    name, namespace = controller.metadata.name, controller.metadata.namespace or CONTROLLERS_IN
    # The version: others write conditions into the same list, and a late patch must not undo theirs.
    body = {"metadata": {"resourceVersion": controller.metadata.resource_version}, "status": status}
    write = Write(Verb.PATCH, INGRESS_CONTROLLER, name, "its status changed", namespace, body, subresource="status")
    return _replace(decision, wake=wake, writes=(*decision.writes, write))


def _replace(decision: Decision, *, wake: float | None, writes: tuple[Write, ...] | None = None) -> Decision:
    return dataclasses.replace(decision, wake=wake, writes=decision.writes if writes is None else writes)


def _same_conditions(controller: IngressController, made: Iterable[Condition]) -> bool:
    ours = [condition for condition in controller.status.conditions if condition.type in conditions.OURS]
    before = {condition.type: condition for condition in ours}
    after = list(made)
    return len(before) == len(after) and all(
        (old := before.get(condition.type)) is not None
        and (old.status, old.reason, old.message) == (str(condition.status), condition.reason, condition.message)
        for condition in after
    )


def _counted(controller: IngressController, router: Placed) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if controller.status.available_replicas != router.status.available_replicas:
        found["availableReplicas"] = router.status.available_replicas
    selector = ",".join(f"{key}={value}" for key, value in sorted(router.spec.selector.match_labels.items()))
    if selector and controller.status.selector != selector:
        found["selector"] = selector
    return found


def _published(facts: Facts) -> dict[str, Any]:
    """Domain and publishing strategy are written once, where missing: they say what was in force from the start."""
    controller, found = facts.controller, dict[str, Any]()
    domain = controller.spec.domain or (facts.ingress.spec.domain if facts.ingress is not None else "")
    if domain and not controller.status.domain:
        found["domain"] = domain
    if controller.status.endpoint_publishing_strategy is None and facts.infrastructure is not None:
        found["endpointPublishingStrategy"] = {"type": publishing(controller, facts.infrastructure)}
    return found


def waiting(pods: Iterable[Pod]) -> tuple[str, ...]:
    """Router pods that no node was found for."""
    return tuple(
        sorted(
            pod.metadata.name
            for pod in pods
            if pod.status.phase is PodPhase.PENDING and not pod.spec.node_name and not pod.metadata.deletion_timestamp
        )
    )


def astray(facts: Facts, placed: Placement | Refused | None) -> tuple[str, ...]:
    """Nodes that run a router pod although the placement does not select them."""
    if not isinstance(placed, Placement):
        return ()
    fit = {node.metadata.name for node in facts.nodes if selects(placed, node.metadata.name, node.metadata.labels)}
    there = {pod.spec.node_name for pod in facts.pods if pod.spec.node_name and not pod.metadata.deletion_timestamp}
    return tuple(sorted(there - fit))
