"""The only way to write. Everything a capability writes goes through here, so that one place can refuse.

Order: dry run (log it, send nothing), the gate (paused, lease lost, incumbent at work), the budget, the gate again as
the bytes leave (see `gate.GatedBody`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

import structlog

from hostler.kube.client import FIELD_MANAGER, Client, Gate, How
from hostler.kube.errors import ApiError, Forbidden, TooManyRequests, Unreachable, WriteRefused
from hostler.kube.kinds import EVENT, POD, Kind
from hostler.kube.metrics import Metrics

T = TypeVar("T")
log = structlog.get_logger("hostler.writes")

# Dry-run lines remembered, so that each is logged once; when full, the oldest half is forgotten.
SAID_MOST = 10_000


class Budget(Protocol):
    """How many writes per second we allow ourselves; `kube.budget.WriteBudget` is the real one."""

    async def take(self) -> None: ...
    def throttled(self, retry_after: float | None) -> None: ...
    def succeeded(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Write:
    """One write. `reports`: it writes a status, which does nothing to the object."""

    owner: str
    verb: str
    kind: Kind
    name: str
    namespace: str | None
    why: str
    reports: bool = False


# Called with each write that was tried, its result (ok, refused, unreachable or an HTTP code) and what was answered. It
# must be quick and must not raise: the write's caller waits for it.
WriteListener: TypeAlias = Callable[[Write, str, str], None]


class Writer:
    """Writes in the name of one capability. In a dry run every method logs what it would do and returns None."""

    def __init__(
        self,
        client: Client,
        owner: str,
        *,
        gate: Gate,
        budget: Budget,
        dry_run: bool = False,
        metrics: Metrics | None = None,
        listener: WriteListener | None = None,
    ) -> None:
        self.owner = owner
        self.dry_run = dry_run
        self._gate = gate
        self._client = client.gated(gate)
        self._budget = budget
        self._metrics = metrics
        self._listener = listener
        self._said: dict[str, None] = {}
        if metrics is not None:
            metrics.expect_writer(owner)

    async def create(
        self, kind: Kind, body: Mapping[str, Any], namespace: str | None = None, *, type: type[T], why: str
    ) -> T | None:
        name = str(body.get("metadata", {}).get("name", ""))
        if self._only_said("create", kind, name, namespace, why):
            return None
        write = Write(self.owner, "create", kind, name, namespace, why)
        return await self._spend(write, lambda: self._client.create(kind, body, namespace, type=type))

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
        verb = "apply" if how is How.APPLY else "patch"
        if self._only_said(verb, kind, name, namespace, why):
            return None
        return await self._spend(
            Write(self.owner, verb, kind, name, namespace, why, reports=subresource == "status"),
            lambda: self._client.patch(
                kind, name, body, namespace, type=type, how=how, subresource=subresource, manager=manager, force=force
            ),
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
        if self._only_said("delete", kind, name, namespace, why):
            return
        await self._spend(
            Write(self.owner, "delete", kind, name, namespace, why),
            lambda: self._client.delete(kind, name, namespace, uid=uid, grace_seconds=grace_seconds),
        )

    async def evict(self, name: str, namespace: str, *, uid: str, why: str, grace_seconds: int | None = None) -> None:
        """A 429 here is mostly a PodDisruptionBudget's answer, not the server's load: see `_throttled`."""
        if self._only_said("evict", POD, name, namespace, why):
            return
        await self._spend(
            Write(self.owner, "evict", POD, name, namespace, why),
            lambda: self._client.evict(name, namespace, uid=uid, grace_seconds=grace_seconds),
        )

    async def _spend(self, write: Write, send: Callable[[], Awaitable[T]]) -> T:
        """Send one write within the budget, and report how it went."""
        refusal = self._gate()
        if refusal is not None:  # before the budget: a refused write must not use it up
            self._ended(write, "refused", refusal)
            raise WriteRefused(refusal)
        await self._budget.take()
        try:
            answer = await send()
        except WriteRefused as error:
            self._ended(write, "refused", str(error))
            raise
        except ApiError as error:
            if isinstance(error, TooManyRequests):
                self._throttled(error)
            elif isinstance(error, Forbidden) and self._metrics is not None:
                self._metrics.forbidden(self.owner)
            self._ended(write, str(error.code), str(error))
            raise
        except Unreachable as error:
            self._ended(write, "unreachable", str(error))
            raise
        self._budget.succeeded()
        self._ended(write, "ok", "")
        return answer

    def _throttled(self, error: TooManyRequests) -> None:
        """Slow down, unless a PodDisruptionBudget refused: that says nothing about the server's load."""
        if not any(cause.get("reason") == "DisruptionBudget" for cause in error.causes):
            self._budget.throttled(error.retry_after)

    def _ended(self, write: Write, result: str, answer: str) -> None:
        if self._metrics is not None:
            self._metrics.wrote(write.verb, write.kind.resource, result)
        if result == "ok":
            say = log.debug if write.kind is EVENT else log.info  # an Event is itself a trail of what was done
            target = _target(write.name, write.namespace)
            say("wrote", capability=self.owner, verb=write.verb, kind=write.kind.kind, name=target, why=write.why)
        if self._listener is not None:
            self._listener(write, result, answer)

    def _only_said(self, verb: str, kind: Kind, name: str, namespace: str | None, why: str) -> bool:
        if not self.dry_run:
            return False
        target = _target(name, namespace)
        line = f"{verb} {kind.kind} {target}: {why}"
        if line not in self._said:
            self._said[line] = None
            if len(self._said) > SAID_MOST:
                self._said = dict.fromkeys(list(self._said)[SAID_MOST // 2 :])
            log.info("would write", capability=self.owner, verb=verb, kind=kind.kind, name=target, why=why)
        return True


def _target(name: str, namespace: str | None) -> str:
    return f"{namespace}/{name}" if namespace else name
