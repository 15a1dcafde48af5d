package main

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/vmware/govmomi/vim25/types"
)

func TestRefusalsAreSentences(t *testing.T) {
	w := newWorld(t)
	cases := []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"POST", "/hosts/nobody/enter", "", 404, `there is no host "nobody"`},
		{"POST", "/hosts/esx5/enter", "", 409, `host "esx5" is already in maintenance`},
		{"POST", "/hosts/esx1/exit", "", 409, `host "esx1" is not in maintenance`},
		{"POST", "/hosts/esx1/cancel", "", 409, `host "esx1" is not entering maintenance`},
		{"POST", "/hosts/esx1/fly", "", 404, `not "fly"`},
		{"POST", "/hosts/esx1/enter", `{"timeout": 1}`, 400, "timeout: this field is not known"},
		{"POST", "/hosts/esx1/enter", `{"timeoutSeconds": "soon"}`, 400, "timeoutSeconds: a whole number is expected"},
		{"POST", "/vms/nobody/power", `{"state": "on"}`, 404, `there is no VM "nobody"`},
		{"POST", "/vms/gpu-1/power", `{"state": "up"}`, 400, `"on" or "off" is expected, not "up"`},
		{"POST", "/vms/gpu-1/power", `{"state": "on"}`, 409, "cannot be powered on"},
		{"POST", "/vms/gpu-off/reset", "", 409, "is not powered on"},
		{"POST", "/settings", `{"migrateSeconds": -1}`, 400, "migrateSeconds"},
		{"POST", "/settings", `{"vm": "x", "guestShutdownSeconds": 1}`, 404, `there is no VM "x"`},
		{"PUT", "/state", "", 405, "PUT is not possible"},
		{"GET", "/tasks/task-9", "", 404, `there is no task "task-9"`},
		{"GET", "/", "", 404, "there is nothing at /"},
	}
	for _, c := range cases {
		status, out := w.ask(c.method, c.path, c.body)
		text, _ := out["error"].(string)
		if status != c.status || !strings.Contains(text, c.says) {
			t.Errorf("%s %s: %d %q, want %d %q", c.method, c.path, status, text, c.status, c.says)
		}
	}
	request := httptest.NewRequest("GET", "http://evil.example/state", nil)
	answer := httptest.NewRecorder()
	w.control.ServeHTTP(answer, request)
	want(t, "a foreign Host header", answer.Code, http.StatusForbidden)
}

func TestStateSaysWhoBlocksAndWhy(t *testing.T) {
	w := newWorld(t)
	says := map[string]string{
		"gpu-1":      "has a passthrough device",
		"gpu-off":    "not powered on",
		"web-1":      `it can move live, to "esx4"`,
		"web-pinned": "is pinned to its host",
		"web-free":   "it can move live",
		"lab-1":      "only recommended",
	}
	for _, vm := range w.view().VMs {
		if !strings.Contains(vm.Why, says[vm.Name]) {
			t.Errorf("%s: %q, want %q", vm.Name, vm.Why, says[vm.Name])
		}
		blocks := vm.Name == "gpu-1" || vm.Name == "web-pinned" || vm.Name == "lab-1"
		want(t, vm.Name, vm.BlocksMaintenance, blocks)
	}
}

func TestSettingsForOneVMAndForAll(t *testing.T) {
	w := newWorld(t)
	w.ask("POST", "/settings", `{"guestShutdownSeconds": 7}`)
	_, out := w.ask("POST", "/settings", `{"vm": "gpu-1", "guestShutdownSeconds": -1}`)
	text, _ := json.Marshal(out)
	want(t, "settings", string(text), `{"guestShutdownSeconds":7,"migrateSeconds":0.01,"vmMigrateSeconds":{},"vms":{"gpu-1":-1}}`)
	_, out = w.ask("POST", "/settings", `{"vm": "gpu-1"}`)
	text, _ = json.Marshal(out["vms"])
	want(t, "taken back", string(text), `{}`)
}

func TestEventsAreASnapshotAndThenEveryChange(t *testing.T) {
	w := newWorld(t)
	server := httptest.NewServer(w.control)
	defer server.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	request, _ := http.NewRequestWithContext(ctx, "GET", server.URL+"/events", nil)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	next := func() Event {
		for lines.Scan() {
			if text := lines.Text(); text != "" {
				var e Event
				if err := json.Unmarshal([]byte(text), &e); err != nil {
					t.Fatal(err)
				}
				return e
			}
		}
		t.Fatal("the stream ended")
		return Event{}
	}
	for range 6 {
		want(t, "snapshot", next().Type, "power")
	}
	in := next()
	want(t, "snapshot of the host in maintenance", in.Host+" "+in.State, "esx5 in")
	want(t, "end of the snapshot", next().Type, "synced")

	w.ask("POST", "/hosts/esx1/enter", "")
	w.ask("POST", "/hosts/esx1/cancel", "")
	w.ask("POST", "/vms/lab-1/reset", "")
	w.ask("POST", "/hosts/esx3/enter", "")
	told := []string{}
	for i := range 5 {
		e := next()
		want(t, "seq", e.Seq, int64(i+1))
		told = append(told, e.Type+" "+e.VM+e.Host+" "+e.State)
	}
	want(t, "changes", strings.Join(told, ", "), "maintenance esx1 entering, maintenance esx1 cancelled, "+
		"power lab-1esx6 poweredOn, maintenance esx3 entering, moved web-1esx4 ")
}

func TestASlowReaderIsCutOffAndHurtsNobody(t *testing.T) {
	w := newWorld(t)
	_, slow := w.feed.subscribe()
	for range subscriptionRoom + 1 {
		w.feed.rebooted(w.vmRef("gpu-1"))
	}
	n := 0
	for range slow.lines {
		n++
	}
	want(t, "lines before the cut", n, subscriptionRoom)
}

func TestAVMIsNamedByAnyOfItsNamesButNeverGuessed(t *testing.T) {
	w := newWorld(t)
	c := &Control{sim: w.Sim}
	vm, _ := w.vmNow(w.vmRef("gpu-1"))
	for _, name := range []string{vm.uuid, strings.ToUpper(vm.uuid), vm.instance, w.vmRef("gpu-1").Value} {
		r, err := c.findVM(name)
		if err != nil || r != w.vmRef("gpu-1") {
			t.Errorf("%s: %v %v", name, r, err)
		}
	}
	w.reg.AtomicUpdate(w.context(), w.vm(w.vmRef("web-1")), []types.PropertyChange{{Name: "name", Val: "gpu-1"}})
	if _, err := c.findVM("gpu-1"); err == nil || !strings.Contains(err.Error(), "2 VMs fit") {
		t.Errorf("a guess: %v", err)
	}
}
