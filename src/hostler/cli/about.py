"""`hostler version` and `hostler config`: what this is and how it is set."""

from __future__ import annotations

import platform
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from hostler import __version__
from hostler.capabilities import RULES, SETTINGS
from hostler.cli import flags
from hostler.cli.listing import Column, Listed, Table, View, show_list, takes_view
from hostler.cli.printing import Output, OutputFlag, print_answer, print_text
from hostler.settings.model import Settings
from hostler.settings.resolve import complaint, survey

if TYPE_CHECKING:
    from hostler.explain.wire import Shown

app = typer.Typer()


@app.command()
@flags.takes(*flags.CLUSTER)
def version(
    settings: Settings,
    server: Annotated[bool, typer.Option("--server", help="Ask the API server for its version too.")] = False,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Print the version, and with --server that of the API server."""
    kubernetes = ""
    if server:
        from hostler.cli.cluster import ask_cluster
        from hostler.kube.connection_check import check

        kubernetes = ask_cluster(settings, check).git
    found = {"hostler": __version__, "python": platform.python_version()}
    if kubernetes:
        found["kubernetes"] = kubernetes
    lines = "\n".join(f"{name} {number}" for name, number in found.items())
    print_answer(found, output, lambda: print_text(lines), names=("hostler",))


SETTINGS_SHOWN: Table[Shown] = Table(
    name=lambda setting: setting.name,
    columns=(
        Column("setting", lambda setting: setting.name, needed=True),
        Column("value", lambda setting: setting.value or "-", order=50, least=20, needed=True, wrap=True),
        Column("source", lambda setting: setting.source, order=2),
        Column("about", lambda setting: setting.room, order=1),
    ),
)


@app.command()
@flags.takes(*SETTINGS, quiet=(), read=partial(survey, rules=RULES))
@takes_view(SETTINGS_SHOWN.words)
def config(
    surveyed: tuple[Settings, list[str]],
    view: View,
    running: Annotated[bool, typer.Option("--running", help="Show the settings of the running operator.")] = False,
) -> None:
    """Print every setting, its value and where it comes from. Secrets are never printed."""
    import msgspec

    from hostler.explain.wire import Config, config_of

    settings, problems = surveyed

    def look() -> Listed[Shown]:
        if running:
            from hostler.cli.cluster import ask_operator

            found = ask_operator(settings, "/v1/config", Config)
        else:
            found = config_of(settings)
        return Listed(found.settings, data=lambda shown: msgspec.structs.replace(found, settings=tuple(shown)))

    show_list(view, look, SETTINGS_SHOWN)
    if problems and not running:
        raise complaint(problems)
