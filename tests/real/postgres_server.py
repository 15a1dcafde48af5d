"""A real PostgreSQL on a free port of the loopback, in a folder of its own; killed and started again at will.

initdb and postgres refuse to run as root: there they run as the user of Debian's package, or as nobody.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from tests.tools import not_here

USER, PASSWORD = "hostler", "s3cr3t/with@odd:unlikely"
START_SECONDS = 60.0


class PostgresServer:
    def __init__(self, binaries: Path, folder: Path, user: str | None) -> None:
        self._binaries, self._folder, self._user = binaries, folder, user
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, database: str = "postgres", options: str = "", password: str = PASSWORD) -> str:
        return f"postgresql://{USER}:{quote(password, safe='')}@127.0.0.1:{self.port}/{database}{options}"

    def init(self) -> None:
        password = self._folder / "password"
        password.write_text(PASSWORD)
        words = ("-D", str(self._folder / "data"), "-U", USER, "--auth", "scram-sha-256", "--pwfile", str(password))
        done = self._run("initdb", *words, "--no-sync", "--locale=C", "--encoding=UTF8")
        assert done.returncode == 0, done.stderr

    def serve_tls(self, certificate: bytes, key: bytes) -> None:
        """From the next start on."""
        for name, data in (("server.crt", certificate), ("server.key", key)):
            path = self._folder / "data" / name
            path.write_bytes(data)
            path.chmod(0o600)
            if self._user:
                shutil.chown(path, self._user)
        with (self._folder / "data/postgresql.conf").open("a") as settings:
            settings.write("ssl = on\n")

    def start(self) -> None:
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    self._binaries / "postgres", "-D", self._folder / "data", "-k", self._folder, "-p", str(self.port),
                    "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off",
                ],
                stdout=log, stderr=log, cwd=self._folder, user=self._user,
                group=pwd.getpwnam(self._user).pw_gid if self._user else None, extra_groups=[] if self._user else None,
            )  # fmt: skip
        end = time.monotonic() + START_SECONDS
        while self._run("pg_isready", "-h", "127.0.0.1", "-p", str(self.port)).returncode:
            is_starting = self._process.poll() is None and time.monotonic() < end
            assert is_starting, (self._folder / "log").read_text()
            time.sleep(0.1)

    def kill(self) -> None:
        """At once, as when its machine goes: it recovers at the next start."""
        self._end(signal.SIGQUIT)

    def stop(self) -> None:
        self._end(signal.SIGINT)

    def run_sql(self, statement: str, database: str = "postgres") -> str:
        """As its owner; what is found, one row a line, columns by `|`."""
        words = ("-h", "127.0.0.1", "-p", str(self.port), "-U", USER, "-d", database, "-XqAt", "-c", statement)
        done = self._run("psql", *words)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(how)
            self._process.wait(timeout=60)

    def _run(self, program: str, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self._binaries / program, *words], capture_output=True, text=True, cwd=self._folder, timeout=120,
            env={"PATH": os.environ["PATH"], "PGPASSWORD": PASSWORD, "LC_ALL": "C"}, user=self._user,
            group=pwd.getpwnam(self._user).pw_gid if self._user else None, extra_groups=[] if self._user else None,
        )  # fmt: skip


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """One that is ready to be started; skipped where PostgreSQL is not installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if not found:
        not_here("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    user = None if os.geteuid() else next(name for name in ("postgres", "nobody") if _exists(name))
    folder = Path(tempfile.mkdtemp(prefix="hostler-postgres-"))
    if user:
        shutil.chown(folder, user)
    server = PostgresServer(found[-1].parent, folder, user)
    try:
        server.init()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)


def _exists(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True
