"""The real operator as a process on the sandbox, under a name of its own so that the audit log can tell its writes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from hostler.fleet.reviews import missing_rights
from hostler.fleet.rights import Right, rights_for
from hostler.fleet.roles import Account
from hostler.kube.client import Client
from hostler.kube.config import load
from hostler.sandbox import Sandbox
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


def kubeconfig_of(sandbox: Sandbox, folder: Path, account: str) -> Path:
    """The sandbox's kubeconfig with the login of a service account, and nothing else."""
    _, _, namespace, name = account.split(":")
    token = sandbox.kubectl("create", "token", name, "-n", namespace, "--duration=2h").strip()
    return kubeconfig_with(sandbox, folder / f"{name}.kubeconfig", token)


def kubeconfig_with(sandbox: Sandbox, path: Path, token: str) -> Path:
    """The sandbox's kubeconfig with nothing but this token."""
    read = yaml.safe_load(sandbox.kubeconfig.read_text())
    for one in read["users"]:
        one["user"] = {"token": token}
    path.touch(0o600)
    path.write_text(yaml.safe_dump(read))
    return path


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
    groups: tuple[str, ...] = ("system:masters",),
    told: Mapping[str, str] | None = None,
) -> Iterator[Running]:
    """`hostler run` with a lease in `namespace` and any free port; stopped in good order at the end.

    `user`: the service account it logs in as; unset, somebody of its own name with every right. `told`: further
    environment variables.
    """
    if user:
        path = kubeconfig_of(sandbox, folder, user)
    else:
        user = f"{name}-{namespace}"
        path = kubeconfig_as(sandbox, folder, user, *groups)
    log = folder / f"{name}.log"
    words = ("run", "--log-format", "json", "--namespace", namespace, "--http-address", "127.0.0.1:0", *QUICK, *flags)
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "hostler", *words],
            stdout=out, stderr=out, env=environment(path) | dict(told or {}), cwd=folder,
        )  # fmt: skip
    running = Running(process, log, user)
    try:
        yield running
        running.stop()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def account_for(sandbox: Sandbox, namespace: str, only: str, *flags: str) -> str:
    """A service account with the rights that `hostler rights` lists for these capabilities, and no other: its name."""
    name = f"hostler-{namespace}"
    words = ("--only", only, "--namespace", namespace, "--account", name, "-o", "yaml")
    made = hostler(sandbox.kubeconfig, "rights", *words, *flags)
    assert made.returncode == 0, made.stderr
    sandbox.kubectl("create", "serviceaccount", name, "-n", namespace)
    sandbox.kubectl("apply", "-f", "-", input=made.stdout)
    account = Account(namespace, name)
    wait_for_rights(sandbox, account, only.split(","), openshift="--openshift" in flags)
    return account.user


def wait_for_rights(sandbox: Sandbox, account: Account, only: Sequence[str], *, openshift: bool = False) -> None:
    """The API server learns of roles by a watch of its own: what was applied is in force a moment later."""
    rights = tuple(one for one in rights_for(only) if openshift or not one.openshift)
    end = time.monotonic() + 60
    while missing := asyncio.run(_missing(sandbox, account, rights)):
        assert time.monotonic() < end, missing


async def _missing(sandbox: Sandbox, account: Account, rights: tuple[Right, ...]) -> tuple[str, ...]:
    async with Client(load(str(sandbox.kubeconfig))) as client:
        return await missing_rights(client, account, rights)


def take_rights_back(sandbox: Sandbox, namespace: str) -> None:
    """What is not in its namespace; that goes with it."""
    sandbox.kubectl("delete", "clusterrole,clusterrolebinding", f"hostler-{namespace}", "--ignore-not-found")
    for place in ("kube-system", "kube-node-lease", "openshift-ingress"):
        sandbox.kubectl("delete", "role,rolebinding", f"hostler-{namespace}", "-n", place, "--ignore-not-found")


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
