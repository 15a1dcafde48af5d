package main

import (
	"slices"

	"github.com/vmware/govmomi/vim25/types"
)

// claim writes down which devices a VM has now, and shows it where a real vCenter does: the assigned
// address of a dynamic device and the VMs of a shared GPU; mu is held.
func (s *Sim) claim(r ref, got []hold) {
	before := s.holds[r]
	if len(got) == 0 {
		delete(s.holds, r)
	} else {
		s.holds[r] = got
	}
	if len(before) == 0 && len(got) == 0 {
		return
	}
	s.showAssigned(r, got)
	shown := map[ref]bool{}
	for _, h := range slices.Concat(before, got) {
		if h.profile != "" && !shown[h.host] {
			shown[h.host] = true
			s.showSharers(h.host)
		}
	}
}

// showAssigned replaces the devices instead of changing them: a reader may be encoding the old ones.
func (s *Sim) showAssigned(r ref, got []hold) {
	vm := s.vm(r)
	if vm == nil {
		return
	}
	assigned := map[int32]string{}
	for _, h := range got {
		assigned[h.key] = h.pci
	}
	ctx := s.context()
	s.reg.WithLock(ctx, vm.Self, func() {
		list, changed := slices.Clone(vm.Config.Hardware.Device), false
		for i, d := range list {
			dev, ok := d.(*types.VirtualPCIPassthrough)
			if !ok {
				continue
			}
			backing, ok := dev.Backing.(*types.VirtualPCIPassthroughDynamicBackingInfo)
			if !ok || backing.AssignedId == assigned[dev.Key] {
				continue
			}
			newDevice, newBacking := *dev, *backing
			newBacking.AssignedId = assigned[dev.Key]
			newDevice.Backing = &newBacking
			list[i], changed = &newDevice, true
		}
		if changed {
			ctx.Update(vm, []types.PropertyChange{change("config.hardware.device", list)})
		}
	})
}

func (s *Sim) showSharers(host ref) {
	h := s.host(host)
	if h == nil {
		return
	}
	taken := s.uses(host, ref{})
	ctx := s.context()
	s.reg.WithLock(ctx, h.Self, func() {
		list := slices.Clone(h.Config.GraphicsInfo)
		for i := range list {
			list[i].Vm = nil
			if u := taken[list[i].PciId]; u != nil && !u.whole {
				list[i].Vm = slices.Clone(u.by)
			}
		}
		ctx.Update(h, []types.PropertyChange{change("config.graphicsInfo", list)})
	})
}

// settleDevices gives every VM that is on at the start what it can have. An inventory may put more VMs
// on a host than it has devices for; they run, and count only with what they really hold.
func (s *Sim) settleDevices() {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.look(ref{})
	// An inventory may name the device that a dynamic one has at the start: the fixed first, then those.
	var turns [3][]ref
	for _, r := range sortedBy(p.vms, func(v vmState) string { return v.name }) {
		if p.vms[r].power != poweredOn {
			continue
		}
		if list := s.wishesOf(r); len(list) > 0 {
			turn := 2
			for _, w := range list {
				if w.kind == deviceFixed {
					turn = 0
				} else if w.pci != "" {
					turn = min(turn, 1)
				}
			}
			turns[turn] = append(turns[turn], r)
		}
	}
	for _, r := range slices.Concat(turns[:]...) {
		if got, fault := s.allocate(r, p.vms[r].host); fault == nil {
			s.claim(r, got)
		}
	}
}

type deviceView struct {
	ID      string   `json:"id"`
	Vendor  string   `json:"vendor"`
	Device  string   `json:"device"`
	Name    string   `json:"name"`
	Free    bool     `json:"free"` // nobody has any of it
	UsedBy  []string `json:"usedBy"`
	Profile string   `json:"profile,omitempty"`
	Slots   *int     `json:"freeSlots,omitempty"` // only of a GPU that can be shared
}

type amountView struct {
	Total    int64 `json:"total"`
	Reserved int64 `json:"reserved"`
	Free     int64 `json:"free"`
}

// viewDevices is the bookkeeping of one host for people and tests; mu is held.
func (s *Sim) viewDevices(p *picture, host ref) []deviceView {
	out := []deviceView{}
	if len(s.devices[host]) == 0 {
		return out
	}
	taken := s.uses(host, ref{})
	for _, d := range s.devices[host] {
		v := deviceView{ID: d.ID, Vendor: d.Vendor, Device: d.Device, Name: d.Name, Free: true, UsedBy: []string{}}
		slots := d.VGPUSlots
		if u := taken[d.ID]; u != nil {
			v.Free, v.Profile = false, u.profile
			for _, r := range u.by {
				v.UsedBy = append(v.UsedBy, p.vms[r].name)
			}
			slices.Sort(v.UsedBy)
			slots -= len(u.by)
			if u.whole {
				slots = 0
			}
		}
		if len(d.VGPUProfiles) > 0 {
			v.Slots = &slots
		}
		out = append(out, v)
	}
	return out
}

func amount(total, reserved int64) amountView {
	return amountView{Total: total, Reserved: reserved, Free: max(0, total-reserved)}
}
