package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/simulator/esx"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// populate turns the inventory into the simulator's objects. It runs before anything serves, so it
// writes fields directly; after the start every change goes through an update that watchers see.
func (s *Sim) populate(inv *Inventory) error {
	root := s.reg.Get(s.model.ServiceContent.RootFolder).(*simulator.Folder)
	for i := range inv.Datacenters {
		if err := s.addDatacenter(root, &inv.Datacenters[i]); err != nil {
			return err
		}
	}
	s.forgetTasks()
	return nil
}

// place collects what the VMs of one datacenter need to find.
type place struct {
	dc         *simulator.Datacenter
	hosts      map[string]*simulator.HostSystem
	specs      map[string]*Host
	pools      map[string]*simulator.ResourcePool // by host name
	clusters   map[string]*mo.ComputeResource     // by host name; of a standalone host its own
	datastores map[string]*simulator.Datastore
	networks   map[string]*mo.Network
}

func (s *Sim) addDatacenter(root *simulator.Folder, dc *Datacenter) error {
	ctx := s.context()
	body := root.CreateDatacenter(ctx, &types.CreateDatacenter{This: root.Self, Name: dc.Name})
	if body.Fault() != nil {
		return fmt.Errorf("datacenter %q: %s", dc.Name, body.Fault().String)
	}
	p := &place{
		dc:         s.reg.Get(body.(*methods.CreateDatacenterBody).Res.Returnval).(*simulator.Datacenter),
		hosts:      map[string]*simulator.HostSystem{},
		specs:      map[string]*Host{},
		pools:      map[string]*simulator.ResourcePool{},
		clusters:   map[string]*mo.ComputeResource{},
		datastores: map[string]*simulator.Datastore{},
		networks:   map[string]*mo.Network{},
	}
	for i := range dc.Clusters {
		if err := s.addCluster(p, &dc.Clusters[i]); err != nil {
			return err
		}
	}
	for i := range dc.Hosts {
		if err := s.addStandalone(p, &dc.Hosts[i]); err != nil {
			return err
		}
	}
	if err := s.addNetworks(p, dc); err != nil {
		return err
	}
	if err := s.addDatastores(p, dc); err != nil {
		return err
	}
	for i := range dc.VMs {
		if err := s.addVM(p, &dc.VMs[i]); err != nil {
			return err
		}
	}
	return nil
}

func (s *Sim) addCluster(p *place, spec *Cluster) error {
	ctx := s.context()
	folder := s.reg.Get(p.dc.HostFolder).(*simulator.Folder)
	cluster, fault := simulator.CreateClusterComputeResource(ctx, folder, spec.Name, types.ClusterConfigSpecEx{})
	if fault != nil {
		return fmt.Errorf("cluster %q: %T", spec.Name, fault)
	}
	drs := &cluster.ConfigurationEx.(*types.ClusterConfigInfoEx).DrsConfig
	drs.Enabled = types.NewBool(spec.DRS != drsOff)
	drs.EnableVmBehaviorOverrides = types.NewBool(true)
	drs.DefaultVmBehavior = drsBehavior(spec.DRS)
	drs.VmotionRate = 3

	// Each AddHost task takes the cluster's lock and hands it to its goroutine, so a fresh context per
	// host makes them run one after the other without polling for each task's end.
	tasks := make([]*simulator.Task, len(spec.Hosts))
	for i := range spec.Hosts {
		res := cluster.AddHostTask(s.context(), &types.AddHost_Task{
			This:        cluster.Self,
			Spec:        types.HostConnectSpec{HostName: spec.Hosts[i].Name},
			AsConnected: true,
		})
		tasks[i] = s.reg.Get(res.(*methods.AddHost_TaskBody).Res.Returnval).(*simulator.Task)
	}
	pool := s.reg.Get(*cluster.ResourcePool).(*simulator.ResourcePool)
	for _, task := range tasks {
		task.Wait()
	}
	// Only now: the simulator panics when it adds a host beside one whose version it does not know.
	for i, task := range tasks {
		ref, ok := task.Info.Result.(types.ManagedObjectReference)
		if !ok {
			return fmt.Errorf("host %q: could not be added: %v", spec.Hosts[i].Name, task.Info.Error)
		}
		host := s.reg.Get(ref).(*simulator.HostSystem)
		s.keepHost(p, host, &spec.Hosts[i])
		p.pools[host.Name], p.clusters[host.Name] = pool, &cluster.ComputeResource
	}
	sumUp(cluster, p, spec)
	// The simulator's view code appends to this very slice while it walks; without spare room it copies.
	cluster.Host = slices.Clip(cluster.Host)
	return nil
}

// addStandalone makes a host whose parent is a compute resource of its own: no cluster, no DRS, and a
// root resource pool that only its VMs are in.
func (s *Sim) addStandalone(p *place, spec *Host) error {
	folder := s.reg.Get(p.dc.HostFolder).(*simulator.Folder)
	host, fault := simulator.CreateStandaloneHost(s.context(), folder, types.HostConnectSpec{HostName: spec.Name})
	if fault != nil {
		return fmt.Errorf("host %q: %T", spec.Name, fault)
	}
	own := s.reg.Get(*host.Parent).(*mo.ComputeResource)
	host.Runtime.ConnectionState = types.HostSystemConnectionStateConnected
	s.keepHost(p, host, spec)
	p.pools[host.Name], p.clusters[host.Name] = s.reg.Get(*own.ResourcePool).(*simulator.ResourcePool), own
	return nil
}

// keepHost gives a new host what the inventory says of it.
func (s *Sim) keepHost(p *place, host *simulator.HostSystem, spec *Host) {
	describeHost(&host.HostSystem, spec)
	s.devices[host.Self] = spec.Devices
	s.capacity[host.Self] = budget{int64(spec.CPU.Mhz) * int64(spec.CPU.Cores), spec.MemoryMB}
	p.hosts[host.Name], p.specs[host.Name] = host, spec
}

// drsBehavior is the API's word; without DRS it still has a default.
func drsBehavior(mode string) types.DrsBehavior {
	if mode == drsOff {
		return types.DrsBehaviorManual
	}
	return types.DrsBehavior(mode)
}

func describeHost(h *mo.HostSystem, spec *Host) {
	product := esx.HostSystem.Config.Product
	product.Version, product.Build, product.ApiVersion = spec.Version, spec.Build, spec.Version+".0"
	product.FullName = fmt.Sprintf("VMware ESXi %s build-%s", spec.Version, spec.Build)
	product.LicenseProductVersion = "8.0"
	h.Config.Product = product
	h.Summary.Config.Product = &product

	hw := h.Summary.Hardware
	hw.NumCpuPkgs, hw.NumCpuCores, hw.NumCpuThreads = int16(spec.CPU.Sockets), int16(spec.CPU.Cores), int16(spec.CPU.Threads)
	hw.CpuMhz, hw.MemorySize = spec.CPU.Mhz, spec.MemoryMB<<20
	info := *h.Hardware
	info.CpuInfo.NumCpuPackages, info.CpuInfo.NumCpuCores = int16(spec.CPU.Sockets), int16(spec.CPU.Cores)
	info.CpuInfo.NumCpuThreads, info.CpuInfo.Hz = int16(spec.CPU.Threads), int64(spec.CPU.Mhz)*1_000_000
	info.MemorySize = spec.MemoryMB << 20
	h.Hardware = &info
	addHostDevices(h, spec.Devices)

	h.Runtime.InMaintenanceMode = spec.Maintenance
	h.Runtime.PowerState = types.HostSystemPowerStatePoweredOn
	h.Runtime.ConnectionState = types.HostSystemConnectionState(spec.Connection)
	if spec.Connection == "notResponding" {
		h.Runtime.PowerState = types.HostSystemPowerStateUnknown
	}
}

// sumUp replaces the cluster's totals, which the simulator added up before our hosts had their sizes.
func sumUp(cluster *simulator.ClusterComputeResource, p *place, spec *Cluster) {
	sum := cluster.Summary.GetComputeResourceSummary()
	sum.TotalCpu, sum.TotalMemory, sum.NumCpuCores, sum.NumCpuThreads = 0, 0, 0, 0
	for i := range spec.Hosts {
		hw := p.hosts[spec.Hosts[i].Name].Summary.Hardware
		sum.TotalCpu += hw.CpuMhz * int32(hw.NumCpuCores)
		sum.TotalMemory += hw.MemorySize
		sum.NumCpuCores += hw.NumCpuCores
		sum.NumCpuThreads += hw.NumCpuThreads
	}
	sum.EffectiveCpu, sum.EffectiveMemory = sum.TotalCpu, sum.TotalMemory>>20
}

func (s *Sim) addNetworks(p *place, dc *Datacenter) error {
	ctx := s.context()
	for i, spec := range dc.Networks {
		var network *mo.Network
		if i == 0 {
			// Every datacenter of the simulator is born with one network: it becomes our first.
			network = s.reg.Get(p.dc.Network[0]).(*mo.Network)
			network.Name = spec.Name
			network.Entity().Name = spec.Name
			network.Summary.GetNetworkSummary().Name = spec.Name
		} else {
			first := p.hosts[dc.allHosts()[0].Name]
			system := s.reg.Get(*first.ConfigManager.NetworkSystem).(*simulator.HostNetworkSystem)
			res := system.AddPortGroup(ctx, &types.AddPortGroup{Portgrp: types.HostPortGroupSpec{Name: spec.Name, VswitchName: "vSwitch0"}})
			if res.Fault() != nil {
				return fmt.Errorf("network %q: %T", spec.Name, res.Fault().VimFault())
			}
			folder := s.reg.Get(p.dc.NetworkFolder).(*simulator.Folder)
			network = s.reg.FindByName(spec.Name, folder.ChildEntity).(*mo.Network)
		}
		p.networks[spec.Name] = network
	}
	for name, host := range p.hosts {
		host.Network = nil
		for _, spec := range dc.Networks {
			if spec.reaches(name) {
				network := p.networks[spec.Name]
				host.Network = append(host.Network, network.Self)
				network.Host = append(network.Host, host.Self)
				cluster := p.clusters[name]
				if !slices.Contains(cluster.Network, network.Self) {
					cluster.Network = append(slices.Clip(cluster.Network), network.Self)
				}
			}
		}
	}
	return nil
}

func (s *Sim) addDatastores(p *place, dc *Datacenter) error {
	for _, spec := range dc.Datastores {
		dir := filepath.Join(s.home, dc.Name, spec.Name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("datastore %q: %w", spec.Name, err)
		}
		for _, h := range dc.allHosts() {
			if !spec.reaches(h.Name) {
				continue
			}
			host := p.hosts[h.Name]
			system := s.reg.Get(*host.ConfigManager.DatastoreSystem).(*simulator.HostDatastoreSystem)
			res := system.CreateLocalDatastore(s.context(), &types.CreateLocalDatastore{Name: spec.Name, Path: dir})
			if res.Fault() != nil {
				return fmt.Errorf("datastore %q on host %q: %T", spec.Name, h.Name, res.Fault().VimFault())
			}
			ds := s.reg.Get(res.(*methods.CreateLocalDatastoreBody).Res.Returnval)
			if found, ok := ds.(*simulator.Datastore); ok {
				p.datastores[spec.Name] = found
			}
		}
		if ds := p.datastores[spec.Name]; ds != nil {
			ds.Summary.Type = string(types.HostFileSystemVolumeFileSystemTypeVMFS)
			ds.Summary.MultipleHostAccess = types.NewBool(len(ds.Host) > 1)
		}
	}
	return nil
}

// forgetTasks drops the tasks of the population: a fresh vCenter has none.
func (s *Sim) forgetTasks() {
	ctx := s.context()
	for _, obj := range s.reg.AllReference("Task") {
		s.reg.Remove(ctx, obj.Reference())
	}
	for _, e := range s.reg.All("") {
		e.Entity().RecentTask = nil
	}
	if manager, ok := s.reg.Get(*s.model.ServiceContent.TaskManager).(*simulator.TaskManager); ok {
		manager.RecentTask = nil
	}
}

func bootTime(on bool) *time.Time {
	if !on {
		return nil
	}
	return types.NewTime(time.Now())
}
