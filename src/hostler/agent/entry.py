"""The boot entry in the words of each loader."""

from __future__ import annotations

from collections.abc import Sequence

from hostler.agent import options
from hostler.agent.loaders import Kind

TITLE = "Assisted Installer Discovery"
FIRST, LAST = "999", "0"  # versions, for RHEL's GRUB
FILES = {
    Kind.GRUB_RHEL: "00-assisted-discovery.conf",  # as published: with version 999 it is the first entry
    Kind.ZIPL: "00-assisted-discovery.conf",
    Kind.GRUB_BLS: "zz-assisted-discovery.conf",  # by file name only, descending; and an id with a digit is an index
    Kind.SYSTEMD_BOOT: "assisted-discovery.conf",
    Kind.GRUB_PLAIN: "assisted-discovery",  # the id of a menuentry; no file of its own
}
# Sorts after every installed entry: by RHEL's comparison and by GNU's a tilde is before everything, and both descend.
LAST_FILE = "~assisted-discovery.conf"
COUNTED = "assisted-discovery+1.conf"  # systemd-boot: one try, then it sorts last by itself
BEGIN, END = "### BEGIN assisted-discovery ###", "### END assisted-discovery ###"


def snippet(kind: Kind, kernel: str, initrd: str, words: Sequence[str], version: str = FIRST) -> str:
    """A Boot Loader Specification entry, in the dialect of the loader that will read it."""
    lines = [f"title {TITLE}", f"version {version}"]
    if kind is Kind.SYSTEMD_BOOT:
        lines.append("sort-key 00-assisted-discovery")
    if kind in (Kind.SYSTEMD_BOOT, Kind.ZIPL):
        spelled = options.verbatim(words)
    else:
        spelled = options.for_grub(words, expands=True)
    if kind is Kind.GRUB_BLS:
        spelled = _padded(kernel, spelled)
    # No empty line anywhere: GRUB 2.14 stops reading at one.
    return "\n".join([*lines, f"options {spelled}", f"linux {kernel}", f"initrd {initrd}"]) + "\n"


# What most grub.cfg do by themselves: start the entry named for one boot, and forget the name before it is started.
TAKE_NEXT = """load_env next_entry
if [ -n "${next_entry}" ]; then
\tset default="${next_entry}"
\tset next_entry=
\tsave_env next_entry
fi"""


def menuentry(kernel: str, initrd: str, words: Sequence[str]) -> str:
    """A menu entry for a grub.cfg that reads custom.cfg; it finds its own filesystem by our file on it.

    Unrestricted: where the owner set a password, GRUB would wait for a person to type it.
    """
    spelled = options.for_grub(words, expands=False)
    return "\n".join(
        [
            f"menuentry '{TITLE}' --unrestricted --id {FILES[Kind.GRUB_PLAIN]} {{",
            f"\tsearch --no-floppy --set=root --file {initrd}",
            f"\tlinux {kernel} {spelled}",
            f"\tinitrd {initrd}",
            "}",
        ]
    )


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
    """Kernel, initrd and id of our entry in a custom.cfg; empty words where they are not there."""
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


def _padded(kernel: str, spelled: str) -> str:
    """GRUB 2.14 allots one byte too few for its linux command; where that byte is another's, its memory is spoilt.

    It allots 8 bytes and both texts, rounded up to 16 or 32; so the sum must not be a multiple of 16. A second blank
    between two words changes nothing for the kernel.
    """
    if (8 + len(kernel.encode()) + len(spelled.encode())) % 16:
        return spelled
    return spelled.replace(" ", "  ", 1)
