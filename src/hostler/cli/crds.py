"""`hostler crds`: the definitions of our own API."""

from __future__ import annotations

from typing import Annotated

import typer

from hostler.cli import flags
from hostler.cli.printing import print_json, print_note, print_text
from hostler.settings.model import Settings

app = typer.Typer()


@app.command()
@flags.takes(*flags.CLUSTER)
def crds(
    settings: Settings,
    apply: Annotated[bool, typer.Option("--apply", help="Install or update them in the cluster.")] = False,
    output: Annotated[str, typer.Option("--output", "-o", help="yaml or json.", metavar="yaml|json")] = "yaml",
) -> None:
    """Print the CustomResourceDefinitions of Fleet and Pause; with --apply install them by server-side apply."""
    from hostler.install.crd import definitions

    if output not in ("yaml", "json"):
        raise typer.BadParameter("must be yaml or json", param_hint="--output")
    made = list(definitions().values())
    if apply:
        from hostler.cli.cluster import ask_cluster
        from hostler.install.apply import install

        done = ask_cluster(settings, install)
        if output == "json":
            print_json({"names": [one["metadata"]["name"] for one in made], "installed": True, "why": done})
        else:
            print_note(done)
    elif output == "json":
        print_json({"apiVersion": "v1", "kind": "List", "items": made})
    else:
        import yaml

        print_text(yaml.safe_dump_all(made, sort_keys=False, width=120))
