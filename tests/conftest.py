"""For every test: the number of examples (see `tests.sizes`), who works on what, and Ctrl-C as at a terminal.

`make test` has three workers, also on two cores: a real test waits most of its time. Each worker goes through one share
of what needs a sandbox, one test after the other on a sandbox of its own, so that no test disturbs a neighbour in it. A
worker that is done takes what needs no cluster or a small one.

A run in the background of a shell ignores SIGINT, and what it starts inherits that: no child could be interrupted.
"""

import logging
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from _pytest.nodeid import coerce_node_id

import tests.sizes  # noqa: F401

REAL = Path(__file__).parent / "real"
# What one worker does by itself, because both would have to prepare the same.
TOGETHER = ("test_contracts.py", "test_mutants.py")
# Two of the three shares. All else that uses a sandbox is the first, with the stories of Cluster API; its last tests
# wait for all shares to end.
SHARES = {
    "second": ("runtime/*.py", "web/*.py", "test_ingress*.py", "test_join*.py", "test_platform*.py"),
    "third": ("metal/*.py", "test_reclaim*.py", "test_sandbox*.py", "test_trust_*.py"),
}

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """A command that runs in a test sets the logging of its process: the next test would not see its own lines."""
    yield
    structlog.reset_defaults()
    for handler in list(logging.root.handlers):
        if isinstance(handler.formatter, structlog.stdlib.ProcessorFormatter):
            logging.root.removeHandler(handler)


def pytest_itemcollected(item: pytest.Item) -> None:
    """What uses a sandbox, or is marked so, is in a group: its name is the end of the id, as `loadgroup` reads it.

    xdist 3.8 writes it itself, but where pytest 9.2 no longer looks: each test would go to whoever is free.
    """
    if not hasattr(item.config, "workerinput"):
        return
    marked = item.get_closest_marker("xdist_group") is not None
    if share := share_of(item.path):
        item._id = coerce_node_id(f"{item.nodeid}@{share}")
    elif marked or "sandbox" in getattr(item, "fixturenames", ()):
        item._id = coerce_node_id(f"{item.nodeid}@first")
    elif item.path.name in TOGETHER:
        item._id = coerce_node_id(f"{item.nodeid}@{item.path.stem}")


def share_of(path: Path) -> str:
    """The share that names this file, if any does."""
    if not path.is_relative_to(REAL):
        return ""
    return next((name for name, files in SHARES.items() if any(path.match(f"real/{one}") for one in files)), "")
