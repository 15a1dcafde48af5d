"""Which objects metal looks after: all, those of some namespaces, those with a label. Pure.

As `--namespace` and `--watch-filter` of Cluster API's providers. A namespace outside is not read and needs no rights.
An object without the label is read, because hosts are shared, but nothing is written for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from hostler.apis.metal3 import OwnedMetadata
from hostler.host.conditions import names as listed
from hostler.kube.records import Metadata

WATCH_FILTER = "cluster.x-k8s.io/watch-filter"  # label


@dataclass(frozen=True, slots=True)
class Scope:
    """No namespaces: all. No `watch_filter`: with and without the label."""

    namespaces: tuple[str, ...] = ()
    watch_filter: str = ""

    @property
    def labels(self) -> dict[str, str]:
        """What is made for an object in scope is in scope too."""
        return {WATCH_FILTER: self.watch_filter} if self.watch_filter else {}

    def why_outside(self, meta: Metadata | OwnedMetadata) -> str:
        """Why nothing is written for this object, as a sentence; empty: it is in scope."""
        return self.why_not_read(meta.namespace) or self.why_filtered(meta)

    def why_not_read(self, namespace: str) -> str:
        if not self.namespaces or namespace in self.namespaces:
            return ""
        return f"Namespace {namespace} is out of scope: HOSTLER_METAL_NAMESPACES is {listed(self.namespaces)}."

    def why_filtered(self, meta: Metadata | OwnedMetadata) -> str:
        found = meta.labels.get(WATCH_FILTER, "")
        if not self.watch_filter or found == self.watch_filter:
            return ""
        has = f"has label {WATCH_FILTER}={found}" if found else f"lacks label {WATCH_FILTER}={self.watch_filter}"
        return f"It is out of scope: it {has}, and HOSTLER_METAL_WATCH_FILTER is {self.watch_filter}."


EVERYTHING = Scope()
