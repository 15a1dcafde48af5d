"""The kubelet's unit without an external cloud provider, as a drop-in. Pure.

A kubelet that waits for a cloud provider taints its node until one comes; on a machine that is in no cloud none does.
A drop-in cannot take one flag away, only replace the whole command: so it is made from the cluster's own unit, or not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

UNIT = "kubelet.service"
DROP_IN = "90-hostler-no-cloud-provider.conf"  # after any of the cluster's own

_FLAG = re.compile(r"(?:(?<=\s)|^)--cloud-(provider|config)(?:=(\S*)|\s+(\S+))(?=\s|$)")


def drop_in(unit: str, others: Sequence[str] = ()) -> str:
    """The drop-in's text; empty where the kubelet has no cloud provider anyway.

    `others` are the drop-ins the unit has already. Raises ValueError, saying what of the unit is not understood.
    """
    if any(list(_commands(one)) for one in others):
        raise ValueError(f"another drop-in of {UNIT} replaces its command")
    found = list(_commands(unit))
    if len(found) != 1:
        raise ValueError(f"{UNIT} has {len(found)} commands to start with, and one was expected")
    command = found[0]
    providers = [one[2] if one[2] is not None else one[3] for one in _FLAG.finditer(command) if one[1] == "provider"]
    left = _FLAG.sub("", command)
    if "--cloud-provider" in left or "--cloud-config" in left or any(set("\"'\\") & set(one) for one in providers):
        raise ValueError(f"{UNIT} spells its cloud provider in a way that is not understood")
    if not any(providers):
        return ""
    lines = (
        "# This machine is in no cloud: nobody would take the uninitialized taint from its node.",
        "[Service]",
        "ExecStart=",
        f"ExecStart={left.strip()}",
    )
    return "\n".join(lines) + "\n"


def _commands(text: str) -> Iterator[str]:
    """What ExecStart says in [Service], as systemd reads it: lines joined, comments left out, empty forgets."""
    section, commands = "", list[str]()
    for line in _lines(text):
        if line.startswith("["):
            section = line
        key, equals, value = line.partition("=")
        if section == "[Service]" and equals and key.strip() == "ExecStart":
            commands = [*commands, value.strip()] if value.strip() else []
    yield from commands


def _lines(text: str) -> Iterator[str]:
    begun = ""
    for line in text.splitlines():
        if line.strip().startswith(("#", ";")):
            continue
        if line.endswith("\\"):
            begun += line[:-1] + " "
        else:
            yield (begun + line).strip()
            begun = ""
    if begun:
        yield begun.strip()
