"""Maintenance on a big vCenter: how soon a worker is cordoned, what being idle costs, and how fast a hundred drain.

    python -m bench.maintenance [--hosts 500] [--vms 5000] [--enters 100] [--drains 100] [--pods 30]

The operator is `hostler run` as a process on a real API server and the vCenter simulator; the seed's way of polling
(bench/peers/seed_polling.py) looks at the same vCenter afterwards. Times are taken by this process, which watches the
nodes itself; writes are counted in the API server's audit log, CPU and memory in /proc, SOAP calls by the operator's
own counter (/metrics), which every call passes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import yaml

from bench.load import in_parallel
from bench.operating import USER, Operator, operator
from bench.runtime import HERE, RESULTS, machine, say, write_section
from hostler.kube.client import Client
from hostler.kube.config import load
from hostler.kube.kinds import NAMESPACE, NODE, POD
from hostler.kube.metrics import Metrics
from hostler.kube.records import Node, Object
from hostler.kube.watch import Watch
from hostler.sandbox.life import Sandbox
from hostler.sandbox.model import Options

GPU = {"vendor": "10de", "device": "20b5"}
LABEL = "intel.feature.node.kubernetes.io/gpu"
# Nobody's lease may run out and nobody's node turn Unknown: what is written must be the operator's doing.
CALM = Options(
    audit=True, node_lease_duration_seconds=1200, node_monitor_grace_seconds=3600, node_monitor_period_seconds=60
)


@dataclass(frozen=True)
class Size:
    hosts: int
    vms: int
    enters: int
    drains: int
    pods: int
    idle: float
    writes: int


@dataclass
class Row:
    what: str
    hostler: str
    wanted: str = ""
    polling: str = "-"


@dataclass
class Found:
    rows: list[Row] = field(default_factory=list)

    def add(self, what: str, hostler: str, wanted: str = "", polling: str = "-") -> None:
        self.rows.append(Row(what, hostler, wanted, polling))
        say(f"{what}: {hostler}" + (f" (polling: {polling})" if polling != "-" else ""))


def fleet(size: Size) -> dict[str, Any]:
    """One GPU worker per host, which is a node; the other VMs are powered off and nobody's."""
    hosts = [f"esx-{number}" for number in range(size.hosts)]
    gpu = [{"id": "0000:3b:00.0", **GPU}]
    workers = {"name": "w-{i}", "count": size.hosts, "host": hosts, "guestShutdownSeconds": -1,
               "devices": [{"kind": "dynamic", "allowed": [GPU]}]}  # fmt: skip
    others = {"name": "vm-{i}", "count": size.vms - size.hosts, "host": hosts, "power": "off"}
    cluster = {"name": "c1", "drs": "off", "hosts": [{"name": "esx-{i}", "count": size.hosts, "devices": gpu}]}
    return {
        "nodes": [{"name": "w-{i}", "count": size.hosts, "vm": "w-{i}", "labels": {LABEL: "true"}}],
        "vcenters": [{"datacenters": [{"name": "dc1", "clusters": [cluster], "vms": [workers, others]}]}],
    }


def told(size: Size) -> dict[str, str]:
    return {
        "MAX_CONCURRENT_DRAINS": str(size.hosts),
        "MAX_UNAVAILABLE": "100%",
        "HOSTLER_WRITES_PER_SECOND": str(size.writes),
        "HOSTLER_WRITE_BURST": str(size.writes),
    }


async def until(look: Callable[[], object], what: str, seconds: float = 300.0) -> None:
    end = time.monotonic() + seconds
    while not await asyncio.to_thread(look):
        if time.monotonic() > end:
            raise SystemExit(f"bench: not within {seconds:.0f} s: {what}")
        await asyncio.sleep(0.5)


# -- what this process sees itself


class Cordons:
    """When a node was cordoned and uncordoned, as a watch of our own tells it."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, bool], asyncio.Future[float]] = {}

    def changed(self, name: str, _old: Node | None, new: Node | None) -> None:
        waiting = self._waiting.pop((name, bool(new and new.spec.unschedulable)), None)
        if waiting is not None and not waiting.done():
            waiting.set_result(time.monotonic())

    def expect(self, name: str, cordoned: bool) -> asyncio.Future[float]:
        return self._waiting.setdefault((name, cordoned), asyncio.get_running_loop().create_future())


@asynccontextmanager
async def watching(sandbox: Sandbox) -> AsyncIterator[tuple[Client, Cordons]]:
    cordons = Cordons()
    async with Client(load(str(sandbox.kubeconfig), None), timeout=120) as client:
        nodes = Watch(client, NODE, Node, metrics=Metrics())
        nodes.store.listen(cordons.changed)
        task = asyncio.create_task(nodes.run())
        await nodes.synced.wait()
        try:
            yield client, cordons
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def pod(name: str, node: str, *, stays: bool) -> dict[str, Any]:
    """`stays`: deleted, it stays Terminating, so that the drain of its node goes on until it is cancelled."""
    notes = {"sandbox.hostler.dev/kubelet": "ignore"} if stays else {}
    spec = {"nodeName": node, "containers": [{"name": "c", "image": "x"}], "tolerations": [{"operator": "Exists"}],
            "terminationGracePeriodSeconds": 3600 if stays else 1}  # fmt: skip
    return {"metadata": {"name": name, "annotations": notes}, "spec": spec}


async def make_pods(client: Client, size: Size) -> None:
    """One pod that stays on each host that only enters; `pods` on each that is drained to its end."""
    await client.create(NAMESPACE, {"metadata": {"name": "bench"}}, type=Object)
    await asyncio.sleep(2)  # its service account
    wanted = [pod(f"stays-{number}", f"w-{number}", stays=True) for number in range(size.enters)]
    for node in range(size.hosts - size.drains, size.hosts):
        wanted += [pod(f"goes-{node}-{number}", f"w-{node}", stays=False) for number in range(size.pods)]

    async def one(number: int) -> None:
        await client.create(POD, wanted[number], "bench", type=Object)

    await in_parallel(len(wanted), one)


# -- the measurements


async def enters(sandbox: Sandbox, cordons: Cordons, running: Operator, size: Size, found: Found) -> None:
    """One host after the other enters maintenance; each is cancelled again and not used a second time."""
    dice, took, back, cpu = random.Random(1), [], [], running.cpu()
    for number in range(size.enters):
        node = f"w-{number}"
        cordoned = cordons.expect(node, True)
        begin = time.monotonic()
        await asyncio.to_thread(sandbox.maintenance, f"esx-{number}", "enter")
        took.append(await asyncio.wait_for(cordoned, 60) - begin)
        uncordoned = cordons.expect(node, False)
        await asyncio.sleep(dice.uniform(0.05, 0.25))
        begin = time.monotonic()
        await asyncio.to_thread(sandbox.maintenance, f"esx-{number}", "cancel")
        back.append((uncordoned, begin))
    later = [await asyncio.wait_for(future, 120) - begin for future, begin in back]
    found.add("ms from Enter to the cordon in the API server, p50", f"{quantile(took, 0.5) * 1000:.0f}")
    found.add(f"the same, p99 of {size.enters}", f"{quantile(took, 0.99) * 1000:.0f}", "<= 500")
    found.add("the same, worst", f"{max(took) * 1000:.0f}")
    found.add("CPU ms per Enter and its cancel", f"{(running.cpu() - cpu) / size.enters * 1000:.0f}")
    found.add("s from cancel to the uncordon, p50", f"{quantile(later, 0.5):.1f}")


def quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


async def idle(sandbox: Sandbox, running: Operator, size: Size, found: Found) -> None:
    await asyncio.sleep(5)
    calls, cpu, written = running.metric("hostler_vcenter_calls_total"), running.cpu(), len(writes(sandbox))
    await asyncio.sleep(size.idle)
    minutes = size.idle / 60
    found.add(
        "SOAP calls per idle minute", f"{(running.metric('hostler_vcenter_calls_total') - calls) / minutes:.1f}", "<= 8"
    )
    found.add("CPU s per idle minute", f"{(running.cpu() - cpu) / minutes:.2f}")
    found.add("API writes per idle minute", f"{(len(writes(sandbox)) - written) / minutes:.1f}")
    found.add("MiB resident, idle", f"{running.memory('VmRSS'):.0f}", "<= 150")


async def drains(sandbox: Sandbox, client: Client, running: Operator, size: Size, found: Found) -> None:
    """All at once: a hundred hosts enter, and every pod on them has to go."""
    before, cpu = len(writes(sandbox)), running.cpu()
    begin = time.monotonic()

    async def enter(number: int) -> None:
        host = f"esx-{size.hosts - size.drains + number}"
        await asyncio.to_thread(sandbox.maintenance, host, "enter")

    await in_parallel(size.drains, enter, workers=8)

    def gone() -> bool:
        left = sandbox.read("/api/v1/namespaces/bench/pods?labelSelector=&limit=5000")["items"]
        return not [one for one in left if one["metadata"]["name"].startswith("goes-")]

    await until(gone, "every pod is gone")
    seconds, pods = time.monotonic() - begin, size.drains * size.pods
    await asyncio.sleep(1)
    everything = writes(sandbox)[before:]
    evictions = Counter(one.name for one in everything if one.what == "pods/eviction")
    done = [one for one in everything if one.code < 300]
    found.add(f"evictions per second, {size.drains} nodes with {size.pods} pods each", f"{pods / seconds:.0f}")
    found.add("API writes per evicted pod, until its node is empty", f"{len(until_empty(done)) / pods:.2f}", "<= 1.1")
    found.add("the same with what follows: the guest is asked to shut down", f"{len(done) / pods:.2f}")
    found.add("evictions asked for twice", f"{sum(evictions.values()) - len(evictions)}", "0")
    found.add("CPU ms per evicted pod", f"{(running.cpu() - cpu) / pods * 1000:.1f}")
    found.add("MiB resident, at most", f"{running.memory('VmHWM'):.0f}", "<= 150")
    say(f"writes while draining: {dict(Counter(one.what for one in done))}")


@dataclass(frozen=True)
class Write:
    when: str
    what: str
    name: str
    code: int


def until_empty(done: list[Write]) -> list[Write]:
    """Without what was written about a node (on it, or as an Event) after its last eviction."""
    last: dict[str, str] = {}
    for one in done:
        if one.what == "pods/eviction":
            node = "w-" + one.name.partition("goes-")[2].rpartition("-")[0]
            last[node] = max(last.get(node, ""), one.when)
    latest = max(last.values(), default="")
    return [one for one in done if one.when <= last.get(one.name.partition("/")[2].partition(".")[0], latest)]


def writes(sandbox: Sandbox) -> list[Write]:
    """Everything the operator asked to be written, but for its lease."""
    found = []
    for entry in sandbox.audit():
        about = entry.get("objectRef", {})
        if (
            entry.get("impersonatedUser", {}).get("username") == USER
            and entry["stage"] == "ResponseComplete"
            and entry["verb"] in ("create", "patch", "update", "delete")
            and about.get("resource") not in ("leases", "selfsubjectreviews", "selfsubjectaccessreviews")
        ):
            what = "/".join(filter(None, (about["resource"], about.get("subresource"))))
            name = f"{about.get('namespace', '')}/{about.get('name', '')}"
            found.append(Write(entry["requestReceivedTimestamp"], what, name, entry["responseStatus"]["code"]))
    return found


def polling(sandbox: Sandbox, found: Found, looks: int) -> None:
    """The seed's way on the same vCenter: one look, the pause, and a host that enters meanwhile."""
    vcenter = sandbox.vcenter
    command = [sys.executable, "-m", "bench.peers.seed_polling", "--host", vcenter["host"], "--port",
               str(vcenter["port"]), "--user", vcenter["user"], "--looks", str(looks)]  # fmt: skip
    peer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=HERE.parent)
    assert peer.stdin is not None
    assert peer.stdout is not None
    peer.stdin.write(vcenter["password"] + "\n")
    peer.stdin.close()
    calls = seconds = cpu = 0.0
    entered, seen = 0.0, 0.0
    target = "esx-0"
    for line in iter(lambda: peer.stdout.readline() if peer.stdout else "", ""):
        said = json.loads(line)
        if said["word"] == "entering" and said["host"] == target and entered:
            seen = said["at"] - entered
        if said["word"] == "looked":
            calls, seconds, cpu = said["calls"], said["seconds"], said["cpu"]
            say(f"polling: one look took {seconds:.1f} s and {calls:.0f} calls")
            if not entered and looks > 1:
                entered = time.time()
                sandbox.maintenance(target, "enter")
    peer.wait(60)
    peer.stdout.close()
    rows = {row.what: row for row in found.rows}
    rows["SOAP calls per idle minute"].polling = f"{calls * 60 / (seconds + 30):.0f}"
    if seen:
        rows["ms from Enter to the cordon in the API server, p50"].polling = f"{seen * 1000:.0f} (one try, seen only)"
    look = f"{seconds:.0f} s, {calls:.0f} calls"
    found.add("one look at everything", "none: changes are pushed", "", look)
    found.add("CPU s per look", "-", "", f"{cpu / looks:.1f}")


async def run(size: Size, looks: int, keep: Path | None) -> list[str]:
    found = Found()
    with tempfile.TemporaryDirectory(prefix="hostler-bench-") as scratch:
        folder = Path(scratch)
        (folder / "fleet.yaml").write_text(yaml.safe_dump(fleet(size)))
        say(f"starting a cluster and a vCenter with {size.hosts} hosts and {size.vms} VMs")
        sandbox = Sandbox.up(folder / "sandbox", msgspec.structs.replace(CALM, fleet=str(folder / "fleet.yaml")))
        try:
            async with watching(sandbox) as (client, cordons):
                await make_pods(client, size)
                say("made; the operator starts")
                begin = time.monotonic()
                with operator(sandbox, folder, told(size)) as running:
                    await until(lambda: running.metric("hostler_vcenter_connected") > 0, "it follows vCenter")
                    await until(lambda: running.said("leading"), "it leads")
                    found.add("s until it follows all and leads (a new lease: 15 s)", f"{time.monotonic() - begin:.1f}")
                    found.add("SOAP calls to read everything", f"{running.metric('hostler_vcenter_calls_total'):.0f}")
                    found.add("CPU s until then", f"{running.cpu():.2f}")
                    await idle(sandbox, running, size, found)
                    await enters(sandbox, cordons, running, size, found)
                    await drains(sandbox, client, running, size, found)
                if looks:
                    await asyncio.to_thread(polling, sandbox, found, looks)
        finally:
            sandbox.down()
            if keep is not None:
                keep.write_bytes((folder / "operator.log").read_bytes())
    return table(size, found)


def table(size: Size, found: Found) -> list[str]:
    told = (
        f"{size.hosts} ESXi hosts with a GPU worker each (a node), {size.vms} VMs. Write budget of the operator: "
        f"{size.writes} per second (the default is 50, which then bounds evictions too)."
    )
    lines = [told, "", "| | hostler | wanted | the seed's polling |", "|---|---|---|---|"]
    return [*lines, *(f"| {row.what} | {row.hostler} | {row.wanted} | {row.polling} |" for row in found.rows), ""]


def main() -> None:
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--hosts", type=int, default=500)
    args.add_argument("--vms", type=int, default=5000)
    args.add_argument("--enters", type=int, default=100, help="hosts that enter one after the other")
    args.add_argument("--drains", type=int, default=100, help="hosts that enter at once")
    args.add_argument("--pods", type=int, default=30, help="pods on each of those")
    args.add_argument("--idle", type=float, default=60.0, help="seconds of doing nothing")
    args.add_argument("--writes-per-second", type=int, default=1000)
    args.add_argument("--looks", type=int, default=2, help="looks of the polling peer; 0 leaves it out")
    args.add_argument("--keep", type=Path, help="keep the operator's log in this file")
    args.add_argument("--dry", action="store_true", help="print only, write no results")
    chosen = args.parse_args()
    if chosen.enters + chosen.drains > chosen.hosts or chosen.vms < chosen.hosts:
        raise SystemExit("bench: there must be at least as many hosts as enters and drains, and a VM on each.")
    size = Size(
        chosen.hosts, chosen.vms, chosen.enters, chosen.drains, chosen.pods, chosen.idle, chosen.writes_per_second
    )
    head = ["## maintenance", "", machine(), ""]
    text = "\n".join([*head, *asyncio.run(run(size, chosen.looks, chosen.keep))])
    print(text)
    if not chosen.dry:
        write_section("maintenance", text)
        say(f"written to {RESULTS.relative_to(HERE.parent)}")


if __name__ == "__main__":
    main()
