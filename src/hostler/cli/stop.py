"""`hostler pause` and `hostler resume`: the stop button."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from hostler.cli import flags, say
from hostler.settings.model import Settings

if TYPE_CHECKING:
    from hostler.fleet.button import Pressed

app = typer.Typer()
Wait = Annotated[
    float, typer.Option("--wait", min=0, metavar="SECONDS", help="How long to wait for the operator to confirm it.")
]


@app.command()
@flags.takes(*flags.CLUSTER)
def pause(
    settings: Settings,
    why: Annotated[str, typer.Option("--why", help="The reason; everybody who is held back will see it.")],
    wait: Wait = 5.0,
    output: say.OutputFlag = say.Output.TABLE,
) -> None:
    """Stop every write of every capability, now. What is under way in the cluster goes on; Hostler adds nothing."""
    from hostler.cli.cluster import ask_cluster
    from hostler.fleet.button import press

    if not why.strip():
        raise typer.BadParameter("--why is empty; say why, in a few words")
    _say(ask_cluster(settings, lambda client: press(client, why=why, wait=wait)), output)


@app.command()
@flags.takes(*flags.CLUSTER)
def resume(settings: Settings, wait: Wait = 5.0, output: say.OutputFlag = say.Output.TABLE) -> None:
    """Let Hostler write again."""
    from hostler.cli.cluster import ask_cluster
    from hostler.fleet.button import lift

    _say(ask_cluster(settings, lambda client: lift(client, wait=wait)), output)


def _say(pressed: Pressed, output: say.Output) -> None:
    if output is say.Output.JSON:
        say.json(pressed)
    else:
        say.note(pressed.why)
