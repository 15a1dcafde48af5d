"""Reads YAML that people and other programs wrote, within bounds: its size, its depth and what its aliases grow to.

A few lines of aliases can stand for billions of values. PyYAML builds them in no time, and code that walks them never
ends. PyYAML's C loader would be faster, but deep nesting overflows its stack and kills the process.
"""

from __future__ import annotations

from typing import Any

import yaml

LARGEST = 1024 * 1024  # bytes
DEEPEST = 40
MOST_VALUES = 200_000


class NotReadable(ValueError):
    """The text is no YAML, or is out of bounds; the message is the rest of a sentence that begins with its name."""


class _Bounded(yaml.SafeLoader):
    aliases = True
    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if not self.aliases and self.check_event(yaml.AliasEvent):
            raise NotReadable("has YAML aliases, which are not allowed here")
        self._depth += 1
        if self._depth > DEEPEST:
            raise NotReadable("is nested too deeply")
        found = super().compose_node(parent, index)
        self._depth -= 1
        return found


class _WithoutAliases(_Bounded):
    aliases = False


def read_yaml(text: str | bytes, *, aliases: bool = True, largest: int = LARGEST) -> Any:
    """The value of one YAML document (JSON is YAML too). Raises NotReadable."""
    loader = _loader(text, aliases, largest)
    try:
        root = _composed(loader)
        return None if root is None else loader.construct_document(root)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _not_readable(error) from error
    finally:
        loader.dispose()


def compose_yaml(text: str | bytes) -> yaml.Node | None:
    """The document as nodes, each with its place in the text. Raises NotReadable."""
    loader = _loader(text, True, LARGEST)
    try:
        return _composed(loader)
    except (yaml.YAMLError, RecursionError) as error:
        raise _not_readable(error) from error
    finally:
        loader.dispose()


def _loader(text: str | bytes, aliases: bool, largest: int) -> _Bounded:
    size = len(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    if size > largest:
        raise NotReadable(f"is larger than {largest // 1024} KiB")
    try:
        return (_Bounded if aliases else _WithoutAliases)(text)
    except yaml.YAMLError as error:  # a character that YAML does not have
        raise _not_readable(error) from error


def _composed(loader: _Bounded) -> yaml.Node | None:
    root = loader.get_single_node()
    if root is not None and _count_values(root, {}) > MOST_VALUES:
        raise NotReadable(f"stands for more than {MOST_VALUES} values")
    return root


def _count_values(node: yaml.Node, known: dict[int, int]) -> int:
    """How many values a node stands for when every alias is followed; each node is looked at once."""
    if id(node) in known:
        return known[id(node)]
    known[id(node)] = MOST_VALUES + 1  # an alias of itself stands for endlessly many
    inner = node.value if isinstance(node, (yaml.SequenceNode, yaml.MappingNode)) else ()
    total = 1
    for item in inner:
        for one in item if isinstance(item, tuple) else (item,):
            total += _count_values(one, known)
    known[id(node)] = min(total, MOST_VALUES + 1)
    return known[id(node)]


def _not_readable(error: Exception) -> NotReadable:
    if isinstance(error, NotReadable):
        return error
    if isinstance(error, RecursionError):
        return NotReadable("is nested too deeply")
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or (str(error).splitlines() or ["it cannot be read"])[0]
    return NotReadable(f"is not YAML: {problem}" + (f" (line {mark.line + 1})" if mark is not None else ""))
