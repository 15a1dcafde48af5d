"""`hostler agent`: what runs on a node that is returned to discovery; and the same as one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hostler.cli.printing import print_text
from hostler.errors import Complaint, Exit

app = typer.Typer()
Target = Annotated[Path | None, typer.Option("--write", metavar="FILE", help="Write the agent as one file and end.")]


@app.command()
def agent(write: Target = None) -> int:
    """Run the node agent of a reclaim, with its settings from the environment; or write it as a single file."""
    if write is None:
        from hostler.agent.__main__ import main

        return main([])
    from hostler.agent.pack import pack

    try:
        pack(write)
    except OSError as error:
        raise Complaint(f"{write} cannot be written: {error.strerror}.", code=Exit.SETTING) from error
    print_text(f"{write}: {write.stat().st_size} bytes; any Python 3.11 or newer starts it.")
    return Exit.OK
