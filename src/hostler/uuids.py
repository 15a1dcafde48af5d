"""UUIDs of machines in one spelling.

A machine's UUID comes in two spellings: SMBIOS stores the first three fields little-endian, and firmware, guest
kernels and vCenter disagree on whether to swap them. So UUIDs are equal if they are equal in either byte order.
"""

from __future__ import annotations

import re

_HEX = re.compile(r"[0-9a-f]{32}")
# What firmware says when nobody gave the machine a UUID: "not present", "not settable", and the example of a firmware
# vendor, which boards of many makers share.
_NOBODY = frozenset({"0" * 32, "f" * 32, "03000200040005000006000700080009", "00020003000400050006000700080009"})


def normalise(text: str) -> str | None:
    """The 32 lower-case digits of a UUID in any spelling; None where it is none or stands for "not set"."""
    bare = text.strip().lower().removeprefix("urn:uuid:").strip("{}").replace("-", "").replace(" ", "")
    return bare if _HEX.fullmatch(bare) and bare not in _NOBODY else None


def swapped(digits: str) -> str:
    """The same UUID with the SMBIOS byte order of its first three fields turned round."""
    raw = bytes.fromhex(digits)
    return (raw[3::-1] + raw[5:3:-1] + raw[7:5:-1] + raw[8:]).hex()


def canonical(text: str) -> str | None:
    """One spelling for both byte orders, to index machines by: the smaller of the two."""
    digits = normalise(text)
    return None if digits is None else min(digits, swapped(digits))


def same_uuid(one: str, other: str) -> bool:
    """Equal in either byte order. Two that are not set are not equal."""
    found = canonical(one)
    return found is not None and found == canonical(other)
