"""The discovery kernel's command line: published words, the InfraEnv's arguments, the host's network; quoting."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hostler.agent.refusal import Reason, Refusal

# The published words, and ours: a kernel that dies restarts the host, which then falls back to its installed system.
BASE = ("random.trust_cpu=on", "ignition.firstboot", "ignition.platform.id=metal", "panic=30")
# How the running system reaches its network; without them a host with static addresses would come up mute.
NETWORK = (
    "ip=", "nameserver=", "bond=", "bridge=", "team=", "vlan=", "ifname=", "BOOTIF=", "bootdev=",
    "rd.route=", "rd.neednet=", "rd.znet=", "rd.bootif=", "rd.net.",
)  # fmt: skip
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=.,:/+@%~^")
_UNSAFE_IN_ADDRESS = "'\"$\\`<>{}|^ "


@dataclass(frozen=True)
class KernelArgument:
    """One `kernelArguments` item of the InfraEnv: append, replace (name=old=new) or delete."""

    operation: str
    value: str


def compose_words(rootfs_url: str, running: Sequence[str], arguments: Iterable[KernelArgument]) -> list[str]:
    """Every word of the command line, unquoted, in order. Nothing in it can end its line or start another."""
    found = [*BASE]
    if rootfs_url:
        found.append(f"coreos.live.rootfs_url={_address(rootfs_url)}")
    found += [word for word in running if word.startswith(NETWORK)]
    for argument in arguments:
        found = _changed(found, argument)
    for word in found:
        if not word or any(ord(character) < 32 or ord(character) == 127 for character in word):
            raise Refusal(Reason.BAD_ARGUMENTS, f"The kernel argument {word!r} cannot be written in a boot entry.")
    return found


def join_verbatim(found: Sequence[str]) -> str:
    """For loaders that pass the line on as it is: a quote would arrive in the kernel's command line."""
    return " ".join(found)


def quote_for_grub(found: Sequence[str], *, expands: bool) -> str:
    """For loaders that run the line as a GRUB script: whatever means something to it is quoted.

    `expands`: blscfg replaces `$name` even inside quotes, so a `$` cannot be written there at all.
    """
    for word in found:
        if expands and "$" in word:
            raise Refusal(Reason.BAD_ARGUMENTS, f"The kernel argument {word!r} has a $, which GRUB's blscfg replaces.")
    return " ".join(word if set(word) <= _PLAIN else _quoted(word) for word in found)


def parse_arguments(given: object) -> list[KernelArgument]:
    """The InfraEnv's kernelArguments as they come in a step: a list, or JSON of one."""
    if isinstance(given, str):
        try:
            given = json.loads(given or "[]")
        except ValueError:
            raise Refusal(Reason.BAD_ARGUMENTS, "The kernel arguments of the step are not JSON.") from None
    if given is None:
        return []
    if not isinstance(given, list):
        raise Refusal(Reason.BAD_ARGUMENTS, "The kernel arguments of the step are not a list.")
    found: list[KernelArgument] = []
    for item in given:
        operation, value = (item.get("operation"), item.get("value")) if isinstance(item, dict) else (None, None)
        if operation not in ("append", "replace", "delete") or not isinstance(value, str):
            raise Refusal(Reason.BAD_ARGUMENTS, f"{item!r} is not a kernel argument.")
        found.append(KernelArgument(operation, value))
    return found


def _changed(found: list[str], argument: KernelArgument) -> list[str]:
    if argument.operation == "append":
        return [*found, argument.value]
    if argument.operation == "delete":
        return [word for word in found if word != argument.value]
    name, _, rest = argument.value.partition("=")
    old, _, new = rest.partition("=")
    return [f"{name}={new}" if word == f"{name}={old}" else word for word in found]


def _address(url: str) -> str:
    return "".join(f"%{ord(character):02X}" if character in _UNSAFE_IN_ADDRESS else character for character in url)


def _quoted(word: str) -> str:
    return "'" + word.replace("'", "'\\''") + "'"
