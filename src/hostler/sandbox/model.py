"""What a sandbox is on disk: its folder, its settings, its ports and the processes that belong to it."""

from __future__ import annotations

import random
import socket
from collections.abc import Collection
from pathlib import Path

import msgspec

from hostler.errors import Complaint, Exit
from hostler.sandbox.process import Process

# Whatever a sandbox makes in its folder; `down` removes these and nothing else.
MADE = (
    "sandbox.json",
    "kubeconfig",
    "vcenter.json",
    "vcenter-ca.pem",
    "audit.log",
    "conf",
    "pki",
    "etcd",
    "logs",
    "kubectl-cache",
    "clusterctl",
)
LOCK = ".lock"  # goes last: whoever holds it may still be clearing up

PORTS = (
    "etcd",
    "etcd-peer",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kwok",
    "vcenter",
    "vcenter-control",
)


class Provider(msgspec.Struct, frozen=True):
    """One of Cluster API's managers: a part of a sandbox `--with capi`."""

    part: str
    program: str  # among those built from sandbox/capi
    folder: str  # in Cluster API's module
    prefix: str  # of its objects
    name: str  # as clusterctl knows it
    type: str

    @property
    def namespace(self) -> str:
        return f"{self.prefix}system"

    @property
    def label(self) -> str:
        """The value of label cluster.x-k8s.io/provider."""
        return self.prefix.removeprefix("capi-kubeadm-") + self.name if self.name == "kubeadm" else self.name

    @property
    def user(self) -> str:
        """Its service account, as the API server sees it."""
        return f"system:serviceaccount:{self.namespace}:{self.prefix}manager"

    @property
    def ports(self) -> tuple[str, str, str]:
        """Webhooks, health, diagnostics."""
        return self.part, f"{self.part}-health", f"{self.part}-diagnostics"


PROVIDERS = (
    Provider("capi-core", "core", "core", "capi-", "cluster-api", "CoreProvider"),
    Provider(
        "capi-bootstrap", "bootstrap", "bootstrap/kubeadm", "capi-kubeadm-bootstrap-", "kubeadm", "BootstrapProvider"
    ),
    Provider(
        "capi-control-plane",
        "control-plane",
        "controlplane/kubeadm",
        "capi-kubeadm-control-plane-",
        "kubeadm",
        "ControlPlaneProvider",
    ),
)
EXTRAS = ("capi",)  # what `--with` knows


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How a sandbox is to be. Times are in seconds, with the defaults of a real cluster."""

    fleet: str | None = None
    crds: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()  # `--with`
    audit: bool = False
    vcenter: bool = True
    kwok: bool = True
    node_monitor_period_seconds: int = 5
    node_monitor_grace_seconds: int = 50
    node_lease_duration_seconds: int = 40


class Layout(msgspec.Struct, frozen=True):
    """Where things are inside one sandbox's folder."""

    root: Path

    @property
    def state(self) -> Path:
        return self.root / "sandbox.json"

    @property
    def kubeconfig(self) -> Path:
        return self.root / "kubeconfig"

    @property
    def vcenter(self) -> Path:
        return self.root / "vcenter.json"

    @property
    def audit_log(self) -> Path:
        return self.root / "audit.log"

    @property
    def pki(self) -> Path:
        return self.root / "pki"

    @property
    def conf(self) -> Path:
        return self.root / "conf"

    @property
    def clusterctl(self) -> Path:
        """What clusterctl takes for the user's folder of settings."""
        return self.root / "clusterctl"

    def log(self, part: str) -> Path:
        return self.root / "logs" / f"{part}.log"


class State(msgspec.Struct, kw_only=True):
    """The content of sandbox.json."""

    version: int = 1
    complete: bool = False  # False: an `up` did not come to its end, and the data is not to be trusted
    options: Options
    ports: dict[str, int]
    programs: dict[str, str]
    vcenter_user: str = ""
    vcenter_password: str = ""
    has_vcenter: bool = False
    parts: dict[str, Process] = msgspec.field(default_factory=dict)

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self.ports['kube-apiserver']}"

    @property
    def control(self) -> str:
        return f"http://127.0.0.1:{self.ports['vcenter-control']}"


def read_state(layout: Layout) -> State | None:
    """What the folder says, or None if there is no sandbox in it."""
    try:
        return msgspec.json.decode(layout.state.read_bytes(), type=State)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise Complaint(
            f"{layout.state} is not a sandbox of this version of Hostler: {error}.",
            hint="End it with the version that started it, or remove the folder once nothing runs in it.",
            code=Exit.SETTING,
        ) from error
    except OSError as error:
        raise Complaint(f"{layout.state} cannot be read: {error.strerror}.", code=Exit.SETTING) from error


def free_ports(extras: Collection[str] = ()) -> dict[str, int]:
    """One free loopback port per name; all are held until the last is found, so that none comes twice.

    Below the range from which the kernel gives ports to outgoing connections: one of those could take the port of a
    part that is just being restarted.
    """
    names = [*PORTS, *(port for one in PROVIDERS for port in one.ports if "capi" in extras)]
    dice, held = random.SystemRandom(), [socket.socket() for _ in names]
    try:
        return {name: _bind_below(one, dice) for name, one in zip(names, held, strict=True)}
    finally:
        for one in held:
            one.close()


def _bind_below(one: socket.socket, dice: random.Random) -> int:
    try:
        first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except OSError:
        first = 32768  # the kernel's default
    for _ in range(200):
        port = dice.randrange(min(12000, first - 1), first)
        try:
            one.bind(("127.0.0.1", port))
        except OSError:
            continue
        return port
    raise Complaint("No free port was found on 127.0.0.1.", hint="End what holds so many.", code=Exit.FAILED)
