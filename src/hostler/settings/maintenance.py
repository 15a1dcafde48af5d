"""The settings of maintenance: names and defaults of seed 002, exactly, and two of our own."""

from __future__ import annotations

from hostler.settings.model import AnySetting, Rule, Setting, Settings
from hostler.settings.readers import FINGERPRINTS, PATH, SELECTOR, SWITCH, TEXT, choice, seconds, whole

ROOM = "maintenance"

VCENTER_HOST = Setting("VCENTER_HOST", TEXT, "", "Name or address of the vCenter. Unset: no maintenance.", ROOM)
VCENTER_USER = Setting("VCENTER_USER", TEXT, "", "User in that vCenter.", ROOM)
VCENTER_PASSWORD = Setting("VCENTER_PASSWORD", TEXT, "", "Its password; environment or file only.", ROOM, secret=True)
VCENTER_USER_FILE = Setting("VCENTER_USER_FILE", PATH, "", "File with the user, read at every login.", ROOM)
VCENTER_PASSWORD_FILE = Setting(
    "VCENTER_PASSWORD_FILE", PATH, "", "File with the password (a mounted Secret), read at every login.", ROOM
)
VCENTER_CA_BUNDLE = Setting("VCENTER_CA_BUNDLE", PATH, "", "CA bundle (PEM) to verify the vCenter with.", ROOM)
VCENTER_TLS_VERIFY = Setting("VCENTER_TLS_VERIFY", SWITCH, False, "Verify with the system's trust store.", ROOM)
VCENTER_CERTIFICATE_SHA256: Setting[tuple[str, ...]] = Setting(
    "VCENTER_CERTIFICATE_SHA256", FINGERPRINTS, (),
    "Connect only to a vCenter that shows one of these certificates; nothing is remembered then.", ROOM,
)  # fmt: skip
VCENTER_TLS_PIN = Setting(
    "VCENTER_TLS_PIN", SWITCH, True,
    "With no other TLS setting: remember the vCenter's certificate at the first contact and refuse another one. "
    "False: it is not verified.", ROOM,
)  # fmt: skip
VCENTERS_FILE = Setting("VCENTERS_FILE", PATH, "", "YAML file with further vCenters; see docs/vsphere.md.", ROOM)
GPU_NODE_LABEL = Setting(
    "GPU_NODE_LABEL", SELECTOR, "intel.feature.node.kubernetes.io/gpu=true", "Selects the nodes to look after.", ROOM
)
POLL_INTERVAL_SECONDS = Setting(
    "POLL_INTERVAL_SECONDS", seconds(1), 30.0, "Look at vCenter at least this often, even if it pushes nothing.", ROOM
)
GUEST_SHUTDOWN_TIMEOUT_SECONDS = Setting(
    "GUEST_SHUTDOWN_TIMEOUT_SECONDS", seconds(0), 120.0, "Wait for the guest to shut down before powering off.", ROOM
)
POWER_ON_TIMEOUT_SECONDS = Setting(
    "POWER_ON_TIMEOUT_SECONDS", seconds(1), 300.0, "Wait for a started VM's node to become Ready.", ROOM
)
RELOCATE_TIMEOUT_SECONDS = Setting(
    "RELOCATE_TIMEOUT_SECONDS", seconds(1), 600.0, "Cancel the move of a stopped VM after this.", ROOM
)
MAINTENANCE_CLUSTERS = Setting(
    "HOSTLER_MAINTENANCE_CLUSTERS", TEXT, "", "Further clusters a stopped VM may move to, separated by commas.", ROOM
)
MAINTENANCE_VGPU_VMOTION = Setting(
    "HOSTLER_MAINTENANCE_VGPU_VMOTION", SWITCH, True,
    "DRS can move a running VM that has a vGPU: it gets a minute for that. False: its node is drained at once.", ROOM,
)  # fmt: skip
MAINTENANCE_STOP_ONLY_PROVEN = Setting(
    "HOSTLER_MAINTENANCE_STOP_ONLY_PROVEN", SWITCH, False,
    "Stop no VM whose return Hostler's own model doubts (logical CPUs, memory, devices, networks, a right to move it).",
    ROOM,
)  # fmt: skip
SKIP_REMEDIATION = Setting(
    "HOSTLER_MAINTENANCE_SKIP_REMEDIATION", SWITCH, False,
    "Annotate the Cluster API Machine of a node in maintenance, if it is in this cluster, so that no "
    "MachineHealthCheck replaces it.", ROOM,
)  # fmt: skip
UNKNOWN_RIGHTS_HOLD = Setting(
    "HOSTLER_MAINTENANCE_UNKNOWN_RIGHTS_HOLD", SWITCH, False,
    "Stop no VM while vCenter will not say what our user may do; unset: go on after 60 s.", ROOM,
)  # fmt: skip
PROVEN, BY_UUID = "proven", "uuid"
VM_IDENTITY = Setting(
    "HOSTLER_VM_IDENTITY", choice(PROVEN, BY_UUID), PROVEN,
    "Which VM a node is. proven: by an attribute or a mark in vCenter, by a Machine, or by UUID and name. uuid: also "
    "by the UUID alone that its kubelet reports; a stolen kubelet can then have another VM stopped.", ROOM,
)  # fmt: skip
MAX_CONCURRENT_DRAINS = Setting("MAX_CONCURRENT_DRAINS", whole(1), 1, "Nodes drained at the same time.", ROOM)

SETTINGS: tuple[AnySetting, ...] = (
    VCENTER_HOST, VCENTER_USER, VCENTER_PASSWORD, VCENTER_USER_FILE, VCENTER_PASSWORD_FILE, VCENTER_CA_BUNDLE,
    VCENTER_TLS_VERIFY, VCENTER_CERTIFICATE_SHA256, VCENTER_TLS_PIN, VCENTERS_FILE, GPU_NODE_LABEL,
    POLL_INTERVAL_SECONDS, GUEST_SHUTDOWN_TIMEOUT_SECONDS, POWER_ON_TIMEOUT_SECONDS, RELOCATE_TIMEOUT_SECONDS,
    MAX_CONCURRENT_DRAINS, MAINTENANCE_CLUSTERS, MAINTENANCE_STOP_ONLY_PROVEN, MAINTENANCE_VGPU_VMOTION,
    SKIP_REMEDIATION, UNKNOWN_RIGHTS_HOLD, VM_IDENTITY,
)  # fmt: skip


def _whole_vcenter(settings: Settings) -> str | None:
    if settings[VCENTER_HOST]:
        either = ((VCENTER_USER, VCENTER_USER_FILE), (VCENTER_PASSWORD, VCENTER_PASSWORD_FILE))
        missing = [value.name for value, file in either if not settings[value] and not settings[file]]
        if missing:
            lacks = f"{' and '.join(missing)} {'are' if len(missing) > 1 else 'is'} not"
            return f"VCENTER_HOST is set ({settings.source(VCENTER_HOST)}), but {lacks}."
    return None


RULES: tuple[Rule, ...] = (_whole_vcenter,)
