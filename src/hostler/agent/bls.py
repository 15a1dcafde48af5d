"""Boot Loader Specification entries: parsed as the loaders parse them, and in the order each loader puts them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cmp_to_key

from hostler.agent.versions import compare_files, compare_rpm, compare_systemd

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
