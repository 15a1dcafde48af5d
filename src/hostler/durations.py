"""Durations as people write them: `90` seconds, `10m`, `1h30m`, `7d`. Pure."""

from __future__ import annotations

import re

UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
# Plain numbers only: `inf`, `nan` and `1e9` are spelling mistakes here, not wishes. The chart's schema has it too.
PATTERN = (
    r"[0-9]{1,9}(\.[0-9]{1,6})?"
    r"|[0-9]{1,6}d([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}(\.[0-9]{1,6})?s)?"
    r"|[0-9]{1,6}h([0-9]{1,6}m)?([0-9]{1,6}(\.[0-9]{1,6})?s)?"
    r"|[0-9]{1,6}m([0-9]{1,6}(\.[0-9]{1,6})?s)?"
    r"|[0-9]{1,9}(\.[0-9]{1,6})?s"
)
_WHOLE = re.compile(PATTERN)
_PART = re.compile(r"([0-9.]+)([dhms]?)")


def seconds_of(text: str) -> float:
    """The seconds a duration means. ValueError: it is none."""
    if not _WHOLE.fullmatch(text.strip()):
        raise ValueError(f"{text!r} is no duration; write for example 90, 10m or 1h30m")
    return round(sum(float(number) * UNITS[unit or "s"] for number, unit in _PART.findall(text)), 6)


def short(seconds: float) -> str:
    """The shortest spelling: `30d`, `1h30m`, `0.1s`."""
    left, parts = seconds, []
    for unit in ("d", "h", "m"):
        if number := int(left // UNITS[unit]):
            parts.append(f"{number}{unit}")
            left -= number * UNITS[unit]
    if left or not parts:
        parts.append(f"{left:.6f}".rstrip("0").rstrip(".") + "s")
    return "".join(parts)
