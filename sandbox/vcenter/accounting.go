package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// hold is one device, or one share of a GPU, that a powered-on VM has. It counts only while its VM is
// on and on that host, so whatever switches a VM off also gives its devices back.
type hold struct {
	key     int32 // of the virtual device
	host    ref
	pci     string
	profile string // empty: the whole device
}

// use is what is taken of one device of a host.
type use struct {
	whole   bool
	profile string
	by      []ref
}

// wish is what one virtual device asks of a host.
type wish struct {
	key      int32
	label    string
	kind     string
	pci      string // fixed: this one; dynamic: rather this one, as the inventory says
	systemID string
	allowed  []types.VirtualPCIPassthroughAllowedDevice
	profile  string
	hardware string // the hardware label that the device must have; empty: any
}

// wishes reads a VM as it is configured now; the caller holds its lock.
func wishes(vm *mo.VirtualMachine) []wish {
	var list []wish
	if vm.Config == nil {
		return nil
	}
	for _, d := range vm.Config.Hardware.Device {
		dev, ok := d.(*types.VirtualPCIPassthrough)
		if !ok {
			continue
		}
		w := wish{key: dev.Key, label: fmt.Sprintf("pciPassthru%d", len(list))}
		switch b := dev.Backing.(type) {
		case *types.VirtualPCIPassthroughDeviceBackingInfo:
			w.kind, w.pci, w.systemID = deviceFixed, b.Id, b.SystemId
		case *types.VirtualPCIPassthroughDynamicBackingInfo:
			w.kind, w.pci, w.allowed, w.hardware = deviceDynamic, b.AssignedId, b.AllowedDevice, b.CustomLabel
		case *types.VirtualPCIPassthroughVmiopBackingInfo:
			w.kind, w.profile = deviceVGPU, b.Vgpu
		default:
			continue
		}
		list = append(list, w)
	}
	return list
}

func (s *Sim) wishesOf(r ref) []wish {
	var list []wish
	if vm := s.vm(r); vm != nil {
		s.reg.WithLock(s.context(), vm.Self, func() { list = wishes(&vm.VirtualMachine) })
	}
	return list
}

// uses counts the taken devices of a host, leaving one VM out; mu is held.
func (s *Sim) uses(host, without ref) map[string]*use {
	taken := map[string]*use{}
	for vm, list := range s.holds {
		now, there := s.vmNow(vm)
		if vm == without || !there || now.power != poweredOn || now.host != host {
			continue
		}
		for _, h := range list {
			if h.host == host {
				take(taken, h, vm)
			}
		}
	}
	return taken
}

func take(taken map[string]*use, h hold, vm ref) {
	u := taken[h.pci]
	if u == nil {
		u = &use{}
		taken[h.pci] = u
	}
	u.whole, u.profile, u.by = h.profile == "", h.profile, append(u.by, vm)
}

// rank puts the device first that the inventory gives a VM at the start.
func (w *wish) rank(d *Device) int {
	if d.ID == w.pci {
		return 0
	}
	return 1
}

// passable says whether a whole device can be given to a VM.
func (d *Device) passable() bool { return d.Passthrough == nil || *d.Passthrough }

// suits says whether a device is of the kind a wish names, free or not. All shares of one GPU have
// one profile at a time, as with real vGPUs in their default mode.
func (w *wish) suits(d *Device) bool {
	switch w.kind {
	case deviceFixed:
		return d.passable() && d.ID == w.pci
	case deviceDynamic:
		// The list is optional in the API: without one every device will do.
		return d.passable() && (w.hardware == "" || w.hardware == d.Label) && (len(w.allowed) == 0 || slices.ContainsFunc(w.allowed, func(a types.VirtualPCIPassthroughAllowedDevice) bool {
			return uint64(uint16(a.VendorId)) == hexValue(d.Vendor) && uint64(uint16(a.DeviceId)) == hexValue(d.Device)
		}))
	default:
		return slices.Contains(d.VGPUProfiles, w.profile)
	}
}

func (w *wish) free(d *Device, u *use) bool {
	switch {
	case u == nil:
		return true
	case w.kind != deviceVGPU:
		return false
	default:
		return !u.whole && u.profile == w.profile && len(u.by) < d.VGPUSlots
	}
}

// allocate finds a device for every wish of a VM on a host, or says what is missing; mu is held.
func (s *Sim) allocate(r, host ref) ([]hold, types.BaseMethodFault) {
	list := s.wishesOf(r)
	if len(list) == 0 {
		return nil, nil
	}
	devices, taken := slices.Clone(s.devices[host]), s.uses(host, r)
	slices.SortStableFunc(devices, func(a, b Device) int { return list[0].rank(&a) - list[0].rank(&b) })
	for i := range list {
		if fault := s.hopeless(&list[i], r, host, devices, taken); fault != nil {
			return nil, fault
		}
	}
	// The pickiest first would not do when sets overlap, so every way is tried; a VM has few devices.
	var got []hold
	var fill func(int) bool
	fill = func(n int) bool {
		if n == len(list) {
			return true
		}
		w := &list[n]
		for i := range devices {
			d := &devices[i]
			if !w.suits(d) || !w.free(d, taken[d.ID]) {
				continue
			}
			var before *use
			if u := taken[d.ID]; u != nil {
				before = &use{u.whole, u.profile, slices.Clone(u.by)}
			}
			h := hold{key: w.key, host: host, pci: d.ID, profile: w.profile}
			take(taken, h, r)
			got = append(got, h)
			if fill(n + 1) {
				return true
			}
			got = got[:len(got)-1]
			if taken[d.ID] = before; before == nil {
				delete(taken, d.ID)
			}
		}
		return false
	}
	if !fill(0) {
		return nil, s.missing(&list[len(list)-1], r, host)
	}
	return got, nil
}

// hopeless says which fault a wish gets that no device of the host can meet.
func (s *Sim) hopeless(w *wish, r, host ref, devices []Device, taken map[string]*use) types.BaseMethodFault {
	if w.kind == deviceFixed && w.systemID != s.systemID(host) {
		return deviceFault(fmt.Sprintf("The systemId does not match the current system or the deviceId, and the vendorId does not match the device currently at %s.", w.pci))
	}
	for i := range devices {
		if w.suits(&devices[i]) && w.free(&devices[i], taken[devices[i].ID]) {
			return nil
		}
	}
	return s.missing(w, r, host)
}

// missing is the fault for a device that is not there or not free. A fixed one fails in ESXi when the
// VM starts; a dynamic one is missed by vCenter before; a vGPU has a fault of its own.
func (s *Sim) missing(w *wish, r, host ref) types.BaseMethodFault {
	vm, _ := s.vmNow(r)
	switch w.kind {
	case deviceFixed:
		return deviceFault(fmt.Sprintf("Module 'DevicePowerOn' power on failed. Device %s (%s) is not available.", w.label, w.pci))
	case deviceVGPU:
		fault := &types.InsufficientGraphicsResourcesFault{}
		fault.FaultMessage = message(fmt.Sprintf("The amount of graphics resource available on host %s is insufficient for profile %s of %s.", s.hostNow(host).name, w.profile, vm.name))
		return fault
	default:
		fault := &types.InsufficientResourcesFault{}
		fault.FaultMessage = message(fmt.Sprintf("One or more devices (%s) required by VM %s are not available on host %s.", w.label, vm.name, s.hostNow(host).name))
		return fault
	}
}

func deviceFault(reason string) types.BaseMethodFault {
	fault := &types.GenericVmConfigFault{Reason: reason}
	fault.FaultMessage = message(reason)
	return fault
}

func message(text string) []types.LocalizableMessage {
	return []types.LocalizableMessage{{Key: "hostler.sandbox", Message: text}}
}

// messages joins what a fault carries for people.
func messages(fault types.BaseMethodFault) string {
	var texts []string
	for _, m := range fault.GetMethodFault().FaultMessage {
		texts = append(texts, m.Message)
	}
	return strings.Join(texts, " ")
}

func (s *Sim) systemID(host ref) string {
	h := s.host(host)
	if h == nil || h.Hardware == nil {
		return ""
	}
	return h.Hardware.SystemInfo.Uuid
}

// lacks names the first device of a VM of which a host has none at all, free or not: that is what a
// relocation of a powered-off VM is checked for.
func (s *Sim) lacks(r, host ref) *wish {
	list := s.wishesOf(r)
	for i := range list {
		if !slices.ContainsFunc(s.devices[host], func(d Device) bool { return list[i].suits(&d) }) {
			return &list[i]
		}
	}
	return nil
}

// budget is the CPU (MHz) and memory (MB) of a host that VMs can reserve.
type budget struct{ cpu, memory int64 }

// reserved adds up what the powered-on VMs of a host reserve, leaving one out.
func (p *picture) reserved(host, without ref) budget {
	sum := budget{}
	for _, r := range p.vmsOn[host] {
		if vm := p.vms[r]; r != without && vm.power == poweredOn {
			sum.cpu += vm.reserves.cpu
			sum.memory += vm.reserves.memory
		}
	}
	return sum
}

// fewerCPUs is ESXi's own limit: a VM has at most as many virtual CPUs as its host has logical ones.
// Without hyperthreading the fault is the one that speaks of cores; mu is held.
func (s *Sim) fewerCPUs(r, host ref) types.BaseMethodFault {
	vm, on := s.vm(r), s.host(host)
	if vm == nil || on == nil || vm.Config == nil {
		return nil
	}
	var wants int32
	s.reg.WithLock(s.context(), vm.Self, func() { wants = vm.Config.Hardware.NumCPU })
	cores, threads := int32(on.Summary.Hardware.NumCpuCores), int32(on.Summary.Hardware.NumCpuThreads)
	if wants <= threads {
		return nil
	}
	few := types.NotEnoughCpus{NumCpuDest: threads, NumCpuVm: wants}
	few.FaultMessage = message(fmt.Sprintf("The number of virtual CPUs (%d) is larger than the number of logical CPUs (%d) of host %s.", wants, threads, s.hostNow(host).name))
	if threads == cores {
		return &few
	}
	return &types.NotEnoughLogicalCpus{NotEnoughCpus: few, Host: &host}
}

// fit says whether a VM could run on a host as to devices, CPU and memory, and with which devices.
func (s *Sim) fit(p *picture, r, host ref) ([]hold, types.BaseMethodFault) {
	if fault := s.fewerCPUs(r, host); fault != nil {
		return nil, fault
	}
	if fault := s.cutOff(r, host); fault != nil {
		return nil, fault
	}
	got, fault := s.allocate(r, host)
	if fault != nil {
		return nil, fault
	}
	need := p.vms[r].reserves
	if need == (budget{}) {
		return got, nil
	}
	all, used := s.capacity[host], p.reserved(host, r)
	if left := all.cpu - used.cpu; need.cpu > left {
		return nil, &types.InsufficientHostCpuCapacityFault{
			InsufficientHostCapacityFault: types.InsufficientHostCapacityFault{Host: &host},
			Unreserved:                    max(0, left), Requested: need.cpu,
		}
	}
	if left := all.memory - used.memory; need.memory > left {
		return nil, &types.InsufficientHostMemoryCapacityFault{
			InsufficientHostCapacityFault: types.InsufficientHostCapacityFault{Host: &host},
			Unreserved:                    max(0, left) << 20, Requested: need.memory << 20,
		}
	}
	return got, nil
}

// backing names what a wish asks for, for people.
func (w *wish) backing() string {
	switch w.kind {
	case deviceFixed:
		return w.pci
	case deviceVGPU:
		return w.profile
	default:
		var names []string
		for _, a := range w.allowed {
			names = append(names, fmt.Sprintf("%04x:%04x", uint16(a.VendorId), uint16(a.DeviceId)))
		}
		return strings.Join(names, " or ")
	}
}
