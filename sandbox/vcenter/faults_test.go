package main

import (
	"encoding/xml"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// client is the context of somebody who logged in: faults are injected only there.
func (w *world) client() *simulator.Context {
	ctx := w.context()
	ctx.Session.Key, ctx.Session.LoginTime = "a client", time.Now()
	return ctx
}

func (w *world) call(name string, this ref, body any) types.BaseMethodFault {
	_, fault := w.override(w.client(), &simulator.Method{Name: name, This: this, Body: body})
	return fault
}

func TestInjectedFaultsComeAsOftenAsAsked(t *testing.T) {
	w := newWorld(t)
	w.ask("POST", "/faults", `{"method": "PowerOnVM_Task", "vm": "gpu-off", "fault": "InsufficientResourcesFault", "times": 2}`)
	for range 2 {
		task, _ := w.power(w.client(), w.vmRef("gpu-off"), poweredOn)
		want(t, "injected", faultName(w.ends(task)), "InsufficientResourcesFault")
	}
	_, left := w.ask("GET", "/faults", "")
	want(t, "left", fmt.Sprint(left["faults"]), "[]")
	task, _ := w.power(w.client(), w.vmRef("gpu-off"), poweredOn)
	want(t, "the third time", w.ends(task), nil)

	w.ask("POST", "/faults", `{"method": "EnterMaintenanceMode_Task", "host": "esx2", "fault": "Timedout", "delaySeconds": 0.05}`)
	began := time.Now()
	enter, _ := w.Sim.enter(w.client(), w.hostRef("esx2"), 0, false)
	want(t, "after a while", faultName(w.ends(enter)), "Timedout")
	if took := time.Since(began); took < 50*time.Millisecond {
		t.Errorf("too early: %v", took)
	}
	w.ask("POST", "/faults", `{"method": "ShutdownGuest", "host": "esx1", "fault": "ToolsUnavailable", "times": -1}`)
	want(t, "another host", w.call("ShutdownGuest", w.vmRef("web-1"), nil), nil)
	for range 3 {
		want(t, "for ever", faultName(w.call("ShutdownGuest", w.vmRef("gpu-1"), nil)), "ToolsUnavailable")
	}
	w.ask("DELETE", "/faults", "")
	want(t, "taken back", w.call("ShutdownGuest", w.vmRef("gpu-1"), nil), nil)
}

func TestTheControlEndpointIsSparedFromFaults(t *testing.T) {
	w := newWorld(t)
	w.ask("POST", "/faults", `{"method": "PowerOnVM_Task", "fault": "NoPermission", "times": -1}`)
	status, out := w.ask("POST", "/vms/gpu-off/power", `{"state": "on"}`)
	want(t, "status", status, 202)
	_, task := w.ask("GET", "/tasks/"+out["task"].(string), "")
	want(t, "task", fmt.Sprint(task["state"]), "success")
}

func TestWrongFaultsAreRefused(t *testing.T) {
	w := newWorld(t)
	for body, says := range map[string]string{
		`{"method": "Fly", "fault": "NoPermission"}`:                              `"Fly" is no call`,
		`{"method": "PowerOnVM_Task", "fault": "Fly"}`:                            `"Fly" is no fault`,
		`{"method": "PowerOnVM_Task", "fault": "VirtualMachine"}`:                 "is no fault",
		`{"method": "*", "fault": "NoPermission"}`:                                "needs a vm or a host",
		`{"method": "ShutdownGuest", "fault": "NoPermission", "asTask": true}`:    "asTask: only possible for",
		`{"method": "ShutdownGuest", "fault": "NoPermission", "times": 0}`:        "times",
		`{"method": "ShutdownGuest", "fault": "NoPermission", "vm": "nobody"}`:    `no VM "nobody"`,
		`{"method": "ShutdownGuest", "fault": "NoPermission", "delaySeconds":-1}`: "delaySeconds",
	} {
		status, out := w.ask("POST", "/faults", body)
		if text := fmt.Sprint(out["error"]); status < 400 || !strings.Contains(text, says) {
			t.Errorf("%s: %d %s", body, status, text)
		}
	}
}

func TestEveryFaultOfTheAPIHasItsMandatoryFields(t *testing.T) {
	w, made := newWorld(t), 0
	about := ref{Type: "VirtualMachine", Value: "vm-1"}
	for _, name := range []string{"InvalidPowerState", "VmConfigFault", "NoCompatibleHost", "InsufficientHostMemoryCapacityFault", "TaskInProgress",
		"ConcurrentAccess", "FileNotFound", "HostCommunication", "InvalidArgument", "ManagedObjectNotFound", "VMotionInterfaceIssue",
		"PowerOnFtSecondaryFailed", "DatastoreNotWritableOnHost", "DasConfigFault", "SystemError", "NotAuthenticated"} {
		fault := w.makeFault(name, about, "PowerOnVM_Task")
		want(t, "name", faultName(fault), name)
		if _, err := xml.Marshal(fault); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if empty := emptyText(reflect.ValueOf(fault).Elem()); empty != "" {
			t.Errorf("%s: %s is empty", name, empty)
		}
		made++
	}
	want(t, "made", made, 16)
}

func emptyText(v reflect.Value) string {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if strings.Contains(f.Tag.Get("xml"), "omitempty") {
			continue
		}
		if v.Field(i).Kind() == reflect.String && v.Field(i).String() == "" {
			return f.Name
		}
		if v.Field(i).Kind() == reflect.Struct && f.Anonymous {
			if name := emptyText(v.Field(i)); name != "" {
				return name
			}
		}
	}
	return ""
}

func TestExpiredSessionsAndWaits(t *testing.T) {
	w := newWorld(t)
	ctx := w.client()
	collector := w.collectors.get(ctx, w.model.ServiceContent.PropertyCollector)
	done := make(chan types.BaseMethodFault, 1)
	go func() {
		_, fault := w.collectors.wait(ctx, collector, "", nil, 0)
		done <- fault
	}()
	time.Sleep(20 * time.Millisecond)
	w.ask("POST", "/sessions/expire", "")
	want(t, "the wait", faultName(<-done), "NotAuthenticated")
	_, fault := w.override(ctx, &simulator.Method{Name: "CurrentTime", This: ref{Type: "ServiceInstance", Value: "ServiceInstance"}})
	want(t, "the next call", faultName(fault), "NotAuthenticated")
	want(t, "a new login", w.call("CurrentTime", ref{Type: "ServiceInstance", Value: "ServiceInstance"}, nil), nil)
}

func TestMissingPrivileges(t *testing.T) {
	w := newWorld(t)
	w.ask("POST", "/privileges", `{"missing": ["VirtualMachine.Interact.PowerOff"]}`)
	fault, ok := w.call("PowerOffVM_Task", w.vmRef("gpu-1"), nil).(*types.NoPermission)
	if !ok || fault.PrivilegeId != "VirtualMachine.Interact.PowerOff" || *fault.Object != w.vmRef("gpu-1") {
		t.Errorf("%+v", fault)
	}
	w.ask("POST", "/privileges", `{"missing": []}`)
	want(t, "given back", w.call("PowerOffVM_Task", w.vmRef("gpu-1"), nil), nil)
}

func TestPrivilegesAreAskedWithTheObjectsOwnType(t *testing.T) {
	w := newWorld(t)
	vm, ctx := w.vmRef("gpu-1"), w.client()
	ctx.Session.UserName = "tester"
	manager := &calls{sim: w.Sim, self: *w.model.ServiceContent.AuthorizationManager}
	by := func(entity ref) types.BaseMethodFault {
		body := manager.HasPrivilegeOnEntities(ctx, &types.HasPrivilegeOnEntities{Entity: []ref{entity}})
		if body.Fault() == nil {
			return nil
		}
		return body.Fault().VimFault().(types.BaseMethodFault)
	}
	byUser := func(entity ref, user string) string {
		body := manager.FetchUserPrivilegeOnEntities(ctx, &types.FetchUserPrivilegeOnEntities{Entities: []ref{entity}, UserName: user})
		if body.Fault() != nil {
			return faultName(body.Fault().VimFault().(types.BaseMethodFault))
		}
		return ""
	}
	want(t, "its own type", by(vm), nil)
	want(t, "its base type", faultName(by(ref{Type: "ManagedEntity", Value: vm.Value})), "ManagedObjectNotFound")
	want(t, "another type", faultName(by(ref{Type: "ResourcePool", Value: vm.Value})), "ManagedObjectNotFound")
	want(t, "by user", byUser(vm, "tester"), "")
	want(t, "by another user", byUser(vm, "nobody"), "InvalidArgument")
	w.ask("POST", "/faults", `{"method": "*", "vm": "gpu-1", "fault": "NoPermission", "times": -1}`)
	want(t, "a VM that may not be read", faultName(by(vm)), "NoPermission")
	want(t, "which System.View is enough for", byUser(vm, "tester"), "")
}
