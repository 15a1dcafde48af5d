package main

import (
	"fmt"
	"slices"
	"sort"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// picture is one look at a cluster or the whole vCenter, taken with mu held, so that judging 5,000 VMs
// does not count them 5,000 times.
type picture struct {
	seq     int64
	vms     map[ref]vmState
	hosts   map[ref]hostState
	vmsOn   map[ref][]ref // by host, sorted by name
	hostsIn map[ref][]ref // by cluster, sorted by name
	drs     map[ref]string
	ctx     *simulator.Context
}

// look takes a picture of one cluster, or of everything with the zero reference.
func (s *Sim) look(cluster ref) *picture {
	p := &picture{vmsOn: map[ref][]ref{}, hostsIn: map[ref][]ref{}, drs: map[ref]string{}, ctx: s.context()}
	p.seq, p.vms, p.hosts = s.feed.snapshot(cluster)
	for r, vm := range p.vms {
		p.vmsOn[vm.host] = append(p.vmsOn[vm.host], r)
	}
	for _, list := range p.vmsOn {
		sort.Slice(list, func(i, j int) bool { return p.vms[list[i]].name < p.vms[list[j]].name })
	}
	for r, h := range p.hosts {
		p.hostsIn[h.clusterRef] = append(p.hostsIn[h.clusterRef], r)
	}
	for cluster, list := range p.hostsIn {
		sort.Slice(list, func(i, j int) bool { return p.hosts[list[i]].name < p.hosts[list[j]].name })
		p.drs[cluster] = s.drsMode(p.ctx, cluster)
	}
	return p
}

// drsMode reads how a cluster moves VMs, as it is configured now.
func (s *Sim) drsMode(ctx *simulator.Context, cluster ref) string {
	c, ok := s.reg.Get(cluster).(*simulator.ClusterComputeResource)
	if !ok {
		return drsOff
	}
	mode := drsOff
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
func (s *Sim) judge(p *picture, r ref) verdict {
	vm := p.vms[r]
	if vm.power != poweredOn {
		return verdict{why: "it is not powered on"}
	}
	if why := s.pinned(p.ctx, r); why != "" {
		return verdict{blocks: true, why: "it is powered on and " + why + ", so it cannot move live"}
	}
	host := p.hosts[vm.host]
	switch p.drs[host.clusterRef] {
	case drsOff:
		return verdict{blocks: true, why: fmt.Sprintf("it is powered on and DRS is off in cluster %q, so nothing moves it", host.cluster)}
	case drsManual:
		return verdict{blocks: true, why: fmt.Sprintf("it is powered on and DRS of cluster %q is manual, so a move is only recommended", host.cluster)}
	}
	target, ok := s.findTarget(p, r)
	if !ok {
		return verdict{blocks: true, why: fmt.Sprintf("it is powered on and no other host of cluster %q can take it", host.cluster)}
	}
	return verdict{target: target, why: fmt.Sprintf("it can move live, to %q for example", p.hosts[target].name)}
}

// pinned says why a VM cannot move while it is on, or nothing; mu is held.
func (s *Sim) pinned(ctx *simulator.Context, r ref) string {
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
	s.reg.WithLock(ctx, vm.Self, func() { what, has = passthrough(&vm.VirtualMachine) })
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
func (s *Sim) findTarget(p *picture, r ref) (ref, bool) {
	from := p.vms[r].host
	candidates := slices.Clone(p.hostsIn[p.hosts[from].clusterRef])
	sort.SliceStable(candidates, func(i, j int) bool { return len(p.vmsOn[candidates[i]]) < len(p.vmsOn[candidates[j]]) })
	for _, candidate := range candidates {
		if candidate != from && inService(p.hosts[candidate]) && s.unreachable(p.ctx, r, candidate) == nil {
			return candidate, true
		}
	}
	return ref{}, false
}

// unreachable names what of the VM a host does not reach: a datastore or a network.
func (s *Sim) unreachable(ctx *simulator.Context, vmRef, hostRef ref) *ref {
	vm, host := s.vm(vmRef), s.host(hostRef)
	if vm == nil || host == nil {
		return &vmRef
	}
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
