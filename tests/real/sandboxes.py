"""Workers with a sandbox each: what operators asked of every API server is kept for the test that judges them all."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hostler.sandbox import Sandbox

OURS = '"hostler/'  # the beginning of our agent's name
WAIT_SECONDS = 3600  # for the shares of the other workers, with every exhaustive variant in them


@contextmanager
def announced(folders: pytest.TempPathFactory, sandbox: Sandbox) -> Iterator[None]:
    """Says that this sandbox is in use, and at its end what operators asked of it."""
    _file(folders, "begun").touch()
    try:
        yield
    finally:
        written = _file(folders, "being-written")
        written.write_text("".join(f"{json.dumps(entry)}\n" for entry in sandbox.audit(OURS)))
        written.rename(_file(folders, "ended"))


def asked_elsewhere(folders: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What operators asked of the sandboxes of other workers, once those have ended. None: there is only one."""
    end = time.monotonic() + WAIT_SECONDS
    for begun in sorted(_shared(folders).glob("sandbox-*.begun")):
        if begun == _file(folders, "begun"):
            continue
        while not (ended := begun.with_suffix(".ended")).exists():
            assert time.monotonic() < end, f"{begun.stem} is still in use: move tests to the first share"
            time.sleep(0.5)
        yield from map(json.loads, ended.read_text().splitlines())


def _shared(folders: pytest.TempPathFactory) -> Path:
    """The folder of the run. Each worker has its own in it."""
    base = folders.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


def _file(folders: pytest.TempPathFactory, state: str) -> Path:
    return _shared(folders) / f"sandbox-{os.environ.get('PYTEST_XDIST_WORKER', 'alone')}.{state}"
