package main

import (
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// post writes vCenter events, what an admin reads under Monitor, Events.
func (s *Sim) post(ctx *simulator.Context, events ...types.BaseEvent) {
	if ctx.Session == nil {
		ctx = s.context()
	}
	m := s.reg.EventManager()
	s.reg.WithLock(ctx, m.Self, func() {
		for _, e := range events {
			m.PostEvent(ctx, &types.PostEvent{EventToPost: e})
		}
	})
}

func (s *Sim) hostEvent(h *simulator.HostSystem) types.HostEvent {
	e := types.HostEvent{}
	e.Host = &types.HostEventArgument{EntityEventArgument: types.EntityEventArgument{Name: h.Name}, Host: h.Self}
	e.ComputeResource = s.clusterArgument(h)
	e.Datacenter = s.datacenterArgument(h)
	return e
}

func (s *Sim) vmEvent(vm *simulator.VirtualMachine) types.VmEvent {
	e := types.VmEvent{}
	e.Vm = &types.VmEventArgument{EntityEventArgument: types.EntityEventArgument{Name: vm.Name}, Vm: vm.Self}
	e.Datacenter = s.datacenterArgument(vm)
	e.Ds = s.datastoreArgument(vm)
	if now, ok := s.vmNow(vm.Self); ok {
		if h := s.host(now.host); h != nil {
			e.Host = &types.HostEventArgument{EntityEventArgument: types.EntityEventArgument{Name: h.Name}, Host: h.Self}
			e.ComputeResource = s.clusterArgument(h)
		}
	}
	return e
}

func (s *Sim) clusterArgument(h *simulator.HostSystem) *types.ComputeResourceEventArgument {
	if h.Parent == nil {
		return nil
	}
	return &types.ComputeResourceEventArgument{
		EntityEventArgument: types.EntityEventArgument{Name: s.hostNow(h.Self).cluster},
		ComputeResource:     *h.Parent,
	}
}

// datacenterArgument climbs to the datacenter of an entity.
func (s *Sim) datacenterArgument(e mo.Entity) *types.DatacenterEventArgument {
	for e != nil && e.Entity().Parent != nil {
		parent, _ := s.reg.Get(*e.Entity().Parent).(mo.Entity)
		if dc, ok := parent.(*simulator.Datacenter); ok {
			return &types.DatacenterEventArgument{EntityEventArgument: types.EntityEventArgument{Name: dc.Name}, Datacenter: dc.Self}
		}
		e = parent
	}
	return nil
}

func (s *Sim) datastoreArgument(vm *simulator.VirtualMachine) *types.DatastoreEventArgument {
	if len(vm.Datastore) == 0 {
		return nil
	}
	ds, ok := s.reg.Get(vm.Datastore[0]).(*simulator.Datastore)
	if !ok {
		return nil
	}
	return &types.DatastoreEventArgument{EntityEventArgument: types.EntityEventArgument{Name: ds.Name}, Datastore: ds.Self}
}
