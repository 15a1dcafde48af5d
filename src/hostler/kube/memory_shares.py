"""How much is kept of clusters that other parties run. Every store knows its bytes, and all of them share one limit."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

import msgspec

from hostler.kube.records import HasMetadata, key_of
from hostler.kube.store import Store

R = TypeVar("R", bound=HasMetadata)


class Shares:
    """One limit for several clusters. Where it is passed, the largest share is dropped: it pays for its own size."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.total = 0
        self._open: set[Share] = set()

    def open(self, drop: Callable[[], None]) -> Share:
        """A share for one cluster; `drop` is called when it must let go of everything."""
        share = Share(self, drop)
        self._open.add(share)
        return share

    def add(self, share: Share, size: int) -> None:
        if share not in self._open:
            return
        share.size += size
        self.total += size
        while self.total > self.most:
            largest = max(self._open, key=lambda one: one.size)
            self.close(largest)  # at once: what it holds goes in a moment, and must not drop a second one
            largest.drop()

    def close(self, share: Share) -> None:
        if share in self._open:
            self._open.remove(share)
            self.total -= share.size


class Share:
    """What is kept of one cluster."""

    def __init__(self, shares: Shares, drop: Callable[[], None]) -> None:
        self.size, self.drop, self._shares = 0, drop, shares

    def add(self, size: int) -> None:
        """So many bytes more, or fewer."""
        self._shares.add(self, size)

    def close(self) -> None:
        self._shares.close(self)


class WeighedStore(Store[R]):
    """A store that knows how many bytes it keeps. `trim` leaves of a record what its readers use."""

    def __init__(self, trim: Callable[[R], R] | None = None) -> None:
        super().__init__()
        self._trim = trim
        self._records_size = self._unread_size = self._older_size = 0
        self.listen(self._weigh)

    @property
    def size(self) -> int:
        """In memory, and rather too much than too little."""
        return self._records_size + self._unread_size + self._older_size

    def put(self, record: R) -> None:
        if self._trim is not None:
            record = self._trim(record)
        super().put(record)
        if self._older.get(key_of(record.metadata)) is record:
            self._older_size += size_of(record)

    def unread(self, key: str, version: int, why: str) -> None:
        if key not in self.unreadable:
            self._unread_size += size_of(key) + size_of(why)
        super().unread(key, version, why)

    def begin_sync(self) -> None:
        super().begin_sync()
        self._older_size = 0

    def end_sync(self, version: int) -> bool:
        self._older_size = 0
        return super().end_sync(version)

    def _weigh(self, key: str, before: R | None, after: R | None) -> None:
        self._records_size += (size_of(after) if after is not None else 0) - (
            size_of(before) if before is not None else 0
        )


def size_of(value: object) -> int:
    """The bytes of a record with everything in it; what is shared counts each time."""
    size = sys.getsizeof(value)
    match value:
        case msgspec.Struct():
            return size + sum(size_of(getattr(value, name)) for name in value.__struct_fields__)
        case tuple():
            return size + sum(size_of(one) for one in value)
        case dict():
            return size + sum(size_of(name) + size_of(one) for name, one in value.items())
    return size
