"""Choosing our entry for the next boot only, and which entry a loader would start: the same rules for both.

Before anything is changed, what is about to change is noted beside our files, so that it can be taken back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from hostler.agent import bls, entry, grubenv
from hostler.agent.executor import Executor
from hostler.agent.host import Host
from hostler.agent.loaders import Kind, Loader, loader_variable, read_entries
from hostler.agent.problem import Reason, Refusal

NOTE = "hostler.json"


@dataclass(frozen=True)
class Selected:
    """How the entry was chosen, and whether a failed boot of it comes back to the installed system by itself."""

    file: str  # name of the entry file, or id of the menu entry
    how: str
    falls_back: bool


@dataclass(frozen=True)
class GrubState:
    """What GRUB will decide by: its script's habits, its environment and its entries in order."""

    next_known: bool
    saved_known: bool
    variables: dict[str, str]
    ids: tuple[str, ...]
    ids_first: bool  # RHEL's GRUB compares ids before it looks for a number

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


def grub_state(host: Host, loader: Loader) -> GrubState:
    """Read from disk as GRUB would read it. The owner's own menu entries of a grub.cfg come before ours."""
    raw = host.read(loader.grubenv)
    variables = {} if raw is None else grubenv.parse(raw)
    if loader.kind is Kind.GRUB_PLAIN:
        custom = host.text(f"{loader.grub_dir}/custom.cfg") or ""
        ours = entry.parse_menuentry(custom)[2]
        ids = ("", *((ours,) if ours else ()))  # the first is whatever the installed system's is called
    else:
        found = read_entries(host, loader.entries)
        ordered = bls.order_rhel(found) if loader.kind is Kind.GRUB_RHEL else bls.order_grub(found)
        ids = tuple(one.id for one in ordered)
    config = loader.grub_config
    rhel = loader.kind is Kind.GRUB_RHEL
    return GrubState("next_entry" in config, "saved_entry" in config, variables, ids, rhel)


def select_grub(host: Host, loader: Loader, ours: str) -> Selected:
    """Name our entry in grubenv for one boot; where it would be the default ever after, name the installed one too."""
    state = grub_state(host, loader)
    if not state.next_known and not state.saved_known:
        if state.next() == ours:
            return Selected(ours, "it is the first entry", False)
        raise Refusal(
            Reason.ENTRY_NOT_VERIFIABLE,
            f"{loader.grub_dir}/grub.cfg asks its environment neither for next_entry nor for saved_entry, so another "
            "entry cannot be chosen.",
        )
    changes = {"next_entry": ours} if state.next_known else {"saved_entry": ours}
    falls_back = state.next_known and _grub_can_write(host, loader)
    if state.next_known and state.default() == ours:
        installed = _running_entry(host, loader) or next((one for one in state.ids if one != ours), "")
        if state.saved_known and installed:
            as_id = state.ids_first or not installed[0].isdigit()
            changes["saved_entry"] = installed if as_id else str(state.ids.index(installed))
        else:
            falls_back = False
    note(host, loader, {"grubenv": {name: state.variables.get(name, "") for name in changes}})
    size = len(host.read(loader.grubenv) or b"") or grubenv.SIZE
    host.write(loader.grubenv, grubenv.render({**state.variables, **changes}, size))
    return Selected(ours, "next_entry" if state.next_known else "saved_entry", falls_back)


def select_systemd(host: Host, loader: Loader, executor: Executor, file: str) -> Selected:
    """A counted entry that sorts first needs nothing more; else it is named for one boot in the firmware."""
    if bls.tries(file) is not None:
        return Selected(file, "boot counting", True)
    note(host, loader, {"oneshot": file})
    executor.run("bootctl", "set-oneshot", file)
    return Selected(file, "LoaderEntryOneShot", True)


def systemd_counts(host: Host, loader: Loader, ours: bls.Entry) -> bool:
    """Whether a counted entry of ours would be started: nobody chose a default, and it sorts before all others."""
    if loader_variable(host, "LoaderEntryDefault") or loader_default(host, loader):
        return False
    if any(name.lower().endswith(".efi") for name in host.names(f"{loader.boot}/EFI/Linux")):
        return False  # unified images are entries too, and their keys are inside them
    others = [one for one in read_entries(host, loader.entries) if "assisted-discovery" not in one.file]
    return bls.order_systemd([*others, ours])[0] is ours


def chosen_by_systemd(host: Host, loader: Loader) -> str:
    """The file of the entry systemd-boot would start next, by the order it asks: once, firmware, loader.conf, order."""
    ordered = bls.order_systemd(read_entries(host, loader.entries))
    patterns = [loader_variable(host, "LoaderEntryOneShot"), loader_variable(host, "LoaderEntryDefault")]
    for pattern in [*patterns, loader_default(host, loader)]:
        for one in ordered:
            if pattern and fnmatchcase(one.file.lower(), pattern.lower()):
                return one.file
    return ordered[0].file if ordered else ""


def loader_default(host: Host, loader: Loader) -> str:
    """`default` in loader.conf."""
    return bls.parse("loader.conf", host.text(f"{loader.boot}/loader/loader.conf") or "").get("default")


def note(host: Host, loader: Loader, more: dict[str, Any]) -> None:
    """Write down what is about to change. What an earlier attempt noted stays: it knew the host untouched."""
    kept = noted(host, loader)
    for key, value in more.items():
        if isinstance(value, dict):
            kept[key] = {**value, **kept.get(key, {})}
        else:
            kept.setdefault(key, value)
    host.write(f"{loader.discovery}/{NOTE}", json.dumps(kept, sort_keys=True).encode())


def noted(host: Host, loader: Loader) -> dict[str, Any]:
    """What was written down; what cannot be of ours is left out."""
    try:
        found = json.loads(host.text(f"{loader.discovery}/{NOTE}") or "{}")
    except (ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    grub = found.get("grubenv")
    words = {key: value for key, value in found.items() if key != "grubenv" and isinstance(value, str)}
    ours = isinstance(grub, dict) and all(isinstance(value, str) for value in grub.values())
    return {**words, "grubenv": grub} if ours else words


def restore_grub(host: Host, loader: Loader, before: dict[str, str]) -> None:
    """Put back what grubenv said before, where it still says what we wrote."""
    raw = host.read(loader.grubenv)
    if raw is None:
        return
    variables = grubenv.parse(raw)
    for name, value in before.items():
        if value:
            variables[name] = value
        else:
            variables.pop(name, None)
    host.write(loader.grubenv, grubenv.render(variables, len(raw)))


def _running_entry(host: Host, loader: Loader) -> str:
    """The entry of the running kernel, by its path in the command line."""
    images: Sequence[str] = [word for word in host.command_line() if word.startswith("BOOT_IMAGE=")]
    for word in images:
        path = word.removeprefix("BOOT_IMAGE=").rpartition(")")[2]
        for one in read_entries(host, loader.entries):
            if path and one.get("linux").removeprefix("/boot") == path.removeprefix("/boot"):
                return one.id
    return ""


def _grub_can_write(host: Host, loader: Loader) -> bool:
    """GRUB writes its environment in place only on plain disks and plain filesystems; else it cannot clear it."""
    mount = host.mount_of(loader.grubenv)
    device = mount.source.rpartition("/")[2]
    return mount.kind not in ("btrfs", "zfs") and not mount.source.startswith("/dev/mapper/") and device[:2] != "md"
