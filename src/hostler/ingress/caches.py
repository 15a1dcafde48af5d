"""The watches that ingress decides from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hostler.ingress.model import Infrastructure, IngressConfig, IngressController, Placed
from hostler.kube.cache import Unread, first_unread
from hostler.kube.kinds import FLEET
from hostler.kube.records import Node, Pod, PodDisruptionBudget
from hostler.kube.watch import Watch
from hostler.safety.guard import FleetWatch


@dataclass(frozen=True, slots=True)
class Caches:
    """What ingress reads. Pods, budgets, nodes and the Fleet are shared with the rest of the house."""

    ingress: Watch[IngressConfig]
    infrastructure: Watch[Infrastructure]
    controllers: Watch[IngressController]
    deployments: Watch[Placed]
    daemon_sets: Watch[Placed]
    budgets: Watch[PodDisruptionBudget]
    pods: Watch[Pod]
    nodes: Watch[Node]
    fleet: FleetWatch

    def own(self) -> Iterator[Watch[Any]]:
        """The watches nobody else runs."""
        yield from (self.ingress, self.infrastructure, self.controllers, self.deployments, self.daemon_sets)

    def unread(self) -> Unread | None:
        unread = first_unread((*self.own(), self.budgets, self.pods, self.nodes))
        return unread if unread or self.fleet.store.synced else Unread(FLEET, only=True)
