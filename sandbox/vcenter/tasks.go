package main

import (
	"fmt"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// running is a task of ours that has not ended. The stock simulator.Task.Run holds the lock of its
// entity until the end, so no client could read a host while its Enter task hangs; ours holds nothing.
type running struct {
	task *simulator.Task
	// cancel is called with mu held; nil means the task cannot be cancelled.
	cancel func()
}

type endedTask struct {
	task *simulator.Task
	at   time.Time
}

// begin puts a running task where clients look for it; mu is held.
func (s *Sim) begin(ctx *simulator.Context, entity mo.Entity, method, description string, cancel func()) *running {
	s.taskNo++
	task := &simulator.Task{}
	// The simulator numbers its own tasks from the counter of all objects; these cannot collide.
	task.Self = ref{Type: "Task", Value: fmt.Sprintf("task-1%06d", s.taskNo)}
	target := entity.Reference()
	now := time.Now()
	task.Info = types.TaskInfo{
		Key:           task.Self.Value,
		Task:          task.Self,
		Name:          method,
		DescriptionId: description,
		Entity:        &target,
		EntityName:    entity.Entity().Name,
		State:         types.TaskInfoStateRunning,
		Cancelable:    cancel != nil,
		Reason:        &types.TaskReasonUser{UserName: ctx.Session.UserName},
		QueueTime:     now,
		StartTime:     &now,
		EventChainId:  int32(s.taskNo),
	}
	// Put writes the entity's recentTask without a lock of its own.
	s.reg.WithLock(ctx, target, func() { s.reg.Put(task) })
	r := &running{task: task, cancel: cancel}
	s.running[task.Self] = r
	return r
}

// end finishes a task with a fault, or successfully with nil; mu is held. It says whether the task
// was still running, so that a timeout and a cancel at the same time end it once.
func (s *Sim) end(r *running, fault types.BaseMethodFault) bool {
	if s.running[r.task.Self] != r {
		return false
	}
	delete(s.running, r.task.Self)
	changes := []types.PropertyChange{change("info.completeTime", time.Now())}
	if fault == nil {
		changes = append(changes, change("info.state", types.TaskInfoStateSuccess), change("info.progress", int32(100)))
	} else {
		if _, cancelled := fault.(*types.RequestCanceled); cancelled {
			changes = append(changes, change("info.cancelled", true))
		}
		changes = append(changes,
			change("info.error", &types.LocalizedMethodFault{Fault: fault, LocalizedMessage: sentence(fault)}),
			change("info.state", types.TaskInfoStateError))
	}
	s.update(s.context(), r.task, changes...)
	s.ended = append(s.ended, endedTask{r.task, time.Now()})
	return true
}

func (s *Sim) progress(r *running, percent int32) {
	s.update(s.context(), r.task, change("info.progress", percent))
}

// cancelTask is what CancelTask does to a task of ours; it is the caller's to know that it is one.
func (s *Sim) cancelTask(task ref) types.BaseMethodFault {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.running[task]
	switch {
	case r == nil:
		return &types.InvalidState{}
	case r.cancel == nil:
		return &types.NotSupported{}
	}
	r.cancel()
	return nil
}

// forgetEndedTasks keeps recentTask what its name says: vCenter lists a task for about ten minutes
// after its end. Without this a benchmark of a day would carry every task it ever made.
func (s *Sim) forgetEndedTasks(every, after time.Duration) {
	for range time.Tick(every) {
		s.mu.Lock()
		n := 0
		for n < len(s.ended) && time.Since(s.ended[n].at) > after {
			n++
		}
		old := s.ended[:n]
		s.ended = s.ended[n:]
		for _, e := range old {
			s.forget(e.task)
		}
		s.mu.Unlock()
	}
}

func (s *Sim) forget(task *simulator.Task) {
	ctx := s.context()
	if entity, ok := s.reg.Get(*task.Info.Entity).(mo.Entity); ok {
		s.reg.WithLock(ctx, entity, func() {
			ctx.Update(entity, []types.PropertyChange{change("recentTask", without(entity.Entity().RecentTask, task.Self))})
		})
	}
	if m, ok := s.reg.Get(*s.model.ServiceContent.TaskManager).(*simulator.TaskManager); ok {
		m.Lock()
		ctx.Update(m, []types.PropertyChange{change("recentTask", without(m.RecentTask, task.Self))})
		m.Unlock()
	}
	s.reg.Remove(ctx, task.Self)
}

// without returns a new list: readers may still hold the old one.
func without(list []ref, gone ref) []ref {
	kept := make([]ref, 0, len(list))
	for _, r := range list {
		if r != gone {
			kept = append(kept, r)
		}
	}
	return kept
}

func with(list []ref, added ref) []ref {
	return append(without(list, added), added)
}

// sentence is the localized message vCenter shows for a fault.
func sentence(fault types.BaseMethodFault) string {
	switch f := fault.(type) {
	case *types.RequestCanceled:
		return "The task was canceled by a user."
	case *types.Timedout:
		return "Operation timed out."
	case *types.InvalidPowerState:
		return fmt.Sprintf("The attempted operation cannot be performed in the current state (%s).", f.ExistingState)
	case *types.InvalidState:
		return "The operation is not allowed in the current state."
	case *types.HostNotConnected:
		return "Unable to communicate with the remote host, since it is disconnected."
	case *types.ToolsUnavailable:
		return "Cannot complete operation because VMware Tools is not running in this virtual machine."
	case *types.InsufficientResourcesFault, *types.InsufficientGraphicsResourcesFault:
		return "Insufficient resources. " + messages(fault)
	case *types.GenericVmConfigFault:
		return f.Reason
	case *types.InsufficientHostCpuCapacityFault:
		return fmt.Sprintf("The host does not have sufficient CPU resources: %d MHz asked for, %d MHz left.", f.Requested, f.Unreserved)
	case *types.InsufficientHostMemoryCapacityFault:
		return fmt.Sprintf("The host does not have sufficient memory resources: %d MB asked for, %d MB left.", f.Requested>>20, f.Unreserved>>20)
	case *types.NoCompatibleHost:
		return "No host is compatible with the virtual machine."
	case *types.CannotAccessVmDevice:
		return fmt.Sprintf("Device '%s' uses backing '%s', which is not accessible.", f.Device, f.Backing)
	case *types.NoPermission:
		return fmt.Sprintf("Permission to perform this operation was denied: %s.", f.PrivilegeId)
	case *types.NotAuthenticated:
		return "The session is not authenticated."
	case *types.MigrationFeatureNotSupported:
		return "The virtual machine has a device that cannot be migrated while it is powered on."
	default:
		return fmt.Sprintf("%T", fault)[len("*types."):]
	}
}

func faultName(fault types.BaseMethodFault) string {
	return fmt.Sprintf("%T", fault)[len("*types."):]
}
