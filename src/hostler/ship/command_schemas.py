"""docs/schemas: what every command prints with `-o json`, as JSON Schema, and a page that lists them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from hostler.cli.schemas import schema_of, shapes

FOLDER = Path("docs/schemas")
HEAD = """# What commands print for machines

Made by `make chart` from `src/hostler/cli/schemas.py`; tests compare it with what the commands print.

`-o json` and `-o yaml` print the same record. A field may be added in any version; none is taken away or given another
meaning without a breaking entry in the CHANGELOG. Times are RFC 3339 in UTC, or seconds since 1970 where a schema says
`number`.

| command | schema |
|---|---|
"""


def file_name(command: str) -> str:
    return f"{command.replace(' ', '-')}.json"


def files() -> Iterator[tuple[Path, str]]:
    """Relative to the root of the repository."""
    made = shapes()
    rows = [f"| `{command}` | [{file_name(command)}]({file_name(command)}) |" for command in sorted(made)]
    yield FOLDER / "README.md", HEAD + "\n".join(rows) + "\n"
    for command, shape in made.items():
        yield FOLDER / file_name(command), json.dumps(schema_of(command, shape), indent=1) + "\n"
