"""systemd-boot: an entry that counts its tries, or one that the firmware is told to start once."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from hostler.agent import kernel_arguments
from hostler.agent.executor import Executor
from hostler.agent.host import Host
from hostler.agent.loaders import bls
from hostler.agent.loaders.loader import EFI_PARTITIONS, OURS, BootLoader, Selected, loader_variable, render_entry

FILE = f"{OURS}.conf"
COUNTED = f"{OURS}+1.conf"  # one try, then it sorts last by itself


class SystemdBoot(BootLoader):
    name = "systemd-boot"
    program = "systemd-boot"
    looked_for = "systemd-boot on an EFI partition"

    @classmethod
    def find(cls, host: Host) -> BootLoader | None:
        for esp in EFI_PARTITIONS:
            names = [name for name in host.names(f"{esp}/EFI/systemd") if name.lower().startswith("systemd-boot")]
            if not names:
                continue
            # /boot may be the extended boot partition beside the ESP: entries and kernels belong there then.
            extended = (
                esp != "/boot" and host.is_dir("/boot/loader/entries") and host.mount_of("/boot").point == "/boot"
            )
            boot = "/boot" if extended else esp
            return cls(host, boot, f"{boot}/loader/entries", (f"{esp}/EFI/systemd/{names[0]}",))
        return None

    def why_lasting(self) -> str:
        return ""

    def can_start(self, head: bytes) -> bool:
        """An EFI program, which every kernel with an EFI stub is."""
        return head.startswith(b"MZ")

    @staticmethod
    def render(kernel: str, initrd: str, words: Sequence[str]) -> str:
        options = kernel_arguments.join_verbatim(words)
        return render_entry(kernel, initrd, options, more=(f"sort-key 00-{OURS}",))

    def write_entry(self, executor: Executor, kernel: str, initrd: str, words: Sequence[str]) -> Selected:
        """A counted entry that sorts first needs nothing more; else it is named for one boot in the firmware."""
        text = self.render(self.spell_path(kernel), self.spell_path(initrd), words)
        if self._starts_counted(bls.parse(COUNTED, text)):
            self.write_file(COUNTED, text)
            return Selected(COUNTED, "boot counting")
        self.write_file(FILE, text)
        self.note({"oneshot": FILE})
        executor.run("bootctl", "set-oneshot", FILE)
        return Selected(FILE, "LoaderEntryOneShot")

    def next_entry(self) -> str:
        """By the order it asks: once, firmware, loader.conf, sorting."""
        ordered = bls.order_systemd(self.read_entries())
        patterns = [loader_variable(self.host, name) for name in ("LoaderEntryOneShot", "LoaderEntryDefault")]
        for pattern in [*patterns, self._default()]:
            for entry in ordered:
                if pattern and fnmatchcase(entry.file.lower(), pattern.lower()):
                    return entry.file
        return ordered[0].file if ordered else ""

    def take_back(self, executor: Executor, noted: dict[str, Any]) -> None:
        super().take_back(executor, noted)
        if "oneshot" in noted and loader_variable(self.host, "LoaderEntryOneShot") == noted["oneshot"]:
            executor.run("bootctl", "set-oneshot", "")

    def _starts_counted(self, ours: bls.Entry) -> bool:
        """Whether a counted entry of ours would be started: nobody chose a default, and it sorts before all others."""
        if loader_variable(self.host, "LoaderEntryDefault") or self._default():
            return False
        if any(name.lower().endswith(".efi") for name in self.host.names(f"{self.boot}/EFI/Linux")):
            return False  # unified images are entries too, and their keys are inside them
        return bls.order_systemd([*self.installed_entries(), ours])[0] is ours

    def _default(self) -> str:
        """`default` in loader.conf."""
        return bls.parse("loader.conf", self.host.text(f"{self.boot}/loader/loader.conf") or "").get("default")
