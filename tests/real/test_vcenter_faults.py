"""The vCenter simulator when things go wrong, over the wire: devices, DRS, injected faults, outages, crashed hosts."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hostler.sandbox import build
from tests.real.vcenter import Simulator, Watch, done, find, running, until, vim, vmodl

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

A100 = {"vendor": "10de", "device": "20b5"}
DYNAMIC = [{"kind": "dynamic", "allowed": [A100]}]
GPU = {"id": "0000:3b:00.0", **A100}
SHARED = {"id": "0000:5e:00.0", "vendor": "10de", "device": "2235", "vgpuProfiles": ["grid_a40-24c"], "vgpuSlots": 1}
INVENTORY = {
    "datacenters": [
        {
            "name": "dc1",
            "clusters": [
                {"name": "plain", "hosts": [{"name": "esx1", "devices": [GPU, SHARED]}, {"name": "esx2"}]},
                {
                    "name": "auto",
                    "drs": "fullyAutomated",
                    "hosts": [{"name": "esx3", "devices": [GPU]}, {"name": "esx4", "devices": [GPU]}],
                },
            ],
            "vms": [
                {"name": "gpu-1", "host": "esx1", "devices": DYNAMIC},
                {"name": "gpu-2", "host": "esx1", "power": "off", "devices": DYNAMIC},
                {"name": "fixed", "host": "esx1", "power": "off", "devices": [{"kind": "fixed", "id": GPU["id"]}]},
                {"name": "v-1", "host": "esx1", "devices": [{"kind": "vgpu", "profile": "grid_a40-24c"}]},
                {
                    "name": "v-2",
                    "host": "esx1",
                    "power": "off",
                    "devices": [{"kind": "vgpu", "profile": "grid_a40-24c"}],
                },
                {
                    "name": "big",
                    "host": "esx2",
                    "power": "off",
                    "memoryMB": 600000,
                    "reservation": {"memoryMB": 600000},
                },
                {"name": "hungry", "host": "esx2", "power": "off", "reservation": {"cpuMHz": 100000}},
                {"name": "app", "host": "esx2", "power": "off"},
                {"name": "drs-1", "host": "esx3", "devices": DYNAMIC},
                {"name": "drs-2", "host": "esx3", "power": "off", "devices": DYNAMIC},
                {"name": "drs-3", "host": "esx3", "power": "off", "devices": DYNAMIC},
                {"name": "alone", "host": "esx3", "power": "off", "drs": "off", "devices": DYNAMIC},
            ],
        }
    ]
}


@pytest.fixture(scope="module")
def binary() -> Path:
    return build.ensure("vcenter", build.Lines(print))


@pytest.fixture
def simulator(binary: Path, tmp_path: Path) -> Iterator[Simulator]:
    with running(binary, tmp_path, json.dumps(INVENTORY)) as found:
        yield found


def vms(si: Any, *names: str) -> list[Any]:
    return [find(si, vim.VirtualMachine, name) for name in names]


def devices(simulator: Simulator, host: str) -> dict[str, list[str]]:
    return {d["id"]: d["usedBy"] for d in simulator.look("hosts", host)["devices"]}


def inject(simulator: Simulator, method: str, fault: str, **more: Any) -> None:
    status, answer = simulator.ask("POST", "/faults", {"method": method, "fault": fault, **more})
    assert status == 200, answer


def test_a_powered_on_vm_holds_its_devices_and_reservations(simulator: Simulator) -> None:
    assert devices(simulator, "esx1") == {GPU["id"]: ["gpu-1"], SHARED["id"]: ["v-1"]}
    with simulator.client() as si:
        one, two, fixed, vgpu, big, hungry = vms(si, "gpu-1", "gpu-2", "fixed", "v-2", "big", "hungry")
        missing = done(two.PowerOnVM_Task())
        assert type(missing) is vim.fault.InsufficientResourcesFault
        assert "pciPassthru0" in missing.faultMessage[0].message
        refused = done(fixed.PowerOnVM_Task())
        assert isinstance(refused, vim.fault.GenericVmConfigFault)
        assert GPU["id"] in refused.reason
        assert isinstance(done(vgpu.PowerOnVM_Task()), vim.fault.InsufficientGraphicsResourcesFault)
        memory, cpu = done(big.PowerOnVM_Task()), done(hungry.PowerOnVM_Task())
        assert isinstance(memory, vim.fault.InsufficientHostMemoryCapacityFault)
        assert (memory.requested, memory.unreserved) == (600000 << 20, 524288 << 20)
        assert isinstance(cpu, vim.fault.InsufficientHostCpuCapacityFault)
        assert (cpu.host.name, cpu.requested, cpu.unreserved) == ("esx2", 100000, 32 * 2600)
        assert one.config.hardware.device[-1].backing.assignedId == GPU["id"]
        graphics = find(si, vim.HostSystem, "esx1").config.graphicsInfo
        assert [[vm.name for vm in g.vm] for g in graphics] == [["v-1"]]
        assert done(one.PowerOffVM_Task()) is None
        assert devices(simulator, "esx1")[GPU["id"]] == []
        assert done(two.PowerOnVM_Task()) is None
        assert devices(simulator, "esx1")[GPU["id"]] == ["gpu-2"]
    host = simulator.look("hosts", "esx1")
    assert host["memoryMB"] == {"total": 524288, "reserved": 2 * 16384, "free": 524288 - 2 * 16384}


def test_drs_places_at_power_on_and_may_be_faster(simulator: Simulator) -> None:
    with simulator.client() as si:
        one, two, three, alone = vms(si, "drs-1", "drs-2", "drs-3", "alone")
        assert done(two.PowerOnVM_Task()) is None
        assert two.runtime.host.name == "esx4"
        none = done(three.PowerOnVM_Task())
        assert isinstance(none, vim.fault.NoCompatibleHost)
        assert [(h.name, type(e)) for h, e in zip(none.host, none.error, strict=True)] == [
            ("esx3", vim.fault.InsufficientResourcesFault),
            ("esx4", vim.fault.InsufficientResourcesFault),
        ]
        assert type(done(alone.PowerOnVM_Task())) is vim.fault.InsufficientResourcesFault, "DRS is off for this one"
        # The race: DRS starts it a moment before we do.
        assert done(one.PowerOffVM_Task()) is None
        assert simulator.ask("POST", "/vms/drs-1/drs", {"when": "nextPowerOn"})[0] == 202
        assert isinstance(done(one.PowerOnVM_Task()), vim.fault.InvalidPowerState)
        assert one.runtime.powerState == "poweredOn"
        # A host that leaves is no candidate, so nobody can take it.
        assert done(one.PowerOffVM_Task()) is None
        simulator.ask("POST", "/hosts/esx3/enter")
        until(lambda: find(si, vim.HostSystem, "esx3").runtime.inMaintenanceMode, "maintenance")
        assert isinstance(done(one.PowerOnVM_Task()), vim.fault.NoCompatibleHost)
        assert done(two.PowerOffVM_Task()) is None
        many = one.parent.parent.PowerOnMultiVM_Task([one])
        assert done(many) is None
        assert done(many.info.result.attempted[0].task) is None
        assert (one.runtime.host.name, one.runtime.powerState) == ("esx4", "poweredOn")
        # An override over the API counts too.
        spec = vim.cluster.DrsVmConfigSpec(
            operation="add", info=vim.cluster.DrsVmConfigInfo(key=two, enabled=False, behavior="manual")
        )
        cluster = find(si, vim.ClusterComputeResource, "auto")
        assert (
            done(cluster.ReconfigureComputeResource_Task(vim.cluster.ConfigSpecEx(drsVmConfigSpec=[spec]), True))
            is None
        )
        assert not isinstance(done(two.PowerOnVM_Task()), vim.fault.NoCompatibleHost)


def test_a_relocate_takes_its_time_and_looks_at_devices(simulator: Simulator) -> None:
    with simulator.client() as si:
        (gpu, app), (esx1, esx2) = vms(si, "gpu-2", "app"), [find(si, vim.HostSystem, h) for h in ("esx1", "esx2")]
        refused = done(gpu.RelocateVM_Task(vim.vm.RelocateSpec(host=esx2)))
        assert isinstance(refused, vim.fault.CannotAccessVmDevice)
        assert (refused.device, refused.backing) == ("pciPassthru0", "10de:20b5")
        simulator.ask("POST", "/settings", {"vm": "app", "migrateSeconds": 30})
        slow = app.RelocateVM_Task(vim.vm.RelocateSpec(host=esx1))
        time.sleep(0.6)
        assert (slow.info.state, slow.info.cancelable) == ("running", True)
        slow.CancelTask()
        assert isinstance(done(slow), vmodl.fault.RequestCanceled)
        settings = simulator.ask("POST", "/settings", {"vm": "app"})[1]
        assert settings["vmMigrateSeconds"] == {}
        assert done(app.RelocateVM_Task(vim.vm.RelocateSpec(host=esx1))) is None


def test_injected_faults(simulator: Simulator) -> None:
    with simulator.client() as si:
        app, gpu = vms(si, "app", "gpu-1")
        inject(simulator, "PowerOnVM_Task", "InsufficientResourcesFault", vm="app", times=3)
        for _ in range(3):
            assert isinstance(done(app.PowerOnVM_Task()), vim.fault.InsufficientResourcesFault)
        assert done(app.PowerOnVM_Task()) is None
        inject(simulator, "PowerOffVM_Task", "TaskInProgress", asTask=False, vm="app")
        with pytest.raises(vim.fault.TaskInProgress) as busy:
            app.PowerOffVM_Task()
        assert busy.value.task is not None
        inject(simulator, "PowerOffVM_Task", "InvalidPowerState", vm="app", delaySeconds=0.3)
        slow = app.PowerOffVM_Task()
        assert slow.info.state == "running"
        fault = done(slow)
        assert (fault.requestedState, fault.existingState) == ("poweredOff", "poweredOff")
        inject(simulator, "RelocateVM_Task", "HostCommunication", host="esx2", times=-1)
        for _ in range(2):
            spec = vim.vm.RelocateSpec(host=find(si, vim.HostSystem, "esx1"))
            assert isinstance(done(app.RelocateVM_Task(spec)), vmodl.fault.HostCommunication)
        inject(simulator, "WaitForUpdatesEx", "SystemError")
        collector = si.content.propertyCollector.CreatePropertyCollector()
        with pytest.raises(vmodl.fault.SystemError):
            collector.WaitForUpdatesEx("", None)
        for name in ("VmConfigFault", "FileNotFound", "InsufficientFailoverResourcesFault", "VMotionInterfaceIssue"):
            inject(simulator, "ShutdownGuest", name, vm="gpu-1")
            with pytest.raises(vmodl.MethodFault) as seen:
                gpu.ShutdownGuest()
            assert type(seen.value).__name__.endswith(name)
        assert simulator.ask("DELETE", "/faults") == (200, {"faults": []})
        assert simulator.ask("POST", "/faults", {"method": "Fly", "fault": "NoPermission"})[0] == 400


def test_no_permission_on_one_vm(simulator: Simulator) -> None:
    with simulator.client() as si:
        watch = Watch(si)
        denied, other = vms(si, "gpu-1", "app")
        until(lambda: watch.of(denied, "runtime.powerState"), "the first look")
        inject(simulator, "*", "NoPermission", vm="gpu-1", times=-1)
        with pytest.raises(vim.fault.NoPermission) as read:
            _ = denied.runtime
        assert (read.value.object, read.value.privilegeId) == (denied, "System.Read")
        with pytest.raises(vim.fault.NoPermission):
            denied.PowerOffVM_Task()
        assert (denied.name, other.runtime.powerState) == ("gpu-1", "poweredOff")
        until(lambda: "runtime.powerState" in watch.denied.get(denied._moId, ()), "the watcher's missing property")
        simulator.ask("DELETE", "/faults")
        until(lambda: not watch.denied.get(denied._moId), "the property again")
        assert denied.runtime.powerState == "poweredOn"
        watch.stop()


def test_missing_privileges_and_custom_attributes(simulator: Simulator) -> None:
    with simulator.client() as si:
        fields, (vm,) = si.content.customFieldsManager, vms(si, "app")
        rights = ["Global.SetCustomField", "VirtualMachine.Interact.PowerOn"]
        simulator.ask("POST", "/privileges", {"missing": rights[:1]})
        [entity] = si.content.authorizationManager.HasPrivilegeOnEntities(
            [si.content.rootFolder], si.content.sessionManager.currentSession.key, rights
        )
        assert {p.privId: p.isGranted for p in entity.privAvailability} == {rights[0]: False, rights[1]: True}
        key = fields.AddCustomFieldDef("hostler", vim.VirtualMachine).key
        with pytest.raises(vim.fault.NoPermission) as refused:
            fields.SetField(vm, key, "x")
        assert (refused.value.privilegeId, refused.value.object) == (rights[0], vm)
        simulator.ask("POST", "/privileges", {"missing": []})
        for value in ("first", "second"):
            fields.SetField(vm, key, value)
            assert [(v.key, v.value) for v in vm.customValue] == [(key, value)]
        fields.SetField(vm, key, "")
        assert list(vm.customValue) == []


def test_logins_are_counted_and_sessions_expire(simulator: Simulator) -> None:
    def count() -> tuple[int, int]:
        logins = simulator.ask("GET", "/state")[1]["logins"]
        return logins["attempts"], logins["failures"]

    with pytest.raises(vim.fault.InvalidLogin), simulator.client(password="wrong"):
        pass
    assert count() == (1, 1)
    with simulator.client() as si:
        watch, content = Watch(si), si.content
        until(lambda: watch.seen, "the first look")
        assert content.sessionManager.currentSession is not None
        assert simulator.ask("POST", "/sessions/expire")[0] == 200
        watch.join(5)
        assert "NotAuthenticated" in watch.failure
        assert content.sessionManager.currentSession is None
        with pytest.raises(vim.fault.NotAuthenticated):
            find(si, vim.VirtualMachine, "app")
        with pytest.raises(vim.fault.NotAuthenticated):
            _ = content.rootFolder.name
        content.sessionManager.Login(simulator.state["user"], simulator.state["password"])
        assert find(si, vim.VirtualMachine, "app").runtime.powerState == "poweredOff"
    assert count() == (3, 1)


def fails(look: Callable[[], Any]) -> bool:
    try:
        look()
    except Exception:  # noqa: BLE001  whatever a client sees of a vCenter that is away
        return True
    return False


@pytest.mark.parametrize(("mode", "lose"), [("refuse", False), ("503", True), ("hang", False)])
def test_vcenter_goes_away_and_comes_back_with_everything(simulator: Simulator, mode: str, lose: bool) -> None:
    with simulator.client() as si:
        app = find(si, vim.VirtualMachine, "app")
        assert done(app.PowerOnVM_Task()) is None
        task = find(si, vim.HostSystem, "esx1").EnterMaintenanceMode_Task(0)
        watch = Watch(si)
        until(lambda: watch.seen, "the first look")
        before = simulator.ask("GET", "/state")[1]
        body = {"seconds": 0.5, "mode": mode, "loseSessions": lose}
        assert simulator.ask("POST", "/outage", body)[0] == 202
        assert simulator.ask("POST", "/outage", body)[0] == 409
        assert simulator.ask("GET", "/state")[1]["outage"] == mode
        watch.join(5)
        assert watch.failure, "the wait that was under way ends"
        assert fails(lambda: app.runtime.powerState)
        until(lambda: simulator.ask("GET", "/state")[1]["outage"] == "", "the end of the outage")
        after = simulator.ask("GET", "/state")[1]
        assert (after["vms"], after["hosts"]) == (before["vms"], before["hosts"])
        if lose:
            with pytest.raises(vim.fault.NotAuthenticated):
                _ = app.runtime.powerState
            si.content.sessionManager.Login(simulator.state["user"], simulator.state["password"])
        until(lambda: not fails(lambda: app.runtime.powerState), "the connection")
        assert (app.runtime.powerState, task.info.state) == ("poweredOn", "running")
    assert simulator.ask("DELETE", "/outage")[0] == 409


def test_a_crashed_host_its_vms_and_its_way_back(simulator: Simulator) -> None:
    with simulator.client() as si, urllib.request.urlopen(simulator.state["control"] + "/events", timeout=20) as stream:

        def told(vm: str) -> tuple[str, str, int]:
            while True:
                line = json.loads(stream.readline().strip() or b"{}")
                if line.get("vm") == vm and line["type"] == "power":
                    return line["state"], line["host"], line["boots"]

        watch = Watch(si)
        esx1, esx3 = (find(si, vim.HostSystem, h) for h in ("esx1", "esx3"))
        gpu, drs = vms(si, "gpu-1", "drs-1")
        until(lambda: watch.of(gpu, "name"), "the first look")
        assert told("gpu-1") == ("poweredOn", "esx1", 1)
        assert simulator.ask("POST", "/hosts/esx1/crash")[0] == 200
        until(lambda: watch.of(esx1, "runtime.connectionState") == "notResponding", "the host at the watcher")
        until(lambda: watch.of(gpu, "runtime.connectionState") == "disconnected", "the VM at the watcher")
        assert (gpu.runtime.powerState, esx1.runtime.powerState) == ("poweredOn", "unknown")
        assert told("gpu-1") == ("poweredOff", "esx1", 1), "its node goes silent"
        assert isinstance(done(gpu.PowerOffVM_Task()), vmodl.fault.HostNotConnected)
        assert simulator.ask("POST", "/hosts/esx1/recover")[0] == 200
        until(lambda: watch.of(gpu, "runtime.powerState") == "poweredOff", "off after the boot of the host")
        until(lambda: watch.of(gpu, "runtime.connectionState") == "connected", "the VM again")
        assert simulator.ask("POST", "/hosts/esx3/crash", {"ha": True, "haSeconds": 0.3})[0] == 200
        assert told("drs-1") == ("poweredOff", "esx3", 1)
        assert told("drs-1") == ("poweredOn", "esx4", 2), "restarted elsewhere"
        assert (drs.runtime.host.name, drs.runtime.connectionState) == ("esx4", "connected")
        assert simulator.ask("POST", "/hosts/esx3/recover")[0] == 200
        # A lost connection is no crash: nothing is told, because the guests run on.
        assert done(esx1.DisconnectHost_Task()) is None
        until(lambda: watch.of(esx1, "runtime.connectionState") == "disconnected", "disconnected at the watcher")
        assert simulator.look("vms", "drs-1")["power"] == "poweredOn"
        assert done(esx1.ReconnectHost_Task()) is None
        until(lambda: watch.of(esx3, "runtime.connectionState") == "connected", "both back")
        watch.stop()


def test_repeated_enter_cancelled_and_asked_again(simulator: Simulator) -> None:
    assert simulator.look("vms", "gpu-1")["blocksMaintenance"]
    for _ in range(2):
        tasks = [simulator.ask("POST", "/hosts/esx1/enter")[1]["task"] for _ in range(3)]
        assert simulator.look("hosts", "esx1")["tasks"] == tasks
        assert simulator.ask("POST", "/hosts/esx1/cancel")[1] == {"tasks": tasks}
        assert not simulator.look("hosts", "esx1")["entering"]
    tasks = [simulator.ask("POST", "/hosts/esx1/enter")[1]["task"] for _ in range(2)]
    for vm in ("gpu-1", "v-1"):
        assert simulator.ask("POST", f"/vms/{vm}/power", {"state": "off"})[0] == 202
    until(lambda: simulator.look("hosts", "esx1")["inMaintenance"], "maintenance")
    assert {simulator.ask("GET", f"/tasks/{task}")[1]["state"] for task in tasks} == {"success"}
