package main

import (
	"testing"

	"github.com/vmware/govmomi/vim25/types"
)

// cpus: a host with 8 cores and 16 logical CPUs, and one without hyperthreading.
const cpus = `{"datacenters": [{"name": "dc1", "clusters": [{"name": "plain", "hosts": [
    {"name": "esx1", "cpu": {"sockets": 1, "cores": 8, "mhz": 2000}},
    {"name": "esx2", "cpu": {"sockets": 1, "cores": 8, "threads": 8, "mhz": 2000}}]}],
 "vms": [
  {"name": "wide", "host": "esx1", "power": "off", "cpus": 16},
  {"name": "wider", "host": "esx1", "power": "off", "cpus": 17},
  {"name": "plain", "host": "esx2", "power": "off", "cpus": 9}]}]}`

func TestVCPUsAreLimitedByLogicalCPUs(t *testing.T) {
	w := newWorldOf(t, cpus)
	want(t, "16 on 16 logical CPUs", w.on("wide"), "on esx1")
	want(t, "17 on 16 logical CPUs", w.on("wider"), "NotEnoughLogicalCpus")
	want(t, "9 on 8 cores without hyperthreading", w.on("plain"), "NotEnoughCpus")
}

func TestADatastoreIsTakenFromAHostAndGivenBack(t *testing.T) {
	w := newWorldOf(t, cpus)
	code, body := w.ask("POST", "/datastores/datastore1/access", `{"host": "esx1", "accessible": false}`)
	want(t, "status", code, 200)
	want(t, "another host still reaches it", body["accessible"].(bool), true)
	want(t, "a start without its datastore", w.on("wide"), "InaccessibleDatastore")
	w.ask("POST", "/datastores/datastore1/access", `{"host": "esx1", "accessible": true}`)
	want(t, "a start with it", w.on("wide"), "on esx1")
	_, body = w.ask("POST", "/datastores/datastore1/access", `{"accessible": false}`)
	want(t, "nobody reaches it", body["accessible"].(bool), false)
	code, _ = w.ask("POST", "/datastores/none/access", `{"accessible": false}`)
	want(t, "a datastore that is not there", code, 404)
}

func TestARenamedHostKeepsItsID(t *testing.T) {
	w := newWorldOf(t, cpus)
	id := w.hostRef("esx1")
	code, _ := w.ask("POST", "/hosts/esx1/rename", `{"name": "esx1-new"}`)
	want(t, "status", code, 200)
	want(t, "the same id", w.hostRef("esx1-new"), id)
	code, _ = w.ask("POST", "/hosts/esx2/rename", `{"name": "esx1-new"}`)
	want(t, "a name that is taken", code, 409)
}

func TestADynamicDeviceWithoutAListTakesAnyDevice(t *testing.T) {
	w := newWorldOf(t, `{"datacenters": [{"name": "dc1", "clusters": [{"name": "c", "hosts": [
		{"name": "esx1", "devices": [{"id": "0000:01:00.0", "vendor": "10de", "device": "20b5"}]}, {"name": "esx2"}]}],
		"vms": [{"name": "a", "host": "esx1", "power": "off", "devices": [{"kind": "dynamic"}]},
		        {"name": "b", "host": "esx2", "power": "off", "devices": [{"kind": "dynamic"}]}]}]}`)
	want(t, "where a device is", w.on("a"), "on esx1")
	want(t, "where none is", w.on("b"), "InsufficientResourcesFault")
}

// alone: two standalone hosts and a cluster in one datacenter.
const alone = `{"datacenters": [{"name": "dc1",
 "hosts": [{"name": "esx1", "devices": [{"id": "0000:01:00.0", "vendor": "10de", "device": "20b5"}]},
           {"name": "esx2", "devices": [{"id": "0000:01:00.0", "vendor": "10de", "device": "20b5"}]}],
 "clusters": [{"name": "c", "hosts": [{"name": "esx3"}]}],
 "vms": [{"name": "a", "host": "esx1", "devices": [{"kind": "dynamic", "allowed": [{"vendor": "10de", "device": "20b5"}]}]}]}]}`

func TestStandaloneHostsAreComputeResourcesOfTheirOwn(t *testing.T) {
	w := newWorldOf(t, alone)
	first, second := w.host(w.hostRef("esx1")), w.host(w.hostRef("esx2"))
	want(t, "its parent", first.Parent.Type, "ComputeResource")
	task := w.enter("esx1", 0, false)
	state, _ := w.task(task)
	want(t, "nothing moves a VM from it", string(state), "running")
	want(t, "off", w.powerTo("a", poweredOff), nil)
	want(t, "then it completes", w.ends(task), nil)
	spec := types.VirtualMachineRelocateSpec{Host: &second.Self}
	moved, _ := w.relocate(w.context(), w.vmRef("a"), &spec)
	want(t, "without a pool", faultName(w.ends(moved)), "InvalidArgument")
	spec.Pool = w.rootPool(*second.Parent)
	moved, _ = w.relocate(w.context(), w.vmRef("a"), &spec)
	want(t, "into its root pool", w.ends(moved), nil)
	want(t, "the pool", *w.vm(w.vmRef("a")).ResourcePool, *spec.Pool)
	want(t, "started there", w.on("a"), "on esx2")
}

func TestAHardwareLabelMustBeTheSame(t *testing.T) {
	w := newWorldOf(t, `{"datacenters": [{"name": "dc1", "clusters": [{"name": "c", "drs": "fullyAutomated", "hosts": [
		{"name": "esx1", "devices": [{"id": "0000:01:00.0", "vendor": "10de", "device": "20b5", "label": "inference"}]},
		{"name": "esx2", "devices": [{"id": "0000:01:00.0", "vendor": "10de", "device": "20b5", "label": "training"}]}]}],
		"vms": [{"name": "a", "host": "esx1", "power": "off",
		         "devices": [{"kind": "dynamic", "allowed": [{"vendor": "10de", "device": "20b5"}], "label": "training"}]}]}]}`)
	want(t, "where the label is", w.on("a"), "on esx2")
}

func TestNetworkCardsAndUSBDevicesPinARunningVM(t *testing.T) {
	w := newWorldOf(t, `{"datacenters": [{"name": "dc1", "clusters": [{"name": "c", "drs": "fullyAutomated", "hosts": [
		{"name": "esx1"}, {"name": "esx2"}]}],
		"vms": [{"name": "card", "host": "esx1", "devices": [{"kind": "sriov"}]},
		        {"name": "stick", "host": "esx1", "devices": [{"kind": "usb"}]}, {"name": "plain", "host": "esx1"}]}]}`)
	for name, pins := range map[string]bool{"card": true, "stick": true, "plain": false} {
		want(t, name, w.pinned(w.context(), w.vmRef(name)) != "", pins)
	}
}
