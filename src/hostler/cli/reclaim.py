"""`hostler reclaim`: which hosts return to discovery, and beginning, cancelling and retrying it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated

import typer

from hostler.cli import flags, join_boot
from hostler.cli.printing import Output, OutputFlag, print_json, print_note, print_table, print_text
from hostler.errors import Complaint, Exit
from hostler.settings.foundation import NAMESPACE
from hostler.settings.model import Settings

if TYPE_CHECKING:
    from hostler.apis.assisted import Agent
    from hostler.kube.client import Client

app = typer.Typer(no_args_is_help=True, help="Return installed hosts without a BMC to discovery.")
Name = Annotated[
    str, typer.Argument(metavar="AGENT", help="NAMESPACE/NAME; a unique name or hostname does.", show_default=False)
]
Maybe = Annotated[str, typer.Argument(metavar="AGENT", help="Only this one.", show_default=False)]
Within = Annotated[str, typer.Option("--in", metavar="NAMESPACE", help="Only the Agents of this namespace.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do it without asking.")]


@app.callback()
def group() -> None:
    """Return installed hosts without a BMC to discovery."""


@app.command()
@flags.takes(*flags.CLUSTER)
def status(settings: Settings, agent: Maybe = "", within: Within = "", output: OutputFlag = Output.TABLE) -> None:
    """Show hosts: state, since when, cluster, why it stands so, how far a download is."""
    from hostler.cli.cluster import ask_cluster
    from hostler.reclaim import commands

    async def find(client: Client) -> list[commands.Line]:
        if agent:
            return [commands.line_of(await commands.find_agent(client, agent))]
        return await commands.list_lines(client, within or None)

    found = ask_cluster(settings, find)
    if output is Output.JSON:
        print_json(found)
        return
    if not found:
        print_note("There is no Agent here.")
        return
    print_table(
        ("agent", "hostname", "state", "since", "cluster", "reason", "progress", "message"),
        [
            (line.agent, line.hostname, line.state, line.since, line.cluster, line.reason, line.progress, line.message)
            for line in found
        ],
    )


@app.command()
@flags.takes(*flags.CLUSTER)
def start(
    settings: Settings,
    agent: Name,
    yes: Yes = False,
    whole_cluster: Annotated[
        str,
        typer.Option(
            metavar="NAMESPACE/NAME", help="Also if this cluster loses its control plane.", show_default=False
        ),
    ] = "",
    output: OutputFlag = Output.TABLE,
) -> None:
    """Take an installed host out of its cluster and restart it into discovery. Its disks are not wiped."""
    from hostler.reclaim import commands

    def ask(found: Agent) -> None:
        line = commands.line_of(found)
        print_note(f"{line.agent} ({line.hostname}) leaves {line.cluster}: its node is restarted into discovery.")
        if not yes and not typer.confirm("Return it to discovery?", default=False, err=True):
            raise Complaint(f"{line.agent} stays as it is.", code=Exit.REFUSED)

    def start(client: Client, found: Agent) -> Awaitable[str]:
        return commands.start_reclaim(client, found, whole_cluster=whole_cluster)

    _request(settings, agent, start, output, ask)


@app.command()
@flags.takes(*flags.CLUSTER)
def cancel(settings: Settings, agent: Name, output: OutputFlag = Output.TABLE) -> None:
    """Cancel before the host is restarted. It stays unbound, and its installed system goes on."""
    from hostler.reclaim import commands

    _request(settings, agent, commands.cancel_reclaim, output)


@app.command()
@flags.takes(*flags.CLUSTER)
def retry(settings: Settings, agent: Name, output: OutputFlag = Output.TABLE) -> None:
    """Try again, after the cause of a failure is fixed."""
    from hostler.reclaim import commands

    _request(settings, agent, commands.retry_reclaim, output)


@app.command()
@flags.takes(*flags.CLUSTER)
def token(
    settings: Settings,
    infra_env: Annotated[
        str, typer.Argument(metavar="NAMESPACE/INFRAENV", help="Whose hosts register with it.", show_default=False)
    ],
    span: Annotated[
        float, typer.Option("--for", parser=join_boot.SPAN, metavar="DURATION", help="How long it is good: 90m, 2h.")
    ] = 86400.0,
) -> None:
    """Print a token with which discovery systems of an InfraEnv register. Whoever has it can do that."""
    from hostler.cli.cluster import ask_cluster
    from hostler.reclaim import commands

    print_text(ask_cluster(settings, lambda client: commands.issue_token(client, infra_env, settings[NAMESPACE], span)))


def _request(
    settings: Settings,
    name: str,
    request: Callable[[Client, Agent], Awaitable[str]],
    output: Output,
    ask: Callable[[Agent], None] = lambda agent: None,
) -> None:
    from hostler.cli.cluster import ask_cluster
    from hostler.kube.records import key_of
    from hostler.reclaim import commands

    found = ask_cluster(settings, lambda client: commands.find_agent(client, name))
    ask(found)
    said = ask_cluster(settings, lambda client: request(client, found))
    if output is Output.JSON:
        print_json({"agent": key_of(found.metadata), "said": said})
    else:
        print_note(said)
