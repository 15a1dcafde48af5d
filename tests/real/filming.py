"""An object filmed: each of its versions as the API server told it; a node beside what its VM was doing just then."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from hostler.sandbox import Sandbox
from hostler.sandbox import http as sandbox_http
from tests.real.maintaining import OUT_OF_SERVICE, SEED
from tests.real.story import Story


@dataclass(frozen=True)
class Frame:
    state: str
    cordoned: bool
    tainted: bool
    power: str  # of the VM of a tainted node, as the simulator said when this version had arrived


class Reel(threading.Thread):
    """A watch on one object: each version is handed to `take`. Its connection is cut at the end."""

    def __init__(self, sandbox: Sandbox, collection: str, name: str, take: Callable[[dict[str, Any]], None]) -> None:
        super().__init__(daemon=True, name="film")
        tls = sandbox_http.trust(sandbox.layout, "admin")
        port = sandbox.state.ports["kube-apiserver"]
        self._connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=300, context=tls)
        self._connection.request("GET", f"{collection}?watch=true&fieldSelector=metadata.name%3D{name}")
        self._sock = self._connection.sock
        self._answer = self._connection.getresponse()
        self._take = take
        self._over = False
        self.start()

    def run(self) -> None:
        try:
            for line in self._answer:
                self._take(json.loads(line)["object"])
        except (OSError, http.client.HTTPException, ValueError, AttributeError):
            if not self._over:
                raise

    def stop(self) -> None:
        self._over = True
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self.join(10)
        self._answer.close()
        self._connection.close()


@contextmanager
def versions(sandbox: Sandbox, collection: str, name: str) -> Iterator[list[dict[str, Any]]]:
    """Every version of an object from now on, as they come."""
    seen: list[dict[str, Any]] = []
    reel = Reel(sandbox, collection, name, seen.append)
    try:
        yield seen
    finally:
        reel.stop()


class Film:
    """The frames of one node."""

    def __init__(self, story: Story, vm: str) -> None:
        self._story, self._vm = story, vm
        self.frames: list[Frame] = []
        self._reel = Reel(story.site.sandbox, "/api/v1/nodes", story.full(vm), self._take)

    def _take(self, node: dict[str, object]) -> None:
        metadata, spec = node["metadata"], node["spec"]
        assert isinstance(metadata, dict)
        assert isinstance(spec, dict)
        tainted = any(taint["key"] == OUT_OF_SERVICE for taint in spec.get("taints", []))
        power = str(self._story.vm(self._vm)["power"]) if tainted else ""
        state = metadata.get("annotations", {}).get(f"{SEED}state", "")
        self.frames.append(Frame(state, bool(spec.get("unschedulable")), tainted, power))

    def stop(self) -> None:
        self._reel.stop()


@contextmanager
def filmed(story: Story, vm: str) -> Iterator[Film]:
    film = Film(story, vm)
    try:
        yield film
    finally:
        film.stop()
