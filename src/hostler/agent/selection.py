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
    """How the entry was chosen, and whether for one boot only."""

    file: str  # name of the entry file, or id of the menu entry
    how: str
    lasts: str = ""  # why later boots start it too; empty: they start the installed system by themselves

    @property
    def falls_back(self) -> bool:
        return not self.lasts


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


def grub_state(host: Host, loader: Loader) -> GrubState:
    """Read from disk as GRUB would read it."""
    raw, config = host.read(loader.grubenv), loader.config
    variables = {} if raw is None else grubenv.parse(raw)
    block = (host.text(loader.hook) if loader.hook else "") or ""
    rival = ""
    if loader.kind is Kind.GRUB_PLAIN:
        ours = entry.parse_menuentry(block)[2]
        installed = ("",)  # whatever its entry is called
        mine = (ours,) if ours else ()
        ids = (*installed, *mine) if config.hook_is_last else (*mine, *installed)
    else:
        found = read_entries(host, loader.entries)
        ordered = bls.order_rhel(found) if loader.kind is Kind.GRUB_RHEL else bls.order_grub(found)
        ids = tuple(one.id for one in ordered)
        if found and loader.kind is Kind.GRUB_RHEL:
            rival = bls.order_rhel_names(found)[0].id
    takes_next = config.takes_next or entry.takes_next(block)
    return GrubState(takes_next, config.takes_saved, variables, ids, loader.kind is Kind.GRUB_RHEL, rival)


def needs_block(host: Host, loader: Loader) -> bool:
    """Whether a block of ours has to take the entry for one boot, because grub.cfg does not; and can."""
    config = loader.config
    return not config.takes_next and bool(config.hook) and not _cannot_write(host, loader)


def why_lasting(host: Host, loader: Loader) -> str:
    """Why an entry cannot be for one boot only with this loader, as far as that is known beforehand; empty: it can."""
    if loader.kind is Kind.SYSTEMD_BOOT:
        return ""
    if loader.kind is Kind.ZIPL:
        return "zipl knows no entry for one boot, only its default"
    config = loader.config
    if not config.takes_next and not config.hook:
        early = config.read_too_early
        reads = f"sets its default after it has read {early}" if early else "reads no custom.cfg"
        return f"{loader.grub_dir}/grub.cfg takes no next_entry from grubenv and {reads}"
    return _cannot_write(host, loader)


def select_grub(host: Host, loader: Loader, ours: str) -> Selected:
    """Name our entry in grubenv for one boot; where it would be the default ever after, name the installed one too."""
    state, lasts = grub_state(host, loader), why_lasting(host, loader)
    if not state.next_known and not state.saved_known:
        if state.only_first(ours):
            return Selected(ours, "it is the first entry", lasts)
        raise Refusal(
            Reason.ENTRY_NOT_VERIFIABLE,
            f"{loader.grub_dir}/grub.cfg asks its environment neither for next_entry nor for saved_entry, so another "
            "entry cannot be chosen.",
        )
    changes = {"next_entry": ours} if state.next_known else {"saved_entry": ours}
    if state.next_known and state.may_default(ours):
        installed = _running_entry(host, loader) or next((one for one in state.ids if one != ours), "")
        if state.saved_known and installed:
            as_id = state.ids_first or not installed[0].isdigit()
            changes["saved_entry"] = installed if as_id else str(state.ids.index(installed))
        else:
            lasts = lasts or f"{ours} is the first entry, and {loader.grub_dir}/grub.cfg takes no saved_entry"
    raw = host.read(loader.grubenv)
    note(host, loader, {"grubenv": {name: state.variables.get(name, "") for name in changes}})
    if raw is None:
        note(host, loader, {"made": loader.grubenv})
    host.write(loader.grubenv, grubenv.render({**state.variables, **changes}, len(raw or b"") or grubenv.SIZE))
    how = "saved_entry"
    if state.next_known:
        how = "next_entry" if loader.config.takes_next else f"next_entry, by a block in {loader.hook}"
    return Selected(ours, how, lasts)


def select_systemd(host: Host, loader: Loader, executor: Executor, file: str) -> Selected:
    """A counted entry that sorts first needs nothing more; else it is named for one boot in the firmware."""
    if bls.tries(file) is not None:
        return Selected(file, "boot counting")
    note(host, loader, {"oneshot": file})
    executor.run("bootctl", "set-oneshot", file)
    return Selected(file, "LoaderEntryOneShot")


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


def restore_grub(host: Host, loader: Loader, before: dict[str, str], *, made: bool) -> None:
    """Put back what grubenv said before; one that we `made` goes, unless somebody else wrote into it since."""
    raw = host.read(loader.grubenv)
    if raw is None:
        return
    variables = grubenv.parse(raw)
    for name, value in before.items():
        if value:
            variables[name] = value
        else:
            variables.pop(name, None)
    if made and not variables:
        host.remove(loader.grubenv)
    else:
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


def _cannot_write(host: Host, loader: Loader) -> str:
    """GRUB writes its environment in place, on plain disks and plain filesystems only. Why not here; empty: it can."""
    mount = host.mount_of(loader.grubenv)
    device = mount.source.rpartition("/")[2]
    if mount.kind in ("btrfs", "zfs") or mount.source.startswith("/dev/mapper/") or device[:2] == "md":
        return f"GRUB cannot write {loader.grubenv} ({mount.kind} on {mount.source}), so it cannot forget the entry"
    return ""
