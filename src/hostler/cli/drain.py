"""How a person's `hostler drain` goes: the same hold, the same decisions and the same ceiling as the operator's.

Of several nodes all are held first, so that no pod moves to one that is emptied next; then one after the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hostler.apis.fleet import NAME, Fleet, FleetSpec, Pause
from hostler.capabilities import BY_NAME
from hostler.cli.node_results import Ended, one_by_one, refused
from hostler.cli.pause_objects import list_pauses
from hostler.cli.printing import escape_controls, print_note, print_table
from hostler.drain.executor import Executor
from hostler.drain.loop import drain
from hostler.drain.model import Act, Decision, Policy, State
from hostler.drain.observe import ATTACHMENT_INDEXES, POD_INDEXES, Sources
from hostler.errors import Complaint, Exit
from hostler.fleet.controller import effective_limit
from hostler.host import keeper
from hostler.host.ceiling import overrun, room
from hostler.host.conditions import names
from hostler.host.holds import lost
from hostler.kube.budget import WriteBudget
from hostler.kube.client import Client, Gate
from hostler.kube.errors import NotFound
from hostler.kube.kinds import DAEMON_SET, FLEET, NODE, PAUSE, POD, POD_DISRUPTION_BUDGET, VOLUME_ATTACHMENT
from hostler.kube.metrics import Metrics
from hostler.kube.records import Node, Pod, PodDisruptionBudget, VolumeAttachment, Workload
from hostler.kube.self_review import who_am_i
from hostler.kube.watch import FRESH_SECONDS, Watch
from hostler.kube.writer import Writer
from hostler.safety.pause_state import paused_sentence
from hostler.safety.pauses import read_pauses
from hostler.settings.foundation import DRAIN_REFUSE_EMPTY_DIR, DRAIN_REFUSE_UNMANAGED, MAX_UNAVAILABLE
from hostler.settings.model import Settings

SYNC_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Asked:
    """What the person asked for, of every node."""

    why: str
    timeout: float
    beyond_ceiling: bool
    even_if_paused: bool
    dry_run: bool


def writer_of(client: Client, dry_run: bool, gate: Gate = lambda: None) -> Writer:
    """A writer in a person's own name: they decided, so only what they were not asked about holds it back."""
    return Writer(client, "cli", gate=gate, budget=WriteBudget(), dry_run=dry_run)


@dataclass(frozen=True, slots=True)
class Standing:
    """Whether a drain may go on: the stop button, and whether the node is still held by whoever drains it."""

    nodes: Watch[Node]
    pauses: Watch[Pause] | None  # None: the person drains even while Hostler is paused
    dry_run: bool = False

    def refusal(self, node: str, who: str) -> str | None:
        """The gate of each eviction. A pause is waited out; a lost hold ends the drain."""
        if self.pauses is not None and (pause := read_pauses(self.pauses)).stopped:
            return pause.why
        if (age := self.nodes.age()) is None or age > FRESH_SECONDS:
            return f"Whether {node} is still held is not known: {self.nodes.problem or 'nothing was heard of it'}."
        return self.lost(node, who)

    def lost(self, node: str, who: str) -> str | None:
        """Why the node is no longer ours to empty; a dry run holds nothing that could be lost."""
        return None if self.dry_run else lost(self.nodes.store.get(node), node, who)


async def hold_nodes(
    client: Client, nodes: Sequence[str], who: str, why: str, limit: str | None, *, dry_run: bool
) -> list[Ended]:
    """Hold each node. `limit` is MAX_UNAVAILABLE as this person has set it; None goes beyond any.

    Whether all of them may go is asked before the first is held, and once more afterwards: another user may have held
    others meanwhile, and then as many as are too many go back.
    """
    writer = writer_of(client, dry_run)

    async def hold(node: str) -> Ended:
        done = await keeper.hold(client, writer, node, who, why, time.time, capabilities=BY_NAME)
        said = f"{'Would be: ' if dry_run and not done.already else ''}{done.why}."
        return Ended(node, "held already" if done.already else "held", said, data={"changed": done.changed})

    if limit is None:
        return await one_by_one(nodes, hold)
    await below_ceiling(client, nodes, limit)
    return await _give_back(client, writer, await one_by_one(nodes, hold), who, limit)


async def below_ceiling(client: Client, nodes: Sequence[str], setting: str) -> None:
    """Refuse to take more nodes out of service than MAX_UNAVAILABLE allows: it counts over all causes."""
    limit, problem = effective_limit(await _spec(client), setting)
    left = room(await client.list(NODE, type=Node), limit)
    wanted = [node for node in nodes if node not in left.out]
    if len(wanted) <= left.left:
        return
    several = (
        f"{len(wanted)} nodes are too many: MAX_UNAVAILABLE ({limit}) allows {left.allowed} of {left.total} out of "
        f"service at a time, and {len(left.out)} {'is' if len(left.out) == 1 else 'are'} out. Nothing was changed."
    )
    sentence = problem or (left.why_not(wanted[0]) if len(wanted) == 1 else several)
    raise Complaint(sentence, hint="To do it all the same: --beyond-ceiling", code=Exit.REFUSED)


async def _give_back(client: Client, writer: Writer, found: list[Ended], who: str, setting: str) -> list[Ended]:
    """Release what this command has just held beyond the ceiling, the last one first."""
    limit, _ = effective_limit(await _spec(client), setting)
    listed = await client.list(NODE, type=Node)
    left = room(listed, limit)
    held = [one for one in found if not one.code and one.data["changed"]]
    surplus = held[::-1][: max(0, len(left.out) - left.allowed)]
    for one in surplus:
        too_many = overrun(listed, limit, one.node) or ""
        await keeper.let_go(client, writer, one.node, who)
        again = "Try again; to do it all the same: --beyond-ceiling"
        back = refused(one.node, Complaint(too_many, hint=again, code=Exit.REFUSED))
        print_note(f"hostler: {back.why}")
        print_note(back.hint)
        found = [back if other is one else other for other in found]
    return found


async def _spec(client: Client) -> FleetSpec:
    try:
        return (await client.get(FLEET, NAME, type=Fleet)).spec
    except NotFound:
        return FleetSpec()


async def drain_nodes(
    client: Client, nodes: Sequence[str], asked: Asked, settings: Settings, *, live: bool
) -> list[Ended]:
    """Hold all, then empty one after the other, saying how it goes. They stay held whatever the end is."""
    if not asked.even_if_paused:
        await _refuse_if_paused(client)
    who, found = await who_am_i(client), None
    limit = None if asked.beyond_ceiling else settings[MAX_UNAVAILABLE]
    try:
        found = await hold_nodes(client, nodes, who, asked.why, limit, dry_run=asked.dry_run)
        held = [one.node for one in found if not one.code]
        if not held:
            return found
        emptied = {one.node: one for one in await _empty(client, held, asked, settings, who, live=live)}
        return [emptied.get(one.node, one) for one in found]
    except asyncio.CancelledError:
        if not asked.dry_run:
            here = nodes if found is None else [one.node for one in found if not one.code]
            held_now = "may be held by now" if found is None else "stays held" if len(here) == 1 else "stay held"
            print_note(f"No more pods are asked to go, but {names(here, limit=len(here))} {held_now}: {_back(*here)}")
        raise


async def _refuse_if_paused(client: Client) -> None:
    try:
        pauses = await list_pauses(client)
    except NotFound:
        return  # this cluster does not have the kind
    if pauses:
        raise Complaint(paused_sentence(pauses), hint="To drain all the same: --even-if-paused.", code=Exit.REFUSED)


async def _empty(
    client: Client, nodes: Sequence[str], asked: Asked, settings: Settings, who: str, *, live: bool
) -> list[Ended]:
    policy = Policy(
        timeout=asked.timeout,
        evict_empty_dir=not settings[DRAIN_REFUSE_EMPTY_DIR],
        evict_unmanaged=not settings[DRAIN_REFUSE_UNMANAGED],
    )
    async with _watching(client, nodes, asked) as (sources, standing):

        async def empty(node: str) -> Ended:
            gated = writer_of(client, asked.dry_run, lambda: standing.refusal(node, who))
            with _progress(live) as show:
                decision = await drain(
                    client,
                    sources,
                    Executor(gated, time.time),
                    node,
                    policy=policy,
                    started=time.time(),
                    clock=time.time,
                    progress=lambda decision: show(decision.why),
                    lost=lambda: standing.lost(node, who),
                )
            if (gone := standing.lost(node, who)) is not None:
                raise Complaint(gone, hint=f"Pods left: {len(decision.left)}.", code=Exit.REFUSED)
            return ended_of(node, decision, asked, live=live)

        return await one_by_one(nodes, empty)


def _back(*nodes: str) -> str:
    return f"to put {'it' if len(nodes) == 1 else 'them'} back into service: hostler release {' '.join(nodes)}"


@contextlib.asynccontextmanager
async def _watching(client: Client, nodes: Sequence[str], asked: Asked) -> AsyncIterator[tuple[Sources, Standing]]:
    """The caches a drain reads, complete, for as long as it lasts."""
    metrics = Metrics()
    sources = Sources(
        Watch(client, POD, Pod, metrics=metrics, indexes=POD_INDEXES),
        Watch(client, POD_DISRUPTION_BUDGET, PodDisruptionBudget, metrics=metrics),
        Watch(client, VOLUME_ATTACHMENT, VolumeAttachment, metrics=metrics, indexes=ATTACHMENT_INDEXES),
        Watch(client, DAEMON_SET, Workload, metrics=metrics),
    )
    standing = Standing(
        Watch(client, NODE, Node, metrics=metrics, fields=f"metadata.name={nodes[0]}" if len(nodes) == 1 else ""),
        None if asked.even_if_paused else Watch(client, PAUSE, Pause, metrics=metrics, absent=1.0),
        asked.dry_run,
    )
    watches: tuple[Watch[Any], ...] = (
        sources.pods, sources.budgets, sources.attachments, sources.daemon_sets, standing.nodes,
        *(() if standing.pauses is None else (standing.pauses,)),
    )  # fmt: skip
    tasks = [asyncio.create_task(watch.run()) for watch in watches]
    try:
        for watch in watches:
            try:
                async with asyncio.timeout(SYNC_SECONDS):
                    await watch.synced.wait()
            except TimeoutError:
                raise Complaint(
                    f"{watch.kind.resource} could not be read within {SYNC_SECONDS:.0f} s: "
                    f"{watch.problem or 'no answer'}.",
                    hint="The node stays held; nothing was evicted.",
                    code=Exit.UNREACHABLE,
                ) from None
        yield sources, standing
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Show:
    """Says each new sentence once: as a live line on a terminal, else line by line."""

    def __init__(self, line: object | None) -> None:
        self._line = line

    def __call__(self, sentence: str) -> None:
        from rich.status import Status

        if isinstance(self._line, Status):
            self._line.update(escape_controls(sentence))
        else:
            print_note(sentence)


@contextlib.contextmanager
def _progress(live: bool) -> Iterator[_Show]:
    if not live or not sys.stderr.isatty():
        yield _Show(None)
        return
    from rich.console import Console

    with Console(stderr=True).status("Looking at the node") as line:
        yield _Show(line)


def ended_of(node: str, decision: Decision, asked: Asked, *, live: bool) -> Ended:
    """How the drain of one node ended; anything but a drained node is an exit code of its own."""
    data = {
        "state": decision.state.value,
        "left": decision.left,
        "volumes": decision.volumes,
        "blockers": [{"pod": one.pod, "budget": one.budget, "why": one.why} for one in decision.blockers],
    }
    if asked.dry_run and live:
        print_table(
            ("pod", "would", "why"),
            [(one.key, "stay" if one.act is Act.SKIP else one.act.value, one.why) for one in decision.verdicts],
        )
    why = decision.why if asked.dry_run else f"{decision.why} It stays held; {_back(node)}"
    if decision.state is State.REFUSED:
        return Ended(node, "refused", why, Exit.REFUSED, data=data)
    if decision.state is State.DRAINED or asked.dry_run:
        return Ended(node, "drained", why, data=data)
    return Ended(node, "not drained", why, Exit.FAILED, data=data)
