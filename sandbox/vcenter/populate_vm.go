package main

import (
	"fmt"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// addVM makes one VM. The stock CreateVM_Task would write three files per VM and need a task each;
// at 5,000 VMs that is most of a minute for nothing a client of ours looks at.
func (s *Sim) addVM(p *place, spec *VM) error {
	ctx := s.context()
	host := p.hosts[spec.Host]
	datastore := p.datastores[spec.Datastore]
	vm, fault := simulator.NewVirtualMachine(ctx, p.dc.VmFolder, &types.VirtualMachineConfigSpec{
		Name:    spec.Name,
		GuestId: string(types.VirtualMachineGuestOsIdentifierOtherLinux64Guest),
		Files:   &types.VirtualMachineFileInfo{VmPathName: fmt.Sprintf("[%s] %s/%s.vmx", spec.Datastore, spec.Name, spec.Name)},
	})
	if fault != nil {
		return fmt.Errorf("VM %q: could not be made: %T", spec.Name, fault)
	}
	vm.Name = spec.Name
	vm.ResourcePool = &p.pools[spec.Host].Self
	vm.Datastore = []types.ManagedObjectReference{datastore.Self}
	vm.Network = []types.ManagedObjectReference{p.networks[spec.Network].Self}
	vm.EnvironmentBrowser = *p.clusters[spec.Host].EnvironmentBrowser
	configureVM(&vm.VirtualMachine, spec, p.specs[spec.Host], host.Hardware.SystemInfo.Uuid)
	runVM(&vm.VirtualMachine, spec, host.Self)
	if p.specs[spec.Host].Connection != "connected" {
		vm.Runtime.ConnectionState = types.VirtualMachineConnectionStateDisconnected
		vm.Summary.Runtime.ConnectionState = vm.Runtime.ConnectionState
	}

	host.Vm = append(host.Vm, vm.Self)
	datastore.Vm = append(datastore.Vm, vm.Self)
	p.networks[spec.Network].Vm = append(p.networks[spec.Network].Vm, vm.Self)
	p.pools[spec.Host].Vm = append(p.pools[spec.Host].Vm, vm.Self)

	if spec.DRS != "" {
		config, ok := p.clusters[spec.Host].ConfigurationEx.(*types.ClusterConfigInfoEx)
		if !ok {
			return fmt.Errorf("VM %q: drs: host %q is in no cluster", spec.Name, spec.Host)
		}
		config.DrsVmConfig = append(config.DrsVmConfig, types.ClusterDrsVmConfigInfo{
			Key: vm.Self, Enabled: types.NewBool(spec.DRS != drsOff), Behavior: drsBehavior(spec.DRS),
		})
	}
	s.traits[vm.Self] = &traits{movable: spec.Movable, tools: spec.Tools, hostName: spec.GuestHostName, ip: spec.IPAddress, shutdownSeconds: spec.GuestShutdownSeconds}
	return nil
}

func configureVM(vm *mo.VirtualMachine, spec *VM, host *Host, systemID string) {
	c := vm.Config
	c.Name, c.Uuid, c.InstanceUuid = spec.Name, spec.UUID, spec.InstanceUUID
	c.Version, c.Annotation = spec.HardwareVersion, spec.Annotation
	c.GuestId = string(types.VirtualMachineGuestOsIdentifierOtherLinux64Guest)
	c.GuestFullName = "Other Linux (64-bit)"
	c.Hardware.NumCPU, c.Hardware.MemoryMB = spec.CPUs, int32(spec.MemoryMB)
	c.Hardware.NumCoresPerSocket = types.NewInt32(1)
	c.CpuAllocation, c.MemoryAllocation = allocation(spec.Reservation.CPUMHz), allocation(*spec.Reservation.MemoryMB)
	c.MemoryReservationLockedToMax = types.NewBool(*spec.Reservation.MemoryMB == spec.MemoryMB)
	c.Hardware.Device = append(c.Hardware.Device, vmDevices(spec, host, systemID)...)

	sum := &vm.Summary.Config
	sum.Name, sum.Uuid, sum.InstanceUuid, sum.Annotation = spec.Name, spec.UUID, spec.InstanceUUID, spec.Annotation
	sum.NumCpu, sum.MemorySizeMB = spec.CPUs, int32(spec.MemoryMB)
	sum.GuestId, sum.GuestFullName = c.GuestId, c.GuestFullName
	sum.VmPathName = c.Files.VmPathName
}

func allocation(reserved int64) *types.ResourceAllocationInfo {
	return &types.ResourceAllocationInfo{
		Reservation: &reserved, ExpandableReservation: types.NewBool(false), Limit: types.NewInt64(-1),
		Shares: &types.SharesInfo{Shares: 1000, Level: types.SharesLevelNormal},
	}
}

func runVM(vm *mo.VirtualMachine, spec *VM, host types.ManagedObjectReference) {
	on := spec.Power == "on"
	vm.Runtime.PowerState = types.VirtualMachinePowerStatePoweredOff
	if on {
		vm.Runtime.PowerState = types.VirtualMachinePowerStatePoweredOn
	}
	vm.Runtime.Host = &host
	vm.Runtime.BootTime = bootTime(on)
	vm.Runtime.MaxCpuUsage, vm.Runtime.MaxMemoryUsage = spec.CPUs*2600, int32(spec.MemoryMB)
	mendEnums(vm)
	vm.Summary.Runtime = vm.Runtime
	guest := guestInfo(spec.Tools, spec.GuestHostName, spec.IPAddress, on)
	vm.Guest = guest
	vm.Summary.Guest = guestSummary(guest)
	vm.GuestHeartbeatStatus = types.ManagedEntityStatusGray
	if on && spec.Tools == toolsRunning {
		vm.GuestHeartbeatStatus = types.ManagedEntityStatusGreen
	}
}

// mendEnums fills two enums the simulator leaves empty: pyVmomi refuses the whole answer for them.
func mendEnums(vm *mo.VirtualMachine) {
	for _, r := range []*types.VirtualMachineRuntimeInfo{&vm.Runtime, &vm.Summary.Runtime} {
		r.FaultToleranceState = types.VirtualMachineFaultToleranceStateNotConfigured
		r.RecordReplayState = types.VirtualMachineRecordReplayStateInactive
	}
}

// guestInfo is what VMware Tools tell, which is next to nothing while they do not run.
func guestInfo(tools, hostName, ip string, on bool) *types.GuestInfo {
	g := &types.GuestInfo{
		ToolsVersion:        "12389",
		GuestState:          string(types.VirtualMachineGuestStateNotRunning),
		ToolsStatus:         types.VirtualMachineToolsStatusToolsNotRunning,
		ToolsRunningStatus:  string(types.VirtualMachineToolsRunningStatusGuestToolsNotRunning),
		ToolsVersionStatus:  string(types.VirtualMachineToolsVersionStatusGuestToolsUnmanaged),
		ToolsVersionStatus2: string(types.VirtualMachineToolsVersionStatusGuestToolsUnmanaged),
	}
	switch {
	case tools == toolsNotInstalled:
		g.ToolsVersion = "0"
		g.ToolsStatus = types.VirtualMachineToolsStatusToolsNotInstalled
		g.ToolsVersionStatus = string(types.VirtualMachineToolsVersionStatusGuestToolsNotInstalled)
		g.ToolsVersionStatus2 = g.ToolsVersionStatus
	case tools == toolsExecutingScripts && on:
		g.GuestState = string(types.VirtualMachineGuestStateRunning)
		g.ToolsStatus = types.VirtualMachineToolsStatusToolsOk
		g.ToolsRunningStatus = string(types.VirtualMachineToolsRunningStatusGuestToolsExecutingScripts)
	case tools == toolsRunning && on:
		g.GuestState = string(types.VirtualMachineGuestStateRunning)
		g.ToolsStatus = types.VirtualMachineToolsStatusToolsOk
		g.ToolsRunningStatus = string(types.VirtualMachineToolsRunningStatusGuestToolsRunning)
		g.HostName, g.IpAddress = hostName, ip
		g.GuestId = string(types.VirtualMachineGuestOsIdentifierOtherLinux64Guest)
		g.GuestFamily = string(types.VirtualMachineGuestOsFamilyLinuxGuest)
	}
	return g
}

func guestSummary(g *types.GuestInfo) *types.VirtualMachineGuestSummary {
	return &types.VirtualMachineGuestSummary{
		GuestId: g.GuestId, GuestFullName: g.GuestFullName, ToolsStatus: g.ToolsStatus,
		ToolsVersionStatus: g.ToolsVersionStatus, ToolsVersionStatus2: g.ToolsVersionStatus2,
		ToolsRunningStatus: g.ToolsRunningStatus, HostName: g.HostName, IpAddress: g.IpAddress,
	}
}
