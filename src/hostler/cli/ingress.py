"""`hostler ingress status`: where ingress runs and why, by the operator's own rules but without needing one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from hostler.cli import flags
from hostler.cli.listing import Column, Listed, Table, View, sentence, show_list, takes_view
from hostler.cli.printing import print_text
from hostler.ingress.settings import INGRESS_WORKLOADS
from hostler.settings.model import Settings

if TYPE_CHECKING:
    from hostler.ingress.status import IngressLine

app = typer.Typer(no_args_is_help=True, help="See where ingress runs and why.")
Resolving = Annotated[bool, typer.Option("--resolve/--no-resolve", help="Resolve the wildcard name from this machine.")]


@app.callback()
def group() -> None:
    """See where ingress runs and why."""


NONE = "There is no IngressController in this cluster, and the Fleet names no ingress to be placed."
INGRESSES: Table[IngressLine] = Table(
    name=lambda line: line.name,
    columns=(
        Column("ingress", lambda line: line.name, needed=True, least=16, wrap=True),
        Column("placement", lambda line: line.placement, needed=True),
        Column("decided by", lambda line: line.decided_by, order=1, least=20, wrap=True),
        Column("replicas", lambda line: line.replicas, order=2),
        Column("pods", lambda line: "; ".join(line.pods) or "none", order=3, least=20, wrap=True),
        sentence("state", lambda line: line.state),
    ),
)


@app.command()
@flags.takes(*flags.CLUSTER, INGRESS_WORKLOADS)
@takes_view(INGRESSES.words, namespaces=True)
def status(settings: Settings, view: View, resolve: Resolving = True) -> None:
    """Show every ingress: where it belongs, what decided that, where its pods are."""
    from hostler.cli.cluster import ask_cluster
    from hostler.ingress.status import status_of

    named = settings[INGRESS_WORKLOADS]

    def look() -> Listed[IngressLine]:
        lines = ask_cluster(settings, lambda client: status_of(client, resolving=resolve, named=named))
        found = [line for line in lines if view.is_in(line.namespace)]

        def show_wildcards() -> None:
            for line in found:
                if line.wildcard:
                    print_text(f"{line.name}: {line.wildcard}")

        return Listed(found, nothing=NONE, below=show_wildcards)

    show_list(view, look, INGRESSES)
