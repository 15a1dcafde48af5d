"""Lets nodes in as it was decided: remembers them, then approves their requests. It never denies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from hostler.host.conditions import cut
from hostler.instant import Instant, iso
from hostler.join.model import (
    Batch,
    SigningRequest,
    Verb,
    Write,
)
from hostler.join.observe import Caches, line_of
from hostler.join.status import Report
from hostler.kube.errors import ApiError, Conflict, NotFound, Unreachable, WriteRefused
from hostler.kube.writer import Writer

_FORESEEN = (ApiError, Unreachable, WriteRefused)
AT_ONCE = 16


class JoinExecutor:
    """The only writer of join. What it wrote is in the caches at once."""

    def __init__(self, caches: Caches, writer: Writer, report: Report, clock: Callable[[], Instant]) -> None:
        self._caches, self._writer, self._report, self._clock = caches, writer, report, clock
        self._where = f"{caches.spoke}: " if caches.spoke is not None else ""  # in the log, before what was written

    async def carry_out(self, batches: Sequence[Batch]) -> None:
        for batch in batches:
            if batch.memory is not None and not await self._remember(batch.memory):
                return
            limit = asyncio.Semaphore(AT_ONCE)

            async def one_of(write: Write, limit: asyncio.Semaphore = limit) -> None:
                async with limit:
                    await self._approve(write)

            done = await asyncio.gather(*(one_of(approval) for approval in batch.approvals), return_exceptions=True)
            failed = [result for result in done if isinstance(result, BaseException)]
            if failed:  # a bug before what is only tried again, which would hide it
                raise next((error for error in failed if not isinstance(error, _FORESEEN)), failed[0])

    async def _remember(self, write: Write) -> bool:
        """False: it was not written, so nobody may be let in. In a dry run nobody is anyway."""
        namespace, why = self._caches.namespace, f"{self._where}{write.why}"
        lines = {name: line_of(use) if use is not None else None for name, use in write.lines.items()}
        if write.verb is Verb.CREATE:
            body = {"metadata": {"name": write.name}, "data": lines}
            written = await self._caches.memory.create(self._writer, body, namespace, why=why)
        else:
            there = self._caches.memory.store.get(f"{namespace}/{write.name}")
            if there is None and not self._writer.dry_run:
                raise Conflict(409, "Conflict", f"ConfigMap {namespace}/{write.name} went away meanwhile")
            # The version: another leader's line must not be lost under ours.
            about = {"resourceVersion": there.metadata.resource_version} if there is not None else {}
            body = {"metadata": about, "data": lines}
            written = await self._caches.memory.patch(self._writer, write.name, body, namespace, why=why)
        return written is not None or self._writer.dry_run

    async def _approve(self, write: Write) -> None:
        assert write.request is not None
        assert write.verdict is not None
        body, why = approval_body(write.request, write.verdict.why, self._clock()), f"{self._where}{write.why}"
        try:
            written = await self._caches.requests.patch(self._writer, write.name, body, why=why, subresource="approval")
        except (Conflict, NotFound):
            return  # it was decided meanwhile, or is gone; the watch brings it
        if written is not None:
            self._report.approved(write.request, write.verdict)


def approval_body(request: SigningRequest, why: str, now: Instant) -> dict[str, Any]:
    """The patch of the approval subresource; with the version that was judged, so it cannot land on another."""
    condition = {
        "type": "Approved",
        "status": "True",
        "reason": "HostlerJoin",
        "message": cut(why),
        "lastUpdateTime": iso(now),
    }
    about = {"uid": request.metadata.uid, "resourceVersion": request.metadata.resource_version}
    return {"metadata": about, "status": {"conditions": [condition]}}
