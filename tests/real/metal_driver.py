"""The metal room as a process that dies right after its n-th write and comes back, until it has nothing left to do.

`python -m tests.real.metal_driver KUBECONFIG N,N,... [stay]`: the first life ends after N writes, the second after the
next N, the last one when it has come to rest, or with `stay` when somebody ends it. Prints each life as it begins.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import Any

from hostler.kube import clusters
from hostler.kube.budget import WriteBudget
from hostler.kube.client import Client
from hostler.kube.config import load
from hostler.kube.controller import Reconcile
from hostler.kube.events import Recorder
from hostler.kube.metrics import Metrics
from hostler.kube.writer import Writer
from hostler.metal.capability import MetalRoom
from hostler.settings.metal import SETTINGS
from hostler.settings.resolve import resolve


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
    metrics = Metrics()
    clusters.Client = Mortal  # type: ignore[attr-defined]  # a write to a node of the workload cluster is one too
    client = Mortal(load(kubeconfig, None))

    def writer_for(other: Client) -> Writer:
        return Writer(other, "metal", gate=lambda: None, budget=WriteBudget(500, 500), metrics=metrics)

    def as_leader(reconcile: Reconcile) -> Reconcile:
        return reconcile

    recorder = Recorder(writer_for(client), "driver", metrics)
    # One worker: with more, others' writes would be under way when it dies, and no crash point would be exact.
    settings = resolve({"metal_workers": "1"}, {}, table=SETTINGS)
    room = MetalRoom(client, writer_for, recorder, settings, metrics=metrics, as_leader=as_leader)
    room.listen()
    work = [asyncio.create_task(watch.run()) for watch in room.watches()]
    work += [asyncio.create_task(one.run()) for one in room.controllers()]
    work.append(asyncio.create_task(room.run()))
    while stay or time.monotonic() - Mortal.last < IDLE or _busy(room):
        if _busy(room):
            Mortal.last = time.monotonic()
        await asyncio.sleep(0.05)
    os._exit(0)


def _busy(room: MetalRoom) -> bool:
    """What is read or worked on. Until all is read, that of addresses too, nothing is begun."""
    unread = not all(watch.synced.is_set() for watch in room.watches())
    return unread or any(len(one.queue) or one.queue.active for one in room.controllers())


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
