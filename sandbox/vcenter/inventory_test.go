package main

import (
	"strings"
	"testing"
)

func TestAWrongInventoryIsNamedByItsPath(t *testing.T) {
	base := func(vm string) string {
		return `{"datacenters":[{"name":"d","clusters":[{"name":"c","hosts":[{"name":"h","devices":[{"id":"0000:3b:00.0","vendor":"10de","device":"1"}]}]}],"vms":[` + vm + `]}]}`
	}
	cases := []struct{ text, says string }{
		{``, "it is empty"},
		{"{\n\"datacenters\": [}", "line 2: not valid JSON"},
		{`{} {}`, "something after the JSON object"},
		{`[]`, "the top: an object is expected, not a list"},
		{`{}`, "datacenters: at least one is needed"},
		{`{"datacenters":[{"name":""}]}`, "datacenters[0].name: a name is needed"},
		{`{"datacenters":[{"name":"d"}]}`, "datacenters[0].clusters: at least one is needed"},
		{`{"datacenters":[{"name":"d","clusters":[{"name":"c","drs":"on","hosts":[{"name":"h"}]}]}]}`, `datacenters[0].clusters[0].drs: "on" is not one of off, manual, partiallyAutomated, fullyAutomated`},
		{`{"datacenters":[{"name":"d","clusters":[{"name":"c","hosts":[{"name":"h"},{"name":"h"}]}]}]}`, `datacenters[0].clusters[0].hosts[1].name: there is already a cluster or host "h" at datacenters[0].clusters[0].hosts[0].name`},
		{`{"datacenters":[{"name":"d","clusters":[{"name":"c","hosts":[{"name":"h","devices":[{"id":"3b:00"}]}]}]}]}`, `hosts[0].devices[0].id: "3b:00" is not a PCI address`},
		{`{"datacenters":[{"name":"d","clusters":[{"name":"c","hosts":[{"name":"h","devices":[{"id":"0000:3b:00.0","vendor":"x","device":"1"}]}]}]}]}`, `devices[0].vendor: "x" is not a PCI id`},
		{`{"datacenters":[{"name":"d","networks":[{"name":"n","hosts":["z"]}],"clusters":[{"name":"c","hosts":[{"name":"h"}]}]}]}`, `datacenters[0].networks[0].hosts[0]: there is no host "z"`},
		{base(`{"name":"v","host":"h"},{"name":"v","host":"h","uuid":"4206e4b5-0d3a-1d0f-86a1-2c1b6d9a0001","instanceUuid":"4206e4b5-0d3a-1d0f-86a1-2c1b6d9a0002"}`), `datacenters[0].vms[1].name: there is already a VM "v"`},
		{base(`{"name":"v"}`), "datacenters[0].vms[0].host: the name of a host is needed"},
		{base(`{"name":"v","host":"x"}`), `datacenters[0].vms[0].host: there is no host "x" in datacenter "d"`},
		{base(`{"name":"v","host":"h","cpus":"two"}`), `datacenters[0].vms[0].cpus: a whole number is expected, not the text "two"`},
		{base(`{"name":"v","host":"h","cpus":1.5}`), `datacenters[0].vms[0].cpus: a whole number is expected, not 1.5`},
		{base(`{"name":"v","host":"h","movable":"no"}`), `datacenters[0].vms[0].movable: true or false is expected`},
		{base(`{"name":"v","host":"h","color":1}`), "datacenters[0].vms[0].color: this field is not known; known here are name,"},
		{base(`{"name":"v","host":"h","uuid":"1"}`), `datacenters[0].vms[0].uuid: "1" is not a UUID`},
		{base(`{"name":"a","host":"h","uuid":"4206e4b5-0d3a-1d0f-86a1-2c1b6d9a0001"},{"name":"b","host":"h","uuid":"4206E4B5-0d3a-1d0f-86a1-2c1b6d9a0001"}`), "datacenters[0].vms[1].uuid: there is already a VM with UUID"},
		{base(`{"name":"v","host":"h","datastore":"x"}`), `datacenters[0].vms[0].datastore: there is no datastore "x"`},
		{base(`{"name":"v","host":"h","devices":[{"kind":"fixed"}]}`), "devices[0].id: a fixed device needs"},
		{base(`{"name":"v","host":"h","devices":[{"kind":"fixed","id":"0000:3c:00.0"}]}`), `devices[0].id: host "h" has no device "0000:3c:00.0"`},
		{base(`{"name":"v","host":"h","devices":[{"kind":"floppy"}]}`), `devices[0].kind: "floppy" is not one of fixed, dynamic, vgpu, sriov, usb`},
	}
	for _, c := range cases {
		_, err := ReadInventory([]byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s\n got: %v\nwant: %s", c.text, err, c.says)
		}
	}
}

func TestTwoVMsWithOneUUIDOnlyOnPurpose(t *testing.T) {
	text := `{"allowDuplicateUUIDs":true,"datacenters":[{"name":"d","clusters":[{"name":"c","hosts":[{"name":"h"}]}],"vms":[
	 {"name":"a","host":"h","uuid":"4206e4b5-0d3a-1d0f-86a1-2c1b6d9a0001"},{"name":"b","host":"h","uuid":"4206e4b5-0d3a-1d0f-86a1-2c1b6d9a0001"}]}]}`
	if _, err := ReadInventory([]byte(text)); err != nil {
		t.Fatal(err)
	}
}

func TestDefaultsAreTheSameAtEveryStart(t *testing.T) {
	first, err := ReadInventory([]byte(fleet))
	if err != nil {
		t.Fatal(err)
	}
	second, _ := ReadInventory([]byte(fleet))
	a, b := first.Datacenters[0].VMs[0], second.Datacenters[0].VMs[0]
	want(t, "uuid", a.UUID, b.UUID)
	want(t, "hardware version", a.HardwareVersion, "vmx-19")
	want(t, "datastore", a.Datastore, "datastore1")
	if a.UUID == a.InstanceUUID {
		t.Error("the two UUIDs of a VM must differ")
	}
}

func TestFlagsAreCheckedBeforeAnythingStarts(t *testing.T) {
	cases := []struct {
		args []string
		says string
	}{
		{[]string{}, "--inventory is needed"},
		{[]string{"--inventory", "x"}, "--state is needed"},
		{[]string{"--inventory", "x", "--state", "y", "--listen", "0.0.0.0:0"}, "not a loopback address"},
		{[]string{"--inventory", "x", "--state", "y", "--control", "10.0.0.1:80"}, "not a loopback address"},
		{[]string{"--inventory", "x", "--state", "y", "--listen", "nowhere"}, "is not an address like"},
		{[]string{"--inventory", "x", "--state", "y", "--cert", "z"}, "--cert and --key belong together"},
		{[]string{"--inventory", "x", "--state", "nowhere/y"}, "--state: there is no directory nowhere"},
		{[]string{"--inventory", "x", "--state", "y", "more"}, `"more" is not expected`},
	}
	for _, c := range cases {
		_, err := parse(c.args)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v\n got: %v\nwant: %s", c.args, err, c.says)
		}
	}
	if _, err := parse([]string{"--inventory", "x", "--state", "y", "--listen", "[::1]:0"}); err != nil {
		t.Errorf("the IPv6 loopback is loopback: %v", err)
	}
}
