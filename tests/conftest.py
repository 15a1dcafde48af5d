"""For every test: the number of examples (see `tests.sizes`), who works on what, and Ctrl-C as at a terminal.

`make test` has two workers: one goes through everything that needs the shared sandbox, one thing after the other,
while the other does what needs no cluster, so that there is one sandbox and nobody disturbs a neighbour in it.

A run in the background of a shell ignores SIGINT, and what it starts inherits that: no child could be interrupted.
"""

import signal

import pytest
from _pytest.nodeid import coerce_node_id

import tests.sizes  # noqa: F401

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_itemcollected(item: pytest.Item) -> None:
    """What uses the sandbox, or is marked so, is one group: its name is the end of the id, as `loadgroup` reads it.

    xdist 3.8 writes it itself, but where pytest 9.2 no longer looks: each test would go to whoever is free.
    """
    marked = item.get_closest_marker("xdist_group") is not None
    if hasattr(item.config, "workerinput") and (marked or "sandbox" in getattr(item, "fixturenames", ())):
        item._id = coerce_node_id(f"{item.nodeid}@sandbox")
