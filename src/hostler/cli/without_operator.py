"""What the objects say where no operator answers: the Fleet's status, pauses, and what is written on nodes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from hostler.apis.fleet import NAME, Fleet
from hostler.cli.cluster import ask_cluster
from hostler.cli.pause_objects import list_pauses
from hostler.cli.printing import print_note
from hostler.errors import Complaint, Exit
from hostler.explain.client import NoOperator
from hostler.explain.registry import Answer, Explanation, FactSeen
from hostler.explain.wire import StatusAnswer
from hostler.host.maintenance import HOST, SINCE, STATE
from hostler.inventory.model import Layer
from hostler.inventory.nodes import node_layer
from hostler.kube.client import Client
from hostler.kube.errors import NotFound
from hostler.kube.kinds import FLEET, NODE
from hostler.kube.records import Node
from hostler.maintenance.status import MaintenanceStatus, Row
from hostler.safety.pause_state import paused_sentence
from hostler.settings.foundation import OPERATOR
from hostler.settings.model import Settings

T = TypeVar("T")
ALL_THAT_IS_KNOWN = "No operator answers. This is what the objects say, and all that is known; it may be old."


def read_instead(settings: Settings, complaint: Complaint, look: Callable[[Client], Awaitable[T]]) -> T:
    """What `look` finds, after the sentence why no operator answers. Any other complaint stands.

    So it does where a URL was given: its operator may be of another cluster. And where nothing can be read either.
    """
    if not isinstance(complaint, NoOperator) or settings[OPERATOR]:
        raise complaint
    try:
        found = ask_cluster(settings, look)
    except Complaint as second:
        raise second if second.code is Exit.REFUSED else complaint from None
    print_note(f"{complaint.sentence} {complaint.hint}".strip())
    return found


async def read_status(client: Client) -> StatusAnswer:
    """The status as its last writer left it, and the pauses that exist now."""
    try:
        status = (await client.get(FLEET, NAME, type=Fleet)).status
    except NotFound:
        status = Fleet().status
    try:
        pauses = await list_pauses(client)
    except NotFound:  # this cluster does not have the kind
        pauses = ()
    pause = paused_sentence(pauses) if pauses else "no Pause exists"
    return StatusAnswer(status.version, "", False, ALL_THAT_IS_KNOWN, False, bool(pauses), pause, status)


async def read_maintenance(client: Client) -> MaintenanceStatus:
    """Every node with a maintenance written on it; what has not begun, and what blocks one, only an operator knows."""
    nodes = await client.list(NODE, type=Node)
    rows = tuple(_row(node) for node in nodes if node.metadata.annotations.get(STATE))
    return MaintenanceStatus(rows, unknown=(ALL_THAT_IS_KNOWN,))


def _row(node: Node) -> Row:
    name, written = node.metadata.name, node.metadata.annotations
    line = next(one for one in node_layer(node, "").lines if one.capability == "maintenance")
    return Row(
        name, "", written.get(HOST, ""), written[STATE], written[STATE], written.get(SINCE, ""), "", "", line.why
    )


async def read_node(client: Client, name: str) -> Answer:
    """What a Node says about itself: whether it serves, who holds it, and the maintenance written on it."""
    try:
        return explain_layer(node_layer(await client.get(NODE, name, type=Node), ""))
    except NotFound:
        raise Complaint(f"There is no node {name} in this cluster.", code=Exit.REFUSED) from None


def explain_layer(layer: Layer) -> Answer:
    facts = (
        *(FactSeen(f"held by {one.name}", one.why) for one in layer.holders),
        *(FactSeen("problem", problem) for problem in layer.problems),
    )
    said = tuple(Explanation(line.capability, f"{line.state}: {line.why}", facts=facts) for line in layer.lines)
    return Answer("node", layer.name, said, (ALL_THAT_IS_KNOWN,))
