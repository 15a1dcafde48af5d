"""An operator that is killed again and again, and what its history must tell of that all the same."""

from __future__ import annotations

import json
import random
import signal
import threading
import time
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from hostler.history.model import GONE, Entry, What, id_order
from hostler.history.recorder import INTERRUPTED, top_line
from hostler.instant import parse
from hostler.inventory.wire import HostAnswer
from hostler.sandbox import Sandbox
from tests.real.auditing import Tail, who
from tests.real.operating import Running, hostler

# What is written to, and is a layer or belongs to one.
ACTIONS = {"nodes": "Node", "baremetalhosts": "BareMetalHost", "metal3machines": "Metal3Machine"}
SAME_SECONDS = 5.0  # between what the API server noted and what the operator noted of the same write
# What a killed leader may lose is 2 seconds; on a machine that is busy with other tests its clock runs late.
LOST_SECONDS = 4.0


class Killed(threading.Thread):
    """Operators one after the other; each is killed some seconds after it leads, but the last one."""

    def __init__(self, start: Callable[[int], AbstractContextManager[Running]], kills: int, seed: int) -> None:
        super().__init__(daemon=True, name="killed")
        self._start, self._kills, self._chance = start, kills, random.Random(seed)
        self.kills: list[float] = []
        self.users: set[str] = set()
        self.last: Running | None = None
        self.lasting, self.over = threading.Event(), threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            for number in range(self._kills):
                with self._start(number) as running:
                    self.users.add(running.user)
                    running.said("leading", 120)
                    self.over.wait(self._chance.uniform(1.0, 5.0))
                    running.process.send_signal(signal.SIGKILL)
                    self.kills.append(time.time())
                    running.process.wait()
            with self._start(self._kills) as running:
                self.users.add(running.user)
                running.said("leading", 120)
                self.last = running
                self.lasting.set()
                self.over.wait()
        except BaseException as error:  # told to the test, which waits
            self.error = error
            self.lasting.set()
            raise

    def survivor(self, seconds: float) -> Running:
        assert self.lasting.wait(seconds), f"only {len(self.kills)} kills in {seconds:.0f} s"
        assert self.last is not None, self.error
        return self.last

    def end(self) -> None:
        self.over.set()
        self.join(120)


@dataclass
class Verdict:
    """What was counted. Every list should be empty but `lost`: how long before a kill each of these was written."""

    twice: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)  # an entry that does not continue the one before
    missing: list[str] = field(default_factory=list)
    lost: list[float] = field(default_factory=list)
    entries: int = 0
    actions: int = 0
    inferred: int = 0
    gaps: int = 0
    unmarked: list[str] = field(default_factory=list)  # the first entry of a later leader, if it is no gap


def is_readable(sandbox: Sandbox, running: Running) -> bool:
    """A replica answers for the history once it leads and has read it."""
    return hostler(sandbox.kubeconfig, "history", "export", "--operator", running.url).returncode == 0


def exported(sandbox: Sandbox, running: Running, since: str = "") -> list[Entry]:
    words = ("--since", since) if since else ()
    done = hostler(sandbox.kubeconfig, "history", "export", "--operator", running.url, *words)
    assert done.returncode == 0, done.stderr
    return [msgspec.json.decode(line, type=Entry) for line in done.stdout.splitlines()]


def read(running: Running, path: str) -> bytes:
    """Over loopback, which needs no token; much quicker than a command."""
    with urllib.request.urlopen(f"{running.url}{path}", timeout=60) as answer:
        content: bytes = answer.read()
        return content


def states_now(running: Running) -> dict[str, str]:
    """The state of each layer in the picture."""
    found = dict[str, str]()
    for row in json.loads(read(running, "/v1/hosts"))["hosts"]:
        host = msgspec.json.decode(read(running, f"/v1/hosts/{quote(row['host']['id'], safe='')}"), type=HostAnswer)
        found |= {layer.key: str(line.state) for layer in host.layers if (line := top_line(layer)) is not None}
    return found


def last_states(entries: list[Entry]) -> dict[str, str]:
    last = {entry.key: entry.new for entry in entries if entry.new}
    return {key: state for key, state in last.items() if state != GONE}


class Audited(NamedTuple):
    """One write to a layer that the API server took from the operator."""

    received: float
    answered: float
    keys: tuple[str, ...]  # about one of these it is recorded
    kind: str


def audited_actions(
    tail: Tail, users: Collection[str], cluster: str, host_of: Mapping[str, str] | None = None
) -> list[Audited]:
    """`host_of`: the host that each Metal3Machine got, by name."""
    found = []
    for entry in tail.new():
        about = entry.get("objectRef", {})
        kind = ACTIONS.get(about.get("resource", ""))
        if (
            entry["stage"] != "ResponseComplete" or who(entry) not in users or kind is None or about.get("subresource")
            or entry["verb"] != "patch" or entry["responseStatus"]["code"] >= 300
        ):  # fmt: skip
            continue
        received, answered = parse(entry["requestReceivedTimestamp"]), parse(entry["stageTimestamp"])
        assert received is not None
        assert answered is not None
        name, space = about["name"], about.get("namespace", "")
        keys = {
            "Node": (f"node:{cluster}/{name}",),
            "BareMetalHost": (f"bmh:{space}/{name}",),
            "Metal3Machine": (f"m3m:{space}/{name}", f"bmh:{space}/{(host_of or {}).get(name, '')}"),
        }[kind]
        found.append(Audited(received, answered, keys, kind))
    return found


def judge(entries: list[Entry], audited: list[Audited], kills: list[float]) -> Verdict:
    """A write that was under way when its leader was killed counts as lost: nobody heard the answer."""
    verdict = Verdict(entries=len(entries), actions=len(audited))
    ids = [entry.id for entry in entries]
    verdict.twice = sorted({id for id in ids if ids.count(id) > 1}) if len(set(ids)) < len(ids) else []
    assert ids == sorted(ids, key=id_order)
    verdict.inferred = sum(entry.what is What.INFERRED for entry in entries)
    verdict.gaps = sum(entry.what is What.GAP and entry.reason == INTERRUPTED for entry in entries)
    firsts = {id_order(entry.id)[0]: entry for entry in reversed(entries)}
    later = [firsts[term] for term in sorted(firsts)[1:]]
    verdict.unmarked = [entry.id for entry in later if entry.what is not What.GAP]
    verdict.broken = list(_broken(entries))
    recorded = defaultdict[tuple[str, str], list[float]](list)
    for entry in entries:
        if entry.what is What.ACTION and entry.result == "ok":
            for verb in ("Patch", "Apply"):
                if entry.reason.startswith(verb):
                    recorded[entry.key, entry.reason.removeprefix(verb)].append(entry.at)
    for received, at, keys, kind in audited:
        found = [(key, time) for key in keys for time in recorded[key, kind] if abs(time - at) <= SAME_SECONDS]
        if found:
            key, time = min(found, key=lambda one: abs(one[1] - at))
            recorded[key, kind].remove(time)
        elif kill := next((kill for kill in kills if received <= kill <= at + LOST_SECONDS), None):
            verdict.lost.append(round(kill - at, 2))
        else:
            verdict.missing.append(f"{kind} {keys[0]} at {at:.2f}; kills {[round(kill - at, 1) for kill in kills]}")
    return verdict


def _broken(entries: list[Entry]) -> Iterator[str]:
    last: dict[str, str] = {}
    for entry in entries:
        if entry.new:
            if entry.old != last.get(entry.key, ""):
                yield f"{entry.id} {entry.key}: from {entry.old!r} after {last.get(entry.key)!r}"
            last[entry.key] = "" if entry.new == GONE else entry.new


def folders(root: Path) -> Callable[[int], Path]:
    def folder(number: int) -> Path:
        path = root / str(number)
        path.mkdir()
        return path

    return folder


def log_lines(running: Running) -> list[dict[str, Any]]:
    return [line for line in running.lines() if line.get("event") == "history"]
