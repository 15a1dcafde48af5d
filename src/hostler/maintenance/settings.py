"""The settings of maintenance, and those of the vCenters it asks."""

from __future__ import annotations

from hostler.settings.model import AnySetting, Rule, Setting
from hostler.settings.readers import SELECTOR, SWITCH, TEXT, choice, seconds, whole
from hostler.vsphere import settings as vsphere

SECTION = "maintenance"

GPU_NODE_LABEL = Setting(
    "GPU_NODE_LABEL", SELECTOR, "intel.feature.node.kubernetes.io/gpu=true", "Selects the managed nodes.", SECTION
)
GUEST_SHUTDOWN_TIMEOUT_SECONDS = Setting(
    "GUEST_SHUTDOWN_TIMEOUT_SECONDS", seconds(0), 120.0, "Wait for the guest to shut down before powering off.", SECTION
)
POWER_ON_TIMEOUT_SECONDS = Setting(
    "POWER_ON_TIMEOUT_SECONDS", seconds(1), 300.0, "Wait for a started VM's node to become Ready.", SECTION
)
RELOCATE_TIMEOUT_SECONDS = Setting(
    "RELOCATE_TIMEOUT_SECONDS", seconds(1), 600.0, "Cancel the move of a stopped VM after this.", SECTION
)
MAINTENANCE_CLUSTERS = Setting(
    "HOSTLER_MAINTENANCE_CLUSTERS", TEXT, "", "Further clusters a stopped VM may move to, separated by commas.", SECTION
)
MAINTENANCE_VGPU_VMOTION = Setting(
    "HOSTLER_MAINTENANCE_VGPU_VMOTION", SWITCH, True,
    "DRS can move a running VM that has a vGPU: it gets a minute for that. False: its node is drained at once.",
    SECTION,
)  # fmt: skip
MAINTENANCE_STOP_ONLY_PROVEN = Setting(
    "HOSTLER_MAINTENANCE_STOP_ONLY_PROVEN", SWITCH, False,
    "Stop no VM whose return Hostler's own model doubts (logical CPUs, memory, devices, networks, a right to move it).",
    SECTION,
)  # fmt: skip
SKIP_REMEDIATION = Setting(
    "HOSTLER_MAINTENANCE_SKIP_REMEDIATION", SWITCH, False,
    "Annotate the Cluster API Machine of a node in maintenance, if it is in this cluster, so that no "
    "MachineHealthCheck replaces it.", SECTION,
)  # fmt: skip
UNKNOWN_RIGHTS_HOLD = Setting(
    "HOSTLER_MAINTENANCE_UNKNOWN_RIGHTS_HOLD", SWITCH, False,
    "Stop no VM while vCenter will not say what our user may do; unset: go on after 60 s.", SECTION,
)  # fmt: skip
PROVEN, BY_UUID = "proven", "uuid"
VM_IDENTITY = Setting(
    "HOSTLER_VM_IDENTITY", choice(PROVEN, BY_UUID), PROVEN,
    "Which VM a node is. proven: by an attribute or a mark in vCenter, by a Machine, or by UUID and name. uuid: also "
    "by the UUID alone that its kubelet reports; a stolen kubelet can then have another VM stopped.", SECTION,
)  # fmt: skip
MAX_CONCURRENT_DRAINS = Setting("MAX_CONCURRENT_DRAINS", whole(1), 1, "Nodes drained at the same time.", SECTION)

SETTINGS: tuple[AnySetting, ...] = (
    *vsphere.SETTINGS, GPU_NODE_LABEL, GUEST_SHUTDOWN_TIMEOUT_SECONDS, POWER_ON_TIMEOUT_SECONDS,
    RELOCATE_TIMEOUT_SECONDS, MAX_CONCURRENT_DRAINS, MAINTENANCE_CLUSTERS, MAINTENANCE_STOP_ONLY_PROVEN,
    MAINTENANCE_VGPU_VMOTION, SKIP_REMEDIATION, UNKNOWN_RIGHTS_HOLD, VM_IDENTITY,
)  # fmt: skip
RULES: tuple[Rule, ...] = vsphere.RULES
