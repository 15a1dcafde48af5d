"""What the API server was asked from now on, as its audit log tells it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

from hostler.sandbox.life import Sandbox

READS = ("get", "list", "watch")


def who(entry: dict[str, Any]) -> str:
    """As whom it was asked: whoever was acted for, or else the one whose own login it was."""
    return str((entry.get("impersonatedUser") or entry["user"]).get("username", ""))  # nobody: a login refused


def forbidden(entry: dict[str, Any]) -> bool:
    """For want of rights. A namespace that is going answers 403 too, to those who may."""
    return bool(entry.get("annotations", {}).get("authorization.k8s.io/decision") == "forbid")


class Tail:
    """The audit log from here on, whole entries only; each call of `new` goes on where the last one ended."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._lines = sandbox.layout.audit_log.open("rb")
        self._lines.seek(-1, os.SEEK_END)
        self._half = b""
        self._begun = self._lines.read(1) != b"\n"  # we are in the middle of a line that is being written

    def new(self) -> Iterator[dict[str, Any]]:
        *lines, self._half = (self._half + self._lines.read()).split(b"\n")
        if lines and self._begun:
            lines, self._begun = lines[1:], False
        yield from map(json.loads, lines)

    def close(self) -> None:
        self._lines.close()
