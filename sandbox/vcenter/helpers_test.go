package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

const fleet = `{"datacenters": [{"name": "dc1",
 "clusters": [
  {"name": "gpu", "hosts": [{"name": "esx1", "devices": [{"id": "0000:3b:00.0", "vendor": "10de", "device": "20b5"}]}, {"name": "esx2"}]},
  {"name": "web", "drs": "fullyAutomated", "hosts": [
    {"name": "esx3", "devices": [{"id": "0000:3b:00.0", "vendor": "10de", "device": "20b5", "vgpuProfiles": ["p"]}]},
    {"name": "esx4", "devices": [{"id": "0000:3b:00.0", "vendor": "10de", "device": "20b5", "vgpuProfiles": ["p"]}]}]},
  {"name": "lab", "drs": "manual", "hosts": [{"name": "esx5", "maintenance": true}, {"name": "esx6"}]}],
 "vms": [
  {"name": "gpu-1", "host": "esx1", "devices": [{"kind": "fixed", "id": "0000:3b:00.0"}]},
  {"name": "gpu-off", "host": "esx1", "power": "off"},
  {"name": "web-1", "host": "esx3"},
  {"name": "web-pinned", "host": "esx3", "movable": false},
  {"name": "web-free", "host": "esx4", "movable": true, "devices": [{"kind": "vgpu", "profile": "p"}]},
  {"name": "lab-1", "host": "esx6"}]}]}`

// world is a simulator without a SOAP server, and its control endpoint.
type world struct {
	*Sim
	t       *testing.T
	control http.Handler
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldOf(t, fleet)
}

func newWorldOf(t *testing.T, inventory string) *world {
	t.Helper()
	inv, err := ReadInventory([]byte(inventory))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", t.TempDir())
	s, err := NewSim(inv, "tester")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	s.settings.migrateSeconds, s.settings.guestShutdownSeconds = 0.01, 0.01
	return &world{Sim: s, t: t, control: (&Control{sim: s, stop: func() {}}).Handler()}
}

func (w *world) hostRef(name string) ref {
	w.t.Helper()
	r, err := (&Control{sim: w.Sim}).findHost(name)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

func (w *world) vmRef(name string) ref {
	w.t.Helper()
	r, err := (&Control{sim: w.Sim}).findVM(name)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// ask sends a request to the control endpoint.
func (w *world) ask(method, path, body string) (int, map[string]any) {
	w.t.Helper()
	request := httptest.NewRequest(method, "http://127.0.0.1"+path, strings.NewReader(body))
	answer := httptest.NewRecorder()
	w.control.ServeHTTP(answer, request)
	out := map[string]any{}
	if err := json.Unmarshal(answer.Body.Bytes(), &out); err != nil {
		w.t.Fatalf("%s %s: %v in %q", method, path, err, answer.Body)
	}
	return answer.Code, out
}

func (w *world) enter(name string, timeout int32, evacuateOff bool) ref {
	w.t.Helper()
	task, fault := w.Sim.enter(w.context(), w.hostRef(name), timeout, evacuateOff)
	if fault != nil {
		w.t.Fatalf("enter %s: %T", name, fault)
	}
	return task
}

func (w *world) powerTo(name string, to types.VirtualMachinePowerState) types.BaseMethodFault {
	w.t.Helper()
	task, fault := w.power(w.context(), w.vmRef(name), to)
	if fault != nil {
		return fault
	}
	_, fault = w.task(task)
	return fault
}

// task reads the state and the fault of a task.
func (w *world) task(r ref) (types.TaskInfoState, types.BaseMethodFault) {
	w.t.Helper()
	task, ok := w.reg.Get(r).(*simulator.Task)
	if !ok {
		w.t.Fatalf("there is no task %v", r)
	}
	var state types.TaskInfoState
	var fault types.BaseMethodFault
	w.reg.WithLock(w.context(), task.Self, func() {
		state = task.Info.State
		if task.Info.Error != nil {
			fault = task.Info.Error.Fault
		}
	})
	return state, fault
}

func (w *world) ends(r ref) types.BaseMethodFault {
	w.t.Helper()
	w.until("the end of the task", func() bool {
		state, _ := w.task(r)
		return state != types.TaskInfoStateRunning
	})
	_, fault := w.task(r)
	return fault
}

func (w *world) until(what string, look func() bool) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for !look() {
		if ctx.Err() != nil {
			w.t.Fatalf("never came: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func (w *world) hostOf(vm string) string {
	w.t.Helper()
	now, _ := w.vmNow(w.vmRef(vm))
	return w.hostNow(now.host).name
}

func want[T comparable](t *testing.T, what string, got, expected T) {
	t.Helper()
	if got != expected {
		t.Fatalf("%s: got %v, want %v", what, got, expected)
	}
}
