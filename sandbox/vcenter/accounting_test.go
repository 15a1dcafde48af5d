package main

import (
	"fmt"
	"testing"

	"github.com/vmware/govmomi/vim25/types"
)

// gpus: a cluster without DRS and one with; each host has two A100 and esx3 none, esx6 a shared one.
const gpus = `{"datacenters": [{"name": "dc1",
 "datastores": [{"name": "shared"}, {"name": "local", "hosts": ["esx1"]}],
 "clusters": [
  {"name": "plain", "hosts": [
    {"name": "esx1", "devices": [{"id": "0000:01:00.0", "vendor": "10de", "device": "20b5"}, {"id": "0000:02:00.0", "vendor": "8086", "device": "56c0"}]},
    {"name": "esx2", "memoryMB": 65536, "devices": [{"id": "0000:01:00.0", "vendor": "10de", "device": "20b5"}]},
    {"name": "esx3"}]},
  {"name": "auto", "drs": "fullyAutomated", "hosts": [
    {"name": "esx4", "devices": [{"id": "0000:01:00.0", "vendor": "10de", "device": "20b5"}]},
    {"name": "esx5", "devices": [{"id": "0000:01:00.0", "vendor": "10de", "device": "20b5"}]},
    {"name": "esx6", "devices": [{"id": "0000:01:00.0", "vendor": "10de", "device": "2235", "vgpuProfiles": ["a", "b"], "vgpuSlots": 2}]}]}],
 "vms": [
  {"name": "fixed-1", "host": "esx1", "devices": [{"kind": "fixed", "id": "0000:01:00.0"}]},
  {"name": "fixed-2", "host": "esx1", "power": "off", "devices": [{"kind": "fixed", "id": "0000:01:00.0"}]},
  {"name": "any-1", "host": "esx1", "power": "off", "devices": [{"kind": "dynamic", "allowed": [{"vendor": "10de", "device": "20b5"}, {"vendor": "8086", "device": "56c0"}]}]},
  {"name": "any-2", "host": "esx1", "power": "off", "devices": [{"kind": "dynamic", "allowed": [{"vendor": "10de", "device": "20b5"}]}]},
  {"name": "big", "host": "esx2", "power": "off", "memoryMB": 65536, "reservation": {"memoryMB": 65536}},
  {"name": "busy", "host": "esx2", "power": "off", "reservation": {"cpuMHz": 80000, "memoryMB": 1024}},
  {"name": "drs-1", "host": "esx4", "devices": [{"kind": "dynamic", "allowed": [{"vendor": "10de", "device": "20b5"}]}]},
  {"name": "drs-2", "host": "esx4", "power": "off", "devices": [{"kind": "dynamic", "allowed": [{"vendor": "10de", "device": "20b5"}]}]},
  {"name": "drs-3", "host": "esx4", "power": "off", "devices": [{"kind": "dynamic", "allowed": [{"vendor": "10de", "device": "20b5"}]}]},
  {"name": "stay", "host": "esx4", "power": "off", "drs": "off", "devices": [{"kind": "dynamic", "allowed": [{"vendor": "10de", "device": "20b5"}]}]},
  {"name": "v-1", "host": "esx6", "power": "off", "devices": [{"kind": "vgpu", "profile": "a"}]},
  {"name": "v-2", "host": "esx6", "power": "off", "devices": [{"kind": "vgpu", "profile": "a"}]},
  {"name": "v-3", "host": "esx6", "power": "off", "drs": "off", "devices": [{"kind": "vgpu", "profile": "a"}]},
  {"name": "v-b", "host": "esx6", "power": "off", "drs": "manual", "devices": [{"kind": "vgpu", "profile": "b"}]},
  {"name": "plain-1", "host": "esx4"}]}]}`

func (w *world) on(name string) string {
	w.t.Helper()
	fault := w.powerTo(name, poweredOn)
	if fault == nil {
		return "on " + w.hostOf(name)
	}
	return faultName(fault)
}

func (w *world) deviceLine(host string) string {
	w.t.Helper()
	line := ""
	for _, h := range w.view().Hosts {
		if h.Name == host {
			for _, d := range h.Devices {
				line += fmt.Sprintf("%s %v %v;", d.ID[5:7], d.Free, d.UsedBy)
			}
		}
	}
	return line
}

func TestADeviceIsHeldByOneVMAtATime(t *testing.T) {
	w := newWorldOf(t, gpus)
	want(t, "at the start", w.deviceLine("esx1"), "01 false [fixed-1];02 true [];")
	want(t, "the same fixed device", w.on("fixed-2"), "GenericVmConfigFault")
	want(t, "the only kind it may have is taken", w.on("any-2"), "InsufficientResourcesFault")
	want(t, "another kind is free", w.on("any-1"), "on esx1")
	want(t, "all taken", w.deviceLine("esx1"), "01 false [fixed-1];02 false [any-1];")
	want(t, "assigned", w.assigned("any-1"), "0000:02:00.0")
	want(t, "off", w.powerTo("fixed-1", poweredOff), nil)
	want(t, "given back", w.on("any-2"), "on esx1")
	want(t, "the same fixed device", w.on("fixed-1"), "GenericVmConfigFault")
	want(t, "off", w.powerTo("any-1", poweredOff), nil)
	want(t, "nothing assigned", w.assigned("any-1"), "")
}

func (w *world) assigned(name string) string {
	for _, d := range w.vm(w.vmRef(name)).Config.Hardware.Device {
		if dev, ok := d.(*types.VirtualPCIPassthrough); ok {
			if b, ok := dev.Backing.(*types.VirtualPCIPassthroughDynamicBackingInfo); ok {
				return b.AssignedId
			}
		}
	}
	return ""
}

func TestReservationsAreKept(t *testing.T) {
	w := newWorldOf(t, gpus)
	want(t, "big", w.on("big"), "on esx2")
	fault, ok := w.powerTo("busy", poweredOn).(*types.InsufficientHostMemoryCapacityFault)
	if !ok || fault.Requested != 1024<<20 || fault.Unreserved != 0 || fault.Host == nil {
		t.Errorf("memory: %+v", fault)
	}
	want(t, "off", w.powerTo("big", poweredOff), nil)
	want(t, "busy", w.on("busy"), "on esx2")
	spare := w.hostRef("esx2")
	w.mu.Lock()
	w.capacity[spare] = budget{cpu: 80000, memory: 1 << 20}
	w.feed.vms[w.vmRef("big")].reserves.cpu = 1
	w.mu.Unlock()
	cpu, ok := w.powerTo("big", poweredOn).(*types.InsufficientHostCpuCapacityFault)
	if !ok || cpu.Requested != 1 || cpu.Unreserved != 0 {
		t.Errorf("CPU: %+v", cpu)
	}
}

func TestSharesOfAGPUAreCountedAndHaveOneProfile(t *testing.T) {
	w := newWorldOf(t, gpus)
	want(t, "v-1", w.on("v-1"), "on esx6")
	want(t, "another profile", w.on("v-b"), "InsufficientGraphicsResourcesFault")
	want(t, "v-2", w.on("v-2"), "on esx6")
	want(t, "no slot", w.on("v-3"), "InsufficientGraphicsResourcesFault")
	want(t, "sharers", len(w.host(w.hostRef("esx6")).Config.GraphicsInfo[0].Vm), 2)
	w.powerTo("v-1", poweredOff)
	w.powerTo("v-2", poweredOff)
	want(t, "the other profile", w.on("v-b"), "on esx6")
	want(t, "sharers", len(w.host(w.hostRef("esx6")).Config.GraphicsInfo[0].Vm), 1)
}

func TestDRSPlacesAtPowerOn(t *testing.T) {
	w := newWorldOf(t, gpus)
	want(t, "its own host is full", w.on("drs-2"), "on esx5")
	fault, ok := w.powerTo("drs-3", poweredOn).(*types.NoCompatibleHost)
	if !ok || len(fault.Host) != 3 || len(fault.Error) != 3 {
		t.Fatalf("no NoCompatibleHost with three reasons: %+v", fault)
	}
	want(t, "DRS is off for it", w.on("stay"), "InsufficientResourcesFault")
	w.powerTo("drs-1", poweredOff)
	w.enter("esx4", 0, false)
	want(t, "entering", w.on("drs-1"), "NoCompatibleHost")
	want(t, "entering, without DRS", w.on("stay"), "InvalidState")
	w.cancelEnter(w.hostRef("esx4"))
	want(t, "back", w.on("drs-1"), "on esx4")
}

func TestDRSMayBeFaster(t *testing.T) {
	w := newWorldOf(t, gpus)
	status, _ := w.ask("POST", "/vms/drs-2/drs", `{"when": "nextPowerOn"}`)
	want(t, "asked", status, 202)
	client := w.context()
	client.Session.Key = "a client"
	task, _ := w.power(client, w.vmRef("drs-2"), poweredOn)
	if _, ok := w.ends(task).(*types.InvalidPowerState); !ok {
		t.Error("the client won")
	}
	want(t, "where", w.hostOf("drs-2"), "esx5")
	status, out := w.ask("POST", "/vms/any-2/drs", "")
	want(t, "without DRS", fmt.Sprint(status, ": ", out["error"]), `409: VM "any-2": DRS is off for it, so it does not choose a host at power-on`)
	w.powerTo("drs-2", poweredOff)
	status, _ = w.ask("POST", "/vms/drs-2/drs", "")
	want(t, "now", status, 202)
	vm, _ := w.vmNow(w.vmRef("drs-2"))
	want(t, "power", vm.power, poweredOn)
}

func TestRelocateNeedsTheKindOfDevice(t *testing.T) {
	w := newWorldOf(t, gpus)
	move := func(vm, host string) string {
		target := w.hostRef(host)
		task, fault := w.relocate(w.context(), w.vmRef(vm), &types.VirtualMachineRelocateSpec{Host: &target})
		if fault != nil {
			return faultName(fault)
		}
		if fault = w.ends(task); fault != nil {
			return faultName(fault)
		}
		return w.hostOf(vm)
	}
	want(t, "no device", move("any-2", "esx3"), "CannotAccessVmDevice")
	want(t, "a device", move("any-2", "esx2"), "esx2")
	want(t, "starts there", w.on("any-2"), "on esx2")
	// A fixed one finds a device at its address, but it is another machine's.
	want(t, "fixed", move("fixed-2", "esx2"), "esx2")
	want(t, "fixed elsewhere", w.on("fixed-2"), "GenericVmConfigFault")
}
