"""Runs tests for `runner.Worker`: one line of JSON in, one exit code out. Each run is a fork of this process.

What takes long to import is imported here, once; the package under test is not, because each run has its own.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import traceback
from pathlib import Path

import pytest

SECONDS = 240
LOADED = ("hypothesis", "aiohttp", "msgspec", "yaml", "structlog", "prometheus_client", "typer", "rich.console",
          "rich.table", "rich.tree", "cryptography.x509", "pyVmomi")  # fmt: skip
QUIET = ("-q", "-x", "--no-header", "--tb=short", "-p", "no:cacheprovider", "-o", "addopts=",
         "-W", "ignore::pytest.PytestAssertRewriteWarning")  # of hypothesis, which is loaded already  # fmt: skip


def main() -> None:
    for name in LOADED:
        importlib.import_module(name)
    if any(name.partition(".")[0] == "hostler" for name in sys.modules):
        sys.exit("worker: the package is loaded already, so no change of it would be seen")
    for line in sys.stdin:
        job = json.loads(line)
        child = os.fork()
        if child == 0:
            run(Path(job["place"]), job["tests"])
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def run(place: Path, tests: list[str]) -> None:
    """In the fork: the tests against the package at this place. Never returns."""
    code = 99
    try:
        signal.alarm(SECONDS)  # a mutant may loop for ever; then the exit code is that of the signal
        with (place / "output").open("w", encoding="utf-8") as output:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
        sys.path.insert(0, str(place))
        # What a mutant makes hypothesis find must not be tried on the real code, nor the other way round.
        os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(place / "examples")
        code = int(pytest.main([*QUIET, *tests]))
    except BaseException:  # noqa: BLE001  # whatever it was: it belongs into the output, and the fork ends here
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
