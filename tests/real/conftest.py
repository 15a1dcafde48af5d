"""One sandbox for each worker of a run: a real control plane with seconds where a cluster has minutes, and a vCenter.

Whoever stops a part starts it again and calls `sandbox.wait_ready()` before the test ends.
With HOSTLER_TEST_SANDBOX=DIR the sandbox is kept there and used again by the next run: the quick inner loop.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pytest

from hostler.sandbox import Options, Sandbox, http
from hostler.sandbox.expand import node_object
from hostler.sandbox.fleet import Node
from hostler.sandbox.load import create
from tests.real.sandboxes import announced

T = TypeVar("T")

# A lease of 8 s is renewed every 2 s; a node that is off turns Unknown after 8 to 9 s.
OPTIONS = {
    "audit": True,
    "fleet": "mixed",
    "node_monitor_period_seconds": 1,
    "node_monitor_grace_seconds": 8,
    "node_lease_duration_seconds": 8,
}


class Eventually(Protocol):
    def __call__(self, look: Callable[[], T], seconds: float = 60.0, what: str = "") -> T: ...


@pytest.fixture(scope="package")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """A sandbox with the built-in fleet `mixed` in it: a new one, or the one that is kept."""
    kept = os.environ.get("HOSTLER_TEST_SANDBOX")
    folder = Path(kept) if kept else tmp_path_factory.mktemp("sandbox")
    with (tmp_path_factory.getbasetemp().parent / "ports").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # a worker that chooses its ports while another does might choose the same
        box = Sandbox.up(folder, Options(**OPTIONS))  # type: ignore[arg-type]
    with nullcontext() if kept else announced(tmp_path_factory, box):
        yield box
    if not kept:
        box.down()


@pytest.fixture(scope="package")
def vcenter(sandbox: Sandbox) -> dict[str, Any]:
    """How to reach the simulator."""
    return sandbox.vcenter


@pytest.fixture(scope="session")
def eventually() -> Eventually:
    """Look until the look is truthy; the answer, or a failure that says what was seen last."""

    def look_until(look: Callable[[], T], seconds: float = 60.0, what: str = "") -> T:
        end = time.monotonic() + seconds
        while not (seen := look()):
            if time.monotonic() > end:
                raise AssertionError(f"not within {seconds:.0f} s: {what or look}; last seen: {seen!r}")
            time.sleep(0.1)
        return seen

    return look_until


@pytest.fixture
def namespace(sandbox: Sandbox, eventually: Eventually) -> Iterator[str]:
    """A namespace of the test's own, gone afterwards."""
    with own_namespace(sandbox, "t") as name:
        # Pods are refused until the controllers have made this one.
        accounts = f"/api/v1/namespaces/{name}/serviceaccounts?fieldSelector=metadata.name=default"
        eventually(lambda: sandbox.read(accounts)["items"], what="the namespace's own service account")
        yield name


@pytest.fixture(scope="module")
def home(sandbox: Sandbox) -> Iterator[str]:
    """A namespace for an operator that lives through all tests of a file."""
    with own_namespace(sandbox, "op") as name:
        yield name


@contextmanager
def own_namespace(sandbox: Sandbox, prefix: str) -> Iterator[str]:
    name, tls = f"{prefix}-{os.urandom(4).hex()}", http.trust(sandbox.layout, "admin")
    port, path = sandbox.state.ports["kube-apiserver"], "/api/v1/namespaces"
    http.ask("The API server", port, "POST", path, {"metadata": {"name": name}}, tls=tls)
    yield name
    http.ask("The API server", port, "DELETE", f"{path}/{name}", tls=tls)


_numbers = itertools.count(1000)


@pytest.fixture
def make_node(sandbox: Sandbox) -> Iterator[Callable[..., str]]:
    """Makes Ready nodes that nobody else schedules on (a taint, unless `taint=False`); gone afterwards.

    Keywords are the fields of a node in a fleet file, in Python's spelling: labels, taints, provider_id ...
    """
    made: list[str] = []

    def make(name: str = "", *, taint: bool = True, **fields: Any) -> str:
        number = next(_numbers)
        node = Node(name=name or f"node-{os.urandom(4).hex()}", **fields)
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        one = node_object(node, number, None, now, off=node.power == "off")
        if taint:
            one["spec"]["taints"].append({"key": "hostler.dev/test", "effect": "NoSchedule"})
        create(sandbox, [one])
        made.append(node.name)
        return node.name

    yield make
    if made:
        sandbox.kubectl("delete", "node", *made, "--ignore-not-found", "--wait=false")
