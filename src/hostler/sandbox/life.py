"""The life of a sandbox: up, down, and every part stopped, killed and started by itself.

box = Sandbox.up(Path("d"), Options(audit=True))
box.kubectl("get", "nodes")
box.kill("kube-apiserver"); box.start("kube-apiserver"); box.wait_ready()
box.compact_etcd()
box.down()
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from hostler.errors import Complaint, Exit
from hostler.sandbox import build, http, parts
from hostler.sandbox.certs import make_certificates, write_secret
from hostler.sandbox.look import Resource, path_of
from hostler.sandbox.model import LOCK, MADE, Layout, Options, State, free_ports, read_state
from hostler.sandbox.process import spawn, tail

# How long `stop` waits for a part to end by itself. An API server with open watches would take a minute.
PATIENCE = {"kube-apiserver": 3.0}
START_SECONDS = 90.0


class PartStatus(msgspec.Struct, frozen=True):
    """One line of `hostler sandbox status`."""

    name: str
    alive: bool
    pid: int
    port: int | None
    rss: int
    cpu_seconds: float
    log: str
    last_lines: str  # only for a part that is dead


class Sandbox:
    """A control plane and a vCenter on this machine. Make one with `up` or `open`."""

    def __init__(self, layout: Layout, state: State) -> None:
        self.layout = layout
        self.state = state
        self.timings: dict[str, float] = {}  # seconds per step of `up`
        self.news = ""  # what `up` found and did, as a sentence
        self._resources: dict[str, Resource] = {}  # what the API server serves, by every name of it

    # -- from outside --------------------------------------------------------------------------------------------

    @classmethod
    def up(
        cls,
        folder: Path,
        options: Options,
        progress: build.Progress | None = None,
        asked: Collection[str] | None = None,
    ) -> Sandbox:
        """Start a sandbox in this folder, or bring back what is dead of one that is there. Safe to repeat.

        `asked`: only these options are a wish; one that is there keeps its own for the others. None: all are.
        """
        from hostler.sandbox.start import bring_up  # it needs this class

        return bring_up(cls, _layout(folder), options, progress or build.Silent(), asked)

    @classmethod
    def open(cls, folder: Path) -> Sandbox:
        """The sandbox that is in this folder, running or not."""
        layout = _layout(folder)
        state = read_state(layout)
        if state is None:
            raise Complaint(
                f"There is no sandbox in {layout.root}.",
                hint=f"`hostler sandbox up --dir {folder}` starts one.",
                code=Exit.UNREACHABLE,
            )
        return cls(layout, state)

    def down(self, *, keep: bool = False) -> None:
        """End every part; without `keep`, remove what the sandbox made, and its folder if nothing else is in it."""
        with self.locked():
            self.end_parts()
            if keep:
                return
            clear(self.layout)
        (self.layout.root / LOCK).unlink(missing_ok=True)
        if not any(self.layout.root.iterdir()):
            self.layout.root.rmdir()

    # -- parts ---------------------------------------------------------------------------------------------------

    @property
    def part_names(self) -> list[str]:
        return parts.parts_of(self.state)

    def status(self) -> list[PartStatus]:
        return [self._status(name) for name in self.part_names]

    def alive(self, part: str) -> bool:
        process = self.state.parts.get(self._known(part))
        return process is not None and process.alive

    def start(self, part: str, *, wait: bool = False) -> None:
        """Start a part that is not running, on the same port and with the same data."""
        if not self.alive(part):
            made = parts.PARTS[part](self.layout, self.state)
            self.layout.log(part).parent.mkdir(mode=0o700, exist_ok=True)
            if part == "keeper":
                self.keeper_ready.unlink(missing_ok=True)
            self.state.parts[part] = spawn(made.argv, self.layout.log(part), made.env)
            self.save()
        if wait:
            self.wait_ready(only=[part])

    def stop(self, part: str) -> None:
        """End a part as an administrator would, and wait until it is gone."""
        if process := self.state.parts.get(self._known(part)):
            process.end(PATIENCE.get(part, 10.0))

    def kill(self, part: str, number: int = signal.SIGKILL) -> None:
        """Send a part a signal (SIGKILL, SIGSTOP, SIGCONT ...); after SIGKILL, wait until it is gone."""
        process = self.state.parts.get(self._known(part))
        if process is None or not process.signal(number):
            raise Complaint(f"{part} does not run, so it cannot be sent a signal.")
        if number == signal.SIGKILL:
            process.wait(10)

    def restart(self, part: str) -> None:
        """Stop, start, and wait until it is ready again. What depends on it reconnects by itself."""
        self.stop(part)
        self.start(part, wait=True)

    def wait_ready(self, seconds: float = START_SECONDS, only: list[str] | None = None) -> None:
        """Wait until these parts (default: all) are alive and healthy; the first that is dead is named."""
        waiting = list(only or self.part_names)
        end = time.monotonic() + seconds
        while waiting:
            waiting = [part for part in waiting if not self._healthy(part)]
            for part in waiting:
                if not self.alive(part):
                    raise self._died(part)
            if waiting and time.monotonic() > end:
                log = self.layout.log(waiting[0])
                raise Complaint(
                    f"{waiting[0]} was started but is not ready after {seconds:.0f} s. Its last lines:\n{tail(log)}",
                    hint=f"\nThe whole log is {log}.",
                )
            time.sleep(0.05)

    # -- what one does with it -----------------------------------------------------------------------------------

    @property
    def kubeconfig(self) -> Path:
        """An administrator's kubeconfig."""
        return self.layout.kubeconfig

    @property
    def server(self) -> str:
        """The API server's URL."""
        return self.state.server

    @property
    def vcenter(self) -> dict[str, Any]:
        """How to reach the vCenter simulator: host, port, user, password, url, ca_bundle, control."""
        self._needs_vcenter()
        return dict(json.loads(self.layout.vcenter.read_bytes()))

    def kubectl(self, *args: str, input: str | None = None, check: bool = True) -> str:
        """What kubectl writes to its standard output; a Complaint with its error if it fails and `check` is on."""
        done = subprocess.run(
            [self.state.programs["controlplane"], "kubectl", *args],
            input=input,
            env=self.kubectl_environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        if check and done.returncode != 0:
            raise Complaint(f"kubectl {' '.join(args)}: {done.stderr.strip()}", code=Exit.REFUSED)
        return done.stdout

    @property
    def clusterctl_program(self) -> Path:
        """Cluster API's own clusterctl; run it with `kubectl_environment`."""
        if "capi" not in self.state.options.extras:
            raise Complaint(
                f"The sandbox in {self.layout.root} has no Cluster API, so it has no clusterctl.",
                hint="Start one with --with capi.",
                code=Exit.SETTING,
            )
        return Path(self.state.programs["capi"]) / "clusterctl"

    def clusterctl(self, *args: str, check: bool = True) -> str:
        """What clusterctl writes to its standard output; a Complaint with its error if it fails and `check` is on."""
        command = [str(self.clusterctl_program), *args]
        done = subprocess.run(command, env=self.kubectl_environment(), capture_output=True, text=True, check=False)
        if check and done.returncode != 0:
            raise Complaint(f"clusterctl {' '.join(args)}: {done.stderr.strip()}", code=Exit.REFUSED)
        return done.stdout

    def read(self, path: str) -> dict[str, Any]:
        """GET a path of the API server, as an administrator: the cheap way to look again and again."""
        tls = http.trust(self.layout, "admin")
        return http.ask("The API server", self.state.ports["kube-apiserver"], "GET", path, tls=tls)

    def get(self, *args: str) -> dict[str, Any]:
        """`kubectl get ... -o json`, decoded; where it can be, without starting kubectl."""
        port, tls = self.state.ports["kube-apiserver"], http.trust(self.layout, "admin")
        try:
            if path := path_of(port, tls, self._resources, args):
                return http.ask("The API server", port, "GET", path, tls=tls)
        except Complaint:
            self._resources.clear()  # also when a kind is gone, or served elsewhere now; kubectl says it in its words
        return dict(json.loads(self.kubectl("get", *args, "-o", "json")))

    def apply(self, *objects: dict[str, Any]) -> None:
        """`kubectl apply` of these objects."""
        self.kubectl("apply", "-f", "-", input="\n---\n".join(json.dumps(one) for one in objects))

    def audit(self, *words: str) -> Iterator[dict[str, Any]]:
        """What the audit log holds so far, oldest first; needs `Options(audit=True)`.

        With words: only the entries in which one of them stands. The others are not read, and a log is long.
        """
        if not self.state.options.audit:
            raise Complaint("This sandbox keeps no audit log.", hint="Start it with --audit.", code=Exit.SETTING)
        with self.layout.audit_log.open() as lines:
            for line in lines:
                wanted = not words or any(word in line for word in words)
                if wanted and line.endswith("\n"):  # the last one may be half written
                    yield json.loads(line)

    def compact_etcd(self, *, restart_apiserver: bool = True) -> int:
        """Make every older resourceVersion answer 410 Gone; returns the revision of etcd it happened at.

        Compaction alone is not enough: the API server would go on serving watches from its own cache.
        """
        port, tls = self.state.ports["etcd"], http.trust(self.layout, "etcd")
        status = http.ask("etcd", port, "POST", "/v3/maintenance/status", {}, tls=tls)
        revision = int(status["header"]["revision"])
        http.ask("etcd", port, "POST", "/v3/kv/compaction", {"revision": revision, "physical": True}, tls=tls)
        if restart_apiserver:
            self.restart("kube-apiserver")
        return revision

    def control(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        """One call on the simulator's control endpoint; see sandbox/vcenter/README.md."""
        self._needs_vcenter()
        return http.ask("The vCenter simulator", self.state.ports["vcenter-control"], method, path, body)

    def power(self, vm: str, state: str, *, hard: bool = True) -> dict[str, Any]:
        """Switch a VM `on` or `off`; its node follows by itself."""
        return self.control("POST", f"/vms/{vm}/power", {"state": state, "hard": hard})

    def maintenance(self, host: str, what: str, **settings: object) -> dict[str, Any]:
        """`enter`, `exit` or `cancel` the maintenance of an ESXi host."""
        return self.control("POST", f"/hosts/{host}/{what}", settings or None)

    def node_power(self, node: str, state: str) -> None:
        """Switch a node `on` or `off` that has no VM (or whose VM shall look dead to Kubernetes)."""
        self.kubectl("annotate", "--overwrite", "node", node, f"sandbox.hostler.dev/power={state}")

    # -- inside --------------------------------------------------------------------------------------------------

    @property
    def keeper_ready(self) -> Path:
        return self.layout.conf / "keeper.ready"

    def save(self) -> None:
        write_secret(self.layout.state, msgspec.json.format(msgspec.json.encode(self.state), indent=1))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One `up` or `down` at a time per folder."""
        with locked(self.layout):
            yield

    def end_parts(self) -> None:
        """The last started first; the short ways out are fine, because etcd is what keeps the data."""
        for name in reversed(list(parts.PARTS)):
            if process := self.state.parts.get(name):
                process.end(PATIENCE.get(name, 10.0))
        self.state.parts.clear()
        self.save()

    def kubectl_environment(self) -> dict[str, str]:
        # Nothing of the user's own kubectl leaks in, and nothing of ours stays behind in their home.
        mine = {
            "KUBECONFIG": str(self.kubeconfig),
            "KUBECACHEDIR": str(self.layout.root / "kubectl-cache"),
            "KUBECTL_KUBERC": "false",
            "XDG_CONFIG_HOME": str(self.layout.clusterctl),  # not the user's
            "CLUSTERCTL_DISABLE_VERSIONCHECK": "true",  # it would ask GitHub
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
        }
        return {**os.environ, **mine}

    def _status(self, name: str) -> PartStatus:
        process, log = self.state.parts.get(name), self.layout.log(name)
        alive = process is not None and process.alive
        return PartStatus(
            name=name,
            alive=alive,
            pid=process.pid if process else 0,
            port=self.state.ports.get(name),
            rss=process.rss if process else 0,
            cpu_seconds=process.cpu_seconds if process else 0.0,
            log=str(log),
            last_lines="" if alive else tail(log),
        )

    def _healthy(self, part: str) -> bool:
        port = self.state.ports.get(part, 0)
        match part:
            case "etcd":
                return http.healthy(port, "/health", http.trust(self.layout, "etcd"))
            case "kube-apiserver":
                return http.healthy(port, "/readyz", http.trust(self.layout, "admin"))
            case "kube-controller-manager" | "kube-scheduler":
                return http.healthy(port, "/healthz", http.trust(self.layout))
            case "kwok":
                return http.healthy(port, "/healthz")
            case "vcenter":
                return self.layout.vcenter.exists() and http.healthy(self.state.ports["vcenter-control"], "/healthz")
            case "hosts":
                return True  # it follows whatever CRDs come later
            case _ if part in parts.MANAGERS:
                return http.healthy(self.state.ports[f"{part}-health"], "/readyz")
            case _:
                return self.keeper_ready.exists()

    def _died(self, part: str) -> Complaint:
        log = self.layout.log(part)
        return Complaint(f"{part} is dead. Its last lines:\n{tail(log)}", hint=f"\nThe whole log is {log}.")

    def _known(self, part: str) -> str:
        if part not in self.part_names:
            raise Complaint(f"This sandbox has no part {part!r}; it has {', '.join(self.part_names)}.", code=Exit.USAGE)
        return part

    def _needs_vcenter(self) -> None:
        if not self.state.has_vcenter:
            raise Complaint(
                "This sandbox has no vCenter.",
                hint="Start one with a fleet file that has `vcenters:` and without --no-vcenter.",
                code=Exit.SETTING,
            )


def clear(layout: Layout) -> None:
    """Remove what a sandbox makes, and nothing else."""
    # The simulator keeps scratch files beside its state and removes them, unless it was killed.
    for path in [*(layout.root / name for name in MADE), *layout.root.glob("govcsim-*")]:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _layout(folder: Path) -> Layout:
    return Layout(folder.expanduser().absolute())


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


@contextmanager
def locked(layout: Layout) -> Iterator[None]:
    with open(layout.root / LOCK, "w", opener=_private) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Complaint(
                f"Another command is starting or ending the sandbox in {layout.root}.",
                hint="Wait for it and try again.",
            ) from error
        yield


def new_state(layout: Layout, options: Options, programs: dict[str, str], *, has_vcenter: bool) -> State:
    """Certificates, ports and configuration of a sandbox that does not run yet."""
    make_certificates(layout.pki, [parts.WEBHOOKS] if "capi" in options.extras else [])
    state = State(
        options=options,
        ports=free_ports(options.extras),
        programs=programs,
        has_vcenter=has_vcenter,
        vcenter_user="administrator@vsphere.local",
        vcenter_password=secrets.token_urlsafe(16),
    )
    parts.write_configuration(layout, state)
    return state
