package main

import (
	"sort"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// drsModes reads how a cluster moves VMs, as it is configured now, and the VMs that are exceptions.
func (s *Sim) drsModes(ctx *simulator.Context, cluster ref) (string, map[ref]string) {
	c, ok := s.reg.Get(cluster).(*simulator.ClusterComputeResource)
	if !ok {
		return drsOff, nil
	}
	mode, own := drsOff, map[ref]string{}
	s.reg.WithLock(ctx, c.Self, func() {
		config, ok := c.ConfigurationEx.(*types.ClusterConfigInfoEx)
		if !ok || config.DrsConfig.Enabled == nil || !*config.DrsConfig.Enabled {
			return
		}
		mode = behavior(config.DrsConfig.DefaultVmBehavior)
		if allowed := config.DrsConfig.EnableVmBehaviorOverrides; allowed != nil && !*allowed {
			return
		}
		for _, one := range config.DrsVmConfig {
			switch {
			case one.Enabled != nil && !*one.Enabled:
				own[one.Key] = drsOff
			case one.Behavior != "":
				own[one.Key] = behavior(one.Behavior)
			}
		}
	})
	return mode, own
}

func behavior(b types.DrsBehavior) string {
	switch b {
	case types.DrsBehaviorFullyAutomated:
		return drsFull
	case types.DrsBehaviorPartiallyAutomated:
		return drsPartial
	default:
		return drsManual
	}
}

// with adds a VM of another cluster to the picture, as a move into this one needs it.
func (p *picture) with(r ref, vm vmState) *picture {
	p.vms[r] = vm
	return p
}

// mode is how DRS treats one VM.
func (p *picture) mode(r ref) string {
	if own, ok := p.drsVM[r]; ok {
		return own
	}
	return p.drs[p.hosts[p.vms[r].host].clusterRef]
}

// placed says whether DRS chooses the host when a VM is powered on. Partial automation does just that.
func placed(mode string) bool { return mode == drsFull || mode == drsPartial }

// place chooses where a VM is powered on: where it is if it can, else the host with the fewest VMs.
// What every other host lacks is in the fault, one error per host, as vCenter lists it; mu is held.
func (s *Sim) place(p *picture, r ref) (ref, types.BaseMethodFault) {
	home := p.vms[r].host
	fault := &types.NoCompatibleHost{}
	for _, candidate := range p.candidates(home) {
		why := s.refuses(p, r, candidate)
		if why == nil {
			return candidate, nil
		}
		fault.Host = append(fault.Host, candidate)
		fault.Error = append(fault.Error, types.LocalizedMethodFault{Fault: why, LocalizedMessage: sentence(why)})
	}
	return ref{}, fault
}

// candidates are the hosts of a cluster: home first, then those with the fewest VMs, then by name, so
// that the same fleet always ends the same way.
func (p *picture) candidates(home ref) []ref {
	list := append([]ref(nil), p.hostsIn[p.hosts[home].clusterRef]...)
	sort.SliceStable(list, func(i, j int) bool {
		if (list[i] == home) != (list[j] == home) {
			return list[i] == home
		}
		return len(p.vmsOn[list[i]]) < len(p.vmsOn[list[j]])
	})
	return list
}

// refuses says why a VM could not run on a host now, or nothing; mu is held.
func (s *Sim) refuses(p *picture, r, host ref) types.BaseMethodFault {
	h := p.hosts[host]
	if h.connection != types.HostSystemConnectionStateConnected {
		return &types.HostNotConnected{}
	}
	if !inService(h) {
		return &types.InvalidState{}
	}
	if host != p.vms[r].host {
		if missing := s.unreachable(p.ctx, r, host); missing != nil {
			return unreachableFault(missing, host)
		}
	}
	_, fault := s.fit(p, r, host)
	return fault
}

func unreachableFault(missing *ref, host ref) types.BaseMethodFault {
	if missing.Type == "Datastore" {
		return &types.DatastoreNotWritableOnHost{InvalidDatastore: types.InvalidDatastore{Datastore: missing}, Host: host}
	}
	return &types.NetworksMayNotBeTheSame{}
}

// drsPowersOn is DRS acting by itself, with a task of its own; mu is held.
func (s *Sim) drsPowersOn(r ref) (ref, types.BaseMethodFault) {
	vm := s.vm(r)
	if vm == nil {
		return ref{}, &types.ManagedObjectNotFound{Obj: r}
	}
	t := s.begin(s.context(), vm, "PowerOnVM_Task", "VirtualMachine.powerOn", nil)
	s.end(t, s.setPower(r, poweredOn))
	return t.task.Self, nil
}
