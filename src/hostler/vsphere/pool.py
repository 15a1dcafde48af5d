"""A few threads of our own for calls that block; the event loop only ever awaits their end.

Daemon threads: a call that hangs on a dead vCenter must not keep the process from ending.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
_Job = tuple[Callable[[], Any], "asyncio.Future[Any]", asyncio.AbstractEventLoop]


class Pool:
    """`await pool.run(call)` runs it on one of the threads. Threads are made when first needed."""

    def __init__(self, name: str, size: int = 4) -> None:
        self._name, self._size = name, size
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._idle = threading.Semaphore(0)  # threads that wait for work
        self._closed = False

    async def run(self, call: Callable[[], T]) -> T:
        """The call's result or its exception, as if it were called here."""
        if self._closed:
            raise RuntimeError("the pool is closed")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        if not self._idle.acquire(blocking=False) and len(self._threads) < self._size:
            thread = threading.Thread(target=self._work, name=f"{self._name}-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._jobs.put((call, future, loop))
        return await future

    def close(self) -> None:
        """No more work; each thread ends after the call it is in."""
        self._closed = True
        for _ in self._threads:
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            call, future, loop = job
            result, error = None, None
            try:
                result = call()
            except BaseException as raised:  # noqa: BLE001  it belongs to whoever awaits
                error = raised
            _hand_over(loop, future, result, error)
            del job, call, future, result, error
            self._idle.release()


def _hand_over(
    loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any], result: Any, error: BaseException | None
) -> None:
    def settle() -> None:
        if future.done():
            return  # whoever asked has gone
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)

    post(loop, settle)


def post(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    """Call back on the loop, from any thread. A loop that is closed has nobody left who would listen."""
    try:
        loop.call_soon_threadsafe(callback)
    except RuntimeError:
        if not loop.is_closed():
            raise
