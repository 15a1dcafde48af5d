package main

import (
	"fmt"
	"strconv"

	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// addHostDevices shows the devices of the inventory in the three places where a real host shows them:
// the PCI list, the passthrough list and, for shared GPUs, the profiles on offer.
func addHostDevices(host *mo.HostSystem, devices []Device) {
	hardware := *host.Hardware // NewHostSystem copies this only shallowly: a shared list must not grow
	hardware.PciDevice = append([]types.HostPciDevice(nil), hardware.PciDevice...)
	host.Hardware = &hardware
	host.Config.PciPassthruInfo = nil
	var profiles []string
	for _, d := range devices {
		// The template host has devices of its own; ours wins where the address is the same.
		hardware.PciDevice = withoutPCI(hardware.PciDevice, d.ID)
		hardware.PciDevice = append(hardware.PciDevice, types.HostPciDevice{
			Id:         d.ID,
			ClassId:    0x0302, // 3D controller
			Bus:        byte(hexValue(d.ID[5:7])),
			Slot:       byte(hexValue(d.ID[8:10])),
			Function:   byte(hexValue(d.ID[11:])),
			VendorId:   int16(uint16(hexValue(d.Vendor))), // the API has signed words
			VendorName: vendorName(d.Vendor),
			DeviceId:   int16(uint16(hexValue(d.Device))),
			DeviceName: d.Name,
		})
		through := d.Passthrough == nil || *d.Passthrough
		host.Config.PciPassthruInfo = append(host.Config.PciPassthruInfo, &types.HostPciPassthruInfo{
			Id:              d.ID,
			DependentDevice: d.ID,
			PassthruCapable: true,
			PassthruEnabled: through,
			PassthruActive:  through,
			HardwareLabel:   d.Label,
		})
		for _, profile := range d.VGPUProfiles {
			profiles = append(profiles, profile)
			host.Config.SharedGpuCapabilities = append(host.Config.SharedGpuCapabilities,
				types.HostSharedGpuCapabilities{Vgpu: profile, SuspendSupported: true})
		}
		if len(d.VGPUProfiles) > 0 {
			host.Config.GraphicsInfo = append(host.Config.GraphicsInfo, types.HostGraphicsInfo{
				DeviceName: d.Name, VendorName: vendorName(d.Vendor), PciId: d.ID,
				GraphicsType: string(types.HostGraphicsInfoGraphicsTypeSharedDirect),
			})
		}
	}
	host.Hardware = &hardware
	host.Config.SharedPassthruGpuTypes = profiles
}

func withoutPCI(list []types.HostPciDevice, id string) []types.HostPciDevice {
	kept := list[:0]
	for _, d := range list {
		if d.Id != id {
			kept = append(kept, d)
		}
	}
	return kept
}

// vmDevices makes the virtual devices that keep a VM on its host.
func vmDevices(vm *VM, host *Host, systemID string) []types.BaseVirtualDevice {
	var list []types.BaseVirtualDevice
	for i, d := range vm.Devices {
		if other := ownDevice(i, &d, systemID); other != nil {
			list = append(list, other)
			continue
		}
		dev := &types.VirtualPCIPassthrough{VirtualDevice: types.VirtualDevice{
			Key:           int32(13000 + i), // where vCenter numbers them
			ControllerKey: 100,              // the PCI controller every VM has
			UnitNumber:    types.NewInt32(int32(18 + i)),
			DeviceInfo:    &types.Description{Label: fmt.Sprintf("PCI device %d", i), Summary: deviceSummary(&d)},
		}}
		switch d.Kind {
		case deviceFixed:
			backing := &types.VirtualPCIPassthroughDeviceBackingInfo{Id: d.ID, SystemId: systemID}
			for _, have := range host.Devices {
				if have.ID == d.ID {
					backing.DeviceName = have.Name
					backing.DeviceId = have.Device
					backing.VendorId = int16(uint16(hexValue(have.Vendor)))
				}
			}
			dev.Backing = backing
		case deviceDynamic:
			backing := &types.VirtualPCIPassthroughDynamicBackingInfo{CustomLabel: d.Label, AssignedId: d.ID}
			for _, m := range d.Allowed {
				backing.AllowedDevice = append(backing.AllowedDevice, types.VirtualPCIPassthroughAllowedDevice{
					VendorId: int32(hexValue(m.Vendor)), DeviceId: int32(hexValue(m.Device)),
				})
			}
			dev.Backing = backing
		case deviceVGPU:
			dev.Backing = &types.VirtualPCIPassthroughVmiopBackingInfo{Vgpu: d.Profile}
		}
		list = append(list, dev)
	}
	return list
}

// ownDevice makes the devices that are no PCI passthrough, or nothing: a network card that is a virtual
// function of one of the host, and a USB device of the host.
func ownDevice(i int, d *VMDevice, systemID string) types.BaseVirtualDevice {
	base := types.VirtualDevice{Key: int32(14000 + i), DeviceInfo: &types.Description{Label: fmt.Sprintf("device %d", i), Summary: d.Kind}}
	switch d.Kind {
	case deviceSRIOV:
		id := d.ID
		if id == "" {
			id = "Automatic-0000:00:00.0" // as the API writes it where vCenter chooses the physical function
		}
		card := &types.VirtualSriovEthernetCard{}
		card.VirtualDevice = base
		card.SriovBacking = &types.VirtualSriovEthernetCardSriovBackingInfo{
			PhysicalFunctionBacking: &types.VirtualPCIPassthroughDeviceBackingInfo{Id: id, SystemId: systemID},
		}
		return card
	case deviceUSB:
		base.Backing = &types.VirtualUSBUSBBackingInfo{VirtualDeviceDeviceBackingInfo: types.VirtualDeviceDeviceBackingInfo{DeviceName: "path:1/0/1"}}
		return &types.VirtualUSB{VirtualDevice: base, Connected: true}
	}
	return nil
}

func deviceSummary(d *VMDevice) string {
	switch d.Kind {
	case deviceFixed:
		return "DirectPath I/O " + d.ID
	case deviceDynamic:
		return "Dynamic DirectPath I/O"
	default:
		return "NVIDIA vGPU " + d.Profile
	}
}

// passthrough says which device, if any, keeps this VM from moving live. It reads the VM as it is
// configured now, because a client may have added or removed a device.
func passthrough(vm *mo.VirtualMachine) (string, bool) {
	if vm.Config == nil {
		return "", false
	}
	for _, d := range vm.Config.Hardware.Device {
		switch d.(type) {
		case *types.VirtualSriovEthernetCard:
			return "an SR-IOV network card", true
		case *types.VirtualUSB:
			return "a USB device of the host", true
		}
		dev, ok := d.(*types.VirtualPCIPassthrough)
		if !ok {
			continue
		}
		switch dev.Backing.(type) {
		case *types.VirtualPCIPassthroughVmiopBackingInfo:
			return "a vGPU", true
		default:
			return "a passthrough device", true
		}
	}
	return "", false
}

func hexValue(text string) uint64 {
	n, _ := strconv.ParseUint(text, 16, 64) // the inventory check has seen to it
	return n
}

func vendorName(id string) string {
	switch id {
	case "10de":
		return "NVIDIA Corporation"
	case "8086":
		return "Intel Corporation"
	case "1002":
		return "Advanced Micro Devices, Inc."
	default:
		return "Vendor " + id
	}
}
