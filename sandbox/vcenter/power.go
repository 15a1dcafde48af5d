package main

import (
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

const (
	poweredOn  = types.VirtualMachinePowerStatePoweredOn
	poweredOff = types.VirtualMachinePowerStatePoweredOff
)

// power starts a PowerOn or PowerOff task. Whether it may is found out inside the task, as in
// vCenter: the call gives a task, and the task carries the fault.
func (s *Sim) power(ctx *simulator.Context, vmRef ref, to types.VirtualMachinePowerState) (ref, types.BaseMethodFault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	vm := s.vm(vmRef)
	if vm == nil {
		return ref{}, &types.ManagedObjectNotFound{Obj: vmRef}
	}
	method, description := "PowerOnVM_Task", "VirtualMachine.powerOn"
	if to == poweredOff {
		method, description = "PowerOffVM_Task", "VirtualMachine.powerOff"
	}
	if t := s.traitsOf(vmRef); to == poweredOn && t.drsFirst && !s.internal(ctx) {
		t.drsFirst = false
		s.drsPowersOn(vmRef)
	}
	r := s.begin(ctx, vm, method, description, nil)
	if s.failsAsTold(ctx, r) {
		return r.task.Self, nil
	}
	s.end(r, s.setPower(vmRef, to))
	return r.task.Self, nil
}

// mayPower says why a VM cannot go to a power state now, or on which host it would; mu is held.
func (s *Sim) mayPower(vmRef ref, to types.VirtualMachinePowerState) (ref, types.BaseMethodFault) {
	now, there := s.vmNow(vmRef)
	if !there {
		return ref{}, &types.InvalidState{}
	}
	if now.power == to {
		return ref{}, &types.InvalidPowerState{RequestedState: to, ExistingState: now.power}
	}
	host := s.hostNow(now.host)
	if host.connection != types.HostSystemConnectionStateConnected {
		return ref{}, &types.HostNotConnected{}
	}
	if to != poweredOn {
		return now.host, nil
	}
	p := s.look(host.clusterRef)
	if placed(p.mode(vmRef)) {
		return s.place(p, vmRef)
	}
	return now.host, s.refuses(p, vmRef, now.host)
}

// setPower changes the power state if it may; mu is held.
func (s *Sim) setPower(vmRef ref, to types.VirtualMachinePowerState) types.BaseMethodFault {
	target, fault := s.mayPower(vmRef, to)
	if fault != nil {
		return fault
	}
	if to != poweredOn {
		s.applyPower(vmRef, to)
		return nil
	}
	got, fault := s.allocate(vmRef, target)
	if fault != nil {
		return fault
	}
	s.move(vmRef, target) // nothing if it is there
	s.applyPower(vmRef, to)
	s.claim(vmRef, got)
	return nil
}

// applyPower shows a power state that was checked; mu is held.
func (s *Sim) applyPower(vmRef ref, to types.VirtualMachinePowerState) {
	vm := s.vm(vmRef)
	t := s.traitsOf(vmRef)
	on := to == poweredOn
	guest := guestInfo(t.tools, t.hostName, t.ip, on)
	heartbeat := types.ManagedEntityStatusGray
	if guest.GuestState == string(types.VirtualMachineGuestStateRunning) {
		heartbeat = types.ManagedEntityStatusGreen
	}
	var boot any // nil takes the property away
	if on {
		boot = time.Now()
	}
	s.update(s.context(), vm,
		change("guest", *guest),
		change("summary.guest", *guestSummary(guest)),
		change("guestHeartbeatStatus", heartbeat),
		change("runtime.bootTime", boot),
		change("summary.runtime.bootTime", boot),
		change("runtime.powerState", to),
		change("summary.runtime.powerState", to),
	)
	if on {
		s.post(s.context(), &types.VmStartingEvent{VmEvent: s.vmEvent(vm)}, &types.VmPoweredOnEvent{VmEvent: s.vmEvent(vm)})
	} else {
		s.post(s.context(), &types.VmStoppingEvent{VmEvent: s.vmEvent(vm)}, &types.VmPoweredOffEvent{VmEvent: s.vmEvent(vm)})
		s.claim(vmRef, nil)
	}
}

// setTools changes what VMware Tools do in a VM from now on.
func (s *Sim) setTools(vmRef ref, tools string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.traitsOf(vmRef)
	t.tools = tools
	now, _ := s.vmNow(vmRef)
	guest := guestInfo(t.tools, t.hostName, t.ip, now.power == poweredOn)
	s.update(s.context(), s.vm(vmRef), change("guest", *guest), change("summary.guest", *guestSummary(guest)))
}

// needGuest is what every guest operation asks first; mu is held.
func (s *Sim) needGuest(vmRef ref) types.BaseMethodFault {
	now, there := s.vmNow(vmRef)
	if !there {
		return &types.ManagedObjectNotFound{Obj: vmRef}
	}
	if now.power != poweredOn {
		return &types.InvalidPowerState{RequestedState: poweredOn, ExistingState: now.power}
	}
	if now.tools == string(types.VirtualMachineToolsRunningStatusGuestToolsNotRunning) {
		return &types.ToolsUnavailable{}
	}
	return nil
}

// shutdownGuest asks the guest, which takes its time, or does not listen at all.
func (s *Sim) shutdownGuest(ctx *simulator.Context, vmRef ref) types.BaseMethodFault {
	s.mu.Lock()
	defer s.mu.Unlock()
	if fault := s.needGuest(vmRef); fault != nil {
		return fault
	}
	s.post(ctx, &types.VmGuestShutdownEvent{VmEvent: s.vmEvent(s.vm(vmRef))})
	now, _ := s.vmNow(vmRef)
	takes := s.settings.guestShutdownSeconds
	if own := s.traitsOf(vmRef).shutdownSeconds; own != nil {
		takes = *own
	}
	if takes < 0 {
		return nil
	}
	time.AfterFunc(seconds(takes), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		// A guest that was started anew meanwhile has forgotten the request.
		if later, there := s.vmNow(vmRef); there && later.power == poweredOn && later.boots == now.boots {
			s.setPower(vmRef, poweredOff)
		}
	})
	return nil
}

// reboot starts the guest anew, by force or by its own means; mu is held.
func (s *Sim) reboot(vmRef ref, event types.BaseEvent) {
	vm := s.vm(vmRef)
	s.update(s.context(), vm, change("runtime.bootTime", time.Now()), change("summary.runtime.bootTime", time.Now()))
	s.post(s.context(), event)
	s.feed.rebooted(vmRef)
}

func (s *Sim) reset(ctx *simulator.Context, vmRef ref) (ref, types.BaseMethodFault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	vm := s.vm(vmRef)
	if vm == nil {
		return ref{}, &types.ManagedObjectNotFound{Obj: vmRef}
	}
	r := s.begin(ctx, vm, "ResetVM_Task", "VirtualMachine.reset", nil)
	if s.failsAsTold(ctx, r) {
		return r.task.Self, nil
	}
	if now, _ := s.vmNow(vmRef); now.power != poweredOn {
		s.end(r, &types.InvalidPowerState{RequestedState: poweredOn, ExistingState: now.power})
		return r.task.Self, nil
	}
	s.reboot(vmRef, &types.VmResettingEvent{VmEvent: s.vmEvent(vm)})
	s.end(r, nil)
	return r.task.Self, nil
}

func (s *Sim) rebootGuest(vmRef ref) types.BaseMethodFault {
	s.mu.Lock()
	defer s.mu.Unlock()
	if fault := s.needGuest(vmRef); fault != nil {
		return fault
	}
	s.reboot(vmRef, &types.VmGuestRebootEvent{VmEvent: s.vmEvent(s.vm(vmRef))})
	return nil
}

// powerOnMany starts one PowerOn task per VM and a task around them that carries the attempts.
func (s *Sim) powerOnMany(ctx *simulator.Context, dcRef ref, vms []ref) (ref, types.BaseMethodFault) {
	result := types.ClusterPowerOnVmResult{}
	for _, vm := range vms {
		task, fault := s.power(ctx, vm, poweredOn)
		if fault != nil {
			result.NotAttempted = append(result.NotAttempted, types.ClusterNotAttemptedVmInfo{
				Vm: vm, Fault: types.LocalizedMethodFault{Fault: fault, LocalizedMessage: sentence(fault)},
			})
			continue
		}
		result.Attempted = append(result.Attempted, types.ClusterAttemptedVmInfo{Vm: vm, Task: &task})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	dc := s.reg.Get(dcRef).(*simulator.Datacenter)
	r := s.begin(ctx, dc, "PowerOnMultiVM_Task", "Datacenter.powerOnVm", nil)
	s.update(s.context(), r.task, change("info.result", result))
	s.end(r, nil)
	return r.task.Self, nil
}
