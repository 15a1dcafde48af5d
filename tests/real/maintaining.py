"""Worlds for the stories of maintenance: a vCenter of their own, and nodes of the shared API server in its VMs.

A `Site` is one simulator with a cluster of ESXi hosts per story; `Plan` says what a cluster holds. The site ties each
VM's power to its node (through the sandbox's keeper: heartbeat, boot id, pods) and keeps what the simulator told of it.
"""

from __future__ import annotations

import http.client
import json
import os
import threading
import time
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from hostler.sandbox import Sandbox
from hostler.sandbox import http as sandbox_http
from hostler.sandbox.power import POWER
from tests.real.auditing import Tail, who
from tests.real.vsphere_world import Simulator

T = TypeVar("T")
Object = dict[str, Any]
SEED = "vsphere-maintenance.boeye.net/"
OURS = "hostler.dev/"
POLICY = "hostler.dev/maintenance-policy"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
GPU = {"vendor": "10de", "device": "20b5"}
SECONDS = 90.0


@dataclass(frozen=True)
class Plan:
    """A cluster of ESXi hosts. `hosts`: how many GPUs each has. `vms`: the host of each GPU worker, one GPU each.

    `others`: VMs that are no node of ours, with the simulator's own fields. `tuned`: further fields of a worker.
    """

    hosts: dict[str, int]
    vms: dict[str, str]
    drs: str = "off"
    others: dict[str, Object] = field(default_factory=dict)
    tuned: dict[str, Object] = field(default_factory=dict)
    maintenance: tuple[str, ...] = ()  # hosts that are in maintenance from the start
    profiles: dict[str, str] = field(default_factory=dict)  # the vGPU profile that each GPU of a host offers, once
    standalone: bool = False  # its hosts are in no cluster


def inventory(plans: dict[str, Plan], **top: Any) -> Object:
    """What the simulator reads: one cluster per plan. Names are PLAN-HOST and PLAN-VM."""
    clusters: list[Object] = []
    alone: list[Object] = []
    vms: list[Object] = []
    for name, plan in plans.items():
        hosts: list[Object] = []
        for host, gpus in plan.hosts.items():
            offers = {"vgpuProfiles": [plan.profiles[host]]} if host in plan.profiles else {}
            devices = [{"id": f"0000:{number + 16:02x}:00.0", **GPU, **offers} for number in range(gpus)]
            hosts.append({"name": f"{name}-{host}", "devices": devices, "maintenance": host in plan.maintenance})
        if plan.standalone:
            alone += hosts
        else:
            clusters.append({"name": name, "drs": plan.drs, "hosts": hosts})
        dynamic = [{"kind": "dynamic", "allowed": [GPU]}]
        for vm, host in plan.vms.items():
            tuned = plan.tuned.get(vm, {})
            vms.append({"name": f"{name}-{vm}", "host": f"{name}-{host}", "devices": dynamic, **tuned})
        for vm, fields in plan.others.items():
            vms.append({"name": f"{name}-{vm}", **fields, "host": f"{name}-{fields['host']}"})
    return {**top, "datacenters": [{"name": "dc1", "clusters": clusters, "hosts": alone, "vms": vms}]}


def until(look: Callable[[], T], what: str, seconds: float = SECONDS, seen: Callable[[], object] | None = None) -> T:
    end = time.monotonic() + seconds
    while not (found := look()):
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds:.0f} s: {what}; seen: {seen() if seen else found!r}")
        time.sleep(0.15)
    return found


class Kube:
    """The API server as an administrator sees it, on one kept connection per thread."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self._tls = sandbox_http.trust(sandbox.layout, "admin")
        self._mine = threading.local()
        self._open: list[http.client.HTTPSConnection] = []

    def ask(self, method: str, path: str, body: object = None, kind: str = "application/json") -> tuple[int, Object]:
        data = None if body is None else json.dumps(body).encode()
        for last in (False, True):
            connection = getattr(self._mine, "connection", None)
            if connection is None:
                port = self.sandbox.state.ports["kube-apiserver"]
                connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=20, context=self._tls)
                self._mine.connection = connection
                self._open.append(connection)
            try:
                connection.request(method, path, data, {"Content-Type": kind} if data else {})
                answer = connection.getresponse()
                return answer.status, json.loads(answer.read() or b"{}")
            except (OSError, http.client.HTTPException):
                connection.close()
                self._mine.connection = None
                if last:
                    raise
        raise AssertionError("not reached")

    def get(self, path: str) -> Object:
        """An object or a list; empty if there is none."""
        status, answer = self.ask("GET", path)
        assert status in (200, 404), answer
        return answer if status == 200 else {}

    def patch(self, path: str, body: object) -> int:
        return self.ask("PATCH", path, body, "application/merge-patch+json")[0]

    def create(self, path: str, body: Object) -> None:
        status, answer = self.ask("POST", path, body)
        assert status == 201, answer

    def delete(self, path: str) -> None:
        self.ask("DELETE", path)

    def close(self) -> None:
        for connection in self._open:
            connection.close()


class Tie(threading.Thread):
    """Follows a simulator: keeps what happened, and switches the nodes of its VMs off and on."""

    def __init__(self, control: str, kube: Kube) -> None:
        super().__init__(daemon=True, name="tie")
        self._control, self._kube = control, kube
        self._over = threading.Event()
        self.synced = threading.Event()
        self.told: list[Object] = []
        self.power: dict[str, str] = {}
        self.silent: set[str] = set()  # VMs whose kubelet does not come up
        self.start()

    def run(self) -> None:
        while not self._over.is_set():
            with suppress(OSError, http.client.HTTPException):  # the simulator is gone, or this test ends
                self._follow()
            self._over.wait(0.1)

    def _follow(self) -> None:
        with urllib.request.urlopen(f"{self._control}/events", timeout=20) as lines:
            for line in lines:
                if self._over.is_set():
                    return
                if line.strip():
                    self._take(json.loads(line))

    def _take(self, event: Object) -> None:
        if event["type"] == "synced":
            self.synced.set()
            return
        if self.synced.is_set():
            self.told.append(event | {"at": time.time()})
        if event["type"] == "power":
            before, self.power[event["vm"]] = self.power.get(event["vm"]), event["state"]
            if before != event["state"]:
                self.bring_in_line(event["vm"])

    def bring_in_line(self, vm: str) -> None:
        """404: no such node (yet, or any more)."""
        wanted = "off" if self.power.get(vm) == "poweredOff" or vm in self.silent else None
        self._kube.patch(f"/api/v1/nodes/{vm}", {"metadata": {"annotations": {POWER: wanted}}})

    def stop(self) -> None:
        self._over.set()


@dataclass
class Site:
    """One vCenter and the nodes in it. `label` is what its operator looks for, so that operators do not meet."""

    sandbox: Sandbox
    simulator: Simulator
    kube: Kube
    tie: Tie
    mark: str
    label: str
    plans: dict[str, Plan]
    faults: threading.Lock = field(default_factory=threading.Lock)
    patience: float = 1.0  # how much longer than usual everything may take: an operator that is killed all the time

    def control(self, method: str, path: str, body: object = None) -> Any:
        return self.simulator.ask(method, path, body)

    def as_further(self) -> Object:
        """This vCenter as a file of further ones names it."""
        told = self.environment()
        keys = {"host": "HOST", "user": "USER", "password": "PASSWORD", "caBundle": "CA_BUNDLE"}
        return {key: told[f"VCENTER_{name}"] for key, name in keys.items()}

    def environment(self, **changes: str) -> dict[str, str]:
        """What an operator of this site is told; times are short, and any may be changed."""
        told = {
            "VCENTER_HOST": f"127.0.0.1:{self.simulator.port}",
            "VCENTER_USER": "hostler@vsphere.local",
            "VCENTER_PASSWORD": "right",
            "VCENTER_CA_BUNDLE": str(self.simulator.state["ca_bundle"]),
            "GPU_NODE_LABEL": f"{self.label}=true",
            "POLL_INTERVAL_SECONDS": "5",
            "GUEST_SHUTDOWN_TIMEOUT_SECONDS": "60",
            "DRAIN_TIMEOUT_SECONDS": "300",
            "POWER_ON_TIMEOUT_SECONDS": "120",
            "RELOCATE_TIMEOUT_SECONDS": "60",
            "MAX_CONCURRENT_DRAINS": "9",
            "MAX_UNAVAILABLE": "1000",
        }
        return told | changes


@contextmanager
def site(sandbox: Sandbox, folder: Path, plans: dict[str, Plan], **top: Any) -> Iterator[Site]:
    """A running vCenter with these clusters; names get a mark, so that a kept sandbox meets no leftovers."""
    mark = os.urandom(2).hex()
    named = {f"{name}-{mark}": plan for name, plan in plans.items()}
    simulator = Simulator(folder / f"vcenter-{mark}", inventory(named, **top))
    simulator.start()
    kube = Kube(sandbox)
    tie = Tie(simulator.state["control"], kube)
    try:
        simulator.ask("POST", "/settings", {"guestShutdownSeconds": 0.3, "migrateSeconds": 0.2})
        assert tie.synced.wait(20), "the simulator's feed never came"
        yield Site(sandbox, simulator, kube, tie, mark, f"stories.hostler.dev/{mark}", plans)
    finally:
        tie.stop()
        simulator.kill()
        tie.join(25)
        kube.close()


class Trail:
    """The audit log from here on, as far as it is about one namespace or about nodes."""

    def __init__(self, sandbox: Sandbox, namespace: str) -> None:
        self._namespace = namespace
        self._tail = Tail(sandbox)
        self._found: list[Object] = []

    def read(self) -> list[Object]:
        for entry in self._tail.new():
            about = entry.get("objectRef", {})
            if entry["stage"] == "ResponseComplete" and (
                about.get("namespace") == self._namespace or about.get("resource") == "nodes"
            ):
                self._found.append(entry)
        return self._found

    def evictions(self) -> dict[str, list[int]]:
        """The answers to every eviction asked for, by pod."""
        found: dict[str, list[int]] = defaultdict(list)
        for entry in self.read():
            if entry["objectRef"].get("subresource") == "eviction":
                found[entry["objectRef"]["name"]].append(entry["responseStatus"]["code"])
        return dict(found)

    def writes(self, user: str) -> list[tuple[str, str, str]]:
        """(verb, resource, name) of what one operator wrote successfully."""
        return [
            (entry["verb"], entry["objectRef"]["resource"], entry["objectRef"].get("name", ""))
            for entry in self.read()
            if who(entry) == user
            and entry["verb"] in ("create", "patch", "update", "delete")
            and entry["responseStatus"]["code"] < 300
        ]

    def close(self) -> None:
        self._tail.close()
