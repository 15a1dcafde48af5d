"""`hostler crds`: the definitions of our own API."""

from __future__ import annotations

from typing import Annotated

import typer

from hostler.cli import flags, say
from hostler.settings.model import Settings

app = typer.Typer()


@app.command()
@flags.takes(*flags.CLUSTER)
def crds(
    settings: Settings,
    apply: Annotated[bool, typer.Option("--apply", help="Install or update it in the cluster.")] = False,
    output: Annotated[str, typer.Option("--output", "-o", help="yaml or json.", metavar="yaml|json")] = "yaml",
) -> None:
    """Print the CustomResourceDefinition of Fleet; with --apply install it by server-side apply."""
    from hostler.fleet.crd import fleet_definition

    if output not in ("yaml", "json"):
        raise typer.BadParameter("must be yaml or json", param_hint="--output")
    made = fleet_definition()
    if apply:
        from hostler.cli.cluster import ask_cluster
        from hostler.fleet.install import install

        done = ask_cluster(settings, install)
        if output == "json":
            say.json({"name": made["metadata"]["name"], "installed": True, "why": done})
        else:
            say.note(done)
    elif output == "json":
        say.json(made)
    else:
        import yaml

        say.text(yaml.safe_dump(made, sort_keys=False, width=120))
