"""SHA-256 fingerprints of certificates, in the one form that Hostler shows and compares: `AB:CD:...`."""

from __future__ import annotations

import re
from hashlib import sha256

_PLAIN = re.compile(r"[0-9a-f]{64}")


def read_fingerprint(text: str) -> str:
    """From what vCenter, openssl and browsers print: any case, with or without colons. Raises ValueError."""
    plain = re.sub(r"[: ]", "", text.strip().lower().removeprefix("sha256:"))
    if not _PLAIN.fullmatch(plain):
        raise ValueError(text)
    return bytes.fromhex(plain).hex(":").upper()


def read_fingerprints(text: str) -> tuple[str, ...]:
    """The same for a list that is separated by commas; each once. Raises ValueError."""
    return tuple(dict.fromkeys(read_fingerprint(one) for one in text.split(",") if one.strip()))


def fingerprint_of(der: bytes) -> str:
    """Of a certificate in DER form."""
    return sha256(der).digest().hex(":").upper()
