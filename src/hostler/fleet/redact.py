"""Takes secrets out of what leaves the house. Pure. What may be one counts as one: a bundle is sent to strangers."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

HIDDEN: Final = "(removed)"
# A key that is named like a secret holds one, whatever its value looks like.
_NAMED = re.compile(r"(?i)passw|secret|token|credential|private.?key|api.?key|cookie|authorization|kubeconfig")
# Names that only speak of secrets: a reference, a count, a time.
_HARMLESS = re.compile(r"(?i)(name|refs?|seconds|file|count|type|kind)$")
_SHAPES = (
    re.compile(r"-----BEGIN [A-Z ]+-----.*?(-----END [A-Z ]+-----|\Z)", re.S),
    re.compile(r"\beyJ[\w-]{5,}\.[\w-]{5,}\.[\w-]*"),  # a JWT
    re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}"),
    re.compile(r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"),  # user:password@ in a URL
    re.compile(r"\b[a-z0-9]{6}\.[a-z0-9]{16}\b"),  # a bootstrap token
    re.compile(r"(?i)(?<=password[=:])\S+"),
)
# Shorter ones are words too; hiding every "admin" would hide the sentence.
_SHORTEST = 6


def redact_text(text: str, secrets: Collection[str] = ()) -> str:
    """Known secrets wherever they stand, and whatever has the shape of one."""
    for secret in sorted((one for one in secrets if len(one) >= _SHORTEST), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    for shape in _SHAPES:
        text = shape.sub(HIDDEN, text)
    return text


def redact(data: Any, secrets: Collection[str] = ()) -> Any:
    """The same for objects as they come from the API server; environment values go whatever their name is."""
    match data:
        case str():
            return redact_text(data, secrets)
        case Mapping():
            kind = str(data.get("kind", ""))
            return {key: _value(kind, str(key), value, secrets) for key, value in data.items()}
        case list() | tuple():
            return [redact(one, secrets) for one in data]
        case _:
            return data


def _value(kind: str, key: str, value: Any, secrets: Collection[str]) -> Any:
    if key == "managedFields":
        return None  # who wrote what is noise here, and it repeats every key
    if kind == "Secret" and key in ("data", "stringData"):
        return dict.fromkeys(value, HIDDEN) if isinstance(value, Mapping) else HIDDEN
    if key == "env" and isinstance(value, list):
        return [{**redact(one, secrets), **({"value": HIDDEN} if "value" in one else {})} for one in value]
    if key == "last-applied-configuration" or key.endswith("/last-applied-configuration"):
        return HIDDEN  # a whole object as text, with its environment
    if isinstance(value, str) and value and _NAMED.search(key) and not _HARMLESS.search(key):
        return HIDDEN
    return redact(value, secrets)
