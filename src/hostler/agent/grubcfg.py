"""What a grub.cfg does with an entry that is named for one boot: read from its statements, comments left out."""

from __future__ import annotations

import re
from dataclasses import dataclass

# Files of the owner that a grub.cfg may read: bootupd's static one reads custom.cfg after the entries; RHCOS of before
# bootupd reads user.cfg before them, if anything.
HOOKS = ("custom.cfg", "user.cfg")
# Up to a semicolon or the end of the line; one in quotes ends nothing.
_STATEMENT = re.compile(r"""(?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^;\\'"]|['"])+""")
_LEADING = re.compile(r"\s*(?:(?:then|else|do)\s+)?")
_SOURCE = re.compile(r"(?:source|\.)\s+\S*[/}](?P<file>[\w.]+)\s*$")
_ENTRY = re.compile(r"(?:menuentry|submenu|blscfg)\b")
_DEFAULT = re.compile(r"(?:set\s+)?default=")


@dataclass(frozen=True)
class GrubConfig:
    takes_next: bool  # starts `next_entry` of its environment once, and empties it
    takes_saved: bool  # starts `saved_entry` of its environment otherwise
    hook: str  # the file beside it in which a block of ours is read; empty: none
    hook_is_last: bool  # entries of that file come after all others
    read_too_early: str = ""  # such a file that is no hook: the default that a block chooses there is set again later


def read_config(text: str) -> GrubConfig:
    """Nothing of it is run: a statement in a branch counts like any other."""
    found = _statements(text)
    whole = "\n".join(found)
    sourced: dict[str, list[int]] = {}
    for number, statement in enumerate(found):
        if source := _SOURCE.match(statement.replace('"', "")):
            sourced.setdefault(source["file"], []).append(number)
    last_default = max((number for number, one in enumerate(found) if _DEFAULT.match(one)), default=-1)
    last_entry = max((number for number, one in enumerate(found) if _ENTRY.match(one)), default=-1)
    takes_next = "next_entry" in whole  # then a block of ours need not choose
    there = [name for name in HOOKS if name in sourced]
    hook = next((name for name in there if takes_next or sourced[name][0] > last_default), "")
    early = "" if hook else next(iter(there), "")
    last = bool(hook) and sourced[hook][-1] > last_entry
    return GrubConfig(takes_next, "saved_entry" in whole, hook, last, early)


def _statements(text: str) -> list[str]:
    """One by one, without comments, and without the word by which a branch begins."""
    found: list[str] = []
    for line in text.splitlines():
        for match in _STATEMENT.finditer(line):
            statement = _LEADING.sub("", match[0], count=1)
            if statement.startswith("#"):
                break
            found.append(statement)
    return found
