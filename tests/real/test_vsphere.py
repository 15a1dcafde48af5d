"""`hostler.vsphere` against a real simulator over the wire: what is seen, what is done, and what a loss looks like."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hostler.host.facts import Known, Unknown
from hostler.vsphere.bulk import Privilege
from hostler.vsphere.faults import AlreadySo, Fault, Kind, Refused, Started
from hostler.vsphere.inventory import Inventory
from hostler.vsphere.records import Backing, Host, Vm
from hostler.vsphere.vcenter import VCenter
from tests.real.vsphere_world import Simulator, eventually, following, measured

UUID, SWAPPED = "4206e4b5-0d3a-1d0f-86a1-2c1b6d9a0001", "b5e40642-3a0d-0f1d-86a1-2c1b6d9a0001"
TWICE = "4206e4b5-0d3a-1d0f-86a1-2c1b6d9a0002"
A100 = {"id": "0000:3b:00.0", "vendor": "10de", "device": "20b5", "name": "A100", "label": "big"}
INVENTORY: dict[str, Any] = {
    "allowDuplicateUUIDs": True,
    "datacenters": [
        {
            "name": "dc1",
            "clusters": [
                {"name": "gpu", "drs": "off", "hosts": [
                    {"name": "esx1", "devices": [A100]}, {"name": "esx2", "version": "7.0.1"}]},
                {"name": "web", "drs": "fullyAutomated", "hosts": [
                    {"name": "esx3", "devices": [{**A100, "vgpuProfiles": ["grid_a100-40c"]}]}]},
                {"name": "away", "hosts": [{"name": "esx4", "connection": "notResponding"}]},
            ],
            "vms": [
                {"name": "gpu-1", "host": "esx1", "uuid": UUID, "devices": [{"kind": "fixed", "id": "0000:3b:00.0"}]},
                {"name": "off", "host": "esx2", "power": "off", "hardwareVersion": "vmx-13", "devices": [
                    {"kind": "dynamic", "allowed": [{"vendor": "10de", "device": "20b5"}], "label": "big"}]},
                {"name": "share", "host": "esx3", "devices": [{"kind": "vgpu", "profile": "grid_a100-40c"}]},
                {"name": "deaf", "host": "esx2", "tools": "notRunning"},
                {"name": "twin-a", "host": "esx2", "uuid": TWICE},
                {"name": "twin-b", "host": "esx3", "uuid": TWICE, "power": "off"},
            ],
        }
    ],
}  # fmt: skip


@pytest.fixture
def simulator(tmp_path: Path) -> Iterator[Simulator]:
    world = Simulator(tmp_path / "vcenter", INVENTORY)
    world.start()
    yield world
    world.kill()


def known(vcenter: VCenter) -> Inventory:
    facts = vcenter.facts()
    assert isinstance(facts, Known), facts
    return facts.value


def host(inventory: Inventory, name: str) -> Host:
    (found,) = inventory.hosts_named(name)
    return found


def vm(inventory: Inventory, name: str) -> Vm:
    (found,) = inventory.vms_named(name)
    return found


async def failure(inventory: Inventory, task: str) -> Fault:
    """What a task ended with; a fact of the watcher."""
    await eventually(lambda: (found := inventory.task(task)) and found.error, f"the failure of {task}")
    found = inventory.task(task)
    assert found is not None
    assert found.error is not None
    return found.error


def test_the_inventory_says_what_vcenter_says(simulator: Simulator) -> None:
    async def story() -> None:
        async with following(simulator.endpoint()) as vcenter:
            seen = known(vcenter)
            assert {one.name for one in seen.hosts()} == {"esx1", "esx2", "esx3", "esx4"}
            esx1, esx2 = host(seen, "esx1"), host(seen, "esx2")
            assert (esx1.connection, esx1.power, esx1.in_maintenance) == ("connected", "poweredOn", False)
            assert (esx2.version, esx1.cpu_cores, esx1.cpu_threads, esx1.memory_mb) == ("7.0.1", 32, 64, 524288)
            assert [(one.id, one.vendor, one.device, one.name, one.label) for one in esx1.devices] == [
                ("0000:3b:00.0", "10de", "20b5", "A100", "big")
            ]
            assert seen.instance
            assert seen.hosts_with_uuid(esx1.uuid) == [esx1], "its hardware is known, and its own"
            store = seen.place(esx1.datastores[0])
            assert store is not None
            assert (store.accessible, store.cut_off) == (True, ())
            assert {one.name: one.standalone for one in seen.clusters()} == {"gpu": False, "web": False, "away": False}
            assert (host(seen, "esx3").vgpu_profiles, esx2.devices) == (("grid_a100-40c",), ())
            assert host(seen, "esx4").connection == "notResponding"
            assert {seen.name(one) for one in esx1.datastores + esx1.networks} == {"datastore1", "VM Network"}
            assert esx1.vms == (vm(seen, "gpu-1").moref,)
            drs = {one.name: one.drs("vm-1") for one in seen.clusters()}
            assert drs == {"gpu": "off", "web": "fullyAutomated", "away": "off"}
            gpu, off, share = (vm(seen, name) for name in ("gpu-1", "off", "share"))
            assert (gpu.power, gpu.tools_run, gpu.hardware_version, gpu.cpus) == ("poweredOn", True, "vmx-19", 4)
            assert (off.power, off.tools_run, off.template) == ("poweredOff", False, False)
            assert not isinstance(gpu.devices, Unknown)
            assert not isinstance(share.devices, Unknown)
            assert [(one.backing, one.id) for one in gpu.devices] == [(Backing.FIXED, "0000:3b:00.0")]
            assert [(one.backing, one.profile) for one in share.devices] == [(Backing.VGPU, "grid_a100-40c")]
            # Its host offers no device, so nobody paid for reading its devices until it was asked for.
            assert isinstance(off.devices, Unknown)
            await vcenter.follow([off.moref])
            devices = vm(seen, "off").devices
            assert not isinstance(devices, Unknown)
            assert [(one.backing, one.allowed, one.label) for one in devices] == [
                (Backing.DYNAMIC, ("10de:20b5",), "big")
            ]
            assert {one.name for one in seen.vms_with_uuid(SWAPPED)} == {"gpu-1"}
            assert [one.name for one in seen.vms_with_uuid(TWICE)] == ["twin-a", "twin-b"], "nothing is guessed"
            assert seen.vms_with_uuid("not a uuid") == []
            assert {one.name for one in seen.vms_on(esx2.moref)} == {"off", "deaf", "twin-a"}

    asyncio.run(story())


def test_an_entering_host_is_seen_and_repeated_tasks_are_one(simulator: Simulator) -> None:
    async def story() -> None:
        async with following(simulator.endpoint()) as vcenter:
            seen, told = known(vcenter), list[frozenset[str]]()
            vcenter.listen(told.append)
            esx1, gpu = host(seen, "esx1").moref, vm(seen, "gpu-1").moref
            assert seen.entering(esx1) is None
            for _ in range(2):
                simulator.ask("POST", "/hosts/esx1/enter")
            await eventually(lambda: (found := seen.entering(esx1)) and len(found.tasks) == 2, "both tasks as one")
            entering = seen.entering(esx1)
            assert entering is not None
            assert (entering.host, entering.since is not None) == (esx1, True)
            assert any(set(entering.tasks) & changed for changed in told)
            simulator.ask("POST", "/hosts/esx1/cancel")
            await eventually(lambda: seen.entering(esx1) is None, "the cancelled tasks")
            assert all(task.error and task.error.kind is Kind.CANCELLED for task in seen.tasks_of(esx1))
            simulator.ask("POST", "/hosts/esx1/enter")
            await eventually(lambda: seen.entering(esx1), "the third task")
            assert isinstance(await vcenter.power_off(gpu), Started)
            await eventually(lambda: host(seen, "esx1").in_maintenance is True, "the host in maintenance")
            assert seen.entering(esx1) is None
            refused = await vcenter.power_on(gpu)
            assert isinstance(refused, Started), "the refusal is the task's"
            assert (await failure(seen, refused.task)).kind is Kind.STATE
            assert refused.task in {task.moref for task in seen.tasks_of(gpu)}
            # Once more, by hand of somebody else, in the order in which it happened.
            simulator.ask("POST", "/hosts/esx1/exit")
            await eventually(lambda: host(seen, "esx1").in_maintenance is False, "the host back in service")

    asyncio.run(story())


def test_actions_start_something_and_say_why_not(simulator: Simulator) -> None:
    async def story() -> None:
        simulator.ask("POST", "/settings", {"guestShutdownSeconds": 0.2, "migrateSeconds": 30})
        async with following(simulator.endpoint()) as vcenter:
            seen = known(vcenter)
            gpu, off, deaf = (vm(seen, name).moref for name in ("gpu-1", "off", "deaf"))
            esx1, esx2 = host(seen, "esx1").moref, host(seen, "esx2").moref
            assert await vcenter.shut_down_guest(gpu) == Started("")
            await eventually(lambda: vm(seen, "gpu-1").power == "poweredOff", "the guest's own shutdown")
            assert isinstance(await vcenter.shut_down_guest(gpu), AlreadySo)
            refused = await vcenter.shut_down_guest(deaf)
            assert isinstance(refused, Refused)
            assert refused.kind is Kind.NO_TOOLS
            again = await vcenter.power_off(gpu)
            match again:
                case Started(task):
                    assert (await failure(seen, task)).already
                case _:
                    assert isinstance(again, AlreadySo)
            moving = await vcenter.relocate(off, esx1)
            assert isinstance(moving, Started)
            await eventually(lambda: (t := seen.task(moving.task)) and t.under_way, "the move under way")
            assert await vcenter.cancel_task(moving.task) == Started("")
            assert (await failure(seen, moving.task)).kind is Kind.CANCELLED
            assert vm(seen, "off").host == esx2
            simulator.ask("POST", "/settings", {"migrateSeconds": 0.05})
            assert isinstance(await vcenter.relocate(off, esx1), Started)
            await eventually(lambda: vm(seen, "off").host == esx1 and off in host(seen, "esx1").vms, "it moved")
            assert vm(seen, "off").datastores, "compute only: its disks are where they were"
            for nothing in (vcenter.power_on("vm-99999"), vcenter.power_off("vm-99999")):
                refused = await nothing
                assert isinstance(refused, Refused)
                assert refused.kind is Kind.GONE
            assert isinstance(await vcenter.cancel_task("task-99999"), AlreadySo)
            assert await vcenter.mark(gpu, "powered off for esx1") == Started("")
            assert seen.attribute(vm(seen, "gpu-1"), "hostler") == "powered off for esx1"
            assert await vcenter.mark(gpu, "") == Started("")
            assert seen.attribute(vm(seen, "gpu-1"), "hostler") == ""
            assert await vcenter.mark(off, "second") == Started("")
            assert measured(vcenter, "hostler_vcenter_calls_total", method="AddCustomFieldDef") == 1
        async with following(simulator.endpoint()) as later:
            assert known(later).attribute(vm(known(later), "off"), "hostler") == "second", "it outlives us"

    asyncio.run(story())


def test_many_are_read_in_one_call(simulator: Simulator) -> None:
    async def story() -> None:
        async with following(simulator.endpoint()) as vcenter:
            checked = await vcenter.check_nodes([SWAPPED, TWICE, "4206e4b5-0d3a-1d0f-86a1-2c1b6d9affff"])
            assert isinstance(checked, Known)
            assert [(one.uuid, one.name, one.hardware_version, one.esxi_version) for one in checked.value] == [
                (TWICE, "twin-a", "vmx-19", "7.0.1"),
                (TWICE, "twin-b", "vmx-19", "8.0.3"),
                (SWAPPED, "gpu-1", "vmx-19", "8.0.3"),
            ]
            assert measured(vcenter, "hostler_vcenter_calls_total", method="RetrievePropertiesEx") == 1
            seen = known(vcenter)
            looked = await vcenter.look([vm(seen, "gpu-1").moref, vm(seen, "off").moref, "vm-99999"])
            assert isinstance(looked, Known), looked
            assert {one.name: one.power for one in looked.value} == {"gpu-1": "poweredOn", "off": "poweredOff"}
            wanted = [Privilege("VirtualMachine.Interact.PowerOff", "to power off")]
            on = (vm(seen, "gpu-1").moref, next(seen.clusters()).pool)
            lacking = await vcenter.lacking_privileges(on, wanted)
            assert lacking == Known({one: [] for one in on}, lacking.at if isinstance(lacking, Known) else 0)
            assert measured(vcenter, "hostler_vcenter_calls_total", method="HasPrivilegeOnEntities") == 1
            assert measured(vcenter, "hostler_vcenter_calls_total", method="FetchUserPrivilegeOnEntities") == 0

    asyncio.run(story())


def test_what_is_not_pushed_is_seen_by_one_call(simulator: Simulator) -> None:
    """Power, place, maintenance and tasks of our VMs and their hosts; a direct look counts too."""

    async def story() -> None:
        async with following(simulator.endpoint(), poll=600) as vcenter:
            seen = known(vcenter)
            worker, spare = vm(seen, "gpu-1"), vm(seen, "off")
            assert await asyncio.to_thread(simulator.ask, "POST", "/silence")
            enter = await asyncio.to_thread(simulator.ask, "POST", f"/hosts/{seen.name(worker.host)}/enter")
            await asyncio.sleep(0.2)
            assert seen.entering(worker.host) is None, "nothing is pushed"
            calls = measured(vcenter, "hostler_vcenter_calls_total", method="RetrievePropertiesEx")
            await vcenter.refresh([worker.moref, spare.moref])
            assert measured(vcenter, "hostler_vcenter_calls_total", method="RetrievePropertiesEx") == calls + 1
            entering = seen.entering(worker.host)
            assert entering is not None
            assert entering.tasks == (enter["task"],)
            await asyncio.to_thread(simulator.ask, "POST", "/vms/gpu-1/power", {"state": "off"})
            await vcenter.look([worker.moref])
            assert vm(seen, "gpu-1").power == "poweredOff", "what was looked at is known"
            await eventually(lambda: simulator.ask("GET", f"/tasks/{enter['task']}")["state"] == "success", "it is in")
            await vcenter.refresh([worker.moref, spare.moref])
            host = seen.host(worker.host)
            assert host is not None
            assert (host.in_maintenance, seen.entering(worker.host)) == (True, None)
            await asyncio.to_thread(simulator.ask, "DELETE", "/silence")

    asyncio.run(story())


def test_devices_of_followed_vms_are_read_again_in_a_new_session(simulator: Simulator) -> None:
    """It was where a host's devices are read, and the new session finds it elsewhere, where nobody reads them."""

    async def story() -> None:
        async with following(simulator.endpoint(), poll=600) as vcenter:
            seen = known(vcenter)
            one, gpus, plain = vm(seen, "deaf").moref, host(seen, "esx1").moref, host(seen, "esx2").moref
            await vcenter.follow([one])
            assert vm(seen, "deaf").devices == ()
            await vcenter.relocate(one, gpus)
            await eventually(lambda: vm(seen, "deaf").host == gpus, "it is on a host with devices")
            await asyncio.to_thread(simulator.ask, "POST", "/silence")
            await vcenter.relocate(one, plain)
            await asyncio.sleep(1)
            await asyncio.to_thread(simulator.ask, "POST", "/sessions/expire")
            await asyncio.to_thread(simulator.ask, "DELETE", "/silence")
            await eventually(lambda: vm(seen, "deaf").host == plain, "the new session has found it")
            await eventually(lambda: vm(seen, "deaf").devices == (), "its devices are known")

    asyncio.run(story())


def test_a_vm_that_is_gone_is_gone_everywhere(simulator: Simulator) -> None:
    async def story() -> None:
        async with following(simulator.endpoint()) as vcenter:
            seen = known(vcenter)
            off = vm(seen, "off")

            def destroy() -> None:
                with simulator.client() as content:
                    found = content.searchIndex.FindByUuid(None, off.uuid, True, False)
                    found.Destroy_Task()

            await asyncio.to_thread(destroy)
            await eventually(lambda: not seen.vms_named("off"), "the VM gone")
            assert (seen.vm(off.moref), seen.vms_with_uuid(off.uuid)) == (None, [])
            assert off.moref not in {one.moref for one in seen.vms_on(off.host)}

    asyncio.run(story())
