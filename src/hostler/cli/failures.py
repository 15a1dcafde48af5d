"""How a failure becomes a sentence and an exit code. Needs no library of the command line: the operator has none."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence

from hostler import __version__
from hostler.errors import Complaint, Exit

# What a terminal obeys instead of showing (C0 and C1 controls), and what turns the direction of a text around.
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def escape_controls(text: str) -> str:
    """The text as a terminal may be given it: names and messages of objects are whatever their writers chose."""
    return _OBEYED.sub(_shown, text)


def _shown(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"^{chr(code + 64)}" if code < 32 else f"\\u{code:04x}"


def print_note(sentence: str) -> None:
    """A message for the person at the terminal; never part of the data."""
    print(escape_controls(sentence), file=sys.stderr, flush=True)


def run_guarded(command: Callable[[], int], arguments: Sequence[str]) -> int:
    """The exit code of a command; nothing gets past here as a traceback, unless asked for."""
    try:
        return command()
    except Complaint as complaint:
        print_note(f"hostler: {complaint.sentence}")
        if complaint.hint:
            print_note(complaint.hint)
        return complaint.code
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except Exception as error:  # noqa: BLE001  # the outermost edge of the program
        return _bug(error, arguments)


def _bug(error: Exception, arguments: Sequence[str]) -> int:
    if "--debug" in arguments or os.environ.get("HOSTLER_DEBUG", "").lower() in ("true", "yes", "on", "1"):
        import traceback

        traceback.print_exception(error)
    print_note(f"hostler: This is a bug in Hostler {__version__}: {type(error).__name__}: {error}")
    print_note("Please report it, with what the same command prints when HOSTLER_DEBUG=true is set.")
    return Exit.FAILED
