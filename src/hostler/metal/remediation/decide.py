"""The one decision about a Metal3Machine in any state: the operator, `explain` and `plan` ask this. Pure."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from hostler.apis import capi, metal3
from hostler.apis.metal3 import BareMetalHost
from hostler.host.conditions import names as listed
from hostler.host.taints import out_of_service
from hostler.instant import Instant, iso, parse
from hostler.kube.records import Node
from hostler.metal import names
from hostler.metal.model import Write, patch_host
from hostler.metal.remediation.model import (
    FAILED,
    GIVEN_UP,
    HOST_UNHEALTHY,
    REBOOT,
    RUNNING,
    WAITING,
    NodeOut,
    Remediation,
    RemediationFacts,
    Step,
    is_tainted_for,
)

HARD_OFF = '{"mode":"hard"}'
UNHEALTHY_VALUE = "capm3/UnhealthyNode"
OWNER_REMEDIATED = "OwnerRemediated"
# So long a workload cluster that does not answer is asked for the node before the reboot goes on without the taint:
# its API server may run on this very host.
NODE_PATIENCE_SECONDS = 60.0
LOOK_SECONDS = 5.0  # how often other clusters, which we do not watch, are asked
UNREADABLE_SECONDS = 60.0  # and a host that cannot be read: that it can be again may wake nobody
# Of the time of one attempt: the node is given the first half to become empty, and a host that is powered on in the
# last quarter (it was slow, or everything was paused meanwhile) is given all of it once more to come up.
EMPTYING, TOO_LATE = 0.5, 0.25
RUNS = ("provisioned", "externally provisioned")


def decide_remediation(facts: RemediationFacts, now: Instant) -> Step:
    """One remediation's next step. Safe to repeat after a crash at any point."""
    remediation, host = facts.remediation, facts.host
    cluster, phase = facts.cluster, remediation.status.phase
    if capi.PAUSED in remediation.metadata.annotations or (cluster is not None and cluster.spec.paused):
        return Step("It is paused, or its Cluster is; nothing is done.")
    if facts.unreadable:
        return Step(facts.unreadable, event="HostUnreadable", warning=True, wake=UNREADABLE_SECONDS)
    if remediation.metadata.deletion_timestamp:
        return _end(facts)
    if phase == GIVEN_UP:
        return _tidied(facts, "It was given up; the machine's owner replaces the machine.")
    if phase == FAILED:
        return _tidied(facts, "Its host was switched off (spec.online is false); there is nothing to mend.")
    if facts.owner is None or facts.machine is None:
        return Step("It waits for its Machine and Metal3Machine.")
    if facts.leaving:
        # The host goes to another machine before this remediation goes; it must not be kept off by then.
        why = "Its machine is being deleted; there is nothing to mend."
        return Step(why, _let_on(facts, why))
    if host is None:
        return Step(f"Metal3Machine {facts.machine.metadata.name} has no host; there is nothing to reboot.")
    if remediation.spec.strategy.type not in (REBOOT, ""):
        why = f"Its strategy is {remediation.spec.strategy.type}; the only one known is {REBOOT}."
        return Step(why, event="UnknownStrategy", warning=True)
    if not host.spec.online:
        why = f"Host {host.metadata.name} is switched off (spec.online is false); it is not rebooted."
        writes = (*_let_on(facts, why), _status(remediation, why, phase=FAILED))
        return Step(why, writes, event="NotRemediated", warning=True)
    if why := _held_by_people(host):
        return Step(why)
    if phase == RUNNING:
        return _running(facts, host, now)
    if phase == WAITING:
        return _waiting(facts, host, now)
    why = f"Host {host.metadata.name} is to be rebooted."
    return Step(why, (_status(remediation, why, phase=RUNNING, lastRemediated=iso(now)),))


def _held_by_people(host: BareMetalHost) -> str:
    annotations = host.metadata.annotations
    if names.PAUSED in annotations:
        by = annotations[names.PAUSED] or "another party"
        return f"Host {host.metadata.name} is paused by {by}; it cannot be rebooted."
    if names.DETACHED in annotations:
        return f"Host {host.metadata.name} is detached; it cannot be rebooted."
    return ""


def is_off(host: BareMetalHost) -> bool:
    """Known to be off. A failing host's power is that of the last time its BMC answered, a moving one's is stale."""
    return not host.status.powered_on and not host.failing and host.state in RUNS


# -- off, and out of service


def _running(facts: RemediationFacts, host: BareMetalHost, now: Instant) -> Step:
    remediation, name = facts.remediation, host.metadata.name
    left = _left(remediation, now)
    asked = remediation.power_off in host.metadata.annotations
    if not (remediation.kept and asked):
        if left <= 0:
            why = f"Nothing was done about host {name} in the time of this attempt; the attempt begins again."
            return _well(facts, host) or Step(why, (_status(remediation, why, lastRemediated=iso(now)),))
        why = f"Host {name} is powered off."
        writes = [] if remediation.kept else [_finalized(remediation, True, why)]
        writes += [] if asked else [_on_host(host, {remediation.power_off: HARD_OFF}, why)]
        return Step(why, tuple(writes), event="PoweringOff", wake=_later(left))
    if is_off(host):
        why = f"Host {name} says that it is off; that is believed once it has stayed so for some seconds."
        return _off(facts, host, now) if facts.fresh else Step(why, wake=LOOK_SECONDS)
    if left <= 0:
        return _well(facts, host) or _again(facts, host, now)
    reports = f", which reports {host.status.error_type}: {host.status.error_message}" if host.failing else ""
    state = "" if host.state in RUNS else f" It is {host.state or 'new'}."
    return Step(f"It waits until host {name} is off{reports}.{state}", wake=_later(left))


def _off(facts: RemediationFacts, host: BareMetalHost, now: Instant) -> Step:
    """Its host is off: the node is emptied, for half of the time at most; then it is powered on."""
    remediation, name, node = facts.remediation, host.metadata.name, facts.node
    if node is None:
        return Step(f"Host {name} is off; its node is looked at.", look=True)
    left = _left(remediation, now)
    late = left <= remediation.spec.strategy.timeout_seconds * EMPTYING
    if not late and (step := _out_of_service(node, now, parse(remediation.status.last_remediated))) is not None:
        return step
    what = ""
    if node.left:
        what = f", though its node is not empty: {listed(node.left)}"
    elif node.node is not None and out_of_service(node.node):
        what = "; nothing is left on its node"
    why = f"Host {name} is off and is powered on again{what}."
    again = {"lastRemediated": iso(now)} if left < remediation.spec.strategy.timeout_seconds * TOO_LATE else {}
    # The phase first: were the annotation gone and the phase not written, it would be powered off once more.
    writes = (_status(remediation, why, phase=WAITING, **again), _on_host(host, {remediation.power_off: None}, why))
    # A volume that is still attached must not be torn off a host that is on: the taint goes before the host comes.
    taint = _untaint(facts) if node.left else None
    return Step(why, writes, taint=taint, event="PoweringOn", wake=_later(left))


def _out_of_service(node: NodeOut, now: Instant, since: Instant | None) -> Step | None:
    """What is still to be done with the node of a host that is off; None: nothing."""
    if node.why:
        if since is not None and now - since < NODE_PATIENCE_SECONDS:
            return Step(f"Its node is not known: {node.why}", wake=LOOK_SECONDS)
        return None  # without the taint its pods stay where they are: slower, but no harm
    if node.node is None:
        return None
    name = node.node.metadata.name
    if not out_of_service(node.node):
        return Step(f"Node {name} is put out of service: its host is off.", taint=True, event="OutOfService", wake=1.0)
    if node.left:
        return Step(f"Node {name} is not empty yet: {listed(node.left)}.", wake=LOOK_SECONDS)
    return None


# -- on again


def _waiting(facts: RemediationFacts, host: BareMetalHost, now: Instant) -> Step:
    remediation, name = facts.remediation, host.metadata.name
    left = _left(remediation, now)
    if remediation.power_off in host.metadata.annotations:
        why = f"Host {name} is powered on again."
        return Step(why, (_on_host(host, {remediation.power_off: None}, why),), wake=_later(left))
    if left <= 0:
        return _well(facts, host) or _again(facts, host, now)
    if not host.status.powered_on:
        return Step(f"It waits until host {name} is on.", wake=_later(left))
    if not remediation.kept:
        why = f"Host {name} was rebooted; it waits until the health check ends the remediation."
        return Step(why, wake=_later(left))
    return _in_service(facts, f"Host {name} was rebooted; its node is in service.", "Rebooted", _later(left))


def _in_service(facts: RemediationFacts, why: str, event: str = "", wake: float | None = None) -> Step:
    """The host is on: the node loses our taint, and the remediation may go at any time."""
    if facts.node is None:
        return Step("Its host is on; its node is looked at.", look=True)
    if facts.node.why:
        return Step(f"Its node is not known: {facts.node.why}", wake=LOOK_SECONDS)
    writes = (_finalized(facts.remediation, False, why),)
    return Step(why, writes, taint=_untaint(facts), event=event, wake=wake)


def _well(facts: RemediationFacts, host: BareMetalHost) -> Step | None:
    """The time of one attempt is over, but its node is Ready, or not known: nothing more is done. None: it is neither.

    While a Cluster is paused nobody ends a remediation that has helped long ago.
    """
    node, remediation = facts.node, facts.remediation
    if node is None:
        return Step(f"The time of this attempt is over; the node of host {host.metadata.name} is looked at.", look=True)
    if node.why and node.silent < NODE_PATIENCE_SECONDS:
        return Step(f"Its node is not known: {node.why}", wake=LOOK_SECONDS)
    if node.node is None or not _ready(node.node):
        return None
    why = f"Node {node.node.metadata.name} is Ready; it waits until the health check ends the remediation."
    if remediation.status.phase == WAITING and remediation.kept and host.status.powered_on:
        return _in_service(facts, why, "Rebooted", LOOK_SECONDS)
    return Step(why, wake=LOOK_SECONDS)


def _ready(node: Node) -> bool:
    return any(one.type == "Ready" and one.status == "True" for one in node.status.conditions)


def _untaint(facts: RemediationFacts) -> bool | None:
    """Whether there is a taint of ours to be taken off; one that another party put there stays."""
    node = facts.node.node if facts.node is not None else None
    return False if node is not None and is_tainted_for(node, facts.remediation) else None


def _again(facts: RemediationFacts, host: BareMetalHost, now: Instant) -> Step:
    """The time of one attempt is over: one more, or the end of it."""
    remediation, name = facts.remediation, host.metadata.name
    strategy, tried = remediation.spec.strategy, remediation.status.retry_count
    if tried < strategy.retry_limit:
        why = f"The node of host {name} was not healthy after {strategy.timeout_seconds} s; it is rebooted once more."
        change = _status(remediation, why, phase=RUNNING, lastRemediated=iso(now), retryCount=tried + 1)
        return Step(why, (change,), event="Retrying", warning=True)
    why = f"Host {name} is marked as unhealthy: its node did not come back after {tried + 1} reboots."
    assert facts.owner is not None
    # The mark first: once the owner knows, the machine goes, and its host must not be given to another.
    has = host.metadata.annotations
    marks: dict[str, str | None] = {} if names.UNHEALTHY[0] in has else {names.UNHEALTHY[0]: UNHEALTHY_VALUE}
    if remediation.power_off in has:
        marks[remediation.power_off] = None
    writes = (
        *((_on_host(host, marks, why),) if marks else ()),
        _handed_over(facts.owner.metadata.name, remediation.metadata.namespace, now),
        _status(remediation, why, phase=GIVEN_UP),
    )
    return Step(why, writes, event=HOST_UNHEALTHY, warning=True)


# -- the end


def _end(facts: RemediationFacts) -> Step:
    """It is being deleted, at whatever point: the host may go on again and its node is in service."""
    remediation = facts.remediation
    if not remediation.kept:
        return Step("It goes.")
    why = "The remediation is over."
    writes = list(_let_on(facts, why))
    if not facts.leaving:  # the node of a machine that goes is taken away with it
        if facts.node is None:
            return Step("It is over; its node is looked at.", look=True)
        if facts.node.why:
            return Step(f"Its node is not known: {facts.node.why}", tuple(writes), wake=LOOK_SECONDS)
    writes.append(_finalized(remediation, False, why))
    return Step(why, tuple(writes), taint=None if facts.leaving else _untaint(facts))


def _tidied(facts: RemediationFacts, why: str) -> Step:
    """Nothing more is tried: its host is not kept off, and once that is on its node loses our taint."""
    if writes := _let_on(facts, why):
        return Step(why, writes)
    if not facts.remediation.kept or facts.leaving or facts.host is None or not facts.host.status.powered_on:
        return Step(why)
    return _in_service(facts, why)


def _let_on(facts: RemediationFacts, why: str) -> tuple[Write, ...]:
    """No host is kept off by this remediation any more."""
    return tuple(_on_host(one, {facts.remediation.power_off: None}, why) for one in facts.held)


# -- small change


def count_from_step(remediation: Remediation, stepped: Instant) -> Remediation:
    """With an attempt that began no earlier than the clock was set forward: a host on its way up is not rebooted, nor
    given up, because of a time that never passed."""
    since = parse(remediation.status.last_remediated)
    if since is None or since >= stepped:
        return remediation
    return replace(remediation, status=replace(remediation.status, last_remediated=iso(stepped)))


def _left(remediation: Remediation, now: Instant) -> float:
    """Seconds until this attempt is over."""
    since = parse(remediation.status.last_remediated)
    return (since if since is not None else now) + remediation.spec.strategy.timeout_seconds - now


def _later(left: float) -> float:
    """When to look again; an attempt whose time is over is no reason to look without a pause."""
    return max(left, LOOK_SECONDS)


def _status(remediation: Remediation, why: str, **status: Any) -> Write:
    meta = remediation.metadata
    return Write(
        metal3.METAL3_REMEDIATION, meta.name, meta.namespace, {"status": status}, why, subresource="status",
        version=meta.resource_version,
    )  # fmt: skip


def _finalized(remediation: Remediation, kept: bool, why: str) -> Write:
    meta = remediation.metadata
    finalizers = [one for one in meta.finalizers if one != names.REMEDIATION_FINALIZER]
    finalizers += [names.REMEDIATION_FINALIZER] if kept else []
    body = {"metadata": {"finalizers": finalizers}}
    return Write(metal3.METAL3_REMEDIATION, meta.name, meta.namespace, body, why, version=meta.resource_version)


def _on_host(host: BareMetalHost, annotations: dict[str, str | None], why: str) -> Write:
    return patch_host(host, {"metadata": {"annotations": annotations}}, why)


def _handed_over(machine: str, namespace: str, now: Instant) -> Write:
    """The condition by which Cluster API's owners of machines are told to replace one. Applied: the rest is others'."""
    condition = {
        "type": OWNER_REMEDIATED, "status": "False", "reason": "WaitingForRemediation",
        "message": "Rebooting its host did not help.", "lastTransitionTime": iso(now),
    }  # fmt: skip
    why = "its owner is to replace it"
    return Write(
        capi.MACHINE, machine, namespace, {"status": {"conditions": [condition]}}, why, subresource="status",
        verb="apply",
    )  # fmt: skip
