"""The watches that platform decides from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hostler.apis.openshift import ClusterCSIDriver, ClusterOperator
from hostler.kube.cache import Unread, first_unread
from hostler.kube.kinds import FLEET, Kind
from hostler.kube.records import Node, Pod
from hostler.kube.watch import Watch
from hostler.platform.model import DaemonSet, PolicySpec
from hostler.safety.guard import FleetWatch


@dataclass(frozen=True, slots=True)
class Caches:
    """What platform reads. Nodes, pods and the Fleet are shared with the other capabilities."""

    daemon_sets: Watch[DaemonSet]
    policies: Watch[PolicySpec]
    bindings: Watch[PolicySpec]
    operators: Watch[ClusterOperator]
    drivers: Watch[ClusterCSIDriver]
    nodes: Watch[Node]
    pods: Watch[Pod]
    fleet: FleetWatch

    def own(self) -> Iterator[Watch[Any]]:
        """The watches that only platform needs."""
        yield from (self.daemon_sets, self.policies, self.bindings, self.operators, self.drivers)

    @property
    def by_kind(self) -> dict[Kind, Watch[Any]]:
        """The watches of everything that is written."""
        return {one.kind: one for one in (*self.own(), self.nodes)}

    def unread(self) -> Unread | None:
        unread = first_unread((*self.own(), self.nodes, self.pods))
        return unread if unread or self.fleet.store.synced else Unread(FLEET, only=True)
