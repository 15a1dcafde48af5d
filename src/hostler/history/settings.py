"""The settings of the history."""

from __future__ import annotations

from urllib.parse import urlsplit

from hostler.settings.foundation import CLUSTER_NAME
from hostler.settings.model import AnySetting, Rule, Setting, Settings
from hostler.settings.readers import Reader, whole

SECTION = "history"
SCHEMES = ("postgresql", "postgres")


def _read_url(text: str) -> str:
    """A host is named once: an `@` in a password that is not written as %40 would make the rest of it a host name."""
    text = text.strip()
    if text:
        parts = urlsplit(text)
        named = parts.hostname or "host=" in parts.query
        if parts.scheme not in SCHEMES or not named or parts.netloc.count("@") > 1 or parts.fragment:
            raise ValueError
    return text


HISTORY_URL = Setting(
    "HOSTLER_HISTORY_URL",
    Reader("a URL as postgresql://USER:PASSWORD@HOST/DATABASE, special characters of the password as %XX", _read_url),
    "",
    "PostgreSQL that keeps the history, with TLS options (docs/history.md). Unset: ConfigMaps of the operator.",
    SECTION,
    secret=True,
)
HISTORY_DAYS = Setting(
    "HOSTLER_HISTORY_DAYS",
    whole(1, 36500),
    730,
    "Days that entries are kept; in ConfigMaps never more than 30.",
    SECTION,
)

SETTINGS: tuple[AnySetting, ...] = (HISTORY_URL, HISTORY_DAYS)


def _has_a_name(settings: Settings) -> str | None:
    """Two clusters that are called alike would continue each other's entries."""
    if settings[HISTORY_URL] and not settings.given(CLUSTER_NAME):
        return f"{HISTORY_URL.name} is set, so {CLUSTER_NAME.name} must be: clusters that share a table differ by it."
    return None


RULES: tuple[Rule, ...] = (_has_a_name,)
