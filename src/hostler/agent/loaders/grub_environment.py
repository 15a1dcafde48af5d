"""GRUB's environment block: a file of exactly 1024 bytes that GRUB itself can write in place."""

from __future__ import annotations

from collections.abc import Mapping

from hostler.agent.refusal import Reason, Refusal

HEADER = b"# GRUB Environment Block\n"
SIZE = 1024


def parse(block: bytes) -> dict[str, str]:
    """The variables of a block. Anything that is no such block is refused, never repaired."""
    if not block.startswith(HEADER):
        raise Refusal(Reason.UNKNOWN_BOOTLOADER, "The host's grubenv is not a GRUB environment block.")
    found: dict[str, str] = {}
    for line in _lines(block[len(HEADER) :].decode("utf-8", "surrogateescape")):
        name, equals, value = line.partition("=")
        if equals and not name.startswith("#"):
            found[name] = _unescape(value)
    return found


def render(variables: Mapping[str, str], size: int = SIZE) -> bytes:
    """A block of the same size holding these variables, padded with `#` as GRUB wants it."""
    body = "".join(f"{name}={_escape(value)}\n" for name, value in variables.items())
    block = HEADER + body.encode("utf-8", "surrogateescape")
    if len(block) > size:
        raise Refusal(Reason.ENTRY_NOT_VERIFIABLE, f"The host's grubenv is full: {len(block)} of {size} bytes.")
    return block.ljust(size, b"#")


def _lines(text: str) -> list[str]:
    """Lines end at a newline that no backslash escapes; the padding is no line."""
    found: list[str] = []
    line = ""
    skip = False
    for character in text:
        if skip:
            line, skip = line + character, False
        elif character == "\\":
            line, skip = line + character, True
        elif character == "\n":
            found.append(line)
            line = ""
        else:
            line += character
    return found


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\\n")


def _unescape(value: str) -> str:
    plain = ""
    skip = False
    for character in value:
        if character == "\\" and not skip:
            skip = True
            continue
        plain, skip = plain + character, False
    return plain
