"""`hostler metal hosts` and `hostler metal capacity`: hosts, by the operator's rules but without needing one."""

from __future__ import annotations

from typing import Annotated

import typer

from hostler.cli import flags, say
from hostler.settings.metal import METAL_STRICT_FAILURE_DOMAINS
from hostler.settings.model import Settings

app = typer.Typer(no_args_is_help=True, help="See bare metal hosts and how many machines fit.")
Within = Annotated[str, typer.Option("--in", metavar="NAMESPACE", help="Only the hosts of this namespace.")]
Template = Annotated[
    str, typer.Argument(metavar="NAMESPACE/TEMPLATE", help="A Metal3MachineTemplate.", show_default=False)
]


@app.callback()
def group() -> None:
    """See bare metal hosts and how many machines fit."""


@app.command()
@flags.takes(*flags.CLUSTER)
def hosts(settings: Settings, within: Within = "", output: say.OutputFlag = say.Output.TABLE) -> None:
    """Show every host: its state, who has it, where it is, and why it is unavailable."""
    from hostler.cli.cluster import ask_cluster
    from hostler.metal.look import hosts_of

    lines = ask_cluster(settings, lambda client: hosts_of(client, within or None))
    if output is say.Output.JSON:
        say.json(lines)
        return
    if not lines:
        say.note(f"There is no BareMetalHost in {f'namespace {within}' if within else 'this cluster'}.")
        return
    say.table(
        ("host", "state", "consumer", "failure domain", "last used", "why not available"),
        [
            (one.host, one.state, one.consumer, one.failure_domain, one.last_used, one.why_not_available)
            for one in lines
        ],
    )


@app.command()
@flags.takes(*flags.CLUSTER, METAL_STRICT_FAILURE_DOMAINS)
def capacity(settings: Settings, template: Template, output: say.OutputFlag = say.Output.TABLE) -> None:
    """Say how many machines of a template fit now, and what limits that."""
    from hostler.cli.cluster import ask_cluster
    from hostler.metal.look import capacity_of

    strict = settings[METAL_STRICT_FAILURE_DOMAINS]
    found = ask_cluster(settings, lambda client: capacity_of(client, template, strict=strict))
    if output is say.Output.JSON:
        say.json(found)
        return
    say.text(f"{found.fit} of {found.hosts} hosts can be had now by machines of {found.template}.")
    if found.limits:
        say.table(("why not the others", "hosts"), [(why, str(number)) for why, number in found.limits.items()])
