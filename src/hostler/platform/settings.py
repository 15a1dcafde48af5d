"""The settings of platform."""

from __future__ import annotations

from hostler.settings.model import AnySetting, Rule, Setting
from hostler.settings.readers import SWITCH, choice, seconds, whole

SECTION = "platform"

PLATFORM_WAY = Setting(
    "HOSTLER_PLATFORM_WAY",
    choice("auto", "apply", "unmanaged"),
    "auto",
    "How DaemonSets are kept on their platform. auto: by an admission policy where the API server has it, else by "
    "server-side apply (apply); unmanaged: so, and OpenShift's ClusterCSIDriver is set Unmanaged.",
    SECTION,
)
PLATFORM_STRICT = Setting(
    "HOSTLER_PLATFORM_STRICT", SWITCH, False, "Nodes without cloud integration count as a fault (Degraded).", SECTION
)
PLATFORM_REMOVE_TAINT = Setting(
    "HOSTLER_PLATFORM_REMOVE_TAINT",
    SWITCH,
    True,
    "Take the uninitialized taint from a node that no cloud provider will ever initialise.",
    SECTION,
)
PLATFORM_FIGHT_REVERTS = Setting(
    "HOSTLER_PLATFORM_FIGHT_REVERTS", whole(1, 100), 5, "So many reverts of the rule are a fight, and we stop.", SECTION
)
PLATFORM_FIGHT_SECONDS = Setting(
    "HOSTLER_PLATFORM_FIGHT_SECONDS", seconds(1), 600.0, "The time in which reverts are counted.", SECTION
)

SETTINGS: tuple[AnySetting, ...] = (
    PLATFORM_WAY, PLATFORM_STRICT, PLATFORM_REMOVE_TAINT, PLATFORM_FIGHT_REVERTS, PLATFORM_FIGHT_SECONDS,
)  # fmt: skip
RULES: tuple[Rule, ...] = ()
