"""`hostler provider`: the operator as Cluster API's provider, with the flags that such a manager has."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from hostler.capabilities import read_settings
from hostler.cli.entry_point import operate, provider_settings
from hostler.metal.settings import PROVIDER_FLAGS

app = typer.Typer()


@app.command()
def provider(
    namespace: Annotated[
        str, typer.Option("--namespace", metavar="A,B", help="Look after these namespaces only; empty: all.")
    ] = "",
    watch_filter: Annotated[
        str, typer.Option("--watch-filter", metavar="VALUE", help="Only objects whose label watch-filter has it.")
    ] = "",
) -> None:
    """Run the operator with metal alone, as `clusterctl init --infrastructure hostler-metal3` has it run.

    The two flags are those of every provider's manager, Metal3's own too; they are settings of metal. All other
    settings come from the environment and from the file, as for `hostler run`.
    """
    given = dict(zip(PROVIDER_FLAGS, (namespace, watch_filter), strict=True))
    operate(read_settings(provider_settings(given), os.environ))
