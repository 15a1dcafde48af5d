"""The hub under load: 1,000 agents polling at once; a 1 GB artifact to 50 agents at once, beside a plain file server.

Real API server, the operator as a process, plain HTTP on loopback. Agents poll from one asyncio client with a token
each; downloads are 50 `curl` processes. The file server is Python's own `http.server`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import aiohttp

from bench.operating import Operator, cpu_of, operator
from bench.runtime import machine, say, write_section
from hostler.apis.assisted import AGENT, INFRA_ENV
from hostler.instant import iso
from hostler.kube.client import Client
from hostler.kube.config import load
from hostler.kube.kinds import SECRET
from hostler.kube.records import Object, Secret
from hostler.reclaim.hub.keyring import FIELD, NAME
from hostler.reclaim.hub.tokens import Keys
from hostler.sandbox import Options, Sandbox
from hostler.sandbox.build import Silent
from hostler.sandbox.crds import install_crds

SPACE = "default"


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


async def prepare(client: Client, agents: int) -> str:
    """Agents that are `reclaiming`, with nothing known of their old cluster: the operator leaves them alone."""
    urls = {"kernel": "http://127.0.0.1:1/k", "initrd": "http://127.0.0.1:1/i", "rootfs": "http://127.0.0.1:1/r"}
    body = {"metadata": {"name": "env"}, "spec": {"pullSecretRef": {"name": "pull"}}}
    made = await client.create(INFRA_ENV, body, SPACE, type=Object)
    await client.patch(INFRA_ENV, "env", {"status": {"bootArtifacts": urls}}, SPACE, type=Object, subresource="status")
    limit = asyncio.Semaphore(32)
    now = iso(time.time())

    async def one(number: int) -> None:
        name = f"host-{number:05d}"
        labels = {"infraenvs.agent-install.openshift.io": "env"}
        async with limit:
            spec = {"approved": True, "role": "worker"}
            await client.create(AGENT, {"metadata": {"name": name, "labels": labels}, "spec": spec}, SPACE, type=Object)
            status = {"debugInfo": {"state": "reclaiming"}, "progress": {"stageStartTime": now}}
            await client.patch(AGENT, name, {"status": status}, SPACE, type=Object, subresource="status")

    await asyncio.gather(*(one(number) for number in range(agents)))
    return made.metadata.uid


async def keys_of(client: Client) -> Keys:
    while True:
        found = [one for one in await client.list(SECRET, SPACE, type=Secret) if one.metadata.name == NAME]
        if found:
            return Keys(found[0].data[FIELD])
        await asyncio.sleep(0.2)


async def poll(url: str, keys: Keys, infra_env: str, agents: int, rounds: int) -> tuple[float, list[float], int]:
    """Every agent asks at the same moment, `rounds` times; seconds in all, each answer's seconds, refusals."""
    spent: list[float] = []
    refused = 0
    # One token each, as an agent has it in its Secret.
    now = time.time()
    hosts = [f"host-{number:05d}" for number in range(agents)]
    tokens = {host: keys.for_host(SPACE, infra_env, "env", host, now=now, seconds=600) for host in hosts}
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=120)) as session:

        async def ask(host: str) -> None:
            nonlocal refused
            path = f"{url}/api/assisted-install/v2/infra-envs/{infra_env}/hosts/{host}/instructions"
            begun = time.perf_counter()
            async with session.get(path, headers={"X-Secret-Key": tokens[host]}) as answer:
                body = await answer.json()
            spent.append(time.perf_counter() - begun)
            refused += answer.status != 200 or len(body["instructions"]) != 1

        begun = time.perf_counter()
        for _ in range(rounds):
            await asyncio.gather(*(ask(host) for host in hosts))
        return time.perf_counter() - begun, spent, refused


def fetch(url: str, token: str, times: int) -> float:
    """So many copies at once; seconds until the last is whole."""
    words = ["curl", "--silent", "--fail", "--output", "/dev/null", "--header", f"X-Secret-Key: {token}", url]
    begun = time.perf_counter()
    running = [subprocess.Popen(words) for _ in range(times)]
    codes = [one.wait() for one in running]
    if any(codes):
        raise SystemExit(f"bench: downloads failed: {codes}")
    return time.perf_counter() - begun


def downloads(url: str, token: str, place: Path, infra_env: str, copies: int, size: int, pid: int) -> list[str]:
    initrd = place / infra_env / "initrd"
    initrd.parent.mkdir(parents=True)
    with initrd.open("wb") as file:
        block = os.urandom(1 << 20)
        for _ in range(size >> 20):
            file.write(block)
    port = free_port()
    plain = subprocess.Popen(
        [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1", "--directory", str(initrd.parent)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        time.sleep(1)
        rows = []
        for name, where, who in (
            ("hub", f"{url}/api/assisted-install/v2/infra-envs/{infra_env}/boot-artifacts/initrd", pid),
            ("http.server", f"http://127.0.0.1:{port}/initrd", plain.pid),
        ):
            say(f"{copies} copies of {size >> 20} MiB from {name}")
            cpu = cpu_of(who)
            seconds = fetch(where, token, copies)
            rows.append(
                f"| {name} | {seconds:.1f} s | {copies * size / seconds / 1e6:.0f} MB/s | {cpu_of(who) - cpu:.1f} s |"
            )
        return rows
    finally:
        plain.terminate()
        plain.wait(30)


async def run(agents: int, rounds: int, copies: int, size: int) -> list[str]:
    with tempfile.TemporaryDirectory() as kept:
        folder = Path(kept)
        box = Sandbox.up(folder / "sandbox", Options(fleet="mixed"))
        try:
            install_crds(box, ["agents"], Silent())
            async with Client(load(str(box.kubeconfig), None)) as client:
                infra_env = await prepare(client, agents)
                port = free_port()
                told = {
                    "HOSTLER_ONLY": "reclaim", "HUB_URL": f"http://127.0.0.1:{port}", "AGENT_IMAGE": "agent:1",
                    "HOSTLER_HUB_PLAIN_HTTP": "true",
                    "HOSTLER_HUB_ADDRESS": f"127.0.0.1:{port}", "HOSTLER_HUB_ARTIFACTS": str(folder / "artifacts"),
                }  # fmt: skip
                with operator(box, folder, told) as running:
                    while running.said("serving the step API") is None:
                        await asyncio.sleep(0.1)
                    keys = await keys_of(client)
                    return await measured(
                        running, told["HUB_URL"], keys, infra_env, agents, rounds, copies, size, folder
                    )
        finally:
            box.down()


async def measured(
    running: Operator, url: str, keys: Keys, infra_env: str, agents: int, rounds: int, copies: int, size: int, at: Path
) -> list[str]:
    await asyncio.sleep(5)
    before = running.memory("VmRSS")
    say(f"{agents} agents poll at once, {rounds} times")
    cpu = running.cpu()
    seconds, spent, refused = await poll(url, keys, infra_env, agents, rounds)
    cpu = running.cpu() - cpu
    spent.sort()
    token = keys.for_infra_env(SPACE, infra_env, "env", now=time.time(), seconds=3600)
    peak = running.memory("VmHWM")
    rows = await asyncio.to_thread(
        downloads, url, token, at / "artifacts", infra_env, copies, size, running.process.pid
    )
    return [
        f"{agents} agents ask for instructions at once, {rounds} times; each answer reads its Agent afresh.",
        "",
        "| what | measured |",
        "|---|---|",
        f"| answers per second | {len(spent) / seconds:.0f} |",
        f"| latency, median and p99 | {statistics.median(spent):.2f} s, {spent[int(len(spent) * 0.99)]:.2f} s |",
        f"| refused or wrong | {refused} |",
        f"| hub: CPU per answer | {cpu / len(spent) * 1e3:.2f} ms |",
        f"| hub: memory before, at most | {before:.0f}, {peak:.0f} MiB |",
        "",
        f"{copies} copies of one file of {size >> 20} MiB at once, plain HTTP on loopback:",
        "",
        "| server | until the last copy | throughput | its CPU |",
        "|---|---|---|---|",
        *rows,
    ]


def main() -> None:
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--agents", type=int, default=1000)
    args.add_argument("--rounds", type=int, default=5)
    args.add_argument("--copies", type=int, default=50)
    args.add_argument("--megabytes", type=int, default=1024)
    args.add_argument("--dry", action="store_true", help="print only, write no results")
    chosen = args.parse_args()
    head = ["## reclaim", "", machine() + ".", ""]
    text = "\n".join([*head, *asyncio.run(run(chosen.agents, chosen.rounds, chosen.copies, chosen.megabytes << 20))])
    print(text)
    if not chosen.dry:
        write_section("reclaim", text)


if __name__ == "__main__":
    main()
