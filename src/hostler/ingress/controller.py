"""Keeps ingress where it belongs: observe, decide, one patch per object and pass, and only when something differs.

Keys: `cluster` (the default IngressController and the backfill), `controller/NAME` (an IngressController's router),
`Deployment/NAMESPACE/NAME` or `DaemonSet/...` (an ingress named by the Fleet). `explain` and `plan` show the decisions
of `decide_cluster`, `decide_router` and `decide_workload`: the ones that `reconcile` carries out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import structlog

from hostler.apis.fleet import IngressWorkload
from hostler.apis.openshift import INGRESS, INGRESS_CONTROLLER
from hostler.ingress import workloads
from hostler.ingress.cluster_defaults import ClusterDecision, decide_cluster
from hostler.ingress.decide import Facts, decide
from hostler.ingress.executor import IngressExecutor
from hostler.ingress.model import CLUSTER, CONTROLLERS_IN, Decision, Placed
from hostler.ingress.observe import FRESH_SECONDS, Observer, domain_of, facts_of
from hostler.ingress.placement_patch import digest_of
from hostler.ingress.refusals import check_template, key_of_workload
from hostler.ingress.status import IngressReport
from hostler.kube.cache import UNREAD_SECONDS
from hostler.kube.kinds import DAEMON_SET, DEPLOYMENT, Kind
from hostler.kube.records import Metadata

log = structlog.get_logger("hostler.ingress")

CONTROLLER_KEY = "controller/"


class IngressReconciler:
    """Reconciles ingress, and shows its decisions to `explain` and `plan`."""

    def __init__(self, observer: Observer, executor: IngressExecutor, report: IngressReport) -> None:
        self.observer, self.report = observer, report
        self._executor = executor
        self._decided: dict[str, Decision] = {}  # of the ingresses that the Fleet names

    def all_keys(self) -> Iterator[str]:
        """Everything there is to reconcile."""
        yield CLUSTER
        for controller in self.observer.caches.controllers.store:
            yield f"{CONTROLLER_KEY}{controller.metadata.name}"
        # Those that the Fleet no longer names too.
        yield from {**dict(self.observer.workloads()), **self._decided}

    # -- deciding

    def decide_cluster(self) -> ClusterDecision:
        """What is decided once for the cluster: the backfill, and the default IngressController."""
        return decide_cluster(self.observer.view().cluster(self.observer.options.backfill))

    def decide_router(self, name: str) -> tuple[Facts, Decision] | None:
        """The facts about one IngressController and what is decided from them; None: there is none of that name."""
        observer, key = self.observer, f"{CONTROLLER_KEY}{name}"
        view, now = observer.view(), observer.clock()
        controller = view.controller(f"{CONTROLLERS_IN}/{name}")
        if controller is None:
            return None
        addresses, rules = observer.addresses(controller, view), view.rules()
        facts = facts_of(view, controller, addresses, observer.untrue_since.get(name), observer.reverts.of(key))
        decision = decide(facts, rules, now)
        if self._is_undone(key, decision):
            facts = dataclasses.replace(facts, reverts=observer.reverts_now(key, decision, now))
            decision = decide(facts, rules, now)
        return facts, decision

    def decide_workload(self, asked: IngressWorkload) -> tuple[Placed | None, Decision]:
        """An ingress that the Fleet names, and what is decided about it."""
        observer, key = self.observer, key_of_workload(asked)
        view, now = observer.view(), observer.clock()
        facts = workloads.WorkloadFacts(
            asked, view.workload(asked), view.nodes, view.policy.control_plane_label, observer.reverts.of(key),
            observer.options.workloads,
        )  # fmt: skip
        decision = workloads.decide_workload(facts, now)
        if self._is_undone(key, decision):
            facts = dataclasses.replace(facts, reverts=observer.reverts_now(key, decision, now))
            decision = workloads.decide_workload(facts, now)
        return facts.found if isinstance(facts.found, Placed) else None, decision

    # -- acting

    async def reconcile(self, key: str) -> float | None:
        why = self.observer.caches.unread()
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
        decided, ingress = self.decide_cluster(), self.observer.caches.ingress.store.get(CLUSTER)
        if ingress is None:
            return None
        for decision in (decided.backfill, decided.default):
            await self._carry_out(decision, INGRESS, ingress.metadata)
        return decided.backfill.wake

    async def _reconcile_router(self, name: str) -> float | None:
        view = self.observer.view()
        controller = view.controller(f"{CONTROLLERS_IN}/{name}")
        if controller is None:
            self._forget(name)
            return None
        self.observer.remember_untrue(controller)
        await self.observer.look_up(domain_of(controller, view.ingress), view)
        decided, key = self.decide_router(name), f"{CONTROLLER_KEY}{name}"
        if decided is None:
            return None
        facts, decision = decided
        if decision.unreadable is not None:
            self.report.warn(name, str(decision.unreadable))
            return None
        self._count_reverts(key, decision, placed=facts.router is not None)
        self.report.show_router(name, facts, decision)
        await self._carry_out(decision, INGRESS_CONTROLLER, controller.metadata, key)
        soonest = [decision.wake] if decision.wake is not None else []
        return min([*soonest, FRESH_SECONDS]) if facts.pointing is not None else min(soonest, default=None)

    async def _reconcile_workload(self, key: str) -> float | None:
        asked = dict(self.observer.workloads()).get(key)
        if asked is None:
            self.observer.reverts.forget(key)
            self.report.metrics.forget(key)
            self._decided.pop(key, None)
            self._update_conditions()
            return None
        current, decision = self.decide_workload(asked)
        if decision.unreadable is not None:
            self.report.warn(asked.name, str(decision.unreadable))
            return None
        # A workload that is not ours to place is undone by nobody.
        self._count_reverts(key, decision, placed=current is not None and decision.refusal is None)
        self.report.show_workload(key, current, decision)
        self._decided[key] = decision
        self._update_conditions()
        if current is not None:
            kind = DAEMON_SET if asked.kind == "DaemonSet" else DEPLOYMENT
            await self._carry_out(decision, kind, current.metadata, key)
        return decision.wake

    async def _carry_out(self, decision: Decision, kind: Kind, subject: Metadata, key: str = "") -> None:
        for notice in decision.notices:
            if notice.type == "Warning":
                self.report.warn(subject.name, notice.note)
        await self._executor.carry_out(decision, kind, subject, lambda: self._is_applied(key, decision))

    def _update_conditions(self) -> None:
        """Keep what the Fleet's status says of what it asks for."""
        template = check_template(self.observer.policy().router_template)
        decisions = sorted(self._decided.items(), key=lambda entry: entry[0])
        self.report.set_conditions(workloads.fleet_conditions(decisions, template))

    # -- reverts, by our own clock

    def _is_undone(self, key: str, decision: Decision) -> bool:
        """The same placement was in place before and is not any more."""
        placed, reverts = decision.placement, self.observer.reverts
        return placed is not None and not decision.in_place and reverts.was_in_place(key, digest_of(placed))

    def _count_reverts(self, key: str, decision: Decision, *, placed: bool) -> None:
        """Remember what the decision was made from; `placed`: there is a workload that is ours to place."""
        reverts = self.observer.reverts
        if not placed:
            reverts.forget(key)
        elif decision.placement is None:
            return
        elif decision.in_place:
            self._is_applied(key, decision)
        elif reverts.is_undone(key, digest_of(decision.placement), self.observer.clock()):
            self.report.metrics.reverted(key)

    def _is_applied(self, key: str, decision: Decision) -> None:
        if key and decision.placement is not None:
            self.observer.reverts.is_in_place(key, digest_of(decision.placement))

    def _forget(self, name: str) -> None:
        self.observer.untrue_since.pop(name, None)
        self.observer.reverts.forget(f"{CONTROLLER_KEY}{name}")
        self.report.metrics.forget(name)
