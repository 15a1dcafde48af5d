package main

import (
	"slices"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// relocate starts a RelocateVM task: compute only. It is checked at the start and again at the end,
// because a host may begin to enter maintenance while the VM is under way.
func (s *Sim) relocate(ctx *simulator.Context, vmRef ref, spec *types.VirtualMachineRelocateSpec) (ref, types.BaseMethodFault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	vm := s.vm(vmRef)
	if vm == nil {
		return ref{}, &types.ManagedObjectNotFound{Obj: vmRef}
	}
	if spec.Host == nil {
		return ref{}, &types.InvalidArgument{InvalidProperty: "spec.host"}
	}
	target := *spec.Host
	if s.host(target) == nil {
		return ref{}, &types.ManagedObjectNotFound{Obj: target}
	}
	var r *running
	var timer *time.Timer
	r = s.begin(ctx, vm, "RelocateVM_Task", "VirtualMachine.relocate", func() {
		timer.Stop()
		s.end(r, &types.RequestCanceled{})
	})
	if s.failsAsTold(ctx, r) {
		timer = time.NewTimer(0) // for the cancel of a fault that takes time
		return r.task.Self, nil
	}
	timer = time.AfterFunc(s.migrateTime(vmRef), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.running[r.task.Self] != r {
			return // cancelled
		}
		fault := s.mayMove(vmRef, target, spec)
		if fault == nil {
			s.move(vmRef, target)
		}
		s.end(r, fault)
	})
	if fault := s.mayMove(vmRef, target, spec); fault != nil {
		timer.Stop()
		s.end(r, fault)
	}
	return r.task.Self, nil
}

// mayMove says why a VM cannot move to a host now; mu is held.
func (s *Sim) mayMove(vmRef, target ref, spec *types.VirtualMachineRelocateSpec) types.BaseMethodFault {
	now, there := s.vmNow(vmRef)
	if !there {
		return &types.ManagedObjectNotFound{Obj: vmRef}
	}
	host := s.hostNow(target)
	if host.connection != types.HostSystemConnectionStateConnected || s.hostNow(now.host).connection != types.HostSystemConnectionStateConnected {
		return &types.HostNotConnected{}
	}
	if !inService(host) {
		return &types.InvalidState{}
	}
	if from := s.hostNow(now.host); host.clusterRef != from.clusterRef && spec.Pool == nil {
		return &types.InvalidArgument{InvalidProperty: "spec.pool"} // the VM would keep a pool of another compute resource
	}
	vm := s.vm(vmRef)
	if spec.Datastore != nil && !slices.Contains(vm.Datastore, *spec.Datastore) {
		return &types.NotSupported{} // storage is never moved here
	}
	if now.power == poweredOn && s.pinned(s.context(), vmRef) != "" {
		return &types.MigrationFeatureNotSupported{AtSourceHost: true, FailedHostName: s.hostNow(now.host).name, FailedHost: now.host}
	}
	if missing := s.unreachable(s.context(), vmRef, target); missing != nil {
		return unreachableFault(missing, target)
	}
	if w := s.lacks(vmRef, target); w != nil && target != now.host {
		return &types.CannotAccessVmDevice{Device: w.label, Backing: w.backing(), Connected: true}
	}
	if now.power == poweredOn && target != now.host {
		_, fault := s.fit(s.look(host.clusterRef).with(vmRef, now), vmRef, target)
		return fault
	}
	return nil
}

// migrateTime is how long a move of this VM takes; mu is held.
func (s *Sim) migrateTime(r ref) time.Duration {
	if own := s.traitsOf(r).migrateSeconds; own != nil {
		return seconds(*own)
	}
	return seconds(s.settings.migrateSeconds)
}

// move changes the host of a VM on all sides; mu is held and the move was checked.
func (s *Sim) move(vmRef, target ref) {
	vm, to := s.vm(vmRef), s.host(target)
	now, _ := s.vmNow(vmRef)
	from := s.host(now.host)
	if from == nil || from == to {
		return
	}
	ctx := s.context()
	// The new side first: a client that follows host.vm never sees the VM on no host.
	s.reg.WithLock(ctx, to.Self, func() {
		ctx.Update(to, []types.PropertyChange{change("vm", with(to.Vm, vmRef))})
	})
	s.update(ctx, vm, change("runtime.host", target), change("summary.runtime.host", target))
	s.reg.WithLock(ctx, from.Self, func() {
		ctx.Update(from, []types.PropertyChange{change("vm", without(from.Vm, vmRef))})
	})
	if to.Parent != nil && from.Parent != nil && *to.Parent != *from.Parent {
		s.changePool(ctx, vm, *to.Parent)
	}
	if now.power == poweredOn {
		if got, fault := s.allocate(vmRef, target); fault == nil {
			s.claim(vmRef, got)
		}
	}
	s.post(ctx, &types.VmMigratedEvent{
		VmEvent:          s.vmEvent(vm),
		SourceHost:       types.HostEventArgument{EntityEventArgument: types.EntityEventArgument{Name: from.Name}, Host: from.Self},
		SourceDatacenter: s.datacenterArgument(vm),
		SourceDatastore:  s.datastoreArgument(vm),
	})
}

// rootPool is the root resource pool of a cluster or of a standalone host.
func (s *Sim) rootPool(resource ref) *ref {
	switch c := s.reg.Get(resource).(type) {
	case *simulator.ClusterComputeResource:
		return c.ResourcePool
	case *mo.ComputeResource:
		return c.ResourcePool
	}
	return nil
}

// changePool follows a move into another compute resource.
func (s *Sim) changePool(ctx *simulator.Context, vm *simulator.VirtualMachine, resource ref) {
	root := s.rootPool(resource)
	if root == nil {
		return
	}
	if old, ok := s.reg.Get(*vm.ResourcePool).(*simulator.ResourcePool); ok {
		s.reg.WithLock(ctx, old.Self, func() {
			ctx.Update(old, []types.PropertyChange{change("vm", without(old.Vm, vm.Self))})
		})
	}
	if pool, ok := s.reg.Get(*root).(*simulator.ResourcePool); ok {
		s.reg.WithLock(ctx, pool.Self, func() {
			ctx.Update(pool, []types.PropertyChange{change("vm", with(pool.Vm, vm.Self))})
		})
	}
	s.update(ctx, vm, change("resourcePool", *root))
}
