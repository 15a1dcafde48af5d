"""Which boot loader starts this host, by evidence on its disk and in its firmware; never by a guess.

Two loaders with nothing that tells which of them is used, or none at all, is a refusal with the evidence in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from hostler.agent import bls
from hostler.agent.grubcfg import GrubConfig, read_config
from hostler.agent.host import Host
from hostler.agent.problem import Reason, Refusal

EFIVARS = "/sys/firmware/efi/efivars"
LOADER_VENDOR = "4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
EFI_PARTITIONS = ("/efi", "/boot/efi", "/boot")


class Kind(Enum):
    SYSTEMD_BOOT = "systemd-boot"
    GRUB_RHEL = "GRUB with RHEL's blscfg"
    GRUB_BLS = "GRUB 2.14 with blscfg"
    GRUB_PLAIN = "GRUB without blscfg"
    ZIPL = "zipl"


@dataclass(frozen=True)
class Loader:
    """The loader, where its entries and our files go, and what it was recognised by."""

    kind: Kind
    boot: str  # our files go below this directory
    entries: str  # directory of entries; empty where the loader has none
    grub_dir: str
    grub_config: str  # the text of grub.cfg
    evidence: tuple[str, ...]

    @property
    def grubenv(self) -> str:
        return f"{self.grub_dir}/grubenv"

    @property
    def config(self) -> GrubConfig:
        return read_config(self.grub_config)

    @property
    def hook(self) -> str:
        """The file of the owner's that grub.cfg reads, and in which a block of ours may be; empty: none."""
        return f"{self.grub_dir}/{self.config.hook}" if self.config.hook else ""

    @property
    def discovery(self) -> str:
        return f"{self.boot.rstrip('/')}/discovery"


def detect(host: Host) -> Loader:
    """The loader of this host, or a Refusal saying what was found instead."""
    named = loader_variable(host, "LoaderInfo")
    systemd, systemd_seen = _systemd_boot(host)
    grub = _grub(host)
    if host.is_file("/etc/zipl.conf") and grub is None and systemd is None:
        return _with_entries(host, Loader(Kind.ZIPL, "/boot", "/boot/loader/entries", "", "", ("/etc/zipl.conf",)))
    if named.lower().startswith("systemd-boot") and systemd is not None:
        return systemd
    if named.lower().startswith("grub") and grub is not None:
        return _with_entries(host, grub)
    if systemd is not None and grub is not None:
        raise Refusal(
            Reason.UNKNOWN_BOOTLOADER,
            f"Both systemd-boot ({systemd_seen}) and GRUB ({grub.grub_dir}/grub.cfg) are on this host, and its "
            "firmware does not say which of them started it.",
        )
    if systemd is not None:
        return systemd
    if grub is not None:
        return _with_entries(host, grub)
    raise Refusal(
        Reason.UNKNOWN_BOOTLOADER,
        "No boot loader was recognised: no systemd-boot on an EFI partition, no grub.cfg below /boot, no /etc/zipl.conf"
        + (f"; the firmware names {named}" if named else "")
        + ".",
    )


def loader_variable(host: Host, name: str) -> str:
    """A variable of the boot loader interface, or nothing where the firmware has none."""
    raw = host.read(f"{EFIVARS}/{name}-{LOADER_VENDOR}")
    return "" if raw is None else raw[4:].decode("utf-16-le", "replace").rstrip("\0")


def read_entries(host: Host, directory: str) -> list[bls.Entry]:
    """Every entry file of a directory."""
    names = [name for name in host.names(directory) if name.endswith(bls.SUFFIX) and not name.startswith(".")]
    return [bls.parse(name, host.text(f"{directory}/{name}") or "") for name in names]


def path_for_loader(host: Host, loader: Loader, path: str) -> str:
    """How the loader spells this path of the host: from the root of the filesystem it is on."""
    mount = host.mount_of(path)
    inside = path.removeprefix(mount.point.rstrip("/"))
    spelled = mount.root.rstrip("/") + inside
    if loader.kind is Kind.ZIPL:
        return path.removeprefix("/boot")
    if loader.kind is Kind.GRUB_RHEL and mount.point == "/boot" and host.is_link_to_itself("/boot/boot"):
        return f"/boot{spelled}"  # as the published example has it; RHCOS's link makes it work
    return spelled


def path_from_loader(host: Host, loader: Loader, spelled: str) -> str:
    """Where on the host a path in an entry points; the way back, by the mount alone."""
    if loader.kind is Kind.ZIPL:
        return f"/boot{spelled}"
    mount = host.mount_of(loader.discovery)
    return mount.point.rstrip("/") + spelled.removeprefix(mount.root.rstrip("/"))


def _systemd_boot(host: Host) -> tuple[Loader | None, str]:
    for esp in EFI_PARTITIONS:
        names = [name for name in host.names(f"{esp}/EFI/systemd") if name.lower().startswith("systemd-boot")]
        if not names:
            continue
        seen = f"{esp}/EFI/systemd/{names[0]}"
        # /boot may be the extended boot partition beside the ESP: entries and kernels belong there then.
        extended = esp != "/boot" and host.is_dir("/boot/loader/entries") and host.mount_of("/boot").point == "/boot"
        boot = "/boot" if extended else esp
        return Loader(Kind.SYSTEMD_BOOT, boot, f"{boot}/loader/entries", "", "", (seen,)), seen
    return None, ""


def _grub(host: Host) -> Loader | None:
    for directory in ("/boot/grub2", "/boot/grub"):
        config = host.text(f"{directory}/grub.cfg")
        if config is None:
            continue
        evidence = [f"{directory}/grub.cfg"]
        if not any(line.strip().startswith("blscfg") for line in config.splitlines()):
            return Loader(Kind.GRUB_PLAIN, "/boot", "", directory, config, tuple(evidence))
        module = _upstream_module(host, directory)
        if module:
            evidence.append(module)
        kind = Kind.GRUB_BLS if module else Kind.GRUB_RHEL
        return Loader(kind, "/boot", "/boot/loader/entries", directory, config, tuple(evidence))
    return None


def _upstream_module(host: Host, directory: str) -> str:
    """GRUB 2.14 has its blscfg in a module named blsuki, beside it or inside its EFI program."""
    for platform in host.names(directory):
        if host.is_file(f"{directory}/{platform}/blsuki.mod"):
            return f"{directory}/{platform}/blsuki.mod"
    for esp in EFI_PARTITIONS:
        for vendor in host.names(f"{esp}/EFI"):
            for name in host.names(f"{esp}/EFI/{vendor}"):
                program = f"{esp}/EFI/{vendor}/{name}"
                is_grub = name.lower().startswith("grub") and name.lower().endswith(".efi")
                if is_grub and _contains(host, program, b"blsuki"):
                    return program
    return ""


def _contains(host: Host, path: str, word: bytes) -> bool:
    """Whether a file has these bytes, read piece by piece."""
    kept = b""
    with open(host.at(path), "rb") as file:
        while chunk := file.read(64 * 1024):
            if word in kept + chunk:
                return True
            kept = chunk[-len(word) :]
    return False


def _with_entries(host: Host, loader: Loader) -> Loader:
    """A loader that reads entries has one of the installed system; otherwise it does not read that directory."""
    others = [entry for entry in read_entries(host, loader.entries) if "assisted-discovery" not in entry.file]
    if loader.entries and not others:
        raise Refusal(
            Reason.UNKNOWN_BOOTLOADER,
            f"{loader.kind.value} was found ({', '.join(loader.evidence)}), but {loader.entries} has no entry of the "
            "installed system, so it is not known where this loader reads its entries.",
        )
    return loader
