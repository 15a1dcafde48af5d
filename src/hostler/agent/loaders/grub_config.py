"""What a grub.cfg does with an entry that is named for one boot, and the block of ours in a file that it reads.

It is read from its statements, comments left out; nothing of it is run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

BEGIN, END = "### BEGIN assisted-discovery ###", "### END assisted-discovery ###"
# What most grub.cfg do by themselves: start the entry named for one boot, and forget the name before it is started.
TAKE_NEXT = """load_env next_entry
if [ -n "${next_entry}" ]; then
\tset default="${next_entry}"
\tset next_entry=
\tsave_env next_entry
fi"""
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


def reads_entries(text: str) -> bool:
    """Whether it reads entries of the Boot Loader Specification."""
    return any(line.strip().startswith("blscfg") for line in text.splitlines())


def read_config(text: str) -> GrubConfig:
    """A statement in a branch counts like any other."""
    found = _statements(text)
    whole = "\n".join(found)
    sourced: dict[str, list[int]] = {}
    for number, statement in enumerate(found):
        if source := _SOURCE.match(statement.replace('"', "")):
            sourced.setdefault(source["file"], []).append(number)
    last_default = max((number for number, statement in enumerate(found) if _DEFAULT.match(statement)), default=-1)
    last_entry = max((number for number, statement in enumerate(found) if _ENTRY.match(statement)), default=-1)
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


def with_block(custom: str, *parts: str) -> str:
    """The owner's custom.cfg with our block at its end, in place of one of ours that was there."""
    kept = without_block(custom)
    ours = "\n".join([BEGIN, *parts, END, ""])
    return f"{kept}{'' if not kept or kept.endswith(chr(10)) else chr(10)}{ours}"


def without_block(custom: str) -> str:
    before, begin, rest = custom.partition(BEGIN)
    if not begin:
        return custom
    _, end, after = rest.partition(END)
    return before + (after.removeprefix("\n") if end else "")


def takes_next(custom: str) -> bool:
    """Whether our block is there, whole, and takes the entry that is named for one boot."""
    block, end, _ = custom.partition(BEGIN)[2].partition(END)
    return bool(end) and TAKE_NEXT in block


def parse_menuentry(custom: str) -> tuple[str, str, str]:
    """Kernel, initrd and id of our entry in a custom.cfg; empty where they are not there."""
    _, begin, rest = custom.partition(BEGIN)
    block, end, _ = rest.partition(END)
    found = {"linux": "", "initrd": "", "menuentry": ""}
    if not begin or not end:
        return "", "", ""
    for line in block.splitlines():
        words = line.split()
        if len(words) < 2 or words[0] not in found:
            continue
        named = words[words.index("--id") + 1 :] if "--id" in words else []
        found[words[0]] = words[1] if words[0] != "menuentry" else next(iter(named), "")
    return found["linux"], found["initrd"], found["menuentry"]
