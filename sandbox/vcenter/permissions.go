package main

import (
	"strings"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// privileges says what each call needs, for those a maintenance job makes.
var privileges = map[string]string{
	"PowerOnVM_Task":            "VirtualMachine.Interact.PowerOn",
	"PowerOnMultiVM_Task":       "VirtualMachine.Interact.PowerOn",
	"PowerOffVM_Task":           "VirtualMachine.Interact.PowerOff",
	"ShutdownGuest":             "VirtualMachine.Interact.PowerOff",
	"ResetVM_Task":              "VirtualMachine.Interact.Reset",
	"RebootGuest":               "VirtualMachine.Interact.Reset",
	"RelocateVM_Task":           "Resource.ColdMigrate",
	"MigrateVM_Task":            "Resource.ColdMigrate",
	"EnterMaintenanceMode_Task": "Host.Config.Maintenance",
	"ExitMaintenanceMode_Task":  "Host.Config.Maintenance",
	"SetField":                  "Global.SetCustomField",
	"AddCustomFieldDef":         "Global.ManageCustomFields",
	"CreateContainerView":       "System.View",
}

func privilegeFor(method string) string {
	if p := privileges[method]; p != "" {
		return p
	}
	return "System.Read"
}

func (f *faults) lacks(privilege string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lacking[privilege]
}

func (f *faults) any() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.rules) > 0
}

// unprivileged refuses what the login has no privilege for.
func (s *Sim) unprivileged(method *simulator.Method) types.BaseMethodFault {
	needed := privileges[method.Name]
	if needed == "" || !s.faults.lacks(needed) {
		return nil
	}
	about := method.This
	if set, ok := method.Body.(*types.SetField); ok {
		about = set.Entity
	}
	return &types.NoPermission{Object: &about, PrivilegeId: needed}
}

// unaskable says why nobody may be asked about these entities: a reference must carry the object's own
// type (VirtualMachine, ResourcePool, Folder), and the client must have the privilege on each of them.
func (s *Sim) unaskable(entities []ref, needed string) types.BaseMethodFault {
	for _, entity := range entities {
		if s.reg.Get(entity) == nil {
			return &types.ManagedObjectNotFound{Obj: entity}
		}
		about := entity
		if s.faults.lacks(needed) {
			return &types.NoPermission{Object: &about, PrivilegeId: needed}
		}
		if needed == "System.Read" {
			if fault := s.hidden(entity, ""); fault != nil {
				return fault
			}
		}
	}
	return nil
}

func (s *Sim) availability(entities []ref, ids []string) []types.EntityPrivilege {
	out := []types.EntityPrivilege{}
	for _, entity := range entities {
		one := types.EntityPrivilege{Entity: entity}
		for _, id := range ids {
			one.PrivAvailability = append(one.PrivAvailability, types.PrivilegeAvailability{PrivId: id, IsGranted: !s.faults.lacks(id)})
		}
		out = append(out, one)
	}
	return out
}

func (c *calls) HasPrivilegeOnEntities(_ *simulator.Context, req *types.HasPrivilegeOnEntities) soap.HasFault {
	body := &methods.HasPrivilegeOnEntitiesBody{}
	if fault := c.sim.unaskable(req.Entity, "System.Read"); fault != nil {
		body.Fault_ = soapFault(fault)
		return body
	}
	body.Res = &types.HasPrivilegeOnEntitiesResponse{Returnval: c.sim.availability(req.Entity, req.PrivId)}
	return body
}

func (c *calls) HasUserPrivilegeOnEntities(ctx *simulator.Context, req *types.HasUserPrivilegeOnEntities) soap.HasFault {
	body := &methods.HasUserPrivilegeOnEntitiesBody{}
	fault := c.sim.unaskable(req.Entities, "System.View")
	if fault == nil && req.UserName != ctx.Session.UserName {
		fault = &types.InvalidArgument{InvalidProperty: "userName"}
	}
	if fault != nil {
		body.Fault_ = soapFault(fault)
		return body
	}
	body.Res = &types.HasUserPrivilegeOnEntitiesResponse{Returnval: c.sim.availability(req.Entities, req.PrivId)}
	return body
}

func (c *calls) FetchUserPrivilegeOnEntities(ctx *simulator.Context, req *types.FetchUserPrivilegeOnEntities) soap.HasFault {
	body := &methods.FetchUserPrivilegeOnEntitiesBody{}
	fault := c.sim.unaskable(req.Entities, "System.View")
	if fault == nil && req.UserName != ctx.Session.UserName {
		fault = &types.InvalidArgument{InvalidProperty: "userName"}
	}
	if fault != nil {
		body.Fault_ = soapFault(fault)
		return body
	}
	manager := c.sim.reg.Get(c.self).(*simulator.AuthorizationManager)
	all := object.AuthorizationRoleList(manager.RoleList).ByName("Admin").Privilege
	body.Res = &types.FetchUserPrivilegeOnEntitiesResponse{}
	for _, entity := range req.Entities {
		one := types.UserPrivilegeResult{Entity: entity}
		for _, id := range all {
			if !c.sim.faults.lacks(id) {
				one.Privileges = append(one.Privileges, id)
			}
		}
		body.Res.Returnval = append(body.Res.Returnval, one)
	}
	return body
}

// AddCustomFieldDef is ours because the stock one tells no watcher: an administrator may define an attribute at any time.
func (c *calls) AddCustomFieldDef(_ *simulator.Context, req *types.AddCustomFieldDef) soap.HasFault {
	s := c.sim
	manager, ok := s.reg.Get(c.self).(*simulator.CustomFieldsManager)
	if !ok {
		body := &methods.AddCustomFieldDefBody{}
		body.Fault_ = soapFault(&types.ManagedObjectNotFound{Obj: c.self})
		return body
	}
	ctx := s.context()
	var body soap.HasFault
	s.reg.WithLock(ctx, manager.Self, func() {
		body = manager.AddCustomFieldDef(ctx, req)
		if body.Fault() == nil {
			ctx.Update(manager, []types.PropertyChange{change("field", manager.Field)})
		}
	})
	return body
}

// SetField is ours because the stock one tells no watcher. An empty value takes the attribute away.
func (c *calls) SetField(_ *simulator.Context, req *types.SetField) soap.HasFault {
	body := &methods.SetFieldBody{}
	s := c.sim
	manager, ok := s.reg.Get(c.self).(*simulator.CustomFieldsManager)
	entity := s.reg.Get(req.Entity)
	if !ok || entity == nil {
		body.Fault_ = soapFault(&types.ManagedObjectNotFound{Obj: req.Entity})
		return body
	}
	defined := false
	s.reg.WithLock(s.context(), manager.Self, func() {
		for _, f := range manager.Field {
			defined = defined || f.Key == req.Key
		}
	})
	if !defined {
		body.Fault_ = soapFault(&types.InvalidArgument{InvalidProperty: "key"})
		return body
	}
	ctx := s.context()
	s.reg.WithLock(ctx, req.Entity, func() {
		var old []types.BaseCustomFieldValue
		switch e := entity.(type) {
		case *simulator.VirtualMachine:
			old = e.CustomValue
		case *simulator.HostSystem:
			old = e.CustomValue
		}
		list := []types.BaseCustomFieldValue{}
		for _, v := range old {
			if v.GetCustomFieldValue().Key != req.Key {
				list = append(list, v)
			}
		}
		if req.Value != "" {
			list = append(list, &types.CustomFieldStringValue{CustomFieldValue: types.CustomFieldValue{Key: req.Key}, Value: req.Value})
		}
		ctx.Update(entity, []types.PropertyChange{change("customValue", list), change("value", list)})
	})
	body.Res = &types.SetFieldResponse{}
	return body
}

// hidden says with which fault a property of an object is refused, or nothing.
func (s *Sim) hidden(r ref, property string) types.BaseMethodFault {
	s.faults.mu.Lock()
	rules := s.faults.rules
	s.faults.mu.Unlock()
	if r.Type != "VirtualMachine" && r.Type != "HostSystem" || alwaysShown(property) {
		return nil
	}
	root, _, _ := strings.Cut(property, ".")
	for _, one := range rules {
		if (one.method == everyMethod || one.method == configOnly && root == configOnly) && s.concerns(r)(one) {
			return s.makeFault(one.fault, r, "")
		}
	}
	return nil
}

// alwaysShown needs less than the rest (System.View), so an object that is denied is still there, as
// with vCLS VMs.
func alwaysShown(property string) bool { return property == "name" || property == "parent" }

// conceal takes out of an answer what the client may not read.
func (s *Sim) conceal(objects []types.ObjectContent) {
	if !s.faults.any() {
		return // thousands of objects at the first look of a client
	}
	for i := range objects {
		o := &objects[i]
		kept := []types.DynamicProperty{}
		for _, p := range o.PropSet {
			fault := s.hidden(o.Obj, p.Name)
			if fault == nil {
				kept = append(kept, p)
				continue
			}
			o.MissingSet = append(o.MissingSet, types.MissingProperty{
				Path: p.Name, Fault: types.LocalizedMethodFault{Fault: fault, LocalizedMessage: sentence(fault)},
			})
		}
		o.PropSet = kept
	}
}

// retell makes every watcher look at an object again, because what may be read of it has changed.
func (s *Sim) retell(r ref) {
	s.collectors.mark(r, func(d *dirt) {
		for _, name := range []string{"runtime", "config", "guest", "summary", "vm", "customValue", "datastore", "network", "recentTask", "resourcePool"} {
			d.names[name] = true
		}
	})
}
