"""The hub's service as a process of its own, as a replica of the operator runs it; the test kills it and starts two."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

from hostler.kube.budget import WriteBudget
from hostler.kube.client import Client
from hostler.kube.config import load
from hostler.kube.writer import Writer
from hostler.reclaim.artifacts import BootPolicy
from hostler.reclaim.hub.agents import HubAgents
from hostler.reclaim.hub.listener import Listener
from hostler.reclaim.hub.server import Hub, open_artifacts
from hostler.reclaim.hub.tokens import Keys

CONNECTIONS = 512


async def main(kubeconfig: str, folder: str, port: str) -> None:
    place = Path(folder)
    async with Client(load(kubeconfig, None)) as client:
        # The test closes the gate by this file, as a pause of the Fleet would.
        writer = Writer(
            client,
            "reclaim",
            gate=lambda: "It is paused." if (place / "paused").exists() else None,
            budget=WriteBudget(50, 100),
        )
        url = f"https://127.0.0.1:{port}"
        keys = Keys((place / "key.pem").read_bytes())
        agents = HubAgents(client, writer, BootPolicy())
        hub = Hub(agents, lambda: keys, open_artifacts(str(place / "artifacts"), url), connections=CONNECTIONS)
        listener = Listener(hub, "127.0.0.1", int(port), str(place / "tls.crt"), str(place / "tls.key"))
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        await listener.start()
        print("listening", flush=True)
        await stop.wait()
        await listener.stop()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
