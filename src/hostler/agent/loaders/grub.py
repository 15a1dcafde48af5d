"""What every GRUB has in common: grubenv names an entry for one boot, and grub.cfg or a block of ours starts it."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hostler.agent.executor import Executor
from hostler.agent.host import Host
from hostler.agent.loaders import grub_config, grub_environment
from hostler.agent.loaders.loader import BootLoader, Selected
from hostler.agent.refusal import Reason, Refusal

DIRECTORIES = ("/boot/grub2", "/boot/grub")


@dataclass(frozen=True)
class GrubState:
    """What GRUB will decide by: its script's habits, its environment and its entries in order."""

    next_known: bool
    saved_known: bool
    variables: dict[str, str]
    ids: tuple[str, ...]
    ids_first: bool  # RHEL's GRUB compares ids before it looks for a number
    rival: str = ""  # first by the other rule, where it is not certain by which one GRUB orders its entries

    def only_first(self, ours: str) -> bool:
        """Whether ours is the first entry by every rule."""
        return self.ids[:1] == (ours,) and self.rival in ("", ours)

    def may_default(self, ours: str) -> bool:
        """Whether ours may be started when nothing is selected for once."""
        named = self.saved_known and self.variables.get("saved_entry")
        return self.default() == ours or (not named and self.rival == ours)

    def default(self) -> str:
        """The entry started when nothing is selected for once."""
        if self.saved_known and self.variables.get("saved_entry"):
            return self._named(self.variables["saved_entry"])
        return self.ids[0] if self.ids else ""

    def next(self) -> str:
        """The entry the next boot starts."""
        if self.next_known and self.variables.get("next_entry"):
            return self._named(self.variables["next_entry"])
        return self.default()

    def _named(self, value: str) -> str:
        """GRUB takes leading digits as an index, even of `00-name`, before it compares ids; RHEL's after."""
        if self.ids_first and value in self.ids:
            return value
        if digits := re.match(r"[0-9]{1,1000}", value):  # more are none that Python reads
            index = int(digits[0])
            return self.ids[index] if index < len(self.ids) else (self.ids[0] if self.ids else "")
        return value if value in self.ids else (self.ids[0] if self.ids else "")


def find_config(host: Host) -> tuple[str, str] | None:
    """The directory of GRUB on this host, and the text of the grub.cfg in it."""
    for directory in DIRECTORIES:
        text = host.text(f"{directory}/grub.cfg")
        if text is not None:
            return directory, text
    return None


class Grub(BootLoader):
    program = "GRUB"
    looked_for = "grub.cfg below /boot"

    def __init__(self, host: Host, entries: str, directory: str, config: str, evidence: Sequence[str]) -> None:
        """`directory`: where its grub.cfg is, of which `config` is the text."""
        super().__init__(host, "/boot", entries, evidence)
        self.directory, self._config_text = directory, config

    @abstractmethod
    def read_state(self) -> GrubState:
        """Read from disk as GRUB would read it."""

    @cached_property
    def config(self) -> grub_config.GrubConfig:
        return grub_config.read_config(self._config_text)

    @property
    def environment(self) -> str:
        """The file with its variables."""
        return f"{self.directory}/grubenv"

    @property
    def hook(self) -> str:
        """The owner's file that grub.cfg reads, and in which a block of ours may be; empty: none."""
        return f"{self.directory}/{self.config.hook}" if self.config.hook else ""

    def why_lasting(self) -> str:
        config = self.config
        if not config.takes_next and not config.hook:
            early = config.read_too_early
            reads = f"sets its default after it has read {early}" if early else "reads no custom.cfg"
            return f"{self.directory}/grub.cfg takes no next_entry from grubenv and {reads}"
        return self._why_unwritable()

    def next_entry(self) -> str:
        return self.read_state().next()

    def needs_block(self) -> bool:
        """Whether a block of ours has to take the entry for one boot, because grub.cfg does not; and can."""
        return not self.config.takes_next and bool(self.hook) and not self._why_unwritable()

    def read_variables(self) -> tuple[dict[str, str], str]:
        """The variables of its environment, and the text of the owner's file with our block."""
        raw = self.host.read(self.environment)
        block = self.host.text(self.hook) if self.hook else ""
        return {} if raw is None else grub_environment.parse(raw), block or ""

    def make_state(self, ids: tuple[str, ...], *, ids_first: bool = False, rival: str = "") -> GrubState:
        """The state with these entries in their order."""
        variables, block = self.read_variables()
        takes_next = self.config.takes_next or grub_config.takes_next(block)
        return GrubState(takes_next, self.config.takes_saved, variables, ids, ids_first, rival)

    def installed_id(self, state: GrubState, ours: str) -> str:
        """The entry of the installed system; empty where none is known by an id."""
        return next((entry for entry in state.ids if entry != ours), "")

    def select(self, ours: str) -> Selected:
        """Name our entry in grubenv for one boot; where it would be the default ever after, name the installed one."""
        state, lasts = self.read_state(), self.why_lasting()
        if not state.next_known and not state.saved_known:
            if state.only_first(ours):
                return Selected(ours, "it is the first entry", lasts)
            raise Refusal(
                Reason.ENTRY_NOT_VERIFIABLE,
                f"{self.directory}/grub.cfg asks its environment neither for next_entry nor for saved_entry, so "
                "another entry cannot be chosen.",
            )
        changes = {"next_entry": ours} if state.next_known else {"saved_entry": ours}
        if state.next_known and state.may_default(ours):
            installed = self.installed_id(state, ours)
            if state.saved_known and installed:
                as_id = state.ids_first or not installed[0].isdigit()
                changes["saved_entry"] = installed if as_id else str(state.ids.index(installed))
            else:
                lasts = lasts or f"{ours} is the first entry, and {self.directory}/grub.cfg takes no saved_entry"
        raw = self.host.read(self.environment)
        self.note({"grubenv": {name: state.variables.get(name, "") for name in changes}})
        if raw is None:
            self.note({"made": self.environment})
        block = grub_environment.render({**state.variables, **changes}, len(raw or b"") or grub_environment.SIZE)
        self.host.write(self.environment, block)
        how = "saved_entry"
        if state.next_known:
            how = "next_entry" if self.config.takes_next else f"next_entry, by a block in {self.hook}"
        return Selected(ours, how, lasts)

    def write_block(self, *parts: str) -> None:
        """Our block, in the owner's file that grub.cfg reads."""
        self.note({"custom": self.hook})
        self._write_owned(self.hook, grub_config.with_block(self._read_owned(self.hook), *parts))

    def take_back(self, executor: Executor, noted: dict[str, Any]) -> None:
        if "grubenv" in noted:
            self._restore_environment(noted["grubenv"], made="made" in noted)
        if "custom" in noted:
            kept = grub_config.without_block(self._read_owned(noted["custom"]))
            if kept:
                self._write_owned(noted["custom"], kept)
            else:
                self.host.remove(noted["custom"])
        super().take_back(executor, noted)

    def _restore_environment(self, before: dict[str, str], *, made: bool) -> None:
        """Put back what grubenv had before; one that we `made` goes, unless another party wrote into it since."""
        raw = self.host.read(self.environment)
        if raw is None:
            return
        variables = grub_environment.parse(raw)
        for name, value in before.items():
            if value:
                variables[name] = value
            else:
                variables.pop(name, None)
        if made and not variables:
            self.host.remove(self.environment)
        else:
            self.host.write(self.environment, grub_environment.render(variables, len(raw)))

    def _read_owned(self, path: str) -> str:
        """The owner's file with every byte of it, in whatever encoding it is."""
        return (self.host.read(path) or b"").decode("utf-8", "surrogateescape")

    def _write_owned(self, path: str, text: str) -> None:
        self.host.write(path, text.encode("utf-8", "surrogateescape"))

    def _why_unwritable(self) -> str:
        """GRUB writes its environment in place, on plain disks and plain filesystems only. Empty: it can."""
        mount = self.host.mount_of(self.environment)
        device = mount.source.rpartition("/")[2]
        if mount.kind in ("btrfs", "zfs") or mount.source.startswith("/dev/mapper/") or device[:2] == "md":
            place = f"{self.environment} ({mount.kind} on {mount.source})"
            return f"GRUB cannot write {place}, so it cannot forget the entry"
        return ""
