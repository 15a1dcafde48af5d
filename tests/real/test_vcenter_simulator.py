"""The vCenter simulator over the wire: a built binary, real TLS, the vendor's own client.

What a maintenance job relies on is shown here once, so that a story that fails later is the story's fault.
"""

from __future__ import annotations

import json
import signal
import ssl
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hostler.sandbox import build
from tests.real.vcenter import PC, Simulator, Watch, connect, done, every, find, running, until, vim, vmodl

# pyVmomi leaves the socket of a refused login to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

INVENTORY = """{"datacenters": [{"name": "dc1", "clusters": [
  {"name": "gpu", "drs": "off", "hosts": [{"name": "esx1", "devices": [
    {"id": "0000:3b:00.0", "vendor": "10de", "device": "20b5", "vgpuProfiles": ["grid_a100-40c"]}]}, {"name": "esx2"}]},
  {"name": "web", "drs": "fullyAutomated", "hosts": [{"name": "esx3"}, {"name": "esx4"}]},
  {"name": "lab", "drs": "manual", "hosts": [{"name": "esx5"}, {"name": "esx6"}]},
  {"name": "away", "hosts": [{"name": "esx7", "connection": "notResponding"}]}],
 "datastores": [{"name": "shared"}, {"name": "local3", "hosts": ["esx3"]}],
 "vms": [
  {"name": "gpu-1", "host": "esx1", "uuid": "4206E4B5-0D3A-1D0F-86A1-2C1B6D9A0001",
   "devices": [{"kind": "fixed", "id": "0000:3b:00.0"}]},
  {"name": "gpu-off", "host": "esx1", "power": "off"},
  {"name": "web-1", "host": "esx3"},
  {"name": "web-2", "host": "esx3", "tools": "notRunning"},
  {"name": "web-gpu", "host": "esx3", "devices": [
    {"kind": "dynamic", "allowed": [{"vendor": "0x10DE", "device": "20b5"}]}]},
  {"name": "web-local", "host": "esx3", "power": "off", "datastore": "local3"},
  {"name": "lab-1", "host": "esx5"},
  {"name": "vgpu-1", "host": "esx6", "devices": [{"kind": "vgpu", "profile": "grid_a100-40c"}]}]}]}"""


@pytest.fixture(scope="module")
def binary() -> Path:
    return build.ensure("vcenter", build.Lines(print))


@pytest.fixture
def simulator(binary: Path, tmp_path: Path) -> Iterator[Simulator]:
    with running(binary, tmp_path, INVENTORY) as found:
        yield found


def test_connection_data_is_private_and_the_login_is_checked(simulator: Simulator, tmp_path: Path) -> None:
    assert {(tmp_path / name).stat().st_mode & 0o777 for name in ("vcenter.json", "vcenter-ca.pem")} == {0o600}
    assert set(simulator.state) == {"host", "port", "user", "password", "url", "ca_bundle", "control", "pid"}
    with simulator.client() as si:
        assert si.content.about.apiVersion == "8.0.3.0"
        assert "simulator" in si.content.about.fullName
    with pytest.raises(vim.fault.InvalidLogin), simulator.client(password="wrong"):
        pass
    other = ssl.create_default_context()
    with pytest.raises(ssl.SSLCertVerificationError):
        connect.SmartConnect(host="127.0.0.1", port=simulator.state["port"], user="x", pwd="x", sslContext=other)
    simulator.process.send_signal(signal.SIGTERM)
    assert simulator.process.wait(5) == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["inventory.json"]


def test_every_property_decodes_and_says_what_the_inventory_says(simulator: Simulator) -> None:
    kinds = (vim.HostSystem, vim.VirtualMachine, vim.ClusterComputeResource, vim.Datastore, vim.Network, vim.Datacenter)
    with simulator.client() as si:
        for kind in kinds:
            view = si.content.viewManager.CreateContainerView(si.content.rootFolder, [kind], True)
            objects = [PC.ObjectSpec(obj=o) for o in view.view]
            spec = PC.FilterSpec(objectSet=objects, propSet=[PC.PropertySpec(type=kind, all=True)])
            assert len(si.content.propertyCollector.RetrieveContents([spec])) == len(objects) > 0
        gpu = si.content.searchIndex.FindByUuid(None, "4206e4b5-0d3a-1d0f-86a1-2c1b6d9a0001", True, False)
        assert (gpu.name, gpu.config.version, gpu.guest.toolsRunningStatus) == ("gpu-1", "vmx-19", "guestToolsRunning")
        device = [d.backing for d in gpu.config.hardware.device if isinstance(d, vim.vm.device.VirtualPCIPassthrough)]
        assert [(b.id, b.vendorId) for b in device] == [("0000:3b:00.0", 0x10DE)]
        dynamic = find(si, vim.VirtualMachine, "web-gpu").config.hardware.device[-1].backing
        assert [(a.vendorId, a.deviceId) for a in dynamic.allowedDevice] == [(0x10DE, 0x20B5)]
        assert find(si, vim.VirtualMachine, "vgpu-1").config.hardware.device[-1].backing.vgpu == "grid_a100-40c"
        host = find(si, vim.HostSystem, "esx1")
        assert (host.config.product.version, host.config.pciPassthruInfo[0].passthruActive) == ("8.0.3", True)
        drs = {c: find(si, vim.ClusterComputeResource, c).configurationEx.drsConfig for c in ("gpu", "web", "lab")}
        modes = {name: (d.enabled, d.defaultVmBehavior) for name, d in drs.items()}
        assert modes == {"gpu": (False, "manual"), "web": (True, "fullyAutomated"), "lab": (True, "manual")}


def test_enter_hangs_and_every_watcher_sees_it_until_the_vm_is_off(simulator: Simulator) -> None:
    with simulator.client() as si, simulator.client() as other:
        watches = [Watch(si), Watch(other)]
        host, vm = find(si, vim.HostSystem, "esx1"), find(si, vim.VirtualMachine, "gpu-1")
        bystander = find(si, vim.VirtualMachine, "lab-1")
        until(lambda: all(w.of(vm, "name") for w in watches), "the first look")
        task = host.EnterMaintenanceMode_Task(timeout=0, evacuatePoweredOffVms=False)
        every(watches, lambda w: w.of(task, "info.state") == "running", "the running task")
        every(watches, lambda w: task in w.of(host, "recentTask"), "the task in recentTask")
        assert {w.of(task, "info.descriptionId") for w in watches} == {"HostSystem.enterMaintenanceMode"}
        # Reads, pushes and other work go on while it hangs.
        assert done(bystander.PowerOffVM_Task()) is None
        every(watches, lambda w: w.of(bystander, "runtime.powerState") == "poweredOff", "another VM's change")
        assert (task.info.state, task.info.progress, host.runtime.inMaintenanceMode) == ("running", 2, False)
        assert (task in host.recentTask, task.info.cancelable) == (True, True)
        assert simulator.look("hosts", "esx1")["entering"]
        assert "passthrough device" in simulator.look("vms", "gpu-1")["why"]
        assert done(vm.PowerOffVM_Task()) is None
        assert done(task) is None
        every(watches, lambda w: w.of(host, "runtime.inMaintenanceMode") is True, "maintenance")
        every(watches, lambda w: w.of(task, "info.state") == "success", "success")
        every(watches, lambda w: w.of(vm, "runtime.powerState") == "poweredOff", "the VM off")
        for w in watches:
            w.stop()
        kinds = [type(e) for e in si.content.eventManager.QueryEvents(vim.event.EventFilterSpec())]
        assert {vim.event.EnteringMaintenanceModeEvent, vim.event.EnteredMaintenanceModeEvent} <= set(kinds)
        assert isinstance(done(vm.PowerOnVM_Task()), vim.fault.InvalidState)
        assert isinstance(done(host.EnterMaintenanceMode_Task(0)), vim.fault.InvalidState)
        assert done(host.ExitMaintenanceMode_Task(0)) is None
        assert done(vm.PowerOnVM_Task()) is None
        assert isinstance(done(host.ExitMaintenanceMode_Task(0)), vim.fault.InvalidState)


def test_cancel_timeout_and_repeated_enter(simulator: Simulator) -> None:
    with simulator.client() as si:
        host, vm = find(si, vim.HostSystem, "esx1"), find(si, vim.VirtualMachine, "gpu-1")
        first, second = host.EnterMaintenanceMode_Task(0), host.EnterMaintenanceMode_Task(0)
        short = host.EnterMaintenanceMode_Task(1)
        first.CancelTask()
        assert isinstance(done(first), vmodl.fault.RequestCanceled)
        assert first.info.cancelled
        assert isinstance(done(short), vim.fault.Timedout)
        assert second.info.state == "running"
        with pytest.raises(vim.fault.InvalidState):
            first.CancelTask()
        assert isinstance(done(find(si, vim.VirtualMachine, "gpu-off").PowerOnVM_Task()), vim.fault.InvalidState)
        assert simulator.ask("POST", "/hosts/esx1/cancel") == (200, {"tasks": [second._moId]})
        assert isinstance(done(second), vmodl.fault.RequestCanceled)
        assert not host.runtime.inMaintenanceMode
        assert simulator.ask("POST", "/hosts/esx1/cancel")[0] == 409
        assert done(find(si, vim.VirtualMachine, "gpu-off").PowerOnVM_Task()) is None
        again = [host.EnterMaintenanceMode_Task(0), host.EnterMaintenanceMode_Task(0)]
        for one in (vm, find(si, vim.VirtualMachine, "gpu-off")):
            assert done(one.PowerOffVM_Task()) is None
        assert [done(t) for t in again] == [None, None]
        with pytest.raises(vmodl.fault.HostNotConnected):
            find(si, vim.HostSystem, "esx7").EnterMaintenanceMode_Task(0)


def test_drs_moves_what_can_move_and_the_rest_keeps_the_task_hanging(simulator: Simulator) -> None:
    simulator.ask("POST", "/settings", {"migrateSeconds": 0.1})
    with simulator.client() as si:
        watch = Watch(si)
        esx3, esx4 = find(si, vim.HostSystem, "esx3"), find(si, vim.HostSystem, "esx4")
        vms = {name: find(si, vim.VirtualMachine, name) for name in ("web-1", "web-2", "web-gpu", "web-local")}
        until(lambda: watch.of(vms["web-gpu"], "name"), "the first look")
        task = esx3.EnterMaintenanceMode_Task(0)
        until(lambda: {watch.of(vms[v], "runtime.host") for v in ("web-1", "web-2")} == {esx4}, "both moved")
        until(lambda: set(watch.of(esx4, "vm")) == {vms["web-1"], vms["web-2"]}, "host.vm of the new host")
        until(lambda: set(watch.of(esx3, "vm")) == {vms["web-gpu"], vms["web-local"]}, "host.vm of the old host")
        assert task.info.state == "running"
        assert watch.progress == sorted(watch.progress)
        assert 2 < task.info.progress < 100
        vms["web-gpu"].ShutdownGuest()
        assert done(task) is None
        # The powered-off VM on a local datastore cannot go anywhere: DRS leaves it.
        assert [simulator.look("vms", v)["host"] for v in ("web-gpu", "web-local")] == ["esx4", "esx3"]
        watch.stop()
        lab = find(si, vim.HostSystem, "esx5").EnterMaintenanceMode_Task(1)
        assert isinstance(done(lab), vim.fault.Timedout), "manual DRS only recommends"


def test_powered_off_vms_are_registered_elsewhere_when_asked(simulator: Simulator) -> None:
    with simulator.client() as si:
        host, off = find(si, vim.HostSystem, "esx1"), find(si, vim.VirtualMachine, "gpu-off")
        task = host.EnterMaintenanceMode_Task(timeout=0, evacuatePoweredOffVms=True)
        until(lambda: off.runtime.host.name == "esx2", "the powered-off VM elsewhere")
        assert (off.runtime.powerState, task.info.state) == ("poweredOff", "running")
        find(si, vim.VirtualMachine, "gpu-1").PowerOffVM_Task()
        assert done(task) is None
        assert list(host.vm) == []


def test_power_and_guest_operations(simulator: Simulator) -> None:
    with simulator.client() as si:
        on, off = find(si, vim.VirtualMachine, "gpu-1"), find(si, vim.VirtualMachine, "gpu-off")
        fault = done(on.PowerOnVM_Task())
        assert isinstance(fault, vim.fault.InvalidPowerState)
        assert (fault.requestedState, fault.existingState) == ("poweredOn", "poweredOn")
        assert isinstance(done(off.PowerOffVM_Task()), vim.fault.InvalidPowerState)
        assert isinstance(done(off.ResetVM_Task()), vim.fault.InvalidPowerState)
        for call in (off.ShutdownGuest, off.RebootGuest):
            with pytest.raises(vim.fault.InvalidPowerState):
                call()
        with pytest.raises(vim.fault.ToolsUnavailable):
            find(si, vim.VirtualMachine, "web-2").ShutdownGuest()
        on.RebootGuest()
        assert done(on.ResetVM_Task()) is None
        assert simulator.look("vms", "gpu-1")["boots"] == 3
        simulator.ask("POST", "/settings", {"guestShutdownSeconds": 0.5})
        simulator.ask("POST", "/settings", {"guestShutdownSeconds": -1, "vm": "web-1"})
        began, deaf = time.monotonic(), find(si, vim.VirtualMachine, "web-1")
        deaf.ShutdownGuest()
        on.ShutdownGuest()
        assert on.runtime.powerState == "poweredOn"
        until(lambda: on.runtime.powerState == "poweredOff", "the guest's own shutdown")
        assert time.monotonic() - began > 0.4
        assert (on.guest.toolsRunningStatus, on.runtime.bootTime) == ("guestToolsNotRunning", None)
        assert deaf.runtime.powerState == "poweredOn"
        assert done(deaf.PowerOffVM_Task()) is None


def test_relocate_moves_compute_only(simulator: Simulator) -> None:
    simulator.ask("POST", "/settings", {"migrateSeconds": 0.1})
    with simulator.client() as si:
        hosts = {h: find(si, vim.HostSystem, h) for h in ("esx1", "esx2", "esx4")}
        vms = {v: find(si, vim.VirtualMachine, v) for v in ("gpu-1", "gpu-off", "web-1", "web-local")}

        def move(vm: str, host: str, **more: Any) -> Any:
            return vms[vm].RelocateVM_Task(vim.vm.RelocateSpec(host=hosts[host], **more))

        assert isinstance(done(move("gpu-1", "esx2")), vim.fault.MigrationFeatureNotSupported)
        assert done(move("gpu-off", "esx2")) is None
        assert (list(hosts["esx1"].vm), list(hosts["esx2"].vm)) == ([vms["gpu-1"]], [vms["gpu-off"]])
        assert done(move("web-1", "esx4")) is None
        assert isinstance(done(move("web-local", "esx4")), vim.fault.DatastoreNotWritableOnHost)
        elsewhere = move("gpu-off", "esx1", datastore=find(si, vim.Datastore, "local3"))
        assert isinstance(done(elsewhere), vmodl.fault.NotSupported)
        simulator.ask("POST", "/settings", {"migrateSeconds": 30})
        slow = move("gpu-off", "esx1")
        slow.CancelTask()
        assert isinstance(done(slow), vmodl.fault.RequestCanceled)
        simulator.ask("POST", "/hosts/esx1/enter")
        assert isinstance(done(move("gpu-off", "esx1")), vim.fault.InvalidState)
        assert vms["gpu-off"].runtime.host.name == "esx2"
        assert done(vms["gpu-off"].Destroy_Task()) is None
        assert "gpu-off" not in {v["name"] for v in simulator.ask("GET", "/state")[1]["vms"]}
        with pytest.raises(vmodl.fault.ManagedObjectNotFound):
            vms["gpu-off"].PowerOnVM_Task()


def test_the_event_stream_starts_with_a_snapshot_and_misses_nothing(simulator: Simulator) -> None:
    with urllib.request.urlopen(simulator.state["control"] + "/events", timeout=20) as stream:

        def line() -> dict[str, Any]:
            while not (text := stream.readline().strip()):
                pass
            return dict(json.loads(text))

        snapshot = [line() for _ in range(9)]
        assert [s["type"] for s in snapshot] == ["power"] * 8 + ["synced"]
        assert {s["vm"]: s["state"] for s in snapshot[:-1]}["gpu-off"] == "poweredOff"
        status, answer = simulator.ask("POST", "/hosts/esx1/enter", {"timeoutSeconds": 60})
        assert status == 202
        assert simulator.ask("POST", "/vms/gpu-1/power", {"state": "off"})[0] == 202
        until(lambda: simulator.ask("GET", f"/tasks/{answer['task']}")[1]["state"] == "success", "the end of the task")
        assert simulator.ask("POST", "/hosts/esx1/exit")[0] == 202
        assert simulator.ask("POST", "/vms/gpu-1/power", {"state": "on"})[0] == 202
        changes = [line() for _ in range(5)]
        assert [c["seq"] for c in changes] == [1, 2, 3, 4, 5]
        told = [(c["type"], c["state"], c["host"], c.get("boots")) for c in changes]
        assert told == [
            ("maintenance", "entering", "esx1", None),
            ("power", "poweredOff", "esx1", 1),
            ("maintenance", "in", "esx1", None),
            ("maintenance", "out", "esx1", None),
            ("power", "poweredOn", "esx1", 2),
        ]
        assert changes[1]["uuid"] == "4206e4b5-0d3a-1d0f-86a1-2c1b6d9a0001"
