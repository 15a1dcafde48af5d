"""Every command of the CLI by its full name, as the library of the command line has them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer.main

from hostler.cli.main import app

ROOT: Any = typer.main.get_command(app)


def commands(group: Any = ROOT, path: str = "") -> Iterator[tuple[str, Any]]:
    for name, one in group.commands.items():
        full = f"{path} {name}".strip()
        if hasattr(one, "commands"):
            yield from commands(one, full)
        else:
            yield full, one


COMMANDS = dict(commands())
