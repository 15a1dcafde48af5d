"""The one door for writes. Everything a capability writes goes through here, so that one place can say no.

Order: dry run (say it, send nothing), the gate (paused, lease lost, incumbent at work), the budget, the gate again as
the bytes leave (see `client.GatedBody`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any, Protocol, TypeVar

import structlog

from hostler.kube.client import FIELD_MANAGER, Client, Gate, How
from hostler.kube.errors import TooManyRequests
from hostler.kube.kinds import POD, Kind

T = TypeVar("T")
log = structlog.get_logger("hostler.writes")


class Budget(Protocol):
    """How many writes per second we allow ourselves; `kube.budget.WriteBudget` is the real one."""

    async def take(self) -> None: ...
    def throttled(self, retry_after: float | None) -> None: ...
    def succeeded(self) -> None: ...


class Writer:
    """Writes in the name of one capability. In a dry run every method says what it would do and returns None."""

    def __init__(self, client: Client, owner: str, *, gate: Gate, budget: Budget, dry_run: bool = False) -> None:
        self.owner = owner
        self.dry_run = dry_run
        self._client = client.gated(gate)
        self._budget = budget
        self._said: set[str] = set()

    async def create(
        self, kind: Kind, body: Mapping[str, Any], namespace: str | None = None, *, type: type[T], why: str
    ) -> T | None:
        name = str(body.get("metadata", {}).get("name", ""))
        if self._only_said("create", kind, name, namespace, why):
            return None
        return await self._spend(self._client.create(kind, body, namespace, type=type))

    async def patch(
        self,
        kind: Kind,
        name: str,
        body: Any,
        namespace: str | None = None,
        *,
        type: type[T],
        why: str,
        how: How = How.MERGE,
        subresource: str | None = None,
        manager: str = FIELD_MANAGER,
        force: bool = False,
    ) -> T | None:
        if self._only_said("apply" if how is How.APPLY else "patch", kind, name, namespace, why):
            return None
        return await self._spend(
            self._client.patch(
                kind, name, body, namespace, type=type, how=how, subresource=subresource, manager=manager, force=force
            )
        )

    async def delete(
        self,
        kind: Kind,
        name: str,
        namespace: str | None = None,
        *,
        uid: str,
        why: str,
        grace_seconds: int | None = None,
    ) -> None:
        if not self._only_said("delete", kind, name, namespace, why):
            await self._spend(self._client.delete(kind, name, namespace, uid=uid, grace_seconds=grace_seconds))

    async def evict(self, name: str, namespace: str, *, uid: str, why: str, grace_seconds: int | None = None) -> None:
        """A 429 here is a PodDisruptionBudget's answer, not the server's load: it does not slow other writes."""
        if self._only_said("evict", POD, name, namespace, why):
            return
        await self._budget.take()
        await self._client.evict(name, namespace, uid=uid, grace_seconds=grace_seconds)
        self._budget.succeeded()

    async def _spend(self, write: Awaitable[T]) -> T:
        try:
            await self._budget.take()
        except BaseException:
            write.close()  # type: ignore[attr-defined]  # a coroutine never awaited would warn
            raise
        try:
            answer = await write
        except TooManyRequests as error:
            self._budget.throttled(error.retry_after)
            raise
        self._budget.succeeded()
        return answer

    def _only_said(self, verb: str, kind: Kind, name: str, namespace: str | None, why: str) -> bool:
        if not self.dry_run:
            return False
        target = f"{namespace}/{name}" if namespace else name
        line = f"{verb} {kind.kind} {target}: {why}"
        if line not in self._said:
            self._said.add(line)
            log.info("would write", capability=self.owner, verb=verb, kind=kind.kind, name=target, why=why)
        return True
