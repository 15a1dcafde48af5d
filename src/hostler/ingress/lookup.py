"""Asks the resolver where a wildcard name points, now and then; what it said last is a fact with an age."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable

from hostler.host.facts import Fact, Known, Unknown, age
from hostler.ingress.wildcard import PROBE
from hostler.instant import Instant

FRESH_SECONDS = 60.0
PATIENCE_SECONDS = 5.0


class Lookup:
    """Remembers one answer per domain. A resolver that does not answer is no answer, never an empty one."""

    def __init__(self, clock: Callable[[], Instant] = time.time) -> None:
        self._clock = clock
        self._known: dict[str, tuple[Instant, Fact[tuple[str, ...]]]] = {}

    def last(self, domain: str) -> Fact[tuple[str, ...]]:
        found = self._known.get(domain)
        return found[1] if found is not None else Unknown("it was not looked up yet")

    async def look(self, domain: str) -> Fact[tuple[str, ...]]:
        """The answer, looked up again if the last one is old."""
        now = self._clock()
        found = self._known.get(domain)
        if found is None or age(Known(None, found[0]), now) > FRESH_SECONDS:
            self._known[domain] = (now, await resolve(f"{PROBE}.{domain}", now))
        return self._known[domain][1]


async def resolve(name: str, now: Instant) -> Fact[tuple[str, ...]]:
    """Every address of a name, as this machine resolves it."""
    loop = asyncio.get_running_loop()
    try:
        asked = loop.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        answers = await asyncio.wait_for(asked, PATIENCE_SECONDS)
    except TimeoutError:
        return Unknown(f"{name} was not resolved within {PATIENCE_SECONDS:g} s")
    except (OSError, UnicodeError) as error:
        return Unknown(f"{name} does not resolve from here ({error})")
    return Known(tuple(sorted({str(answer[4][0]) for answer in answers})), now)
