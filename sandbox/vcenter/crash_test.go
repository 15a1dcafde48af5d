package main

import (
	"net"
	"testing"

	"github.com/vmware/govmomi/vim25/types"
)

func (w *world) vmRuntime(name string) string {
	vm := w.vm(w.vmRef(name))
	text := ""
	w.reg.WithLock(w.context(), vm.Self, func() {
		text = string(vm.Runtime.PowerState) + " " + string(vm.Runtime.ConnectionState)
	})
	return text
}

func (w *world) guest(name string) string {
	w.feed.mu.Lock()
	defer w.feed.mu.Unlock()
	for r, vm := range w.feed.vms {
		if vm.name == name {
			return w.feed.powerEvent(r, vm).State
		}
	}
	return ""
}

func TestACrashedHostIsSilentAndItsVMsAreOffAfterwards(t *testing.T) {
	w := newWorldOf(t, gpus)
	task := w.enter("esx1", 0, false)
	status, _ := w.ask("POST", "/hosts/esx1/crash", "")
	want(t, "crash", status, 200)
	want(t, "the Enter task", faultName(w.ends(task)), "HostNotConnected")
	want(t, "vCenter's view", w.vmRuntime("fixed-1"), "poweredOn disconnected")
	want(t, "the truth", w.guest("fixed-1"), "poweredOff")
	want(t, "host", w.hostNow(w.hostRef("esx1")).connection, notResponding)
	want(t, "power off", faultName(w.powerTo("fixed-1", poweredOff)), "HostNotConnected")
	for path, status := range map[string]int{"crash": 409, "enter": 409, "reconnect": 409, "disconnect": 202} {
		got, _ := w.ask("POST", "/hosts/esx1/"+path, "")
		want(t, path, got, status)
	}
	status, _ = w.ask("POST", "/hosts/esx1/recover", "")
	want(t, "recover", status, 200)
	want(t, "after the boot", w.vmRuntime("fixed-1"), "poweredOff connected")
	want(t, "the device is free", w.deviceLine("esx1"), "01 true [];02 true [];")
	status, _ = w.ask("POST", "/hosts/esx1/recover", "")
	want(t, "recover twice", status, 409)
}

func TestAHostMayStartItsVMsByItself(t *testing.T) {
	w := newWorldOf(t, gpus)
	w.ask("POST", "/hosts/esx1/crash", "")
	w.ask("POST", "/hosts/esx1/recover", `{"powerOn": true}`)
	want(t, "fixed-1", w.vmRuntime("fixed-1"), "poweredOn connected")
	vm, _ := w.vmNow(w.vmRef("fixed-1"))
	want(t, "boots", vm.boots, 2)
}

func TestHAStartsVMsElsewhere(t *testing.T) {
	w := newWorldOf(t, gpus)
	w.ask("POST", "/hosts/esx4/crash", `{"ha": true, "haSeconds": 0.02}`)
	want(t, "before", w.guest("drs-1"), "poweredOff")
	w.until("drs-1 elsewhere", func() bool { return w.guest("drs-1") == "poweredOn" && w.guest("plain-1") == "poweredOn" })
	want(t, "host", w.hostOf("drs-1"), "esx5")
	want(t, "runtime", w.vmRuntime("drs-1"), "poweredOn connected")
	vm, _ := w.vmNow(w.vmRef("drs-1"))
	want(t, "boots", vm.boots, 2)
	want(t, "its device", w.deviceLine("esx5"), "01 false [drs-1];")
	w.ask("POST", "/hosts/esx4/recover", "")
	want(t, "it stays", w.hostOf("drs-1"), "esx5")
	want(t, "runtime", w.vmRuntime("drs-1"), "poweredOn connected")
}

func TestVMsOfAHostThatIsAwayFromTheStart(t *testing.T) {
	w := newWorldOf(t, `{"datacenters": [{"name": "d", "clusters": [{"name": "c", "hosts": [{"name": "h", "connection": "notResponding"}]}],
	  "vms": [{"name": "v", "host": "h"}]}]}`)
	want(t, "runtime", w.vmRuntime("v"), "poweredOn disconnected")
	status, _ := w.ask("POST", "/hosts/h/reconnect", "")
	want(t, "reconnect", status, 202)
	want(t, "runtime", w.vmRuntime("v"), "poweredOn connected")
}

func TestThePortComesBackWhenItIsFreeAgain(t *testing.T) {
	w := newWorldOf(t, gpus)
	pair, err := certificate("", "")
	if err != nil {
		t.Fatal(err)
	}
	server, err := w.listen("127.0.0.1:0", pair, login{"u", "p"})
	if err != nil {
		t.Fatal(err)
	}
	status, _ := w.ask("POST", "/outage", `{"mode": "sulk"}`)
	want(t, "an unknown mode", status, 400)
	status, _ = w.ask("POST", "/outage", "")
	want(t, "until it is ended", status, 202)
	taken, err := net.Listen("tcp", server.Host)
	if err != nil {
		t.Fatal(err)
	}
	status, _ = w.ask("DELETE", "/outage", "")
	want(t, "the port is taken", status, 409)
	want(t, "still away", w.api.inOutage(), outageRefuse)
	_ = taken.Close()
	w.until("the API again", func() bool { return w.api.inOutage() == "" })
	connection, err := net.Dial("tcp", server.Host)
	if err != nil {
		t.Fatal(err)
	}
	_ = connection.Close()
}

func TestALostConnectionLetsVMsRun(t *testing.T) {
	w := newWorldOf(t, gpus)
	task, _ := w.switchConnection(w.context(), w.hostRef("esx1"), disconnected)
	want(t, "disconnect", w.ends(task), types.BaseMethodFault(nil))
	want(t, "vCenter's view", w.vmRuntime("fixed-1"), "poweredOn disconnected")
	want(t, "the truth", w.guest("fixed-1"), "poweredOn")
	want(t, "again", faultName(w.disconnected("esx1")), "InvalidState")
	status, _ := w.ask("POST", "/hosts/esx1/reconnect", "")
	want(t, "reconnect", status, 202)
	want(t, "vCenter's view", w.vmRuntime("fixed-1"), "poweredOn connected")
	vm, _ := w.vmNow(w.vmRef("fixed-1"))
	want(t, "boots", vm.boots, 1)
}

func (w *world) disconnected(name string) types.BaseMethodFault {
	task, _ := w.switchConnection(w.context(), w.hostRef(name), disconnected)
	return w.ends(task)
}
