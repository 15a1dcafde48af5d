"""zipl of IBM Z: it reads entries when it is run, and writes the first one as its default."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hostler.agent import kernel_arguments
from hostler.agent.executor import Executor
from hostler.agent.host import Host
from hostler.agent.loaders import bls
from hostler.agent.loaders.loader import OURS, BootLoader, Selected, render_entry

CONFIG = "/etc/zipl.conf"
FILE = f"00-{OURS}.conf"


class Zipl(BootLoader):
    name = "zipl"
    program = "zipl"
    looked_for = CONFIG
    needs_installed_entry = True
    only_alone = True
    checks_kernel = True

    @classmethod
    def find(cls, host: Host) -> BootLoader | None:
        return cls(host, "/boot", "/boot/loader/entries", (CONFIG,)) if host.is_file(CONFIG) else None

    def why_lasting(self) -> str:
        return "zipl knows no entry for one boot, only its default"

    @staticmethod
    def render(kernel: str, initrd: str, words: Sequence[str]) -> str:
        return render_entry(kernel, initrd, kernel_arguments.join_verbatim(words))

    def write_entry(self, executor: Executor, kernel: str, initrd: str, words: Sequence[str]) -> Selected:
        self.write_file(FILE, self.render(self.spell_path(kernel), self.spell_path(initrd), words))
        executor.run("zipl")
        return Selected(FILE.removesuffix(bls.SUFFIX), "zipl's default", self.why_lasting())

    def next_entry(self) -> str:
        ordered = bls.order_rhel(self.read_entries())
        return ordered[0].id if ordered else ""

    def take_back(self, executor: Executor, noted: dict[str, Any]) -> None:
        super().take_back(executor, noted)
        if "entry" in noted:
            executor.run("zipl")

    def spell_path(self, path: str) -> str:
        return path.removeprefix("/boot")

    def locate_path(self, spelled: str) -> str:
        return f"/boot{spelled}"
