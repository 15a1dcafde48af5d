"""`hostler version` and `hostler config`: what this is and how it is set."""

from __future__ import annotations

import platform
from functools import partial
from typing import Annotated

import typer

from hostler import __version__
from hostler.capabilities import RULES, SETTINGS
from hostler.cli import flags
from hostler.cli.printing import Output, OutputFlag, print_json, print_table, print_text
from hostler.settings.model import Settings
from hostler.settings.resolve import complaint, survey

app = typer.Typer()


@app.command()
@flags.takes(*flags.CLUSTER)
def version(
    settings: Settings,
    server: Annotated[bool, typer.Option("--server", help="Ask the API server for its version too.")] = False,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Print the version, and with --server that of the API server."""
    found = {"hostler": __version__, "python": platform.python_version()}
    if server:
        from hostler.cli.cluster import ask_cluster
        from hostler.kube.connection_check import check

        found["kubernetes"] = ask_cluster(settings, check).git
    if output is Output.JSON:
        print_json(found)
    else:
        print_text("\n".join(f"{name} {value}" for name, value in found.items()))


@app.command()
@flags.takes(*SETTINGS, quiet=(), read=partial(survey, rules=RULES))
def config(
    surveyed: tuple[Settings, list[str]],
    running: Annotated[bool, typer.Option("--running", help="Show the settings of the running operator.")] = False,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Print every setting, its value and where it comes from. Secrets are never printed."""
    from hostler.explain.wire import Config, config_of

    settings, problems = surveyed
    found = config_of(settings)
    if running:
        from hostler.cli.cluster import ask_operator

        found, problems = ask_operator(settings, "/v1/config", Config), []
    if output is Output.JSON:
        print_json(found)
    else:
        rows = [(one.name, one.value or "-", one.source, one.room) for one in found.settings]
        print_table(("setting", "value", "source", "about"), rows)
    if problems:
        raise complaint(problems)
