"""What a host would boot, and whether it may: where kernel, initrd and rootfs come from, and kernel arguments. Pure.

All of it is the InfraEnv's, which a tenant may write at any time. So it is judged before a reclaim begins, on every
look while it is under way, and once more by the hub when the agent on the node asks what to fetch. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from urllib.request import proxy_bypass

from hostler.reclaim.quoting import quote_text

NAMES = ("kernel", "initrd", "rootfs")
HASHED = ("kernel", "initrd")  # the rootfs is fetched by the discovery system itself
SHA256 = re.compile(r"[0-9a-fA-F]{64}")
# Consoles, the network and FIPS. A name that ends in a dot stands for every argument that begins with it. What the
# discovery image needs besides (its rootfs, Ignition) the agent composes itself: no InfraEnv has to name that.
KERNEL_ARGUMENTS = frozenset({
    "console", "ip", "nameserver", "bond", "bridge", "team", "vlan", "ifname", "BOOTIF", "bootdev",
    "rd.route", "rd.neednet", "rd.znet", "rd.bootif", "rd.net.", "fips",
})  # fmt: skip
OPERATIONS = frozenset({"append", "replace", "delete"})
# Without quotes, blanks and what a boot loader's script would read as more than one word.
_ARGUMENT = re.compile(r"[A-Za-z0-9][-A-Za-z0-9_.]{0,62}(=[-A-Za-z0-9_.,:/+@%~^=\[\]]{0,512})?")
# Strict on purpose: no account, no backslash, no blank, nothing outside ASCII, so that no reader sees another host.
_ADDRESS = re.compile(
    r"(?P<scheme>https?)://(?P<host>\[[0-9a-f:.]{2,45}\]|[a-z0-9]([a-z0-9._-]{0,251}[a-z0-9])?)(:(?P<port>[0-9]{1,5}))?"
    r"([/?#][!-~]*)?",
    re.IGNORECASE | re.ASCII,
)


@dataclass(frozen=True, slots=True)
class KernelArgument:
    """One of the InfraEnv's `kernelArguments`."""

    operation: str
    value: str


@dataclass(frozen=True, slots=True)
class Artifacts:
    """What a host would boot, and how it would get there."""

    kernel: str
    initrd: str
    rootfs: str
    served: frozenset[str] = frozenset()  # those that this hub serves itself
    hashed: frozenset[str] = frozenset()  # those that the agent compares with a known sha256
    http_proxy: str = ""  # through which the agent fetches plain HTTP, as the InfraEnv says
    no_proxy: str = ""
    arguments: tuple[KernelArgument, ...] = ()

    def address(self, name: str) -> str:
        return {"kernel": self.kernel, "initrd": self.initrd, "rootfs": self.rootfs}[name]


@dataclass(frozen=True, slots=True)
class BootPolicy:
    """What an operator accepts beside https and hashes; from settings."""

    hub_url: str = ""
    hosts: frozenset[str] = frozenset()  # HOST or HOST:PORT, from which plain HTTP is accepted
    arguments: frozenset[str] = frozenset()  # names accepted beside KERNEL_ARGUMENTS


class Distrust(StrEnum):
    """Why an artifact is not fetched."""

    NOT_AN_ADDRESS = "not-an-address"
    PLAIN_HTTP = "plain-http"
    PROXY = "proxy"  # plain HTTP through the proxy of the InfraEnv


@dataclass(frozen=True, slots=True)
class Address:
    scheme: str
    host: str
    port: int
    netloc: str  # as it is written


@dataclass(frozen=True, slots=True)
class Untrusted:
    name: str  # of the artifact, or "hub": the instructions themselves
    why: Distrust
    host: str = ""


def find_untrusted(artifacts: Artifacts, policy: BootPolicy) -> Untrusted | None:
    """The first artifact that anyone on the network path could replace; None where there is none.

    The proxy is the InfraEnv's: its author reads and changes what passes through it by plain HTTP, whatever the
    operator thinks of the host behind it.
    """
    if _passes_proxy(policy.hub_url, artifacts):
        return Untrusted("hub", Distrust.PROXY)
    for name in NAMES:
        if name in artifacts.served:
            continue
        found = parse_address(artifacts.address(name))
        if found is None:
            return Untrusted(name, Distrust.NOT_AN_ADDRESS)
        if found.scheme == "https" or (name in HASHED and name in artifacts.hashed):
            continue
        if not {found.host, f"{found.host}:{found.port}"} & policy.hosts:
            return Untrusted(name, Distrust.PLAIN_HTTP, found.host)
        if name in HASHED and _passes_proxy(artifacts.address(name), artifacts):
            return Untrusted(name, Distrust.PROXY, found.host)
    return None


def parse_address(url: str) -> Address | None:
    """None for an address that two readers could read in two ways."""
    found = _ADDRESS.fullmatch(url)
    if found is None:
        return None
    scheme = found["scheme"].lower()
    port = int(found["port"]) if found["port"] else (443 if scheme == "https" else 80)
    netloc = found["host"] + (f":{found['port']}" if found["port"] else "")
    return Address(scheme, found["host"].lower(), port, netloc) if 0 < port < 65536 else None


def _passes_proxy(url: str, artifacts: Artifacts) -> bool:
    """As the agent's own library decides it."""
    found = parse_address(url)
    if found is None or found.scheme != "http" or not artifacts.http_proxy:
        return False
    return not proxy_bypass(found.netloc, {"no": artifacts.no_proxy})


def find_refused_argument(arguments: Collection[KernelArgument], accepted: Collection[str]) -> str | None:
    """The first kernel argument that is not on the list, quoted; None where all are.

    Deleting and replacing are judged by the name too: `panic=30` brings a host back whose discovery kernel dies.
    """
    allowed = {*KERNEL_ARGUMENTS, *accepted}
    for argument in arguments:
        words = argument.value.split(" ")
        if argument.operation not in OPERATIONS:
            return quote_text(f"{argument.operation} {argument.value}", 120)
        for word in words:
            if not _ARGUMENT.fullmatch(word) or not _is_listed(word.partition("=")[0], allowed):
                return quote_text(word, 120)
    return None


def _is_listed(name: str, allowed: Collection[str]) -> bool:
    return name in allowed or any(listed.endswith(".") and name.startswith(listed) for listed in allowed)


def is_accepted(artifacts: Artifacts, policy: BootPolicy) -> bool:
    """Whether the hub may tell an agent to fetch this and boot it."""
    refused = find_refused_argument(artifacts.arguments, policy.arguments)
    return refused is None and find_untrusted(artifacts, policy) is None
