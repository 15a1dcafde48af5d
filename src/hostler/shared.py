"""What the capabilities share: one record, made once by the operator."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hostler.drain.model import Policy
from hostler.drain.observe import Sources
from hostler.host import ceiling
from hostler.instant import Instant
from hostler.kube.budget import WriteBudget
from hostler.kube.client import Client
from hostler.kube.controller import Reconcile
from hostler.kube.events import Recorder
from hostler.kube.metrics import Metrics
from hostler.kube.records import Node
from hostler.kube.watch import Watch
from hostler.kube.writer import WriteListener, Writer
from hostler.safety.guard import FleetWatch, Guard
from hostler.settings.foundation import (
    DRAIN_REFUSE_EMPTY_DIR,
    DRAIN_REFUSE_UNMANAGED,
    DRAIN_TIMEOUT_SECONDS,
    NAMESPACE,
)
from hostler.settings.model import Settings
from hostler.vsphere.settings import POLL_INTERVAL_SECONDS

if TYPE_CHECKING:
    from hostler.safety.vcenter_trust import TrustSecret
    from hostler.vsphere.vcenter import VCenter


@dataclass(frozen=True, slots=True)
class Writers:
    """Makes the writer of a capability: every write passes its gate, a budget, and the dry run."""

    client: Client
    guard: Guard
    budget: WriteBudget
    dry_run: bool
    metrics: Metrics
    listener: WriteListener | None = None  # of the writes in our own cluster

    def of(self, capability: str, budget: WriteBudget | None = None, client: Client | None = None) -> Writer:
        listener = self.listener if client in (None, self.client) else None
        return Writer(
            client or self.client, capability, gate=self.guard.gate_for(capability), budget=budget or self.budget,
            dry_run=self.dry_run, metrics=self.metrics, listener=listener,
        )  # fmt: skip

    def giving_back(self, capability: str) -> Writer:
        """Only for giving back to an incumbent what is its own; see `Guard.giving_back`."""
        return Writer(
            self.client, capability, gate=self.guard.giving_back(capability), budget=self.budget, dry_run=self.dry_run,
            metrics=self.metrics, listener=self.listener,
        )  # fmt: skip

    def of_own_objects(self, capability: str) -> Writer:
        """For what belongs to us alone, and no incumbent ever writes: its presence does not hold these writes back."""
        return self.giving_back(capability)

    def of_any_replica(self, capability: str) -> Writer:
        """For facts that any replica writes down, not only the leader. A pause holds them back all the same."""
        return Writer(
            self.client, capability, gate=lambda: self.guard.blocked(capability), budget=self.budget,
            dry_run=self.dry_run, metrics=self.metrics,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Shared:
    """What a capability may use of the operator. Watches among it are run by the operator."""

    client: Client
    settings: Settings
    writers: Writers
    recorder: Recorder
    metrics: Metrics
    fleet: FleetWatch
    nodes: Watch[Node]
    sources: Sources
    drain: Policy
    ceiling: Callable[[Iterable[str], Collection[str]], ceiling.Room]
    as_leader: Callable[[Reconcile], Reconcile]
    acting: Callable[[], AbstractContextManager[None]]
    vcenters: tuple[VCenter, ...] = ()
    changed: Callable[[], None] = lambda: None  # the conditions of a capability changed
    stepped: Callable[[Instant], Instant] = lambda now: 0.0  # when the wall clock was last set forward


def drain_policy(settings: Settings) -> Policy:
    return Policy(
        timeout=settings[DRAIN_TIMEOUT_SECONDS],
        evict_empty_dir=not settings[DRAIN_REFUSE_EMPTY_DIR],
        evict_unmanaged=not settings[DRAIN_REFUSE_UNMANAGED],
    )


def make_vcenters(settings: Settings, metrics: Metrics, writers: Writers) -> tuple[tuple[VCenter, ...], TrustSecret]:
    """One per endpoint, for all capabilities, and where it is kept what they are recognised by.

    Raises a Complaint that names every mistake in how they are configured.
    """
    from hostler.safety.vcenter_trust import TrustSecret
    from hostler.vsphere.endpoints import endpoints
    from hostler.vsphere.metrics import Metrics as VsphereMetrics
    from hostler.vsphere.trust import Trust
    from hostler.vsphere.vcenter import VCenter

    def held() -> str | None:
        pause = writers.guard.pause()
        return pause.why if pause.stopped else None

    # Any replica writes it, not only the leader: each logs in by itself. A pause holds it back all the same.
    writer = Writer(writers.client, "fleet", gate=held, budget=writers.budget, dry_run=writers.dry_run, metrics=metrics)
    kept = TrustSecret(writers.client, writer, settings[NAMESPACE], held)
    counted, poll, trust = VsphereMetrics(metrics.registry), settings[POLL_INTERVAL_SECONDS], Trust(kept)
    return tuple(VCenter(one, counted, poll=poll, trust=trust) for one in endpoints(settings)), kept
