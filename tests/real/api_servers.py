"""Further real API servers on the sandbox's etcd: an older version of the same cluster, or a cluster of its own."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hostler.sandbox import Sandbox, http, parts


@contextmanager
def another_api_server(box: Sandbox, folder: Path, name: str, *flags: str) -> Iterator[Path]:
    """An administrator's kubeconfig for it. With `--etcd-prefix` it has objects of its own, and no controllers."""
    part = parts.apiserver(box.layout, box.state)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    own = ("--secure-port=", "--audit-")
    argv = [word for word in part.argv if not word.startswith(own)]
    kubeconfig = folder / f"{name}.kubeconfig"
    kubeconfig.touch(0o600)
    kubeconfig.write_text(box.kubeconfig.read_text().replace(f":{box.state.ports['kube-apiserver']}", f":{port}"))
    log = folder / f"{name}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*argv, f"--secure-port={port}", *flags], stdout=out, stderr=out, env=part.env, cwd=folder
        )
    try:
        _until_ready(box, port, process, log)
        yield kubeconfig
    finally:
        process.kill()
        process.wait()


def _until_ready(box: Sandbox, port: int, process: subprocess.Popen[bytes], log: Path, seconds: float = 120.0) -> None:
    tls, end = http.trust(box.layout, "admin"), time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        with suppress(OSError):
            if http.call(port, "GET", "/readyz", tls=tls)[0] == 200:
                return
        time.sleep(0.2)
    raise AssertionError(f"the API server is not ready: {log.read_text()[-2000:]}")
