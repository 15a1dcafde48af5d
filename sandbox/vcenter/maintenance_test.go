package main

import (
	"testing"
	"time"

	"github.com/vmware/govmomi/vim25/types"
)

func TestEnterHangsUntilTheLastBlockerIsOff(t *testing.T) {
	w := newWorld(t)
	host := w.hostRef("esx1")
	task := w.enter("esx1", 0, false)
	time.Sleep(30 * time.Millisecond)
	state, _ := w.task(task)
	want(t, "task", state, types.TaskInfoStateRunning)
	want(t, "in maintenance", w.hostNow(host).inMaintenance, false)
	want(t, "entering", w.hostNow(host).entering, true)
	want(t, "recent tasks", len(w.host(host).RecentTask), 1)

	want(t, "power off", w.powerTo("gpu-1", poweredOff), nil)
	want(t, "the task's fault", w.ends(task), nil)
	want(t, "in maintenance", w.hostNow(host).inMaintenance, true)
	want(t, "entering", w.hostNow(host).entering, false)
}

func TestADestroyedVMBlocksNoLonger(t *testing.T) {
	w := newWorld(t)
	task := w.enter("esx1", 0, true) // gpu-off goes to esx2
	w.until("gpu-off elsewhere", func() bool { return w.hostOf("gpu-off") == "esx2" })
	vm := w.vm(w.vmRef("gpu-1"))
	ctx := w.context()
	w.reg.AtomicUpdate(ctx, vm, []types.PropertyChange{{Name: "runtime.powerState", Val: poweredOff}}) // as the stock simulator would
	want(t, "fault", w.ends(task), types.BaseMethodFault(nil))
}

func TestNobodyComesToAHostThatIsLeaving(t *testing.T) {
	w := newWorld(t)
	w.enter("esx1", 0, false)
	if _, ok := w.powerTo("gpu-off", poweredOn).(*types.InvalidState); !ok {
		t.Error("a VM was powered on at an entering host")
	}
	esx5 := w.hostRef("esx5")
	task, _ := w.relocate(w.context(), w.vmRef("lab-1"), &types.VirtualMachineRelocateSpec{Host: &esx5})
	if _, ok := w.ends(task).(*types.InvalidState); !ok {
		t.Error("a VM moved to a host in maintenance")
	}
}

func TestCancelTimeoutAndRepeatedEnter(t *testing.T) {
	w := newWorld(t)
	first, second := w.enter("esx1", 0, false), w.enter("esx1", 1, false)
	want(t, "cancel", w.cancelTask(first), nil)
	if _, ok := w.ends(first).(*types.RequestCanceled); !ok {
		t.Error("no RequestCanceled")
	}
	want(t, "still entering", w.hostNow(w.hostRef("esx1")).entering, true)
	if _, ok := w.ends(second).(*types.Timedout); !ok {
		t.Error("no Timedout")
	}
	want(t, "still entering", w.hostNow(w.hostRef("esx1")).entering, false)
	if _, ok := w.cancelTask(second).(*types.InvalidState); !ok {
		t.Error("an ended task was cancelled")
	}
	third, fourth := w.enter("esx1", 0, false), w.enter("esx1", 0, false)
	w.powerTo("gpu-1", poweredOff)
	want(t, "third", w.ends(third), nil)
	want(t, "fourth", w.ends(fourth), nil)
	if _, ok := w.ends(w.enter("esx1", 0, false)).(*types.InvalidState); !ok {
		t.Error("a host entered maintenance twice")
	}
}

func TestDRSMovesWhatItMay(t *testing.T) {
	w := newWorld(t)
	task := w.enter("esx3", 0, false)
	w.until("web-1 elsewhere", func() bool { return w.hostOf("web-1") == "esx4" })
	time.Sleep(30 * time.Millisecond)
	want(t, "the pinned VM", w.hostOf("web-pinned"), "esx3")
	state, _ := w.task(task)
	want(t, "task", state, types.TaskInfoStateRunning)
	// Both hosts of the cluster leave: nothing can move any more, whatever its devices.
	other := w.enter("esx4", 0, false)
	time.Sleep(30 * time.Millisecond)
	want(t, "web-1", w.hostOf("web-1"), "esx4")
	w.cancelEnter(w.hostRef("esx3"))
	w.until("web-free back", func() bool { return w.hostOf("web-free") == "esx3" && w.hostOf("web-1") == "esx3" })
	want(t, "fault", w.ends(other), nil)
}

func TestManualDRSOnlyRecommends(t *testing.T) {
	w := newWorld(t)
	want(t, "exit", w.exitNow("esx5"), nil)
	task := w.enter("esx6", 1, false)
	if _, ok := w.ends(task).(*types.Timedout); !ok {
		t.Error("manual DRS moved a VM")
	}
}

func (w *world) exitNow(name string) types.BaseMethodFault {
	task, fault := w.exit(w.context(), w.hostRef(name))
	if fault != nil {
		return fault
	}
	return w.ends(task)
}

func TestProgressNeverFalls(t *testing.T) {
	w := newWorld(t)
	host := w.hostRef("esx3")
	w.enter("esx3", 0, false)
	w.until("progress", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.entries[host] != nil && w.entries[host].shown > 2
	})
	w.mu.Lock()
	before := w.entries[host].shown
	w.mu.Unlock()
	// A VM comes to the host by the back door: more is left than before, the bar stays.
	w.mu.Lock()
	w.move(w.vmRef("web-1"), host)
	w.mu.Unlock()
	time.Sleep(30 * time.Millisecond)
	w.mu.Lock()
	defer w.mu.Unlock()
	if after := w.entries[host].shown; after < before {
		t.Errorf("progress fell from %d to %d", before, after)
	}
}

func TestEndedTasksAreForgotten(t *testing.T) {
	w := newWorld(t)
	task := w.enter("esx2", 0, false)
	want(t, "fault", w.ends(task), nil)
	go w.forgetEndedTasks(time.Millisecond, 0)
	w.until("the task gone", func() bool { return w.reg.Get(task) == nil })
	want(t, "recent tasks", len(w.host(w.hostRef("esx2")).RecentTask), 0)
}

func TestGuestsTakeTheirTime(t *testing.T) {
	w := newWorld(t)
	never := -1.0
	w.traits[w.vmRef("web-1")].shutdownSeconds = &never
	for _, name := range []string{"gpu-1", "web-1"} {
		want(t, name, w.shutdownGuest(w.context(), w.vmRef(name)), nil)
	}
	w.until("gpu-1 off", func() bool { vm, _ := w.vmNow(w.vmRef("gpu-1")); return vm.power == poweredOff })
	vm, _ := w.vmNow(w.vmRef("web-1"))
	want(t, "web-1", vm.power, poweredOn)
	// A request from before a reset must not turn the new guest off.
	w.settings.guestShutdownSeconds = 0.05
	w.shutdownGuest(w.context(), w.vmRef("lab-1"))
	w.reset(w.context(), w.vmRef("lab-1"))
	time.Sleep(100 * time.Millisecond)
	vm, _ = w.vmNow(w.vmRef("lab-1"))
	want(t, "lab-1", vm.power, poweredOn)
	want(t, "boots of lab-1", vm.boots, 2)
}

func TestMovesKeepBothSidesInStep(t *testing.T) {
	w := newWorld(t)
	esx2 := w.hostRef("esx2")
	task, _ := w.relocate(w.context(), w.vmRef("gpu-off"), &types.VirtualMachineRelocateSpec{Host: &esx2})
	want(t, "fault", w.ends(task), nil)
	want(t, "VMs on esx1", len(w.host(w.hostRef("esx1")).Vm), 1)
	want(t, "VMs on esx2", len(w.host(esx2).Vm), 1)
	// Into another cluster: with its pool.
	esx4 := w.hostRef("esx4")
	spec := &types.VirtualMachineRelocateSpec{Host: &esx4, Pool: w.rootPool(*w.host(esx4).Parent)}
	task, _ = w.relocate(w.context(), w.vmRef("gpu-off"), spec)
	want(t, "fault", w.ends(task), nil)
	pool := *w.vm(w.vmRef("gpu-off")).ResourcePool
	want(t, "pool", pool, *w.vm(w.vmRef("web-1")).ResourcePool)
}
