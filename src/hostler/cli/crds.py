"""`hostler crds`: the definitions of our own API."""

from __future__ import annotations

from typing import Annotated

import typer

from hostler.cli import flags
from hostler.cli.printing import (
    Output,
    OutputFlag,
    print_answer,
    print_json,
    print_names,
    print_note,
    print_table,
    print_text,
)
from hostler.settings.model import Settings

app = typer.Typer()


@app.command()
@flags.takes(*flags.CLUSTER)
def crds(
    settings: Settings,
    apply: Annotated[bool, typer.Option("--apply", help="Install or update them in the cluster.")] = False,
    output: OutputFlag = Output.YAML,
) -> None:
    """Print the CustomResourceDefinitions of Fleet and Pause; with --apply install them by server-side apply."""
    from hostler.install.crd import definitions

    made = list(definitions().values())
    names = [one["metadata"]["name"] for one in made]
    if apply:
        from hostler.cli.cluster import ask_cluster
        from hostler.install.apply import install

        done = ask_cluster(settings, install)
        from hostler.cli.answers import CrdsInstalled

        answer = CrdsInstalled(tuple(names), installed=True, why=done)
        print_answer(answer, Output.TABLE if output is Output.YAML else output, lambda: print_note(done), names=names)
    elif output is Output.JSON:
        print_json({"apiVersion": "v1", "kind": "List", "items": made})
    elif output is Output.YAML:
        import yaml

        print_text(yaml.safe_dump_all(made, sort_keys=False, width=120))
    elif output is Output.NAME:
        print_names(f"customresourcedefinition/{name}" for name in names)
    else:
        print_table(
            ("name", "kind"), [(name, one["spec"]["names"]["kind"]) for name, one in zip(names, made, strict=True)]
        )
