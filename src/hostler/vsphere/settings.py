"""How vCenters are reached. Names and defaults are those of gpu-node-vsphere-maintenance-controller, exactly."""

from __future__ import annotations

from hostler.settings.model import AnySetting, Rule, Setting, Settings
from hostler.settings.readers import FINGERPRINTS, PATH, SWITCH, TEXT, seconds

SECTION = "maintenance"

VCENTER_HOST = Setting("VCENTER_HOST", TEXT, "", "Name or address of the vCenter. Unset: no maintenance.", SECTION)
VCENTER_USER = Setting("VCENTER_USER", TEXT, "", "User in that vCenter.", SECTION)
VCENTER_PASSWORD = Setting(
    "VCENTER_PASSWORD", TEXT, "", "Its password; environment or file only.", SECTION, secret=True
)
VCENTER_USER_FILE = Setting("VCENTER_USER_FILE", PATH, "", "File with the user, read at every login.", SECTION)
VCENTER_PASSWORD_FILE = Setting(
    "VCENTER_PASSWORD_FILE", PATH, "", "File with the password (a mounted Secret), read at every login.", SECTION
)
VCENTER_CA_BUNDLE = Setting("VCENTER_CA_BUNDLE", PATH, "", "CA bundle (PEM) to verify the vCenter with.", SECTION)
VCENTER_TLS_VERIFY = Setting("VCENTER_TLS_VERIFY", SWITCH, False, "Verify with the system's trust store.", SECTION)
VCENTER_CERTIFICATE_SHA256: Setting[tuple[str, ...]] = Setting(
    "VCENTER_CERTIFICATE_SHA256", FINGERPRINTS, (),
    "Connect only to a vCenter that shows one of these certificates; nothing is remembered then.", SECTION,
)  # fmt: skip
VCENTER_TLS_PIN = Setting(
    "VCENTER_TLS_PIN", SWITCH, True,
    "With no other TLS setting: remember the vCenter's certificate at the first contact and refuse another one. "
    "False: it is not verified.", SECTION,
)  # fmt: skip
VCENTERS_FILE = Setting("VCENTERS_FILE", PATH, "", "YAML file with further vCenters; see docs/vsphere.md.", SECTION)
POLL_INTERVAL_SECONDS = Setting(
    "POLL_INTERVAL_SECONDS",
    seconds(1),
    30.0,
    "Look at vCenter at least this often, even if it pushes nothing.",
    SECTION,
)

SETTINGS: tuple[AnySetting, ...] = (
    VCENTER_HOST, VCENTER_USER, VCENTER_PASSWORD, VCENTER_USER_FILE, VCENTER_PASSWORD_FILE, VCENTER_CA_BUNDLE,
    VCENTER_TLS_VERIFY, VCENTER_CERTIFICATE_SHA256, VCENTER_TLS_PIN, VCENTERS_FILE, POLL_INTERVAL_SECONDS,
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
