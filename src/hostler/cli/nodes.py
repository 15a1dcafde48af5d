"""`hostler hold`, `release` and `drain`: what a person does to nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from hostler.cli import explain, flags, kinds
from hostler.cli.printing import Output, OutputFlag
from hostler.errors import Exit
from hostler.settings.foundation import (
    DRAIN_REFUSE_EMPTY_DIR,
    DRAIN_REFUSE_UNMANAGED,
    DRAIN_TIMEOUT_SECONDS,
    DRY_RUN,
    MAX_UNAVAILABLE,
)
from hostler.settings.model import Settings

if TYPE_CHECKING:
    from hostler.cli.node_results import Ended
    from hostler.kube.client import Client

app = typer.Typer()
Nodes = Annotated[
    list[str] | None,
    typer.Argument(metavar="NODE", help="Names of nodes.", show_default=False, autocompletion=kinds.complete_node),
]
Selector = Annotated[
    str,
    typer.Option("--selector", "-l", metavar="SELECTOR", help="Every node with these labels, as kubectl takes them."),
]
Esxi = Annotated[
    str, typer.Option("--esxi", metavar="HOST", help="Every node whose VM runs on this ESXi host; asks the operator.")
]
Rack = Annotated[
    str, typer.Option("--rack", metavar="RACK", help="Every node with this label topology.kubernetes.io/rack.")
]
Beyond = Annotated[
    bool, typer.Option("--beyond-ceiling", help="Even if MAX_UNAVAILABLE nodes are out of service already.")
]


@app.command()
@flags.takes(*explain.ASKING, MAX_UNAVAILABLE, DRY_RUN)
def hold(
    settings: Settings,
    why: Annotated[str, typer.Option("--why", help="The reason; everybody who looks at the node will see it.")],
    nodes: Nodes = None,
    selector: Selector = "",
    esxi: Esxi = "",
    rack: Rack = "",
    holder: Annotated[str, typer.Option("--holder", help="Hold in this name instead of your own.")] = "",
    beyond: Beyond = False,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Keep nodes out of service: cordon each and say for whom and why. Others' holds stay."""
    from hostler.cli.cluster import ask_cluster
    from hostler.cli.drain import hold_nodes
    from hostler.cli.node_results import report
    from hostler.cli.node_selection import choice_of, nodes_of
    from hostler.kube.self_review import who_am_i

    _given(why, "--why")
    dry_run, choice = settings[DRY_RUN], choice_of(nodes or (), selector, esxi, rack)
    limit = None if beyond else settings[MAX_UNAVAILABLE]

    async def work(client: Client) -> list[Ended]:
        chosen = await nodes_of(client, settings, choice)
        return await hold_nodes(client, chosen, holder or await who_am_i(client), why, limit, dry_run=dry_run)

    report(ask_cluster(settings, work), output, dry_run=dry_run)


@app.command()
@flags.takes(*explain.ASKING, DRY_RUN)
def release(
    settings: Settings,
    nodes: Nodes = None,
    selector: Selector = "",
    esxi: Esxi = "",
    rack: Rack = "",
    holder: Annotated[str, typer.Option("--holder", help="Release this holder's hold instead of your own.")] = "",
    everybody: Annotated[bool, typer.Option("--all", help="Release every hold on these nodes.")] = False,
    output: OutputFlag = Output.TABLE,
) -> None:
    """End holds. The last one to leave uncordons its node, unless it was cordoned before."""
    from hostler.cli.cluster import ask_cluster
    from hostler.cli.drain import writer_of
    from hostler.cli.node_results import Ended, one_by_one, report
    from hostler.cli.node_selection import choice_of, nodes_of
    from hostler.host import keeper
    from hostler.kube.self_review import who_am_i

    if holder and everybody:
        raise typer.BadParameter("--holder releases one hold and --all every hold: give one of them")
    dry_run, choice = settings[DRY_RUN], choice_of(nodes or (), selector, esxi, rack)

    async def work(client: Client) -> list[Ended]:
        chosen, who, writer = (
            await nodes_of(client, settings, choice),
            await who_am_i(client),
            writer_of(client, dry_run),
        )

        async def end(node: str) -> Ended:
            done = await keeper.let_go(client, writer, node, who, holder=holder, everybody=everybody)
            data = {"changed": done.changed}
            if done.already:
                # Who names a holder is mistaken if there is no such hold; else the node is as it was asked for.
                return Ended(node, "not held", f"{done.why}.", Exit.FAILED if holder else Exit.OK, data=data)
            return Ended(node, "released", f"{'Would be: ' if dry_run else ''}{done.why}.", data=data)

        return await one_by_one(chosen, end)

    report(ask_cluster(settings, work), output, dry_run=dry_run)


@app.command()
@flags.takes(
    *explain.ASKING, MAX_UNAVAILABLE, DRAIN_TIMEOUT_SECONDS, DRAIN_REFUSE_EMPTY_DIR, DRAIN_REFUSE_UNMANAGED, DRY_RUN
)
def drain(
    settings: Settings,
    nodes: Nodes = None,
    selector: Selector = "",
    esxi: Esxi = "",
    rack: Rack = "",
    why: Annotated[str, typer.Option("--why", help="The reason, for the hold.")] = "drained by hand",
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            parser=flags.duration(1),
            metavar="DURATION",
            help="For each node, instead of --drain-timeout-seconds.",
        ),
    ] = None,
    beyond: Beyond = False,
    even_if_paused: Annotated[bool, typer.Option("--even-if-paused", help="Also while Hostler is paused.")] = False,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Hold nodes and move their pods away, as PodDisruptionBudgets allow; ends when they are empty or time is up.

    All are held first, then they are emptied one after the other.
    """
    from hostler.cli.cluster import ask_cluster
    from hostler.cli.drain import Asked, drain_nodes
    from hostler.cli.node_results import report
    from hostler.cli.node_selection import choice_of, nodes_of

    _given(why, "--why")
    choice = choice_of(nodes or (), selector, esxi, rack)
    asked = Asked(why, timeout or settings[DRAIN_TIMEOUT_SECONDS], beyond, even_if_paused, settings[DRY_RUN])
    live = output in (Output.TABLE, Output.WIDE)

    async def work(client: Client) -> list[Ended]:
        return await drain_nodes(client, await nodes_of(client, settings, choice), asked, settings, live=live)

    report(ask_cluster(settings, work), output, dry_run=asked.dry_run)


def _given(text: str, flag: str) -> None:
    if not text.strip():
        raise typer.BadParameter(f"{flag} is empty; say why, in a few words")
