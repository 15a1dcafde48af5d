"""The history of hosts: CPU per entry, and how many bytes half a million entries take.

The entries are those of a fleet of 5,000 hosts (3,000 VMs on 500 ESXi hosts, 1,500 bare metal hosts) in which hosts are
maintained and claimed: states, actions, refusals, with names of pods and UUIDs of VMs that no compression can guess.
Storing is measured against a real API server, with the CPU of this process alone: what the operator would spend.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from bench.runtime import machine, say, write_section
from hostler.history.configmaps import ConfigMapHistory
from hostler.history.encoding import decode_entries
from hostler.history.model import Entry, Limits, What
from hostler.history.segments import Segment, close_segment, extend_segment
from hostler.history.trail import Trail
from hostler.inventory.model import bare_metal_key, esxi_key, node_key, vm_key
from hostler.kube.client import Client
from hostler.kube.config import load
from hostler.kube.writer import Writer
from hostler.sandbox import Options, Sandbox

ENTRIES, WANTED_MIB, WANTED_MS = 500_000, 16, 1.0
SPACE = "default"
AT_ONCE = 120  # entries of hosts that are looked after at the same time
LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # those of the names of pods
BEGIN = 1_790_000_000.0


class Fleet:
    """What happens in it, entry by entry, from a fixed seed."""

    def __init__(self, seed: int = 7) -> None:
        self._chance = chance = random.Random(seed)  # nosec B311 # a made-up fleet
        uuids = (str(uuid.UUID(int=chance.getrandbits(128), version=4)) for _ in itertools.count())
        self._esxi = [(f"esx-{place:03}.dc1.example.com", next(uuids)) for place in range(500)]
        self._vms = [(f"gpu-{place:04}", next(uuids), place % 500) for place in range(3000)]
        self._metal = [f"rack-{place // 40:02}-u{place % 40:02}" for place in range(1500)]
        self._now, self.trail = BEGIN, Trail(12)

    def entries(self, number: int) -> list[Entry]:
        stories = self._stories()
        found: list[Entry] = []
        while len(found) < number:
            next(stories)
            taken = self.trail.take(1000, self._now)
            self.trail.done(taken)
            found += taken
        return list(self._at_once(found[:number]))

    def _at_once(self, entries: list[Entry]) -> Iterator[Entry]:
        """Several hosts at a time, as in a real night: what follows each other in the log is about different hosts."""
        for start in range(0, len(entries), AT_ONCE):
            window = entries[start : start + AT_ONCE]
            shuffled = self._chance.sample(window, len(window))
            for place, entry in zip(window, shuffled, strict=True):
                yield replace(entry, id=place.id, at=place.at)

    def _stories(self) -> Iterator[None]:
        while True:
            if self._chance.random() < 0.7:
                self._maintenance()
            else:
                self._claim()
            yield

    def _later(self, seconds: float) -> float:
        self._now += self._chance.uniform(0.2, 1.8) * seconds
        return self._now

    def _pods(self) -> str:
        names = [
            f"team-{self._chance.randrange(40)}/{self._chance.choice(('web', 'train', 'serve', 'etl', 'db'))}-"
            f"{''.join(self._chance.choices(LETTERS, k=9))}-{''.join(self._chance.choices(LETTERS, k=5))}"
            for _ in range(5)
        ]
        return f"{self._chance.randrange(6, 20)} pods: {', '.join(names)} and 4 more."

    def _maintenance(self) -> None:
        """One worker leaves its ESXi host and returns."""
        trail, (name, id, place) = self.trail, self._chance.choice(self._vms)
        host, host_id = self._esxi[place]
        node, vm, esxi = node_key("prod", name), vm_key("vc1", id), esxi_key("vc1", host_id)
        operation = f"maintenance/{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(self._later(60)))}"
        enters = f"ESXi host {host} enters maintenance; its pods are evicted."

        def state(key: str, word: str, why: str, seconds: float) -> None:
            trail.transition(key, word, self._later(seconds), capability="maintenance", sentence=why,
                             operation=operation)  # fmt: skip

        def act(key: str, reason: str, why: str, result: str = "ok", seconds: float = 1.0) -> None:
            trail.action(key, self._later(seconds), capability="maintenance", reason=reason, sentence=why,
                         operation=operation, result=result)  # fmt: skip

        state(esxi, "draining", "It enters maintenance mode.", 1)
        act(node, "PatchNode", f"ESXi host {host} enters maintenance mode")
        state(node, "draining", enters, 0.5)
        act(node, "EvictPod", f"{self._pods()} The node is emptied.")
        if self._chance.random() < 0.4:
            pod = self._pods().split(" ")[2].rstrip(",")
            trail.refusal(node, self._later(1), capability="maintenance", reason="DrainBlocked", operation=operation,
                          sentence=f"Pod {pod} stays: its PodDisruptionBudget allows no disruption.")  # fmt: skip
            act(node, "EvictPod", f"{self._pods()} The node is emptied.", seconds=60)
        act(node, "PatchNode", f"{name} is drained after {self._chance.randrange(20, 500)} s", seconds=200)
        act(vm, "ShutDownGuest", f"Shut down guest {name}.", "started")
        state(vm, "stopped", "vCenter reports the VM as poweredOff.", 40)
        act(node, "PatchNode", f"the VM of {name} is off")
        state(node, "stopped", f"ESXi host {host} is in maintenance; the VM is off.", 0.5)
        state(esxi, "held", "It is in maintenance mode.", 20)
        state(esxi, "in service", "It is connected and not in maintenance mode.", 5000)
        act(vm, "PowerOn", f"Power on {name} {host}.", "started")
        state(vm, "provisioned", "vCenter reports that the VM runs.", 5)
        state(node, "returning", f"The VM was started on {host}.", 1)
        act(node, "PatchNode", f"{name} is Ready again after {self._chance.randrange(60, 900)} s", seconds=120)
        trail.transition(node, "in service", self._later(1), capability="node", sentence="It is Ready and takes pods.")

    def _claim(self) -> None:
        """A bare metal host is claimed, provisioned, joins, and is released."""
        trail, name = self.trail, self._chance.choice(self._metal)
        key, node = bare_metal_key("metal", name), node_key("prod", name)
        suffix = "".join(self._chance.choices(LETTERS, k=5))
        operation = f"claim/workers-{suffix}"
        for reason, why, word in (
            ("PatchBareMetalHost", f"machine prod/workers-{suffix} takes it", "claimed"),
            ("PatchBareMetalHost", f"machine prod/workers-{suffix} is to be installed", "provisioning"),
            ("", "", "provisioned"),
            ("PatchBareMetalHost", f"machine prod/workers-{suffix} is deleted", "deprovisioning"),
            ("PatchBareMetalHost", "it is clean again", "available"),
        ):
            if reason:
                trail.action(key, self._later(5), capability="metal", reason=reason, sentence=why, operation=operation,
                             result="ok")  # fmt: skip
            trail.transition(key, word, self._later(300), capability="metal", operation=operation,
                             sentence=f"Machine prod/workers-{suffix} has it; it is {word}.")  # fmt: skip
            if word == "provisioned":
                trail.transition(node, "joining", self._later(5), capability="node",
                                 sentence="Its kubelet has not been Ready yet.")  # fmt: skip
                trail.transition(node, "in service", self._later(60), capability="node",
                                 sentence="It is Ready and takes pods.")  # fmt: skip


class Unlimited:
    async def take(self) -> None: ...
    def throttled(self, retry_after: float | None) -> None: ...
    def succeeded(self) -> None: ...


def stored_bytes(entries: list[Entry]) -> tuple[int, int, int]:
    """As the store lays them out: in closed segments, with the open one; and how many segments that is."""
    size, segments, rest = 0, 0, entries
    last = Segment(0, {})
    while rest:
        open_one, taken = Segment(segments + 1, {}), 0
        while not open_one.is_full and taken < len(rest):
            portion = rest[taken : taken + 100]
            open_one, _ = extend_segment(open_one, portion)
            taken += len(portion)
        closed = close_segment(segments + 1, rest[:taken])
        size, segments, last, rest = size + closed.size, segments + 1, open_one, rest[taken:]
    return size, last.size, segments


async def cpu_of_storing(client: Client, entries: list[Entry], portion: int) -> float:
    """Milliseconds of CPU per entry, stored in portions of this size."""
    store = ConfigMapHistory(client, Writer(client, "history", gate=lambda: None, budget=Unlimited()), SPACE, Limits())
    await store.load()
    began = time.process_time()
    for start in range(0, len(entries), portion):
        await store.append(entries[start : start + portion])
    return (time.process_time() - began) * 1000 / len(entries)


async def measure(kubeconfig: str, entries: list[Entry]) -> list[tuple[int, float]]:
    found, parts = [], iter(entries)
    async with Client(load(kubeconfig)) as client:
        for portion, number in ((1, 500), (10, 2000), (100, 5000)):
            taken = list(itertools.islice(parts, number))
            found.append((portion, await cpu_of_storing(client, taken, portion)))
            say(f"  in portions of {portion}: {found[-1][1]:.3f} ms of CPU per entry")
    return found


def main() -> None:
    head = machine()
    fleet = Fleet()
    began = time.process_time()
    entries = fleet.entries(ENTRIES)
    recording = (time.process_time() - began) * 1000 / ENTRIES
    size, open_size, segments = stored_bytes(entries)
    say(f"  {ENTRIES} entries: {size / 2**20:.1f} MiB in {segments} segments")
    closed = close_segment(1, entries[:8000])
    began = time.process_time()
    decode_entries(closed.chunks["0000"])
    reading = (time.process_time() - began) * 1000 / 8000
    with tempfile.TemporaryDirectory() as folder:
        box = Sandbox.up(Path(folder), Options(vcenter=False))
        try:
            storing = asyncio.run(measure(str(box.kubeconfig), entries))
        finally:
            box.down()
    actions = sum(entry.what is not What.TRANSITION for entry in entries) / ENTRIES
    rows = [
        f"{ENTRIES:,} entries of a made-up fleet of 5,000 hosts ({actions:.0%} actions and refusals, the rest states).",
        "",
        "| what | measured | wanted |",
        "|---|---|---|",
        f"| MiB stored in closed segments (ConfigMaps hold them as they are) | {size / 2**20:.1f} | <= {WANTED_MIB} |",
        f"| bytes per entry | {size / ENTRIES:.1f} | - |",
        f"| segments; KiB of the last one while it is open | {segments}; {open_size // 1024} | - |",
        f"| ms CPU to make an entry (ids, durations, repeats) | {recording:.4f} | <= {WANTED_MS:.0f} |",
        *(
            f"| ms CPU to store an entry, {portion} a second, API server's answer included | {spent:.3f} "
            f"| <= {WANTED_MS:.0f} |"
            for portion, spent in storing
        ),
        f"| ms CPU to read an entry back | {reading:.4f} | - |",
    ]
    write_section("history", "\n".join((f"## history\n\n{head}\n", *rows)))


if __name__ == "__main__":
    main()
