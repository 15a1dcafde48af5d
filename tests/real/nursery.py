"""Operators that start at once: each is forked off a process that has loaded the program and done nothing with it.

Loading Python and its libraries takes more than a second of CPU, and a chain of kills starts an operator for every
write. What is forked is a process of its own: it opens everything itself, and is killed like any other.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

# Before anybody is forked; the last is what Typer loads when a command is run.
LOADED = ("hostler.cli.main", "hostler.operator", "hostler.maintenance.capability", "typer._adapters")


@dataclass(frozen=True)
class Born:
    """A process of the nursery. It is held by a descriptor: its number cannot become somebody else's."""

    nursery: Nursery
    pid: int
    _held: int

    def ended(self) -> bool:
        return bool(select.select([self._held], [], [], 0)[0])

    def end(self) -> int:
        """Kill it unless it has ended; how it ended, as the shell says it."""
        if not self.ended():
            signal.pidfd_send_signal(self._held, signal.SIGKILL)
        select.select([self._held], [], [])
        os.close(self._held)
        return int(self.nursery.ask({"reap": self.pid})["code"])


class Nursery:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._one_at_a_time = threading.Lock()

    def bear(self, words: Sequence[str], env: dict[str, str], folder: Path, log: Path) -> Born:
        """`hostler` with these words, in this folder, with this environment and no other; it writes to `log`."""
        asked = {"words": list(words), "env": env, "folder": str(folder), "log": str(log)}
        pid = int(self.ask(asked)["pid"])
        return Born(self, pid, os.pidfd_open(pid))  # it is not reaped before we ask for it

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        with self._one_at_a_time:
            asks, answers = self._process.stdin, self._process.stdout
            assert asks is not None
            assert answers is not None
            asks.write(json.dumps(question) + "\n")
            asks.flush()
            found: dict[str, Any] = json.loads(answers.readline())
            return found


@contextmanager
def nursery() -> Iterator[Nursery]:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "tests.real.nursery"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root) as process:
        yield Nursery(process)


# -- the process itself


def serve(asked: TextIO, answers: TextIO) -> None:
    """Until nobody asks any more; then whoever is left is killed."""
    for module in LOADED:
        import_module(module)
    children: set[int] = set()
    for line in asked:
        told = json.loads(line)
        if "reap" in told:
            _, status = os.waitpid(told["reap"], 0)
            children.discard(told["reap"])
            answer = {"code": os.waitstatus_to_exitcode(status)}
        else:
            pid = os.fork()
            if pid == 0:
                _become(told)
            children.add(pid)
            answer = {"pid": pid}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    for pid in children:
        os.kill(pid, signal.SIGKILL)


def _become(told: dict[str, Any]) -> None:
    """Never returns."""
    code = 1
    try:
        os.environ.clear()
        os.environ.update(told["env"])
        os.chdir(told["folder"])
        nothing, log = os.open(os.devnull, os.O_RDONLY), os.open(told["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for source, target in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        sys.argv = ["hostler", *told["words"]]
        from hostler.cli.main import main

        main()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve(sys.stdin, sys.stdout)
