"""For every test: the number of examples (see `tests.sizes`), who works on what, and Ctrl-C as at a terminal.

`make test` has two workers: one goes through everything that needs the shared sandbox, one thing after the other,
while the other does what needs no cluster, so that there is one sandbox and nobody disturbs a neighbour in it.

A run in the background of a shell ignores SIGINT, and what it starts inherits that: no child could be interrupted.
"""

import signal
from typing import Any

import pytest

import tests.sizes  # noqa: F401

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "sandbox" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("sandbox"))


def whole(config: pytest.Config) -> bool:
    """Whether everything that `make test` runs is run."""
    told = getattr(config, "workerinput", None)
    if told is not None:
        return bool(told["whole"])
    chosen = config.getoption("keyword") or config.getoption("markexpr") not in ("", "not full")
    return config.args_source is config.ArgsSource.TESTPATHS and not chosen and not config.getoption("deselect")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """A worker gets other arguments than its run, and is told."""
    node.workerinput["whole"] = whole(node.config)
