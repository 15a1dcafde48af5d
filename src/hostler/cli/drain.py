"""How a person's `hostler drain` goes: the same hold, the same decisions and the same ceiling as the operator's."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import typer

from hostler.apis.fleet import NAME, Fleet, FleetSpec, Pause
from hostler.capabilities import BY_NAME
from hostler.cli import say
from hostler.cli.pause_command import list_pauses
from hostler.drain.executor import Executor
from hostler.drain.loop import drain
from hostler.drain.model import Act, Decision, Policy, State
from hostler.drain.observe import ATTACHMENT_INDEXES, POD_INDEXES, Sources
from hostler.errors import Complaint, Exit
from hostler.fleet.controller import effective_limit
from hostler.host import keeper
from hostler.host.ceiling import overrun, room
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
    """What the person asked for."""

    node: str
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

    node: Watch[Node]
    pauses: Watch[Pause] | None  # None: the person drains even while Hostler is paused

    def refusal(self, asked: Asked, who: str) -> str | None:
        """The gate of each eviction. A pause is waited out; a lost hold ends the drain."""
        if self.pauses is not None and (pause := read_pauses(self.pauses)).stopped:
            return pause.why
        if (age := self.node.age()) is None or age > FRESH_SECONDS:
            return f"Whether {asked.node} is still held is not known: {self.node.problem or 'nothing was heard of it'}."
        return self.lost(asked, who)

    def lost(self, asked: Asked, who: str) -> str | None:
        """Why the node is no longer ours to empty; a dry run holds nothing that could be lost."""
        return None if asked.dry_run else lost(self.node.store.get(asked.node), asked.node, who)


async def below_ceiling(client: Client, node: str, setting: str) -> None:
    """Refuse to take one node more out of service than MAX_UNAVAILABLE allows: it counts over all causes."""
    limit, problem = effective_limit(await _spec(client), setting)
    nodes = await client.list(NODE, type=Node)
    left = room(nodes, limit)
    known = any(one.metadata.name == node for one in nodes)  # who holds a node that is not there is told so then
    if known and not left.admits(node):
        raise Complaint(
            problem or left.why_not(node), hint="To do it all the same: --beyond-ceiling", code=Exit.REFUSED
        )


async def hold_below_ceiling(
    client: Client, writer: Writer, node: str, who: str, why: str, setting: str
) -> keeper.Done:
    """Hold a node if the ceiling allows it, and look once more afterwards: somebody may have held another meanwhile."""
    await below_ceiling(client, node, setting)
    done = await keeper.hold(client, writer, node, who, why, time.time, capabilities=BY_NAME)
    limit, _ = effective_limit(await _spec(client), setting)
    too_many = overrun(await client.list(NODE, type=Node), limit, node)
    if done.changed and too_many is not None:
        await keeper.let_go(client, writer, node, who)
        raise Complaint(too_many, hint="Try again; to do it all the same: --beyond-ceiling", code=Exit.REFUSED)
    return done


async def _spec(client: Client) -> FleetSpec:
    try:
        return (await client.get(FLEET, NAME, type=Fleet)).spec
    except NotFound:
        return FleetSpec()


async def drain_node(client: Client, asked: Asked, settings: Settings, *, live: bool) -> Decision:
    """Hold, then drain, saying how it goes. The node stays held whatever the end is."""
    if not asked.even_if_paused:
        await _refuse_if_paused(client)
    writer, who, done = writer_of(client, asked.dry_run), await who_am_i(client), None
    try:
        if asked.beyond_ceiling:
            done = await keeper.hold(client, writer, asked.node, who, asked.why, time.time, capabilities=BY_NAME)
        else:
            done = await hold_below_ceiling(client, writer, asked.node, who, asked.why, settings[MAX_UNAVAILABLE])
        say.note(f"{'Would be: ' if asked.dry_run else ''}{done.why}.")
        return await _empty(client, asked, settings, who, live=live)
    except asyncio.CancelledError:
        if not asked.dry_run:
            held = "stays held" if done is not None else "may be held by now"
            say.note(f"No more pods are asked to go, but {asked.node} {held}: {_back(asked.node)}")
        raise


async def _refuse_if_paused(client: Client) -> None:
    try:
        pauses = await list_pauses(client)
    except NotFound:
        return  # this cluster does not have the kind
    if pauses:
        raise Complaint(paused_sentence(pauses), hint="To drain all the same: --even-if-paused.", code=Exit.REFUSED)


async def _empty(client: Client, asked: Asked, settings: Settings, who: str, *, live: bool) -> Decision:
    policy = Policy(
        timeout=asked.timeout,
        evict_empty_dir=not settings[DRAIN_REFUSE_EMPTY_DIR],
        evict_unmanaged=not settings[DRAIN_REFUSE_UNMANAGED],
    )
    async with _watching(client, asked) as (sources, standing):
        gated = writer_of(client, asked.dry_run, lambda: standing.refusal(asked, who))
        with _progress(live) as show:
            decision = await drain(
                client,
                sources,
                Executor(gated, time.time),
                asked.node,
                policy=policy,
                started=time.time(),
                clock=time.time,
                progress=lambda decision: show(decision.why),
                lost=lambda: standing.lost(asked, who),
            )
        if (gone := standing.lost(asked, who)) is not None:
            raise Complaint(gone, hint=f"Pods left: {len(decision.left)}.", code=Exit.REFUSED)
        return decision


def _back(node: str) -> str:
    return f"to put it back into service: hostler release {node}"


@contextlib.asynccontextmanager
async def _watching(client: Client, asked: Asked) -> AsyncIterator[tuple[Sources, Standing]]:
    """The caches a drain reads, complete, for as long as it lasts."""
    metrics = Metrics()
    sources = Sources(
        Watch(client, POD, Pod, metrics=metrics, indexes=POD_INDEXES),
        Watch(client, POD_DISRUPTION_BUDGET, PodDisruptionBudget, metrics=metrics),
        Watch(client, VOLUME_ATTACHMENT, VolumeAttachment, metrics=metrics, indexes=ATTACHMENT_INDEXES),
        Watch(client, DAEMON_SET, Workload, metrics=metrics),
    )
    standing = Standing(
        Watch(client, NODE, Node, metrics=metrics, fields=f"metadata.name={asked.node}"),
        None if asked.even_if_paused else Watch(client, PAUSE, Pause, metrics=metrics, absent=1.0),
    )
    watches: tuple[Watch[Any], ...] = (
        sources.pods, sources.budgets, sources.attachments, sources.daemon_sets, standing.node,
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
            self._line.update(say.cleaned(sentence))
        else:
            say.note(sentence)


@contextlib.contextmanager
def _progress(live: bool) -> Iterator[_Show]:
    if not live or not sys.stderr.isatty():
        yield _Show(None)
        return
    from rich.console import Console

    with Console(stderr=True).status("Looking at the node") as line:
        yield _Show(line)


def ended(decision: Decision, asked: Asked, output: say.Output) -> None:
    """Print how it ended; anything but a drained node is an exit code of its own."""
    if output is say.Output.JSON:
        say.json(
            {
                "node": asked.node,
                "state": decision.state.value,
                "why": decision.why,
                "left": decision.left,
                "volumes": decision.volumes,
                "blockers": [{"pod": one.pod, "budget": one.budget, "why": one.why} for one in decision.blockers],
                "dryRun": asked.dry_run,
            }
        )
    elif asked.dry_run:
        say.table(
            ("pod", "would", "why"),
            [(one.key, "stay" if one.act is Act.SKIP else one.act.value, one.why) for one in decision.verdicts],
        )
    if not asked.dry_run:
        say.note(f"{decision.why} It stays held; {_back(asked.node)}")
    if decision.state is State.REFUSED:
        raise typer.Exit(Exit.REFUSED)
    if not asked.dry_run and decision.state is not State.DRAINED:
        raise typer.Exit(Exit.FAILED)
