package main

import (
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// The PropertyCollector's calls. Reading properties at once stays the stock simulator's work.

func (c *calls) collector(ctx *simulator.Context) (*collector, *soap.Fault) {
	if found := c.sim.collectors.get(ctx, c.self); found != nil {
		return found, nil
	}
	return nil, soapFault(&types.ManagedObjectNotFound{Obj: c.self})
}

func (c *calls) CreateFilter(ctx *simulator.Context, req *types.CreateFilter) soap.HasFault {
	body := &methods.CreateFilterBody{}
	found, fault := c.collector(ctx)
	if fault != nil {
		body.Fault_ = fault
		return body
	}
	body.Res = &types.CreateFilterResponse{Returnval: c.sim.collectors.addFilter(ctx, found, req.Spec)}
	return body
}

func (c *calls) DestroyPropertyFilter(ctx *simulator.Context, _ *types.DestroyPropertyFilter) soap.HasFault {
	body := &methods.DestroyPropertyFilterBody{}
	if !c.sim.collectors.removeFilter(ctx.Session.Key, c.self) {
		body.Fault_ = soapFault(&types.ManagedObjectNotFound{Obj: c.self})
		return body
	}
	body.Res = &types.DestroyPropertyFilterResponse{}
	return body
}

func (c *calls) CreatePropertyCollector(ctx *simulator.Context, _ *types.CreatePropertyCollector) soap.HasFault {
	return &methods.CreatePropertyCollectorBody{
		Res: &types.CreatePropertyCollectorResponse{Returnval: c.sim.collectors.create(ctx)},
	}
}

func (c *calls) DestroyPropertyCollector(ctx *simulator.Context, _ *types.DestroyPropertyCollector) soap.HasFault {
	body := &methods.DestroyPropertyCollectorBody{}
	if _, fault := c.collector(ctx); fault != nil {
		body.Fault_ = fault
		return body
	}
	c.sim.collectors.destroy(ctx, c.self)
	body.Res = &types.DestroyPropertyCollectorResponse{}
	return body
}

func (c *calls) CancelWaitForUpdates(ctx *simulator.Context, _ *types.CancelWaitForUpdates) soap.HasFault {
	body := &methods.CancelWaitForUpdatesBody{}
	found, fault := c.collector(ctx)
	if fault != nil {
		body.Fault_ = fault
		return body
	}
	if !found.work.TryLock() { // somebody waits
		select {
		case found.cancel <- struct{}{}:
		default:
		}
	} else {
		found.work.Unlock()
	}
	body.Res = &types.CancelWaitForUpdatesResponse{}
	return body
}

func (c *calls) WaitForUpdatesEx(ctx *simulator.Context, req *types.WaitForUpdatesEx) soap.HasFault {
	body := &methods.WaitForUpdatesExBody{}
	found, fault := c.collector(ctx)
	if fault != nil {
		body.Fault_ = fault
		return body
	}
	var maxWait *int32
	var maxObjects int32
	if req.Options != nil {
		maxWait, maxObjects = req.Options.MaxWaitSeconds, req.Options.MaxObjectUpdates
	}
	set, failed := c.sim.collectors.wait(ctx, found, req.Version, maxWait, maxObjects)
	if failed != nil {
		body.Fault_ = soapFault(failed)
		return body
	}
	body.Res = &types.WaitForUpdatesExResponse{Returnval: set}
	return body
}

// WaitForUpdates has no time limit and no pages' options.
func (c *calls) WaitForUpdates(ctx *simulator.Context, req *types.WaitForUpdates) soap.HasFault {
	body := &methods.WaitForUpdatesBody{}
	found, fault := c.collector(ctx)
	if fault != nil {
		body.Fault_ = fault
		return body
	}
	for {
		set, failed := c.sim.collectors.wait(ctx, found, req.Version, nil, 0)
		if failed != nil {
			body.Fault_ = soapFault(failed)
			return body
		}
		if set != nil {
			body.Res = &types.WaitForUpdatesResponse{Returnval: *set}
			return body
		}
	}
}

func (c *calls) CheckForUpdates(ctx *simulator.Context, req *types.CheckForUpdates) soap.HasFault {
	body := &methods.CheckForUpdatesBody{}
	found, fault := c.collector(ctx)
	if fault != nil {
		body.Fault_ = fault
		return body
	}
	set, failed := c.sim.collectors.wait(ctx, found, req.Version, types.NewInt32(0), 0)
	if failed != nil {
		body.Fault_ = soapFault(failed)
		return body
	}
	body.Res = &types.CheckForUpdatesResponse{Returnval: set}
	return body
}

func (c *calls) RetrievePropertiesEx(ctx *simulator.Context, req *types.RetrievePropertiesEx) soap.HasFault {
	body := new(simulator.PropertyCollector).RetrievePropertiesEx(ctx, req)
	if full, ok := body.(*methods.RetrievePropertiesExBody); ok && full.Res != nil && full.Res.Returnval != nil {
		c.sim.conceal(full.Res.Returnval.Objects)
	}
	return body
}

func (c *calls) RetrieveProperties(ctx *simulator.Context, req *types.RetrieveProperties) soap.HasFault {
	body := new(simulator.PropertyCollector).RetrieveProperties(ctx, req)
	if full, ok := body.(*methods.RetrievePropertiesBody); ok && full.Res != nil {
		c.sim.conceal(full.Res.Returnval)
	}
	return body
}

func (c *calls) ContinueRetrievePropertiesEx(ctx *simulator.Context, req *types.ContinueRetrievePropertiesEx) soap.HasFault {
	body := new(simulator.PropertyCollector).ContinueRetrievePropertiesEx(ctx, req)
	if full, ok := body.(*methods.ContinueRetrievePropertiesExBody); ok && full.Res != nil {
		c.sim.conceal(full.Res.Returnval.Objects)
	}
	return body
}
