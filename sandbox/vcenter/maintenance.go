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
		func() { s.failTask(t.running, hostRef, &types.RequestCanceled{}) })
	if state.inMaintenance {
		s.end(t.running, &types.InvalidState{})
		return t.task.Self, nil
	}
	if s.failsAsTold(ctx, t.running) {
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
	p := s.look(s.hostNow(e.host).clusterRef)
	left := 0
	for _, r := range p.vmsOn[e.host] {
		if !s.mustGo(p, e, r) {
			continue
		}
		left++
		if target != (ref{}) {
			continue
		}
		if to, ok := s.destination(p, r); ok {
			vm, target = r, to
			if p.vms[r].power == poweredOn {
				pause = s.migrateTime(r)
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
func (s *Sim) mustGo(p *picture, e *entry, r ref) bool {
	if p.vms[r].power == poweredOn {
		return true
	}
	for _, t := range e.tasks {
		if t.evacuateOff {
			return true
		}
	}
	if p.mode(r) != drsFull {
		return false
	}
	// DRS takes powered-off VMs along unasked; one that nobody can take does not hang the task.
	_, ok := s.findTarget(p, r)
	return ok
}

// destination says where DRS, or the re-registration of a powered-off VM, would bring it.
func (s *Sim) destination(p *picture, r ref) (ref, bool) {
	if p.vms[r].power == poweredOn {
		v := s.judge(p, r)
		return v.target, !v.blocks
	}
	return s.findTarget(p, r)
}

func (s *Sim) canGo(e *entry, vm, target ref) bool {
	p := s.look(s.hostNow(e.host).clusterRef)
	state, there := p.vms[vm]
	if !there || state.host != e.host || !s.takes(p, vm, target) {
		return false
	}
	_, ok := s.destination(p, vm)
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
	if s.failsAsTold(ctx, r) {
		return r.task.Self, nil
	}
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
