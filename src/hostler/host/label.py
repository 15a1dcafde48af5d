"""Which nodes a label selector picks."""

from __future__ import annotations

from hostler.kube.records import Node
from hostler.selectors import parse_selector


class Label:
    def __init__(self, text: str) -> None:
        self.text = text
        self._requirements = parse_selector(text)

    def on(self, node: Node) -> bool:
        labels = node.metadata.labels
        return all(one.holds(labels) for one in self._requirements)

    def nowhere(self) -> str:
        """The sentence where it picks no node."""
        return f"No node has the label {self.text}, so no ESXi host's maintenance is followed."
