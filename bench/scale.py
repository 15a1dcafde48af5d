"""What one change costs as the fleet grows, and evictions beside a bare client-go loop, in one run.

    python -m bench.scale [--sizes 500,1000,2000] [--enters 100] [--drains 100] [--pods 30]

Each size is a cluster of its own: so many ESXi hosts with a GPU worker each, 5,000 VMs, and `hostler run` as a process.
The peer (bench/peers/clientgo/evict) empties as many other nodes of the smallest cluster, with as many pods each.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import yaml

from bench.load import in_parallel
from bench.maintenance import CALM, Found, Size, drains, enters, fleet, make_pods, pod, told, until, watching
from bench.operating import operator
from bench.runtime import HERE, RESULTS, machine, say, write_section
from hostler.kube.client import Client
from hostler.kube.kinds import POD
from hostler.kube.records import Object
from hostler.sandbox.life import Sandbox

ENTER, P99 = "CPU ms per Enter and its cancel", "the same, p99 of {}"
POD_CPU = "CPU ms per evicted pod"
WANTED = 1.3  # the largest size may cost this much of the smallest


@dataclass(frozen=True)
class Column:
    hosts: int
    rows: dict[str, str]


def build_peer(folder: Path) -> Path:
    binary = folder / "evict"
    say("building the client-go peer (minutes when cold)")
    env = {**os.environ, "CGO_ENABLED": "0"}
    subprocess.run(["go", "build", "-o", str(binary), "./evict"], cwd=HERE / "peers" / "clientgo", env=env, check=True)
    return binary


async def run_peer(binary: Path, sandbox: Sandbox, client: Client, size: Size) -> list[str]:
    """A bare loop over nodes that have not been touched yet."""
    nodes = [f"w-{size.enters + number}" for number in range(size.drains)]
    wanted = [pod(f"peer-{node}-{number}", node, stays=False) for node in nodes for number in range(size.pods)]

    async def make(number: int) -> None:
        await client.create(POD, wanted[number], "bench", type=Object)

    await in_parallel(len(wanted), make)
    command = [str(binary), "-kubeconfig", str(sandbox.kubeconfig), "-nodes", ",".join(nodes)]
    peer = await asyncio.create_subprocess_exec(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert peer.stdin is not None
    assert peer.stdout is not None
    synced = json.loads(await peer.stdout.readline())
    peer.stdin.write(b"begin\n")
    await peer.stdin.drain()
    ended = json.loads(await peer.stdout.readline())
    await peer.wait()
    rate, cpu = ended["evicted"] / ended["seconds"], (ended["cpu"] - synced["cpu"]) / ended["evicted"] * 1000
    return [f"{rate:.0f}", f"{cpu:.1f}"]


async def measure(size: Size, folder: Path, peer: Path | None) -> tuple[Column, list[str]]:
    found, beside = Found(), list[str]()
    (folder / "fleet.yaml").write_text(yaml.safe_dump(fleet(size)))
    say(f"starting a cluster and a vCenter with {size.hosts} hosts and {size.vms} VMs")
    sandbox = Sandbox.up(folder / "sandbox", msgspec.structs.replace(CALM, fleet=str(folder / "fleet.yaml")))
    try:
        async with watching(sandbox) as (client, cordons):
            await make_pods(client, size)
            with operator(sandbox, folder, told(size)) as running:
                await until(lambda: running.metric("hostler_vcenter_connected") > 0, "it follows vCenter")
                await until(lambda: running.said("leading"), "it leads")
                await asyncio.sleep(10)
                found.add("MiB resident, idle", f"{running.memory('VmRSS'):.0f}")
                await enters(sandbox, cordons, running, size, found)
                await drains(sandbox, client, running, size, found)
            if peer is not None:
                beside = await run_peer(peer, sandbox, client, size)
    finally:
        sandbox.down()
    return Column(size.hosts, {row.what: row.hostler for row in found.rows}), beside


def table(columns: list[Column], beside: list[str], size: Size) -> list[str]:
    names = list(columns[0].rows)
    lines = [f"| | {' | '.join(f'{column.hosts} hosts' for column in columns)} | wanted |"]
    lines.append("|---" * (len(columns) + 2) + "|")
    for name in names:
        figures = [column.rows[name] for column in columns]
        lines.append(f"| {name} | {' | '.join(figures)} | {_wanted(name, size)} |")
    for name in (ENTER, POD_CPU):
        first, last = float(columns[0].rows[name]), float(columns[-1].rows[name])
        lines.append(f"| {name}: largest / smallest {'| ' * len(columns)}| {last / first:.2f} (wanted <= {WANTED}) |")
    rate = float(columns[0].rows[f"evictions per second, {size.drains} nodes with {size.pods} pods each"])
    cpu = float(columns[0].rows[POD_CPU])
    if beside:
        said = (
            f"Beside it, a bare client-go loop on {columns[0].hosts} hosts: {beside[0]} evictions per second and "
            f"{beside[1]} CPU ms per pod. Hostler has {rate / float(beside[0]):.0%} of its rate (wanted >= 80%) with "
            f"{cpu / float(beside[1]):.2f} times its CPU per pod (wanted <= 1.5)."
        )
        lines += ["", said]
    return [*lines, ""]


def _wanted(name: str, size: Size) -> str:
    return "<= 500" if name == P99.format(size.enters) else ""


async def run(sizes: list[Size]) -> list[str]:
    columns, beside = [], list[str]()
    with tempfile.TemporaryDirectory(prefix="hostler-bench-") as scratch:
        peer = build_peer(Path(scratch))
        for number, size in enumerate(sizes):
            folder = Path(scratch) / str(size.hosts)
            folder.mkdir()
            column, bare = await measure(size, folder, peer if number == 0 else None)
            columns.append(column)
            beside = beside or bare
    return table(columns, beside, sizes[0])


def main() -> None:
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--sizes", default="500,1000,2000", help="ESXi hosts, by commas; the peer runs at the first")
    args.add_argument("--vms", type=int, default=5000)
    args.add_argument("--enters", type=int, default=100, help="hosts that enter one after the other")
    args.add_argument("--drains", type=int, default=100, help="hosts that enter at once")
    args.add_argument("--pods", type=int, default=30, help="pods on each of those")
    args.add_argument("--dry", action="store_true", help="print only, write no results")
    chosen = args.parse_args()
    first = Size(0, chosen.vms, chosen.enters, chosen.drains, chosen.pods, 0.0, 1000)
    sizes = [replace(first, hosts=int(hosts)) for hosts in chosen.sizes.split(",")]
    if min(size.hosts for size in sizes) < first.enters + 2 * first.drains:
        raise SystemExit("bench: each size needs at least as many hosts as enters and twice the drains.")
    text = "\n".join(["## scale", "", machine(), "", *asyncio.run(run(sizes))])
    print(text)
    if not chosen.dry:
        write_section("scale", text)
        say(f"written to {RESULTS.relative_to(HERE.parent)}")


if __name__ == "__main__":
    main()
