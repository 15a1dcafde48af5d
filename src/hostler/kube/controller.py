"""The loop around a `reconcile(key)`: workers, back-off, wake-ups, and an ending that finishes what it began."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import structlog

from hostler.kube.errors import ApiError, Conflict, Unreachable, WriteRefused
from hostler.kube.metrics import Metrics
from hostler.kube.queue import Queue

log = structlog.get_logger("hostler.controller")

# Looks at one key afresh. Returns in how many seconds it wants to look again, or None to wait for a change.
Reconcile = Callable[[str], Awaitable[float | None]]

# How long a key rests when we are not allowed to write at all (paused, not the leader): a change of that wakes it.
REFUSED_REST = 30.0
# How often the length of the queue is measured: counting thousands of keys for each of them would be quadratic.
DEPTH_SECONDS = 0.5
# Looks that find all they need in the caches wait for nothing. So long they may go on before the rest gets its turn.
TURN_SECONDS = 0.05


class Terminal(Exception):
    """Trying again will not help until the object changes; the sentence says why."""


class Controller:
    """Runs one `reconcile`. A key is only a key: what happened is looked up in the caches."""

    def __init__(
        self, name: str, reconcile: Reconcile, *, metrics: Metrics, workers: int = 1, queue: Queue | None = None
    ) -> None:
        self.name = name
        self.queue = queue or Queue()
        self._reconcile = reconcile
        self._metrics = metrics
        self._workers = workers
        self._measured = 0.0
        self._turned = 0.0
        metrics.expect_controller(name)

    async def run(self) -> None:
        """Work until `stop`; a reconcile under way when it comes is finished, not cut."""
        async with asyncio.TaskGroup() as group:
            for number in range(self._workers):
                group.create_task(self._work(), name=f"{self.name}-{number}")

    def stop(self) -> None:
        self.queue.close()

    async def _work(self) -> None:
        while (key := await self.queue.get()) is not None:
            started = time.perf_counter()
            if started - self._turned > TURN_SECONDS:
                await asyncio.sleep(0)
                self._turned = started = time.perf_counter()
            if started - self._measured > DEPTH_SECONDS:
                self._measured = started
                self._metrics.queue_depth(self.name, len(self.queue))
            try:
                result = await self._once(key)
            finally:
                self.queue.done(key)
            self._metrics.reconciled(self.name, result, time.perf_counter() - started)

    async def _once(self, key: str) -> str:
        """One look at one key; the answer is the metric's word for how it went."""
        try:
            wake = await self._reconcile(key)
        except WriteRefused as refusal:
            self.queue.add(key, after=REFUSED_REST)
            log.debug("write refused", controller=self.name, key=key, why=refusal.why)
            return "refused"
        except Terminal as error:
            self.queue.forget(key)
            log.warning("gave up until it changes", controller=self.name, key=key, why=str(error))
            return "terminal"
        except Conflict:
            self.queue.retry(key)  # another client wrote first; the cache will show it in a moment
            return "conflict"
        except (ApiError, Unreachable) as error:
            delay = self.queue.retry(key)
            log.warning("will try again", controller=self.name, key=key, error=str(error), after=round(delay, 1))
            return "error"
        except Exception:
            # The outermost edge of a controller: a bug in one key must not stop the others. It is logged and counted.
            delay = self.queue.retry(key)
            log.exception("bug in reconcile", controller=self.name, key=key, after=round(delay, 1))
            return "bug"
        self.queue.forget(key)
        if wake is not None:
            self.queue.add(key, after=max(wake, 0.01))
        return "ok"
