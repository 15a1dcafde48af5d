"""The settings of reclaim."""

from __future__ import annotations

from hostler.settings.model import AnySetting, Rule, Setting, Settings
from hostler.settings.readers import ADDRESS, PATH, SWITCH, TEXT, URL, Address, seconds, whole

ROOM = "reclaim"

HUB_URL = Setting(
    "HUB_URL", URL, "", "How hosts reach the hub's step API. Without it no host is returned to discovery.", ROOM
)
HUB_CA = Setting(
    "HUB_CA", PATH, "", "PEM file with the certificates agents trust for the hub. Unset: their system's own.", ROOM
)
HUB_ADDRESS = Setting(
    "HOSTLER_HUB_ADDRESS", ADDRESS, Address("127.0.0.1", 8090), "Where the hub's step API is served.", ROOM
)
HUB_CERTIFICATE = Setting(
    "HOSTLER_HUB_CERTIFICATE", PATH, "", "PEM file with the hub's certificate; read again when it changes.", ROOM
)
HUB_KEY = Setting("HOSTLER_HUB_KEY", PATH, "", "PEM file with the key of the hub's certificate.", ROOM)
HUB_CONNECTIONS = Setting(
    "HOSTLER_HUB_CONNECTIONS",
    whole(64, 100_000),
    2000,
    "Connections of hosts at once. Who has been without a request for longest makes room for a new one.",
    ROOM,
)
HUB_ARTIFACTS = Setting(
    "HOSTLER_HUB_ARTIFACTS",
    PATH,
    "",
    "Directory with boot artifacts, as INFRAENV-UID/kernel, initrd and rootfs. Unset: as each InfraEnv says.",
    ROOM,
)
AGENT_IMAGE = Setting("AGENT_IMAGE", TEXT, "", "Image of the agent on a node. Unset: the operator's own.", ROOM)
RECLAIM_TIMEOUT_SECONDS = Setting(
    "HOSTLER_RECLAIM_TIMEOUT_SECONDS", seconds(1), 3600.0, "The longest a host may be `reclaiming`.", ROOM
)
RECLAIM_REBOOT_TIMEOUT_SECONDS = Setting(
    "HOSTLER_RECLAIM_REBOOT_TIMEOUT_SECONDS",
    seconds(1),
    1800.0,
    "The longest a host may be `reclaiming-rebooting`.",
    ROOM,
)
RECLAIM_PATIENCE_SECONDS = Setting(
    "HOSTLER_RECLAIM_PATIENCE_SECONDS",
    seconds(0),
    600.0,
    "How long the old cluster may be silent before its host is left to people.",
    ROOM,
)
RECLAIM_DRAIN = Setting(
    "HOSTLER_RECLAIM_DRAIN", SWITCH, False, "Empty the node first; what cannot be emptied is not restarted.", ROOM
)
RECLAIM_REMOVE_NODE = Setting(
    "HOSTLER_RECLAIM_REMOVE_NODE",
    SWITCH,
    False,
    "Delete the Node of the old cluster once its host is elsewhere; never that of a control-plane node.",
    ROOM,
)
RECLAIM_REQUIRE_ONE_SHOT = Setting(
    "HOSTLER_RECLAIM_REQUIRE_ONE_SHOT",
    SWITCH,
    False,
    "Refuse a host whose boot loader cannot start discovery for one boot only.",
    ROOM,
)
RECLAIM_CLEAN_BOOT = Setting(
    "HOSTLER_RECLAIM_CLEAN_BOOT",
    SWITCH,
    False,
    "Where /boot lacks room, remove the host's rollback deployment (`rpm-ostree cleanup --rollback`).",
    ROOM,
)
RECLAIM_WORKERS = Setting("HOSTLER_RECLAIM_WORKERS", whole(1, 100), 8, "Hosts looked at side by side.", ROOM)

SETTINGS: tuple[AnySetting, ...] = (
    HUB_URL, HUB_CA, HUB_ADDRESS, HUB_CERTIFICATE, HUB_KEY, HUB_CONNECTIONS, HUB_ARTIFACTS, AGENT_IMAGE,
    RECLAIM_TIMEOUT_SECONDS, RECLAIM_REBOOT_TIMEOUT_SECONDS, RECLAIM_PATIENCE_SECONDS, RECLAIM_DRAIN,
    RECLAIM_REMOVE_NODE, RECLAIM_REQUIRE_ONE_SHOT, RECLAIM_CLEAN_BOOT, RECLAIM_WORKERS,
)  # fmt: skip


def _pair(settings: Settings) -> str | None:
    """A certificate without its key, or the other way round, serves nothing."""
    if bool(settings[HUB_CERTIFICATE]) == bool(settings[HUB_KEY]):
        return None
    given, missing = (HUB_CERTIFICATE, HUB_KEY) if settings[HUB_CERTIFICATE] else (HUB_KEY, HUB_CERTIFICATE)
    return f"{given.name} ({settings.source(given)}) needs {missing.name} beside it: a certificate and its key."


RULES: tuple[Rule, ...] = (_pair,)
