"""Processes that outlive the command that started them, and are never mistaken for another.

A process is known by its pid *and* the moment it started: a pid alone may long belong to somebody else.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from hostler.errors import Complaint

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Process(msgspec.Struct, frozen=True):
    """One process that we started."""

    pid: int
    started: int  # field 22 of /proc/PID/stat: clock ticks after boot

    @property
    def alive(self) -> bool:
        return _started(self.pid) == self.started

    @property
    def rss(self) -> int:
        """Resident memory in bytes; 0 when it is gone."""
        try:
            return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * _PAGE if self.alive else 0
        except (FileNotFoundError, ProcessLookupError):
            return 0

    @property
    def cpu_seconds(self) -> float:
        """User and system time so far; 0 when it is gone."""
        fields = _stat(self.pid)
        return (int(fields[11]) + int(fields[12])) / _TICK if fields and self.alive else 0.0

    def signal(self, number: int) -> bool:
        """Send a signal; False if the process is gone."""
        if not self.alive:
            return False
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True

    def wait(self, seconds: float) -> bool:
        """True once it is gone, False after so many seconds."""
        end = time.monotonic() + seconds
        while self.alive:
            if time.monotonic() > end:
                return False
            time.sleep(0.02)
        return True

    def end(self, patience: float) -> None:
        """SIGTERM, and SIGKILL for one that does not end in time (a stopped process never would)."""
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)
        if not self.wait(patience):
            self.signal(signal.SIGKILL)
            self.wait(10)


def spawn(argv: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> Process:
    """Start a program in a session of its own, so that Ctrl-C at our terminal does not reach it.

    posix_spawn and not subprocess, because nobody here keeps an object to wait on: the next command finds it by pid.
    """
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    mask = os.umask(0o077)  # the program has it too: whatever it writes is its owner's alone
    try:
        pid = os.posix_spawn(
            argv[0],
            list(argv),
            dict(os.environ if env is None else env),
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, out, 1),
                (os.POSIX_SPAWN_DUP2, out, 2),
            ],
            setsid=True,
            setsigdef=[signal.SIGINT, signal.SIGTERM],
        )
    except OSError as error:
        raise Complaint(f"{argv[0]} could not be started: {error.strerror or error}.") from error
    finally:
        os.umask(mask)
        os.close(out)
    # A child that has died already is a zombie of ours and still has its line, so this is never None.
    fields = _stat(pid)
    return Process(pid=pid, started=int(fields[19]) if fields else 0)


def tail(log: Path, lines: int = 12) -> str:
    """The last lines of a log, for a sentence about a part that died."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 32_768))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.splitlines()[-lines:])


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat after the name, which may itself hold blanks and brackets."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text.rpartition(") ")[2].split()


def _threads_left(pid: int) -> bool:
    """A killed process looks dead when its first thread is, but its ports are free only when its last one is gone."""
    try:
        return len(os.listdir(f"/proc/{pid}/task")) > 1
    except (FileNotFoundError, ProcessLookupError):
        return False


def _started(pid: int) -> int | None:
    """When the process started, or None if it is gone; takes the remains of our own dead children away."""
    fields = _stat(pid)
    if fields is None:
        return None
    if fields[0] in "ZX":
        if _threads_left(pid):
            return int(fields[19])
        try:
            os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            pass  # a child of somebody else: they take it away
        return None
    return int(fields[19])
