"""Text that another party wrote, on its way into a condition, an Event or `explain`. Pure.

An Agent, a node's report, a spoke's objects: all of it may come from a party who wants a reader to believe something.
Where a reader needs it, it is one line, bounded and in quotation marks, so that no one takes it for our own sentence.
"""

from __future__ import annotations

import re

LIMIT = 400
_AFTER_PATH = re.compile(r"(\w+://[^\s?#]*)[?#]\S*")
_ACCOUNT = re.compile(r"(\w+://)[^\s/?#@]*@")
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,251}[A-Za-z0-9])?")
_WORD = re.compile(r"[-A-Za-z0-9_.:/=]{1,253}")


def clean_text(text: str, limit: int = LIMIT) -> str:
    """One line of printable ASCII and letters, bounded.

    What an address has before its host and after its path may be a secret, such as an image's token; it is left out.
    """
    line = " ".join("".join(character if _is_shown(character) else " " for character in text[: 4 * limit]).split())
    line = _AFTER_PATH.sub(r"\1", _ACCOUNT.sub(r"\1", line))
    return line if len(line) <= limit else line[: limit - 3] + "..."


def quote_text(text: str, limit: int = LIMIT) -> str:
    """The same in quotation marks, which it cannot end itself."""
    return '"' + clean_text(text, limit).replace('"', "'") + '"'


def is_name(text: str) -> bool:
    """Whether it can be the name of an object; nothing else goes into a path or a sentence as a name."""
    return _NAME.fullmatch(text) is not None


def word_or_quote(text: str) -> str:
    """An identifier as it is; anything else quoted."""
    return text if not text or _WORD.fullmatch(text) else quote_text(text, 120)


def _is_shown(character: str) -> bool:
    return (character.isascii() and character.isprintable()) or character.isalnum()
