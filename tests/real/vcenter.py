"""A running vCenter simulator and the vendor's own client on it, for the tests of it and with it."""

from __future__ import annotations

import gc
import json
import os
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

# Loaded as values: pyVmomi's own annotations know neither its faults' fields nor its calls.
connect: Any = import_module("pyVim.connect")
vim, vmodl = (getattr(import_module("pyVmomi"), name) for name in ("vim", "vmodl"))
PC = vmodl.query.PropertyCollector


class Simulator:
    """A running simulator and the ways to it."""

    def __init__(self, process: subprocess.Popen[bytes], state: dict[str, Any]) -> None:
        self.process, self.state = process, state

    @contextmanager
    def client(self, password: str = "") -> Iterator[Any]:
        s = self.state
        trust = ssl.create_default_context(cafile=s["ca_bundle"])
        si = connect.SmartConnect(
            host=s["host"], port=s["port"], user=s["user"], pwd=password or s["password"], sslContext=trust
        )
        try:
            yield si
        finally:
            connect.Disconnect(si)
            si._stub.DropConnections()

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.state["control"] + path, data=data, method=method)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, json.load(refused)

    def look(self, kind: str, name: str) -> dict[str, Any]:
        return next(one for one in self.ask("GET", "/state")[1][kind] if one["name"] == name)


@contextmanager
def running(binary: Path, folder: Path, text: str) -> Iterator[Simulator]:
    inventory, state = folder / "inventory.json", folder / "vcenter.json"
    inventory.write_text(text)
    flags = ["--inventory", str(inventory), "--state", str(state), "--parent", str(os.getpid())]
    process = subprocess.Popen([binary, *flags], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    until(lambda: state.exists() or process.poll() is not None, "the state file")
    yield Simulator(process, json.loads(state.read_text()))
    process.terminate()
    process.communicate(timeout=10)
    gc.collect()  # pyVmomi leaves sockets of refused calls to it: better here than in somebody else's test


def until(look: Callable[[], Any], what: str, seconds: float = 10.0) -> Any:
    end = time.monotonic() + seconds
    while not (seen := look()):
        assert time.monotonic() < end, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.02)
    return seen


def find(si: Any, kind: Any, name: str) -> Any:
    view = si.content.viewManager.CreateContainerView(si.content.rootFolder, [kind], True)
    try:
        return next(o for o in view.view if o.name == name)
    finally:
        view.Destroy()


def done(task: Any, seconds: float = 10.0) -> Any:
    """The fault a task ended with, or None."""
    until(lambda: task.info.state in ("success", "error"), f"the end of {task.info.descriptionId}", seconds)
    return task.info.error


class Watch(threading.Thread):
    """What Hostler's watcher will be: one WaitForUpdatesEx loop over hosts, VMs and the hosts' tasks."""

    def __init__(self, si: Any) -> None:
        super().__init__(daemon=True)
        content = si.content
        self.collector = content.propertyCollector.CreatePropertyCollector()
        view = content.viewManager.CreateContainerView(content.rootFolder, [vim.HostSystem, vim.VirtualMachine], True)
        tasks = PC.TraversalSpec(name="tasks", type=vim.HostSystem, path="recentTask", skip=False)
        walk = PC.TraversalSpec(name="view", type=vim.view.ContainerView, path="view", skip=False, selectSet=[tasks])
        wanted = {
            vim.HostSystem: ["name", "runtime.inMaintenanceMode", "runtime.connectionState", "recentTask", "vm"],
            vim.VirtualMachine: ["name", "runtime.powerState", "runtime.host", "runtime.connectionState"],
            vim.Task: ["info.state", "info.descriptionId", "info.entity", "info.progress"],
        }
        self.collector.CreateFilter(
            PC.FilterSpec(
                objectSet=[PC.ObjectSpec(obj=view, skip=True, selectSet=[walk])],
                propSet=[PC.PropertySpec(type=kind, pathSet=paths) for kind, paths in wanted.items()],
            ),
            True,
        )
        self.seen: dict[str, dict[str, Any]] = {}
        self.denied: dict[str, set[str]] = {}  # by object: what may not be read
        self.progress: list[int] = []
        self.failure = ""
        self.start()

    def run(self) -> None:
        version = ""
        try:
            while True:
                updates = self.collector.WaitForUpdatesEx(version, PC.WaitOptions(maxWaitSeconds=20))
                version = updates.version if updates else version
                for o in (o for f in (updates.filterSet if updates else []) for o in f.objectSet):
                    if o.kind == "leave":
                        self.seen.pop(o.obj._moId, None)
                        continue
                    one = self.seen.setdefault(o.obj._moId, {})
                    one.update({c.name: c.val for c in o.changeSet})
                    refused = self.denied.get(o.obj._moId, set()) - {c.name for c in o.changeSet}
                    self.denied[o.obj._moId] = refused | {m.path for m in o.missingSet}
                    self.progress += [c.val for c in o.changeSet if c.name == "info.progress"]
        except vmodl.fault.RequestCanceled:
            pass
        except Exception as why:  # noqa: BLE001  a thread's failure must reach the test
            self.failure = repr(why)

    def stop(self) -> None:
        for _ in range(20):  # a cancel between two waits is lost
            self.collector.CancelWaitForUpdates()
            self.join(0.25)
            if not self.is_alive():
                break
        assert (self.failure, self.is_alive()) == ("", False)

    def of(self, obj: Any, name: str) -> Any:
        return self.seen.get(obj._moId, {}).get(name)


def every(watches: list[Watch], look: Callable[[Watch], Any], what: str) -> None:
    until(lambda: all(look(w) for w in watches), f"{what} at every watcher", 2)
