package main

import (
	"net/http"
	"sort"
	"strings"
	"time"

	"github.com/vmware/govmomi/vim25/types"
)

type faultBody struct {
	Method       string  `json:"method"`
	VM           string  `json:"vm"`
	Host         string  `json:"host"`
	Fault        string  `json:"fault"`
	Times        *int    `json:"times"`
	AsTask       *bool   `json:"asTask"`
	DelaySeconds float64 `json:"delaySeconds"`
}

func (c *Control) postFault(r *http.Request) (int, any, error) {
	body := faultBody{}
	if err := readBody(r, &body); err != nil {
		return 0, nil, err
	}
	one := &rule{method: body.Method, fault: body.Fault, left: 1, delay: seconds(body.DelaySeconds)}
	if body.Times != nil {
		one.left = *body.Times
	}
	asTaskPossible := contains(taskMethods, body.Method)
	one.asTask = asTaskPossible
	if body.AsTask != nil {
		one.asTask = *body.AsTask
	}
	_, isFault := faultType(body.Fault)
	switch {
	case body.Method != everyMethod && body.Method != configOnly && !isMethod(body.Method):
		return 0, nil, refuse(http.StatusBadRequest, "method: %q is no call of the vSphere API; PowerOnVM_Task is one, and * is every call on a vm or host", body.Method)
	case (body.Method == everyMethod || body.Method == configOnly) && body.VM == "" && body.Host == "":
		return 0, nil, refuse(http.StatusBadRequest, "method: %s needs a vm or a host", body.Method)
	case !isFault:
		return 0, nil, refuse(http.StatusBadRequest, "fault: %q is no fault of the vSphere API; InsufficientResourcesFault is one", body.Fault)
	case one.left == 0 || one.left < -1:
		return 0, nil, refuse(http.StatusBadRequest, "times: a positive number, or -1 for ever")
	case body.DelaySeconds < 0:
		return 0, nil, refuse(http.StatusBadRequest, "delaySeconds: it cannot be negative")
	case one.asTask && !asTaskPossible:
		return 0, nil, refuse(http.StatusBadRequest, "asTask: only possible for %s", strings.Join(taskMethods, ", "))
	}
	var err error
	if body.VM != "" {
		if one.vm, err = c.findVM(body.VM); err != nil {
			return 0, nil, err
		}
	}
	if body.Host != "" {
		if one.host, err = c.findHost(body.Host); err != nil {
			return 0, nil, err
		}
	}
	f := &c.sim.faults
	f.mu.Lock()
	f.no++
	one.id = f.no
	f.rules = append(f.rules[:len(f.rules):len(f.rules)], one)
	f.mu.Unlock()
	c.sim.retellConcerned(one)
	return http.StatusOK, c.sim.faultsView(), nil
}

// retellConcerned tells watchers of what a rule for every read hides or shows.
func (s *Sim) retellConcerned(one *rule) {
	if one.method != everyMethod && one.method != configOnly {
		return
	}
	_, vms, hosts := s.feed.snapshot(ref{})
	for r := range vms {
		if s.concerns(r)(one) {
			s.retell(r)
		}
	}
	for r := range hosts {
		if s.concerns(r)(one) {
			s.retell(r)
		}
	}
}

func (c *Control) getFaults(*http.Request) (int, any, error) {
	return http.StatusOK, c.sim.faultsView(), nil
}

func (c *Control) deleteFaults(*http.Request) (int, any, error) {
	f := &c.sim.faults
	f.mu.Lock()
	gone := f.rules
	f.rules = nil
	f.mu.Unlock()
	for _, one := range gone {
		c.sim.retellConcerned(one)
	}
	return http.StatusOK, c.sim.faultsView(), nil
}

type faultView struct {
	ID           int     `json:"id"`
	Method       string  `json:"method"`
	VM           string  `json:"vm,omitempty"`
	Host         string  `json:"host,omitempty"`
	Fault        string  `json:"fault"`
	Left         int     `json:"left"`
	AsTask       bool    `json:"asTask"`
	DelaySeconds float64 `json:"delaySeconds"`
	Hits         int     `json:"hits"`
}

// faultsView lists what is still to come; a rule that is used up is gone.
func (s *Sim) faultsView() map[string]any {
	out := []faultView{}
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	for _, r := range s.faults.rules {
		vm, _ := s.vmNow(r.vm)
		out = append(out, faultView{
			ID: r.id, Method: r.method, VM: vm.name, Host: s.hostNow(r.host).name, Fault: r.fault,
			Left: r.left, AsTask: r.asTask, DelaySeconds: r.delay.Seconds(), Hits: r.hits,
		})
	}
	return map[string]any{"faults": out}
}

func contains(list []string, one string) bool {
	for _, have := range list {
		if have == one {
			return true
		}
	}
	return false
}

type privilegesBody struct {
	Missing []string `json:"missing"`
}

// postPrivileges says which privileges the login lacks; an empty list gives all back.
func (c *Control) postPrivileges(r *http.Request) (int, any, error) {
	body := privilegesBody{Missing: []string{}}
	if err := readBody(r, &body); err != nil {
		return 0, nil, err
	}
	lacking := map[string]bool{}
	for _, id := range body.Missing {
		lacking[id] = true
	}
	c.sim.faults.mu.Lock()
	c.sim.faults.lacking = lacking
	c.sim.faults.mu.Unlock()
	sort.Strings(body.Missing)
	return http.StatusOK, map[string][]string{"missing": body.Missing}, nil
}

func (c *Control) postExpire(*http.Request) (int, any, error) {
	c.sim.expireSessions()
	return http.StatusOK, map[string]bool{"ok": true}, nil
}

type outageBody struct {
	Seconds      *float64 `json:"seconds"`
	Mode         string   `json:"mode"`
	LoseSessions bool     `json:"loseSessions"`
}

func (c *Control) postOutage(r *http.Request) (int, any, error) {
	body := outageBody{Mode: outageRefuse}
	if err := readBody(r, &body); err != nil {
		return 0, nil, err
	}
	if err := oneOf("mode", body.Mode, outageRefuse, outage503, outageHang); err != nil {
		return 0, nil, refuse(http.StatusBadRequest, "%v", err)
	}
	if c.sim.api == nil {
		return 0, nil, refuse(http.StatusConflict, "the vCenter API does not serve")
	}
	length := -1.0
	if body.Seconds != nil {
		length = *body.Seconds
	}
	if err := c.sim.api.down(body.Mode, length); err != nil {
		return 0, nil, refuse(http.StatusConflict, "%v", err)
	}
	if body.LoseSessions {
		c.sim.expireSessions()
	}
	return http.StatusAccepted, map[string]any{"mode": body.Mode, "seconds": body.Seconds}, nil
}

func (c *Control) deleteOutage(*http.Request) (int, any, error) {
	a := c.sim.api
	switch {
	case a == nil || a.inOutage() == "":
		return 0, nil, refuse(http.StatusConflict, "there is no outage")
	case !a.up(nil) && a.inOutage() != "":
		return 0, nil, refuse(http.StatusConflict, "somebody else listens on %s; the vCenter API comes back when that ends", a.address)
	}
	return http.StatusOK, map[string]bool{"ok": true}, nil
}

type crashBody struct {
	HA        bool     `json:"ha"`
	HASeconds *float64 `json:"haSeconds"`
}

type recoverBody struct {
	PowerOn bool `json:"powerOn"`
}

// hostFate is what happens to a host as a machine.
func (c *Control) hostFate(r *http.Request, host ref, do string) (int, any, error) {
	now := c.sim.hostNow(host)
	switch do {
	case "crash":
		var body crashBody
		if err := readBody(r, &body); err != nil {
			return 0, nil, err
		}
		takes := 2.0
		if body.HASeconds != nil {
			takes = *body.HASeconds
		}
		if !c.sim.crash(host, body.HA, takes) {
			return 0, nil, refuse(http.StatusConflict, "host %q has crashed already", now.name)
		}
	case "recover":
		var body recoverBody
		if err := readBody(r, &body); err != nil {
			return 0, nil, err
		}
		if !c.sim.recover(host, body.PowerOn) {
			return 0, nil, refuse(http.StatusConflict, "host %q has not crashed; a lost connection comes back with reconnect", now.name)
		}
	case "disconnect", "reconnect":
		to := map[string]types.HostSystemConnectionState{"disconnect": disconnected, "reconnect": connected}[do]
		switch {
		case now.connection == to:
			return 0, nil, refuse(http.StatusConflict, "host %q is %s already", now.name, to)
		case do == "reconnect" && c.sim.hasCrashed(host):
			return 0, nil, refuse(http.StatusConflict, "host %q has crashed; recover brings it back", now.name)
		}
		task, fault := c.sim.switchConnection(c.sim.context(), host, to)
		return accepted(task, fault, "host", now.name)
	}
	return http.StatusOK, map[string]string{"host": now.name, "connection": string(c.sim.hostNow(host).connection)}, nil
}

func (s *Sim) hasCrashed(host ref) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.crashes[host] != nil
}

type silenceBody struct {
	Seconds *float64 `json:"seconds"`
}

// postSilence keeps every change from clients that wait for one, for so long or until deleteSilence.
func (c *Control) postSilence(r *http.Request) (int, any, error) {
	body := silenceBody{}
	if err := readBody(r, &body); err != nil {
		return 0, nil, err
	}
	if !c.sim.collectors.silent.CompareAndSwap(false, true) {
		return 0, nil, refuse(http.StatusConflict, "changes are held back already")
	}
	if body.Seconds != nil {
		time.AfterFunc(seconds(*body.Seconds), c.sim.collectors.speak)
	}
	return http.StatusAccepted, map[string]any{"seconds": body.Seconds}, nil
}

func (c *Control) deleteSilence(*http.Request) (int, any, error) {
	c.sim.collectors.speak()
	return http.StatusOK, map[string]bool{"ok": true}, nil
}

type toolsBody struct {
	State string `json:"state"`
}

func (c *Control) vmTools(r *http.Request, vm ref) (int, any, error) {
	body := toolsBody{}
	if err := readBody(r, &body); err != nil {
		return 0, nil, err
	}
	if err := oneOf("state", body.State, toolsRunning, toolsExecutingScripts, toolsNotRunning, toolsNotInstalled); err != nil {
		return 0, nil, refuse(http.StatusBadRequest, "%v", err)
	}
	c.sim.setTools(vm, body.State)
	return http.StatusOK, map[string]string{"state": body.State}, nil
}

type drsBody struct {
	When string `json:"when"`
}

// vmDRS lets DRS power a VM on: now, or a moment before the next PowerOn of a client.
func (c *Control) vmDRS(r *http.Request, vm ref) (int, any, error) {
	body := drsBody{When: "now"}
	if err := readBody(r, &body); err != nil {
		return 0, nil, err
	}
	if err := oneOf("when", body.When, "now", "nextPowerOn"); err != nil {
		return 0, nil, refuse(http.StatusBadRequest, "%v", err)
	}
	s := c.sim
	s.mu.Lock()
	defer s.mu.Unlock()
	now, _ := s.vmNow(vm)
	if mode := s.look(s.hostNow(now.host).clusterRef).mode(vm); !placed(mode) {
		return 0, nil, refuse(http.StatusConflict, "VM %q: DRS is %s for it, so it does not choose a host at power-on", now.name, mode)
	}
	if body.When == "nextPowerOn" {
		s.traitsOf(vm).drsFirst = true
		return http.StatusAccepted, map[string]any{"task": nil}, nil
	}
	if _, fault := s.mayPower(vm, poweredOn); fault != nil {
		return 0, nil, refuse(http.StatusConflict, "VM %q cannot be powered on: %s", now.name, sentence(fault))
	}
	task, fault := s.drsPowersOn(vm)
	return accepted(task, fault, "VM", now.name)
}
