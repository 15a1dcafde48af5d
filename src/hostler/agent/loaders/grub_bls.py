"""GRUB that reads entries of the Boot Loader Specification: RHEL's blscfg, and the one of GRUB 2.14.

They differ in how they order the entries, how they read an id, and in a bug of the newer one.
"""

from __future__ import annotations

from collections.abc import Sequence

from hostler.agent import kernel_arguments
from hostler.agent.executor import Executor
from hostler.agent.host import Host
from hostler.agent.loaders import bls, grub_config
from hostler.agent.loaders.grub import Grub, GrubState, find_config
from hostler.agent.loaders.loader import EFI_PARTITIONS, FIRST, OURS, BootLoader, Selected, render_entry

ENTRIES = "/boot/loader/entries"
# Sorts after every installed entry: by RHEL's comparison and by GNU's a tilde is before everything, and both descend.
LAST_FILE, LAST = f"~{OURS}.conf", "0"


class GrubBls(Grub):
    needs_installed_entry = True
    file: str  # of the entry, where grub.cfg takes an entry for one boot by itself

    @classmethod
    def find(cls, host: Host) -> BootLoader | None:
        found = find_config(host)
        if found is None or not grub_config.reads_entries(found[1]):
            return None
        directory, config = found
        module = find_upstream_module(host, directory)
        dialect = GrubUpstream if module else GrubRhel
        return dialect(host, ENTRIES, directory, config, [f"{directory}/grub.cfg", *filter(None, [module])])

    @staticmethod
    def render(kernel: str, initrd: str, words: Sequence[str], version: str = FIRST) -> str:
        return render_entry(kernel, initrd, kernel_arguments.quote_for_grub(words, expands=True), version)

    def write_entry(self, executor: Executor, kernel: str, initrd: str, words: Sequence[str]) -> Selected:
        # With a block the first entry stays the installed system's: it is what GRUB starts when nothing is named.
        taking = self.needs_block()
        file, version = (LAST_FILE, LAST) if taking else (self.file, FIRST)
        self.write_file(file, self.render(self.spell_path(kernel), self.spell_path(initrd), words, version))
        if taking:
            self.write_block(grub_config.TAKE_NEXT)
        return self.select(file.removesuffix(bls.SUFFIX))

    def installed_id(self, state: GrubState, ours: str) -> str:
        return self._running_entry() or super().installed_id(state, ours)

    def _running_entry(self) -> str:
        """The entry of the running kernel, by its path in the command line."""
        images = [word for word in self.host.command_line() if word.startswith("BOOT_IMAGE=")]
        for word in images:
            path = word.removeprefix("BOOT_IMAGE=").rpartition(")")[2]
            for entry in self.read_entries():
                if path and entry.get("linux").removeprefix("/boot") == path.removeprefix("/boot"):
                    return entry.id
        return ""


class GrubRhel(GrubBls):
    name = "GRUB with RHEL's blscfg"
    file = f"00-{OURS}.conf"  # as published: with version 999 it is the first entry

    def read_state(self) -> GrubState:
        found = self.read_entries()
        rival = bls.order_rhel_names(found)[0].id if found else ""
        return self.make_state(tuple(entry.id for entry in bls.order_rhel(found)), ids_first=True, rival=rival)

    def spell_path(self, path: str) -> str:
        spelled = super().spell_path(path)
        if self.host.mount_of(path).point == "/boot" and self.host.is_link_to_itself("/boot/boot"):
            return f"/boot{spelled}"  # as the published example has it; RHCOS's link makes it work
        return spelled


class GrubUpstream(GrubBls):
    name = "GRUB 2.14 with blscfg"
    file = f"zz-{OURS}.conf"  # by file name only, descending; and an id with a digit is an index

    @staticmethod
    def render(kernel: str, initrd: str, words: Sequence[str], version: str = FIRST) -> str:
        options = kernel_arguments.quote_for_grub(words, expands=True)
        return render_entry(kernel, initrd, pad_options(kernel, options), version)

    def read_state(self) -> GrubState:
        return self.make_state(tuple(entry.id for entry in bls.order_grub(self.read_entries())))


def find_upstream_module(host: Host, directory: str) -> str:
    """GRUB 2.14 has its blscfg in a module named blsuki, beside it or inside its EFI program; empty where not."""
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


def pad_options(kernel: str, options: str) -> str:
    """GRUB 2.14 allots one byte too few for its linux command; where that byte is another's, its memory is spoilt.

    It allots 8 bytes and both texts, rounded up to 16 or 32; so the sum must not be a multiple of 16. A second blank
    between two words changes nothing for the kernel.
    """
    if (8 + len(kernel.encode()) + len(options.encode())) % 16:
        return options
    return options.replace(" ", "  ", 1)


def _contains(host: Host, path: str, text: bytes) -> bool:
    """Whether a file has these bytes, read piece by piece."""
    kept = b""
    with open(host.at(path), "rb") as file:
        while chunk := file.read(64 * 1024):
            if text in kept + chunk:
                return True
            kept = chunk[-len(text) :]
    return False
