package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

var (
	uuidPattern     = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	pciPattern      = regexp.MustCompile(`^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)
	hardwarePattern = regexp.MustCompile(`^vmx-[0-9]{1,2}$`)
)

// check refuses an inventory that a vCenter could not have; every sentence starts with the path.
func (inv *Inventory) check() error {
	if len(inv.Datacenters) == 0 {
		return fmt.Errorf("datacenters: at least one is needed")
	}
	names := unique{}
	c := &checker{inv: inv, inventoryNames: unique{}, bios: unique{}, instances: unique{}}
	for i := range inv.Datacenters {
		dc := &inv.Datacenters[i]
		path := fmt.Sprintf("datacenters[%d]", i)
		if err := named(path, dc.Name); err != nil {
			return err
		}
		if err := names.add(path+".name", "a datacenter", dc.Name); err != nil {
			return err
		}
		if err := c.datacenter(path, dc); err != nil {
			return err
		}
	}
	return nil
}

type checker struct {
	inv            *Inventory
	inventoryNames unique // clusters and hosts: the control endpoint and people name them without a datacenter
	bios           unique
	instances      unique
}

// unique remembers where a name was seen first.
type unique map[string]string

func (u unique) add(path, what, name string) error {
	if first, seen := u[name]; seen {
		return fmt.Errorf("%s: there is already %s %q at %s", path, what, name, first)
	}
	u[name] = path
	return nil
}

func named(path, name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%s.name: a name is needed", path)
	case strings.ContainsAny(name, "/\\%"):
		return fmt.Errorf("%s.name: %q contains one of / \\ %%, which vCenter does not take in names", path, name)
	case name == "." || name == "..":
		return fmt.Errorf("%s.name: %q cannot be a name", path, name)
	}
	return nil
}

func oneOf(path, value string, allowed ...string) error {
	for _, a := range allowed {
		if value == a {
			return nil
		}
	}
	return fmt.Errorf("%s: %q is not one of %s", path, value, strings.Join(allowed, ", "))
}

func (c *checker) datacenter(path string, dc *Datacenter) error {
	if len(dc.Clusters) == 0 && len(dc.Hosts) == 0 {
		return fmt.Errorf("%s.clusters: at least one is needed, or a standalone host in hosts", path)
	}
	hosts := map[string]*Host{}
	for i := range dc.Clusters {
		if err := c.cluster(fmt.Sprintf("%s.clusters[%d]", path, i), &dc.Clusters[i], hosts); err != nil {
			return err
		}
	}
	for i := range dc.Hosts {
		if err := c.host(fmt.Sprintf("%s.hosts[%d]", path, i), &dc.Hosts[i], hosts); err != nil {
			return err
		}
	}
	for kind, list := range map[string][]Shared{"datastores": dc.Datastores, "networks": dc.Networks} {
		seen := unique{}
		for i := range list {
			at := fmt.Sprintf("%s.%s[%d]", path, kind, i)
			if err := named(at, list[i].Name); err != nil {
				return err
			}
			if err := seen.add(at+".name", "one of", list[i].Name); err != nil {
				return err
			}
			for j, name := range list[i].Hosts {
				if hosts[name] == nil {
					return fmt.Errorf("%s.hosts[%d]: there is no host %q in datacenter %q", at, j, name, dc.Name)
				}
			}
		}
	}
	seen := unique{}
	for i := range dc.VMs {
		at := fmt.Sprintf("%s.vms[%d]", path, i)
		if err := c.vm(at, &dc.VMs[i], dc, hosts); err != nil {
			return err
		}
		if err := seen.add(at+".name", "a VM", dc.VMs[i].Name); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) cluster(path string, cluster *Cluster, hosts map[string]*Host) error {
	if err := named(path, cluster.Name); err != nil {
		return err
	}
	if err := c.inventoryNames.add(path+".name", "a cluster or host", cluster.Name); err != nil {
		return err
	}
	if err := oneOf(path+".drs", cluster.DRS, drsOff, drsManual, drsPartial, drsFull); err != nil {
		return err
	}
	if len(cluster.Hosts) == 0 {
		return fmt.Errorf("%s.hosts: at least one is needed", path)
	}
	for i := range cluster.Hosts {
		if err := c.host(fmt.Sprintf("%s.hosts[%d]", path, i), &cluster.Hosts[i], hosts); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) host(path string, host *Host, hosts map[string]*Host) error {
	if err := named(path, host.Name); err != nil {
		return err
	}
	if err := c.inventoryNames.add(path+".name", "a cluster or host", host.Name); err != nil {
		return err
	}
	if err := host.check(path); err != nil {
		return err
	}
	hosts[host.Name] = host
	return nil
}

func (h *Host) check(path string) error {
	if err := oneOf(path+".connection", h.Connection, "connected", "disconnected", "notResponding"); err != nil {
		return err
	}
	if h.CPU.Sockets < 1 || h.CPU.Cores < h.CPU.Sockets || h.CPU.Mhz < 1 {
		return fmt.Errorf("%s.cpu: sockets, cores (of all sockets together, at least one each) and mhz must be given and positive", path)
	}
	if h.CPU.Threads < h.CPU.Cores {
		return fmt.Errorf("%s.cpu.threads: %d is less than one per core", path, h.CPU.Threads)
	}
	if h.MemoryMB < 1024 {
		return fmt.Errorf("%s.memoryMB: %d is less than an ESXi host needs (1024)", path, h.MemoryMB)
	}
	seen := unique{}
	for i := range h.Devices {
		at, d := fmt.Sprintf("%s.devices[%d]", path, i), &h.Devices[i]
		d.ID = strings.ToLower(d.ID)
		if !pciPattern.MatchString(d.ID) {
			return fmt.Errorf("%s.id: %q is not a PCI address like 0000:3b:00.0", at, d.ID)
		}
		if err := seen.add(at+".id", "a device", d.ID); err != nil {
			return err
		}
		if err := hexWord(at+".vendor", &d.Vendor); err != nil {
			return err
		}
		if err := hexWord(at+".device", &d.Device); err != nil {
			return err
		}
		if d.VGPUSlots < 0 || d.VGPUSlots > 0 && len(d.VGPUProfiles) == 0 {
			return fmt.Errorf("%s.vgpuSlots: it is a positive number, and only of a device with vgpuProfiles", at)
		}
		if d.VGPUSlots == 0 {
			d.VGPUSlots = 1
		}
		if d.Name == "" {
			d.Name = d.Vendor + ":" + d.Device
		}
	}
	return nil
}

// hexWord brings 0x10DE, 10de and 10DE to 10de.
func hexWord(path string, value *string) error {
	text := strings.TrimPrefix(strings.ToLower(*value), "0x")
	if _, err := strconv.ParseUint(text, 16, 16); err != nil {
		return fmt.Errorf("%s: %q is not a PCI id of up to four hex digits like 10de", path, *value)
	}
	*value = strings.Repeat("0", 4-len(text)) + text
	return nil
}

func (c *checker) vm(path string, vm *VM, dc *Datacenter, hosts map[string]*Host) error {
	if err := named(path, vm.Name); err != nil {
		return err
	}
	if vm.Host == "" {
		return fmt.Errorf("%s.host: the name of a host is needed", path)
	}
	host := hosts[vm.Host]
	if host == nil {
		return fmt.Errorf("%s.host: there is no host %q in datacenter %q", path, vm.Host, dc.Name)
	}
	if err := oneOf(path+".power", vm.Power, "on", "off"); err != nil {
		return err
	}
	if vm.Power == "on" && host.Maintenance {
		return fmt.Errorf("%s.power: it cannot be on, its host %q is in maintenance", path, vm.Host)
	}
	if err := oneOf(path+".tools", vm.Tools, toolsRunning, toolsExecutingScripts, toolsNotRunning, toolsNotInstalled); err != nil {
		return err
	}
	if !hardwarePattern.MatchString(vm.HardwareVersion) {
		return fmt.Errorf("%s.hardwareVersion: %q is not like vmx-19", path, vm.HardwareVersion)
	}
	if vm.CPUs < 1 || vm.MemoryMB < 4 || vm.MemoryMB > 1<<30 {
		return fmt.Errorf("%s: cpus must be at least 1 and memoryMB between 4 and 1073741824", path)
	}
	if r := vm.Reservation; r.CPUMHz < 0 || *r.MemoryMB < 0 || *r.MemoryMB > vm.MemoryMB {
		return fmt.Errorf("%s.reservation: cpuMHz and memoryMB are not negative, and memoryMB is at most the memory of the VM", path)
	}
	if vm.DRS != "" {
		if err := oneOf(path+".drs", vm.DRS, drsOff, drsManual, drsPartial, drsFull); err != nil {
			return err
		}
	}
	for field, id := range map[string]string{"uuid": vm.UUID, "instanceUuid": vm.InstanceUUID} {
		if !uuidPattern.MatchString(id) {
			return fmt.Errorf("%s.%s: %q is not a UUID", path, field, id)
		}
	}
	if !c.inv.AllowDuplicateUUIDs {
		if err := c.bios.add(path+".uuid", "a VM with UUID", vm.UUID); err != nil {
			return err
		}
	}
	if err := c.instances.add(path+".instanceUuid", "a VM with instance UUID", vm.InstanceUUID); err != nil {
		return err
	}
	if err := reached(path+".datastore", "datastore", vm.Datastore, vm.Host, dc.Datastores); err != nil {
		return err
	}
	if err := reached(path+".network", "network", vm.Network, vm.Host, dc.Networks); err != nil {
		return err
	}
	for i := range vm.Devices {
		if err := vm.Devices[i].check(fmt.Sprintf("%s.devices[%d]", path, i), host); err != nil {
			return err
		}
	}
	return nil
}

func reached(path, kind, name, host string, list []Shared) error {
	if name == "" {
		return fmt.Errorf("%s: host %q reaches no %s", path, host, kind)
	}
	for i := range list {
		if list[i].Name == name {
			if !list[i].reaches(host) {
				return fmt.Errorf("%s: host %q does not reach %s %q", path, host, kind, name)
			}
			return nil
		}
	}
	return fmt.Errorf("%s: there is no %s %q in this datacenter", path, kind, name)
}

func (d *VMDevice) check(path string, host *Host) error {
	if err := oneOf(path+".kind", d.Kind, deviceFixed, deviceDynamic, deviceVGPU, deviceSRIOV, deviceUSB); err != nil {
		return err
	}
	d.ID = strings.ToLower(d.ID)
	if d.Kind == deviceFixed && d.ID == "" {
		return fmt.Errorf("%s.id: a fixed device needs the PCI address of a device of its host", path)
	}
	if d.Kind == deviceVGPU && d.Profile == "" {
		return fmt.Errorf("%s.profile: a vgpu device needs the name of its profile", path)
	}
	for i := range d.Allowed {
		at := fmt.Sprintf("%s.allowed[%d]", path, i)
		if err := hexWord(at+".vendor", &d.Allowed[i].Vendor); err != nil {
			return err
		}
		if err := hexWord(at+".device", &d.Allowed[i].Device); err != nil {
			return err
		}
	}
	if d.ID == "" {
		return nil
	}
	for _, have := range host.Devices {
		if have.ID == d.ID {
			return nil
		}
	}
	return fmt.Errorf("%s.id: host %q has no device %q", path, host.Name, d.ID)
}
