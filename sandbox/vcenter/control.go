package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

const heartbeat = 5 * time.Second

// refusal is an error with the status it is told by.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return r.text }

func refuse(status int, format string, args ...any) *refusal {
	return &refusal{status, fmt.Sprintf(format, args...)}
}

// Control is the HTTP side: what a test, a demo or a person does to the vCenter.
type Control struct {
	sim  *Sim
	stop func() // asks the process to end
}

// Handler routes; every answer is JSON, also the errors.
func (c *Control) Handler() http.Handler {
	routes := map[string]map[string]func(*http.Request) (int, any, error){
		"/healthz":           {"GET": c.healthz},
		"/state":             {"GET": c.state},
		"/settings":          {"GET": c.getSettings, "POST": c.postSettings},
		"/tasks/{id}":        {"GET": c.task},
		"/hosts/{name}/{do}": {"POST": c.hostDo},
		"/vms/{name}/{do}":   {"POST": c.vmDo},

		"/datastores/{name}/access": {"POST": c.datastoreDo},
		"/faults":                   {"GET": c.getFaults, "POST": c.postFault, "DELETE": c.deleteFaults},
		"/privileges":               {"POST": c.postPrivileges},
		"/certificate":              {"POST": c.postCertificate},
		"/sessions/expire":          {"POST": c.postExpire},
		"/outage":                   {"POST": c.postOutage, "DELETE": c.deleteOutage},
		"/silence":                  {"POST": c.postSilence, "DELETE": c.deleteSilence},
		"/stop":                     {"POST": c.postStop},
	}
	mux := http.NewServeMux()
	for path, verbs := range routes {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			f := verbs[r.Method]
			if f == nil {
				answer(w, 0, nil, refuse(http.StatusMethodNotAllowed, "%s is not possible on %s", r.Method, path))
				return
			}
			status, body, err := f(r)
			answer(w, status, body, err)
		})
	}
	mux.HandleFunc("/events", c.events)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		answer(w, 0, nil, refuse(http.StatusNotFound, "there is nothing at %s; see the README of the simulator", r.URL.Path))
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A page in a browser on this machine must not reach us through a name that points at loopback.
		if !isLoopbackName(r.Host) {
			answer(w, 0, nil, refuse(http.StatusForbidden, "this endpoint is for loopback names only, not %q", r.Host))
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func isLoopbackName(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = hostport
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func answer(w http.ResponseWriter, status int, body any, err error) {
	if err != nil {
		status = http.StatusInternalServerError
		var r *refusal
		if errors.As(err, &r) {
			status = r.status
		}
		body = map[string]string{"error": err.Error()}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client may have gone; nobody is left to tell
}

// readBody decodes an optional JSON object strictly.
func readBody(r *http.Request, into any) error {
	data, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		return refuse(http.StatusBadRequest, "the request could not be read: %v", err)
	}
	if len(strings.TrimSpace(string(data))) == 0 {
		return nil
	}
	if err := decodeStrict(data, into); err != nil {
		return refuse(http.StatusBadRequest, "%v", err)
	}
	return nil
}

func (c *Control) healthz(*http.Request) (int, any, error) {
	return http.StatusOK, map[string]bool{"ok": true}, nil
}

func (c *Control) postStop(*http.Request) (int, any, error) {
	time.AfterFunc(50*time.Millisecond, c.stop) // after this answer is out
	return http.StatusAccepted, map[string]bool{"ok": true}, nil
}

type enterBody struct {
	TimeoutSeconds        int32 `json:"timeoutSeconds"`
	EvacuatePoweredOffVms bool  `json:"evacuatePoweredOffVms"`
}

func (c *Control) hostDo(r *http.Request) (int, any, error) {
	host, err := c.findHost(r.PathValue("name"))
	if err != nil {
		return 0, nil, err
	}
	now := c.sim.hostNow(host)
	name := now.name
	ctx := c.sim.context()
	switch do := r.PathValue("do"); do {
	case "enter":
		var body enterBody
		if err := readBody(r, &body); err != nil {
			return 0, nil, err
		}
		if now.inMaintenance {
			return 0, nil, refuse(http.StatusConflict, "host %q is already in maintenance", name)
		}
		task, fault := c.sim.enter(ctx, host, body.TimeoutSeconds, body.EvacuatePoweredOffVms)
		return accepted(task, fault, "host", name)
	case "exit":
		if !now.inMaintenance {
			return 0, nil, refuse(http.StatusConflict, "host %q is not in maintenance", name)
		}
		task, fault := c.sim.exit(ctx, host)
		return accepted(task, fault, "host", name)
	case "cancel":
		tasks := c.sim.cancelEnter(host)
		if len(tasks) == 0 {
			return 0, nil, refuse(http.StatusConflict, "host %q is not entering maintenance", name)
		}
		return http.StatusOK, map[string][]string{"tasks": tasks}, nil
	case "crash", "recover", "disconnect", "reconnect":
		return c.hostFate(r, host, do)
	case "rename":
		return c.renameHost(r, host)
	default:
		return 0, nil, refuse(http.StatusNotFound, "a host can enter, exit, cancel, crash, recover, disconnect, reconnect and rename, not %q", do)
	}
}

// renameHost gives a host another name under the same id: it was disconnected and connected under it.
func (c *Control) renameHost(r *http.Request, host ref) (int, any, error) {
	var body struct {
		Name string `json:"name"`
	}
	if err := readBody(r, &body); err != nil {
		return 0, nil, err
	}
	if err := named("body", body.Name); err != nil {
		return 0, nil, refuse(http.StatusBadRequest, "%v", err)
	}
	if _, err := c.findHost(body.Name); err == nil {
		return 0, nil, refuse(http.StatusConflict, "there is already a host %q", body.Name)
	}
	c.sim.mu.Lock()
	defer c.sim.mu.Unlock()
	c.sim.update(c.sim.context(), c.sim.host(host), change("name", body.Name), change("summary.config.name", body.Name))
	return http.StatusOK, map[string]string{"host": body.Name, "id": host.Value}, nil
}

func accepted(task ref, fault types.BaseMethodFault, what, name string) (int, any, error) {
	if fault != nil {
		return 0, nil, refuse(http.StatusConflict, "%s %q: %s", what, name, sentence(fault))
	}
	return http.StatusAccepted, map[string]any{"task": task.Value}, nil
}

type powerBody struct {
	State string `json:"state"`
	Hard  *bool  `json:"hard"`
}

func (c *Control) vmDo(r *http.Request) (int, any, error) {
	vm, err := c.findVM(r.PathValue("name"))
	if err != nil {
		return 0, nil, err
	}
	switch r.PathValue("do") {
	case "drs":
		return c.vmDRS(r, vm)
	case "tools":
		return c.vmTools(r, vm)
	}
	now, _ := c.sim.vmNow(vm)
	var body powerBody
	if err := readBody(r, &body); err != nil {
		return 0, nil, err
	}
	hard := body.Hard == nil || *body.Hard
	ctx := c.sim.context()
	switch do := r.PathValue("do"); do {
	case "power":
		to, ok := map[string]types.VirtualMachinePowerState{"on": poweredOn, "off": poweredOff}[body.State]
		if !ok {
			return 0, nil, refuse(http.StatusBadRequest, `state: "on" or "off" is expected, not %q`, body.State)
		}
		if to == poweredOff && !hard {
			return softly(c.sim.shutdownGuest(ctx, vm), now.name)
		}
		if fault := c.sim.checkPower(vm, to); fault != nil {
			return 0, nil, refuse(http.StatusConflict, "VM %q cannot be powered %s: %s", now.name, body.State, sentence(fault))
		}
		task, fault := c.sim.power(ctx, vm, to)
		return accepted(task, fault, "VM", now.name)
	case "reset":
		if now.power != poweredOn {
			return 0, nil, refuse(http.StatusConflict, "VM %q is not powered on", now.name)
		}
		if !hard {
			return softly(c.sim.rebootGuest(vm), now.name)
		}
		task, fault := c.sim.reset(ctx, vm)
		return accepted(task, fault, "VM", now.name)
	default:
		return 0, nil, refuse(http.StatusNotFound, "a VM can power, reset, drs and tools, not %q", do)
	}
}

func softly(fault types.BaseMethodFault, name string) (int, any, error) {
	if fault != nil {
		return 0, nil, refuse(http.StatusConflict, "VM %q: %s", name, sentence(fault))
	}
	return http.StatusAccepted, map[string]any{"task": nil}, nil
}

func (c *Control) task(r *http.Request) (int, any, error) {
	id := r.PathValue("id")
	task, ok := c.sim.reg.Get(ref{Type: "Task", Value: id}).(*simulator.Task)
	if !ok {
		return 0, nil, refuse(http.StatusNotFound, "there is no task %q", id)
	}
	out := map[string]any{"task": id, "error": nil}
	c.sim.reg.WithLock(c.sim.context(), task.Self, func() {
		info := &task.Info
		out["name"], out["entity"], out["state"], out["progress"] = info.DescriptionId, info.EntityName, info.State, info.Progress
		if info.Error != nil {
			out["error"] = faultName(info.Error.Fault)
		}
	})
	return http.StatusOK, out, nil
}

// events streams the feed until the reader goes or is too slow.
func (c *Control) events(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		answer(w, 0, nil, refuse(http.StatusMethodNotAllowed, "%s is not possible on /events", r.Method))
		return
	}
	snapshot, sub := c.sim.feed.subscribe()
	defer c.sim.feed.unsubscribe(sub)
	w.Header().Set("Content-Type", "application/x-ndjson")
	flush := http.NewResponseController(w)
	send := func(line []byte) bool {
		_, err := w.Write(line)
		return err == nil && flush.Flush() == nil
	}
	if !send(snapshot) {
		return
	}
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		select {
		case line, open := <-sub.lines:
			if !open || !send(line) {
				return
			}
		case <-beat.C:
			if !send([]byte("\n")) {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}
