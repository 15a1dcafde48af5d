"""For every test: the number of examples (see `tests.sizes`), who works on what, and Ctrl-C as at a terminal.

`make test` has two workers: one goes through everything that needs the shared sandbox, one thing after the other,
while the other does what needs no cluster, so that there is one sandbox and nobody disturbs a neighbour in it.

A run in the background of a shell ignores SIGINT, and what it starts inherits that: no child could be interrupted.
"""

import signal

import pytest

import tests.sizes  # noqa: F401

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "sandbox" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("sandbox"))
