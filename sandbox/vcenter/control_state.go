package main

import (
	"net/http"
	"sort"
	"strings"

	"github.com/vmware/govmomi/vim25/types"
)

// findHost takes a name or a managed object id.
func (c *Control) findHost(name string) (ref, error) {
	f := c.sim.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	for r, h := range f.hosts {
		if h.name == name || r.Value == name {
			return r, nil
		}
	}
	return ref{}, refuse(http.StatusNotFound, "there is no host %q", name)
}

// findVM takes a name, a BIOS or instance UUID or a managed object id, and never guesses.
func (c *Control) findVM(name string) (ref, error) {
	f := c.sim.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	var found []ref
	var uuids []string
	lower := strings.ToLower(name)
	for r, vm := range f.vms {
		if vm.name == name || vm.uuid == lower || vm.instance == lower || r.Value == name {
			found = append(found, r)
			uuids = append(uuids, vm.instance)
		}
	}
	switch len(found) {
	case 0:
		return ref{}, refuse(http.StatusNotFound, "there is no VM %q", name)
	case 1:
		return found[0], nil
	}
	sort.Strings(uuids)
	return ref{}, refuse(http.StatusConflict, "%d VMs fit %q; name one by its instance UUID: %s", len(found), name, strings.Join(uuids, ", "))
}

type hostView struct {
	Name          string   `json:"name"`
	ID            string   `json:"id"`
	Cluster       string   `json:"cluster"`
	InMaintenance bool     `json:"inMaintenance"`
	Entering      bool     `json:"entering"`
	Connection    string   `json:"connection"`
	Tasks         []string `json:"tasks"`

	Devices  []deviceView `json:"devices"`
	CPUMHz   amountView   `json:"cpuMHz"`
	MemoryMB amountView   `json:"memoryMB"`
}

type vmView struct {
	Name              string `json:"name"`
	ID                string `json:"id"`
	UUID              string `json:"uuid"`
	InstanceUUID      string `json:"instanceUuid"`
	Host              string `json:"host"`
	Cluster           string `json:"cluster"`
	Power             string `json:"power"`
	Boots             int    `json:"boots"`
	Tools             string `json:"tools"`
	BlocksMaintenance bool   `json:"blocksMaintenance"`
	Why               string `json:"why"`
}

type stateView struct {
	Seq   int64      `json:"seq"`
	Hosts []hostView `json:"hosts"`
	VMs   []vmView   `json:"vms"`

	Logins loginsView `json:"logins"`
	Outage string     `json:"outage"` // empty: none
}

type loginsView struct {
	Attempts int `json:"attempts"`
	Failures int `json:"failures"`
}

func (c *Control) state(*http.Request) (int, any, error) {
	return http.StatusOK, c.sim.view(), nil
}

// view is one consistent picture: nothing changes while it is drawn.
func (s *Sim) view() stateView {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.look(ref{})
	out := stateView{Seq: p.seq, Hosts: []hostView{}, VMs: []vmView{}}
	if s.api != nil {
		out.Outage = s.api.inOutage()
	}
	s.sessions.mu.Lock()
	out.Logins = loginsView{s.sessions.attempts, s.sessions.failures}
	s.sessions.mu.Unlock()
	for _, r := range sortedBy(p.hosts, func(h hostState) string { return h.name }) {
		h := p.hosts[r]
		view := hostView{Name: h.name, ID: r.Value, Cluster: h.cluster, InMaintenance: h.inMaintenance, Entering: h.entering, Connection: string(h.connection), Tasks: []string{}}
		if e := s.entries[r]; e != nil {
			for _, t := range e.tasks {
				view.Tasks = append(view.Tasks, t.task.Self.Value)
			}
		}
		used := p.reserved(r, ref{})
		view.Devices = s.viewDevices(p, r)
		view.CPUMHz, view.MemoryMB = amount(s.capacity[r].cpu, used.cpu), amount(s.capacity[r].memory, used.memory)
		out.Hosts = append(out.Hosts, view)
	}
	for _, r := range sortedBy(p.vms, func(v vmState) string { return v.name }) {
		vm := p.vms[r]
		v := s.judge(p, r)
		out.VMs = append(out.VMs, vmView{
			Name: vm.name, ID: r.Value, UUID: vm.uuid, InstanceUUID: vm.instance,
			Host: p.hosts[vm.host].name, Cluster: p.hosts[vm.host].cluster, Power: string(vm.power), Boots: vm.boots,
			Tools: s.toolsWord(r, vm), BlocksMaintenance: v.blocks, Why: v.why,
		})
	}
	return out
}

func (s *Sim) toolsWord(r ref, vm vmState) string {
	switch {
	case s.traitsOf(r).tools == toolsNotInstalled:
		return toolsNotInstalled
	case vm.tools == string(types.VirtualMachineToolsRunningStatusGuestToolsRunning):
		return toolsRunning
	case vm.tools == string(types.VirtualMachineToolsRunningStatusGuestToolsExecutingScripts):
		return toolsExecutingScripts
	default:
		return toolsNotRunning
	}
}

// cancelEnter cancels every Enter task of a host.
func (s *Sim) cancelEnter(host ref) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[host]
	if e == nil {
		return nil
	}
	var ids []string
	for _, t := range append([]*enterTask(nil), e.tasks...) {
		ids = append(ids, t.task.Self.Value)
		s.leave(host, t, &types.RequestCanceled{})
	}
	return ids
}

func (s *Sim) checkPower(vm ref, to types.VirtualMachinePowerState) types.BaseMethodFault {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, fault := s.mayPower(vm, to)
	return fault
}

type settingsBody struct {
	GuestShutdownSeconds *float64 `json:"guestShutdownSeconds"`
	MigrateSeconds       *float64 `json:"migrateSeconds"`
	VM                   string   `json:"vm"`
}

func (c *Control) getSettings(*http.Request) (int, any, error) {
	return http.StatusOK, c.sim.settingsView(), nil
}

func (s *Sim) settingsView() map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	own, moves := map[string]float64{}, map[string]float64{}
	for r, t := range s.traits {
		vm, there := s.vmNow(r)
		if there && t.shutdownSeconds != nil {
			own[vm.name] = *t.shutdownSeconds
		}
		if there && t.migrateSeconds != nil {
			moves[vm.name] = *t.migrateSeconds
		}
	}
	return map[string]any{
		"guestShutdownSeconds": s.settings.guestShutdownSeconds,
		"migrateSeconds":       s.settings.migrateSeconds,
		"vms":                  own,   // VM name to its own guestShutdownSeconds
		"vmMigrateSeconds":     moves, // VM name to its own migrateSeconds
	}
}

func (c *Control) postSettings(r *http.Request) (int, any, error) {
	var body settingsBody
	if err := readBody(r, &body); err != nil {
		return 0, nil, err
	}
	if body.MigrateSeconds != nil && *body.MigrateSeconds < 0 {
		return 0, nil, refuse(http.StatusBadRequest, "migrateSeconds: a move cannot take less than no time")
	}
	if body.VM != "" {
		vm, err := c.findVM(body.VM)
		if err != nil {
			return 0, nil, err
		}
		c.sim.mu.Lock()
		t := c.sim.traitsOf(vm)
		if body.MigrateSeconds == nil || body.GuestShutdownSeconds != nil {
			t.shutdownSeconds = body.GuestShutdownSeconds
		}
		if body.GuestShutdownSeconds == nil || body.MigrateSeconds != nil {
			t.migrateSeconds = body.MigrateSeconds
		}
		c.sim.mu.Unlock()
		return http.StatusOK, c.sim.settingsView(), nil
	}
	c.sim.mu.Lock()
	if body.GuestShutdownSeconds != nil {
		c.sim.settings.guestShutdownSeconds = *body.GuestShutdownSeconds
	}
	if body.MigrateSeconds != nil {
		c.sim.settings.migrateSeconds = *body.MigrateSeconds
	}
	c.sim.mu.Unlock()
	return http.StatusOK, c.sim.settingsView(), nil
}
