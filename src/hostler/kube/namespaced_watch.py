"""Follows one kind in some namespaces only, with rights in those alone: one watch for each, and one store for readers.

Each namespace is listed and resumed by itself, so each has a store of its own that knows its version. What changes in
any of them changes the one store that others read: to them it is a watch like any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from hostler.kube.client import Client
from hostler.kube.kinds import Kind
from hostler.kube.metrics import Metrics
from hostler.kube.records import HasMetadata
from hostler.kube.store import Index, Store
from hostler.kube.watch import Watch

R = TypeVar("R", bound=HasMetadata)


class _NamespaceStore(Store[R]):
    """The records of one namespace. `told` is called when it is complete, or another object cannot be read."""

    def __init__(self, told: Callable[[], None]) -> None:
        super().__init__()
        self._told = told

    def unread(self, key: str, version: int, why: str) -> None:
        super().unread(key, version, why)
        self._told()

    def end_sync(self, version: int) -> bool:
        ended = super().end_sync(version)
        self._told()
        return ended

    def _unsee(self, key: str) -> None:
        was_unreadable = key in self.unreadable
        super()._unsee(key)
        if was_unreadable:
            self._told()

    def _replace(self, key: str, record: R, version: int, *, anyway: bool = False) -> None:
        was_unreadable = key in self.unreadable
        super()._replace(key, record, version, anyway=anyway)
        if was_unreadable:
            self._told()


class UnionStore(Store[R]):
    """The records of several namespaces, kept by one store each."""

    def __init__(self, namespaces: Collection[str], indexes: Mapping[str, Index[R]] | None = None) -> None:
        super().__init__(indexes)
        self.parts: dict[str, Store[R]] = {name: _NamespaceStore(self._tell) for name in namespaces}
        for part in self.parts.values():
            part.listen(self._changed)

    def overlay(self, record: R) -> None:
        """Only where it is followed: nobody would ever take back what is shown of another namespace."""
        part = self.parts.get(record.metadata.namespace)
        if part is not None:
            part.overlay(record)

    def _changed(self, key: str, before: R | None, after: R | None) -> None:
        if after is not None:
            # The part has judged its version already.
            self._replace(key, after, int(after.metadata.resource_version), anyway=True)
        elif before is not None:
            self._drop(key, before)

    def _tell(self) -> None:
        parts = self.parts.values()
        self.synced = all(part.synced for part in parts)
        self.version = max((part.version for part in parts), default=0)
        self.unreadable = {key: why for part in parts for key, why in part.unreadable.items()}


class NamespacedWatch(Watch[R]):
    """One kind in these namespaces, of which there is at least one."""

    def __init__(
        self,
        client: Client,
        kind: Kind,
        type: type[R],
        namespaces: Collection[str],
        *,
        metrics: Metrics,
        indexes: Mapping[str, Index[R]] | None = None,
        **more: Any,
    ) -> None:
        union = UnionStore[R](namespaces, indexes)
        super().__init__(client, kind, type, metrics=metrics, store=union, **more)
        self.parts = [
            Watch(client, kind, type, metrics=metrics, namespace=name, store=part, counts=union, **more)
            for name, part in union.parts.items()
        ]

    async def run(self) -> None:
        """Follow each namespace until cancelled."""
        async with asyncio.TaskGroup() as group:
            for part in self.parts:
                group.create_task(part.run())
            for part in self.parts:
                await part.synced.wait()
            self.synced.set()

    @property
    def problem(self) -> str:
        return next((part.problem for part in self.parts if part.problem), "")

    @problem.setter
    def problem(self, _: str) -> None:
        """Only its parts have any."""

    def age(self) -> float | None:
        """Of the namespace that was confirmed the longest ago."""
        ages = [part.age() for part in self.parts]
        return None if None in ages else max(age for age in ages if age is not None)

    def not_in_step(self) -> str | None:
        parts = () if self.optional else self.parts
        return next((why for part in parts if (why := part.not_in_step())), None)
