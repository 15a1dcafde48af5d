"""The conditions of an IngressController: what `oc describe ingresscontroller` shows at 3 a.m. Pure.

Among them whether the wildcard name of a router still points at a node that runs one; `observe.py` asks the resolver.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hostler.apis.openshift import IngressController
from hostler.host.conditions import Condition, Status, count, names, set_conditions
from hostler.host.facts import Fact, Unknown
from hostler.ingress.model import Contest, NoFittingNode, Placed, Placement, Refusal, Refused
from hostler.ingress.placement import HOST_NETWORK, describe_selector, least_available
from hostler.instant import Instant
from hostler.kube import records
from hostler.kube.records import Node

ADMITTED, AVAILABLE, PROGRESSING, DEGRADED = "Admitted", "Available", "Progressing", "Degraded"
DEPLOYMENT, FEWEST, ALL, ROLLING_OUT = (
    "DeploymentAvailable", "DeploymentReplicasMinAvailable", "DeploymentReplicasAllAvailable", "DeploymentRollingOut",
)  # fmt: skip
FALLBACK, WILDCARD = "DefaultPlacementIgnored", "WildcardReachesRouter"
NO_NODE, REVERTED, REFUSED = "NoFittingNode", "PlacementReverted", "Refused"
OURS = (
    ADMITTED, DEPLOYMENT, FEWEST, ALL, ROLLING_OUT, AVAILABLE, PROGRESSING, DEGRADED, FALLBACK, WILDCARD, NO_NODE,
    REVERTED,
)  # fmt: skip
# How long each may be untrue before the controller counts as degraded.
GRACE: Mapping[str, float] = {DEPLOYMENT: 30.0, FEWEST: 60.0, ALL: 3600.0}
NO_TEMPLATE = "NoRouterTemplate"


@dataclass(frozen=True, slots=True)
class Seen:
    """What the conditions are made from."""

    controller: IngressController
    placement: Placement | Refused | None  # None: unknown yet; `unplaced` says why
    router: Placed | None
    waiting: tuple[str, ...] = ()  # pods that have no node
    astray: tuple[str, ...] = ()  # nodes with a pod that the placement does not select
    pointing: Pointing | None = None
    unplaced: str = ""
    no_template: bool = False
    refusal: Refusal | None = None  # why the template there is makes no router
    no_node: NoFittingNode | None = None
    contest: Contest | None = None
    since: Mapping[str, Instant] | None = None  # when we ourselves first saw a condition untrue


def decide_conditions(seen: Seen, now: Instant) -> tuple[Sequence[Condition], float | None]:
    """Our conditions as they ought to be, and in how many seconds a grace ends that is running now."""
    ours = [condition for condition in seen.controller.status.conditions if condition.type in OURS]
    before = {condition.type: _read(condition) for condition in ours}
    made = [_admitted(seen), *_deployment(seen, before.get(ROLLING_OUT))]
    degraded, wake = _degraded(seen, {condition.type: condition for condition in made}, before.get(DEGRADED), now)
    made += [_available(made), _progressing(made), degraded, *_placement_warnings(seen, before)]
    return set_conditions(list(before.values()), made, now), wake


def conditions_body(conditions: Sequence[Condition], foreign: Sequence[records.Condition]) -> list[dict[str, Any]]:
    """The list as the status wants it: others' conditions first and untouched, then ours in a fixed order."""
    kept = [
        {
            "type": condition.type,
            "status": condition.status,
            **({"reason": condition.reason} if condition.reason else {}),
            **({"message": condition.message} if condition.message else {}),
            **({"lastTransitionTime": condition.last_transition_time} if condition.last_transition_time else {}),
        }
        for condition in foreign
        if condition.type not in OURS
    ]
    ordered = sorted(conditions, key=lambda condition: OURS.index(condition.type))
    return kept + [
        {
            "type": condition.type,
            "status": str(condition.status),
            "reason": condition.reason,
            "message": condition.message,
            "lastTransitionTime": condition.last_transition_time,
        }
        for condition in ordered
    ]


def _read(found: records.Condition) -> Condition:
    status = Status(found.status) if found.status in list(Status) else Status.UNKNOWN
    return Condition(
        type=found.type, status=status, reason=found.reason, message=found.message,
        last_transition_time=found.last_transition_time or "",
    )  # fmt: skip


def _admitted(seen: Seen) -> Condition:
    if isinstance(seen.placement, Refused):
        return _condition(ADMITTED, Status.FALSE, "Invalid", seen.placement.why)
    if seen.placement is None:
        return _condition(ADMITTED, Status.UNKNOWN, "NotKnown", seen.unplaced)
    return _condition(ADMITTED, Status.TRUE, "Valid", "Its fields can be turned into a router.")


def _deployment(seen: Seen, rolling: Condition | None) -> list[Condition]:
    placement, router = seen.placement, seen.router
    if router is None:
        reason, why = "NoDeployment", "There is no router Deployment yet."
        if seen.no_template:
            reason = NO_TEMPLATE
            why = (
                "There is no router Deployment and nothing to make one from: set Fleet.spec.ingress.routerTemplate, or "
                "give the operator --ingress-router-image."
            )
        if seen.refusal is not None:
            reason, why = str(seen.refusal.by), f"There is no router Deployment. {seen.refusal.why}"
        untrue = [_condition(type, Status.FALSE, reason, why) for type in (DEPLOYMENT, FEWEST, ALL)]
        return [*untrue, _condition(ROLLING_OUT, Status.FALSE, reason, why)]
    status = router.status
    wanted = router.spec.replicas if router.spec.replicas is not None else 1
    least = least_available(placement) if isinstance(placement, Placement) and placement.replicas == wanted else wanted
    have = (
        f"{status.available_replicas} of {count(wanted, 'router pod')} available{_refused(router)}{_why_not_all(seen)}"
    )
    return [
        _available_deployment(router, have),
        _when(FEWEST, status.available_replicas >= least, "TooFew", f"{have}, at least {least} wanted."),
        _when(ALL, status.available_replicas >= wanted, "SomeMissing", f"{have}."),
        _rolling(router, rolling),
    ]


def _available_deployment(router: Placed, have: str) -> Condition:
    found = next((condition for condition in router.status.conditions if condition.type == "Available"), None)
    if found is None or found.status not in ("True", "False"):
        why = "The Deployment does not say whether it is available."
        return _condition(DEPLOYMENT, Status.UNKNOWN, "AvailabilityUnknown", why)
    if found.status == "True":
        return _condition(DEPLOYMENT, Status.TRUE, "Available", "The Deployment is available.")
    return _condition(DEPLOYMENT, Status.FALSE, "Unavailable", f"The Deployment is not available: {have}.")


def _rolling(router: Placed, before: Condition | None) -> Condition:
    status, wanted = router.status, router.spec.replicas if router.spec.replicas is not None else 1
    if status.observed_generation < router.metadata.generation and before is not None:
        # Even an annotation changes a Deployment's generation; until its controller has looked, nothing new is known.
        return before
    updated, why = status.updated_replicas, ""
    if updated < wanted:
        why = f"{updated} of {count(wanted, 'pod')} updated, {status.replicas} in all{_refused(router)}."
    elif status.replicas > updated:
        why = f"{count(status.replicas - updated, 'pod')} of an older revision still to end."
    elif status.available_replicas < updated:
        why = f"{status.available_replicas} of {count(updated, 'updated pod')} available."
    if why:
        return _condition(ROLLING_OUT, Status.TRUE, "RollingOut", why)
    return _condition(ROLLING_OUT, Status.FALSE, "RolledOut", "Every router pod is of the latest revision.")


def _refused(router: Placed) -> str:
    """Why its pods cannot be created, as the API server put it: a quota, a missing service account."""
    found = next((condition for condition in router.status.conditions if condition.type == "ReplicaFailure"), None)
    return f"; {found.message.rstrip('.')}" if found is not None and found.status == "True" and found.message else ""


def _why_not_all(seen: Seen) -> str:
    if not seen.waiting:
        return ""
    where = f" with {describe_selector(seen.placement.node_selector)}" if isinstance(seen.placement, Placement) else ""
    return f"; {count(len(seen.waiting), 'pod')} waiting for a node{where} that has room and no other taint"


def _available(made: Sequence[Condition]) -> Condition:
    for condition in made:
        if condition.type in (ADMITTED, DEPLOYMENT) and condition.status is not Status.TRUE:
            return _condition(AVAILABLE, Status.FALSE, condition.reason, condition.message)
    return _condition(AVAILABLE, Status.TRUE, "Available", "The router is available.")


def _progressing(made: Sequence[Condition]) -> Condition:
    rolling = next(condition for condition in made if condition.type == ROLLING_OUT)
    return _condition(PROGRESSING, rolling.status, rolling.reason, rolling.message)


def _degraded(
    seen: Seen, made: Mapping[str, Condition], before: Condition | None, now: Instant
) -> tuple[Condition, float | None]:
    """Degraded when a condition was not True for longer than its own grace, by our own clock, until it is True again.

    Its reason names that condition: a new leader has seen nothing for long, so what its predecessor found counts on,
    but only for the same condition. One that is mended does not keep the controller degraded for another's sake.
    """
    if made[ADMITTED].status is Status.FALSE:
        return _condition(DEGRADED, Status.TRUE, ADMITTED, made[ADMITTED].message), None
    found = before.reason if before is not None and before.status is Status.TRUE else ""
    untrue = [type for type in GRACE if made[type].status is not Status.TRUE]
    left = {type: GRACE[type] - (now - (seen.since or {}).get(type, now)) for type in untrue}
    over = [type for type in untrue if left[type] <= 0 or type == found]
    wakes = [left[type] for type in untrue if type not in over]
    if over:
        message = " ".join(dict.fromkeys(made[type].message for type in over))
        return _condition(DEGRADED, Status.TRUE, over[0], message), min(wakes, default=None)
    if seen.astray:
        message = (
            f"A router pod runs on {names(seen.astray)}, where it does not belong; it is replaced by the roll-out."
        )
        return _condition(DEGRADED, Status.FALSE, "Astray", message), min(wakes, default=None)
    message = "Nothing is amiss." if not untrue else "Something is amiss, but not for long enough to say so."
    return _condition(DEGRADED, Status.FALSE, "AsExpected", message), min(wakes, default=None)


def _placement_warnings(seen: Seen, before: Mapping[str, Condition]) -> list[Condition]:
    """There only where they mean something: once they were there, until they are untrue."""
    made = []
    if isinstance(seen.placement, Placement):
        if seen.placement.warning:
            made.append(_condition(FALLBACK, Status.TRUE, "ExternalControlPlane", seen.placement.warning))
        elif FALLBACK in before:
            made.append(_condition(FALLBACK, Status.FALSE, "AsDecided", "The default placement is followed."))
        for type, reason, why, otherwise in (
            (NO_NODE, "NoNodeFits", seen.no_node, "A node fits the placement."),
            (REVERTED, "Waiting", seen.contest, "No other controller undoes the placement."),
        ):
            if why is not None:
                made.append(_condition(type, Status.TRUE, reason, str(why)))
            elif type in before:
                made.append(_condition(type, Status.FALSE, "AsDecided", otherwise))
    if seen.pointing is not None:
        made.append(_condition(WILDCARD, seen.pointing.status, seen.pointing.reason, seen.pointing.why))
    return made


def _when(type: str, holds: bool, otherwise: str, message: str) -> Condition:
    return _condition(type, Status.TRUE if holds else Status.FALSE, "AsWanted" if holds else otherwise, message)


def _condition(type: str, status: Status, reason: str, message: str) -> Condition:
    return Condition(type=type, status=status, reason=reason, message=message)


# Any label answers for a wildcard; this one names the client in DNS logs.
PROBE = "hostler-wildcard-check"


@dataclass(frozen=True, slots=True)
class Pointing:
    """Whether traffic that follows the name reaches a router, as a condition says it."""

    status: Status
    reason: str
    why: str


def judge_wildcard(
    domain: str, published: str, addresses: Fact[tuple[str, ...]], nodes: Sequence[Node], running: Collection[str]
) -> Pointing | None:
    """Judge the name; None where there is nothing to judge. `running` are the nodes with a ready router pod.

    Only a router on its nodes' own ports is reached at a node's address; what points elsewhere (a load balancer)
    is not known to be right or wrong.
    """
    if not domain or published != HOST_NETWORK:
        return None
    name = f"*.{domain}"
    if isinstance(addresses, Unknown):
        return Pointing(Status.UNKNOWN, "NotResolved", f"Cannot tell where {name} points: {addresses.why}")
    at = {node.metadata.name: _addresses(node) for node in nodes}
    found = {_same(address) for address in addresses.value}
    hit = sorted(node for node, own in at.items() if own & found)
    elsewhere = sorted(found - {address for own in at.values() for address in own})
    if not hit:
        message = f"{name} points at {names(elsewhere)}, which is no node's address: a load balancer, or a mistake."
        return Pointing(Status.UNKNOWN, "NotANode", message)
    without = [node for node in hit if node not in running]
    if without:
        here = f"Routers run on {names(running)}." if running else "No router is ready anywhere."
        message = (
            f"{name} points at {names(without)}, where no router is ready. {here} Traffic that goes there is lost."
        )
        return Pointing(Status.FALSE, "NoRouterThere", message)
    return Pointing(Status.TRUE, "RouterThere", f"{name} points at {names(hit)}, where a router is ready.")


def _addresses(node: Node) -> set[str]:
    return {_same(address.address) for address in node.status.addresses if address.type in ("InternalIP", "ExternalIP")}


def _same(address: str) -> str:
    """One spelling per address; what is none stays as it is."""
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        return address
