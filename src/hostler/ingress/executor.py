"""Carries out what was decided about ingress: every write and Event of it, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

from hostler.ingress.model import Decision, Verb, Write
from hostler.ingress.observe import Caches
from hostler.kube.client import How
from hostler.kube.events import Recorder
from hostler.kube.kinds import Kind
from hostler.kube.records import Metadata
from hostler.kube.writer import Writer


class IngressExecutor:
    """The only writer of ingress. What it wrote is in the caches at once."""

    def __init__(self, caches: Caches, writer: Writer, recorder: Recorder) -> None:
        self._caches = caches
        self._writer = writer
        self._recorder = recorder

    async def carry_out(
        self, decision: Decision, kind: Kind, subject: Metadata, applied: Callable[[], None] | None = None
    ) -> None:
        """Send the writes in order; `applied` is called after each one that put something in place.

        Events are about `subject`: warnings before the writes, so that a write that fails hides none.
        """
        for one in decision.news:
            if one.type == "Warning":
                self._recorder.event(kind, subject, "Warning", one.reason, "Place", one.note)
        for write in decision.writes:
            answer = await self._send(write)
            if applied is not None and answer is not None and write.verb is Verb.APPLY:
                applied()
        for one in decision.news:
            if one.type == "Normal" and not self._writer.dry_run:
                self._recorder.event(kind, subject, "Normal", one.reason, "Place", one.note)

    async def _send(self, write: Write) -> object | None:
        """The object after the write; None where nothing was written, or nothing is left."""
        watch = self._caches.by_kind[write.kind]
        match write.verb:
            case Verb.CREATE:
                return await watch.create(self._writer, write.body, write.namespace, why=write.why)
            case Verb.DELETE:
                await self._writer.delete(write.kind, write.name, write.namespace, uid=write.uid, why=write.why)
                return None
            case verb:
                how = How.APPLY if verb is Verb.APPLY else How.MERGE
                return await watch.patch(
                    self._writer, write.name, write.body, write.namespace, why=write.why, how=how,
                    subresource=write.subresource, force=how is How.APPLY,
                )  # fmt: skip
