package main

import (
	"path"
	"reflect"
	"strings"
	"sync"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// filter is one PropertyFilter: which objects a client follows, and which of their properties.
type filter struct {
	self    ref
	spec    types.PropertyFilterSpec
	members map[ref]bool // nil: not collected yet
	steers  map[ref]bool // objects whose properties lead to others
}

// selection walks the traversal specs of a filter without reading a single property for a client:
// a change of one task must not cost a copy of 5,000 VMs.
type selection struct {
	sim     *Sim
	ctx     *simulator.Context
	filter  *filter
	named   map[string]*types.TraversalSpec
	members map[ref]bool
	order   []ref
	steers  map[ref]bool
}

func (s *Sim) selectMembers(ctx *simulator.Context, f *filter) ([]ref, map[ref]bool, map[ref]bool) {
	sel := &selection{
		sim: s, ctx: ctx, filter: f,
		named: map[string]*types.TraversalSpec{}, members: map[ref]bool{}, steers: map[ref]bool{},
	}
	for _, o := range f.spec.ObjectSet {
		obj := sel.object(o.Obj)
		if o.Skip == nil || !*o.Skip {
			sel.add(o.Obj, obj)
		}
		sel.follow(o.Obj, obj, o.SelectSet)
	}
	return sel.order, sel.members, sel.steers
}

func (sel *selection) add(r ref, obj reflect.Value) {
	if !obj.IsValid() || sel.members[r] {
		return
	}
	for _, p := range sel.filter.spec.PropSet {
		if isKind(r, obj.Type(), p.Type) {
			sel.members[r] = true
			sel.order = append(sel.order, r)
			return
		}
	}
}

func (sel *selection) follow(from ref, obj reflect.Value, specs []types.BaseSelectionSpec) {
	if !obj.IsValid() {
		return
	}
	for _, spec := range specs {
		if ts, ok := spec.(*types.TraversalSpec); ok && ts.Name != "" {
			sel.named[ts.Name] = ts
		}
	}
	for _, spec := range specs {
		ts, ok := spec.(*types.TraversalSpec)
		if !ok {
			if ts = sel.named[spec.GetSelectionSpec().Name]; ts == nil {
				continue
			}
		}
		if !isKind(from, obj.Type(), ts.Type) {
			continue
		}
		sel.steers[from] = true
		for _, next := range sel.refsAt(from, obj, ts.Path) {
			found := sel.object(next)
			if ts.Skip == nil || !*ts.Skip {
				sel.add(next, found)
			}
			sel.follow(next, found, ts.SelectSet)
		}
	}
}

// object finds a managed object: views and the like live in the session, the rest in the registry.
func (sel *selection) object(r ref) reflect.Value {
	var obj mo.Reference
	if sel.ctx.Session != nil {
		obj = sel.ctx.Session.Get(r)
	} else {
		obj = sel.sim.reg.Get(r)
	}
	if obj == nil {
		return reflect.Value{}
	}
	// The simulator's types embed the managed object as their first field.
	v := reflect.ValueOf(obj).Elem()
	for path.Base(v.Type().PkgPath()) != "mo" {
		if v.Kind() != reflect.Struct || v.NumField() == 0 {
			return reflect.Value{}
		}
		v = v.Field(0)
		if v.Kind() == reflect.Pointer {
			v = v.Elem()
		}
	}
	return v
}

func (sel *selection) refsAt(r ref, obj reflect.Value, property string) []ref {
	var found []ref
	sel.sim.reg.WithLock(sel.ctx, r, func() {
		v := obj
		for name := range strings.SplitSeq(property, ".") {
			for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
				if v.IsNil() {
					return
				}
				v = v.Elem()
			}
			if v.Kind() != reflect.Struct || name == "" {
				return
			}
			if v = v.FieldByName(strings.ToUpper(name[:1]) + name[1:]); !v.IsValid() {
				return
			}
		}
		switch val := v.Interface().(type) {
		case ref:
			found = []ref{val}
		case *ref:
			if val != nil {
				found = []ref{*val}
			}
		case []ref:
			found = append(found, val...)
		}
	})
	return found
}

var kinds sync.Map // kindPair -> bool

type kindPair struct {
	have reflect.Type
	want string
}

// isKind says whether an object is of a type or of one derived from it: a VirtualMachine is a ManagedEntity.
func isKind(r ref, have reflect.Type, want string) bool {
	if r.Type == want {
		return true
	}
	pair := kindPair{have, want}
	if known, ok := kinds.Load(pair); ok {
		return known.(bool)
	}
	field, ok := have.FieldByName(want)
	yes := ok && field.Anonymous
	kinds.Store(pair, yes)
	return yes
}

// pathsFor lists what a client wants of an object, and whether it wants everything.
func (f *filter) pathsFor(r ref, have reflect.Type) (paths []string, all bool) {
	for _, p := range f.spec.PropSet {
		if isKind(r, have, p.Type) {
			paths = append(paths, p.PathSet...)
			all = all || p.All != nil && *p.All
		}
	}
	return paths, all
}

// touched reduces the wanted paths to those a change has touched: the same path, one below it
// (runtime.powerState changed, runtime wanted) or one above it (guest changed, guest.hostName wanted).
func touched(paths []string, all bool, names map[string]bool) []string {
	if all {
		paths = nil
		for name := range names {
			paths = append(paths, name)
		}
		return paths
	}
	var hit []string
	for _, p := range paths {
		plain, _, _ := strings.Cut(p, "[")
		for name := range names {
			name, _, _ = strings.Cut(name, "[")
			if name == plain || strings.HasPrefix(name, plain+".") || strings.HasPrefix(plain, name+".") {
				hit = append(hit, p)
				break
			}
		}
	}
	return hit
}

// read fetches properties by the simulator's own collector, which copies them under the object's lock.
func (s *Sim) read(ctx *simulator.Context, props []types.PropertySpec, objects []ref) []types.ObjectContent {
	spec := types.PropertyFilterSpec{PropSet: props, ReportMissingObjectsInResults: types.NewBool(true)}
	for _, r := range objects {
		spec.ObjectSet = append(spec.ObjectSet, types.ObjectSpec{Obj: r})
	}
	stock := new(simulator.PropertyCollector)
	body := stock.RetrievePropertiesEx(ctx, &types.RetrievePropertiesEx{SpecSet: []types.PropertyFilterSpec{spec}})
	if body.Fault() != nil {
		return nil
	}
	found := body.(*methods.RetrievePropertiesExBody).Res.Returnval.Objects
	s.conceal(found)
	return found
}

func asUpdate(o types.ObjectContent, kind types.ObjectUpdateKind, asked []string) types.ObjectUpdate {
	u := types.ObjectUpdate{Obj: o.Obj, Kind: kind, MissingSet: o.MissingSet}
	seen := map[string]bool{}
	for _, p := range o.PropSet {
		seen[p.Name] = true
		u.ChangeSet = append(u.ChangeSet, types.PropertyChange{Op: types.PropertyChangeOpAssign, Name: p.Name, Val: p.Val})
	}
	for _, m := range o.MissingSet {
		seen[m.Path] = true // refused is not the same as having no value
	}
	for _, name := range asked {
		if !seen[name] { // it has no value any more, and the client must hear that too
			u.ChangeSet = append(u.ChangeSet, types.PropertyChange{Op: types.PropertyChangeOpAssign, Name: name})
		}
	}
	return u
}

// collect computes what a filter has to say after the given changes.
func (s *Sim) collect(ctx *simulator.Context, f *filter, dirty map[ref]*dirt) []types.ObjectUpdate {
	var updates []types.ObjectUpdate
	entered := map[ref]bool{}
	if f.members == nil || f.steered(dirty) {
		order, members, steers := s.selectMembers(ctx, f)
		var fresh []ref
		for _, r := range order {
			if !f.members[r] {
				fresh = append(fresh, r)
				entered[r] = true
			}
		}
		for r := range f.members {
			if !members[r] {
				updates = append(updates, types.ObjectUpdate{Obj: r, Kind: types.ObjectUpdateKindLeave})
			}
		}
		f.members, f.steers = members, steers
		if len(fresh) > 0 {
			for _, o := range s.read(ctx, f.spec.PropSet, fresh) {
				updates = append(updates, asUpdate(o, types.ObjectUpdateKindEnter, nil))
			}
		}
	}
	sel := &selection{sim: s, ctx: ctx, filter: f}
	for r, d := range dirty {
		if !f.members[r] || entered[r] || len(d.names) == 0 {
			continue
		}
		obj := sel.object(r)
		if !obj.IsValid() {
			continue
		}
		paths, all := f.pathsFor(r, obj.Type())
		hit := touched(paths, all, d.names)
		if len(hit) == 0 {
			continue
		}
		for _, o := range s.read(ctx, []types.PropertySpec{{Type: r.Type, PathSet: hit}}, []ref{r}) {
			updates = append(updates, asUpdate(o, types.ObjectUpdateKindModify, hit))
		}
	}
	return updates
}

// steered says whether the changes may have changed which objects belong to the filter. New tasks
// are not looked at themselves: they are reached by the recentTask of an entity, which changes too.
func (f *filter) steered(dirty map[ref]*dirt) bool {
	for r, d := range dirty {
		if d.gone && f.members[r] || d.born && r.Type != "Task" || len(d.names) > 0 && f.steers[r] && f.leads(r, d.names) {
			return true
		}
	}
	return false
}

// leads says whether one of the changed properties is one the traversal goes through.
func (f *filter) leads(r ref, names map[string]bool) bool {
	found := false
	var look func([]types.BaseSelectionSpec)
	look = func(specs []types.BaseSelectionSpec) {
		for _, spec := range specs {
			if ts, ok := spec.(*types.TraversalSpec); ok && !found {
				for name := range names {
					found = found || name == ts.Path || strings.HasPrefix(ts.Path, name+".") || strings.HasPrefix(name, ts.Path+".")
				}
				look(ts.SelectSet)
			}
		}
	}
	for _, o := range f.spec.ObjectSet {
		look(o.SelectSet)
	}
	return found
}
