package main

import (
	"fmt"
	"slices"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// drsMode reads how the cluster of a host moves VMs, as it is configured now.
func (s *Sim) drsMode(cluster ref) string {
	c, ok := s.reg.Get(cluster).(*simulator.ClusterComputeResource)
	if !ok {
		return drsOff
	}
	mode := drsOff
	ctx := s.context()
	s.reg.WithLock(ctx, c.Self, func() {
		config, ok := c.ConfigurationEx.(*types.ClusterConfigInfoEx)
		if !ok || config.DrsConfig.Enabled == nil || !*config.DrsConfig.Enabled {
			return
		}
		mode = drsManual
		if config.DrsConfig.DefaultVmBehavior == types.DrsBehaviorFullyAutomated {
			mode = drsFull
		}
	})
	return mode
}

// verdict says whether a VM keeps an Enter task of its host hanging, and where it could go instead.
type verdict struct {
	blocks bool
	why    string
	target ref // set when it is powered on and DRS will move it
}

// judge decides on one VM; mu is held.
func (s *Sim) judge(r ref, vm vmState, vms map[ref]vmState, hosts map[ref]hostState) verdict {
	if vm.power != types.VirtualMachinePowerStatePoweredOn {
		return verdict{why: "it is not powered on"}
	}
	if why := s.pinned(r); why != "" {
		return verdict{blocks: true, why: "it is powered on and " + why + ", so it cannot move live"}
	}
	host := hosts[vm.host]
	switch s.drsMode(host.clusterRef) {
	case drsOff:
		return verdict{blocks: true, why: fmt.Sprintf("it is powered on and DRS is off in cluster %q, so nothing moves it", host.cluster)}
	case drsManual:
		return verdict{blocks: true, why: fmt.Sprintf("it is powered on and DRS of cluster %q is manual, so a move is only recommended", host.cluster)}
	}
	target, ok := s.findTarget(r, vm.host, vms, hosts)
	if !ok {
		return verdict{blocks: true, why: fmt.Sprintf("it is powered on and no other host of cluster %q can take it", host.cluster)}
	}
	return verdict{target: target, why: fmt.Sprintf("it can move live, to %q for example", hosts[target].name)}
}

// pinned says why a VM cannot move while it is on, or nothing; mu is held.
func (s *Sim) pinned(r ref) string {
	if movable := s.traitsOf(r).movable; movable != nil {
		if *movable {
			return ""
		}
		return "is pinned to its host (movable is false)"
	}
	vm := s.vm(r)
	if vm == nil {
		return ""
	}
	what, has := "", false
	s.reg.WithLock(s.context(), vm.Self, func() { what, has = passthrough(&vm.VirtualMachine) })
	if !has {
		return ""
	}
	return "has " + what
}

// inService says whether VMs may run on and come to a host.
func inService(h hostState) bool {
	return h.connection == types.HostSystemConnectionStateConnected && !h.inMaintenance && !h.entering
}

// findTarget picks another host of the same cluster that reaches everything the VM uses: the one
// with the fewest VMs, then by name, so that the same fleet always moves the same way. Free devices,
// CPU and memory are not counted yet; that belongs to Maintenance and fits in here.
func (s *Sim) findTarget(r, from ref, vms map[ref]vmState, hosts map[ref]hostState) (ref, bool) {
	load := map[ref]int{}
	for _, vm := range vms {
		load[vm.host]++
	}
	var best ref
	found := false
	for _, candidate := range sortedBy(hosts, func(h hostState) string { return h.name }) {
		h := hosts[candidate]
		if candidate == from || h.clusterRef != hosts[from].clusterRef || !inService(h) || s.unreachable(r, candidate) != nil {
			continue
		}
		if !found || load[candidate] < load[best] {
			best, found = candidate, true
		}
	}
	return best, found
}

// unreachable names what of the VM a host does not reach: a datastore or a network.
func (s *Sim) unreachable(vmRef, hostRef ref) *ref {
	vm, host := s.vm(vmRef), s.host(hostRef)
	if vm == nil || host == nil {
		return &vmRef
	}
	ctx := s.context()
	var uses, has []ref
	s.reg.WithLock(ctx, vm.Self, func() { uses = append(slices.Clone(vm.Datastore), vm.Network...) })
	s.reg.WithLock(ctx, host.Self, func() { has = append(slices.Clone(host.Datastore), host.Network...) })
	for _, r := range uses {
		if !slices.Contains(has, r) {
			return &r
		}
	}
	return nil
}
