"""One operator in miniature, as a process of its own: campaigns for a lease and writes as long as it leads.

Started by test_lease.py, which stops and continues it. Its user agent tells its writes apart in the audit log.
With "sleepy" it stops itself now and then at the worst moment: right after the gate said yes.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys

from hostler.kube.budget import WriteBudget
from hostler.kube.client import Client
from hostler.kube.config import load
from hostler.kube.election import Timing
from hostler.kube.errors import ApiError, Unreachable, WriteRefused
from hostler.kube.gate import Gate
from hostler.kube.kinds import CONFIG_MAP
from hostler.kube.lease import Leadership
from hostler.kube.metrics import Metrics
from hostler.kube.records import Object
from hostler.kube.writer import Writer

TIMING = Timing(duration=3, renew_deadline=2, retry=0.5)


# By the writer, by the client, by the body as it is written. The last look is the socket's, right before it sends.
LOOKS_BEFORE_THE_LAST = 3


class SleepyGate:
    """Says what the real gate says, and sometimes stops this process right after a yes."""

    def __init__(self, gate: Gate, share: float) -> None:
        self._gate, self._share = gate, share
        self._stop_after = self._looks = 0

    def new_write(self, earlier: int) -> None:
        self._looks = 0
        # Not among the first writes of a term: the test wants to see some before the next sleep.
        sleep = earlier > 20 and random.random() < self._share
        self._stop_after = random.randint(1, LOOKS_BEFORE_THE_LAST) if sleep else 0

    def __call__(self) -> str | None:
        verdict = self._gate()
        self._looks += 1
        if verdict is None and self._looks == self._stop_after:
            os.kill(os.getpid(), signal.SIGSTOP)
        return verdict


async def main(kubeconfig: str, namespace: str, name: str, sleepy: str = "") -> None:
    async with Client(load(kubeconfig, None), user_agent=f"leader-driver/{name}") as client:
        leadership = Leadership(client, "driver", namespace, identity=name, timing=TIMING)
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        campaign = asyncio.create_task(leadership.run())
        writing = asyncio.create_task(write(client, leadership, namespace, stop, 0.01 if sleepy else 0.0))
        await stop.wait()
        await writing
        print("released" if await leadership.stop() else "not released", flush=True)
        await campaign


async def write(client: Client, leadership: Leadership, namespace: str, stop: asyncio.Event, sleepy: float) -> None:
    """As fast as a capability ever would, asking nothing but the gate."""
    gate = SleepyGate(leadership.gate, sleepy)
    writer = Writer(client, "driver", gate=gate, budget=WriteBudget(rate=1000, burst=1000), metrics=Metrics())
    number = in_a_row = 0
    while not stop.is_set():
        number += 1
        gate.new_write(in_a_row)
        body = {"data": {"by": leadership.identity, "number": str(number), "token": str(leadership.token)}}
        try:
            await writer.patch(CONFIG_MAP, "written", body, namespace, type=Object, why="to be seen in the audit log")
            in_a_row += 1
        except (WriteRefused, ApiError, Unreachable):
            in_a_row = 0
            await asyncio.sleep(0.01)
        await asyncio.sleep(0)


asyncio.run(main(*sys.argv[1:]))
