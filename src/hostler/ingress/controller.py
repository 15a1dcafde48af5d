"""Keeps ingress where it belongs: observe, decide, one patch per object and pass, and only when something differs.

Keys: `cluster` (the default IngressController and the backfill), `controller/NAME` (an IngressController's router),
`Deployment/NAMESPACE/NAME` or `DaemonSet/...` (an ingress named by the Fleet). `explain` and `plan` show the decisions
of `decide_cluster`, `decide_router` and `decide_workload`: the ones that `reconcile` carries out.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import structlog

from hostler.apis.fleet import NAME, IngressPolicy, IngressWorkload
from hostler.apis.openshift import INGRESS, INGRESS_CONTROLLER, IngressController
from hostler.host.conditions import Condition
from hostler.host.facts import Fact, Known
from hostler.host.reverts import Revert, RevertLog
from hostler.ingress import conditions, workloads
from hostler.ingress.cluster_defaults import ClusterDecision, decide_cluster
from hostler.ingress.decide import Facts, astray, decide, waiting
from hostler.ingress.executor import IngressExecutor
from hostler.ingress.model import CLUSTER, CONTROLLERS_IN, Decision, Placed
from hostler.ingress.observe import FRESH_SECONDS, Caches, NameLookup, View, domain_of, facts_of, pods_counted
from hostler.ingress.placement_patch import digest_of
from hostler.ingress.refusals import check_template, key_of_workload
from hostler.ingress.status import IngressMetrics
from hostler.instant import Instant
from hostler.kube.cache import UNREAD_SECONDS
from hostler.kube.events import Recorder
from hostler.kube.kinds import DAEMON_SET, DEPLOYMENT, Kind
from hostler.kube.metrics import Metrics
from hostler.kube.records import Metadata
from hostler.kube.writer import Writer

log = structlog.get_logger("hostler.ingress")

CONTROLLER_KEY = "controller/"


@dataclass(frozen=True, slots=True)
class Options:
    """What the operator's settings say."""

    backfill: bool = False
    image: str = ""
    check_wildcard: bool = True
    workloads: frozenset[str] = frozenset()  # that may be placed without the label of their owner


class IngressKeeper:
    """Reconciles ingress, and shows its decisions to `explain` and `plan`."""

    def __init__(
        self,
        caches: Caches,
        writer: Writer,
        recorder: Recorder,
        options: Options,
        *,
        metrics: Metrics,
        changed: Callable[[], None],
        clock: Callable[[], Instant] = time.time,
        lookup: NameLookup | None = None,
    ) -> None:
        """`changed` is called when our conditions in the Fleet's status changed."""
        self.caches = caches
        self._executor = IngressExecutor(caches, writer, recorder)
        self._options = options
        self._clock = clock
        self._lookup = lookup or NameLookup(clock)
        self._changed = changed
        self._untrue: dict[str, dict[str, Instant]] = {}
        self._warned: set[tuple[str, str]] = set()
        self._reverts = RevertLog()
        self._decided: dict[str, Decision] = {}  # of the ingresses that the Fleet names
        self._gauges = IngressMetrics(metrics)
        self.conditions: tuple[Condition, ...] = ()

    # -- observing

    def policy(self) -> IngressPolicy:
        fleet = self.caches.fleet.store.get(NAME)
        return fleet.spec.ingress if fleet is not None else IngressPolicy()

    def workloads(self) -> Iterator[tuple[str, IngressWorkload]]:
        for asked in self.policy().workloads:
            yield key_of_workload(asked), asked

    def all_keys(self) -> Iterator[str]:
        """Everything there is to reconcile."""
        yield CLUSTER
        for controller in self.caches.controllers.store:
            yield f"{CONTROLLER_KEY}{controller.metadata.name}"
        yield from {**dict(self.workloads()), **self._decided}  # those that the Fleet no longer names too

    def _view(self) -> View:
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
            image=self._options.image,
            openshift=not (caches.controllers.absent or caches.ingress.absent),
            unreadable=caches.unreadable,
        )

    def _addresses(self, controller: IngressController, view: View) -> Fact[tuple[str, ...]] | None:
        if not self._options.check_wildcard:
            return None
        if view.policy.wildcard_addresses:
            return Known(view.policy.wildcard_addresses, self._clock())
        return self._lookup.last(domain_of(controller, view.ingress))

    # -- deciding

    def decide_cluster(self) -> ClusterDecision:
        """What is decided once for the cluster: the backfill, and the default IngressController."""
        return decide_cluster(self._view().cluster(self._options.backfill))

    def decide_router(self, name: str) -> tuple[Facts, Decision] | None:
        """The facts about one IngressController and what is decided from them; None: there is none of that name."""
        view, now, key = self._view(), self._clock(), f"{CONTROLLER_KEY}{name}"
        controller = view.controller(f"{CONTROLLERS_IN}/{name}")
        if controller is None:
            return None
        addresses, rules = self._addresses(controller, view), view.rules()
        facts = facts_of(view, controller, addresses, self._untrue.get(name), self._reverts.of(key))
        decision = decide(facts, rules, now)
        if self._is_undone(key, decision):
            facts = dataclasses.replace(facts, reverts=self._reverts_with_now(key, decision, now))
            decision = decide(facts, rules, now)
        return facts, decision

    def decide_workload(self, asked: IngressWorkload) -> tuple[Placed | None, Decision]:
        """An ingress that the Fleet names, and what is decided about it."""
        view, now, key = self._view(), self._clock(), key_of_workload(asked)
        found, label = view.workload(asked), view.policy.control_plane_label

        def made(reverts: tuple[Revert, ...]) -> Decision:
            return workloads.decide_workload(
                asked, found, view.nodes, label, now, reverts, named=self._options.workloads
            )

        decision = made(self._reverts.of(key))
        if self._is_undone(key, decision):
            decision = made(self._reverts_with_now(key, decision, now))
        return found if isinstance(found, Placed) else None, decision

    # -- acting

    async def reconcile(self, key: str) -> float | None:
        why = self.caches.unread()
        if why:
            log.debug("not reconciling yet", key=key, why=str(why))
            return UNREAD_SECONDS
        if key == CLUSTER:
            self._update_conditions()
            return await self._reconcile_cluster()
        if key.startswith(CONTROLLER_KEY):
            return await self._reconcile_router(key.removeprefix(CONTROLLER_KEY))
        return await self._reconcile_workload(key)

    async def _reconcile_cluster(self) -> float | None:
        decided, ingress = self.decide_cluster(), self.caches.ingress.store.get(CLUSTER)
        if ingress is None:
            return None
        for decision in (decided.backfill, decided.default):
            await self._carry_out(decision, INGRESS, ingress.metadata)
        return decided.backfill.wake

    async def _reconcile_router(self, name: str) -> float | None:
        view = self._view()
        controller = view.controller(f"{CONTROLLERS_IN}/{name}")
        if controller is None:
            self._forget(name)
            return None
        self._remember(controller)
        domain = domain_of(controller, view.ingress)
        if domain and self._options.check_wildcard and not view.policy.wildcard_addresses:
            await self._lookup.look(domain)
        decided, key = self.decide_router(name), f"{CONTROLLER_KEY}{name}"
        if decided is None:
            return None
        facts, decision = decided
        if decision.unreadable is not None:
            self._warn(name, str(decision.unreadable))
            return None
        self._count_reverts(key, decision, placed=facts.router is not None)
        self._measure(name, facts, decision)
        await self._carry_out(decision, INGRESS_CONTROLLER, controller.metadata, key)
        soonest = [decision.wake] if decision.wake is not None else []
        return min([*soonest, FRESH_SECONDS]) if facts.pointing is not None else min(soonest, default=None)

    async def _reconcile_workload(self, key: str) -> float | None:
        asked = dict(self.workloads()).get(key)
        if asked is None:
            self._reverts.forget(key)
            self._gauges.forget(key)
            self._decided.pop(key, None)
            self._update_conditions()
            return None
        current, decision = self.decide_workload(asked)
        if decision.unreadable is not None:
            self._warn(asked.name, str(decision.unreadable))
            return None
        # A workload that is not ours to place is undone by nobody.
        self._count_reverts(key, decision, placed=current is not None and decision.refusal is None)
        self._gauges.show(key, decision)
        self._gauges.count(key, *pods_counted(current))
        self._decided[key] = decision
        self._update_conditions()
        if current is not None:
            kind = DAEMON_SET if asked.kind == "DaemonSet" else DEPLOYMENT
            await self._carry_out(decision, kind, current.metadata, key)
        return decision.wake

    async def _carry_out(self, decision: Decision, kind: Kind, subject: Metadata, key: str = "") -> None:
        for one in decision.news:
            if one.type == "Warning":
                self._warn(subject.name, one.note)
        await self._executor.carry_out(decision, kind, subject, lambda: self._is_applied(key, decision))

    # -- reverts, by our own clock

    def _is_undone(self, key: str, decision: Decision) -> bool:
        """The same placement was in place before and is not any more."""
        placed = decision.placement
        return placed is not None and not decision.in_place and self._reverts.was_in_place(key, digest_of(placed))

    def _reverts_with_now(self, key: str, decision: Decision, now: Instant) -> tuple[Revert, ...]:
        assert decision.placement is not None
        return (*self._reverts.of(key), Revert(digest_of(decision.placement), now))

    def _count_reverts(self, key: str, decision: Decision, *, placed: bool) -> None:
        """Remember what the decision was made from; `placed`: there is a workload that is ours to place."""
        if not placed:
            self._reverts.forget(key)
        elif decision.placement is None:
            return
        elif decision.in_place:
            self._is_applied(key, decision)
        elif self._reverts.is_undone(key, digest_of(decision.placement), self._clock()):
            self._gauges.reverted(key)

    def _is_applied(self, key: str, decision: Decision) -> None:
        if key and decision.placement is not None:
            self._reverts.is_in_place(key, digest_of(decision.placement))

    # -- status and metrics

    def _update_conditions(self) -> None:
        """Keep what the Fleet's status says of what it asks for."""
        template = check_template(self.policy().router_template)
        made = workloads.fleet_conditions(sorted(self._decided.items(), key=lambda one: one[0]), template)
        if made != self.conditions:
            self.conditions = made
            self._changed()

    def clear_gauges(self) -> None:
        self._gauges.clear()

    def _measure(self, name: str, facts: Facts, decision: Decision) -> None:
        placed, router = decision.placement, facts.router
        available = router.status.available_replicas if router is not None else 0
        wanted = placed.replicas or 0 if placed is not None else 0
        self._gauges.count(name, available, wanted, len(waiting(facts.pods)), len(astray(facts, placed)))
        self._gauges.show(name, decision)
        self._gauges.point(name, facts.pointing)

    def _warn(self, name: str, note: str) -> None:
        """Logged once; the Event counts the repeats."""
        if (name, note) not in self._warned:
            self._warned.add((name, note))
            log.warning("ingress cannot be as it is asked for", name=name, why=note)

    def _remember(self, controller: IngressController) -> None:
        """Since when we ourselves have seen a condition untrue: instants of another machine are not compared."""
        untrue = {one.type for one in controller.status.conditions if one.status != "True"}
        known = self._untrue.setdefault(controller.metadata.name, {})
        for type in conditions.GRACE:
            if type in untrue:
                known.setdefault(type, self._clock())
            else:
                known.pop(type, None)

    def _forget(self, name: str) -> None:
        self._untrue.pop(name, None)
        self._reverts.forget(f"{CONTROLLER_KEY}{name}")
        self._gauges.forget(name)
