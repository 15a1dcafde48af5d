package main

import (
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// entry is a host on its way into maintenance. Several Enter tasks may wait for it at once, as vLCM
// repeats them: the host is entering until the last of them is gone.
type entry struct {
	host  ref
	tasks []*enterTask
	wake  chan struct{}
	first int // VMs that had to go when it began, for the progress
	shown int32
}

type enterTask struct {
	*running
	evacuateOff bool
	timer       *time.Timer
}

// enter starts an Enter task; it returns at once. A fault instead of a task means vCenter refuses
// the call itself.
func (s *Sim) enter(ctx *simulator.Context, hostRef ref, timeout int32, evacuateOff bool) (ref, types.BaseMethodFault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	host := s.host(hostRef)
	if host == nil {
		return ref{}, &types.ManagedObjectNotFound{Obj: hostRef}
	}
	state := s.hostNow(hostRef)
	if state.connection != types.HostSystemConnectionStateConnected {
		return ref{}, &types.HostNotConnected{}
	}
	t := &enterTask{evacuateOff: evacuateOff}
	t.running = s.begin(ctx, host, "EnterMaintenanceMode_Task", "HostSystem.enterMaintenanceMode",
		func() { s.leave(hostRef, t, &types.RequestCanceled{}) })
	if state.inMaintenance {
		s.end(t.running, &types.InvalidState{})
		return t.task.Self, nil
	}
	e := s.entries[hostRef]
	if e == nil {
		e = &entry{host: hostRef, wake: make(chan struct{}, 1)}
		s.entries[hostRef] = e
		s.feed.maintenance(hostRef, "entering")
		s.post(ctx, &types.EnteringMaintenanceModeEvent{HostEvent: s.hostEvent(host)})
		go s.walk(e)
	}
	e.tasks = append(e.tasks, t)
	s.progress(t.running, max(2, e.shown))
	if timeout > 0 {
		t.timer = time.AfterFunc(time.Duration(timeout)*time.Second, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.leave(hostRef, t, &types.Timedout{})
		})
	}
	e.nudge()
	return t.task.Self, nil
}

// leave ends one Enter task without success; mu is held. VMs that have moved stay where they are.
func (s *Sim) leave(hostRef ref, t *enterTask, fault types.BaseMethodFault) {
	e := s.entries[hostRef]
	if e == nil || !s.end(t.running, fault) {
		return
	}
	for i := range e.tasks {
		if e.tasks[i] == t {
			e.tasks = append(e.tasks[:i:i], e.tasks[i+1:]...)
			break
		}
	}
	if t.timer != nil {
		t.timer.Stop()
	}
	if len(e.tasks) == 0 {
		delete(s.entries, hostRef)
		s.feed.maintenance(hostRef, "cancelled")
		if host := s.host(hostRef); host != nil {
			s.post(s.context(), &types.CanceledHostOperationEvent{HostEvent: s.hostEvent(host)})
		}
	}
	e.nudge()
}

func (e *entry) nudge() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// tellEntries passes every change of a VM or host on to the hosts that wait for one.
func (s *Sim) tellEntries() {
	for range s.feed.kick {
		s.mu.Lock()
		for _, e := range s.entries {
			e.nudge()
		}
		s.mu.Unlock()
	}
}

// walk brings one host into maintenance: it moves what can move, one VM after the other, and waits
// for the rest to be powered off or gone. It never holds mu while time passes.
func (s *Sim) walk(e *entry) {
	for {
		vm, target, pause, more := s.step(e)
		if !more {
			return
		}
		if vm == (ref{}) {
			<-e.wake
			continue
		}
		time.Sleep(pause)
		s.mu.Lock()
		// Meanwhile anything may have happened; the move is made only if it would be chosen again.
		if s.entries[e.host] == e && s.canGo(e, vm, target) {
			s.move(vm, target)
		}
		s.mu.Unlock()
	}
}

// step looks once. It returns a VM to move and where to, or nothing to do but wait, or the end.
func (s *Sim) step(e *entry) (vm, target ref, pause time.Duration, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entries[e.host] != e {
		return ref{}, ref{}, 0, false // every task was cancelled or timed out
	}
	_, vms, hosts := s.feed.snapshot()
	left := 0
	for _, r := range sortedBy(vms, func(v vmState) string { return v.name }) {
		state := vms[r]
		if state.host != e.host || !s.mustGo(e, state, hosts) {
			continue
		}
		left++
		if target != (ref{}) {
			continue
		}
		if to, ok := s.destination(r, state, vms, hosts); ok {
			vm, target = r, to
			if state.power == types.VirtualMachinePowerStatePoweredOn {
				pause = seconds(s.settings.migrateSeconds)
			}
		}
	}
	e.first = max(e.first, left)
	if left == 0 {
		s.arrive(e)
		return ref{}, ref{}, 0, false
	}
	if shown := 2 + int32(96*(e.first-left)/e.first); shown > e.shown {
		e.shown = shown
		for _, t := range e.tasks {
			s.progress(t.running, shown)
		}
	}
	return vm, target, pause, true
}

// mustGo says whether a VM on the host keeps the tasks from completing.
func (s *Sim) mustGo(e *entry, vm vmState, hosts map[ref]hostState) bool {
	if vm.power == types.VirtualMachinePowerStatePoweredOn {
		return true
	}
	for _, t := range e.tasks {
		if t.evacuateOff {
			return true
		}
	}
	return s.drsMode(hosts[e.host].clusterRef) == drsFull && len(hosts) > 1 && s.couldEvacuate(e, hosts)
}

// couldEvacuate keeps automatic evacuation of powered-off VMs from hanging a task nobody asked it
// of: with no other host in service in the cluster they simply stay, as they do without DRS.
func (s *Sim) couldEvacuate(e *entry, hosts map[ref]hostState) bool {
	for r, h := range hosts {
		if r != e.host && h.clusterRef == hosts[e.host].clusterRef && inService(h) {
			return true
		}
	}
	return false
}

func (s *Sim) destination(r ref, state vmState, vms map[ref]vmState, hosts map[ref]hostState) (ref, bool) {
	if state.power == types.VirtualMachinePowerStatePoweredOn {
		v := s.judge(r, state, vms, hosts)
		return v.target, !v.blocks
	}
	return s.findTarget(r, state.host, vms, hosts)
}

func (s *Sim) canGo(e *entry, vm, target ref) bool {
	_, vms, hosts := s.feed.snapshot()
	state, there := vms[vm]
	if !there || state.host != e.host || !inService(hosts[target]) || s.unreachable(vm, target) != nil {
		return false
	}
	_, ok := s.destination(vm, state, vms, hosts)
	return ok
}

// arrive is the moment the host is in maintenance; mu is held.
func (s *Sim) arrive(e *entry) {
	delete(s.entries, e.host)
	host := s.host(e.host)
	s.setMaintenance(e.host, true)
	for _, t := range e.tasks {
		if t.timer != nil {
			t.timer.Stop()
		}
		s.end(t.running, nil)
	}
	s.feed.maintenance(e.host, "in")
	s.post(s.context(), &types.EnteredMaintenanceModeEvent{HostEvent: s.hostEvent(host)})
}

// setMaintenance needs one change only: a host's summary.runtime is the same record as its runtime,
// but watchers of either path must hear of it.
func (s *Sim) setMaintenance(host ref, in bool) {
	s.update(s.context(), s.host(host), change("runtime.inMaintenanceMode", in), change("summary.runtime.inMaintenanceMode", in))
}

// exit starts an Exit task.
func (s *Sim) exit(ctx *simulator.Context, hostRef ref) (ref, types.BaseMethodFault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	host := s.host(hostRef)
	if host == nil {
		return ref{}, &types.ManagedObjectNotFound{Obj: hostRef}
	}
	state := s.hostNow(hostRef)
	if state.connection != types.HostSystemConnectionStateConnected {
		return ref{}, &types.HostNotConnected{}
	}
	r := s.begin(ctx, host, "ExitMaintenanceMode_Task", "HostSystem.exitMaintenanceMode", nil)
	if !state.inMaintenance {
		s.end(r, &types.InvalidState{})
		return r.task.Self, nil
	}
	s.setMaintenance(hostRef, false)
	s.end(r, nil)
	s.feed.maintenance(hostRef, "out")
	s.post(ctx, &types.ExitMaintenanceModeEvent{HostEvent: s.hostEvent(host)})
	return r.task.Self, nil
}

// hostNow is the shadow of one host.
func (s *Sim) hostNow(r ref) hostState {
	s.feed.mu.Lock()
	defer s.feed.mu.Unlock()
	if h := s.feed.hosts[r]; h != nil {
		return *h
	}
	return hostState{}
}

func (s *Sim) vmNow(r ref) (vmState, bool) {
	s.feed.mu.Lock()
	defer s.feed.mu.Unlock()
	if vm := s.feed.vms[r]; vm != nil {
		return *vm, true
	}
	return vmState{}, false
}
