"""The objects of one kind as last seen, and writes whose answers are visible in it at once.

A decision made right after a write must see that write, or it makes it again. The watch brings it a moment later, so
every write through a cache shows its answer: until the watch has caught up, the written object overlays the cache.
Nothing is shown where nothing is known: not in a dry run, not after a refusal, not after an answer that never came.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from hostler.kube.client import FIELD_MANAGER, Client, How
from hostler.kube.clock import Clock, boottime
from hostler.kube.kinds import Kind
from hostler.kube.records import HasMetadata, is_deleted
from hostler.kube.store import Store
from hostler.kube.writer import Writer

R = TypeVar("R", bound=HasMetadata)

# A controller looks again after this long while a cache is not complete: an empty kind sends no event when it is.
UNREAD_SECONDS = 1.0


class Cache(Generic[R]):
    """One kind. `kube.watch.Watch` follows the API server; by itself a cache shows only our own writes."""

    def __init__(
        self,
        kind: Kind,
        type: type[R],
        store: Store[R] | None = None,
        *,
        optional: bool = False,
        clock: Clock = boottime,
    ) -> None:
        """`optional`: we are ready without it; readers look at `store.synced` and `problem` where that matters."""
        self.kind = kind
        self.type = type
        self.store: Store[R] = Store() if store is None else store
        self.optional = optional
        self.absent = False  # the API server does not know this kind
        self.problem = ""  # why it is not being followed right now; a sentence
        self.forbidden = False  # the last answer was that we lack the right to read this kind
        self.heard = -1.0  # when the API server last confirmed what is in the store, by `clock`
        self._clock = clock

    def age(self) -> float | None:
        """Seconds since the API server last confirmed what is in the store; None: it never did."""
        return None if self.heard < 0 else self._clock() - self.heard

    def not_in_step(self) -> str | None:
        """Why this cache makes us unready; None: it does not. A kind that is not installed is known to be so."""
        if self.absent or self.optional:
            return None
        return self.problem or (None if self.store.synced else str(Unread(self.kind)))

    # -- writing: each returns the object as it is now, or None in a dry run

    async def create(
        self, writer: Writer, body: Mapping[str, Any], namespace: str | None = None, *, why: str
    ) -> R | None:
        return self._show(await writer.create(self.kind, body, namespace, type=self.type, why=why))

    async def patch(
        self,
        writer: Writer,
        name: str,
        body: Any,
        namespace: str | None = None,
        *,
        why: str,
        how: How = How.MERGE,
        subresource: str | None = None,
        manager: str = FIELD_MANAGER,
        force: bool = False,
    ) -> R | None:
        written = await writer.patch(
            self.kind, name, body, namespace, type=self.type, why=why, how=how, subresource=subresource,
            manager=manager, force=force,
        )  # fmt: skip
        return self._show(written)

    async def read(self, client: Client, name: str, namespace: str | None = None) -> R:
        """Ask the API server itself, where a decision needs more than what was last seen."""
        found = await client.get(self.kind, name, namespace, type=self.type)
        self._show(found)
        return found

    def _show(self, record: R | None) -> R | None:
        if record is not None and not is_deleted(record.metadata):
            self.store.overlay(record)
        return record


@dataclass(frozen=True, slots=True)
class Unread:
    """A cache that is not complete yet, and the problem with it, if there is one. `str` makes the sentence."""

    kind: Kind
    problem: str = ""
    only: bool = False  # there is a single object of this kind

    def __str__(self) -> str:
        what = f"the {self.kind.kind} is" if self.only else f"{self.kind.resource} are"
        return self.problem or f"{what} still being read"


def first_unread(caches: Iterable[Cache[Any]]) -> Unread | None:
    """Why nothing can be decided from these yet; None: each is complete, or its kind is known not to exist."""
    return next((Unread(cache.kind, cache.problem) for cache in caches if not cache.store.synced), None)
