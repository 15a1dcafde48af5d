"""Boot Loader Specification entries: parsed as the loaders parse them, and in the order each loader puts them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cmp_to_key

SUFFIX = ".conf"


@dataclass(frozen=True)
class Entry:
    """One entry file: its name and its lines as key and value, in their order."""

    file: str
    fields: tuple[tuple[str, str], ...]

    @property
    def id(self) -> str:
        return self.file.removesuffix(SUFFIX)

    def get(self, key: str) -> str:
        return next((value for name, value in self.fields if name == key), "")

    def every(self, key: str) -> list[str]:
        return [value for name, value in self.fields if name == key]


def parse(file: str, text: str) -> Entry:
    """Lines of a key, blanks and a value; comments and lines without a value mean nothing."""
    fields: list[tuple[str, str]] = []
    for line in text.split("\n"):
        words = line.strip(" \t\r").split(None, 1)
        if len(words) == 2 and not words[0].startswith("#"):
            fields.append((words[0], words[1]))
    return Entry(file, tuple(fields))


def order_rhel(entries: Iterable[Entry]) -> list[Entry]:
    """RHEL's GRUB, as it was measured: the highest version first, then the highest file name."""

    def compare(one: Entry, other: Entry) -> int:
        return compare_rpm(one.get("version"), other.get("version")) or compare_rpm(one.id, other.id)

    return _descending(entries, compare)


def order_rhel_names(entries: Iterable[Entry]) -> list[Entry]:
    """RHEL's GRUB, by its published source: the highest file name first, as name, version and release of a package."""

    def compare(one: Entry, other: Entry) -> int:
        pairs = zip(_package(one.id), _package(other.id), strict=True)
        return next((found for found in (compare_rpm(mine, theirs) for mine, theirs in pairs) if found), 0)

    return _descending(entries, compare)


def order_grub(entries: Iterable[Entry]) -> list[Entry]:
    """GRUB 2.14: the highest file name first; versions inside the files do not count."""
    return _descending(entries, lambda one, other: compare_files(one.file, other.file))


def order_systemd(entries: Iterable[Entry]) -> list[Entry]:
    """systemd-boot: what has tries left first; then entries with a sort-key, by key, machine, newest version; names."""

    def compare(one: Entry, other: Entry) -> int:
        spent = (tries(one.file) == 0) - (tries(other.file) == 0)
        if spent:
            return spent
        mine, theirs = one.get("sort-key"), other.get("sort-key")
        if bool(mine) != bool(theirs):
            return -1 if mine else 1
        if mine and mine != theirs:
            return -1 if mine < theirs else 1
        if mine:
            machine = (one.get("machine-id") > other.get("machine-id")) - (
                one.get("machine-id") < other.get("machine-id")
            )
            newest = -compare_systemd(one.get("version"), other.get("version"))
            if machine or newest:
                return machine or newest
        return -compare_systemd(plain_name(one.file).lower(), plain_name(other.file).lower())

    return sorted(entries, key=cmp_to_key(compare))


def tries(file: str) -> int | None:
    """Tries left by the counter in the name (`name+3-1.conf`), or None where nothing is counted."""
    _, plus, counter = file.removesuffix(SUFFIX).rpartition("+")
    left = counter.partition("-")[0]
    return int(left) if plus and left.isascii() and left.isdigit() else None


def plain_name(file: str) -> str:
    """The name without its counter."""
    return file if tries(file) is None else file.removesuffix(SUFFIX).rpartition("+")[0] + SUFFIX


def _package(name: str) -> tuple[str, str, str]:
    """Split at the last two dashes; what is missing is missing at the end."""
    parts = name.rsplit("-", 2)
    return parts[0], parts[1] if len(parts) > 1 else "", parts[2] if len(parts) > 2 else ""


def _descending(entries: Iterable[Entry], compare: Callable[[Entry, Entry], int]) -> list[Entry]:
    return sorted(entries, key=cmp_to_key(compare), reverse=True)


def compare_rpm(one: str, other: str) -> int:
    """As rpm and RHEL's GRUB: pieces of digits or letters; digits beat letters; `~` is before the end, `^` after."""
    i = j = 0
    while i < len(one) or j < len(other):
        while i < len(one) and not (_alnum(one[i]) or one[i] in "~^"):
            i += 1
        while j < len(other) and not (_alnum(other[j]) or other[j] in "~^"):
            j += 1
        a, b = one[i : i + 1], other[j : j + 1]
        if "~" in (a, b) or "^" in (a, b):
            if a != b:
                return _marked(a, b)
            i, j = i + 1, j + 1
            continue
        if not a or not b:
            break
        digits = _digit(a)
        left, i = _piece(one, i, digits)
        right, j = _piece(other, j, digits)
        if not right:
            return 1 if digits else -1
        order = _numbers(left, right) if digits else _sign(left, right)
        if order:
            return order
    return (i < len(one)) - (j < len(other))


def _marked(a: str, b: str) -> int:
    """One of the two is at `~` or `^`, the other is not: `~` is before anything, `^` only after the end."""
    if "~" in (a, b):
        return -1 if a == "~" else 1
    if not a or not b:
        return -1 if not a else 1
    return -1 if a == "^" else 1


def compare_files(one: str, other: str) -> int:
    """As GNU's filevercmp, which GRUB 2.14 sorts its entries by: Debian's order, without the suffix first."""
    if one == other:
        return 0
    return _debian(_stem(one), _stem(other)) or _debian(one, other) or _sign(one, other)


def compare_systemd(one: str, other: str) -> int:
    """As systemd's strverscmp_improved: `~` before the end, then `-`, `^`, `.`, letters, numbers."""
    i = j = 0
    while i < len(one) or j < len(other):
        while i < len(one) and not (_alnum(one[i]) or one[i] in "~-^."):
            i += 1
        while j < len(other) and not (_alnum(other[j]) or other[j] in "~-^."):
            j += 1
        a, b = one[i : i + 1], other[j : j + 1]
        if a == "~" or b == "~":
            if a != b:
                return -1 if a == "~" else 1
            i, j = i + 1, j + 1
            continue
        if not a or not b:
            return bool(a) - bool(b)
        marked = False
        for mark in "-^.":
            if a == mark or b == mark:
                if a != b:
                    return -1 if a == mark else 1
                marked = True
                break
        if marked:
            i, j = i + 1, j + 1
            continue
        if _digit(a) or _digit(b):
            left, i = _piece(one, i, True)
            right, j = _piece(other, j, True)
            if bool(left) != bool(right):
                return 1 if left else -1
            order = _numbers(left, right)
        else:
            left, i = _piece(one, i, False)
            right, j = _piece(other, j, False)
            order = _sign(left, right)
        if order:
            return order
    return 0


def _debian(one: str, other: str) -> int:
    i = j = 0
    while i < len(one) or j < len(other):
        while (i < len(one) and not _digit(one[i])) or (j < len(other) and not _digit(other[j])):
            order = _weight(one[i : i + 1]) - _weight(other[j : j + 1])
            if order:
                return order
            i, j = i + 1, j + 1
        a, i = _piece(one, i, True)
        b, j = _piece(other, j, True)
        order = _numbers(a, b)
        if order:
            return order
    return 0


def _weight(character: str) -> int:
    if not character or _digit(character):
        return 0
    if character == "~":
        return -1
    return ord(character) if _letter(character) else ord(character) + 256


def _stem(name: str) -> str:
    """The name without its suffixes: `.` and a letter or `~`, then letters, digits and `~`, as often as that comes."""
    end = len(name)
    while True:
        dot = name.rfind(".", 0, end)
        if dot <= 0 or dot + 1 >= end or not (_letter(name[dot + 1]) or name[dot + 1] == "~"):
            return name[:end]
        if not all(_alnum(character) or character == "~" for character in name[dot + 1 : end]):
            return name[:end]
        end = dot


def _piece(text: str, start: int, digits: bool) -> tuple[str, int]:
    end = start
    while end < len(text) and (_digit(text[end]) if digits else _letter(text[end])):
        end += 1
    return text[start:end], end


def _numbers(one: str, other: str) -> int:
    one, other = one.lstrip("0"), other.lstrip("0")
    return (len(one) > len(other)) - (len(one) < len(other)) or _sign(one, other)


def _sign(one: str, other: str) -> int:
    return (one > other) - (one < other)


def _digit(character: str) -> bool:
    return "0" <= character <= "9"


def _letter(character: str) -> bool:
    return "a" <= character <= "z" or "A" <= character <= "Z"


def _alnum(character: str) -> bool:
    return _digit(character) or _letter(character)
