package main

import (
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// ours lists the calls this program answers itself; every other call is the stock simulator's.
var ours = map[string]map[string]bool{
	"HostSystem":     set("EnterMaintenanceMode_Task", "ExitMaintenanceMode_Task", "DisconnectHost_Task", "ReconnectHost_Task"),
	"VirtualMachine": set("PowerOnVM_Task", "PowerOffVM_Task", "ResetVM_Task", "ShutdownGuest", "RebootGuest", "RelocateVM_Task", "MigrateVM_Task"),
	"Datacenter":     set("PowerOnMultiVM_Task"),
	"Task":           set("CancelTask"),
	"PropertyCollector": set("CreateFilter", "CreatePropertyCollector", "DestroyPropertyCollector", "CancelWaitForUpdates",
		"WaitForUpdatesEx", "WaitForUpdates", "CheckForUpdates", "RetrievePropertiesEx", "RetrieveProperties", "ContinueRetrievePropertiesEx"),
	"PropertyFilter":       set("DestroyPropertyFilter"),
	"AuthorizationManager": set("HasPrivilegeOnEntities", "HasUserPrivilegeOnEntities", "FetchUserPrivilegeOnEntities"),
	"CustomFieldsManager":  set("SetField", "AddCustomFieldDef"),
}

func set(names ...string) map[string]bool {
	m := map[string]bool{}
	for _, n := range names {
		m[n] = true
	}
	return m
}

// override sends a call to us or lets it pass. Replacing objects in the registry would break the
// simulator's type assertions, and what a handler returns loses against the registry's own object;
// so the call is re-addressed to a reference the registry does not know. The request body keeps the
// true one.
func (s *Sim) override(ctx *simulator.Context, method *simulator.Method) (mo.Reference, types.BaseMethodFault) {
	if fault := s.current(ctx, method); fault != nil {
		return nil, fault
	}
	if fault := s.refused(ctx, method); fault != nil {
		return nil, fault
	}
	if obj, prop := fetched(method); obj != (ref{}) {
		if fault := s.hidden(obj, prop); fault != nil {
			return nil, fault
		}
		if obj.Type == "SessionManager" && ctx.Session == nil {
			method.This = ref{Type: "HostlerCall", Value: "hostler"}
			return &calls{sim: s, self: obj}, nil
		}
	}
	if ctx.Session != nil && method.Name == "Logout" {
		s.collectors.logout(ctx.Session.Key)
	}
	if method.Name == "AddHost_Task" {
		return nil, &types.NotSupported{} // the stock one panics beside hosts newer than it knows; the inventory is the place
	}
	if !ours[method.This.Type][method.Name] || !s.known(method.This) {
		return nil, nil
	}
	if method.This.Type == "Task" && !s.ownsTask(method.This) {
		return nil, nil
	}
	target := &calls{sim: s, self: method.This}
	method.This = ref{Type: "HostlerCall", Value: "hostler"}
	return target, nil
}

// known lets the stock simulator say ManagedObjectNotFound for what is not there.
func (s *Sim) known(r ref) bool {
	return r.Type == "PropertyCollector" || r.Type == "PropertyFilter" || s.reg.Get(r) != nil
}

func (s *Sim) ownsTask(r ref) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running[r] != nil
}

// calls is the receiver of every call of ours. Its methods have the names and the shape the
// simulator looks for by reflection: Foo_Task becomes FooTask.
type calls struct {
	sim  *Sim
	self ref
}

func (c *calls) Reference() ref { return c.self }

// Lock and Unlock opt out of the simulator's lock per object: ours would be held while a client waits.
func (c *calls) Lock()   {}
func (c *calls) Unlock() {}

func soapFault(fault types.BaseMethodFault) *soap.Fault {
	return simulator.Fault(sentence(fault), fault)
}

func (c *calls) EnterMaintenanceModeTask(ctx *simulator.Context, req *types.EnterMaintenanceMode_Task) soap.HasFault {
	body := &methods.EnterMaintenanceMode_TaskBody{}
	evacuate := req.EvacuatePoweredOffVms != nil && *req.EvacuatePoweredOffVms
	task, fault := c.sim.enter(ctx, c.self, req.Timeout, evacuate)
	if fault != nil {
		body.Fault_ = soapFault(fault)
		return body
	}
	body.Res = &types.EnterMaintenanceMode_TaskResponse{Returnval: task}
	return body
}

func (c *calls) ExitMaintenanceModeTask(ctx *simulator.Context, _ *types.ExitMaintenanceMode_Task) soap.HasFault {
	body := &methods.ExitMaintenanceMode_TaskBody{}
	task, fault := c.sim.exit(ctx, c.self)
	if fault != nil {
		body.Fault_ = soapFault(fault)
		return body
	}
	body.Res = &types.ExitMaintenanceMode_TaskResponse{Returnval: task}
	return body
}

func (c *calls) DisconnectHostTask(ctx *simulator.Context, _ *types.DisconnectHost_Task) soap.HasFault {
	body := &methods.DisconnectHost_TaskBody{}
	task, fault := c.sim.switchConnection(ctx, c.self, disconnected)
	if fault != nil {
		body.Fault_ = soapFault(fault)
		return body
	}
	body.Res = &types.DisconnectHost_TaskResponse{Returnval: task}
	return body
}

func (c *calls) ReconnectHostTask(ctx *simulator.Context, _ *types.ReconnectHost_Task) soap.HasFault {
	body := &methods.ReconnectHost_TaskBody{}
	task, fault := c.sim.switchConnection(ctx, c.self, connected)
	if fault != nil {
		body.Fault_ = soapFault(fault)
		return body
	}
	body.Res = &types.ReconnectHost_TaskResponse{Returnval: task}
	return body
}

func (c *calls) PowerOnVMTask(ctx *simulator.Context, req *types.PowerOnVM_Task) soap.HasFault {
	body := &methods.PowerOnVM_TaskBody{}
	task, fault := c.sim.power(ctx, c.self, poweredOn)
	if fault != nil {
		body.Fault_ = soapFault(fault)
		return body
	}
	body.Res = &types.PowerOnVM_TaskResponse{Returnval: task}
	return body
}

func (c *calls) PowerOffVMTask(ctx *simulator.Context, _ *types.PowerOffVM_Task) soap.HasFault {
	body := &methods.PowerOffVM_TaskBody{}
	task, fault := c.sim.power(ctx, c.self, poweredOff)
	if fault != nil {
		body.Fault_ = soapFault(fault)
		return body
	}
	body.Res = &types.PowerOffVM_TaskResponse{Returnval: task}
	return body
}

func (c *calls) ResetVMTask(ctx *simulator.Context, _ *types.ResetVM_Task) soap.HasFault {
	body := &methods.ResetVM_TaskBody{}
	task, fault := c.sim.reset(ctx, c.self)
	if fault != nil {
		body.Fault_ = soapFault(fault)
		return body
	}
	body.Res = &types.ResetVM_TaskResponse{Returnval: task}
	return body
}

func (c *calls) ShutdownGuest(ctx *simulator.Context, _ *types.ShutdownGuest) soap.HasFault {
	body := &methods.ShutdownGuestBody{}
	if fault := c.sim.shutdownGuest(ctx, c.self); fault != nil {
		body.Fault_ = soapFault(fault)
		return body
	}
	body.Res = &types.ShutdownGuestResponse{}
	return body
}

func (c *calls) RebootGuest(_ *simulator.Context, _ *types.RebootGuest) soap.HasFault {
	body := &methods.RebootGuestBody{}
	if fault := c.sim.rebootGuest(c.self); fault != nil {
		body.Fault_ = soapFault(fault)
		return body
	}
	body.Res = &types.RebootGuestResponse{}
	return body
}

func (c *calls) RelocateVMTask(ctx *simulator.Context, req *types.RelocateVM_Task) soap.HasFault {
	body := &methods.RelocateVM_TaskBody{}
	task, fault := c.sim.relocate(ctx, c.self, &req.Spec)
	if fault != nil {
		body.Fault_ = soapFault(fault)
		return body
	}
	body.Res = &types.RelocateVM_TaskResponse{Returnval: task}
	return body
}

// MigrateVMTask is the old name of the same thing.
func (c *calls) MigrateVMTask(ctx *simulator.Context, req *types.MigrateVM_Task) soap.HasFault {
	body := &methods.MigrateVM_TaskBody{}
	task, fault := c.sim.relocate(ctx, c.self, &types.VirtualMachineRelocateSpec{Host: req.Host, Pool: req.Pool})
	if fault != nil {
		body.Fault_ = soapFault(fault)
		return body
	}
	body.Res = &types.MigrateVM_TaskResponse{Returnval: task}
	return body
}

// PowerOnMultiVMTask is what the vSphere client uses. The stock one powers on behind our back, also
// on a host in maintenance; this one powers on each VM with a task of its own, as vCenter does.
func (c *calls) PowerOnMultiVMTask(ctx *simulator.Context, req *types.PowerOnMultiVM_Task) soap.HasFault {
	body := &methods.PowerOnMultiVM_TaskBody{}
	task, fault := c.sim.powerOnMany(ctx, c.self, req.Vm)
	if fault != nil {
		body.Fault_ = soapFault(fault)
		return body
	}
	body.Res = &types.PowerOnMultiVM_TaskResponse{Returnval: task}
	return body
}

func (c *calls) CancelTask(_ *simulator.Context, _ *types.CancelTask) soap.HasFault {
	body := &methods.CancelTaskBody{}
	if fault := c.sim.cancelTask(c.self); fault != nil {
		body.Fault_ = soapFault(fault)
		return body
	}
	body.Res = &types.CancelTaskResponse{}
	return body
}
