"""`hostler reclaim`: which hosts return to discovery, and beginning, cancelling and retrying it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated

import typer

from hostler.cli import flags, join_boot
from hostler.cli.columns import Cell, Tone
from hostler.cli.listing import (
    Column,
    Listed,
    NamespaceFlag,
    Table,
    View,
    age_of,
    nothing_in,
    qualified,
    sentence,
    show_list,
    takes_view,
)
from hostler.cli.printing import Output, OutputFlag, print_answer, print_note, print_text
from hostler.errors import Complaint, Exit
from hostler.settings.foundation import NAMESPACE
from hostler.settings.model import Settings

if TYPE_CHECKING:
    from hostler.apis.assisted import Agent
    from hostler.kube.client import Client
    from hostler.reclaim import commands

app = typer.Typer(no_args_is_help=True, help="Return installed hosts without a BMC to discovery.")
Name = Annotated[
    str,
    typer.Argument(metavar="AGENT", help="NAMESPACE/NAME; a name or hostname that is unique does.", show_default=False),
]
Maybe = Annotated[str, typer.Argument(metavar="AGENT", help="Only this one.", show_default=False)]
Yes = Annotated[bool, typer.Option("--yes", help="Do it without asking.")]


@app.callback()
def group() -> None:
    """Return installed hosts without a BMC to discovery."""


# By `status.debugInfo.state` of an Agent; what is not here is under way.
_TONES = {
    "installed": Tone.GOOD, "added-to-existing-cluster": Tone.GOOD, "known-unbound": Tone.GOOD,
    "unbinding-pending-user-action": Tone.BAD, "disconnected-unbound": Tone.BAD, "insufficient-unbound": Tone.BAD,
    "disabled-unbound": Tone.QUIET,
}  # fmt: skip
AGENTS: Table[commands.Line] = Table(
    name=lambda line: f"agent/{line.agent}",
    columns=(
        Column("agent", lambda line: line.agent, needed=True, least=12, keep_end=True),
        Column("hostname", lambda line: line.hostname, order=5),
        Column("state", lambda line: Cell(line.state, _TONES.get(line.state, Tone.BUSY)), needed=True),
        Column("since", lambda line: age_of(line.since, time.time()), ages=True, needed=True,
               sort=lambda line: line.since),
        Column("since at", lambda line: line.since, wide=True),
        Column("cluster", lambda line: line.cluster, order=2),
        Column("reason", lambda line: line.reason, order=3),
        Column("progress", lambda line: line.progress, order=4),
        sentence("message", lambda line: line.message),
    ),
)  # fmt: skip


@app.command()
@flags.takes(*flags.CLUSTER)
@takes_view(AGENTS.words, namespaces=True, labels=True)
def status(settings: Settings, view: View, agent: Maybe = "") -> None:
    """Show hosts: state, since when, cluster, why it stands so, how far a download is."""
    from hostler.cli.cluster import ask_cluster
    from hostler.reclaim import commands

    async def look(client: Client) -> Listed[commands.Line]:
        if agent:
            return Listed([commands.line_of(await commands.find_agent(client, agent, view.namespace))])
        namespace = view.namespace_of(client)
        lines = await commands.list_lines(client, namespace, view.selector_text)
        return Listed(lines, nothing=nothing_in("Agent", namespace, view))

    show_list(view, lambda: ask_cluster(settings, look), AGENTS)


@app.command()
@flags.takes(*flags.CLUSTER)
def start(
    settings: Settings,
    agent: Name,
    namespace: NamespaceFlag = "",
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

    _request(
        settings, agent, namespace,
        lambda client, found: commands.start_reclaim(client, found, whole_cluster=whole_cluster), output, ask,
    )  # fmt: skip


@app.command()
@flags.takes(*flags.CLUSTER)
def cancel(settings: Settings, agent: Name, namespace: NamespaceFlag = "", output: OutputFlag = Output.TABLE) -> None:
    """Cancel before the host is restarted. It stays unbound, and its installed system goes on."""
    from hostler.reclaim import commands

    _request(settings, agent, namespace, commands.cancel_reclaim, output)


@app.command()
@flags.takes(*flags.CLUSTER)
def retry(settings: Settings, agent: Name, namespace: NamespaceFlag = "", output: OutputFlag = Output.TABLE) -> None:
    """Try again, after the cause of a failure is fixed."""
    from hostler.reclaim import commands

    _request(settings, agent, namespace, commands.retry_reclaim, output)


@app.command()
@flags.takes(*flags.CLUSTER)
def token(
    settings: Settings,
    infra_env: Annotated[
        str,
        typer.Argument(
            metavar="INFRAENV", help="Whose hosts register with it; NAMESPACE/NAME does too.", show_default=False
        ),
    ],
    namespace: NamespaceFlag = "",
    span: Annotated[
        float, typer.Option("--for", parser=join_boot.SPAN, metavar="DURATION", help="How long it is good: 90m, 2h.")
    ] = 86400.0,
) -> None:
    """Print a token with which discovery systems of an InfraEnv register. Whoever has it can do that."""
    from hostler.cli.cluster import ask_cluster
    from hostler.reclaim import commands

    def make(client: Client) -> Awaitable[str]:
        return commands.issue_token(client, qualified(infra_env, namespace, client), settings[NAMESPACE], span)

    print_text(ask_cluster(settings, make))


def _request(
    settings: Settings,
    name: str,
    namespace: str,
    request: Callable[[Client, Agent], Awaitable[str]],
    output: Output,
    ask: Callable[[Agent], None] = lambda agent: None,
) -> None:
    from hostler.cli.cluster import ask_cluster
    from hostler.kube.records import key_of
    from hostler.reclaim import commands

    found = ask_cluster(settings, lambda client: commands.find_agent(client, name, namespace))
    ask(found)
    said = ask_cluster(settings, lambda client: request(client, found))
    agent = key_of(found.metadata)
    from hostler.cli.answers import AgentAsked

    print_answer(AgentAsked(agent, said), output, lambda: print_note(said), names=(f"agent/{agent}",))
