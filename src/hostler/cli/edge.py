"""Where an error becomes words and an exit code. Needs no library of the command line: the operator has none."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

from hostler import __version__
from hostler.errors import Complaint, Exit


def note(sentence: str) -> None:
    """A message for the person at the terminal; never part of the data."""
    print(sentence, file=sys.stderr, flush=True)


def guarded(command: Callable[[], int], arguments: Sequence[str]) -> int:
    """The exit code of a command; nothing gets past here as a traceback, unless asked for."""
    try:
        return command()
    except Complaint as complaint:
        note(f"hostler: {complaint.sentence}")
        if complaint.hint:
            note(complaint.hint)
        return complaint.code
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except Exception as error:  # noqa: BLE001  # the outermost edge of the program
        return _bug(error, arguments)


def _bug(error: Exception, arguments: Sequence[str]) -> int:
    if "--debug" in arguments or os.environ.get("HOSTLER_DEBUG", "").lower() in ("true", "yes", "on", "1"):
        import traceback

        traceback.print_exception(error)
    note(f"hostler: This is a bug in Hostler {__version__}: {type(error).__name__}: {error}")
    note("Please report it, with what the same command prints when HOSTLER_DEBUG=true is set.")
    return Exit.FAILED
