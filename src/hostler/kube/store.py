"""Records of one kind in memory, found by key or by index. It follows the watch and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping
from typing import Generic, TypeAlias, TypeVar

from hostler.kube.records import HasMetadata, key_of

R = TypeVar("R", bound=HasMetadata)

# The values a record is found under: `lambda pod: (pod.spec.node_name,)`.
Index: TypeAlias = Callable[[R], Iterable[str]]
# Told of every change: key, the record before (None: new), the record now (None: gone).
Listener: TypeAlias = Callable[[str, R | None, R | None], None]


class Store(Generic[R]):
    """An indexed set of records that never goes back in time.

    Invariant: a record is replaced only by one with a higher resourceVersion, so a late watch event cannot undo what
    our own write already showed (`overlay`). The one exception is a restored etcd, see `end_sync`.
    """

    def __init__(self, indexes: Mapping[str, Index[R]] | None = None) -> None:
        self.synced = False
        self.version = 0  # the newest resourceVersion the API server has sent us
        self.unreadable: dict[str, str] = {}  # key -> why; such an object is neither here nor absent
        self._records: dict[str, R] = {}
        self._indexes: list[tuple[Index[R], dict[str, set[str]]]] = []
        self._named: dict[str, dict[str, set[str]]] = {}
        for name, index in (indexes or {}).items():
            buckets: dict[str, set[str]] = {}
            self._indexes.append((index, buckets))
            self._named[name] = buckets
        self._listeners: list[Listener[R]] = []
        self._seen: set[str] | None = None  # keys met since begin_sync
        self._older: dict[str, R] = {}  # what a listing shows in a lower version than ours
        self._rewound = False  # the server's history was replaced: take whatever the next listing says

    # -- reading

    def get(self, key: str) -> R | None:
        return self._records.get(key)

    def by(self, index: str, value: str) -> list[R]:
        """The records with this value, in no order; empty where there are none."""
        return [self._records[key] for key in self._named[index].get(value, ())]

    def keys_by(self, index: str, value: str) -> frozenset[str]:
        return frozenset(self._named[index].get(value, ()))

    def values(self) -> Iterable[R]:
        return self._records.values()

    def keys(self) -> KeysView[str]:
        return self._records.keys()

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[R]:
        return iter(list(self._records.values()))

    def listen(self, listener: Listener[R]) -> None:
        """Call `listener` on every change from now on. It must be quick and must not raise."""
        self._listeners.append(listener)

    # -- what the watch does

    def put(self, record: R) -> None:
        """An object was added or changed."""
        metadata = record.metadata
        key = key_of(metadata)
        version = int(metadata.resource_version)
        if self._seen is not None:
            self._seen.add(key)  # in a listing objects come in any order; its version comes at the end
            old = self._records.get(key)
            if old is not None and version < int(old.metadata.resource_version):
                self._older[key] = record
                return
            self._older.pop(key, None)
        elif version > self.version:
            self.version = version
        self._replace(key, record, version)

    def remove(self, record: R) -> None:
        """An object was deleted; `record` carries the version of its deletion."""
        key = key_of(record.metadata)
        version = int(record.metadata.resource_version)
        self.version = max(self.version, version)
        self._unsee(key)
        old = self._records.get(key)
        if old is not None and int(old.metadata.resource_version) <= version:
            self._drop(key, old)

    def overlay(self, record: R) -> None:
        """Show the answer to our own write at once, unless the watch has come past it already.

        Without the second half a late answer would bring a deleted object back to life.
        """
        version = int(record.metadata.resource_version)
        if version > self.version:
            self._replace(key_of(record.metadata), record, version)

    def unread(self, key: str, version: int, why: str) -> None:
        """An object came that does not decode. The old record is no longer true, so it goes; the key is remembered."""
        self.version = max(self.version, version)
        self._older.pop(key, None)
        self.unreadable[key] = why
        old = self._records.get(key)
        if old is not None:
            self._drop(key, old)

    def forget(self, key: str, version: int) -> None:
        """An object that could not be read was deleted."""
        self.version = max(self.version, version)
        self._unsee(key)
        old = self._records.get(key)
        if old is not None:
            self._drop(key, old)

    def begin_sync(self) -> None:
        """A complete listing starts. Reads go on seeing what is here."""
        self._seen = set()
        self._older = {}

    def end_sync(self, version: int) -> bool:
        """The listing is complete as of `version`: what it did not name is gone.

        False: the server's versions went backwards (etcd was restored). Then our "newer" records are from a history
        that never happened; the caller must list again, and that listing wins whatever its versions are.
        """
        seen, self._seen = self._seen or set(), None
        older, self._older = self._older, {}
        if version < self.version:
            self._rewound = True
            self.version = 0
            return False
        for key in [key for key in self._records if key not in seen]:
            # An overlay newer than the listing is an object made after it; its event is on the way.
            if self._rewound or int(self._records[key].metadata.resource_version) <= version:
                self._drop(key, self._records[key])
        for key, record in older.items():
            # One of ours that the listing is past and yet shows older is of a history that was replaced meanwhile. A
            # newer one is our own write, whose event is on the way.
            if self._rewound or int(self._records[key].metadata.resource_version) <= version:
                self._replace(key, record, int(record.metadata.resource_version), anyway=True)
        self._rewound = False
        for key in [key for key in self.unreadable if key not in seen]:
            del self.unreadable[key]
        self.version = version
        self.synced = True
        return True

    def saw(self, key: str) -> None:
        """During a listing: this key exists, though its object could not be read."""
        if self._seen is not None:
            self._seen.add(key)

    # -- inside

    def _unsee(self, key: str) -> None:
        """It was deleted, perhaps while a listing that had named it was still under way."""
        self.unreadable.pop(key, None)
        self._older.pop(key, None)
        if self._seen is not None:
            self._seen.discard(key)

    def _replace(self, key: str, record: R, version: int, *, anyway: bool = False) -> None:
        old = self._records.get(key)
        if old is not None and version <= int(old.metadata.resource_version) and not (anyway or self._rewound):
            return
        self._records[key] = record
        if self.unreadable:
            self.unreadable.pop(key, None)
        for index, buckets in self._indexes:
            after = index(record)
            if old is not None:
                before = index(old)
                if before == after:
                    continue
                _leave(buckets, before, key)
            for value in after:
                bucket = buckets.get(value)
                if bucket is None:
                    buckets[value] = {key}
                else:
                    bucket.add(key)
        for listener in self._listeners:
            listener(key, old, record)

    def _drop(self, key: str, old: R) -> None:
        del self._records[key]
        for index, buckets in self._indexes:
            _leave(buckets, index(old), key)
        for listener in self._listeners:
            listener(key, old, None)


def _leave(buckets: dict[str, set[str]], values: Iterable[str], key: str) -> None:
    for value in values:
        bucket = buckets.get(value)
        if bucket is not None:
            bucket.discard(key)
            if not bucket:
                del buckets[value]
