package main

import (
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

const (
	connected     = types.HostSystemConnectionStateConnected
	disconnected  = types.HostSystemConnectionStateDisconnected
	notResponding = types.HostSystemConnectionStateNotResponding
)

// crashed is a host whose power went away: vCenter only sees that it does not answer.
type crashed struct {
	restart *time.Timer // High Availability, if it is on
}

// connection shows a host and its VMs as reachable or not; mu is held. What vCenter knew last stays:
// a VM of a lost host is "disconnected" with the power state it had.
func (s *Sim) connection(hostRef ref, state types.HostSystemConnectionState) {
	host := s.host(hostRef)
	power := types.HostSystemPowerStatePoweredOn
	if state == notResponding {
		power = types.HostSystemPowerStateUnknown
	}
	s.update(s.context(), host,
		change("runtime.powerState", power), change("summary.runtime.powerState", power),
		change("runtime.connectionState", state), change("summary.runtime.connectionState", state),
	)
	for _, vm := range s.vmsAt(hostRef) {
		s.reach(vm, state == connected)
	}
	switch state {
	case connected:
		s.post(s.context(), &types.HostConnectedEvent{HostEvent: s.hostEvent(host)})
	case disconnected:
		s.post(s.context(), &types.HostDisconnectedEvent{HostEvent: s.hostEvent(host)})
	default:
		s.post(s.context(), &types.HostConnectionLostEvent{HostEvent: s.hostEvent(host)})
	}
}

// reach shows whether vCenter can talk to a VM.
func (s *Sim) reach(r ref, yes bool) {
	vm := s.vm(r)
	if vm == nil {
		return
	}
	now, _ := s.vmNow(r)
	state, beat := types.VirtualMachineConnectionStateDisconnected, types.ManagedEntityStatusGray
	if yes {
		state = types.VirtualMachineConnectionStateConnected
		if now.power == poweredOn && now.tools == string(types.VirtualMachineToolsRunningStatusGuestToolsRunning) {
			beat = types.ManagedEntityStatusGreen
		}
	}
	s.update(s.context(), vm,
		change("runtime.connectionState", state), change("summary.runtime.connectionState", state),
		change("guestHeartbeatStatus", beat),
	)
}

func (s *Sim) vmsAt(host ref) []ref {
	_, vms, _ := s.feed.snapshot(s.hostNow(host).clusterRef)
	for r, vm := range vms {
		if vm.host != host {
			delete(vms, r)
		}
	}
	return sortedBy(vms, func(v vmState) string { return v.name })
}

// lose ends what waits for a host that is gone; mu is held.
func (s *Sim) lose(host ref) {
	if e := s.entries[host]; e != nil {
		for _, t := range append([]*enterTask(nil), e.tasks...) {
			s.leave(host, t, &types.HostNotConnected{})
		}
	}
}

// crash takes the power of a host away. With HA its VMs start on other hosts some seconds later.
func (s *Sim) crash(host ref, ha bool, haSeconds float64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.crashes[host] != nil {
		return false
	}
	c := &crashed{}
	s.crashes[host] = c
	s.lose(host)
	s.feed.silence(host)
	s.connection(host, notResponding)
	if ha {
		c.restart = time.AfterFunc(seconds(haSeconds), func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.crashes[host] == c {
				s.failOver(host)
			}
		})
	}
	return true
}

// failOver is High Availability: whatever ran on the host starts anew where it fits; mu is held.
func (s *Sim) failOver(host ref) {
	for _, r := range s.vmsAt(host) {
		now, there := s.vmNow(r)
		if !there || !now.dead {
			continue
		}
		p := s.look(s.hostNow(host).clusterRef)
		target, fault := s.place(p, r)
		if fault != nil {
			continue // it stays where it was, and vCenter goes on calling it disconnected
		}
		s.move(r, target)
		s.feed.revive(r)
		s.reach(r, true)
		vm, from := s.vm(r), s.host(host)
		event := &types.VmRestartedOnAlternateHostEvent{
			SourceHost: types.HostEventArgument{EntityEventArgument: types.EntityEventArgument{Name: from.Name}, Host: from.Self},
		}
		event.VmEvent = s.vmEvent(vm)
		s.reboot(r, event)
	}
}

// recover brings a crashed host back: it has booted, so what ran on it is off, unless it is told to
// start its VMs by itself.
func (s *Sim) recover(host ref, powerOn bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.crashes[host]
	if c == nil {
		return false
	}
	if c.restart != nil {
		c.restart.Stop()
	}
	delete(s.crashes, host)
	var were []ref
	for _, r := range s.vmsAt(host) {
		if now, _ := s.vmNow(r); now.dead {
			were = append(were, r)
			s.feed.revive(r)
			s.applyPower(r, poweredOff)
		}
	}
	s.connection(host, connected)
	if powerOn && !s.hostNow(host).inMaintenance {
		for _, r := range were {
			_ = s.setPower(r, poweredOn) // what cannot start stays off, as with ESXi's own autostart
		}
	}
	return true
}

// reconnect and disconnect are what an administrator does; the VMs of the host run on.
func (s *Sim) switchConnection(ctx *simulator.Context, hostRef ref, to types.HostSystemConnectionState) (ref, types.BaseMethodFault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	host := s.host(hostRef)
	if host == nil {
		return ref{}, &types.ManagedObjectNotFound{Obj: hostRef}
	}
	method, description := "ReconnectHost_Task", "HostSystem.reconnect"
	if to == disconnected {
		method, description = "DisconnectHost_Task", "HostSystem.disconnect"
	}
	t := s.begin(ctx, host, method, description, nil)
	now := s.hostNow(hostRef).connection
	switch {
	case to == now:
		s.end(t, &types.InvalidState{})
	case to == connected && s.crashes[hostRef] != nil:
		s.end(t, &types.HostNotReachable{})
	default:
		if to == disconnected {
			s.lose(hostRef)
		}
		s.connection(hostRef, to)
		s.end(t, nil)
	}
	return t.task.Self, nil
}

// silence says that nothing runs on a host any more, though vCenter cannot know.
func (f *Feed) silence(host ref) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range sortedBy(f.vms, func(v *vmState) string { return v.name }) {
		if vm := f.vms[r]; vm.host == host && vm.power == poweredOn && !vm.dead {
			vm.dead = true
			f.publish(f.powerEvent(r, vm))
		}
	}
}

// revive ends that for one VM; what it does next is a change of its own.
func (f *Feed) revive(r ref) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if vm := f.vms[r]; vm != nil {
		vm.dead = false
	}
}
