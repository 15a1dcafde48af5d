"""A Node as a layer of a host, from what the object itself says. Pure.

Capabilities add their own lines; this is what anybody can read who may list nodes.
"""

from __future__ import annotations

from hostler.host.conditions import cut, names
from hostler.host.facts import Unknown
from hostler.host.holds import MAINTENANCE, Hold, holds_of
from hostler.host.maintenance import HOST, MIGRATED_TO, SINCE, STATE, State
from hostler.instant import parse
from hostler.inventory.model import Holder, Layer, LayerKind, Line, Where, node_key
from hostler.inventory.states import HostState
from hostler.kube.records import CONTROL_PLANE, Condition, Node

ZONE, RACK = "topology.kubernetes.io/zone", "topology.kubernetes.io/rack"
# A node whose first report of Ready came this many seconds after it was created was never Ready before.
FIRST_REPORT_SECONDS = 60.0
MESSAGE_LIMIT = 300
MAINTENANCE_STATES: dict[str, HostState] = {
    State.DRAINING: HostState.DRAINING,
    State.POWERED_OFF: HostState.STOPPED,
    State.MIGRATED: HostState.RETURNING,
}
# Policies that keep a VM off on purpose, and on what it waits.
WAITS = {"wait": "its own ESXi host (policy wait)", "stay-off": "an administrator (policy stay-off)"}
POLICY = "hostler.dev/maintenance-policy"


def node_layer(node: Node, cluster: str) -> Layer:
    holds = holds_of(node)
    known = () if isinstance(holds, Unknown) else holds
    ready = ready_of(node)
    labels = node.metadata.labels
    lines = [_service_line(node, ready, known)]
    if (line := _maintenance_line(node, known)) is not None:
        lines.insert(0, line)
    problems = [] if ready.status != "False" else [f"Ready is False: {_told(ready)}"]
    if isinstance(holds, Unknown):
        problems.append(holds.why)
    return Layer(
        key=node_key(cluster, node.metadata.name),
        kind=LayerKind.NODE,
        name=node.metadata.name,
        lines=tuple(lines),
        where=Where(failure_domain=labels.get(ZONE, ""), rack=labels.get(RACK, "")),
        cluster=cluster,
        node=node.metadata.name,
        holders=tuple(Holder(hold.holder, hold.why, parse(hold.since)) for hold in known),
        problems=tuple(problems),
        labels=labels,
    )


def ready_of(node: Node) -> Condition:
    return next((found for found in node.status.conditions if found.type == "Ready"), Condition(status="Unknown"))


def is_control_plane(node: Node) -> bool:
    return any(role in node.metadata.labels for role in CONTROL_PLANE)


def _service_line(node: Node, ready: Condition, holds: tuple[Hold, ...]) -> Line:
    since = parse(ready.last_transition_time)
    if ready.status == "False":
        if _never_ready(node, since):
            return Line("node", HostState.JOINING, "Its kubelet has not been Ready yet.", since)
        return Line("node", HostState.FAILED, f"Its kubelet is not Ready: {_told(ready)}.", since)
    if ready.status != "True":
        return Line("node", HostState.UNKNOWN, "Its kubelet does not report.", since)
    if not node.spec.unschedulable:
        return Line("node", HostState.IN_SERVICE, "It is Ready and takes pods.", since)
    starts = [start for hold in holds if (start := parse(hold.since)) is not None]
    why = f"It is cordoned and held by {names(hold.holder for hold in holds)}." if holds else "It is cordoned by hand."
    return Line("node", HostState.HELD, why, min(starts, default=None))


def _told(ready: Condition) -> str:
    """In one line and bounded: a kubelet writes it."""
    return cut(" ".join((ready.message or ready.reason).split()), MESSAGE_LIMIT)


def _never_ready(node: Node, since: float | None) -> bool:
    created = parse(node.metadata.creation_timestamp)
    return created is not None and since is not None and since - created <= FIRST_REPORT_SECONDS


def _maintenance_line(node: Node, holds: tuple[Hold, ...]) -> Line | None:
    """From the annotations, so that it is there without an operator."""
    annotations = node.metadata.annotations
    text = annotations.get(STATE, "")
    if not text:
        return None
    host, since = annotations.get(HOST, "an ESXi host"), parse(annotations.get(SINCE))
    state = MAINTENANCE_STATES.get(text)
    if state is None:
        return Line("maintenance", HostState.UNKNOWN, f'The state "{text}" in {STATE} is not known.', since)
    why = {
        HostState.DRAINING: f"ESXi host {host} enters maintenance; its pods are evicted.",
        HostState.STOPPED: f"ESXi host {host} is in maintenance; the VM is off.",
        HostState.RETURNING: f"The VM was started on {annotations.get(MIGRATED_TO) or 'another ESXi host'}.",
    }[state]
    # The hold begins with the maintenance and ends with it; the time of the state is that of its last step.
    began = next((hold.since for hold in holds if hold.holder == MAINTENANCE), "") or annotations.get(SINCE, "")
    waiting = WAITS.get(annotations.get(POLICY, ""), "") if state is HostState.STOPPED else ""
    return Line(
        "maintenance", state, why, since, mid_step=True, operation=f"maintenance/{began}",
        about=annotations.get(HOST, ""), waiting=waiting,
    )  # fmt: skip
