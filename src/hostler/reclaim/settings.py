"""The settings of reclaim."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from hostler.settings.foundation import ONLY
from hostler.settings.model import AnySetting, Rule, Setting, Settings
from hostler.settings.readers import ADDRESS, PATH, SWITCH, TEXT, URL, Address, Reader, each, seconds, whole

SECTION = "reclaim"
_NAMESPACES: Reader[tuple[str, ...]] = each(
    re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"), "a comma-separated list of namespaces"
)
_HOSTS: Reader[tuple[str, ...]] = each(
    re.compile(r"(\[[0-9a-f:.]{2,45}\]|[a-z0-9]([a-z0-9._-]{0,251}[a-z0-9])?)(:[0-9]{1,5})?"),
    "a comma-separated list of HOST or HOST:PORT in lower case, an IPv6 host in brackets",
)
_ARGUMENTS: Reader[tuple[str, ...]] = each(
    re.compile(r"[A-Za-z0-9][-A-Za-z0-9_.]{0,62}"), "a comma-separated list of names of kernel arguments"
)

HUB_URL = Setting(
    "HUB_URL", URL, "", "How hosts reach the hub's step API. Without it no host is returned to discovery.", SECTION
)
HUB_PLAIN_HTTP = Setting(
    "HOSTLER_HUB_PLAIN_HTTP",
    SWITCH,
    False,
    "Accept a HUB_URL with http://: anyone on the network path reads the tokens of hosts and chooses what they boot.",
    SECTION,
)
HUB_CA = Setting(
    "HUB_CA", PATH, "", "PEM file with the certificates agents trust for the hub. Unset: their system's own.", SECTION
)
HUB_ADDRESS = Setting(
    "HOSTLER_HUB_ADDRESS", ADDRESS, Address("127.0.0.1", 8090), "Where the hub's step API is served.", SECTION
)
HUB_CERTIFICATE = Setting(
    "HOSTLER_HUB_CERTIFICATE", PATH, "", "PEM file with the hub's certificate; read again when it changes.", SECTION
)
HUB_KEY = Setting("HOSTLER_HUB_KEY", PATH, "", "PEM file with the key of the hub's certificate.", SECTION)
HUB_CONNECTIONS = Setting(
    "HOSTLER_HUB_CONNECTIONS",
    whole(64, 100_000),
    2000,
    "Connections of hosts at once. At the limit, the one that has been idle for longest is closed for a new one.",
    SECTION,
)
HUB_ARTIFACTS = Setting(
    "HOSTLER_HUB_ARTIFACTS",
    PATH,
    "",
    "Directory with boot artifacts, as INFRAENV-UID/kernel, initrd and rootfs. Unset: as each InfraEnv says.",
    SECTION,
)
AGENT_IMAGE = Setting("AGENT_IMAGE", TEXT, "", "Image of the agent on a node. Unset: the operator's own.", SECTION)
RECLAIM_TIMEOUT_SECONDS = Setting(
    "HOSTLER_RECLAIM_TIMEOUT_SECONDS", seconds(1), 3600.0, "The longest a host may be `reclaiming`.", SECTION
)
RECLAIM_REBOOT_TIMEOUT_SECONDS = Setting(
    "HOSTLER_RECLAIM_REBOOT_TIMEOUT_SECONDS",
    seconds(1),
    1800.0,
    "The longest a host may be `reclaiming-rebooting`.",
    SECTION,
)
RECLAIM_PATIENCE_SECONDS = Setting(
    "HOSTLER_RECLAIM_PATIENCE_SECONDS",
    seconds(0),
    600.0,
    "How long the old cluster may be silent before its host is left to people.",
    SECTION,
)
RECLAIM_DRAIN = Setting(
    "HOSTLER_RECLAIM_DRAIN", SWITCH, False, "Empty the node first; what cannot be emptied is not restarted.", SECTION
)
RECLAIM_REMOVE_NODE = Setting(
    "HOSTLER_RECLAIM_REMOVE_NODE",
    SWITCH,
    False,
    "Delete the Node of the old cluster once its host is elsewhere; never that of a control-plane node.",
    SECTION,
)
RECLAIM_REQUIRE_ONE_SHOT = Setting(
    "HOSTLER_RECLAIM_REQUIRE_ONE_SHOT",
    SWITCH,
    False,
    "Refuse a host whose boot loader cannot start discovery for one boot only.",
    SECTION,
)
RECLAIM_CLEAN_BOOT = Setting(
    "HOSTLER_RECLAIM_CLEAN_BOOT",
    SWITCH,
    False,
    "Where /boot lacks room, remove the host's rollback deployment (`rpm-ostree cleanup --rollback`).",
    SECTION,
)
RECLAIM_INVENTORIES = Setting(
    "HOSTLER_RECLAIM_INVENTORIES",
    _NAMESPACES,
    (),
    "Namespaces whose Agents may be hosts of clusters in every namespace. A user who may write Agents there can return "
    "the hosts of every cluster.",
    SECTION,
)
RECLAIM_ARTIFACT_HOSTS = Setting(
    "HOSTLER_RECLAIM_ARTIFACT_HOSTS",
    _HOSTS,
    (),
    "Hosts from which boot artifacts are accepted by plain HTTP and without a hash.",
    SECTION,
)
RECLAIM_KERNEL_ARGUMENTS = Setting(
    "HOSTLER_RECLAIM_KERNEL_ARGUMENTS",
    _ARGUMENTS,
    (),
    "Kernel arguments that an InfraEnv may set, beside consoles, the network and fips. A name that ends in a dot "
    "stands for every argument that begins with it.",
    SECTION,
)
RECLAIM_WORKERS = Setting(
    "HOSTLER_RECLAIM_WORKERS", whole(1, 100), 8, "How many hosts are reconciled at once.", SECTION
)

SETTINGS: tuple[AnySetting, ...] = (
    HUB_URL, HUB_PLAIN_HTTP, HUB_CA, HUB_ADDRESS, HUB_CERTIFICATE, HUB_KEY, HUB_CONNECTIONS, HUB_ARTIFACTS, AGENT_IMAGE,
    RECLAIM_TIMEOUT_SECONDS, RECLAIM_REBOOT_TIMEOUT_SECONDS, RECLAIM_PATIENCE_SECONDS, RECLAIM_DRAIN,
    RECLAIM_REMOVE_NODE, RECLAIM_REQUIRE_ONE_SHOT, RECLAIM_CLEAN_BOOT, RECLAIM_INVENTORIES,
    RECLAIM_ARTIFACT_HOSTS, RECLAIM_KERNEL_ARGUMENTS, RECLAIM_WORKERS,
)  # fmt: skip


def _pair(settings: Settings) -> str | None:
    """A certificate without its key, or the other way round, serves nothing."""
    if bool(settings[HUB_CERTIFICATE]) == bool(settings[HUB_KEY]):
        return None
    given, missing = (HUB_CERTIFICATE, HUB_KEY) if settings[HUB_CERTIFICATE] else (HUB_KEY, HUB_CERTIFICATE)
    return f"{given.name} ({settings.source(given)}) needs {missing.name} beside it: a certificate and its key."


def _encrypted(settings: Settings) -> str | None:
    """By plain HTTP anyone on the network path reads a host's token, and tells it what to boot.

    Without reclaim nothing is served, and no host gets the address.
    """
    if SECTION not in settings[ONLY] or urlsplit(settings[HUB_URL]).scheme != "http" or settings[HUB_PLAIN_HTTP]:
        return None
    return (
        f"{HUB_URL.name} ({settings.source(HUB_URL)}) is plain HTTP: anyone on the network path reads the tokens of "
        f"hosts and chooses what they boot. Use https://, or accept that with {HUB_PLAIN_HTTP.name}=true."
    )


RULES: tuple[Rule, ...] = (_pair, _encrypted)
