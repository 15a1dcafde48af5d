"""The measured side of bench/runtime.py: Hostler's watch caches over nodes and pods, and nothing else.

Speaks as the peers do: one JSON line when synced, then one for every line on stdin.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import resource
import sys
import time

from hostler.kube import collector, tls
from hostler.kube.client import Client
from hostler.kube.config import load
from hostler.kube.kinds import NODE, POD
from hostler.kube.metrics import Metrics
from hostler.kube.queue import Queue
from hostler.kube.records import Node, Pod
from hostler.kube.watch import Watch


def resident_kib() -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


async def main() -> None:
    collector.calm()  # both as the operator does
    tls.small_buffers()
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--kubeconfig", required=True)
    args.add_argument("--kinds", default="nodes,pods")
    args.add_argument("--queue", action="store_true", help="also put every change through the work queue")
    chosen = args.parse_args()
    events = 0
    queue = Queue()

    def changed(key: str, _old: object, _new: object) -> None:
        nonlocal events
        events += 1
        if chosen.queue:
            queue.add(key)

    async def work() -> None:
        while (key := await queue.get()) is not None:
            queue.done(key)

    def report(word: str) -> None:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        line = {
            "word": word, "cpu": usage.ru_utime + usage.ru_stime, "rss_kib": resident_kib(), "events": events,
            "seconds": time.monotonic() - started,
        }  # fmt: skip
        print(json.dumps(line), flush=True)

    started = time.monotonic()
    async with Client(load(chosen.kubeconfig, None)) as client:
        tasks = [asyncio.create_task(work())]
        synced: list[asyncio.Event] = []
        if "pods" in chosen.kinds:
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
        if "nodes" in chosen.kinds:
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
