"""What a person did wrong, or what is wrong around us: one sentence, what to do about it, and an exit code."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of `hostler`; documented in docs/cli.md and stable."""

    OK = 0
    FAILED = 1  # it was tried and did not work; the sentence says what failed
    USAGE = 2  # the command line itself is wrong (typer's own code)
    SETTING = 3  # a setting, a kubeconfig or another input file is wrong; nothing was started
    UNREACHABLE = 4  # the API server, the operator or the sandbox could not be reached
    REFUSED = 5  # the other side answered and said no (forbidden, not found, conflict)
    INTERRUPTED = 130  # Ctrl-C


class Complaint(Exception):
    """Something a person can mend. Shown as one sentence and a hint, never as a traceback."""

    def __init__(self, sentence: str, *, hint: str = "", code: Exit = Exit.FAILED) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.hint = hint
        self.code = code

    def __str__(self) -> str:
        return f"{self.sentence} {self.hint}".strip()
