"""`hostler ingress status`: where ingress runs and why, by the operator's own rules but without needing one."""

from __future__ import annotations

from typing import Annotated

import typer

from hostler.cli import flags
from hostler.cli.printing import Output, OutputFlag, print_json, print_note, print_table, print_text
from hostler.ingress.settings import INGRESS_WORKLOADS
from hostler.settings.model import Settings

app = typer.Typer(no_args_is_help=True, help="See where ingress runs and why.")
Resolving = Annotated[bool, typer.Option("--resolve/--no-resolve", help="Resolve the wildcard name from this machine.")]


@app.callback()
def group() -> None:
    """See where ingress runs and why."""


@app.command()
@flags.takes(*flags.CLUSTER, INGRESS_WORKLOADS)
def status(settings: Settings, resolve: Resolving = True, output: OutputFlag = Output.TABLE) -> None:
    """Show every ingress: where it belongs, what decided that, where its pods are."""
    from hostler.cli.cluster import ask_cluster
    from hostler.ingress.status import status_of

    named = settings[INGRESS_WORKLOADS]
    lines = ask_cluster(settings, lambda client: status_of(client, resolving=resolve, named=named))
    if output is Output.JSON:
        print_json(lines)
        return
    if not lines:
        print_note("There is no IngressController in this cluster, and the Fleet names no ingress to be placed.")
        return
    print_table(
        ("ingress", "placement", "decided by", "replicas", "pods", "state"),
        [
            (line.name, line.placement, line.decided_by, line.replicas, "; ".join(line.pods) or "none", line.state)
            for line in lines
        ],
    )
    for line in lines:
        if line.wildcard:
            print_text(f"{line.name}: {line.wildcard}")
