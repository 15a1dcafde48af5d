"""Keeps ingress where it belongs: observe, decide, one patch per object and pass, and only when something differs.

Keys: `cluster` (the default IngressController and the backfill), `controller/NAME` (an IngressController's router),
`Deployment/NAMESPACE/NAME` or `DaemonSet/...` (an ingress named by the Fleet).
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import structlog

from hostler.apis.fleet import NAME, IngressPolicy, IngressWorkload
from hostler.host.conditions import Condition
from hostler.host.facts import Fact, Known
from hostler.host.reverts import RevertLog
from hostler.ingress import conditions
from hostler.ingress.apply import digest_of
from hostler.ingress.caches import Caches
from hostler.ingress.cluster import decide_backfill, decide_default
from hostler.ingress.decide import Facts, astray, decide, router_name, waiting
from hostler.ingress.gauges import IngressGauges
from hostler.ingress.lookup import FRESH_SECONDS, Lookup
from hostler.ingress.marking import key_of_workload
from hostler.ingress.model import (
    CLUSTER,
    CONTROLLERS_IN,
    DEFAULT,
    INGRESS,
    INGRESS_CONTROLLER,
    ROUTERS_IN,
    Decision,
    IngressController,
    Placed,
    Write,
)
from hostler.ingress.observe import View, domain_of, facts_of, pods_counted
from hostler.ingress.template import check_template
from hostler.ingress.workloads import decide_workload, fleet_conditions
from hostler.instant import Instant
from hostler.kube.cache import UNREAD_SECONDS
from hostler.kube.client import How
from hostler.kube.events import Recorder
from hostler.kube.kinds import DAEMON_SET, DEPLOYMENT, Kind
from hostler.kube.metrics import Metrics
from hostler.kube.records import Metadata
from hostler.kube.watch import Watch
from hostler.kube.writer import Writer

log = structlog.get_logger("hostler.ingress")

CONTROLLER_KEY = "controller/"
AFTER_BACKFILL_SECONDS = 1.0  # what follows from the default placement is decided once that is written


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the settings say."""

    backfill: bool = False
    image: str = ""
    check_wildcard: bool = True
    workloads: frozenset[str] = frozenset()  # that may be placed without the label of their owner


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
        changed: Callable[[], None],
        clock: Callable[[], Instant] = time.time,
        lookup: Lookup | None = None,
    ) -> None:
        """`changed` is told when our conditions in the Fleet's status changed."""
        self.caches = caches
        self._writer = writer
        self._recorder = recorder
        self._wishes = wishes
        self._clock = clock
        self._lookup = lookup or Lookup(clock)
        self._changed = changed
        self._untrue: dict[str, dict[str, Instant]] = {}
        self._warned: set[tuple[str, str]] = set()
        self._reverts = RevertLog()
        self._decided: dict[str, Decision] = {}  # of the ingresses that the Fleet names
        self._gauges = IngressGauges(metrics)
        self.conditions: tuple[Condition, ...] = ()
        written = (caches.ingress, caches.controllers, caches.deployments, caches.daemon_sets, caches.budgets)
        self._written: dict[Kind, Watch[Any]] = {watch.kind: watch for watch in written}

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
        reverts = self._reverts.of(f"{CONTROLLER_KEY}{name}")
        return facts_of(view, name, self._addresses(controller, view), self._untrue.get(name), reverts)

    def workloads(self) -> Iterator[tuple[str, IngressWorkload]]:
        for asked in self.policy().workloads:
            yield key_of_workload(asked), asked

    def workload(self, asked: IngressWorkload) -> tuple[Decision, Placed | None]:
        """What is decided about an ingress that the Fleet names, and what it is now."""
        view = self.view()
        key = f"{asked.namespace}/{asked.name}"
        current = (view.daemon_set if asked.kind == "DaemonSet" else view.deployment)(key)
        reverts = self._reverts.of(f"{asked.kind}/{key}")
        label, named = view.policy.control_plane_label, self._wishes.workloads
        return decide_workload(asked, current, view.nodes, label, self._clock(), reverts, named=named)[0], current

    def cluster(self) -> tuple[Decision, Decision]:
        """What is decided once for the cluster: the backfill, and the default IngressController."""
        view = self.view()
        default = view.controller(f"{CONTROLLERS_IN}/{DEFAULT}")
        return (
            decide_backfill(view.ingress, view.infrastructure, view.nodes, self._wishes.backfill),
            decide_default(view.ingress, view.infrastructure, default, view.nodes, view.policy.control_plane_label),
        )

    def clear_gauges(self) -> None:
        self._gauges.clear()

    def all_keys(self) -> Iterator[str]:
        """Everything there is to look at."""
        yield CLUSTER
        for controller in self.caches.controllers.store:
            yield f"{CONTROLLER_KEY}{controller.metadata.name}"
        yield from {**dict(self.workloads()), **self._decided}  # those that the Fleet no longer names too

    # -- acting

    async def reconcile(self, key: str) -> float | None:
        why = self.caches.unread()
        if why:
            log.debug("not looking yet", key=key, why=str(why))
            return UNREAD_SECONDS
        if key == CLUSTER:
            self._tell_fleet()
            return await self._cluster()
        if key.startswith(CONTROLLER_KEY):
            return await self._controller(key.removeprefix(CONTROLLER_KEY))
        return await self._workload(key)

    async def _workload(self, key: str) -> float | None:
        asked = dict(self.workloads()).get(key)
        if asked is None:
            self._reverts.forget(key)
            self._gauges.forget(key)
            self._decided.pop(key, None)
            self._tell_fleet()
            return None
        decision, current = self.workload(asked)
        if current is None or decision.refusal is not None:
            self._reverts.forget(key)  # nobody undoes what is not ours to place
        elif self._is_undone(key, decision):
            decision, current = self.workload(asked)
        self._gauges.show(key, decision)
        self._gauges.count(key, *pods_counted(current))
        self._decided[key] = decision
        self._tell_fleet()
        if current is not None:
            await self._act(decision, DAEMON_SET if asked.kind == "DaemonSet" else DEPLOYMENT, current.metadata, key)
        return decision.wake

    def _tell_fleet(self) -> None:
        """Keep what the Fleet's status says of what it asks for."""
        template = check_template(self.policy().router_template)
        conditions = fleet_conditions(sorted(self._decided.items(), key=lambda one: one[0]), template)
        if conditions != self.conditions:
            self.conditions = conditions
            self._changed()

    def _is_undone(self, key: str, decision: Decision) -> bool:
        """Count a placement that was in place and is not any more, though we decided the same."""
        if decision.placement is None:
            return False
        rule = digest_of(decision.placement)
        if decision.in_place:
            self._reverts.is_in_place(key, rule)
            return False
        if not self._reverts.is_undone(key, rule, self._clock()):
            return False
        self._gauges.reverted(key)
        return True

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
            return AFTER_BACKFILL_SECONDS
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
        decision, key = decide(facts, view.rules(), self._clock()), f"{CONTROLLER_KEY}{name}"
        if facts.router is None:
            self._reverts.forget(key)
        elif self._is_undone(key, decision):
            facts = dataclasses.replace(facts, reverts=self._reverts.of(key))
            decision = decide(facts, view.rules(), self._clock())
        self._measure(name, facts, decision)
        await self._act(decision, INGRESS_CONTROLLER, controller.metadata, key)
        soonest = [decision.wake] if decision.wake is not None else []
        return min([*soonest, FRESH_SECONDS]) if facts.pointing is not None else min(soonest, default=None)

    async def _act(self, decision: Decision, kind: Kind, subject: Metadata, key: str = "") -> None:
        for one in decision.news:
            if one.type == "Warning":
                self._warn(subject.name, one.note)
                self._recorder.event(kind, subject, "Warning", one.reason, "Place", one.note)
        for write in decision.writes:
            answer = await self._send(write)
            if key and answer is not None and decision.placement is not None and write.verb == "apply":
                self._reverts.is_in_place(key, digest_of(decision.placement))
        for one in decision.news:
            if one.type == "Normal" and not self._writer.dry_run:
                self._recorder.event(kind, subject, "Normal", one.reason, "Place", one.note)

    async def _send(self, write: Write) -> object | None:
        """The object as it is now; None where nothing was written, or nothing is left."""
        watch = self._written[write.kind]
        match write.verb:
            case "create":
                return await watch.create(self._writer, write.body, write.namespace, why=write.why)
            case "delete":
                await self._writer.delete(write.kind, write.name, write.namespace, uid=write.uid, why=write.why)
                return None
            case verb:
                how = How.APPLY if verb == "apply" else How.MERGE
                return await watch.patch(
                    self._writer, write.name, write.body, write.namespace, why=write.why, how=how,
                    subresource=write.subresource, force=how is How.APPLY,
                )  # fmt: skip

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
            {one.type for one in controller.status.conditions if one.status != "True"},
        )
        known = self._untrue.setdefault(name, {})
        for type in conditions.GRACE:
            if type in untrue:
                known.setdefault(type, self._clock())
            else:
                known.pop(type, None)

    def _forget(self, name: str) -> None:
        self._untrue.pop(name, None)
        self._reverts.forget(f"{CONTROLLER_KEY}{name}")
        self._gauges.forget(name)

    def _measure(self, name: str, facts: Facts, decision: Decision) -> None:
        placed, router = decision.placement, facts.router
        available = router.status.available_replicas if router is not None else 0
        wanted = placed.replicas or 0 if placed is not None else 0
        self._gauges.count(name, available, wanted, len(waiting(facts.pods)), len(astray(facts, placed)))
        self._gauges.show(name, decision)
        self._gauges.point(name, facts.pointing)

    def _warn(self, name: str, note: str) -> None:
        """Said once; the Event counts the repeats."""
        if (name, note) not in self._warned:
            self._warned.add((name, note))
            log.warning("ingress cannot be as it is asked for", name=name, why=note)
