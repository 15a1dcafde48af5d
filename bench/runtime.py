"""The watch cache beside a client-go informer on the same real API server, in one run.

    python -m bench.runtime [--nodes 5000] [--pods 20000]

Measured from outside the followers' control: CPU by getrusage, memory from /proc, both told by the follower itself on
request. The garbage collector of either side is asked to give back what it can before memory is read.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from bench.load import burst, fill
from hostler.kube.client import Client
from hostler.kube.config import load
from hostler.sandbox.life import Sandbox
from hostler.sandbox.model import Options

HERE = Path(__file__).parent
RESULTS = HERE / "RESULTS.md"


@dataclass(frozen=True, slots=True)
class Figures:
    """What one follower cost."""

    name: str
    sync_cpu: float
    sync_seconds: float
    rss_mib: float
    event_us: float | None = None


class Follower:
    """A process that follows the API server and answers on stdin/stdout."""

    def __init__(self, name: str, command: list[str]) -> None:
        self.name = name
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"bench: {self.name} ended with code {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, word: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()
        return self.read()

    def end(self) -> None:
        self._process.communicate(timeout=30)


def say(line: str) -> None:
    print(f"bench: {line}", file=sys.stderr, flush=True)


def build_peer(folder: Path) -> Path:
    binary = folder / "clientgo"
    say("building the client-go peer (minutes when cold)")
    env = {**os.environ, "CGO_ENABLED": "0"}
    subprocess.run(["go", "build", "-o", str(binary), "."], cwd=HERE / "peers" / "clientgo", env=env, check=True)
    return binary


def commands(peer: Path, kubeconfig: str, kinds: str) -> list[tuple[str, list[str]]]:
    go = [str(peer), "-kubeconfig", kubeconfig, "-kinds", kinds, "-content"]
    ours = [sys.executable, "-m", "bench.follow", kubeconfig, kinds]
    return [("hostler", ours), ("client-go, JSON", [*go, "json"]), ("client-go, protobuf", [*go, "protobuf"])]


async def measure(name: str, command: list[str], client: Client, updates: int, nodes: int) -> Figures:
    """Sync, settle, and with `updates` > 0 a burst that is over when the follower has seen all of it."""
    follower = Follower(name, command)
    synced = await asyncio.to_thread(follower.read)
    await asyncio.sleep(2)
    settled = await asyncio.to_thread(follower.ask, "settle")
    event_us: float | None = None
    if updates:
        # With one more mark than before, so that every patch is a change.
        await burst(client, updates, nodes, f"{name[:9].strip(', ')}-{time.time_ns() % 10**6}")
        while (after := await asyncio.to_thread(follower.ask, "burst"))["events"] < settled["events"] + updates:
            await asyncio.sleep(0.2)
        event_us = (after["cpu"] - settled["cpu"]) / (after["events"] - settled["events"]) * 1e6
    await asyncio.to_thread(follower.end)
    return Figures(name, synced["cpu"], synced["seconds"], settled["rss_kib"] / 1024, event_us)


def table(title: str, rows: list[Figures]) -> list[str]:
    lines = [f"### {title}", "", "| follower | CPU s to sync | s to sync | MiB after sync | CPU us per event |"]
    lines.append("|---|---|---|---|---|")
    for row in rows:
        event = f"{row.event_us:.0f}" if row.event_us is not None else "-"
        lines.append(f"| {row.name} | {row.sync_cpu:.2f} | {row.sync_seconds:.1f} | {row.rss_mib:.0f} | {event} |")
    ours = rows[0]
    for row in rows[1:]:
        ratios = [
            ours.sync_cpu / row.sync_cpu,
            ours.sync_seconds / row.sync_seconds,
            ours.rss_mib / row.rss_mib,
            ours.event_us / row.event_us if ours.event_us and row.event_us else None,
        ]
        shown = " | ".join("-" if ratio is None else f"{ratio:.2f}x" for ratio in ratios)
        lines.append(f"| hostler / {row.name} | {shown} |")
    return [*lines, ""]


async def run(nodes: int, pods: int, rounds: int) -> list[str]:
    with tempfile.TemporaryDirectory(prefix="hostler-bench-") as scratch:
        peer = build_peer(Path(scratch))
        sandbox = Sandbox.up(Path(scratch) / "sandbox", Options(vcenter=False, kwok=False))
        try:
            # Nobody plays the kubelets here, so the controllers would take the nodes for dead and write on their own.
            sandbox.stop("kube-controller-manager")
            sandbox.stop("kube-scheduler")
            async with Client(load(str(sandbox.kubeconfig), None), timeout=120) as client:
                say(f"making {nodes} nodes and {pods} pods")
                started = time.monotonic()
                await fill(client, nodes, pods)
                say(f"made in {time.monotonic() - started:.0f} s")
                return await contest(peer, as_in_cluster(sandbox, Path(scratch)), client, nodes, pods, rounds)
        finally:
            sandbox.down()


def as_in_cluster(sandbox: Sandbox, folder: Path) -> str:
    """A kubeconfig with a ServiceAccount's token, which is how operators are let in."""
    sandbox.kubectl("create", "serviceaccount", "bench", "-n", "default")
    sandbox.kubectl("create", "clusterrolebinding", "bench", "--clusterrole=cluster-admin",
                    "--serviceaccount=default:bench")  # fmt: skip
    token = sandbox.kubectl("create", "token", "bench", "-n", "default").strip()
    config = yaml.safe_load(sandbox.kubeconfig.read_text())
    for one in config["users"]:
        one["user"] = {"token": token}
    path = folder / "kubeconfig"
    path.touch(0o600)
    path.write_text(yaml.safe_dump(config))
    return str(path)


async def contest(peer: Path, kubeconfig: str, client: Client, nodes: int, pods: int, rounds: int) -> list[str]:
    text: list[str] = []
    for kinds, updates in (("pods", pods), ("nodes,pods", 0)):
        asked = commands(peer, kubeconfig, kinds)
        tries: dict[str, list[Figures]] = {name: [] for name, _ in asked}
        for number in range(rounds):  # in turns: a machine that slows down for a while does so for all
            for name, command in asked:
                tries[name].append(await measure(name, command, client, 0 if number else updates, nodes))
                say(f"{kinds}: {tries[name][-1]}")
        rows = [median(figures) for figures in tries.values()]
        text += table(f"{kinds} ({nodes} nodes, {pods} pods in the cluster)", rows)
    return text


def median(tries: list[Figures]) -> Figures:
    """The try in the middle by CPU to sync; what an event costs was measured in the first."""
    return replace(sorted(tries, key=lambda one: one.sync_cpu)[len(tries) // 2], event_us=tries[0].event_us)


def machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    load_ = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return (
        f"{os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()} {platform.machine()}, Python "
        f"{platform.python_version()}; {datetime.now(UTC):%Y-%m-%d %H:%M} UTC; load before: {load_}"
    )


def main() -> None:
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--nodes", type=int, default=5000)
    args.add_argument("--pods", type=int, default=20000)
    args.add_argument("--rounds", type=int, default=3, help="syncs per follower; the median counts")
    chosen = args.parse_args()
    head = ["## runtime", "", machine(), ""]
    text = "\n".join([*head, *asyncio.run(run(chosen.nodes, chosen.pods, chosen.rounds))])
    print(text)
    write_section("runtime", text)
    say(f"written to {RESULTS.relative_to(HERE.parent)}")


def write_section(name: str, text: str) -> None:
    """Replace this benchmark's section and leave the others as they are."""
    old = RESULTS.read_text() if RESULTS.exists() else "# Measured results\n"
    head, *sections = old.split("\n## ")
    kept = {section.split("\n", 1)[0].strip(): section for section in sections}
    kept[name] = text.removeprefix("## ").rstrip() + "\n"
    RESULTS.write_text(head.rstrip() + "\n" + "".join(f"\n## {section.rstrip()}\n" for section in kept.values()))


if __name__ == "__main__":
    main()
