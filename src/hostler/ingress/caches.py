"""The watches that ingress decides from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hostler.apis.openshift import Infrastructure, IngressConfig, IngressController
from hostler.ingress.model import Placed, Unreadable
from hostler.kube.cache import Unread, first_unread
from hostler.kube.kinds import FLEET, Kind
from hostler.kube.records import Node, Pod, PodDisruptionBudget
from hostler.kube.watch import Watch
from hostler.safety.guard import FleetWatch


@dataclass(frozen=True, slots=True)
class Caches:
    """What ingress reads. Pods, budgets, nodes and the Fleet are shared with the other capabilities."""

    ingress: Watch[IngressConfig]
    infrastructure: Watch[Infrastructure]
    controllers: Watch[IngressController]
    deployments: Watch[Placed]
    daemon_sets: Watch[Placed]
    budgets: Watch[PodDisruptionBudget]
    pods: Watch[Pod]
    nodes: Watch[Node]
    fleet: FleetWatch

    @property
    def by_kind(self) -> dict[Kind, Watch[Any]]:
        """The watches of everything that decides or is written."""
        return {one.kind: one for one in (*self.own(), self.budgets)}

    def unreadable(self, kind: Kind, key: str) -> Unreadable | None:
        """An object that came and did not decode."""
        why = self.by_kind[kind].store.unreadable.get(key)
        return Unreadable(kind, key, why) if why is not None else None

    def own(self) -> Iterator[Watch[Any]]:
        """The watches that only ingress needs."""
        yield from (self.ingress, self.infrastructure, self.controllers, self.deployments, self.daemon_sets)

    def unread(self) -> Unread | None:
        unread = first_unread((*self.own(), self.budgets, self.pods, self.nodes))
        return unread if unread or self.fleet.store.synced else Unread(FLEET, only=True)
