"""Metal as a process that dies right after its n-th write and comes back, until it has nothing left to do.

`python -m tests.real.metal_driver KUBECONFIG N,N,... [stay]`: the first life ends after N writes, the second after the
next N, the last one when it has come to rest, or with `stay` when somebody ends it. Prints each life as it begins.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import Any

from hostler.capabilities import read_settings
from hostler.kube import clusters
from hostler.kube.client import Client
from hostler.kube.config import load
from hostler.metal.capability import MetalCapability
from tests.sharing import share


class Mortal(Client):
    """Dies, without a word and without clearing up, when the answer to its n-th write has come."""

    left = 0
    last = 0.0

    async def request(self, method: str, path: str, **more: Any) -> bytes:
        answer = await super().request(method, path, **more)
        if method != "GET" and "/events" not in path:
            type(self).last = time.monotonic()
            type(self).left -= 1
            if type(self).left == 0:
                os._exit(9)
        return answer


# At rest: everything is read, nothing is due or under way, and nothing was written for so long.
IDLE = 0.7


async def live(kubeconfig: str, die_after: int, stay: bool) -> None:
    Mortal.left, Mortal.last = die_after, time.monotonic()
    clusters.Client = Mortal  # type: ignore[attr-defined]  # a write to a node of the workload cluster is one too
    client = Mortal(load(kubeconfig, None))
    # One worker: with more, others' writes would be under way when it dies, and no crash point would be exact.
    metal = MetalCapability(share(client, ["metal"], read_settings({"metal_workers": "1"}, {})))
    metal.listen()
    work = [asyncio.create_task(watch.run()) for watch in metal.watches()]
    work += [asyncio.create_task(one.run()) for one in metal.controllers.values()]
    work.append(asyncio.create_task(metal.run()))
    while stay or time.monotonic() - Mortal.last < IDLE or _busy(metal):
        if _busy(metal):
            Mortal.last = time.monotonic()
        await asyncio.sleep(0.05)
    os._exit(0)


def _busy(metal: MetalCapability) -> bool:
    """What is read or worked on. Until all is read, that of addresses too, nothing is begun."""
    unread = not all(watch.synced.is_set() for watch in metal.watches())
    return unread or any(len(one.queue) or one.queue.active for one in metal.controllers.values())


def main(kubeconfig: str, deaths: list[int], stay: bool) -> None:
    """A fork per life: what a process had in memory is gone with it, what it had imported need not be."""
    lives = 0
    while True:
        lives += 1
        print(f"life {lives}", flush=True)
        child = os.fork()
        if child == 0:
            try:
                asyncio.run(live(kubeconfig, deaths[lives - 1] if lives <= len(deaths) else 0, stay))
            finally:
                os._exit(1)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code != 9:
            sys.exit(code)


if __name__ == "__main__":
    main(sys.argv[1], [int(number) for number in sys.argv[2].split(",")], sys.argv[3:] == ["stay"])
