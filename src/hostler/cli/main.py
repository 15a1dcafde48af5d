"""`hostler`: the root of the command line."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Annotated

import typer
from typer.exceptions import TyperException

from hostler import __version__
from hostler.capabilities import CAPABILITIES
from hostler.cli import (
    about,
    agent,
    bundle,
    crds,
    doctor,
    explain,
    history,
    hosts,
    install,
    manifests,
    nodes,
    operations,
    pause,
    provider,
    rights,
    run,
    vcenter,
    web,
)
from hostler.cli.examples import add_examples
from hostler.cli.failures import run_guarded
from hostler.cli.printing import print_note, print_text
from hostler.errors import Exit
from hostler.safety.switches import load_part

_PHRASES = re.compile("Value error, |Input should")
app = typer.Typer(
    name="hostler",
    help="Looks after the hosts under Kubernetes clusters for their whole life.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich",
)


def _show_version(asked: bool) -> None:
    if asked:
        print_text(f"hostler {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and end.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of a bug. (env HOSTLER_DEBUG)")] = False,
) -> None:
    """Looks after the hosts under Kubernetes clusters for their whole life."""


for group in (
    run,
    provider,
    about,
    hosts,
    operations,
    history,
    web,
    pause,
    nodes,
    explain,
    doctor,
    bundle,
    crds,
    rights,
    manifests,
    agent,
):
    app.add_typer(group.app)
app.add_typer(vcenter.app, name="vcenter")
app.add_typer(install.app, name="install")
for capability in CAPABILITIES:
    if capability.commands:
        app.add_typer(load_part(capability.commands), name=capability.name)
if find_spec("hostler.sandbox") is not None:  # the image leaves the sandbox out
    from hostler.cli import demo, sandbox

    app.add_typer(sandbox.app, name="sandbox")
    app.add_typer(demo.app)
add_examples(app)


def main() -> None:
    """The entry point of the `hostler` program."""
    sys.exit(execute(sys.argv[1:]))


def execute(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    return run_guarded(lambda: _command(arguments), arguments)


def _command(arguments: Sequence[str]) -> int:
    try:
        code = app(args=list(arguments), standalone_mode=False, prog_name="hostler")
        return code if isinstance(code, int) else Exit.OK
    except TyperException as error:
        return _usage(error)
    except typer.Abort:
        return Exit.INTERRUPTED
    except SystemExit as end:
        # How the libraries end when the reader of a help page has gone. Whatever else ends us keeps its code.
        if isinstance(end.__context__, BrokenPipeError):
            return Exit.OK
        raise


def _usage(error: TyperException) -> int:
    # Phrases of the library's own library.
    message = _PHRASES.sub(lambda found: "" if found[0].startswith("V") else "it must", error.format_message())
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        print_text(message)
        return Exit.USAGE
    print_note(f"hostler: {message if message.endswith(('.', '?')) else message + '.'}")
    print_note(f"See: {context.command_path if context is not None else 'hostler'} --help")
    return error.exit_code
