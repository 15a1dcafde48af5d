"""`hostler hold`, `release` and `drain`: what a person does to one node."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from hostler.capabilities import BY_NAME
from hostler.cli import flags, say
from hostler.settings.foundation import (
    DRAIN_REFUSE_EMPTY_DIR,
    DRAIN_REFUSE_UNMANAGED,
    DRAIN_TIMEOUT_SECONDS,
    DRY_RUN,
    MAX_UNAVAILABLE,
)
from hostler.settings.model import Settings

if TYPE_CHECKING:
    from hostler.host.keeper import Done
    from hostler.kube.client import Client

app = typer.Typer()
Node = Annotated[str, typer.Argument(metavar="NODE", help="The name of the node.", show_default=False)]
Beyond = Annotated[
    bool, typer.Option("--beyond-ceiling", help="Even if MAX_UNAVAILABLE nodes are out of service already.")
]


@app.command()
@flags.takes(*flags.CLUSTER, MAX_UNAVAILABLE, DRY_RUN)
def hold(
    settings: Settings,
    node: Node,
    why: Annotated[str, typer.Option("--why", help="The reason; everybody who looks at the node will see it.")],
    holder: Annotated[str, typer.Option("--holder", help="Hold in this name instead of your own.")] = "",
    beyond: Beyond = False,
    output: say.OutputFlag = say.Output.TABLE,
) -> None:
    """Keep a node out of service: cordon it and say for whom and why. Others' holds stay."""
    from hostler.cli.cluster import ask_cluster
    from hostler.cli.drain import hold_below_ceiling, writer_of
    from hostler.host import keeper
    from hostler.kube.self_review import who_am_i

    _given(why, "--why")
    dry_run = settings[DRY_RUN]

    async def work(client: Client) -> keeper.Done:
        who = holder or await who_am_i(client)
        writer = writer_of(client, dry_run)
        if beyond:
            return await keeper.hold(client, writer, node, who, why, time.time, capabilities=BY_NAME)
        return await hold_below_ceiling(client, writer, node, who, why, settings[MAX_UNAVAILABLE])

    _say(ask_cluster(settings, work), node, dry_run, output)


@app.command()
@flags.takes(*flags.CLUSTER, DRY_RUN)
def release(
    settings: Settings,
    node: Node,
    holder: Annotated[str, typer.Option("--holder", help="Release this holder's hold instead of your own.")] = "",
    everybody: Annotated[bool, typer.Option("--all", help="Release every hold on the node.")] = False,
    output: say.OutputFlag = say.Output.TABLE,
) -> None:
    """End a hold. The last one to leave uncordons the node, unless it was cordoned before."""
    from hostler.cli.cluster import ask_cluster
    from hostler.cli.drain import writer_of
    from hostler.host import keeper
    from hostler.kube.self_review import who_am_i

    if holder and everybody:
        raise typer.BadParameter("--holder releases one hold and --all every hold: give one of them")
    dry_run = settings[DRY_RUN]

    async def work(client: Client) -> keeper.Done:
        who = await who_am_i(client)
        return await keeper.let_go(client, writer_of(client, dry_run), node, who, holder=holder, everybody=everybody)

    _say(ask_cluster(settings, work), node, dry_run, output)


@app.command()
@flags.takes(
    *flags.CLUSTER, MAX_UNAVAILABLE, DRAIN_TIMEOUT_SECONDS, DRAIN_REFUSE_EMPTY_DIR, DRAIN_REFUSE_UNMANAGED, DRY_RUN
)
def drain(
    settings: Settings,
    node: Node,
    why: Annotated[str, typer.Option("--why", help="The reason, for the hold.")] = "drained by hand",
    timeout: Annotated[
        float | None, typer.Option("--timeout", min=1, metavar="SECONDS", help="Instead of --drain-timeout-seconds.")
    ] = None,
    beyond: Beyond = False,
    even_if_paused: Annotated[bool, typer.Option("--even-if-paused", help="Also while Hostler is paused.")] = False,
    output: say.OutputFlag = say.Output.TABLE,
) -> None:
    """Hold a node and move its pods away, as PodDisruptionBudgets allow; ends when it is empty or time is up."""
    from hostler.cli.cluster import ask_cluster
    from hostler.cli.drain import Asked, drain_node, ended

    _given(why, "--why")
    timeout = timeout or settings[DRAIN_TIMEOUT_SECONDS]
    asked = Asked(node, why, timeout, beyond, even_if_paused, settings[DRY_RUN])
    live = output is say.Output.TABLE
    decision = ask_cluster(settings, lambda client: drain_node(client, asked, settings, live=live))
    ended(decision, asked, output)


def _given(text: str, flag: str) -> None:
    if not text.strip():
        raise typer.BadParameter(f"{flag} is empty; say why, in a few words")


def _say(done: Done, node: str, dry_run: bool, output: say.Output) -> None:
    if output is say.Output.JSON:
        say.json({"node": node, "changed": done.changed, "dryRun": dry_run, "why": done.why})
    else:
        say.note(f"{'Would be: ' if dry_run else ''}{done.why}.")
