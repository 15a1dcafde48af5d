"""How the text of a setting becomes a value. A reader that refuses says nothing itself: `allowed` says it all."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar
from urllib.parse import urlsplit

from hostler.durations import PATTERN as DURATION
from hostler.durations import seconds_of, short
from hostler.fingerprints import read_fingerprints
from hostler.selectors import PATTERN, parse_selector

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reader(Generic[T]):
    """Reads one kind of value. `read` raises ValueError on anything that `allowed` does not describe."""

    allowed: str  # ends the sentence "... must be"
    read: Callable[[str], T]
    show: Callable[[T], str] = str
    words: tuple[str, ...] = ()  # all possible values, where they can be listed: for completion
    switch: bool = False  # a flag pair --x/--no-x instead of --x VALUE
    metavar: str = "TEXT"
    # For the chart's schema of values: of a number, and of a text that is not any text.
    bounds: tuple[float, float | None] | None = None
    whole: bool = False
    pattern: str = ""


@dataclass(frozen=True, slots=True)
class Address:
    """Where we listen. An empty host is every interface; port 0 is any free port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


_TRUE = ("true", "yes", "on", "1")
_FALSE = ("false", "no", "off", "0")


def _read_switch(text: str) -> bool:
    word = text.strip().lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise ValueError


SWITCH: Reader[bool] = Reader(
    "true or false", _read_switch, lambda on: "true" if on else "false", words=("true", "false"), switch=True
)
TEXT: Reader[str] = Reader("any text", lambda text: text)
PATH: Reader[str] = Reader("the path of a file", lambda text: text, metavar="FILE")


def choice(*words: str) -> Reader[str]:
    """One of a few words."""

    def read(text: str) -> str:
        if text not in words:
            raise ValueError
        return text

    return Reader(f"one of {', '.join(words)}", read, words=words, metavar="|".join(words))


def names(known: tuple[str, ...]) -> Reader[tuple[str, ...]]:
    """A list of known words, separated by commas; kept in the order of `known`, each once."""

    def read(text: str) -> tuple[str, ...]:
        given = {word.strip() for word in text.split(",") if word.strip()}
        if not given <= set(known):
            raise ValueError
        return tuple(word for word in known if word in given)

    word = f" *({'|'.join(known)})? *"
    allowed = f"a comma-separated list of {', '.join(known)}"
    return Reader(allowed, read, ",".join, words=known, metavar="A,B", pattern=f"{word}(,{word})*")


def each(word: re.Pattern[str], allowed: str) -> Reader[tuple[str, ...]]:
    """A list of words of one pattern, separated by commas, each once."""

    def read(text: str) -> tuple[str, ...]:
        given = tuple(dict.fromkeys(one.strip() for one in text.split(",") if one.strip()))
        if not all(word.fullmatch(one) for one in given):
            raise ValueError
        return given

    return Reader(allowed, read, ",".join, metavar="A,B")


def whole(least: int, most: int | None = None) -> Reader[int]:
    """A whole number within bounds."""

    def read(text: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", text.strip()):
            raise ValueError
        number = int(text)
        if number < least or (most is not None and number > most):
            raise ValueError
        return number

    bounds = f"of at least {least}" if most is None else f"from {least} to {most}"
    return Reader(f"a whole number {bounds}", read, metavar="N", bounds=(least, most), whole=True)


def seconds(least: float, *, most: float = 30 * 86400) -> Reader[float]:
    """A duration, in seconds or with units."""

    def read(text: str) -> float:
        number = _duration(text)
        if not least <= number <= most:
            raise ValueError
        return number

    return Reader(_durations(least, most), read, _plain, metavar="DURATION", bounds=(least, most), pattern=DURATION)


def whole_seconds(least: int, most: int) -> Reader[int]:
    """A duration of whole seconds: what an API object has as an integer."""

    def read(text: str) -> int:
        number = _duration(text)
        if not least <= number <= most or number != int(number):
            raise ValueError
        return int(number)

    allowed = f"{_durations(least, most)}, in whole seconds"
    return Reader(allowed, read, metavar="DURATION", bounds=(least, most), whole=True, pattern=DURATION)


def _duration(text: str) -> float:
    try:
        return seconds_of(text)
    except ValueError:
        raise ValueError from None  # what is allowed is said by the reader


def _durations(least: float, most: float) -> str:
    return f"a duration from {short(least)} to {short(most)}: seconds, or as 10m or 1h30m"


def rate(least: float, most: float) -> Reader[float]:
    """So many per second."""

    def read(text: str) -> float:
        if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,6})?", text.strip()):
            raise ValueError
        number = float(text)
        if not least <= number <= most:
            raise ValueError
        return number

    return Reader(f"a number from {_plain(least)} to {_plain(most)}", read, _plain, metavar="N", bounds=(least, most))


def _plain(number: float) -> str:
    """2592000, not 2.592e+06: as it would be written into a setting."""
    return f"{number:.6f}".rstrip("0").rstrip(".")


_LIMIT = "[0-9]{1,9}|(100|[1-9]?[0-9])%|"


def _read_limit(text: str) -> str:
    text = text.strip()
    if not re.fullmatch(_LIMIT, text):
        raise ValueError
    return text


# Kept as text: `host.ceiling.parse_limit` gives it its meaning, and the same for Fleet.spec.maxUnavailable.
LIMIT: Reader[str] = Reader(
    "a number of nodes (3) or a percentage from 0% to 100%",
    _read_limit,
    lambda text: text or "50%, at least 2",
    metavar="N|N%",
    pattern=_LIMIT,
)


def _read_address(text: str) -> Address:
    host, colon, port = text.strip().rpartition(":")
    if not colon or not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65535:
        raise ValueError
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError  # ::1:8080 could be read in two ways
    if not re.fullmatch(r"[A-Za-z0-9.:%_-]*", host):
        raise ValueError
    return Address(host, int(port))


ADDRESS: Reader[Address] = Reader(
    "HOST:PORT with a port from 0 to 65535, an IPv6 host in brackets, an empty host for every interface",
    _read_address,
    metavar="HOST:PORT",
)


def _read_url(text: str) -> str:
    text = text.strip().rstrip("/")
    parts = urlsplit(text)
    if text and (parts.scheme not in ("http", "https") or not parts.hostname):
        raise ValueError
    return text


URL: Reader[str] = Reader("a URL that starts with http:// or https://", _read_url, metavar="URL")

_LABEL = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"


_WHOLE_LABEL = rf"([a-z0-9.-]{{1,253}}/)?{_LABEL}(=({_LABEL})?)?"


def _read_label(text: str) -> str:
    text = text.strip()
    if not re.fullmatch(_WHOLE_LABEL, text):
        raise ValueError
    return text


LABEL: Reader[str] = Reader("a label as KEY=VALUE or KEY", _read_label, metavar="KEY=VALUE", pattern=_WHOLE_LABEL)


def _read_selector(text: str) -> str:
    text = text.strip()
    if not parse_selector(text):
        raise ValueError
    return text


SELECTOR: Reader[str] = Reader(
    "a label selector as `kubectl -l` takes it: KEY=VALUE, KEY, or several such as KEY in (A,B),!KEY",
    _read_selector,
    metavar="SELECTOR",
    pattern=PATTERN,
)

_DNS_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"


def _read_object_name(text: str) -> str:
    if not re.fullmatch(_DNS_LABEL, text):
        raise ValueError
    return text


OBJECT_NAME: Reader[str] = Reader(
    "a Kubernetes name: lower-case letters, digits and dashes, at most 63",
    _read_object_name,
    metavar="NAME",
    pattern=_DNS_LABEL,
)


def _read_object_names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_read_object_name(one.strip()) for one in text.split(",") if one.strip()))


OBJECT_NAMES: Reader[tuple[str, ...]] = Reader(
    "Kubernetes names of lower-case letters, digits and dashes, at most 63, separated by commas",
    _read_object_names,
    ",".join,
    metavar="A,B",
    pattern=f" *({_DNS_LABEL})? *(, *({_DNS_LABEL})? *)*",
)


def _read_label_value(text: str) -> str:
    text = text.strip()
    if text and not re.fullmatch(_LABEL, text):
        raise ValueError
    return text


LABEL_VALUE: Reader[str] = Reader(
    "the value of a label: letters, digits, dashes, dots and underscores, at most 63",
    _read_label_value,
    metavar="VALUE",
    pattern=_LABEL,
)

_SHA256 = " *([0-9A-Fa-f]{2}:?){32} *"
FINGERPRINTS: Reader[tuple[str, ...]] = Reader(
    "SHA-256 fingerprints of certificates (AB:CD:... of 32 bytes), separated by commas",
    read_fingerprints,
    ",".join,
    metavar="SHA256,...",
    pattern=f"({_SHA256}(,{_SHA256})*)?",
)
