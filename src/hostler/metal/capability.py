"""The capability as the operator sees it: its watches, its controllers, what wakes what, what it explains."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from hostler.apis import capi, openshift
from hostler.apis.metal3 import GROUP, BareMetalHost
from hostler.capability import Capability
from hostler.explain.registry import Registry
from hostler.host.conditions import Condition
from hostler.kube.budget import WriteBudget
from hostler.kube.client import Client, Gate
from hostler.kube.clusters import Clusters
from hostler.kube.controller import Controller, Reconcile
from hostler.kube.http import Server
from hostler.kube.store import Store
from hostler.kube.watch import Watch
from hostler.kube.writer import Writer
from hostler.metal import names
from hostler.metal import settings as say
from hostler.metal.caches import Caches, DataCaches, watch_in
from hostler.metal.claiming.choose import Policy, Selection
from hostler.metal.claiming.claims import Claims
from hostler.metal.claiming.reservations import ReservedHostReconciler
from hostler.metal.clusters import ClusterReconciler, TemplateReconciler
from hostler.metal.controller import MachineReconciler
from hostler.metal.data.controller import CLAIM, DATA, DataReconciler
from hostler.metal.explain import MetalExplainers
from hostler.metal.host_layers import MetalSource
from hostler.metal.kinds.webhooks import KEY as WEBHOOKS
from hostler.metal.kinds.webhooks import MetalWebhooks
from hostler.metal.model import consumer_key, owner_key
from hostler.metal.nodes import LabelReconciler, NodeFinder
from hostler.metal.remediation.controller import RemediationReconciler
from hostler.metal.scope import Scope
from hostler.metal.toolbox import Toolbox
from hostler.metal.wakeups import Followers, Queues, Wakeups
from hostler.shared import Shared

SWEEP_SECONDS = 60.0
# Side by side: one whose cluster does not answer must not hold up the others.
REMEDIATORS = 8


WhyOutside = Callable[[str], str]


class Scoped:
    """Answers by key. Only the label matters here: what is in another namespace is in no cache."""

    def __init__(self, caches: Caches, data: DataCaches) -> None:
        self._caches, self._data, self._scope = caches, data, caches.scope

    def only(self, reconcile: Reconcile, why_outside: WhyOutside) -> Reconcile:
        """Reconcile nothing that is out of scope."""
        if not self._scope.watch_filter:
            return reconcile

        async def reconcile_in_scope(key: str) -> float | None:
            return None if why_outside(key) else await reconcile(key)

        return reconcile_in_scope

    def by_label(self, store: Store[Any]) -> WhyOutside:
        """By the object's own label. One that is gone is let through: whoever remembers it forgets it."""

        def why_outside(key: str) -> str:
            found = store.get(key)
            return self._scope.why_filtered(found.metadata) if found is not None else ""

        return why_outside

    def host(self, key: str) -> str:
        """By the machine that has it; without one by its own label or its Cluster's, which keep it for the next."""
        host = self._caches.hosts.store.get(key)
        if host is None:
            return ""
        machine = self._caches.machines.store.get(consumer_key(host))
        if machine is not None:
            return self._scope.why_filtered(machine.metadata)
        why, cluster = self._scope.why_filtered(host.metadata), self._cluster_of(host)
        if why and cluster is not None:
            return self._scope.why_filtered(cluster.metadata)
        return why

    def _cluster_of(self, host: BareMetalHost) -> Any:
        meta = host.metadata
        name = meta.labels.get(capi.CLUSTER_NAME, "")
        return self._caches.capi_clusters.store.get(names.key(meta.namespace, name))

    def data(self, key: str) -> str:
        """A claim by its own label, or its machine's; a data by its own, or its claim's; a template by its own."""
        name = key.partition(":")[2]
        if key.startswith(CLAIM):
            return self._claim(name)
        if key.startswith(DATA):
            data = self._data.datas.store.get(name)
            if data is None or not (why := self._scope.why_filtered(data.metadata)):
                return ""
            claim = names.key(data.metadata.namespace, data.spec.claim.name)
            return self._claim(claim) if self._data.claims.store.get(claim) is not None else why
        return self.by_label(self._data.templates.store)(name)

    def _claim(self, key: str) -> str:
        claim = self._data.claims.store.get(key)
        if claim is None or not (why := self._scope.why_filtered(claim.metadata)):
            return ""
        machine = self._caches.machines.store.get(owner_key(claim.metadata, "Metal3Machine"))
        return self._scope.why_filtered(machine.metadata) if machine is not None else why


class MetalCapability(Capability):
    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        client, settings, metrics = shared.client, shared.settings, shared.metrics
        # A budget of its own: a thousand machines at once must not keep a node from being held.
        rate = settings[say.METAL_WRITES_PER_SECOND]
        budget = WriteBudget(rate, max(1, int(rate)))

        def writer_for(other: Client) -> Writer:
            return shared.writers.of("metal", budget, other)

        scope = Scope(settings[say.METAL_NAMESPACES], settings[say.METAL_WATCH_FILTER])
        self.caches, self._data = Caches.make(client, metrics, scope), DataCaches.make(client, metrics, scope)
        # Optional: only which node a host of an OpenShift Machine is comes from it, and nothing is decided by it.
        self._openshift = watch_in(
            scope, client, openshift.MACHINE, openshift.Machine, metrics=metrics, optional=True
        )  # fmt: skip
        self._clusters = Clusters(client)
        tools = Toolbox(
            self.caches, self._data, client, writer_for(client), shared.recorder, metrics, self._clusters, writer_for
        )  # fmt: skip
        policy = Policy(Selection(settings[say.METAL_SELECTION]), settings[say.METAL_STRICT_FAILURE_DOMAINS])
        self.claims = Claims(tools, policy, self._wake_waiting, later=_later)
        data = DataReconciler(tools, by_host_name=settings[say.PREALLOCATION])
        fast_track, nodes = settings[say.METAL_FAST_TRACK], NodeFinder(self._clusters, writer_for)
        self.machines = MachineReconciler(tools, self.claims, data, nodes, fast_track=fast_track)
        self.remediations = RemediationReconciler(tools, shaky=self.claims.shaky, stepped=shared.stepped)
        followers = Followers(self.claims, self.machines, data, ReservedHostReconciler(tools), self.remediations)
        self._queues = self._add_controllers(tools, followers, settings[say.METAL_WORKERS])
        self._wakeups = Wakeups(self.caches, self._data, followers, self._queues)
        self._webhooks: MetalWebhooks | None = None
        if settings[say.METAL_WEBHOOKS] and not shared.writers.dry_run:
            self._webhooks = MetalWebhooks(shared)
            self._certificates = self.add_controller("metal webhooks", self._webhooks.keep)
            # An object stored in v1beta1 is read through our own webhook, and a Service sends requests to ready pods
            # only: who waited for these caches would never be ready.
            for watch in self.watches():
                watch.optional = watch.optional or watch.kind.group == GROUP

    def _add_controllers(self, tools: Toolbox, followers: Followers, workers: int) -> Queues:
        caches, scoped = self.caches, Scoped(self.caches, self._data)

        def add(name: str, reconcile: Reconcile, why_outside: WhyOutside, workers: int = 1) -> Controller:
            return self.add_controller(f"metal {name}", scoped.only(reconcile, why_outside), workers)

        by_label, remediations = scoped.by_label, caches.remediations.store
        return Queues(
            machines=add("machines", followers.machines.reconcile, by_label(caches.machines.store), workers),
            clusters=add("clusters", ClusterReconciler(tools).reconcile, by_label(caches.clusters.store), 2),
            templates=add("templates", TemplateReconciler(tools).reconcile, by_label(caches.templates.store)),
            reserved_hosts=add("reserved hosts", followers.reserved.reconcile, scoped.host),
            data=add("data", followers.data.reconcile, scoped.data, workers),
            remediations=add("remediations", followers.remediations.reconcile, by_label(remediations), REMEDIATORS),
            labels=add("labels", LabelReconciler(tools).reconcile, scoped.host, 2),
        )

    def watches(self) -> Iterator[Watch[Any]]:
        yield from self.caches.all()
        yield from self._data.all()
        yield self._openshift
        if self._webhooks is not None:
            yield self._webhooks.keeper.watch

    async def run(self) -> None:
        """Beside the controllers; a part that ends by itself is an error, and ends the others."""
        parts = [self._look_at_all(), *([self._webhooks.run()] if self._webhooks is not None else [])]
        tasks = [asyncio.create_task(one) for one in parts]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _look_at_all(self) -> None:
        """Look at everything the moment it is all read; then close clients of workload clusters nobody uses."""
        for watch in self.watches():
            await watch.synced.wait()
        self.wake_all()
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            await self._clusters.sweep()

    async def close(self) -> None:
        await self._clusters.close()

    def register(self, registry: Registry, gate: Gate) -> None:
        MetalExplainers(self.machines, self.remediations, gate, time.time).register(registry)

    def serve(self, server: Server, notes: Callable[[], tuple[str, ...]]) -> None:
        if self._webhooks is not None:
            server.ready_if("metal webhooks", self._webhooks.not_serving)

    def conditions(self) -> Iterable[Condition]:
        if self._webhooks is None:
            return ()
        return self._webhooks.conditions()

    def host_source(self, cluster: str) -> MetalSource:
        nodes, openshift_machines = self.shared.nodes.store, self._openshift.store
        return MetalSource(self.machines, self.remediations, nodes, openshift_machines, cluster, time.time)

    def led(self, held: bool) -> None:
        self.machines.led(held)
        if self._webhooks is not None:
            self._webhooks.led(held)

    def wake_all(self) -> None:
        """Everything again; machines that only wait for a host last."""
        if self._webhooks is not None:
            self._certificates.queue.add(WEBHOOKS)
        self._wakeups.wake_all()

    def listen(self) -> None:
        self._wakeups.listen()
        if self._webhooks is not None:
            self._webhooks.keeper.watch.store.listen(self._certificate_changed)

    def _certificate_changed(self, *_: object) -> None:
        assert self._webhooks is not None
        self._webhooks.secret_changed()
        self._certificates.queue.add(WEBHOOKS)

    def _wake_waiting(self, key: str) -> None:
        self._queues.machines.queue.add(key, priority=0)


def _later(seconds: float, call: Callable[[], None]) -> object:
    return asyncio.get_running_loop().call_later(seconds, call)
