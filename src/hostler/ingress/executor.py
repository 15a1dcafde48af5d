"""Carries out what was decided about ingress: every write and Event of it, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

from hostler.host.write_sending import send_write
from hostler.host.writes import Verb
from hostler.ingress.model import Decision
from hostler.ingress.observe import Caches
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
        for notice in decision.notices:
            if notice.type == "Warning":
                self._recorder.event(kind, subject, "Warning", notice.reason, "Place", notice.note)
        for write in decision.writes:
            answer = await send_write(write, self._writer, self._caches.by_kind[write.kind])
            if applied is not None and answer is not None and write.verb is Verb.APPLY:
                applied()
        for notice in decision.notices:
            if notice.type == "Normal" and not self._writer.dry_run:
                self._recorder.event(kind, subject, "Normal", notice.reason, "Place", notice.note)
