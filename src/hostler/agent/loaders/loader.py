"""What the agent needs of a boot loader; each dialect is one subclass, bound to the host it was found on.

Before anything is changed, what is about to change is noted beside our files, so that it can be taken back.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from hostler.agent.executor import Executor
from hostler.agent.host import Host
from hostler.agent.loaders import bls
from hostler.agent.refusal import Reason, Refusal

EFIVARS = "/sys/firmware/efi/efivars"
LOADER_VENDOR = "4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
EFI_PARTITIONS = ("/efi", "/boot/efi", "/boot")
NOTE = "hostler.json"
OURS = "assisted-discovery"  # in the name of every entry of ours
TITLE = "Assisted Installer Discovery"
FIRST = "999"  # the version of the published entry


@dataclass(frozen=True)
class Selected:
    """How the entry was chosen, and whether for one boot only."""

    file: str  # name of the entry file, or id of the menu entry
    how: str
    lasts: str = ""  # why later boots start it too; empty: they start the installed system by themselves

    @property
    def falls_back(self) -> bool:
        return not self.lasts


class BootLoader(ABC):
    """One dialect. Nothing is written before `write_entry`; `take_back` ends whatever that began."""

    name: ClassVar[str]  # for people
    program: ClassVar[str]  # how the firmware's LoaderInfo begins where this loader started the host
    looked_for: ClassVar[str]  # what `find` looks for, for people
    needs_installed_entry: ClassVar[bool] = False  # without one, it is not known where it reads its entries
    only_alone: ClassVar[bool] = False  # it is believed only where no other loader is found
    checks_kernel: ClassVar[bool] = False  # it reads the kernel when the entry is written, and reports what is wrong

    def __init__(self, host: Host, boot: str, entries: str, evidence: Sequence[str]) -> None:
        """`boot`: our files go below it. `entries`: the directory of entry files; empty where there is none."""
        self.host, self.boot, self.entries, self.evidence = host, boot, entries, tuple(evidence)

    @property
    def discovery(self) -> str:
        """The directory of our files."""
        return f"{self.boot.rstrip('/')}/discovery"

    @classmethod
    @abstractmethod
    def find(cls, host: Host) -> BootLoader | None:
        """This loader on this host, by evidence on its disk; None where there is none."""

    @abstractmethod
    def why_lasting(self) -> str:
        """Why an entry cannot be for one boot only, as far as that is known beforehand; empty: it can."""

    @abstractmethod
    def write_entry(self, executor: Executor, kernel: str, initrd: str, words: Sequence[str]) -> Selected:
        """Write an entry for these files of the host, and choose it for the next boot."""

    @abstractmethod
    def next_entry(self) -> str:
        """The entry that the next boot starts, read from disk as the loader reads it."""

    def can_start(self, head: bytes) -> bool:
        """Whether a file that begins like this is a kernel that this loader starts."""
        return head.startswith((b"MZ", b"\x7fELF", b"\x1f\x8b")) or head[0x202:] == b"HdrS"

    def read_paths(self, selected: Selected) -> tuple[str, str]:
        """Kernel and initrd, as the entry on disk spells them; empty where it does not name them."""
        file = selected.file if selected.file.endswith(bls.SUFFIX) else selected.file + bls.SUFFIX
        written = bls.parse(file, self.host.text(f"{self.entries}/{file}") or "")
        return written.get("linux"), written.get("initrd")

    def take_back(self, executor: Executor, noted: dict[str, Any]) -> None:
        """The entry and its selection are gone after this: the host starts its installed system."""
        if "entry" in noted:
            for name in self.host.names(self.entries):
                if OURS in name:  # a counter in the name may have moved
                    self.host.remove(f"{self.entries}/{name}")

    # -- paths

    def spell_path(self, path: str) -> str:
        """How the loader spells this path of the host: from the root of the filesystem it is on."""
        mount = self.host.mount_of(path)
        return mount.root.rstrip("/") + path.removeprefix(mount.point.rstrip("/"))

    def locate_path(self, spelled: str) -> str:
        """Where on the host a path in an entry points; the way back, by the mount alone."""
        mount = self.host.mount_of(self.discovery)
        return mount.point.rstrip("/") + spelled.removeprefix(mount.root.rstrip("/"))

    # -- entries of the Boot Loader Specification

    def read_entries(self) -> list[bls.Entry]:
        """Every entry file of the loader's directory."""
        names = [name for name in self.host.names(self.entries) if name.endswith(bls.SUFFIX) and name[0] != "."]
        return [bls.parse(name, self.host.text(f"{self.entries}/{name}") or "") for name in names]

    def installed_entries(self) -> list[bls.Entry]:
        return [entry for entry in self.read_entries() if OURS not in entry.file]

    def check(self) -> None:
        """A loader that reads entries has one of the installed system; otherwise it does not read that directory."""
        if self.needs_installed_entry and not self.installed_entries():
            raise Refusal(
                Reason.UNKNOWN_BOOTLOADER,
                f"{self.name} was found ({', '.join(self.evidence)}), but {self.entries} has no entry of the "
                "installed system, so the agent cannot tell where this loader reads its entries.",
            )

    def write_file(self, file: str, text: str) -> None:
        """Write an entry file, after it was noted."""
        self.note({"entry": f"{self.entries}/{file}"})
        self.host.write(f"{self.entries}/{file}", text.encode())

    # -- what is noted

    def note(self, more: dict[str, Any]) -> None:
        """Write down what is about to change. What an earlier attempt noted stays: it knew the host untouched."""
        kept = self.noted()
        for key, value in more.items():
            if isinstance(value, dict):
                kept[key] = {**value, **kept.get(key, {})}
            else:
                kept.setdefault(key, value)
        self.host.write(f"{self.discovery}/{NOTE}", json.dumps(kept, sort_keys=True).encode())

    def noted(self) -> dict[str, Any]:
        """What was written down; what cannot be of ours is left out."""
        try:
            found = json.loads(self.host.text(f"{self.discovery}/{NOTE}") or "{}")
        except (ValueError, RecursionError):
            return {}
        if not isinstance(found, dict):
            return {}
        grub = found.get("grubenv")
        texts = {key: value for key, value in found.items() if key != "grubenv" and isinstance(value, str)}
        ours = isinstance(grub, dict) and all(isinstance(value, str) for value in grub.values())
        return {**texts, "grubenv": grub} if ours else texts

    def forget_notes(self) -> None:
        self.host.remove(f"{self.discovery}/{NOTE}")


def render_entry(kernel: str, initrd: str, options: str, version: str = FIRST, more: Iterable[str] = ()) -> str:
    """An entry of the Boot Loader Specification. No empty line anywhere: GRUB 2.14 stops reading at one."""
    lines = [f"title {TITLE}", f"version {version}", *more]
    return "\n".join([*lines, f"options {options}", f"linux {kernel}", f"initrd {initrd}"]) + "\n"


def loader_variable(host: Host, name: str) -> str:
    """A variable of the boot loader interface, or nothing where the firmware has none."""
    raw = host.read(f"{EFIVARS}/{name}-{LOADER_VENDOR}")
    return "" if raw is None else raw[4:].decode("utf-16-le", "replace").rstrip("\0")
