"""Carries out what was decided about platform: every write and Event of it, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from hostler.apis.openshift import CLUSTER_CSI_DRIVER
from hostler.host.write_sending import send_write
from hostler.kube.errors import ApiError, Unreachable, WriteRefused
from hostler.kube.events import Recorder
from hostler.kube.kinds import DAEMON_SET, NODE
from hostler.kube.writer import Writer
from hostler.platform.model import MANAGER, Write
from hostler.platform.observe import Caches

# What an Event says was being done.
_ACTIONS = {DAEMON_SET: "Scope", CLUSTER_CSI_DRIVER: "Manage", NODE: "Initialise"}


class PlatformExecutor:
    """The only writer of platform. What it wrote is in the caches at once.

    `back` is for writes that give an operator its own back: they are allowed beside it.
    """

    def __init__(self, caches: Caches, writer: Writer, back: Writer, recorder: Recorder) -> None:
        self._caches, self._writer, self._back, self._recorder = caches, writer, back, recorder

    async def carry_out(self, steps: Iterable[Sequence[Write]], written: Callable[[Write], None] | None = None) -> None:
        """All steps, one after the other: one that is refused does not keep the others back. Then its error.

        `written` is called after each write that was sent.
        """
        errors: list[Exception] = []
        for step in steps:
            try:
                for write in step:
                    if await self._send(write) and written is not None:
                        written(write)
            except (ApiError, Unreachable, WriteRefused) as error:
                errors.append(error)
        if errors:
            raise errors[0]

    async def _send(self, write: Write) -> bool:
        """False: it is a dry run, or nothing is left to look at."""
        writer = self._back if write.gives_back else self._writer
        answer = await send_write(write, writer, self._caches.by_kind[write.kind], applies_as=MANAGER)
        if answer is None:
            return False
        if (notice := write.notice) is not None:
            action = _ACTIONS[write.kind]
            self._recorder.event(write.kind, answer.metadata, notice.type, notice.reason, action, notice.note)
        return True
