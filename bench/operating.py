"""`hostler run` as a process on a sandbox, measured from outside: its metrics, its CPU and its memory."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from hostler.sandbox.life import Sandbox

USER = "hostler-bench"  # who it is in the audit log


class Operator:
    """`hostler run`, measured from outside."""

    def __init__(self, sandbox: Sandbox, folder: Path, told: Mapping[str, str]) -> None:
        config = yaml.safe_load(sandbox.kubeconfig.read_text())
        for one in config["users"]:
            one["user"] |= {"as": USER, "as-groups": ["system:masters"]}
        path = folder / "operator.kubeconfig"
        path.touch(0o600)
        path.write_text(yaml.safe_dump(config))
        vcenter = sandbox.vcenter
        env = {
            "PATH": os.environ["PATH"], "HOME": str(folder), "KUBECONFIG": str(path),
            "VCENTER_HOST": f"{vcenter['host']}:{vcenter['port']}", "VCENTER_USER": vcenter["user"],
            "VCENTER_PASSWORD": vcenter["password"], "VCENTER_CA_BUNDLE": vcenter["ca_bundle"],
            "HOSTLER_OPERATOR_NAMESPACE": "default", **told,
        }  # fmt: skip
        self._log = folder / "operator.log"
        words = ("run", "--log-format", "json", "--http-address", "127.0.0.1:0")
        with self._log.open("wb") as out:
            self.process = subprocess.Popen([sys.executable, "-m", "hostler", *words], stdout=out, stderr=out, env=env)
        self._url = ""

    def said(self, event: str) -> dict[str, Any] | None:
        for line in self._log.read_text().splitlines():
            if line.startswith("{") and (read := json.loads(line)).get("event") == event:
                return dict(read)
        if self.process.poll() is not None:
            raise SystemExit(f"bench: the operator ended:\n{self._log.read_text()[-3000:]}")
        return None

    def metric(self, name: str, **labels: str) -> float:
        if not self._url:
            found = self.said("serving health, metrics and reads")
            self._url = str(found["url"]) if found else ""
        if not self._url:
            return 0.0
        with urllib.request.urlopen(f"{self._url}/metrics", timeout=20) as answer:
            text = answer.read().decode()
        lines = (line for line in text.splitlines() if line.startswith((f"{name} ", f"{name}{{")))
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        return sum(float(line.rpartition(" ")[2]) for line in lines if all(one in line for one in wanted))

    def cpu(self) -> float:
        return cpu_of(self.process.pid)

    def memory(self, word: str) -> float:
        """MiB: VmRSS now, VmHWM at most so far."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(rf"{word}:\s+(\d+) kB", status)
        return int(found[1]) / 1024 if found else 0.0

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


def cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def operator(sandbox: Sandbox, folder: Path, told: Mapping[str, str]) -> Iterator[Operator]:
    running = Operator(sandbox, folder, told)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.stop()
