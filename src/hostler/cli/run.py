"""`hostler run`: the operator itself."""

from __future__ import annotations

from functools import partial

import typer

from hostler.capabilities import RULES, SETTINGS
from hostler.cli import flags
from hostler.cli.entry_point import operate
from hostler.settings.model import Settings
from hostler.settings.resolve import resolve

app = typer.Typer()
_SECRETS = ", ".join(setting.name for setting in SETTINGS if not setting.has_flag)
_HELP = f"""Run the operator until Ctrl-C or SIGTERM.

Every setting is a flag here, a variable in the environment (env ...) and a key in the file named by --config;
a flag wins over the environment, the environment over the file. A switch --x is turned off by --no-x.

Only in the environment or the file, because a command line can be read by others: {_SECRETS}.
"""


@app.command(help=_HELP)
@flags.takes(*SETTINGS, quiet=(), read=partial(resolve, rules=RULES))
def run(settings: Settings) -> None:
    operate(settings)
