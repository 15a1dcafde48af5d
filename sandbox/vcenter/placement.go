package main

import (
	"fmt"
	"maps"
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
	vmsOn   map[ref][]ref  // by host, sorted by name
	hostsIn map[ref][]ref  // by cluster, sorted by name
	drs     map[ref]string // by cluster
	drsVM   map[ref]string // VMs that DRS treats otherwise
	ctx     *simulator.Context
}

// look takes a picture of one cluster, or of everything with the zero reference.
func (s *Sim) look(cluster ref) *picture {
	p := &picture{vmsOn: map[ref][]ref{}, hostsIn: map[ref][]ref{}, drs: map[ref]string{}, drsVM: map[ref]string{}, ctx: s.context()}
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
		mode, own := s.drsModes(p.ctx, cluster)
		p.drs[cluster] = mode
		maps.Copy(p.drsVM, own)
	}
	return p
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
	switch mode := p.mode(r); mode {
	case drsOff:
		return verdict{blocks: true, why: fmt.Sprintf("it is powered on and DRS is off in cluster %q, so nothing moves it", host.cluster)}
	case drsManual, drsPartial:
		return verdict{blocks: true, why: fmt.Sprintf("it is powered on and DRS of cluster %q is %s, so a move is only recommended", host.cluster, mode)}
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

// findTarget picks another host of the same cluster that reaches everything the VM uses and, if it is
// on, has what it needs to run. A powered-off VM is only registered there, which needs no device.
func (s *Sim) findTarget(p *picture, r ref) (ref, bool) {
	from := p.vms[r].host
	for _, candidate := range p.candidates(from) {
		if candidate != from && s.takes(p, r, candidate) {
			return candidate, true
		}
	}
	return ref{}, false
}

// takes says whether a host can take a VM as it is now, on or off; mu is held.
func (s *Sim) takes(p *picture, r, host ref) bool {
	if p.vms[r].power == poweredOn {
		return s.refuses(p, r, host) == nil
	}
	return inService(p.hosts[host]) && s.unreachable(p.ctx, r, host) == nil
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
