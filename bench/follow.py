"""The measured side of bench/runtime.py: Hostler's watch caches over nodes and pods, and nothing else.

    python -m bench.follow KUBECONFIG nodes,pods

Speaks as the peers do: one JSON line when synced, then one for every line on stdin.
"""

from __future__ import annotations

import asyncio
import gc
import json
import resource
import sys
import time

from hostler import lean_imports

lean_imports.import_lean()  # as the operator does

from hostler.kube import tls  # noqa: E402
from hostler.kube.client import Client  # noqa: E402
from hostler.kube.config import load  # noqa: E402
from hostler.kube.kinds import NODE, POD  # noqa: E402
from hostler.kube.metrics import Metrics  # noqa: E402
from hostler.kube.records import Node, Pod  # noqa: E402
from hostler.kube.watch import Watch  # noqa: E402


def resident_kib() -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


async def main() -> None:
    tls.small_buffers()  # as the operator does
    kubeconfig, kinds = sys.argv[1:]
    events = 0

    def changed(_key: str, _old: object, _new: object) -> None:
        nonlocal events
        events += 1

    def report(word: str) -> None:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        line = {
            "word": word, "cpu": usage.ru_utime + usage.ru_stime, "rss_kib": resident_kib(), "events": events,
            "seconds": time.monotonic() - started,
        }  # fmt: skip
        print(json.dumps(line), flush=True)

    started = time.monotonic()
    async with Client(load(kubeconfig, None)) as client:
        tasks: list[asyncio.Task[None]] = []
        synced: list[asyncio.Event] = []
        if "pods" in kinds:
            pods = Watch(
                client, POD, Pod, metrics=Metrics(),
                indexes={
                    "node": lambda pod: (pod.spec.node_name,),
                    "owner": lambda pod: tuple([owner.uid for owner in pod.metadata.owner_references]),
                },
            )  # fmt: skip
            pods.store.listen(changed)
            tasks.append(asyncio.create_task(pods.run()))
            synced.append(pods.synced)
        if "nodes" in kinds:
            nodes = Watch(client, NODE, Node, metrics=Metrics())
            nodes.store.listen(changed)
            tasks.append(asyncio.create_task(nodes.run()))
            synced.append(nodes.synced)
        for event in synced:
            await event.wait()
        report("synced")
        while line := (await asyncio.to_thread(sys.stdin.readline)).strip():
            if line == "settle":
                gc.collect()
            report(line)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main())
