"""Keeps ingress where it belongs: observe, decide, one patch per object and pass, and only when something differs.

Keys: `cluster` (the default IngressController and the backfill), `controller/NAME` (an IngressController's router),
`Deployment/NAMESPACE/NAME` or `DaemonSet/...` (an ingress named by the Fleet).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import structlog
from prometheus_client import Gauge

from hostler.fleet.guard import FleetWatch
from hostler.fleet.model import NAME, IngressPolicy, IngressWorkload
from hostler.host.facts import Fact, Known
from hostler.ingress import conditions
from hostler.ingress.cluster import decide_backfill, decide_default
from hostler.ingress.decide import Facts, astray, decide, router_name, waiting
from hostler.ingress.lookup import FRESH_SECONDS, Lookup
from hostler.ingress.model import (
    CLUSTER,
    CONTROLLERS_IN,
    DEFAULT,
    INGRESS,
    INGRESS_CONTROLLER,
    ROUTERS_IN,
    Decision,
    Infrastructure,
    IngressConfig,
    IngressController,
    Placed,
    Write,
)
from hostler.ingress.observe import View, domain_of, facts_of, pods_of
from hostler.ingress.workloads import decide_workload
from hostler.instant import Instant
from hostler.kube.client import How
from hostler.kube.events import Recorder
from hostler.kube.kinds import DAEMON_SET, DEPLOYMENT, POD_DISRUPTION_BUDGET, Kind
from hostler.kube.metrics import Metrics
from hostler.kube.records import Metadata, Node, Pod, PodDisruptionBudget
from hostler.kube.watch import Watch
from hostler.kube.writer import Writer

log = structlog.get_logger("hostler.ingress")

CONTROLLER_KEY = "controller/"
# How soon to look again while a cache is being read: an empty kind sends no event when it is complete.
NOT_READY_SECONDS = 1.0


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

    def unread(self) -> str:
        """Why nothing can be decided yet; empty: every cache is complete, or its kind known not to exist."""
        for watch in (*self.own(), self.budgets, self.pods, self.nodes):
            if not watch.store.synced:
                return watch.problem or f"{watch.kind.resource} are still being read"
        if not self.fleet.store.synced:
            return "the Fleet is still being read"
        return ""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the settings say."""

    backfill: bool = False
    image: str = ""
    check_wildcard: bool = True


class IngressKeeper:
    """Reconciles ingress. Also answers `view` for whoever explains."""

    def __init__(
        self,
        caches: Caches,
        writer: Writer,
        recorder: Recorder,
        wishes: Wishes,
        *,
        metrics: Metrics,
        clock: Callable[[], Instant] = time.time,
        lookup: Lookup | None = None,
    ) -> None:
        self.caches = caches
        self._writer = writer
        self._recorder = recorder
        self._wishes = wishes
        self._clock = clock
        self._lookup = lookup or Lookup(clock)
        self._untrue: dict[str, dict[str, Instant]] = {}
        self._warned: set[tuple[str, str]] = set()
        self._stores: dict[Kind, tuple[type[Any], Watch[Any]]] = {
            INGRESS: (IngressConfig, caches.ingress),
            INGRESS_CONTROLLER: (IngressController, caches.controllers),
            DEPLOYMENT: (Placed, caches.deployments),
            DAEMON_SET: (Placed, caches.daemon_sets),
            POD_DISRUPTION_BUDGET: (PodDisruptionBudget, caches.budgets),
        }
        self._routers = Gauge(
            "hostler_ingress_routers", "Router pods, by what is the case.", ["controller", "what"],
            registry=metrics.registry,
        )  # fmt: skip

    # -- observing

    def policy(self) -> IngressPolicy:
        fleet = self.caches.fleet.store.get(NAME)
        return fleet.spec.ingress if fleet is not None else IngressPolicy()

    def view(self) -> View:
        caches = self.caches
        return View(
            ingress=caches.ingress.store.get(CLUSTER),
            infrastructure=caches.infrastructure.store.get(CLUSTER),
            controller=caches.controllers.store.get,
            deployment=caches.deployments.store.get,
            daemon_set=caches.daemon_sets.store.get,
            budget=caches.budgets.store.get,
            pods=caches.pods.store.values(),
            nodes=tuple(caches.nodes.store),
            policy=self.policy(),
            image=self._wishes.image,
        )

    def facts(self, name: str) -> Facts | None:
        """What is known of one IngressController now, without asking anybody."""
        view = self.view()
        controller = view.controller(f"{CONTROLLERS_IN}/{name}")
        if controller is None:
            return None
        return facts_of(view, name, self._addresses(controller, view), self._untrue.get(name))

    def workloads(self) -> Iterator[tuple[str, IngressWorkload]]:
        for asked in self.policy().workloads:
            yield f"{asked.kind}/{asked.namespace}/{asked.name}", asked

    def workload(self, asked: IngressWorkload) -> tuple[Decision, Placed | None]:
        """What is decided about an ingress that the Fleet names, and what it is now."""
        view = self.view()
        key = f"{asked.namespace}/{asked.name}"
        current = (view.daemon_set if asked.kind == "DaemonSet" else view.deployment)(key)
        return decide_workload(asked, current, view.nodes, view.policy.control_plane_label)[0], current

    def cluster(self) -> tuple[Decision, Decision]:
        """What is decided once for the cluster: the backfill, and the default IngressController."""
        view = self.view()
        default = view.controller(f"{CONTROLLERS_IN}/{DEFAULT}")
        return (
            decide_backfill(view.ingress, view.infrastructure, view.nodes, self._wishes.backfill),
            decide_default(view.ingress, view.infrastructure, default, view.nodes, view.policy.control_plane_label),
        )

    def all_keys(self) -> Iterator[str]:
        """Everything there is to look at."""
        yield CLUSTER
        for controller in self.caches.controllers.store:
            yield f"{CONTROLLER_KEY}{controller.metadata.name}"
        for key, _ in self.workloads():
            yield key

    # -- acting

    async def reconcile(self, key: str) -> float | None:
        why = self.caches.unread()
        if why:
            log.debug("not looking yet", key=key, why=why)
            return NOT_READY_SECONDS
        if key == CLUSTER:
            return await self._cluster()
        if key.startswith(CONTROLLER_KEY):
            return await self._controller(key.removeprefix(CONTROLLER_KEY))
        asked = dict(self.workloads()).get(key)
        if asked is None:
            return None
        decision, current = self.workload(asked)
        if current is not None:
            await self._act(decision, DAEMON_SET if asked.kind == "DaemonSet" else DEPLOYMENT, current.metadata)
        return decision.wake

    async def _cluster(self) -> float | None:
        caches = self.caches
        if caches.controllers.absent or caches.ingress.absent:
            return None  # no OpenShift: there is nothing to fill in and nothing to make
        if CLUSTER in caches.ingress.store.unreadable:
            return None
        backfill, default = self.cluster()
        ingress = caches.ingress.store.get(CLUSTER)
        if ingress is not None:
            await self._act(backfill, INGRESS, ingress.metadata)
        if backfill.writes:
            return NOT_READY_SECONDS  # the default placement is being decided; what follows from it comes after
        if ingress is not None and f"{CONTROLLERS_IN}/{DEFAULT}" not in caches.controllers.store.unreadable:
            await self._act(default, INGRESS, ingress.metadata)
        return None

    async def _controller(self, name: str) -> float | None:
        unread = self._unreadable(name)
        if unread:
            self._warn(name, unread)
            return None
        view = self.view()
        controller = view.controller(f"{CONTROLLERS_IN}/{name}")
        if controller is None:
            self._forget(name)
            return None
        self._remember(controller)
        domain = domain_of(controller, view.ingress)
        if domain and self._wishes.check_wildcard and not view.policy.wildcard_addresses:
            await self._lookup.look(domain)
        facts = self.facts(name)
        if facts is None:
            return None
        decision = decide(facts, view.rules(), self._clock())
        self._measure(name, facts, decision)
        await self._act(decision, INGRESS_CONTROLLER, controller.metadata)
        soonest = [decision.wake] if decision.wake is not None else []
        return min([*soonest, FRESH_SECONDS]) if facts.pointing is not None else min(soonest, default=None)

    async def _act(self, decision: Decision, kind: Kind, subject: Metadata) -> None:
        for one in decision.news:
            if one.type == "Warning":
                self._warn(subject.name, one.note)
                self._recorder.event(kind, subject, "Warning", one.reason, "Place", one.note)
        for write in decision.writes:
            await self._send(write)
        for one in decision.news:
            if one.type == "Normal" and not self._writer.dry_run:
                self._recorder.event(kind, subject, "Normal", one.reason, "Place", one.note)

    async def _send(self, write: Write) -> None:
        record, watch = self._stores[write.kind]
        match write.verb:
            case "create":
                answer = await self._writer.create(write.kind, write.body, write.namespace, type=record, why=write.why)
            case "delete":
                await self._writer.delete(write.kind, write.name, write.namespace, uid=write.uid, why=write.why)
                return
            case verb:
                how = How.APPLY if verb == "apply" else How.MERGE
                answer = await self._writer.patch(
                    write.kind, write.name, write.body, write.namespace, type=record, why=write.why, how=how,
                    subresource=write.subresource, force=how is How.APPLY,
                )  # fmt: skip
        if answer is not None:
            watch.store.overlay(answer)

    # -- small change

    def _addresses(self, controller: IngressController, view: View) -> Fact[tuple[str, ...]] | None:
        if not self._wishes.check_wildcard:
            return None
        if view.policy.wildcard_addresses:
            return Known(view.policy.wildcard_addresses, self._clock())
        return self._lookup.last(domain_of(controller, view.ingress))

    def _unreadable(self, name: str) -> str:
        """Why nothing is decided about this controller: an object that cannot be read is neither there nor absent."""
        looked = (
            (self.caches.ingress, CLUSTER),
            (self.caches.infrastructure, CLUSTER),
            (self.caches.deployments, f"{ROUTERS_IN}/{router_name(name)}"),
            (self.caches.budgets, f"{ROUTERS_IN}/{router_name(name)}"),
        )
        for watch, key in looked:
            if key in watch.store.unreadable:
                return f"{watch.kind.kind} {key} cannot be read: {watch.store.unreadable[key]}"
        return ""

    def _remember(self, controller: IngressController) -> None:
        """Since when we ourselves have seen a condition untrue: instants of another machine are not compared."""
        name, untrue = (
            controller.metadata.name,
            {one.type for one in controller.status.conditions if one.status == "False"},
        )
        known = self._untrue.setdefault(name, {})
        for type in conditions.GRACE:
            if type in untrue:
                known.setdefault(type, self._clock())
            else:
                known.pop(type, None)

    def _forget(self, name: str) -> None:
        if self._untrue.pop(name, None) is not None:
            for what in ("wanted", "available", "waiting", "astray"):
                self._routers.labels(name, what)  # a series that was never set cannot be removed
                self._routers.remove(name, what)

    def _measure(self, name: str, facts: Facts, decision: Decision) -> None:
        placed, router = decision.placement, facts.router
        counts = {
            "wanted": placed.replicas or 0 if placed is not None else 0,
            "available": router.status.available_replicas if router is not None else 0,
            "waiting": len(waiting(facts.pods)),
            "astray": len(astray(facts, placed)),
        }
        for what, number in counts.items():
            self._routers.labels(name, what).set(number)

    def _warn(self, name: str, note: str) -> None:
        """Said once; the Event counts the repeats."""
        if (name, note) not in self._warned:
            self._warned.add((name, note))
            log.warning("ingress cannot be as it is asked for", name=name, why=note)


def pods_on(keeper: IngressKeeper, workload: Placed | None) -> tuple[Pod, ...]:
    """The pods of a workload, from the cache."""
    return pods_of(keeper.caches.pods.store.values(), workload)
