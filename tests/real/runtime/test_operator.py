"""The operator as a process that is stopped, killed and moved: what the API server's audit log saw of it."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hostler.host.holds import HOLDS
from hostler.kube.client import Client
from hostler.kube.config import load
from hostler.kube.errors import ApiError, Unreachable
from hostler.kube.kinds import NODE
from hostler.kube.records import Object
from hostler.sandbox import Sandbox
from tests.real.auditing import Tail
from tests.real.auditing import who as who_asked
from tests.real.conftest import Eventually
from tests.real.operating import Running, hostler, operator

MakeNode = Callable[..., str]
STOPS = 2  # each of the two once; test_lease.py has more


@pytest.fixture
def fleet(sandbox: Sandbox) -> Iterator[None]:
    """The CRD and an empty Fleet; no Fleet afterwards."""
    assert hostler(sandbox.kubeconfig, "crds", "--apply").returncode == 0
    sandbox.apply({"apiVersion": "hostler.dev/v1alpha1", "kind": "Fleet", "metadata": {"name": "cluster"}, "spec": {}})
    yield
    sandbox.kubectl("delete", "fleet", "--all", "--ignore-not-found")


def hold(holder: str) -> str:
    return json.dumps([{"holder": holder, "why": "a test", "since": "2026-01-01T00:00:00Z", "cordonedBefore": False}])


@contextmanager
def stirring(sandbox: Sandbox, node: str) -> Iterator[None]:
    """Holds come and go on a node all the time, so that whoever leads has a status to write all the time."""
    over = threading.Event()

    async def stir() -> None:
        async with Client(load(str(sandbox.kubeconfig), None)) as client:
            held = False
            while not over.is_set():
                held = not held
                body = {"metadata": {"annotations": {HOLDS: hold("stirrer") if held else None}},
                        "spec": {"unschedulable": True if held else None}}  # fmt: skip
                try:
                    await client.patch(NODE, node, body, type=Object)
                except (ApiError, Unreachable):
                    await asyncio.sleep(0.2)
                await asyncio.sleep(0.03)

    thread = threading.Thread(target=lambda: asyncio.run(stir()))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class Trail:
    """The operators' successful writes as the API server received them; reads only what is new in the audit log."""

    def __init__(self, sandbox: Sandbox, *operators: Running) -> None:
        self._users = {one.user for one in operators}
        self._tail = Tail(sandbox)
        self._found: list[tuple[str, str, str, str]] = []

    def __enter__(self) -> Trail:
        return self

    def __exit__(self, *_: object) -> None:
        self._tail.close()

    def read(self) -> list[tuple[str, str, str, str]]:
        """(when received, by whom, resource, name), in order of arrival."""
        for entry in self._tail.new():
            user, about = who_asked(entry), entry.get("objectRef", {})
            if (
                user in self._users
                and entry["stage"] == "ResponseComplete"
                and entry["verb"] in ("create", "patch", "update", "delete")
                and entry["responseStatus"]["code"] < 300
                and about["resource"] != "selfsubjectreviews"  # a question
            ):
                resource = "/".join(filter(None, (about["resource"], about.get("subresource"))))
                self._found.append((entry["requestReceivedTimestamp"], user, resource, about.get("name", "")))
        return sorted(self._found)

    def leader(self) -> str:
        """Who wrote the lease last."""
        return next((who for _, who, what, _ in reversed(self.read()) if what == "leases"), "")

    def statuses(self, user: str) -> int:
        """How often this operator has written the Fleet's status."""
        return sum(who == user and what == "fleets/status" for _, who, what, _ in self.read())


def test_a_leader_stopped_for_longer_than_its_lease_writes_nothing_after_its_successor(
    sandbox: Sandbox, fleet: None, namespace: str, tmp_path: Path, make_node: MakeNode, eventually: Eventually
) -> None:
    dice = random.Random(5)
    node = make_node()
    with (
        operator(sandbox, tmp_path, namespace, name="one") as one,
        operator(sandbox, tmp_path, namespace, name="two") as two,
        Trail(sandbox, one, two) as trail,
        stirring(sandbox, node),
    ):
        by_user = {one.user: one, two.user: two}
        for _ in range(STOPS):
            eventually(lambda: trail.statuses(trail.leader()), 60, "a leader writes")
            old = by_user[trail.leader()]
            new = two if old is one else one
            time.sleep(dice.random() * 2)
            stop_until_followed(trail, old, new, eventually)
            time.sleep(2)
        log = trail.read()
    holder, terms = "", 0
    for when, who, what, _ in log:
        if what == "leases":
            terms += who != holder
            holder = who
        else:
            assert who == holder, f"{who} wrote {what} at {when} while {holder} led"
    assert terms > STOPS


def stop_until_followed(trail: Trail, old: Running, new: Running, eventually: Eventually) -> None:
    before = trail.statuses(new.user)
    old.process.send_signal(signal.SIGSTOP)
    try:
        eventually(lambda: trail.statuses(new.user) > before, 60, "the other one writes")
    finally:
        old.process.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("crash", [1, 2, 3], ids=lambda number: f"after-write-{number}")
def test_killed_after_each_write_it_ends_the_same_and_does_nothing_twice(
    sandbox: Sandbox,
    fleet: None,
    namespace: str,
    tmp_path: Path,
    make_node: MakeNode,
    eventually: Eventually,
    crash: int,
) -> None:
    """A held node is uncordoned by hand: the node is written, the Fleet's status, an Event. SIGKILL after each."""
    node = make_node()
    with (
        operator(sandbox, tmp_path, namespace, "--log-level", "debug", name="first") as first,
        Trail(sandbox, first) as trail,
    ):
        first.said("leading")
        eventually(lambda: any(line.get("event") == "wrote" for line in first.lines()), 60, "its first status")
        already = sum(line.get("event") == "wrote" for line in first.lines())
        hostler(sandbox.kubeconfig, "hold", node, "--why", "a test")
        sandbox.kubectl("uncordon", node)
        eventually(
            lambda: sum(line.get("event") == "wrote" for line in first.lines()) >= already + crash, 60, "its writes"
        )
        first.process.kill()
        first.process.wait()
        cordons = [what for _, _, what, name in trail.read() if name == node].count("nodes")
    with operator(sandbox, tmp_path, namespace, name="second") as second, Trail(sandbox, second) as trail:
        second.said("leading")

        def cordoned_once() -> bool:
            found = sandbox.get("node", node)
            holds = json.loads(found["metadata"]["annotations"][HOLDS])
            return bool(found["spec"].get("unschedulable")) and bool(holds[0].get("recordoned"))

        eventually(cordoned_once, 60, "the node is cordoned again")
        time.sleep(1)
        holds = json.loads(sandbox.get("node", node)["metadata"]["annotations"][HOLDS])
        assert "yielded" not in holds[0], "it must insist once, also across a crash"
        cordons += [what for _, _, what, name in trail.read() if name == node].count("nodes")
        assert cordons == 1
    hostler(sandbox.kubeconfig, "release", node)


def test_before_its_own_node_is_emptied_the_leader_hands_its_lease_over(
    sandbox: Sandbox, fleet: None, namespace: str, tmp_path: Path, make_node: MakeNode, eventually: Eventually
) -> None:
    home = make_node()
    with operator(sandbox, tmp_path, namespace, "--node-name", home, name="here") as here:
        here.said("leading")
        with operator(sandbox, tmp_path, namespace, name="there") as there:
            assert there.said("lease: another has it")["holder"] == here.said("leading")["me"]
            hostler(sandbox.kubeconfig, "hold", home, "--why", "its host goes into maintenance")
            here.said("our own node goes out of service; handing the lease over")
            there.said("leading")
            assert here.process.poll() is None
            hostler(sandbox.kubeconfig, "release", home)


def test_a_second_signal_ends_it_at_once(sandbox: Sandbox, namespace: str, tmp_path: Path) -> None:
    with operator(sandbox, tmp_path, namespace) as running:
        running.said("started")
        os.kill(running.process.pid, signal.SIGTERM)
        os.kill(running.process.pid, signal.SIGINT)
        assert running.process.wait(timeout=120) in (0, 130)
    assert "Unclosed" not in running.log.read_text()
