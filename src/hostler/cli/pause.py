"""`hostler pause` and `hostler resume`: the stop button."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from hostler.cli import flags
from hostler.cli.printing import Output, OutputFlag, print_answer, print_note
from hostler.errors import Exit
from hostler.settings.model import Settings

if TYPE_CHECKING:
    from hostler.cli.pause_objects import Outcome

app = typer.Typer()
Wait = Annotated[
    float,
    typer.Option(
        "--wait", parser=flags.duration(0), metavar="DURATION", help="How long to wait for the operator to confirm it."
    ),
]


@app.command()
@flags.takes(*flags.CLUSTER)
def pause(
    settings: Settings,
    why: Annotated[str, typer.Option("--why", help="The reason; everybody who is held back will see it.")],
    wait: Wait = 5.0,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Stop every write of every capability, now. What is under way in the cluster goes on; Hostler adds nothing.

    Creates a Pause named after you. It needs the right to create pauses.hostler.dev, and no other. The exit code is 4
    if no operator confirmed it in time: the Pause is there all the same. With --wait 0 nothing is waited for.
    """
    from hostler.cli.cluster import ask_cluster
    from hostler.cli.pause_objects import create_pause

    if not why.strip():
        raise typer.BadParameter("--why is empty; say why, in a few words")
    outcome = ask_cluster(settings, lambda client: create_pause(client, why=why, wait=wait))
    _print_outcome(outcome, output)
    if wait > 0 and not outcome.confirmed:
        raise typer.Exit(Exit.UNREACHABLE)


@app.command()
@flags.takes(*flags.CLUSTER)
def resume(
    settings: Settings,
    every: Annotated[bool, typer.Option("--all", help="Delete every pause, also those of others.")] = False,
    wait: Wait = 5.0,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Delete your Pause and name those that remain. Hostler writes again once there is none."""
    from hostler.cli.cluster import ask_cluster
    from hostler.cli.pause_objects import delete_pauses

    outcome = ask_cluster(settings, lambda client: delete_pauses(client, every=every, wait=wait))
    _print_outcome(outcome, output)
    if outcome.refused:
        raise typer.Exit(Exit.REFUSED)


def _print_outcome(outcome: Outcome, output: Output) -> None:
    names = [f"pause/{name}" for name in (outcome.name, *outcome.remaining) if name]
    print_answer(outcome, output, lambda: print_note(outcome.why), names=names)
