"""Entries as few bytes: columns of small numbers and words that are named once, compressed. Pure.

What is kept tells an entry exactly. A name in its own sentence is replaced by a mark and times are differences, because
that is what makes columns repeat themselves.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence

import msgspec

from hostler.history.model import Entry, What, id_order

VERSION = 1
LEVEL = 6
LARGEST_ID = 2**53
NAME = "\x00"  # stands for the name in the entry's key, in its sentence; no sentence contains it
MILLISECONDS = 1000
LARGEST = 32 * 1024 * 1024  # bytes of one chunk when unpacked: whoever may write ConfigMaps must not fill our memory


class NotHistory(Exception):
    """These bytes are not entries that this version can read."""


class _Columns(msgspec.Struct, array_like=True, frozen=True):
    version: int
    words: tuple[str, ...]  # every text once
    transitions: tuple[int, ...]  # the first half of ids, as differences
    counters: tuple[int, ...]
    at: tuple[int, ...]  # milliseconds, as differences
    keys: tuple[int, ...]  # places in `words`, from here on
    whats: tuple[int, ...]
    capabilities: tuple[int, ...]
    olds: tuple[int, ...]
    news: tuple[int, ...]
    reasons: tuple[int, ...]
    sentences: tuple[int, ...]
    operations: tuple[int, ...]
    durations: tuple[int, ...]  # milliseconds; -1: none
    results: tuple[int, ...]


class _Words:
    def __init__(self) -> None:
        self.places: dict[str, int] = {}

    def place(self, word: str) -> int:
        return self.places.setdefault(word, len(self.places))


def encode_entries(entries: Sequence[Entry]) -> bytes:
    """Each must have come from `rounded`, or its times come back rounded to milliseconds."""
    words = _Words()
    ids = [id_order(entry.id) for entry in entries]
    columns = _Columns(
        VERSION,
        (),
        _differences(transitions for transitions, _ in ids),
        _differences(counter for _, counter in ids),
        _differences(round(entry.at * MILLISECONDS) for entry in entries),
        tuple(words.place(entry.key) for entry in entries),
        tuple(words.place(entry.what) for entry in entries),
        tuple(words.place(entry.capability) for entry in entries),
        tuple(words.place(entry.old) for entry in entries),
        tuple(words.place(entry.new) for entry in entries),
        tuple(words.place(entry.reason) for entry in entries),
        tuple(words.place(_shortened(entry.sentence, entry.key)) for entry in entries),
        tuple(words.place(_shortened(entry.operation, entry.key)) for entry in entries),
        tuple(-1 if entry.duration is None else round(entry.duration * MILLISECONDS) for entry in entries),
        tuple(words.place(entry.result) for entry in entries),
    )
    return zlib.compress(msgspec.msgpack.encode(msgspec.structs.replace(columns, words=tuple(words.places))), LEVEL)


def decode_entries(content: bytes) -> list[Entry]:
    try:
        columns = msgspec.msgpack.decode(_unpacked(content), type=_Columns)
        if columns.version != VERSION:
            raise NotHistory(f"version {columns.version} of the history is not known here")
        return _read(columns)
    except (zlib.error, msgspec.MsgspecError, IndexError, ValueError) as error:
        raise NotHistory(f"not entries of a history ({error})") from error


def _unpacked(content: bytes) -> bytes:
    unpacking = zlib.decompressobj()
    unpacked = unpacking.decompress(content, LARGEST)
    if not unpacking.eof:
        raise NotHistory("it is cut, or larger than any chunk of a history")
    return unpacked


def _read(columns: _Columns) -> list[Entry]:
    words, ats = columns.words, _sums(columns.at)
    transitions, counters = _sums(columns.transitions), _sums(columns.counters)
    if any(not 0 <= number <= LARGEST_ID for number in (*transitions, *counters)):
        raise NotHistory("an id is beyond what any leader counts to")
    ids = zip(transitions, counters, strict=True)
    rows = zip(
        ids, ats, columns.keys, columns.whats, columns.capabilities, columns.olds, columns.news, columns.reasons,
        columns.sentences, columns.operations, columns.durations, columns.results, strict=True,
    )  # fmt: skip
    return [
        Entry(
            id=f"{transitions}.{counter}",
            at=at / MILLISECONDS,
            key=words[key],
            what=What(words[what]),
            capability=words[capability],
            old=words[old],
            new=words[new],
            reason=words[reason],
            sentence=_restored(words[sentence], words[key]),
            operation=_restored(words[operation], words[key]),
            duration=None if duration < 0 else duration / MILLISECONDS,
            result=words[result],
        )
        for (
            transitions,
            counter,
        ), at, key, what, capability, old, new, reason, sentence, operation, duration, result in rows
    ]


def _name_in(key: str) -> str:
    return key.rpartition("/")[2] or key


def _shortened(text: str, key: str) -> str:
    return text.replace(NAME, "").replace(name, NAME) if (name := _name_in(key)) else text.replace(NAME, "")


def _restored(text: str, key: str) -> str:
    return text.replace(NAME, _name_in(key))


def _differences(numbers: Iterable[int]) -> tuple[int, ...]:
    found, last = [], 0
    for number in numbers:
        found.append(number - last)
        last = number
    return tuple(found)


def _sums(differences: Iterable[int]) -> list[int]:
    found, last = [], 0
    for difference in differences:
        last += difference
        found.append(last)
    return found
