"""A vCenter that goes away, forgets us or will not have us: a sentence each, nothing raised, and back when it can."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hostler.host.facts import Known, Unknown
from hostler.vsphere.faults import Kind, Refused
from hostler.vsphere.session import Standing
from hostler.vsphere.vcenter import VCenter
from hostler.vsphere.vmomi import BROKEN, Stub, Unreadable, service
from tests.real.vsphere_world import PASSWORD, Proxy, Simulator, certificate, eventually, following, measured


def inventory(*vms: str, host: str = "esx1") -> dict[str, Any]:
    return {
        "datacenters": [
            {
                "name": "dc1",
                "clusters": [{"name": "c1", "hosts": [{"name": host}]}],
                "vms": [{"name": name, "host": host} for name in vms],
            }
        ]
    }


@pytest.fixture
def simulator(tmp_path: Path) -> Iterator[Simulator]:
    world = Simulator(tmp_path / "vcenter", inventory("one", "two"))
    world.start()
    yield world
    world.kill()


def names(vcenter: VCenter) -> set[str]:
    facts = vcenter.facts()
    return {one.name for one in facts.value.vms()} if isinstance(facts, Known) else set()


def why(vcenter: VCenter) -> str:
    facts = vcenter.facts()
    assert isinstance(facts, Unknown), "nothing may be decided on this"
    return facts.why


async def restarted(vcenter: VCenter, why: str, times: int) -> None:
    name = "hostler_vcenter_watch_restarts_total"
    await eventually(lambda: measured(vcenter, name, why=why) >= times, f"{times} restarts because {why}")


def test_a_wrong_password_is_tried_once_until_it_changes(simulator: Simulator, tmp_path: Path) -> None:
    async def story() -> None:
        cert, key = certificate(tmp_path)
        secret = tmp_path / "password"
        secret.write_text("wrong\n")
        async with Proxy(simulator.port, cert, key).serve() as proxy:
            way = {"port": proxy.port, "ca_bundle": str(cert), "password_file": str(secret)}
            async with following(simulator.endpoint(**way), wait=False) as vcenter:
                await eventually(lambda: vcenter.link.standing is Standing.WRONG_CREDENTIAL, "the refusal")
                since = vcenter.link.since
                assert "until the credential changes" in why(vcenter)
                await asyncio.sleep(2.5)  # the credential is looked at once a second
                assert proxy.calls["Login"] == 1
                assert vcenter.link.since == since
                assert measured(vcenter, "hostler_vcenter_credential_refused") == 1
                refused = await vcenter.power_off("vm-1")
                assert isinstance(refused, Refused)
                assert refused.kind is Kind.NOT_CONNECTED
                assert isinstance(await vcenter.check_nodes(["x"]), Unknown)
                secret.write_text(PASSWORD + "\n")
                await eventually(lambda: vcenter.link.connected, "the right password")
                assert proxy.calls["Login"] == 2
                assert measured(vcenter, "hostler_vcenter_credential_refused") == 0
                assert names(vcenter) == {"one", "two"}
            assert proxy.calls["Logout"] == 1
            assert proxy.calls["DestroyView"] == proxy.calls["CreateContainerView"] == 1

    asyncio.run(story())


def test_an_unknown_authority_is_named_and_a_mended_bundle_is_enough(simulator: Simulator, tmp_path: Path) -> None:
    async def story() -> None:
        other, _ = certificate(tmp_path)
        trusted = Path(simulator.state["ca_bundle"]).read_bytes()
        async with following(simulator.endpoint(ca_bundle=str(other)), wait=False) as vcenter:
            await eventually(lambda: vcenter.link.standing is Standing.BAD_CERTIFICATE, "the doubt")
            assert "VCENTER_CA_BUNDLE" in why(vcenter)
            other.write_bytes(trusted)
            await eventually(lambda: names(vcenter) == {"one", "two"}, "the mended bundle")
        system = simulator.endpoint(ca_bundle="", tls_verify=True)
        async with following(system, wait=False) as vcenter:
            await eventually(lambda: vcenter.link.standing is Standing.BAD_CERTIFICATE, "the system's doubt")
        async with following(simulator.endpoint(ca_bundle="", tls_pin=False)) as vcenter:
            assert names(vcenter) == {"one", "two"}, "unverified, with a warning"

    asyncio.run(story())


def test_after_outages_it_is_pushed_again_and_does_not_poll(simulator: Simulator) -> None:
    """A server that was away is no proxy that cuts long waits, however often it happens."""

    async def story() -> None:
        async with following(simulator.endpoint(), poll=60) as vcenter:
            for times in (1, 2, 3):
                simulator.ask("POST", "/outage", {"mode": "refuse"})
                await restarted(vcenter, "unreachable", times)
                await asyncio.sleep(1.5)  # longer than the first pause: a login finds nobody too
                simulator.ask("DELETE", "/outage")
                await eventually(lambda: vcenter.link.connected, "back")
            simulator.ask("POST", "/vms/two/power", {"state": "off"})
            (two,) = vcenter.inventory.vms_named("two")
            await eventually(lambda: (vm := vcenter.inventory.vm(two.moref)) and vm.power == "poweredOff", "a push", 20)

    asyncio.run(story())


def test_an_expired_session_is_opened_again(simulator: Simulator) -> None:
    def expire() -> None:
        with simulator.client() as content:
            manager = content.sessionManager
            others = [one.key for one in manager.sessionList if one.key != manager.currentSession.key]
            manager.TerminateSession(others)

    async def story() -> None:
        async with following(simulator.endpoint(), poll=1) as vcenter:
            stood, stood_so_far = list[Standing](), list[Standing]()
            vcenter.listen(lambda _: stood.append(vcenter.link.standing))
            for times in (1, 2):
                await asyncio.to_thread(expire)
                await restarted(vcenter, "expired", times)
                await eventually(lambda: stood[-1:] == [Standing.CONNECTED], "a new session")
                stood_so_far.extend(stood)
                stood.clear()
            assert stood_so_far.count(Standing.EXPIRED) >= 2
            assert Standing.UNREACHABLE not in stood_so_far
            assert names(vcenter) == {"one", "two"}
            simulator.ask("POST", "/vms/one/power", {"state": "off"})
            (one,) = vcenter.inventory.vms_named("one")
            await eventually(lambda: (vm := vcenter.inventory.vm(one.moref)) and vm.power == "poweredOff", "news")

    asyncio.run(story())


def test_a_vcenter_that_was_away_is_read_anew(simulator: Simulator) -> None:
    async def story() -> None:
        async with following(simulator.endpoint(), poll=2) as vcenter:
            before = vcenter.heard
            simulator.kill()
            await eventually(lambda: vcenter.link.standing is Standing.UNREACHABLE, "the loss")
            assert "cannot be reached" in why(vcenter)
            assert "since" in why(vcenter)
            assert len(vcenter.inventory) > 0, "as last seen, for words only"
            assert measured(vcenter, "hostler_vcenter_connected") == 0
            refused = await vcenter.power_on("vm-1")
            assert isinstance(refused, Refused)
            assert refused.kind is Kind.NOT_CONNECTED
            # It comes back with another certificate, one VM less and one more.
            (simulator.folder / "inventory.json").write_text(json.dumps(inventory("two", "three")))
            await asyncio.to_thread(simulator.start)
            await eventually(lambda: names(vcenter) == {"two", "three"}, "the new truth", 60)
            assert before is not None
            assert vcenter.heard is not None
            assert vcenter.heard > before
            assert measured(vcenter, "hostler_vcenter_connected") == 1
            assert measured(vcenter, "hostler_vcenter_watch_restarts_total", why="unreachable") >= 1
            assert measured(vcenter, "hostler_vcenter_silence_seconds") < 60

    asyncio.run(story())


def test_where_long_waits_are_cut_we_poll(simulator: Simulator, tmp_path: Path) -> None:
    async def story() -> None:
        cert, key = certificate(tmp_path)
        async with Proxy(simulator.port, cert, key).serve() as proxy:
            proxy.patience = 0.4
            way = simulator.endpoint(port=proxy.port, ca_bundle=str(cert))
            async with following(way, poll=1) as vcenter:
                await restarted(vcenter, "unreachable", 3)
                await eventually(lambda: vcenter.link.connected, "polling")
                heard = vcenter.heard
                await eventually(lambda: vcenter.heard != heard, "a poll")
                simulator.ask("POST", "/vms/one/power", {"state": "off"})
                (one,) = vcenter.inventory.vms_named("one")
                await eventually(lambda: (vm := vcenter.inventory.vm(one.moref)) and vm.power == "poweredOff", "news")

    asyncio.run(story())


def test_a_server_that_says_nothing_any_more_does_not_hold_us_up(simulator: Simulator, tmp_path: Path) -> None:
    async def story() -> None:
        cert, key = certificate(tmp_path)
        async with Proxy(simulator.port, cert, key).serve() as proxy:
            way = simulator.endpoint(port=proxy.port, ca_bundle=str(cert))
            async with following(way) as vcenter:
                proxy.stalled = True
                await vcenter.stop(bound=1.0)
                assert vcenter.link.standing is Standing.STOPPED
                proxy.stalled = False

    asyncio.run(story())


def test_two_vcenters_go_their_own_ways(simulator: Simulator, tmp_path: Path) -> None:
    other = Simulator(tmp_path / "other", inventory("three", host="esx9"))
    other.start()

    async def story() -> None:
        async with following(simulator.endpoint()) as first, following(other.endpoint(), poll=2) as second:
            assert (names(first), names(second)) == ({"one", "two"}, {"three"})
            other.kill()
            await eventually(lambda: not second.link.connected, "the loss of one")
            assert names(first) == {"one", "two"}

    try:
        asyncio.run(story())
    finally:
        other.kill()


def test_a_stop_at_any_moment_logs_out_and_leaves_no_view(simulator: Simulator, tmp_path: Path) -> None:
    async def story() -> None:
        cert, key = certificate(tmp_path)
        async with Proxy(simulator.port, cert, key).serve() as proxy:
            way = simulator.endpoint(port=proxy.port, ca_bundle=str(cert))
            for step in range(12):
                async with following(way, wait=False):
                    await asyncio.sleep(0.02 * step)  # before, in and after the login, the reading and the wait
            assert proxy.calls["Logout"] == proxy.calls["Login"]
            assert proxy.calls["DestroyView"] == proxy.calls["CreateContainerView"]

    asyncio.run(story())


def test_a_connection_cut_at_any_moment_leaves_no_socket_behind(simulator: Simulator) -> None:
    dice = random.Random(7)
    endpoint = simulator.endpoint()
    calls: list[str] = []

    def ask(stub: Stub, times: int) -> None:
        try:
            for _ in range(times):
                service(stub).RetrieveContent()
        except BROKEN:
            return
        except Unreadable:
            return

    for _ in range(100):
        stub = Stub(endpoint.host, endpoint.port, endpoint.tls(), 10.0, calls.append)
        threads = [threading.Thread(target=ask, args=(stub, dice.randrange(1, 8))) for _ in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(dice.uniform(0, 0.05))
        stub.cut()
        for thread in threads:
            thread.join(10)
            assert not thread.is_alive(), "the call did not end with its connection"
        del stub, threads, thread
    assert len(calls) > 60
    gc.collect()  # a socket that nobody closed warns here, and warnings are errors
