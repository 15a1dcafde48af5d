"""For every test: the number of examples (see `tests.sizes`), who works on what, and Ctrl-C as at a terminal.

`make test` has two workers: one goes through everything that needs the shared sandbox, one thing after the other, so
that nobody disturbs a neighbour in it. The other does the same with the folder `runtime`, which has a sandbox of its
own for as long as that takes, and then what needs no cluster or a small one: there are never more than two.

A run in the background of a shell ignores SIGINT, and what it starts inherits that: no child could be interrupted.
"""

import signal
from pathlib import Path

import pytest
from _pytest.nodeid import coerce_node_id

import tests.sizes  # noqa: F401

RUNTIME = Path(__file__).parent / "real" / "runtime"

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_itemcollected(item: pytest.Item) -> None:
    """What uses the sandbox, or is marked so, is one group: its name is the end of the id, as `loadgroup` reads it.

    xdist 3.8 writes it itself, but where pytest 9.2 no longer looks: each test would go to whoever is free.
    """
    if not hasattr(item.config, "workerinput"):
        return
    marked = item.get_closest_marker("xdist_group") is not None
    if item.path.parent == RUNTIME:
        item._id = coerce_node_id(f"{item.nodeid}@runtime")
    elif marked or "sandbox" in getattr(item, "fixturenames", ()):
        item._id = coerce_node_id(f"{item.nodeid}@sandbox")
