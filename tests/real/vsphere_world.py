"""Real vCenter simulators for the tests of `hostler.vsphere`, and a TLS proxy in front of one that counts and cuts.

HOSTLER_TEST_VCENTER names a built simulator to use instead of building one.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any, TypeVar

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from prometheus_client import CollectorRegistry

from hostler.sandbox import build
from hostler.vsphere.endpoints import Endpoint
from hostler.vsphere.metrics import Metrics
from hostler.vsphere.vcenter import VCenter
from hostler.vsphere.vmomi import Stub, service
from tests.real.endings import end_connections

T = TypeVar("T")
USER, PASSWORD = "hostler@vsphere.local", "right"


def binary() -> Path:
    given = os.environ.get("HOSTLER_TEST_VCENTER")
    return Path(given) if given else build.ensure("vcenter", build.Lines(print))


class Simulator:
    """A simulator that can be stopped and started again on the same port, with the same login."""

    def __init__(self, folder: Path, inventory: dict[str, Any], **flags: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.state_file, self.port = folder, folder / "vcenter.json", 0
        (folder / "inventory.json").write_text(json.dumps(inventory))
        self._flags = [word for name, value in flags.items() for word in (f"--{name}", value)]
        self._process: subprocess.Popen[bytes] | None = None
        self.state: dict[str, Any] = {}

    def start(self) -> None:
        flags = ["--inventory", str(self.folder / "inventory.json"), "--state", str(self.state_file)]
        flags += ["--parent", str(os.getpid()), "--listen", f"127.0.0.1:{self.port}", *self._flags]
        env = {**os.environ, "HOSTLER_SANDBOX_VCENTER_USER": USER, "HOSTLER_SANDBOX_VCENTER_PASSWORD": PASSWORD}
        with (self.folder / "log").open("ab") as written:
            self._process = subprocess.Popen([binary(), *flags], stderr=written, stdout=written, env=env)
        process = self._process
        until(lambda: self.state_file.exists() or process.poll() is not None, "the simulator's state file", 60)
        self.state = json.loads(self.state_file.read_text())
        self.port = self.state["port"]

    def kill(self) -> None:
        """As a power failure: no goodbye."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)
            self._process = None
            self.state_file.unlink(missing_ok=True)

    def endpoint(self, **changes: Any) -> Endpoint:
        known = {"host": "127.0.0.1", "port": self.port, "user": USER, "password": PASSWORD}
        return Endpoint(**{**known, "ca_bundle": self.state["ca_bundle"], **changes})

    def ask(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.state["control"] + path, data=data, method=method)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    @contextmanager
    def client(self) -> Iterator[Any]:
        """The vendor's client as somebody else would use it: the service instance's content."""
        stub = Stub("127.0.0.1", self.port, ssl.create_default_context(cafile=self.state["ca_bundle"]), 20)
        content = service(stub).RetrieveContent()
        content.sessionManager.Login(USER, PASSWORD)
        try:
            yield content
        finally:
            content.sessionManager.Logout()
            stub.DropConnections()


def until(look: Callable[[], T], what: str, seconds: float = 20.0) -> T:
    end = time.monotonic() + seconds
    while not (seen := look()):
        assert time.monotonic() < end, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.02)
    return seen


async def eventually(look: Callable[[], object], what: str, seconds: float = 30.0) -> None:
    """As `until`, on a loop that goes on."""
    end = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < end, f"not within {seconds:.0f} s: {what}"
        await asyncio.sleep(0.01)


@asynccontextmanager
async def following(endpoint: Endpoint, *, wait: bool = True, **more: Any) -> AsyncIterator[VCenter]:
    """A vCenter that is being followed; logged out at the end."""
    registry = CollectorRegistry()
    vcenter = VCenter(endpoint, Metrics(registry), **more)
    vcenter.start()
    try:
        if wait:
            await eventually(lambda: vcenter.link.connected, f"a connection; it stands: {vcenter.link}", 60)
        yield vcenter
    finally:
        await vcenter.stop()


def measured(vcenter: VCenter, name: str, **labels: str) -> float:
    """A metric's value as Prometheus would read it; 0 where it has none yet."""
    return vcenter.metrics.registry.get_sample_value(name, {"vcenter": vcenter.name, **labels}) or 0.0


def certificate(folder: Path) -> tuple[Path, Path]:
    """A self-signed certificate for loopback, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a vCenter of the tests")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    cert_file, key_file = folder / "cert.pem", folder / "key.pem"
    cert_file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    key_file.write_bytes(key.private_bytes(*form))
    return cert_file, key_file


class Proxy:
    """Between a client and a vCenter: counts SOAP calls by name, and can stall or cut long waits."""

    _CALL = re.compile(rb"<soapenv:Body>\s*<(\w+)")

    def __init__(self, upstream: int, cert: Path, key: Path) -> None:
        self.calls: Counter[str] = Counter()
        self.port = 0
        self.patience: float | None = None  # an answer that takes longer than this is cut off
        self.stalled = False  # nothing is passed on any more, and nothing is closed
        self._upstream = upstream
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._tls.load_cert_chain(cert, key)
        self._up = ssl.create_default_context()
        self._up.check_hostname, self._up.verify_mode = False, ssl.CERT_NONE
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[Proxy]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self._tls)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await end_connections()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        up: asyncio.StreamWriter | None = None
        try:
            answers, up = await asyncio.open_connection("127.0.0.1", self._upstream, ssl=self._up)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._requests(reader, up))
                group.create_task(self._answers(answers, writer))
        except* (OSError, TimeoutError):
            pass  # a cut connection is what this proxy is for
        except* asyncio.CancelledError:
            pass
        finally:
            for end in (writer, up):
                if end is not None:
                    end.transport.abort()

    async def _requests(self, reader: asyncio.StreamReader, up: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            while self.stalled:
                await asyncio.sleep(0.05)
            self.calls.update(name.decode() for name in self._CALL.findall(data))
            up.write(data)
            await up.drain()
        raise ConnectionResetError

    async def _answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await asyncio.wait_for(reader.read(65536), self.patience):
            while self.stalled:
                await asyncio.sleep(0.05)
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError
