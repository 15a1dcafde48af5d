package main

import (
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// The stock PropertyCollector reads every object of a filter again for every single change, and its
// list of changes grows without end when a client is killed. With 5,000 VMs one Enter task would take
// seconds to reach a client. This one notes which properties of which objects changed and reads those.

const (
	pageSize    = 100              // vCenter's own limit of object updates per answer
	idleLimit   = 30 * time.Minute // vCenter's own limit of an idle session
	settleDelay = 5 * time.Millisecond
)

type collectors struct {
	sim    *Sim
	mu     sync.Mutex
	all    map[collectorKey]*collector
	silent atomic.Bool // changes are noted and not told
}

// speak ends a silence: what changed meanwhile is told now.
func (cs *collectors) speak() {
	cs.silent.Store(false)
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, c := range cs.all {
		select {
		case c.wake <- struct{}{}:
		default:
		}
	}
}

type collectorKey struct {
	session string
	self    ref
}

// collector is one PropertyCollector of one session.
type collector struct {
	work    sync.Mutex // one answer is computed at a time
	filters []*filter
	version int
	last    *types.UpdateSet // sent for the current version, in case the answer got lost
	pending []types.PropertyFilterUpdate

	// mu guards what the registry's callbacks touch. They hold an object's lock, and computing an
	// answer takes object locks: so mu is never held while an object is read.
	mu     sync.Mutex
	dirty  map[ref]*dirt
	used   time.Time
	wake   chan struct{}
	cancel chan struct{}
	closed chan struct{}
	ended  types.BaseMethodFault // why it is closed; set before
}

type dirt struct {
	names      map[string]bool
	born, gone bool
}

func newCollectors(s *Sim) *collectors {
	return &collectors{sim: s, all: map[collectorKey]*collector{}}
}

// Reference makes the collectors a handler of the registry.
func (cs *collectors) Reference() ref { return ref{Type: "HostlerCollectors", Value: "collectors"} }

func (cs *collectors) PutObject(_ *simulator.Context, o mo.Reference) {
	r := o.Reference()
	cs.mark(r, func(d *dirt) { d.born, d.gone = true, false })
}

func (cs *collectors) UpdateObject(_ *simulator.Context, o mo.Reference, changes []types.PropertyChange) {
	cs.mark(o.Reference(), func(d *dirt) {
		for i := range changes {
			d.names[changes[i].Name] = true
		}
	})
}

func (cs *collectors) RemoveObject(_ *simulator.Context, r ref) {
	cs.mark(r, func(d *dirt) { d.gone = true })
}

func (cs *collectors) mark(r ref, note func(*dirt)) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for key, c := range cs.all {
		c.mu.Lock()
		if time.Since(c.used) > idleLimit { // its client was killed: it must not collect changes for ever
			delete(cs.all, key)
			close(c.closed)
			c.mu.Unlock()
			continue
		}
		d := c.dirty[r]
		if d == nil {
			d = &dirt{names: map[string]bool{}}
			c.dirty[r] = d
		}
		note(d)
		c.mu.Unlock()
		select {
		case c.wake <- struct{}{}:
		default:
		}
	}
}

// get finds the collector of a session; the session's default one is made when first asked for.
func (cs *collectors) get(ctx *simulator.Context, self ref) *collector {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	key := collectorKey{ctx.Session.Key, self}
	c := cs.all[key]
	if c == nil && self == cs.sim.model.ServiceContent.PropertyCollector {
		c = cs.add(key)
	}
	return c
}

func (cs *collectors) add(key collectorKey) *collector {
	c := &collector{
		dirty:  map[ref]*dirt{},
		used:   time.Now(),
		wake:   make(chan struct{}, 1),
		cancel: make(chan struct{}, 1),
		closed: make(chan struct{}),
	}
	cs.all[key] = c
	return c
}

func (cs *collectors) create(ctx *simulator.Context) ref {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	self := ref{Type: "PropertyCollector", Value: "session[" + ctx.Session.Key + "]" + uuid.NewString()}
	cs.add(collectorKey{ctx.Session.Key, self})
	return self
}

func (cs *collectors) destroy(ctx *simulator.Context, self ref) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	key := collectorKey{ctx.Session.Key, self}
	if c := cs.all[key]; c != nil {
		delete(cs.all, key)
		close(c.closed)
	}
}

// logout ends every collector of a session, also those a thread of the client still waits on.
func (cs *collectors) logout(session string) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for key, c := range cs.all {
		if key.session == session {
			delete(cs.all, key)
			close(c.closed)
		}
	}
}

// expire ends the collectors of every session, as the end of a session does.
func (cs *collectors) expire() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for key, c := range cs.all {
		self := key.self
		c.ended = &types.NotAuthenticated{NoPermission: types.NoPermission{Object: &self, PrivilegeId: "System.View"}}
		delete(cs.all, key)
		close(c.closed)
	}
}

func (cs *collectors) addFilter(ctx *simulator.Context, c *collector, spec types.PropertyFilterSpec) ref {
	f := &filter{self: ref{Type: "PropertyFilter", Value: "session[" + ctx.Session.Key + "]" + uuid.NewString()}, spec: spec}
	c.mu.Lock()
	c.filters = append(c.filters[:len(c.filters):len(c.filters)], f)
	c.used = time.Now()
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}: // a wait that is under way takes the new filter in
	default:
	}
	return f.self
}

func (cs *collectors) removeFilter(session string, self ref) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for key, c := range cs.all {
		if key.session != session {
			continue
		}
		c.mu.Lock()
		for i, f := range c.filters {
			if f.self == self {
				c.filters = append(c.filters[:i:i], c.filters[i+1:]...)
				c.mu.Unlock()
				return true
			}
		}
		c.mu.Unlock()
	}
	return false
}

// wait is WaitForUpdatesEx. A nil set without a fault means that the time was up.
func (cs *collectors) wait(ctx *simulator.Context, c *collector, version string, maxWait *int32, maxObjects int32) (*types.UpdateSet, types.BaseMethodFault) {
	c.work.Lock()
	defer c.work.Unlock()
	c.touch()
	select {
	case <-c.cancel: // meant for a wait that has already ended
	default:
	}
	switch {
	case version == "":
		c.restart()
	case version == strconv.Itoa(c.version):
	case c.last != nil && version == strconv.Itoa(c.version-1):
		return c.last, nil // the client did not get the last answer
	default:
		return nil, &types.InvalidCollectorVersion{}
	}
	limit := idleLimit
	if maxWait != nil && *maxWait >= 0 {
		limit = time.Duration(*maxWait) * time.Second
	}
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	for {
		if set := c.next(cs.sim, ctx, maxObjects); set != nil {
			return set, nil
		}
		if limit == 0 {
			return nil, nil
		}
		select {
		case <-c.wake:
			time.Sleep(settleDelay) // one operation makes several changes: send them together
		case <-c.cancel:
			return nil, &types.RequestCanceled{}
		case <-c.closed:
			if c.ended != nil {
				return nil, c.ended
			}
			return nil, &types.RequestCanceled{}
		case <-deadline.C:
			c.touch()
			return nil, nil
		}
	}
}

func (c *collector) touch() {
	c.mu.Lock()
	c.used = time.Now()
	c.mu.Unlock()
}

// restart begins anew, as version "" asks for.
func (c *collector) restart() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending, c.last = nil, nil
	for _, f := range c.filters {
		f.members = nil
	}
}

// next computes one answer, or nil if there is nothing to say.
func (c *collector) next(s *Sim, ctx *simulator.Context, maxObjects int32) *types.UpdateSet {
	if len(c.pending) == 0 {
		c.mu.Lock()
		dirty, filters := c.dirty, c.filters
		if s.collectors.silent.Load() {
			dirty = map[ref]*dirt{} // a new filter is answered all the same
		} else {
			c.dirty = map[ref]*dirt{} // what changes from here on is seen by the next look
		}
		c.used = time.Now()
		c.mu.Unlock()
		for _, f := range filters {
			if updates := s.collect(ctx, f, dirty); len(updates) > 0 {
				c.pending = append(c.pending, types.PropertyFilterUpdate{Filter: f.self, ObjectSet: updates})
			}
		}
		if len(c.pending) == 0 {
			return nil
		}
	}
	room := pageSize
	if maxObjects > 0 && maxObjects < pageSize {
		room = int(maxObjects)
	}
	c.version++
	set := &types.UpdateSet{Version: strconv.Itoa(c.version)}
	for room > 0 && len(c.pending) > 0 {
		first := c.pending[0]
		n := min(room, len(first.ObjectSet))
		set.FilterSet = append(set.FilterSet, types.PropertyFilterUpdate{Filter: first.Filter, ObjectSet: first.ObjectSet[:n]})
		room -= n
		if n == len(first.ObjectSet) {
			c.pending = c.pending[1:]
		} else {
			c.pending[0].ObjectSet = first.ObjectSet[n:]
		}
	}
	if len(c.pending) > 0 {
		set.Truncated = types.NewBool(true)
	}
	c.last = set
	return set
}
