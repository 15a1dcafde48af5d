package main

import (
	"encoding/json"
	"sort"
	"strings"
	"sync"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// Feed is a shadow of every VM's and host's state, kept from the same updates that vSphere clients
// get, whoever caused them. Snapshot and subscription happen under one lock: nothing is missed.
type Feed struct {
	mu    sync.Mutex
	reg   *simulator.Registry
	seq   int64
	vms   map[ref]*vmState
	hosts map[ref]*hostState
	subs  map[*subscription]struct{}
	kick  chan struct{} // something changed that may let an Enter task go on
}

type vmState struct {
	name, uuid, instance, tools string
	host                        ref
	power                       types.VirtualMachinePowerState
	boots                       int
	reserves                    budget
	dead                        bool // its host crashed: vCenter still says poweredOn, but nothing runs
}

type hostState struct {
	name, cluster string
	clusterRef    ref
	inMaintenance bool
	entering      bool
	connection    types.HostSystemConnectionState
}

// Event is one line of /events.
type Event struct {
	Seq   int64  `json:"seq"`
	Type  string `json:"type"`
	VM    string `json:"vm,omitempty"`
	UUID  string `json:"uuid,omitempty"`
	ID    string `json:"id,omitempty"`
	State string `json:"state,omitempty"`
	Host  string `json:"host,omitempty"`
	From  string `json:"from,omitempty"`
	Boots *int   `json:"boots,omitempty"` // only on power lines, and there also when it is 0
}

const subscriptionRoom = 4096

type subscription struct {
	lines chan []byte // closed when the reader is too far behind
}

func newFeed(reg *simulator.Registry) *Feed {
	f := &Feed{
		reg:   reg,
		vms:   map[ref]*vmState{},
		hosts: map[ref]*hostState{},
		subs:  map[*subscription]struct{}{},
		kick:  make(chan struct{}, 1),
	}
	for _, e := range reg.All("HostSystem") {
		f.refreshHost(&e.(*simulator.HostSystem).HostSystem)
	}
	for _, e := range reg.All("VirtualMachine") {
		f.refreshVM(&e.(*simulator.VirtualMachine).VirtualMachine)
	}
	f.seq = 0 // what was there at the start is not a change
	return f
}

// Reference makes the feed a handler of the registry.
func (f *Feed) Reference() ref { return ref{Type: "HostlerFeed", Value: "feed"} }

// PutObject sees new VMs; the caller holds the object's lock.
func (f *Feed) PutObject(_ *simulator.Context, o mo.Reference) {
	if vm, ok := o.(*simulator.VirtualMachine); ok {
		mendEnums(&vm.VirtualMachine)
	}
}

// UpdateObject is called with the object's lock held, after the change was made.
func (f *Feed) UpdateObject(_ *simulator.Context, o mo.Reference, changes []types.PropertyChange) {
	relevant := false
	for i := range changes {
		root, _, _ := strings.Cut(changes[i].Name, ".")
		relevant = relevant || root == "runtime" || root == "config" || root == "guest" || root == "name"
	}
	if !relevant {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch obj := o.(type) {
	case *mo.VirtualMachine:
		f.refreshVM(obj)
	case *mo.HostSystem:
		f.refreshHost(obj)
	default:
		return
	}
	f.nudge()
}

// RemoveObject sees VMs that are gone.
func (f *Feed) RemoveObject(_ *simulator.Context, r ref) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if vm := f.vms[r]; vm != nil {
		delete(f.vms, r)
		f.publish(Event{Type: "removed", VM: vm.name, UUID: vm.uuid, ID: r.Value, Host: f.hostName(vm.host)})
		f.nudge()
	}
}

func (f *Feed) nudge() {
	select {
	case f.kick <- struct{}{}:
	default: // a nudge is already waiting and will see this change too
	}
}

func (f *Feed) refreshVM(vm *mo.VirtualMachine) {
	if vm.Runtime.Host == nil || vm.Config == nil {
		return // a client is still creating it
	}
	if f.reg.Get(vm.Self) == nil {
		return // Destroy_Task still takes the devices off a VM that is gone: it must not come back as a ghost
	}
	now := f.vms[vm.Self]
	before := vmState{}
	if now == nil {
		now = &vmState{}
		f.vms[vm.Self] = now
	} else {
		before = *now
	}
	now.name, now.uuid, now.instance = vm.Name, vm.Config.Uuid, vm.Config.InstanceUuid
	now.host, now.power = *vm.Runtime.Host, vm.Runtime.PowerState
	now.reserves = budget{reservation(vm.Config.CpuAllocation), reservation(vm.Config.MemoryAllocation)}
	if vm.Guest != nil {
		now.tools = vm.Guest.ToolsRunningStatus
	}
	if now.power != before.power {
		if now.power == types.VirtualMachinePowerStatePoweredOn {
			now.boots++
		}
		f.publish(f.powerEvent(vm.Self, now))
	} else if now.host != before.host {
		f.publish(Event{Type: "moved", VM: now.name, UUID: now.uuid, ID: vm.Self.Value, Host: f.hostName(now.host), From: f.hostName(before.host)})
	}
}

func reservation(a *types.ResourceAllocationInfo) int64 {
	if a == nil || a.Reservation == nil {
		return 0
	}
	return *a.Reservation
}

func (f *Feed) refreshHost(h *mo.HostSystem) {
	now := f.hosts[h.Self]
	if now == nil {
		now = &hostState{}
		f.hosts[h.Self] = now
	}
	now.name, now.inMaintenance, now.connection = h.Name, h.Runtime.InMaintenanceMode, h.Runtime.ConnectionState
	if h.Parent != nil {
		now.clusterRef = *h.Parent
		switch parent := f.reg.Get(*h.Parent).(type) {
		case *simulator.ClusterComputeResource:
			now.cluster = parent.Name
		case *mo.ComputeResource:
			now.cluster = parent.Name // a standalone host: its own compute resource has its name
		}
	}
}

func (f *Feed) hostName(r ref) string {
	if h := f.hosts[r]; h != nil {
		return h.name
	}
	return r.Value
}

func (f *Feed) powerEvent(r ref, vm *vmState) Event {
	boots, state := vm.boots, vm.power
	if vm.dead {
		state = poweredOff // what the guest does, whatever vCenter still believes
	}
	return Event{Type: "power", VM: vm.name, UUID: vm.uuid, ID: r.Value, State: string(state), Host: f.hostName(vm.host), Boots: &boots}
}

// rebooted says that the guest started anew without a change of the power state.
func (f *Feed) rebooted(r ref) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if vm := f.vms[r]; vm != nil {
		vm.boots++
		f.publish(f.powerEvent(r, vm))
	}
}

// maintenance publishes a step of a host: entering, in, out, cancelled.
func (f *Feed) maintenance(host ref, state string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if h := f.hosts[host]; h != nil {
		h.entering = state == "entering"
		f.publish(Event{Type: "maintenance", Host: h.name, State: state})
		f.nudge() // a host back in service may take what another could not get rid of
	}
}

// publish hands a change to every reader and never waits for one; mu is held.
func (f *Feed) publish(e Event) {
	f.seq++
	e.Seq = f.seq
	line := encodeLine(e)
	for sub := range f.subs {
		select {
		case sub.lines <- line:
		default:
			delete(f.subs, sub)
			close(sub.lines)
		}
	}
}

func encodeLine(e Event) []byte {
	line, _ := json.Marshal(e) // plain texts and numbers cannot fail
	return append(line, '\n')
}

// subscribe returns the snapshot and a channel with everything after it.
func (f *Feed) subscribe() ([]byte, *subscription) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []byte
	add := func(e Event) {
		e.Seq = f.seq
		out = append(out, encodeLine(e)...)
	}
	for _, r := range sortedBy(f.vms, func(v *vmState) string { return v.name }) {
		add(f.powerEvent(r, f.vms[r]))
	}
	for _, r := range sortedBy(f.hosts, func(h *hostState) string { return h.name }) {
		switch h := f.hosts[r]; {
		case h.inMaintenance:
			add(Event{Type: "maintenance", Host: h.name, State: "in"})
		case h.entering:
			add(Event{Type: "maintenance", Host: h.name, State: "entering"})
		}
	}
	add(Event{Type: "synced"})
	sub := &subscription{lines: make(chan []byte, subscriptionRoom)}
	f.subs[sub] = struct{}{}
	return out, sub
}

func (f *Feed) unsubscribe(sub *subscription) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.subs, sub)
}

// snapshot copies the shadow of one cluster, or of everything with the zero reference.
func (f *Feed) snapshot(cluster ref) (int64, map[ref]vmState, map[ref]hostState) {
	f.mu.Lock()
	defer f.mu.Unlock()
	hosts := map[ref]hostState{}
	for r, h := range f.hosts {
		if cluster == (ref{}) || h.clusterRef == cluster {
			hosts[r] = *h
		}
	}
	vms := map[ref]vmState{}
	for r, vm := range f.vms {
		if _, inside := hosts[vm.host]; inside {
			vms[r] = *vm
		}
	}
	return f.seq, vms, hosts
}

func sortedBy[T any](m map[ref]T, name func(T) string) []ref {
	keys := make([]ref, 0, len(m))
	for r := range m {
		keys = append(keys, r)
	}
	sort.Slice(keys, func(i, j int) bool {
		a, b := name(m[keys[i]]), name(m[keys[j]])
		return a < b || a == b && keys[i].Value < keys[j].Value
	})
	return keys
}
