"""How a test's own server or proxy ends: with no socket left open for the garbage collector to complain about."""

from __future__ import annotations

import asyncio


async def end_connections() -> None:
    """End every connection of the running loop at once.

    A TLS connection that is closed says goodbye and waits for the answer, which a killed or idle peer never gives:
    the loop would be gone first, and the socket still open.
    """
    for _ in range(20):
        # The loop's own table; there is no public way to find a transport that is still shaking hands.
        transports = list(asyncio.get_running_loop()._transports.values())  # type: ignore[attr-defined]
        for transport in transports:
            transport.abort()
        await asyncio.sleep(0.01)
        if not transports:
            break
