"""The real operator as a process on the sandbox, as a service account of its own with the chart's rights."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from hostler.install.grants import limits_of
from hostler.metal.settings import METAL_NAMESPACES
from hostler.sandbox import Sandbox
from hostler.sandbox.load import create
from tests.real.accounts import CHARTED, NOBODY, charted, kubeconfig_of, new_account, rights_here, switched_on
from tests.real.auditing import forbidden, who

QUICK = ("--lease-duration-seconds", "4", "--lease-renew-seconds", "2.5", "--lease-retry-seconds", "0.5")


@dataclass
class Running:
    """One operator. `user` is who it is for the API server."""

    process: subprocess.Popen[bytes]
    log: Path
    user: str

    def lines(self) -> list[dict[str, Any]]:
        found = []
        for line in self.log.read_text().splitlines():
            if line.startswith("{"):
                found.append(json.loads(line))
        return found

    def said(self, event: str, seconds: float = 60.0) -> dict[str, Any]:
        """Wait for a line of the log; fails with the log's end if the process ends first."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for line in self.lines():
                if line.get("event") == event:
                    return line
            if self.process.poll() is not None:
                raise AssertionError(
                    f"the operator ended with {self.process.returncode}:\n{self.log.read_text()[-3000:]}"
                )
            time.sleep(0.05)
        raise AssertionError(f"the operator never said {event!r}:\n{self.log.read_text()[-3000:]}")

    @property
    def url(self) -> str:
        return str(self.said("serving health, metrics and reads")["url"])

    def ready(self, seconds: float = 90.0) -> None:
        """Wait until every cache is filled: what it answers before that may be that it does not know."""
        end, why = time.monotonic() + seconds, ""
        while time.monotonic() < end:
            try:
                with urllib.request.urlopen(f"{self.url}/readyz", timeout=30):
                    return
            except urllib.error.HTTPError as error:
                with error:
                    why = error.read().decode()
            except OSError as error:
                why = str(error)
            time.sleep(0.1)
        raise AssertionError(f"the operator is not ready within {seconds:.0f} s: {why}")

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)

    def kill(self) -> None:
        """It gets no chance to finish anything, nor to give its lease back."""
        self.process.kill()
        self.process.wait()


def kubeconfig_as(sandbox: Sandbox, folder: Path, user: str, *groups: str) -> Path:
    """The sandbox's kubeconfig, but acting as somebody else: with no group, somebody without any right."""
    read = yaml.safe_load(sandbox.kubeconfig.read_text())
    for one in read["users"]:
        one["user"]["as"] = user
        if groups:
            one["user"]["as-groups"] = list(groups)
    path = folder / f"{user.replace(':', '-')}.kubeconfig"
    path.touch(0o600)
    path.write_text(yaml.safe_dump(read))
    return path


def own_address() -> str | None:
    """An address of this machine that is not loopback, which the API server's proxy refuses; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return None
        address = str(probe.getsockname()[0])
    return None if address.startswith("127.") else address


def environment(kubeconfig: Path) -> dict[str, str]:
    """As empty as possible: nothing of this machine or of another test gets in."""
    return {"PATH": os.environ["PATH"], "HOME": str(kubeconfig.parent), "KUBECONFIG": str(kubeconfig), "COLUMNS": "200"}


@contextmanager
def operator(
    sandbox: Sandbox,
    folder: Path,
    namespace: str,
    *flags: str,
    name: str = "operator",
    user: str = "",
    rights: bool = True,
    at: Path | None = None,
    told: Mapping[str, str] | None = None,
) -> Iterator[Running]:
    """`hostler run` with a lease in `namespace` and any free port; stopped in good order at the end.

    It has the rights that the chart gives for what is switched on, or none with `rights=False`. `user`: a service
    account that is there already. `at`: see `charted`. `told`: further environment variables.
    """
    told = told or {}
    given = dict(pairwise(flags))
    limits = limits_of({METAL_NAMESPACES.name: given.get(METAL_NAMESPACES.flag, "")})
    lease = given.get("--lease-name", "hostler")
    it = new_account(namespace, name, lease, CHARTED if rights else NOBODY, limits)
    create(sandbox, [blank_lease(namespace, lease)])
    granted = rights_here(sandbox, switched_on(flags, told)) if rights else ()
    with nullcontext(user) if user else charted(sandbox, it, granted, at) as user:
        path, log = kubeconfig_of(sandbox, folder, user, at), folder / f"{name}.log"
        words = (
            "--log-format",
            "json",
            "--operator-namespace",
            namespace,
            "--http-address",
            "127.0.0.1:0",
            *QUICK,
            *flags,
        )
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "hostler", "run", *words],
                stdout=out, stderr=out, env=environment(path) | dict(told), cwd=folder,
            )  # fmt: skip
        running = Running(process, log, user)
        try:
            yield running
            running.stop()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


def blank_lease(namespace: str, name: str) -> dict[str, Any]:
    """As an installer leaves it, never held: who creates a lease waits for its whole duration before it leads."""
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": {}}


def refused(running: Running) -> list[dict[str, Any]]:
    """What the operator says it may not do. A namespace that is going answers 403 too, to those who may."""
    said = [one for one in running.lines() if "forbidden" in str(one) or "may not" in str(one)]
    return [one for one in said if "because it is being terminated" not in str(one)]


def denied(sandbox: Sandbox, user: str) -> list[str]:
    """What the API server says it refused them, to read or to write."""
    return [f"{one['verb']} {one['requestURI']}" for one in sandbox.audit(user) if who(one) == user and forbidden(one)]


def hostler(kubeconfig: Path, *words: str, seconds: float = 120.0) -> subprocess.CompletedProcess[str]:
    """The CLI as a person runs it."""
    return subprocess.run(
        [sys.executable, "-m", "hostler", *words],
        capture_output=True, text=True, timeout=seconds, env=environment(kubeconfig), cwd=kubeconfig.parent,
    )  # fmt: skip
