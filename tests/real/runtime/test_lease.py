"""Two replicas and one lease on the real API server: stopped, continued, killed, handed over, meddled with.

That no two lead at once is read from the API server's audit log, not from what the replicas believe.
"""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hostler.install.rights import OWN, Right
from hostler.kube.client import Client
from hostler.kube.clock import boottime
from hostler.kube.config import load
from hostler.kube.election import Timing
from hostler.kube.errors import WriteRefused
from hostler.kube.kinds import LEASE
from hostler.kube.lease import Leadership
from hostler.kube.records import Lease, Object
from hostler.sandbox import Sandbox
from tests.real.accounts import charted, kubeconfig_of, new_account, rights_here
from tests.real.conftest import Eventually

DRIVER = Path(__file__).with_name("leader_driver.py")
QUICK = Timing(duration=2, renew_deadline=1.2, retry=0.3)
STEADY = Timing(duration=4, renew_deadline=3, retry=0.3)  # where somebody is to go on leading on a busy machine


@contextmanager
def drivers(
    sandbox: Sandbox, namespace: str, folder: Path, *names: str, sleepy: bool = False
) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """One process per name; what each says is in `folder`, for a pipe nobody reads would stop it.

    They share one account, as replicas do. What they write is a thing of this test's own, so it adds that right.
    """
    sandbox.kubectl("-n", namespace, "create", "configmap", "written")
    writes = Right("configmaps", ("patch",), "What the drivers write.", OWN, ("written",))
    rights = (*rights_here(sandbox, ()), writes)
    with charted(sandbox, new_account(namespace, "driver", lease="driver"), rights) as user:
        command = [sys.executable, str(DRIVER), str(kubeconfig_of(sandbox, folder, user)), namespace]
        running = {}
        for name in names:
            with (folder / name).open("wb") as said:
                running[name] = subprocess.Popen([*command, name, *(["sleepy"] if sleepy else [])], stdout=said)
        try:
            yield running
        finally:
            for process in running.values():
                process.kill()  # reaches a stopped one too
                process.wait()


def writer_now(sandbox: Sandbox, namespace: str) -> str:
    written = sandbox.read(f"/api/v1/namespaces/{namespace}/configmaps/written")
    return str(written.get("data", {}).get("by", ""))


def successful(sandbox: Sandbox, namespace: str) -> list[tuple[str, str, str]]:
    """(received, who, what) of every write of the drivers, as the API server received them; refused leases left out."""
    found = []
    for entry in sandbox.audit(namespace):
        about, agent = entry.get("objectRef", {}), str(entry.get("userAgent", ""))
        if about.get("namespace") != namespace or not agent.startswith("leader-driver/") or entry["verb"] == "get":
            continue
        if entry["stage"] != "ResponseComplete":
            continue
        if about["resource"] == "leases" and entry["responseStatus"]["code"] >= 300:
            continue
        found.append((entry["requestReceivedTimestamp"], agent.removeprefix("leader-driver/"), about["resource"]))
    return sorted(found)


def terms(log: list[tuple[str, str, str]]) -> list[str]:
    """Who led, in order. Fails if anybody's write comes after another's first, without the lease in between."""
    order: list[str] = []
    holder = ""
    for received, who, what in log:
        if what == "leases":
            holder = who
        elif not order or order[-1] != who:
            assert who == holder, f"{who} wrote at {received}, after {order[-1:]} and without the lease"
            order.append(who)
    return order


@pytest.mark.parametrize("rounds", [2, pytest.param(60, marks=pytest.mark.full)])
def test_a_stopped_leader_writes_nothing_after_its_successor_began(
    sandbox: Sandbox, namespace: str, eventually: Eventually, tmp_path: Path, rounds: int
) -> None:
    with drivers(sandbox, namespace, tmp_path, "a", "b") as running:
        for _ in range(rounds):
            leader = eventually(lambda: writer_now(sandbox, namespace), what="a leader that writes")
            time.sleep(random.uniform(0, 1.0))  # anywhere in its renewing and writing
            running[leader].send_signal(signal.SIGSTOP)
            successor = "b" if leader == "a" else "a"
            eventually(lambda who=successor: writer_now(sandbox, namespace) == who, what=f"{successor} leads")  # type: ignore[misc]
            time.sleep(random.uniform(0, 1.0))
            running[leader].send_signal(signal.SIGCONT)
            time.sleep(random.uniform(0, 1.0))
    order = terms(successful(sandbox, namespace))
    assert len(order) > rounds / 2, (
        f"leaders in order: {order}"
    )  # a busy machine may change the leader once more itself


@pytest.mark.parametrize("rounds", [2, pytest.param(60, marks=pytest.mark.full)])
def test_stopped_right_after_the_gate_said_yes_it_still_writes_nothing(
    sandbox: Sandbox, namespace: str, eventually: Eventually, tmp_path: Path, rounds: int
) -> None:
    """The worst moment: the yes is old by the time the process goes on, and its next step is to send."""
    with drivers(sandbox, namespace, tmp_path, "a", "b", sleepy=True) as running:
        for _ in range(rounds):
            asleep = eventually(lambda: _stopped(running), what="a leader that stopped itself")
            awake = "b" if asleep == "a" else "a"
            eventually(lambda who=awake: writer_now(sandbox, namespace) == who, what=f"{awake} writes")  # type: ignore[misc]
            running[asleep].send_signal(signal.SIGCONT)
            eventually(lambda who=asleep: _said_it_lost(tmp_path / who), what=f"{asleep} knows")  # type: ignore[misc]
    terms(successful(sandbox, namespace))


def _stopped(running: dict[str, subprocess.Popen[bytes]]) -> str:
    """Who of them is stopped, by the kernel's word."""
    for name, process in running.items():
        if Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T":
            return name
    return ""


def _said_it_lost(log: Path) -> bool:
    return any("not leading" in line for line in log.read_text().splitlines()[-20:])


def test_a_killed_leader_is_followed_and_a_leaving_one_at_once(
    sandbox: Sandbox, namespace: str, eventually: Eventually, tmp_path: Path
) -> None:
    with drivers(sandbox, namespace, tmp_path, "a", "b", "c") as running:
        first = eventually(lambda: writer_now(sandbox, namespace), what="a leader that writes")
        running[first].kill()
        second = eventually(lambda: _other(sandbox, namespace, first), what="a successor")
        running[second].terminate()
        running[second].wait(timeout=60)
        assert (tmp_path / second).read_text().endswith("\nreleased\n")
        third = eventually(lambda: _other(sandbox, namespace, second), what="a third leader")
    assert {first, second, third} == {"a", "b", "c"}
    last = {who: at for at, who in enumerate(terms(successful(sandbox, namespace)))}
    assert last[first] < last[second] < last[third]  # a busy machine may change the leader once more itself


def _other(sandbox: Sandbox, namespace: str, than: str) -> str:
    now = writer_now(sandbox, namespace)
    return now if now != than else ""


# -- one process, several candidates


class Campaign:
    """Candidates in this process, on the real API server."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client, self.namespace = client, namespace
        self.tasks: list[asyncio.Task[None]] = []

    def enter(self, name: str, timing: Timing = QUICK, **more: Any) -> Leadership:
        leadership = Leadership(self.client, "lease", self.namespace, identity=name, timing=timing, **more)
        self.tasks.append(asyncio.create_task(leadership.run()))
        return leadership

    async def lease(self) -> Lease:
        return await self.client.get(LEASE, "lease", self.namespace, type=Lease)

    async def edit(self, spec: dict[str, Any]) -> None:
        await self.client.patch(LEASE, "lease", {"spec": spec}, self.namespace, type=Object)

    async def end(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


def play(sandbox: Sandbox, namespace: str, story: Any) -> None:
    async def run() -> None:
        async with Client(load(str(sandbox.layout.kubeconfig), None)) as client:
            campaign = Campaign(client, namespace)
            try:
                async with asyncio.timeout(90):
                    await story(campaign)
            finally:
                await campaign.end()

    asyncio.run(run())


def test_the_lease_says_who_leads_and_how_often_that_changed(sandbox: Sandbox, namespace: str) -> None:
    async def story(campaign: Campaign) -> None:
        told: list[bool] = []
        first = campaign.enter("first", STEADY, told=told.append)
        await first.until_held()
        assert first.token == 0
        assert first.gate() is None
        found = await campaign.lease()
        assert (found.spec.holder_identity, found.spec.lease_duration_seconds) == ("first", STEADY.duration)
        second = campaign.enter("second", STEADY)
        while "has not been read" in (second.gate() or ""):
            await asyncio.sleep(0.05)
        assert second.held() is False
        assert second.gate() == f"this replica does not lead: the lease {campaign.namespace}/lease is held by first"
        with pytest.raises(WriteRefused, match="held by first"), second.acting():
            pass
        assert await first.stop()
        await second.until_held()
        assert second.token == 1
        assert not first.held()
        assert told == [True, False]

    play(sandbox, namespace, story)


def test_a_lease_written_blank_by_an_installer_is_taken_at_once(sandbox: Sandbox, namespace: str) -> None:
    async def story(campaign: Campaign) -> None:
        await campaign.client.create(
            LEASE, {"metadata": {"name": "lease"}, "spec": {}}, campaign.namespace, type=Object
        )
        only = campaign.enter("only")
        await only.until_held()
        found = await campaign.lease()
        assert found.spec.holder_identity == "only"

    play(sandbox, namespace, story)


def test_a_machine_that_slept_does_not_wake_up_leading(sandbox: Sandbox, namespace: str) -> None:
    """Suspended: the boot clock went on. A paused virtual machine: only the wall clock is set right afterwards."""

    async def story(campaign: Campaign) -> None:
        slept = {"boot": 0.0, "wall": 0.0}
        first = campaign.enter(
            "first", clock=lambda: boottime() + slept["boot"], wall=lambda: time.time() + slept["wall"]
        )
        await first.until_held()
        for clock in slept:
            slept[clock] += 60
            assert first.held() is False
            assert "could not be renewed in time" in (first.gate() or "")
            while not first.held():  # nobody took it meanwhile, so it goes on after its next renewal
                await asyncio.sleep(0.05)

    play(sandbox, namespace, story)


def test_a_hand_over_waits_for_what_was_begun_and_is_not_taken_back(sandbox: Sandbox, namespace: str) -> None:
    async def story(campaign: Campaign) -> None:
        first = campaign.enter("first", STEADY)
        await first.until_held()
        second = campaign.enter("second", STEADY)
        with first.acting():
            leaving = asyncio.create_task(first.yield_to_others(30))
            await asyncio.sleep(STEADY.duration + 1)  # longer than the lease: it is kept for what was begun
            assert first.gate() is None
            assert first.may_begin() == "this replica is handing over its lease and begins nothing new"
            assert not second.held()
        assert await leaving
        assert not first.held()
        await second.until_held()
        assert await second.stop()
        await asyncio.sleep(2.5)
        assert not first.held(), "it took back what it had handed over"
        assert "handed over" in (first.gate() or "")

    play(sandbox, namespace, story)


def test_what_does_not_finish_keeps_the_lease_from_being_released(sandbox: Sandbox, namespace: str) -> None:
    async def story(campaign: Campaign) -> None:
        first = campaign.enter("first", STEADY)
        await first.until_held()
        with first.acting():
            assert not await first.yield_to_others(30, within=0.5)
            assert first.held()
            assert not await first.stop(within=0.5)
            assert not first.held()
        assert (await campaign.lease()).spec.holder_identity == "first"  # left to run out

    play(sandbox, namespace, story)


def test_a_deleted_lease_stops_the_leader_until_it_is_sure_again(sandbox: Sandbox, namespace: str) -> None:
    async def story(campaign: Campaign) -> None:
        first = campaign.enter("first")
        await first.until_held()
        token = first.token
        await campaign.client.delete(LEASE, "lease", campaign.namespace)
        await first.until_lost()
        await first.until_held()
        assert token is not None
        assert first.token is not None
        assert first.token > token

    play(sandbox, namespace, story)


def test_corrupt_fields_are_mended_by_the_leader(sandbox: Sandbox, namespace: str) -> None:
    async def story(campaign: Campaign) -> None:
        first = campaign.enter("first", STEADY)
        await first.until_held()
        await campaign.edit(
            {"leaseTransitions": None, "renewTime": None, "leaseDurationSeconds": 1, "acquireTime": None}
        )
        while (await campaign.lease()).spec.lease_duration_seconds != STEADY.duration:
            await asyncio.sleep(0.1)
        assert first.held()
        await campaign.edit({"holderIdentity": None})
        await first.until_lost()
        await first.until_held()

    play(sandbox, namespace, story)
