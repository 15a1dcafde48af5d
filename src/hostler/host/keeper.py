"""Keeps holds true: observes held nodes, lets `host.holds` decide, writes what it decided.

Also `hold` and `release` for whoever asks directly (`hostler hold NODE`): read, decide, write, and once more from the
start if somebody else wrote first.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from hostler.errors import Complaint, Exit
from hostler.host.conditions import Condition, Status, node_condition_patch
from hostler.host.facts import Unknown
from hostler.host.holds import (
    HOLDS,
    Change,
    Nothing,
    Patch,
    Refusal,
    holds_of,
    keep,
    may_hold,
    may_release,
    overridden,
    place,
    release,
)
from hostler.instant import Instant
from hostler.kube.cache import Cache
from hostler.kube.client import Client, How
from hostler.kube.errors import Conflict, NotFound
from hostler.kube.kinds import NODE, Kind
from hostler.kube.records import Identity, Node
from hostler.kube.writer import Writer

# Every conflict means that somebody's write got through, so a storm of N writers ends after N rounds.
ATTEMPTS = 50
OVERRIDDEN = "HoldOverridden"
UNREADABLE = "HoldUnreadable"

Clock: TypeAlias = Callable[[], Instant]


class Recorder(Protocol):
    """Kubernetes Events; `kube.events` has the real one."""

    def event(
        self,
        kind: Kind,
        metadata: Identity,
        type: Literal["Normal", "Warning"],
        reason: str,
        action: str,
        note: str,
        *,
        refusing: str = "",
    ) -> None: ...


class Keeper:
    """Watches over held nodes: cordons again once what was uncordoned by hand, then says that it was overruled."""

    def __init__(self, nodes: Cache[Node], writer: Writer, recorder: Recorder, clock: Clock) -> None:
        self._nodes = nodes
        self._writer = writer
        self._recorder = recorder
        self._clock = clock

    def concerns(self, node: Node) -> bool:
        """Whether a node is worth a look: it is held, or still says that a hold was overruled or cannot be read."""
        return HOLDS in node.metadata.annotations or any(
            condition.type in (OVERRIDDEN, UNREADABLE) and condition.status == Status.TRUE
            for condition in node.status.conditions
        )

    async def reconcile(self, key: str) -> float | None:
        """Look at one node afresh. A Conflict is the caller's to retry: the watch brings what we did not know."""
        node = self._nodes.store.get(key)
        if node is None or not self.concerns(node):
            return None
        match keep(node, self._clock()):
            case Patch(body, why):
                written = await self._nodes.patch(self._writer, key, body, why=why)
                if written is not None:
                    self._tell(written, why)
                    node = written
            case Nothing() | Refusal():
                pass
        await self._show(node)
        return None

    def _tell(self, node: Node, why: str) -> None:
        again = node.spec.unschedulable
        self._recorder.event(NODE, node.metadata, "Warning", "CordonedAgain" if again else OVERRIDDEN, "Hold", why)

    async def _show(self, node: Node) -> None:
        """The node's conditions say what the annotation means; each is derived, so a crash before it loses nothing."""
        for wanted in conditions_of(node):
            patch = node_condition_patch(node, wanted, self._clock())
            known = any(condition.type == wanted.type for condition in node.status.conditions)
            if patch is None or (not known and wanted.status is Status.FALSE):
                continue
            shown = await self._nodes.patch(
                self._writer, node.metadata.name, patch, why=wanted.message, how=How.STRATEGIC, subresource="status"
            )
            node = shown or node
            if wanted.type == UNREADABLE and wanted.status is Status.TRUE:
                about = node.metadata
                self._recorder.event(NODE, about, "Warning", UNREADABLE, "Hold", wanted.message, refusing="holds")


def conditions_of(node: Node) -> tuple[Condition, ...]:
    """What a node's holds have to say beyond themselves; on an unreadable list nothing but that."""
    holds = holds_of(node)
    name = node.metadata.name
    if isinstance(holds, Unknown):
        return (Condition(type=UNREADABLE, status=Status.TRUE, reason="BadAnnotation", message=f"{holds.why}."),)
    readable = Condition(type=UNREADABLE, status=Status.FALSE, reason="Readable", message="")
    yielded = tuple(hold for hold in holds if hold.yielded)
    if yielded:
        message = overridden(name, yielded)
        return readable, Condition(type=OVERRIDDEN, status=Status.TRUE, reason="UncordonedByHand", message=message)
    return readable, Condition(type=OVERRIDDEN, status=Status.FALSE, reason="HoldsStand", message="")


@dataclass(frozen=True, slots=True)
class Done:
    """What came of a request: the sentence, whether anything was written, and the node as it is now.

    `already`: there was nothing to write, also in a dry run, which writes nothing either.
    """

    why: str
    changed: bool
    node: Node
    already: bool = False


async def hold(
    client: Client,
    writer: Writer,
    node: str,
    holder: str,
    why: str,
    clock: Clock,
    *,
    capabilities: Collection[str],
    also: Mapping[str, str | None] | None = None,
) -> Done:
    """Hold a node in a person's name, which is none of `capabilities`. A refusal is raised as a Complaint."""
    refusal = may_hold(holder, capabilities)

    def decide(found: Node) -> Change:
        return refusal or place(found, holder, why, clock(), also=also, anew=True)

    return await _change(client, writer, node, decide)


async def let_go(
    client: Client, writer: Writer, node: str, who: str, *, holder: str = "", everybody: bool = False
) -> Done:
    """Release a person's own hold; `holder` names somebody else's, `everybody` means all. Refusals are Complaints."""

    def decide(found: Node) -> Change:
        refusal = may_release(found, who, holder=holder, everybody=everybody)
        return refusal or release(found, None if everybody else holder or who)

    return await _change(client, writer, node, decide)


async def _change(client: Client, writer: Writer, name: str, decide: Callable[[Node], Change]) -> Done:
    """Read, decide, write; from the start again when somebody wrote in between."""
    for attempt in range(ATTEMPTS):
        try:
            node = await client.get(NODE, name, type=Node)
            match decide(node):
                case Refusal(why):
                    raise Complaint(why, code=Exit.REFUSED)
                case Nothing(why):
                    return Done(why, False, node, already=True)
                case Patch(body, why):
                    written = await writer.patch(NODE, name, body, type=Node, why=why)
                    return Done(why, written is not None, written or node)
        except Conflict:
            await asyncio.sleep(random.random() * min(0.02 * 2**attempt, 0.5))  # nosec B311 # jitter
        except NotFound:
            raise Complaint(
                f"There is no node {name} in this cluster.", hint="See: kubectl get nodes", code=Exit.REFUSED
            ) from None
    raise Complaint(
        f"{name} was not changed: other writers were faster {ATTEMPTS} times in a row.",
        hint="Try again; if it lasts, see who writes to it: kubectl get node --watch.",
        code=Exit.REFUSED,
    )
