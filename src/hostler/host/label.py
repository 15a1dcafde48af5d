"""Which nodes a label picks: `key=value`, or `key` with any value."""

from __future__ import annotations

from hostler.kube.records import Node


class Label:
    def __init__(self, text: str) -> None:
        self.text = text
        self._key, equals, value = text.partition("=")
        self._value = value if equals else None

    def on(self, node: Node) -> bool:
        value = node.metadata.labels.get(self._key)
        return value is not None and self._value in (None, value)

    def nowhere(self) -> str:
        """What to say where no node has it."""
        return f"No node has the label {self.text}, so no ESXi host's maintenance is followed."
