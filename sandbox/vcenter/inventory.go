package main

import (
	"crypto/sha256"
	"fmt"
	"strings"
)

// Inventory is the file that describes a vCenter; README.md is its reference.
type Inventory struct {
	Datacenters         []Datacenter `json:"datacenters"`
	AllowDuplicateUUIDs bool         `json:"allowDuplicateUUIDs"`
}

type Datacenter struct {
	Name       string    `json:"name"`
	Clusters   []Cluster `json:"clusters"`
	Hosts      []Host    `json:"hosts"` // standalone: each is a compute resource of its own
	Datastores []Shared  `json:"datastores"`
	Networks   []Shared  `json:"networks"`
	VMs        []VM      `json:"vms"`
}

type Cluster struct {
	Name  string `json:"name"`
	DRS   string `json:"drs"`
	Hosts []Host `json:"hosts"`
}

// Shared is a datastore or a network; no hosts means every host of the datacenter.
type Shared struct {
	Name  string   `json:"name"`
	Hosts []string `json:"hosts"`
}

type Host struct {
	Name        string   `json:"name"`
	Version     string   `json:"version"`
	Build       string   `json:"build"`
	CPU         *CPU     `json:"cpu"`
	MemoryMB    int64    `json:"memoryMB"`
	Maintenance bool     `json:"maintenance"`
	Connection  string   `json:"connection"`
	Devices     []Device `json:"devices"`
}

type CPU struct {
	Sockets int32 `json:"sockets"`
	Cores   int32 `json:"cores"`
	Threads int32 `json:"threads"` // logical CPUs of all cores; default two per core
	Mhz     int32 `json:"mhz"`
}

// Device is a PCI device of a host.
type Device struct {
	ID           string   `json:"id"`
	Vendor       string   `json:"vendor"`
	Device       string   `json:"device"`
	Name         string   `json:"name"`
	Passthrough  *bool    `json:"passthrough"`
	VGPUProfiles []string `json:"vgpuProfiles"`
	VGPUSlots    int      `json:"vgpuSlots"`
	Label        string   `json:"label"` // the hardware label an administrator gave it
}

type VM struct {
	Name                 string     `json:"name"`
	UUID                 string     `json:"uuid"`
	InstanceUUID         string     `json:"instanceUuid"`
	Host                 string     `json:"host"`
	Power                string     `json:"power"`
	HardwareVersion      string     `json:"hardwareVersion"`
	CPUs                 int32      `json:"cpus"`
	MemoryMB             int64      `json:"memoryMB"`
	Datastore            string     `json:"datastore"`
	Network              string     `json:"network"`
	Devices              []VMDevice `json:"devices"`
	Movable              *bool      `json:"movable"`
	Tools                string     `json:"tools"`
	GuestHostName        string     `json:"guestHostName"`
	IPAddress            string     `json:"ipAddress"`
	GuestShutdownSeconds *float64   `json:"guestShutdownSeconds"`
	Annotation           string     `json:"annotation"`
	DRS                  string     `json:"drs"`
	Reservation          *Reserved  `json:"reservation"`
}

// Reserved is CPU and memory that a VM has for itself while it is on.
type Reserved struct {
	CPUMHz   int64  `json:"cpuMHz"`
	MemoryMB *int64 `json:"memoryMB"`
}

// VMDevice is a passthrough device or a shared GPU of a VM.
type VMDevice struct {
	Kind    string  `json:"kind"`
	ID      string  `json:"id"`
	Allowed []Model `json:"allowed"`
	Label   string  `json:"label"`
	Profile string  `json:"profile"`
}

// Model names a kind of PCI device.
type Model struct {
	Vendor string `json:"vendor"`
	Device string `json:"device"`
}

const (
	drsOff     = "off"
	drsManual  = "manual"
	drsPartial = "partiallyAutomated"
	drsFull    = "fullyAutomated"

	toolsRunning          = "running"
	toolsExecutingScripts = "executingScripts"
	toolsNotRunning       = "notRunning"
	toolsNotInstalled     = "notInstalled"

	deviceFixed   = "fixed"
	deviceDynamic = "dynamic"
	deviceVGPU    = "vgpu"
	deviceSRIOV   = "sriov"
	deviceUSB     = "usb"
)

// ReadInventory decodes, fills in the defaults and checks; its errors name the path.
func ReadInventory(data []byte) (*Inventory, error) {
	inv := &Inventory{}
	if err := decodeStrict(data, inv); err != nil {
		return nil, err
	}
	inv.setDefaults()
	if err := inv.check(); err != nil {
		return nil, err
	}
	return inv, nil
}

func orText(value *string, fallback string) {
	if *value == "" {
		*value = fallback
	}
}

func (inv *Inventory) setDefaults() {
	for d := range inv.Datacenters {
		dc := &inv.Datacenters[d]
		if len(dc.Datastores) == 0 {
			dc.Datastores = []Shared{{Name: "datastore1"}}
		}
		if len(dc.Networks) == 0 {
			dc.Networks = []Shared{{Name: "VM Network"}}
		}
		for c := range dc.Clusters {
			orText(&dc.Clusters[c].DRS, drsOff)
			for h := range dc.Clusters[c].Hosts {
				dc.Clusters[c].Hosts[h].setDefaults()
			}
		}
		for h := range dc.Hosts {
			dc.Hosts[h].setDefaults()
		}
		for v := range dc.VMs {
			dc.VMs[v].setDefaults(dc)
		}
	}
}

// allHosts are the hosts of the clusters, then the standalone ones.
func (dc *Datacenter) allHosts() []*Host {
	var list []*Host
	for c := range dc.Clusters {
		for h := range dc.Clusters[c].Hosts {
			list = append(list, &dc.Clusters[c].Hosts[h])
		}
	}
	for h := range dc.Hosts {
		list = append(list, &dc.Hosts[h])
	}
	return list
}

func (h *Host) setDefaults() {
	orText(&h.Version, "8.0.3")
	orText(&h.Build, "24022510")
	orText(&h.Connection, "connected")
	if h.CPU == nil {
		h.CPU = &CPU{Sockets: 2, Cores: 32, Mhz: 2600}
	}
	if h.CPU.Threads == 0 {
		h.CPU.Threads = 2 * h.CPU.Cores
	}
	if h.MemoryMB == 0 {
		h.MemoryMB = 524288
	}
}

func (vm *VM) setDefaults(dc *Datacenter) {
	orText(&vm.UUID, derivedUUID("bios", dc.Name, vm.Name))
	orText(&vm.InstanceUUID, derivedUUID("instance", dc.Name, vm.Name))
	vm.UUID, vm.InstanceUUID = strings.ToLower(vm.UUID), strings.ToLower(vm.InstanceUUID)
	orText(&vm.Power, "on")
	orText(&vm.HardwareVersion, "vmx-19")
	orText(&vm.Tools, toolsRunning)
	orText(&vm.GuestHostName, vm.Name)
	if vm.CPUs == 0 {
		vm.CPUs = 4
	}
	if vm.MemoryMB == 0 {
		vm.MemoryMB = 16384
	}
	if vm.Reservation == nil {
		vm.Reservation = &Reserved{}
	}
	if vm.Reservation.MemoryMB == nil {
		// ESXi starts a VM with a passthrough device only if all its memory is reserved.
		all := int64(0)
		for _, d := range vm.Devices {
			if d.Kind != "" {
				all = vm.MemoryMB
			}
		}
		vm.Reservation.MemoryMB = &all
	}
	if vm.Datastore == "" {
		vm.Datastore = firstReached(dc.Datastores, vm.Host)
	}
	if vm.Network == "" {
		vm.Network = firstReached(dc.Networks, vm.Host)
	}
}

func firstReached(shared []Shared, host string) string {
	for _, s := range shared {
		if s.reaches(host) {
			return s.Name
		}
	}
	return ""
}

func (s *Shared) reaches(host string) bool {
	if len(s.Hosts) == 0 {
		return true
	}
	for _, name := range s.Hosts {
		if name == host {
			return true
		}
	}
	return false
}

// derivedUUID is the same at every start, so that a fleet file without UUIDs still has stable ones.
func derivedUUID(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	sum[6] = sum[6]&0x0f | 0x40
	sum[8] = sum[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}

// Summary is one line for people.
func (inv *Inventory) Summary() string {
	var clusters, hosts, vms int
	for _, dc := range inv.Datacenters {
		clusters += len(dc.Clusters)
		vms += len(dc.VMs)
		hosts += len(dc.allHosts())
	}
	return fmt.Sprintf("%d datacenter(s), %d cluster(s), %d host(s), %d VM(s)", len(inv.Datacenters), clusters, hosts, vms)
}
