package main

import (
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

const (
	apiVersion = "8.0.3.0" // below 8.0 the simulator's clients drop dynamic passthrough backings
	apiBuild   = "24322831"
)

type ref = types.ManagedObjectReference

// Sim is a vCenter. mu allows one change of the world at a time, so that "no VM is powered on at a host
// that is entering maintenance" is decided on one picture. Order of locks: mu, then the lock of one
// simulator object, then the feed's; never the other way round.
type Sim struct {
	model *simulator.Model
	reg   *simulator.Registry
	home  string // datastore directories live here; removed at the end
	user  string
	feed  *Feed

	collectors *collectors

	mu       sync.Mutex
	traits   map[ref]*traits
	settings settings
	entries  map[ref]*entry   // hosts that are entering maintenance
	running  map[ref]*running // tasks of ours that have not ended
	ended    []endedTask
	taskNo   int

	devices  map[ref][]Device // by host, from the inventory
	capacity map[ref]budget   // by host
	holds    map[ref][]hold   // by VM
	crashes  map[ref]*crashed // by host

	faults   faults
	sessions sessions
	api      *api // nil until it serves
}

// traits are what a VM has beyond its vSphere properties.
type traits struct {
	movable         *bool // nil: decided from its devices
	tools           string
	hostName, ip    string
	shutdownSeconds *float64 // nil: the global setting
	migrateSeconds  *float64 // nil: the global setting
	drsFirst        bool     // DRS wins against the next PowerOn of a client
}

type settings struct {
	guestShutdownSeconds float64 // negative: never
	migrateSeconds       float64
}

// NewSim makes the objects of the inventory; nothing serves yet.
func NewSim(inv *Inventory, user string) (*Sim, error) {
	model := simulator.VPX()
	model.Datacenter, model.Cluster, model.Host, model.Machine, model.Portgroup, model.Datastore = 0, 0, 0, 0, 0, 0
	about := &model.ServiceContent.About
	about.Version, about.ApiVersion, about.Build = "8.0.3", apiVersion, apiBuild
	about.FullName = "VMware vCenter Server 8.0.3 build-" + apiBuild + " (Hostler sandbox, a simulator)"
	about.InstanceUuid = uuid.NewString()
	if err := model.Create(); err != nil {
		return nil, fmt.Errorf("the simulator could not be made: %w", err)
	}
	s := &Sim{
		model:    model,
		reg:      model.Service.Context.Map,
		user:     user,
		traits:   map[ref]*traits{},
		settings: settings{guestShutdownSeconds: 3, migrateSeconds: 0.5},
		entries:  map[ref]*entry{},
		running:  map[ref]*running{},
		devices:  map[ref][]Device{},
		capacity: map[ref]budget{},
		holds:    map[ref][]hold{},
		crashes:  map[ref]*crashed{},
	}
	for _, option := range s.reg.OptionManager().Setting {
		if o := option.GetOptionValue(); o.Key == "vcsim.home" {
			s.home = filepath.Join(o.Value.(string), "datastores")
		}
	}
	if err := s.populate(inv); err != nil {
		model.Remove()
		return nil, err
	}
	s.feed = newFeed(s.reg)
	s.collectors = newCollectors(s)
	s.settleDevices()
	s.reg.AddHandler(s.feed)
	s.reg.AddHandler(s.collectors)
	s.reg.Handler = s.override
	go s.tellEntries()
	go s.forgetEndedTasks(time.Minute, 10*time.Minute)
	return s, nil
}

// context is fresh for every operation: the simulator lets two users of one context share a lock.
func (s *Sim) context() *simulator.Context {
	ctx := *s.model.Service.Context
	ctx.Session = &simulator.Session{
		UserSession: types.UserSession{Key: internalKey, UserName: s.user},
		Registry:    simulator.NewRegistry(),
		Map:         s.reg,
	}
	return &ctx
}

// update changes an object so that every watcher sees it.
func (s *Sim) update(ctx *simulator.Context, obj mo.Reference, changes ...types.PropertyChange) {
	s.reg.AtomicUpdate(ctx, obj, changes)
}

func (s *Sim) vm(r ref) *simulator.VirtualMachine {
	vm, _ := s.reg.Get(r).(*simulator.VirtualMachine)
	return vm
}

func (s *Sim) host(r ref) *simulator.HostSystem {
	host, _ := s.reg.Get(r).(*simulator.HostSystem)
	return host
}

// traitsOf gives a VM that a client created the traits of a plain one; mu is held.
func (s *Sim) traitsOf(r ref) *traits {
	t := s.traits[r]
	if t == nil {
		t = &traits{tools: toolsNotInstalled}
		s.traits[r] = t
	}
	return t
}

// Close removes the files of the datastores.
func (s *Sim) Close() {
	s.model.Remove()
}

func seconds(n float64) time.Duration {
	return time.Duration(n * float64(time.Second))
}

func change(name string, val any) types.PropertyChange {
	return types.PropertyChange{Name: name, Val: val}
}
