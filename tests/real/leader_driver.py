"""One operator in miniature, as a process of its own: campaigns for a lease and writes as long as it leads.

Started by test_lease.py, which stops and continues it. Its user agent tells its writes apart in the audit log.
"""

from __future__ import annotations

import asyncio
import signal
import sys

from hostler.kube.budget import WriteBudget
from hostler.kube.client import Client
from hostler.kube.config import load
from hostler.kube.election import Timing
from hostler.kube.errors import ApiError, Unreachable, WriteRefused
from hostler.kube.kinds import CONFIG_MAP
from hostler.kube.lease import Leadership
from hostler.kube.metrics import Metrics
from hostler.kube.records import Object
from hostler.kube.writer import Writer

TIMING = Timing(duration=3, renew_deadline=2, retry=0.5)


async def main(kubeconfig: str, namespace: str, name: str) -> None:
    async with Client(load(kubeconfig, None), user_agent=f"leader-driver/{name}") as client:
        leadership = Leadership(client, "driver", namespace, identity=name, timing=TIMING)
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        campaign = asyncio.create_task(leadership.run())
        writing = asyncio.create_task(write(client, leadership, namespace, stop))
        await stop.wait()
        await writing
        print("released" if await leadership.stop() else "not released", flush=True)
        await campaign


async def write(client: Client, leadership: Leadership, namespace: str, stop: asyncio.Event) -> None:
    """As fast as a capability ever would, asking nothing but the gate."""
    writer = Writer(
        client, "driver", gate=leadership.gate, budget=WriteBudget(rate=1000, burst=1000), metrics=Metrics()
    )
    number = 0
    while not stop.is_set():
        number += 1
        body = {"data": {"by": leadership.identity, "number": str(number), "token": str(leadership.token)}}
        try:
            await writer.patch(CONFIG_MAP, "written", body, namespace, type=Object, why="to be seen in the audit log")
        except (WriteRefused, ApiError, Unreachable):
            await asyncio.sleep(0.01)
        await asyncio.sleep(0)


asyncio.run(main(*sys.argv[1:4]))
