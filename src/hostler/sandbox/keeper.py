"""The part that makes nodes behave as their machines do: `python -m hostler.sandbox.keeper --dir D`.

Follows the vCenter simulator, the nodes and the volume attachments; see power.py and attacher.py for what it does.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
from pathlib import Path

import aiohttp

from hostler.sandbox import http
from hostler.sandbox.attacher import Attacher, Attachment
from hostler.sandbox.certs import write_secret
from hostler.sandbox.follow import follow, say
from hostler.sandbox.life import Sandbox
from hostler.sandbox.power import Node, Power


async def keep(box: Sandbox) -> None:
    """Until SIGTERM."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    connector = aiohttp.TCPConnector(ssl=http.trust(box.layout, "keeper"))
    timeout = aiohttp.ClientTimeout(total=30)
    async with aiohttp.ClientSession(
        box.server, connector=connector, timeout=timeout, read_bufsize=4 * 1024**2
    ) as session:
        power = Power(session)
        attacher = Attacher(session, power)
        synced = {name: asyncio.Event() for name in ("nodes", "attachments", "vms")}

        def nodes_listed(nodes: list[Node]) -> None:
            power.listed(nodes)
            synced["nodes"].set()

        def attachments_listed(attachments: list[Attachment]) -> None:
            attacher.listed(attachments)
            synced["attachments"].set()

        tasks = [
            follow(session, "/api/v1/nodes", Node, nodes_listed, power.changed),
            follow(
                session,
                "/apis/storage.k8s.io/v1/volumeattachments",
                Attachment,
                attachments_listed,
                attacher.changed,
            ),
            power.work(),
            # Two looks that far apart see at least one renewal of a lease that is still renewed.
            power.guard(max(1.0, box.state.options.node_lease_duration_seconds / 3)),
            attacher.work(),
        ]
        if box.state.has_vcenter:
            tasks.append(power.follow_vcenter(box.state.control, synced["vms"]))
        else:
            synced["vms"].set()
        running = [asyncio.create_task(task) for task in tasks]
        ready = asyncio.create_task(_say_ready(box, list(synced.values())))
        await asyncio.wait([*running, asyncio.create_task(stop.wait())], return_when=asyncio.FIRST_COMPLETED)
        for task in (*running, ready):
            task.cancel()
        outcomes = await asyncio.gather(*running, ready, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome


async def _say_ready(box: Sandbox, events: list[asyncio.Event]) -> None:
    for event in events:
        await event.wait()
    write_secret(box.keeper_ready, f"{os.getpid()}\n".encode())
    say("the keeper follows nodes, volumes and VMs")


def main() -> None:
    arguments = argparse.ArgumentParser(prog="hostler.sandbox.keeper", description=__doc__)
    arguments.add_argument("--dir", required=True, type=Path)
    asyncio.run(keep(Sandbox.open(arguments.parse_args().dir)))


if __name__ == "__main__":
    main()
