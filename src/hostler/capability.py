"""A capability as the operator sees it, so that the operator wires every one alike."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from hostler.explain.registry import Registry
from hostler.host.conditions import Condition
from hostler.inventory.sources import Source
from hostler.kube.client import Gate
from hostler.kube.controller import Controller, Reconcile
from hostler.kube.http import Server
from hostler.kube.watch import Watch
from hostler.shared import Shared


class Capability(ABC):
    """Made only where it is switched on, so that nobody else pays for its watches.

    Its life: `register`, `listen`, `run` beside its controllers, `finish` once those have ended, `close`.
    """

    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self.controllers: dict[str, Controller] = {}  # by name

    def add_controller(self, name: str, reconcile: Reconcile, workers: int = 1) -> Controller:
        """One that only the leader runs. Its name begins with the capability's, so that no two have the same."""
        if name in self.controllers:
            raise ValueError(f"two controllers are named {name!r}")
        made = Controller(name, self.shared.as_leader(reconcile), metrics=self.shared.metrics, workers=workers)
        self.controllers[name] = made
        return made

    @abstractmethod
    def watches(self) -> Iterator[Watch[Any]]:
        """Its own; what is shared is not among them."""

    @abstractmethod
    def register(self, registry: Registry, gate: Gate) -> None:
        """Add what it explains and plans."""

    @abstractmethod
    def listen(self) -> None:
        """From now on what changes wakes what it concerns."""

    @abstractmethod
    def wake_all(self) -> None:
        """Look at everything again, soon."""

    # What only some have:

    def serve(self, server: Server, notes: Callable[[], tuple[str, ...]]) -> None:
        """Add pages of its own; `notes` are what every answer says of the operator."""

    def conditions(self) -> Iterable[Condition]:
        """What the Fleet's status says of it, under names of its own."""
        return ()

    def host_source(self, cluster: str) -> Source | None:
        """What it contributes to the picture of hosts. `cluster`: what this cluster is called there."""
        return None

    def vcenter_changed(self) -> None:
        """How we stand with a vCenter changed."""

    def led(self, held: bool) -> None:
        """We lead from now on, or no longer."""

    async def run(self) -> None:
        """What goes on beside the controllers, for as long as the operator runs."""
        await asyncio.get_running_loop().create_future()

    async def finish(self) -> None:
        """Its controllers have ended; what they began outside of them ends here."""

    async def close(self) -> None:
        """Nothing runs any more: give back what is open."""
