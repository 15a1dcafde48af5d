package main

import (
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

const (
	everyMethod = "*"
	// configOnly hides what is configured of a VM and leaves how it runs: what a login without the right
	// to its configuration sees, and anybody of a VM whose files vCenter cannot read.
	configOnly = "config"
)

// taskMethods are the calls whose fault can be in the task instead of in the answer.
var taskMethods = []string{
	"EnterMaintenanceMode_Task", "ExitMaintenanceMode_Task", "PowerOffVM_Task", "PowerOnVM_Task", "RelocateVM_Task", "ResetVM_Task",
}

// rule is one fault that somebody wants to see.
type rule struct {
	id     int
	method string
	vm     ref // zero: any
	host   ref // zero: any
	fault  string
	left   int // negative: for ever
	asTask bool
	delay  time.Duration
	hits   int
}

// faults are the injected ones. They have a lock of their own: calls ask before mu is taken.
type faults struct {
	mu      sync.Mutex
	no      int
	rules   []*rule
	lacking map[string]bool // privileges the login does not have
}

// next finds the rule for a call and counts it.
func (f *faults) next(method string, asTask bool, concerns func(*rule) bool) *rule {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, r := range f.rules {
		if r.asTask != asTask || r.method != method && r.method != everyMethod || !concerns(r) {
			continue
		}
		r.hits++
		if r.left > 0 {
			if r.left--; r.left == 0 {
				f.rules = slices.Delete(slices.Clone(f.rules), i, i+1)
			}
		}
		return r
	}
	return nil
}

// concerns says whether a rule is about an object: the VM or host it names, or a VM on that host.
func (s *Sim) concerns(this ref) func(*rule) bool {
	return func(r *rule) bool {
		if r.vm != (ref{}) && r.vm != this {
			return false
		}
		if r.host == (ref{}) || r.host == this {
			return true
		}
		vm, there := s.vmNow(this)
		return there && vm.host == r.host
	}
}

// internal says whether the control endpoint or the simulator itself acts: nothing is injected there,
// so that a test can always put things right by it.
func (s *Sim) internal(ctx *simulator.Context) bool {
	return ctx.Session == nil || ctx.Session.Key == internalKey
}

// refused is the injected fault of a call itself, after its delay.
func (s *Sim) refused(ctx *simulator.Context, method *simulator.Method) types.BaseMethodFault {
	if s.internal(ctx) {
		return nil
	}
	if fault := s.unprivileged(method); fault != nil {
		return fault
	}
	r := s.faults.next(method.Name, false, s.concerns(method.This))
	if r == nil {
		return nil
	}
	time.Sleep(r.delay)
	return s.makeFault(r.fault, method.This, method.Name)
}

// failsAsTold ends a task with an injected fault, at once or after the delay; mu is held.
func (s *Sim) failsAsTold(ctx *simulator.Context, t *running) bool {
	if s.internal(ctx) {
		return false
	}
	entity := *t.task.Info.Entity
	r := s.faults.next(t.task.Info.Name, true, s.concerns(entity))
	if r == nil {
		return false
	}
	fault := s.makeFault(r.fault, entity, r.method)
	if r.delay == 0 {
		s.failTask(t, entity, fault)
		return true
	}
	time.AfterFunc(r.delay, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.failTask(t, entity, fault)
	})
	return true
}

// failTask ends a task; an Enter task is also one that its host waits for.
func (s *Sim) failTask(t *running, entity ref, fault types.BaseMethodFault) {
	if e := s.entries[entity]; e != nil {
		for _, one := range e.tasks {
			if one.running == t {
				s.leave(entity, one, fault)
				return
			}
		}
	}
	s.end(t, fault)
}

// faultType finds a fault by the name it has in the API.
func faultType(name string) (reflect.Type, bool) {
	t, ok := types.TypeFunc()(name)
	if !ok || t.Kind() != reflect.Struct {
		return nil, false
	}
	_, is := reflect.New(t).Interface().(types.BaseMethodFault)
	return t, is
}

// makeFault fills every mandatory field: clients refuse a whole answer for one empty enum.
func (s *Sim) makeFault(name string, about ref, method string) types.BaseMethodFault {
	t, ok := faultType(name)
	if !ok {
		return &types.NotSupported{} // the control endpoint has seen to it that this cannot be
	}
	v := reflect.New(t)
	fillMandatory(v.Elem(), func(field string) ref { return s.related(field, about) })
	fault := v.Interface().(types.BaseMethodFault)
	fault.GetMethodFault().FaultMessage = message("Injected by the sandbox.")
	switch f := fault.(type) {
	case *types.NoPermission:
		f.Object, f.PrivilegeId = &about, privilegeFor(method)
	case *types.NotAuthenticated:
		f.Object, f.PrivilegeId = &about, "System.View"
	case *types.InvalidPowerState:
		f.RequestedState, f.ExistingState = poweredOn, poweredOn
		if method == "PowerOffVM_Task" {
			f.RequestedState, f.ExistingState = poweredOff, poweredOff
		}
	}
	return fault
}

// related guesses what a field of a fault points at: clients check the type of the object.
func (s *Sim) related(field string, about ref) ref {
	vm, isVM := s.vmNow(about)
	switch {
	case strings.HasSuffix(field, "Task"):
		return ref{Type: "Task", Value: "task-1000000"}
	case strings.HasSuffix(field, "Host") && isVM:
		return vm.host
	case strings.HasSuffix(field, "Datastore"):
		if found := s.reg.AllReference("Datastore"); len(found) > 0 {
			return found[0].Reference()
		}
	}
	return about
}

func fillMandatory(v reflect.Value, related func(field string) ref) {
	for i := range v.NumField() {
		field, value := v.Type().Field(i), v.Field(i)
		if strings.Contains(field.Tag.Get("xml"), "omitempty") {
			continue
		}
		switch value.Kind() {
		case reflect.Struct:
			switch value.Interface().(type) {
			case ref:
				value.Set(reflect.ValueOf(related(field.Name)))
			case time.Time:
				value.Set(reflect.ValueOf(time.Now()))
			case types.LocalizedMethodFault:
				value.Set(reflect.ValueOf(types.LocalizedMethodFault{Fault: &types.NotSupported{}}))
			default:
				fillMandatory(value, related)
			}
		case reflect.String:
			value.SetString(mandatoryText(value))
		case reflect.Interface:
			if cause := reflect.ValueOf(&types.NotSupported{}); cause.Type().Implements(value.Type()) {
				value.Set(cause)
			}
		}
	}
}

// mandatoryText is the first value of an enum, or a word.
func mandatoryText(v reflect.Value) string {
	if values := v.MethodByName("Strings"); values.IsValid() {
		if list, ok := values.Call(nil)[0].Interface().([]string); ok && len(list) > 0 {
			return list[0]
		}
	}
	return "sandbox"
}

// isMethod says whether the API has a call of this name.
func isMethod(name string) bool {
	t, ok := types.TypeFunc()(name)
	if !ok || t.Kind() != reflect.Struct {
		return false
	}
	_, has := t.FieldByName("This")
	return has
}
