"""What a grub.cfg does with an entry that is named for one boot: read from its statements, comments left out."""

from __future__ import annotations

import re
from dataclasses import dataclass

# Files of the owner that a grub.cfg may read: bootupd's static one reads custom.cfg after the entries; RHCOS of before
# bootupd reads user.cfg before them, if anything.
HOOKS = ("custom.cfg", "user.cfg")
_SOURCE = re.compile(r"\s*(?:source|\.)\s+\S*[/}](?P<file>[\w.]+)\s*$")
_ENTRY = re.compile(r"\s*(?:menuentry|submenu|blscfg)\b")


@dataclass(frozen=True)
class GrubConfig:
    takes_next: bool  # starts `next_entry` of its environment once, and empties it
    takes_saved: bool  # starts `saved_entry` of its environment otherwise
    hook: str  # the file beside it in which a block of ours is read; empty: none
    hook_is_last: bool  # entries of that file come after all others


def read_config(text: str) -> GrubConfig:
    """Nothing of it is run: a statement in a branch counts like any other."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    sourced = {found["file"]: number for number, line in enumerate(lines) if (found := _SOURCE.match(line))}
    hook = next((name for name in HOOKS if name in sourced), "")
    last_entry = max((number for number, line in enumerate(lines) if _ENTRY.match(line)), default=-1)
    whole = "\n".join(lines)
    return GrubConfig("next_entry" in whole, "saved_entry" in whole, hook, bool(hook) and sourced[hook] > last_entry)
