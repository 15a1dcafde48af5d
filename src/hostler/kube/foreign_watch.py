"""A watch of an API server that another party runs: what it may send is bounded, and its messages stay in the log.

The author of the kubeconfig chose the server. It may send without end, send what no API server sends, or put text
into an error that is meant for our users.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import structlog

from hostler.kube.client import Client
from hostler.kube.kinds import Kind
from hostler.kube.memory_shares import Share, WeighedStore
from hostler.kube.metrics import Metrics
from hostler.kube.records import HasMetadata
from hostler.kube.watch import Watch

R = TypeVar("R", bound=HasMetadata)
log = structlog.get_logger("hostler.watch")

LONGEST_LINE = 1 << 20  # bytes of one object; etcd itself takes no more than 1.5 MiB, and a Node has some 20 KiB
SHORTEST_LINE = 32  # bytes on average; no event is as short, and each line costs time however short it is
LONGEST_WORDS = 300  # characters of its own text in our log


class TooMuch(Exception):
    """It sends more than we take. Drop the watch and with it what it holds; open another one later."""


class ForeignWatch(Watch[R]):
    """As `Watch`, but `run` raises `TooMuch`. What it keeps in memory counts in `share`, half a line too."""

    def __init__(
        self,
        client: Client,
        kind: Kind,
        type: type[R],
        *,
        metrics: Metrics,
        most_bytes: int,
        most_objects: int,
        share: Share,
        troubled: Callable[[], None],
        where: str,
        trim: Callable[[R], R] | None = None,
        **more: Any,
    ) -> None:
        """`troubled` is called each time it turns out that the kind cannot be followed; `where` is for the log.

        `most_bytes` bounds the work of reading, `share` the memory; `trim` leaves of an object what is used.
        """
        self._weighed = WeighedStore(trim)
        super().__init__(client, kind, type, metrics=metrics, store=self._weighed, **more)
        self._share, self._counted, self._unfinished = share, 0, 0
        self._left, self._most, self._troubled = most_bytes, most_objects, troubled
        self._where, self._complained = where, False

    def _received(self, size: int, unfinished: int) -> None:
        self._left -= size
        self._unfinished = unfinished
        self._count()
        if unfinished > LONGEST_LINE:
            raise TooMuch(f"one of its {self.kind.resource} has more than {LONGEST_LINE >> 20} MiB")
        if len(self.store) + len(self.store.unreadable) > self._most:
            raise TooMuch(f"it has more than {self._most} {self.kind.resource}")
        if self._left < 0:
            raise TooMuch(f"it has sent as many bytes about {self.kind.resource} as one watch may")

    def _take(self, piece: memoryview) -> int:
        lines = bytes(piece).count(b"\n")
        if lines * SHORTEST_LINE > len(piece):
            raise TooMuch("it sends lines that are no events")
        taken = super()._take(piece)
        self._count()
        return taken

    def _count(self) -> None:
        now = self._weighed.size + self._unfinished
        before, self._counted = self._counted, now
        self._share.add(now - before)

    def _left_out(self, key: str, error: Exception) -> None:
        if not self._complained:  # one line per watch: their number is not ours to choose
            self._complained = True
            log.warning("cannot read an object there", cluster=self._where, kind=self.kind.resource)

    def _say(self, problem: str) -> None:
        if not self.problem:
            said = problem[:LONGEST_WORDS]
            log.warning("not following another cluster", cluster=self._where, kind=self.kind.resource, why=said)
        self.problem = f"{self.kind.resource} there cannot be followed now; the operator's log says why"
        self._troubled()
