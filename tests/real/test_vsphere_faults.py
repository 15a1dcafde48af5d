"""Injected faults, missing privileges, hidden VMs, outages and a crashed host: each seen for what it is."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest

from hostler.host.facts import Known, Unknown
from hostler.vsphere.bulk import NEEDED, OPTIONAL, NoAnswer, missing_at_root
from hostler.vsphere.faults import Kind, Refused, Started
from hostler.vsphere.session import Standing
from hostler.vsphere.vcenter import VCenter
from tests.real.vsphere_world import Simulator, eventually, following, measured

INVENTORY: dict[str, Any] = {
    "datacenters": [
        {
            "name": "dc1",
            "clusters": [{"name": "c1", "hosts": [{"name": "esx1"}, {"name": "esx2"}]}],
            "vms": [
                {"name": "on", "host": "esx1"},
                {"name": "off", "host": "esx1", "power": "off"},
                {"name": "vcls", "host": "esx2"},
            ],
        }
    ]
}
POWER_ON, POWER_OFF, MOVE, DOWN = "PowerOnVM_Task", "PowerOffVM_Task", "RelocateVM_Task", "ShutdownGuest"


@pytest.fixture
def simulator(tmp_path: Path) -> Iterator[Simulator]:
    world = Simulator(tmp_path / "vcenter", INVENTORY)
    world.start()
    yield world
    world.kill()


def moref(vcenter: VCenter, name: str) -> str:
    seen = vcenter.inventory
    (found,) = (*(vm.moref for vm in seen.vms_named(name)), *(host.moref for host in seen.hosts_named(name)))
    return found


async def asked(vcenter: VCenter, method: str) -> Kind | None:
    """Why a call was refused, at once or by its task; None where nothing was."""
    on, off, host = (moref(vcenter, name) for name in ("on", "off", "esx2"))
    match method:
        case "PowerOnVM_Task":
            outcome = await vcenter.power_on(off)
        case "PowerOffVM_Task":
            outcome = await vcenter.power_off(on)
        case "RelocateVM_Task":
            outcome = await vcenter.relocate(off, host)
        case _:
            outcome = await vcenter.shut_down_guest(on)
    match outcome:
        case Refused():
            assert not [one for one in (on, off, host) if one in outcome.sentence], "people know them by name"
            return outcome.kind
        case Started(task) if task:
            seen = vcenter.inventory
            await eventually(lambda: (t := seen.task(task)) and t.state in ("success", "error"), f"the end of {task}")
            ended = seen.task(task)
            assert ended is not None
            return ended.error.kind if ended.error else None
    return None


CASES = [
    (POWER_ON, "NoCompatibleHost", True, Kind.NO_COMPATIBLE_HOST),
    (POWER_ON, "InsufficientResourcesFault", True, Kind.NO_RESOURCES),
    (POWER_ON, "TaskInProgress", False, Kind.IN_PROGRESS),
    (POWER_ON, "InvalidState", False, Kind.STATE),
    (POWER_OFF, "NoPermission", False, Kind.NO_PERMISSION),
    (POWER_OFF, "HostNotConnected", True, Kind.HOST_AWAY),
    (MOVE, "Timedout", True, Kind.TIMED_OUT),
    (MOVE, "MigrationFault", True, Kind.CANNOT_MOVE),
    (DOWN, "ToolsUnavailable", False, Kind.NO_TOOLS),
    (DOWN, "ManagedObjectNotFound", False, Kind.GONE),
]


def test_faults_of_calls_and_of_tasks_are_known_by_type(simulator: Simulator) -> None:
    async def story() -> None:
        async with following(simulator.endpoint()) as vcenter:
            for method, fault, as_task, kind in CASES:
                simulator.ask("POST", "/faults", {"method": method, "fault": fault, "asTask": as_task})
                assert (fault, await asked(vcenter, method)) == (fault, kind)
            assert vcenter.link.connected, "a refused call is no lost connection"

    asyncio.run(story())


def test_an_action_on_an_expired_session_is_refused_and_the_session_comes_back(simulator: Simulator) -> None:
    async def story() -> None:
        # The wait at the server would last ten minutes: it is the refused call that brings the loss to light.
        async with following(simulator.endpoint(), poll=600) as vcenter:
            stood = list[Standing]()
            vcenter.listen(lambda _: stood.append(vcenter.link.standing))
            simulator.ask("POST", "/faults", {"method": POWER_OFF, "fault": "NotAuthenticated", "asTask": False})
            assert await asked(vcenter, POWER_OFF) is Kind.NOT_CONNECTED
            simulator.ask("POST", "/sessions/expire")
            assert await asked(vcenter, POWER_OFF) is Kind.NOT_CONNECTED
            await eventually(lambda: Standing.EXPIRED in stood and vcenter.link.connected, "a new session")
            assert Standing.UNREACHABLE not in stood
            assert measured(vcenter, "hostler_vcenter_watch_restarts_total", why="expired") == 1
            assert await asked(vcenter, POWER_OFF) is None

    asyncio.run(story())


def test_missing_privileges_are_each_named(simulator: Simulator) -> None:
    async def story() -> None:
        async with following(simulator.endpoint()) as vcenter:
            on = moref(vcenter, "on")
            lacking = ["Global.ManageCustomFields", "Global.SetCustomField", "VirtualMachine.Interact.PowerOff"]
            wanted = (*NEEDED, *OPTIONAL)
            assert await vcenter.lacking_privileges([on], wanted) == Known({on: []}, ANY)
            simulator.ask("POST", "/privileges", {"missing": lacking})
            found = await vcenter.lacking_privileges([on], wanted)
            assert isinstance(found, Known), found
            assert sorted(one.id for one in found.value[on]) == lacking
            marked = await vcenter.mark(on, "why")
            assert isinstance(marked, Refused)
            assert (marked.kind, marked.privilege) == (Kind.NO_PERMISSION, "Global.ManageCustomFields")
            assert "Global.ManageCustomFields" in marked.sentence
            simulator.ask("POST", "/privileges", {"missing": ["Global.SetCustomField"]})
            marked = await vcenter.mark(on, "why")
            assert isinstance(marked, Refused)
            assert marked.privilege == "Global.SetCustomField"
            simulator.ask("POST", "/privileges", {"missing": []})
            assert await vcenter.mark(on, "why") == Started("")

    asyncio.run(story())


def test_rights_that_one_question_does_not_tell_are_asked_for_by_another(simulator: Simulator) -> None:
    """On the VM, on its resource pool and at the root; references carry each object's own type."""

    async def story() -> None:
        async with following(simulator.endpoint()) as vcenter:
            on = (moref(vcenter, "on"), next(vcenter.inventory.clusters()).pool)
            right = "VirtualMachine.Interact.PowerOn"
            simulator.ask("POST", "/privileges", {"missing": [right]})
            refused = {"fault": "NotSupported", "times": -1}
            simulator.ask("POST", "/faults", {"method": "HasPrivilegeOnEntities", **refused})
            found = await vcenter.lacking_privileges(on, NEEDED)
            assert isinstance(found, Known), found
            assert {one: [each.id for each in lacks] for one, lacks in found.value.items()} == {
                one: [right] for one in on
            }
            assert [one.id for one in missing_at_root(vcenter._session, NEEDED)] == [right]
            simulator.ask("POST", "/faults", {"method": "FetchUserPrivilegeOnEntities", **refused})
            unknown = await vcenter.lacking_privileges(on, NEEDED)
            assert isinstance(unknown, Unknown)
            assert "HasPrivilegeOnEntities: " in unknown.why
            assert "FetchUserPrivilegeOnEntities: " in unknown.why
            with pytest.raises(NoAnswer):
                missing_at_root(vcenter._session, NEEDED)

    asyncio.run(story())


def test_a_vm_that_we_may_not_see_hides_nothing_else(simulator: Simulator) -> None:
    async def story() -> None:
        hidden = {"method": "*", "vm": "vcls", "fault": "NoPermission", "times": -1}
        simulator.ask("POST", "/faults", hidden)
        async with following(simulator.endpoint()) as vcenter:
            seen = vcenter.inventory
            assert {vm.name for vm in seen.vms()} >= {"on", "off"}
            unreadable = {*seen.missing, *(vm.moref for vm in seen.vms() if vm.unread)}
            assert len(unreadable) == 1, "named, not guessed"
            (one,) = unreadable
            said = seen.missing.get(one) or " ".join(str(vm.unread[0]) for vm in seen.vms() if vm.moref == one)
            assert "NoPermission" in said
            vm = seen.vm(one)
            assert vm is None or vm.power == "", "neither on nor off"
            simulator.ask("DELETE", "/faults")
            await eventually(
                lambda: [vm.power for vm in seen.vms_named("vcls")] == ["poweredOn"], "the VM in sight again"
            )
            assert (seen.missing, [vm.unread for vm in seen.vms() if vm.unread]) == ({}, [])

    asyncio.run(story())


@pytest.mark.parametrize("mode", ["refuse", "503"])
def test_an_outage_is_told_and_survived(simulator: Simulator, mode: str) -> None:
    async def story() -> None:
        async with following(simulator.endpoint(), poll=1) as vcenter:
            stood = list[Standing]()
            vcenter.listen(lambda _: stood.append(vcenter.link.standing))
            simulator.ask("POST", "/outage", {"mode": mode, "loseSessions": True})
            await eventually(lambda: not vcenter.link.connected, "the outage")
            assert isinstance(vcenter.facts(), Unknown)
            assert await asked(vcenter, POWER_OFF) is Kind.NOT_CONNECTED
            simulator.ask("DELETE", "/outage")
            await eventually(lambda: isinstance(vcenter.facts(), Known), "the return")
            assert Standing.UNREACHABLE in stood
            assert Standing.WRONG_CREDENTIAL not in stood
            assert await asked(vcenter, POWER_OFF) is None

    asyncio.run(story())


def test_a_host_that_crashes_is_seen(simulator: Simulator) -> None:
    async def story() -> None:
        async with following(simulator.endpoint()) as vcenter:
            host = moref(vcenter, "esx1")
            simulator.ask("POST", "/hosts/esx1/crash")
            await eventually(
                lambda: (h := vcenter.inventory.host(host)) and h.connection == "notResponding", "the lost host"
            )

    asyncio.run(story())
