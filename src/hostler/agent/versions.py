"""How boot loaders compare versions and file names. Each answers negative, zero or positive, as its loader does."""

from __future__ import annotations


def compare_rpm(one: str, other: str) -> int:
    """As rpm and RHEL's GRUB: pieces of digits or letters; digits beat letters; `~` is before the end, `^` after."""
    i = j = 0
    while i < len(one) or j < len(other):
        while i < len(one) and not (_alnum(one[i]) or one[i] in "~^"):
            i += 1
        while j < len(other) and not (_alnum(other[j]) or other[j] in "~^"):
            j += 1
        a, b = one[i : i + 1], other[j : j + 1]
        if "~" in (a, b) or "^" in (a, b):
            if a != b:
                return _marked(a, b)
            i, j = i + 1, j + 1
            continue
        if not a or not b:
            break
        digits = _digit(a)
        left, i = _piece(one, i, digits)
        right, j = _piece(other, j, digits)
        if not right:
            return 1 if digits else -1
        order = _numbers(left, right) if digits else _sign(left, right)
        if order:
            return order
    return (i < len(one)) - (j < len(other))


def _marked(a: str, b: str) -> int:
    """One of the two is at `~` or `^`, the other is not: `~` is before anything, `^` only after the end."""
    if "~" in (a, b):
        return -1 if a == "~" else 1
    if not a or not b:
        return -1 if not a else 1
    return -1 if a == "^" else 1


def compare_files(one: str, other: str) -> int:
    """As GNU's filevercmp, which GRUB 2.14 sorts its entries by: Debian's order, without the suffix first."""
    if one == other:
        return 0
    return _debian(_stem(one), _stem(other)) or _debian(one, other) or _sign(one, other)


def compare_systemd(one: str, other: str) -> int:
    """As systemd's strverscmp_improved: `~` before the end, then `-`, `^`, `.`, letters, numbers."""
    i = j = 0
    while i < len(one) or j < len(other):
        while i < len(one) and not (_alnum(one[i]) or one[i] in "~-^."):
            i += 1
        while j < len(other) and not (_alnum(other[j]) or other[j] in "~-^."):
            j += 1
        a, b = one[i : i + 1], other[j : j + 1]
        if a == "~" or b == "~":
            if a != b:
                return -1 if a == "~" else 1
            i, j = i + 1, j + 1
            continue
        if not a or not b:
            return bool(a) - bool(b)
        marked = False
        for mark in "-^.":
            if a == mark or b == mark:
                if a != b:
                    return -1 if a == mark else 1
                marked = True
                break
        if marked:
            i, j = i + 1, j + 1
            continue
        if _digit(a) or _digit(b):
            left, i = _piece(one, i, True)
            right, j = _piece(other, j, True)
            if bool(left) != bool(right):
                return 1 if left else -1
            order = _numbers(left, right)
        else:
            left, i = _piece(one, i, False)
            right, j = _piece(other, j, False)
            order = _sign(left, right)
        if order:
            return order
    return 0


def _debian(one: str, other: str) -> int:
    i = j = 0
    while i < len(one) or j < len(other):
        while (i < len(one) and not _digit(one[i])) or (j < len(other) and not _digit(other[j])):
            order = _weight(one[i : i + 1]) - _weight(other[j : j + 1])
            if order:
                return order
            i, j = i + 1, j + 1
        a, i = _piece(one, i, True)
        b, j = _piece(other, j, True)
        order = _numbers(a, b)
        if order:
            return order
    return 0


def _weight(character: str) -> int:
    if not character or _digit(character):
        return 0
    if character == "~":
        return -1
    return ord(character) if _letter(character) else ord(character) + 256


def _stem(name: str) -> str:
    """The name without its suffixes: `.` and a letter or `~`, then letters, digits and `~`, as often as that comes."""
    end = len(name)
    while True:
        dot = name.rfind(".", 0, end)
        if dot <= 0 or dot + 1 >= end or not (_letter(name[dot + 1]) or name[dot + 1] == "~"):
            return name[:end]
        if not all(_alnum(one) or one == "~" for one in name[dot + 1 : end]):
            return name[:end]
        end = dot


def _piece(text: str, start: int, digits: bool) -> tuple[str, int]:
    end = start
    while end < len(text) and (_digit(text[end]) if digits else _letter(text[end])):
        end += 1
    return text[start:end], end


def _numbers(one: str, other: str) -> int:
    one, other = one.lstrip("0"), other.lstrip("0")
    return (len(one) > len(other)) - (len(one) < len(other)) or _sign(one, other)


def _sign(one: str, other: str) -> int:
    return (one > other) - (one < other)


def _digit(character: str) -> bool:
    return "0" <= character <= "9"


def _letter(character: str) -> bool:
    return "a" <= character <= "z" or "A" <= character <= "Z"


def _alnum(character: str) -> bool:
    return _digit(character) or _letter(character)
