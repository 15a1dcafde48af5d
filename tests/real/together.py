"""Stories side by side: each waits most of its time, so many fit into the time of the longest.

Every story is a test of its own; the first one that asks starts them all (those that were selected), and each test
waits for its own to end.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from tests.real.maintaining import Kube, until

Told = dict[str, "Future[None]"]


def selected(request: pytest.FixtureRequest) -> list[str]:
    """The stories of this file that this run wants."""
    mine = [item for item in request.session.items if isinstance(item, pytest.Function)]
    mine = [item for item in mine if item.module is request.module and hasattr(item, "callspec")]
    return [str(item.callspec.params["name"]) for item in mine if "name" in item.callspec.params]


@contextmanager
def side_by_side(names: list[str], tell: Callable[[str], None], at_once: int) -> Iterator[Told]:
    """Begins each as soon as there is a place. At the end those that were begun are waited for, and no other begins."""
    pool = ThreadPoolExecutor(at_once, thread_name_prefix="story")
    try:
        yield {name: pool.submit(tell, name) for name in names}
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def own_namespace(kube: Kube) -> Iterator[str]:
    """A namespace that takes pods, gone afterwards."""
    name = f"t-{os.urandom(4).hex()}"
    kube.create("/api/v1/namespaces", {"metadata": {"name": name}})
    until(lambda: kube.get(f"/api/v1/namespaces/{name}/serviceaccounts/default"), "pods are let in")
    try:
        yield name
    finally:
        kube.delete(f"/api/v1/namespaces/{name}")
