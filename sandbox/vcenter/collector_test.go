package main

import (
	"testing"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"
)

// watcher is a client's collector, called as the SOAP server would.
type watcher struct {
	*world
	ctx     *simulator.Context
	calls   *calls
	version string
}

func (w *world) watch(specs ...types.PropertyFilterSpec) *watcher {
	w.t.Helper()
	ctx := w.context()
	one := &watcher{world: w, ctx: ctx, calls: &calls{sim: w.Sim, self: w.collectors.create(ctx)}}
	for _, spec := range specs {
		one.calls.CreateFilter(ctx, &types.CreateFilter{Spec: spec})
	}
	return one
}

// next waits up to the given seconds; nil means that nothing came.
func (o *watcher) next(seconds int32) *types.UpdateSet {
	o.t.Helper()
	body := o.calls.WaitForUpdatesEx(o.ctx, &types.WaitForUpdatesEx{Version: o.version, Options: &types.WaitOptions{MaxWaitSeconds: &seconds}})
	if body.Fault() != nil {
		o.t.Fatalf("%T", body.Fault().VimFault())
	}
	set := body.(*methods.WaitForUpdatesExBody).Res.Returnval
	if set != nil {
		o.version = set.Version
	}
	return set
}

// everything is the filter of a maintenance job: hosts, VMs and the hosts' tasks through a view.
func (w *world) everything() types.PropertyFilterSpec {
	return types.PropertyFilterSpec{
		PropSet: []types.PropertySpec{
			{Type: "HostSystem", PathSet: []string{"name", "runtime", "recentTask"}},
			{Type: "VirtualMachine", PathSet: []string{"runtime.powerState", "runtime.host", "guest.toolsRunningStatus"}},
			{Type: "Task", PathSet: []string{"info.state"}},
		},
		ObjectSet: []types.ObjectSpec{{
			Obj: w.model.ServiceContent.RootFolder, Skip: types.NewBool(true),
			SelectSet: []types.BaseSelectionSpec{
				traverse("dc", "Folder", "childEntity", "dc2hosts", "dc2vms"),
				traverse("dc2hosts", "Datacenter", "hostFolder", "folder"),
				traverse("dc2vms", "Datacenter", "vmFolder", "folder"),
				traverse("folder", "Folder", "childEntity", "folder", "cluster"),
				traverse("cluster", "ComputeResource", "host", "tasks"),
				traverse("tasks", "HostSystem", "recentTask"),
			},
		}},
	}
}

func traverse(name, kind, path string, next ...string) *types.TraversalSpec {
	ts := &types.TraversalSpec{SelectionSpec: types.SelectionSpec{Name: name}, Type: kind, Path: path}
	for _, n := range next {
		ts.SelectSet = append(ts.SelectSet, &types.SelectionSpec{Name: n})
	}
	return ts
}

func kindsOf(set *types.UpdateSet) map[string]int {
	n := map[string]int{}
	if set != nil {
		for _, f := range set.FilterSet {
			for _, o := range f.ObjectSet {
				n[string(o.Kind)+" "+o.Obj.Type]++
			}
		}
	}
	return n
}

func TestAWatcherGetsEverythingOnceAndThenChanges(t *testing.T) {
	w := newWorld(t)
	o := w.watch(w.everything())
	first := kindsOf(o.next(0))
	want(t, "hosts", first["enter HostSystem"], 6)
	want(t, "VMs", first["enter VirtualMachine"], 6)
	if set := o.next(0); set != nil {
		t.Fatalf("nothing changed, yet: %v", kindsOf(set))
	}
	task := w.enter("esx1", 0, false)
	set := o.next(2)
	want(t, "the new task", kindsOf(set)["enter Task"], 1)
	w.powerTo("gpu-1", poweredOff)
	w.ends(task)
	states := map[string]any{}
	w.until("the end at the watcher", func() bool {
		if set := o.next(1); set != nil {
			for _, u := range set.FilterSet[0].ObjectSet {
				for _, c := range u.ChangeSet {
					states[u.Obj.Type+" "+c.Name] = c.Val
				}
			}
		}
		return states["Task info.state"] == types.TaskInfoStateSuccess
	})
	want(t, "power", states["VirtualMachine runtime.powerState"], any(poweredOff))
	want(t, "tools, below a changed property", states["VirtualMachine guest.toolsRunningStatus"], any("guestToolsNotRunning"))
	runtime, ok := states["HostSystem runtime"].(types.HostRuntimeInfo)
	want(t, "runtime, above a changed property", ok && runtime.InMaintenanceMode, true)
}

func TestALostAnswerIsSentAgainAndAnOldVersionIsRefused(t *testing.T) {
	w := newWorld(t)
	o := w.watch(w.everything())
	o.next(0)
	before := o.version
	w.powerTo("gpu-1", poweredOff)
	lost := kindsOf(o.next(1))
	o.version = before
	again := kindsOf(o.next(1))
	want(t, "sent again", again["modify VirtualMachine"], lost["modify VirtualMachine"])
	body := o.calls.WaitForUpdatesEx(o.ctx, &types.WaitForUpdatesEx{Version: "77"})
	if _, ok := body.Fault().VimFault().(types.InvalidCollectorVersion); !ok {
		if _, ok := body.Fault().VimFault().(*types.InvalidCollectorVersion); !ok {
			t.Errorf("got %T", body.Fault().VimFault())
		}
	}
	o.version = ""
	want(t, "from the start", kindsOf(o.next(0))["enter VirtualMachine"], 6)
}

func TestAnswersComeInPages(t *testing.T) {
	w := newWorld(t)
	o := w.watch(w.everything())
	total, pages := 0, 0
	for {
		body := o.calls.WaitForUpdatesEx(o.ctx, &types.WaitForUpdatesEx{Version: o.version, Options: &types.WaitOptions{MaxObjectUpdates: 5}})
		set := body.(*methods.WaitForUpdatesExBody).Res.Returnval
		o.version = set.Version
		pages++
		for _, n := range kindsOf(set) {
			total += n
		}
		if set.Truncated == nil {
			break
		}
	}
	want(t, "objects", total, 12)
	want(t, "pages", pages, 3)
}

func TestADestroyedVMLeaves(t *testing.T) {
	w := newWorld(t)
	o := w.watch(w.everything())
	o.next(0)
	vm := w.vm(w.vmRef("gpu-off"))
	vm.DestroyTask(w.context(), &types.Destroy_Task{This: vm.Self})
	w.until("leave", func() bool { return kindsOf(o.next(1))["leave VirtualMachine"] == 1 })
	w.until("the end of the task", func() bool {
		recent := w.reg.Get(*w.model.ServiceContent.TaskManager).(*simulator.TaskManager)
		recent.Lock()
		defer recent.Unlock()
		state, _ := w.task(recent.RecentTask[len(recent.RecentTask)-1])
		return state == types.TaskInfoStateSuccess
	})
	for _, vm := range w.view().VMs {
		if vm.Name == "gpu-off" {
			t.Error("a destroyed VM is still in the state")
		}
	}
}

func TestAWaitEndsWhenAskedAndWhenItsCollectorGoes(t *testing.T) {
	w := newWorld(t)
	for name, end := range map[string]func(o *watcher){
		"cancel":  func(o *watcher) { o.calls.CancelWaitForUpdates(o.ctx, &types.CancelWaitForUpdates{}) },
		"destroy": func(o *watcher) { o.calls.DestroyPropertyCollector(o.ctx, &types.DestroyPropertyCollector{}) },
		"logout":  func(o *watcher) { w.collectors.logout(o.ctx.Session.Key) },
	} {
		o := w.watch(w.everything())
		o.next(0)
		ended := make(chan bool)
		go func() {
			body := o.calls.WaitForUpdatesEx(o.ctx, &types.WaitForUpdatesEx{Version: o.version})
			ended <- body.Fault() != nil
		}()
		time.Sleep(20 * time.Millisecond)
		end(o)
		select {
		case faulted := <-ended:
			want(t, name, faulted, true)
		case <-time.After(3 * time.Second):
			t.Errorf("%s: the wait went on", name)
		}
	}
}

func TestAKilledClientIsForgotten(t *testing.T) {
	w := newWorld(t)
	o := w.watch(w.everything())
	o.next(0)
	c := w.collectors.get(o.ctx, o.calls.self)
	c.mu.Lock()
	c.used = time.Now().Add(-idleLimit - time.Second)
	c.mu.Unlock()
	w.powerTo("gpu-1", poweredOff)
	if w.collectors.get(o.ctx, o.calls.self) != nil {
		t.Error("it still collects changes")
	}
}

func TestAFilterAddedLaterIsTakenIn(t *testing.T) {
	w := newWorld(t)
	vm := w.vmRef("gpu-1")
	spec := types.PropertyFilterSpec{
		PropSet:   []types.PropertySpec{{Type: "ManagedEntity", PathSet: []string{"name"}}},
		ObjectSet: []types.ObjectSpec{{Obj: vm}},
	}
	o := w.watch(w.everything())
	o.next(0)
	res := o.calls.CreateFilter(o.ctx, &types.CreateFilter{Spec: spec}).(*methods.CreateFilterBody).Res
	want(t, "the new filter's object", kindsOf(o.next(1))["enter VirtualMachine"], 1)
	gone := &calls{sim: w.Sim, self: res.Returnval}
	if gone.DestroyPropertyFilter(o.ctx, &types.DestroyPropertyFilter{}).Fault() != nil {
		t.Error("the filter could not be destroyed")
	}
	if gone.DestroyPropertyFilter(o.ctx, &types.DestroyPropertyFilter{}).Fault() == nil {
		t.Error("the filter was destroyed twice")
	}
}

func TestASilenceHoldsChangesBackAndNotReads(t *testing.T) {
	w := newWorld(t)
	ctx := w.client()
	self := w.collectors.create(ctx)
	c := w.collectors.get(ctx, self)
	w.collectors.addFilter(ctx, c, types.PropertyFilterSpec{
		ObjectSet: []types.ObjectSpec{{Obj: w.vmRef("gpu-off")}},
		PropSet:   []types.PropertySpec{{Type: "VirtualMachine", PathSet: []string{"runtime.powerState"}}},
	})
	next := func(version string) *types.UpdateSet {
		set, _ := w.collectors.wait(ctx, c, version, types.NewInt32(0), 0)
		return set
	}
	first := next("")
	status, _ := w.ask("POST", "/silence", "")
	want(t, "asked for", status, 202)
	status, _ = w.ask("POST", "/silence", "")
	want(t, "twice", status, 409)
	w.powerTo("gpu-off", poweredOn)
	want(t, "nothing is told", next(first.Version) == nil, true)
	now, _ := w.vmNow(w.vmRef("gpu-off"))
	want(t, "though it is so", now.power, poweredOn)
	w.ask("DELETE", "/silence", "")
	want(t, "told in the end", next(first.Version) != nil, true)
}

func TestToolsThatAreStartingTakeAShutdown(t *testing.T) {
	w := newWorld(t)
	vm := w.vmRef("web-1")
	for state, fault := range map[string]string{"executingScripts": "", "running": "", "notRunning": "ToolsUnavailable"} {
		w.ask("POST", "/vms/web-1/tools", `{"state": "`+state+`"}`)
		got := ""
		if refused := w.needGuest(vm); refused != nil {
			got = faultName(refused)
		}
		want(t, state, got, fault)
	}
	status, _ := w.ask("POST", "/vms/web-1/tools", `{"state": "asleep"}`)
	want(t, "no state", status, 400)
}
