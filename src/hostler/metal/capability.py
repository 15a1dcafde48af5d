"""The capability as the operator sees it: its watches, its controllers, what wakes what, what it explains."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from hostler.apis import capi, openshift
from hostler.apis.capi import Cluster, Machine
from hostler.apis.metal3 import GROUP, BareMetalHost, BmcSecret, Metal3Cluster, Metal3Machine, Metal3MachineTemplate
from hostler.apis.metal3_data import Data, DataClaim, DataTemplate, IpAddress, IpClaim
from hostler.capability import Capability
from hostler.explain.registry import Registry
from hostler.host.conditions import Condition
from hostler.kube.budget import WriteBudget
from hostler.kube.client import Client, Gate
from hostler.kube.clusters import Clusters
from hostler.kube.controller import Controller, Reconcile
from hostler.kube.http import Server
from hostler.kube.records import key_of
from hostler.kube.store import Store
from hostler.kube.watch import Watch
from hostler.kube.writer import Writer
from hostler.metal import names
from hostler.metal import settings as say
from hostler.metal.caches import Caches, DataCaches, owner_datas, watch_in
from hostler.metal.claiming.choose import Policy, Selection
from hostler.metal.claiming.claims import Claims
from hostler.metal.claiming.reservations import ReservedHostKeeper, is_upkept
from hostler.metal.clusters import ClusterKeeper, TemplateKeeper
from hostler.metal.controller import MachineKeeper
from hostler.metal.data.controller import CLAIM, DATA, TEMPLATE, DataDesk
from hostler.metal.explain import MetalExplainers
from hostler.metal.host_layers import MetalSource
from hostler.metal.kinds.webhooks import KEY as WEBHOOKS
from hostler.metal.kinds.webhooks import MetalWebhooks
from hostler.metal.model import consumer_key, owner_key
from hostler.metal.nodes import LabelKeeper, Nodes
from hostler.metal.remediation.controller import Remediator
from hostler.metal.remediation.model import Remediation
from hostler.metal.scope import Scope
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
        client, settings, metrics, recorder = shared.client, shared.settings, shared.metrics, shared.recorder
        # A budget of its own: a thousand machines at once must not keep a node from being held.
        rate = settings[say.METAL_WRITES_PER_SECOND]
        budget = WriteBudget(rate, max(1, int(rate)))

        def writer_for(other: Client) -> Writer:
            return shared.writers.of("metal", budget, other)

        scope = Scope(settings[say.METAL_NAMESPACES], settings[say.METAL_WATCH_FILTER])
        self.caches = caches = Caches.make(client, metrics, scope)
        # Optional: only which node a host of an OpenShift Machine is comes from it, and nothing is decided by it.
        self._openshift = watch_in(
            scope, client, openshift.MACHINE, openshift.Machine, metrics=metrics, optional=True
        )  # fmt: skip
        self._clusters = Clusters(client)
        writer = writer_for(client)
        policy = Policy(Selection(settings[say.METAL_SELECTION]), settings[say.METAL_STRICT_FAILURE_DOMAINS])
        self.claims = Claims(caches, client, writer, policy, self._wake_waiting, later=_later)
        self._data = DataCaches.make(client, metrics, scope)
        self._desk = DataDesk(caches, self._data, client, writer, by_host_name=settings[say.PREALLOCATION])
        self.keeper = MachineKeeper(
            caches, self.claims, Nodes(self._clusters, writer_for), client, writer, recorder, metrics=metrics,
            data=self._desk, fast_track=settings[say.METAL_FAST_TRACK],
        )  # fmt: skip
        self._reserved = ReservedHostKeeper(caches, writer, recorder)
        self.remediator = Remediator(
            caches, self._clusters, writer_for, writer, recorder, metrics=metrics, shaky=self.claims.shaky,
            stepped=shared.stepped,
        )  # fmt: skip

        scoped, workers = Scoped(caches, self._data), settings[say.METAL_WORKERS]

        def add(name: str, reconcile: Reconcile, why_outside: WhyOutside, workers: int = 1) -> Controller:
            return self.add_controller(f"metal {name}", scoped.only(reconcile, why_outside), workers)

        by_label = scoped.by_label
        self._machines = add("machines", self.keeper.reconcile, by_label(caches.machines.store), workers)
        self._metal_clusters = add(
            "clusters", ClusterKeeper(caches, writer).reconcile, by_label(caches.clusters.store), 2
        )
        self._templates = add("templates", TemplateKeeper(caches, writer).reconcile, by_label(caches.templates.store))
        self._hosts = add("reserved hosts", self._reserved.reconcile, scoped.host)
        self._datas = add("data", self._desk.reconcile, scoped.data, workers)
        self._remediations = add(
            "remediations", self.remediator.reconcile, by_label(caches.remediations.store), REMEDIATORS
        )
        self._labels = add("labels", LabelKeeper(caches, self._clusters, writer_for).reconcile, scoped.host, 2)
        self._webhooks: MetalWebhooks | None = None
        if settings[say.METAL_WEBHOOKS] and not shared.writers.dry_run:
            self._webhooks = MetalWebhooks(shared)
            self._certificates = self.add_controller("metal webhooks", self._webhooks.keep)
            # An object stored in v1beta1 is read through our own webhook, and a Service sends requests to ready pods
            # only: who waited for these caches would never be ready.
            for watch in self.watches():
                watch.optional = watch.optional or watch.kind.group == GROUP

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
        MetalExplainers(self.keeper, self.remediator, gate, time.time).register(registry)

    def serve(self, server: Server, notes: Callable[[], tuple[str, ...]]) -> None:
        if self._webhooks is not None:
            server.ready_if("metal webhooks", self._webhooks.not_serving)

    def conditions(self) -> Iterable[Condition]:
        if self._webhooks is None:
            return ()
        return self._webhooks.conditions()

    def host_source(self, cluster: str) -> MetalSource:
        nodes, machines = self.shared.nodes.store, self._openshift.store
        return MetalSource(self.keeper, self.remediator, nodes, machines, cluster, time.time)

    def led(self, held: bool) -> None:
        self.keeper.led(held)
        if self._webhooks is not None:
            self._webhooks.led(held)

    def wake_all(self) -> None:
        """Everything again; machines that only wait for a host last."""
        if self._webhooks is not None:
            self._certificates.queue.add(WEBHOOKS)
        for machine in self.caches.machines.store:
            self._machines.queue.add(key_of(machine.metadata), priority=2)
        for cluster in self.caches.clusters.store:
            self._metal_clusters.queue.add(key_of(cluster.metadata), priority=2)
        for template in self.caches.templates.store:
            self._templates.queue.add(key_of(template.metadata), priority=2)
        for key in self._reserved.reserved():
            self._hosts.queue.add(key, priority=2)
        for key in list(self.caches.remediations.store.keys()):
            self._remediations.queue.add(key)
        for host in self.caches.hosts.store:
            if consumer_key(host):
                self._labels.queue.add(key_of(host.metadata), priority=2)
        for prefix, watch in ((CLAIM, self._data.claims), (DATA, self._data.datas), (TEMPLATE, self._data.templates)):
            for key in list(watch.store.keys()):
                self._datas.queue.add(f"{prefix}{key}", priority=2)
        self._ip_claims_that_go()

    def listen(self) -> None:
        caches = self.caches
        caches.hosts.store.listen(self._host_changed)
        caches.machines.store.listen(self._machine_changed)
        caches.clusters.store.listen(self._metal_cluster_changed)
        caches.templates.store.listen(self._template_changed)
        caches.capi_machines.store.listen(self._capi_machine_changed)
        caches.capi_clusters.store.listen(self._capi_cluster_changed)
        caches.deployments.store.listen(self._deployment_changed)
        caches.remediations.store.listen(self._remediation_changed)
        caches.secrets.store.listen(self._secret_changed)
        if self._webhooks is not None:
            self._webhooks.keeper.watch.store.listen(self._certificate_changed)
        data = self._data
        data.claims.store.listen(self._claim_changed)
        data.datas.store.listen(self._data_changed)
        data.templates.store.listen(self._data_template_changed)
        data.pools.store.listen(lambda key, before, _: self._unready_data(key) if before is None else None)
        for claims in (data.ip_claims, data.capi_claims):
            claims.store.listen(self._ip_claim_changed)
        data.ip_addresses.store.listen(lambda _, before, after: self._address_changed(data.ip_claims, before, after))
        data.capi_addresses.store.listen(
            lambda _, before, after: self._address_changed(data.capi_claims, before, after)
        )

    # -- what wakes what

    def _certificate_changed(self, *_: object) -> None:
        assert self._webhooks is not None
        self._webhooks.secret_changed()
        self._certificates.queue.add(WEBHOOKS)

    def _wake_waiting(self, key: str) -> None:
        self._machines.queue.add(key, priority=0)

    def _host_changed(self, key: str, before: BareMetalHost | None, after: BareMetalHost | None) -> None:
        self.claims.host_changed(key, before, after)
        self.remediator.power.host_changed(before, after)
        self.keeper.troubles.host_changed(key, before, after)
        claimed = before is not None and after is not None and not consumer_key(before)
        for host in (before, after):
            if host is not None and (machine := consumer_key(host)):
                self._machines.queue.add(machine, priority=2 if claimed else 1)
                self._unfinished(machine)
        if after is not None and is_upkept(after):
            self._hosts.queue.add(key)
        if len(self.caches.remediations.store) and after is not None:
            for remediation in self.remediator.of_host(after):
                self._remediations.queue.add(remediation)
        if before is not None and after is not None and before.metadata.labels != after.metadata.labels:
            self._labels.queue.add(key)

    def _secret_changed(self, key: str, before: BmcSecret | None, _: BmcSecret | None) -> None:
        if before is None and (machine := self.keeper.secretless.pop(key, "")):
            self._machines.queue.add(machine)

    def _machine_changed(self, key: str, before: Metal3Machine | None, after: Metal3Machine | None) -> None:
        machine = after or before
        if before is None or after is None or not _only_status(before, after):
            self._machines.queue.add(key)
            self._unfinished(key)
        if machine is None:
            return
        for remediation in self.caches.remediations.store.keys_by("owner", owner_key(machine.metadata, "Machine")):
            self._remediations.queue.add(remediation)
        cleaned = after is not None and (before is None or _cleaning(before) != _cleaning(after))
        if cleaned and (template := machine.metadata.annotations.get(names.CLONED_FROM)):
            self._templates.queue.add(names.key(machine.metadata.namespace, template), after=0.1)
        if after is None:
            for host in self.caches.hosts.store.keys_by("consumer", key):
                self._hosts.queue.add(host)
            for cluster in self.caches.clusters.store:
                if cluster.metadata.deletion_timestamp:
                    self._metal_clusters.queue.add(key_of(cluster.metadata))

    def _claim_changed(self, key: str, _: DataClaim | None, __: DataClaim | None) -> None:
        self._datas.queue.add(f"{CLAIM}{key}")
        self._machines.queue.add(key)  # a claim has its machine's name

    def _data_changed(self, key: str, before: Data | None, after: Data | None) -> None:
        data = after or before
        self._datas.queue.add(f"{DATA}{key}")
        if data is not None:
            claim = names.key(data.metadata.namespace, data.spec.claim.name)
            self._datas.queue.add(f"{CLAIM}{claim}")
            self._machines.queue.add(claim)
            if before is None or after is None:
                template = names.key(data.metadata.namespace, data.spec.template.name)
                self._datas.queue.add(f"{TEMPLATE}{template}", after=0.2)

    def _data_template_changed(self, key: str, before: DataTemplate | None, after: DataTemplate | None) -> None:
        self._datas.queue.add(f"{TEMPLATE}{key}")
        if before is None or after is None or before.spec != after.spec:
            for claim in self._data.claims.store.by("template", key):
                self._datas.queue.add(f"{CLAIM}{key_of(claim.metadata)}")
            for data in self._data.datas.store.by("template", key):
                self._datas.queue.add(f"{DATA}{key_of(data.metadata)}")

    def _ip_claim_changed(self, key: str, before: IpClaim | None, after: IpClaim | None) -> None:
        for claim in (before, after):
            if claim is not None:
                for data in owner_datas(claim):
                    self._datas.queue.add(f"{DATA}{data}")
        if after is None:
            self._unready_data(key)  # another data may wait for a claim of this name to go

    def _ip_claims_that_go(self) -> None:
        """Their data may be gone already, and then nothing else would wake whoever lets them go."""
        for claims in (self._data.ip_claims, self._data.capi_claims):
            for claim in claims.store:
                for data in owner_datas(claim) if claim.metadata.deletion_timestamp else ():
                    self._datas.queue.add(f"{DATA}{data}", priority=2)

    def _address_changed(self, claims: Watch[IpClaim], before: IpAddress | None, after: IpAddress | None) -> None:
        if before is not None or after is None:
            return
        name = after.spec.claim.name or after.spec.claim_ref.name
        claim = claims.store.get(names.key(after.metadata.namespace, name))
        for data in owner_datas(claim) if claim is not None else ():
            self._datas.queue.add(f"{DATA}{data}")

    def _unfinished(self, machine: str) -> None:
        """What its data is rendered from may have changed: the host, its interfaces, a label, an annotation."""
        for key in self._desk.unfinished(machine):
            self._datas.queue.add(key)

    def _data_of_cluster(self, key: str) -> None:
        """A cluster that was paused goes on."""
        namespace = key.partition("/")[0]
        for prefix, watch in ((CLAIM, self._data.claims), (DATA, self._data.datas), (TEMPLATE, self._data.templates)):
            for one in watch.store:
                if one.metadata.namespace == namespace:
                    self._datas.queue.add(f"{prefix}{key_of(one.metadata)}")
        self._ip_claims_that_go()
        for template in self.caches.templates.store:
            if template.metadata.namespace == namespace:
                self._templates.queue.add(key_of(template.metadata))

    def _unready_data(self, key: str) -> None:
        """A pool that came or a claim that went may be what any of the waiting ones wait for."""
        for data in self._data.datas.store.keys_by("unready", key.partition("/")[0]):
            self._datas.queue.add(f"{DATA}{data}", after=0.02)

    def _metal_cluster_changed(self, key: str, before: Metal3Cluster | None, after: Metal3Cluster | None) -> None:
        if after is None:
            return
        self._metal_clusters.queue.add(key)
        asked = after.metadata.annotations.get(names.LABEL_PREFIXES)
        if before is not None and before.metadata.annotations.get(names.LABEL_PREFIXES) != asked:
            for machine in self.caches.machines.store.by("cluster", owner_key(after.metadata, "Cluster")):
                self._labels_of(machine)

    def _labels_of(self, machine: Metal3Machine) -> None:
        if named := machine.metadata.annotations.get(names.HOST_ANNOTATION):
            self._labels.queue.add(named)

    def _remediation_changed(self, key: str, _: Remediation | None, after: Remediation | None) -> None:
        if after is not None:
            self._remediations.queue.add(key)
        else:
            self.remediator.forget(key)

    def _template_changed(
        self, key: str, before: Metal3MachineTemplate | None, after: Metal3MachineTemplate | None
    ) -> None:
        if after is not None and (before is None or before.spec != after.spec):
            self._templates.queue.add(key)

    def _capi_machine_changed(self, key: str, before: Machine | None, after: Machine | None) -> None:
        turned = before is not None and after is not None and before.status != after.status  # another node
        same = before is not None and after is not None and before.spec == after.spec and _same(before, after)
        for machine in self.caches.machines.store.by("owner", key) if turned or not same else ():
            if not same:
                self._machines.queue.add(key_of(machine.metadata))
                self._unfinished(key_of(machine.metadata))
            if turned:
                self._labels_of(machine)
        if not same:
            for remediation in self.caches.remediations.store.keys_by("owner", key):
                self._remediations.queue.add(remediation)

    def _capi_cluster_changed(self, key: str, before: Cluster | None, after: Cluster | None) -> None:
        unchanged = before is not None and after is not None and _same(before, after)
        if unchanged and before.spec == after.spec and before.status == after.status:  # type: ignore[union-attr]
            return
        machines = self.caches.machines.store
        for machine in (*machines.by("cluster", key), *machines.by("cluster", names.key(key.partition("/")[0], ""))):
            self._machines.queue.add(key_of(machine.metadata))
            self._labels_of(machine)
        if before is not None and before.spec.paused:
            self._data_of_cluster(key)
        for remediation in list(self.caches.remediations.store.keys()):
            self._remediations.queue.add(remediation)
        for cluster in self.caches.clusters.store:
            if owner_key(cluster.metadata, "Cluster") == key:
                self._metal_clusters.queue.add(key_of(cluster.metadata))
        self._reserved_of(key)

    def _deployment_changed(self, key: str, _: Any, after: Any) -> None:
        if after is None:
            self._reserved_of(key)

    def _reserved_of(self, key: str) -> None:
        for host in self._reserved.reserved(key.partition("/")[0]):
            self._hosts.queue.add(host)


def _cleaning(machine: Metal3Machine) -> tuple[str | None, str]:
    """What its template may put right: whose machine it is, and how its host is cleaned."""
    return machine.metadata.annotations.get(names.CLONED_FROM), machine.spec.automated_cleaning_mode


def _only_status(before: Metal3Machine, after: Metal3Machine) -> bool:
    """Whether only its status changed: that is our own doing, and the second look would write nothing."""
    return before.spec == after.spec and before.status != after.status and _same(before, after)


def _same(before: Any, after: Any) -> bool:
    """Whether nothing of the metadata that we read changed."""
    was, now = before.metadata, after.metadata
    return (was.labels, was.annotations, was.owner_references, was.finalizers, was.deletion_timestamp) == (
        now.labels, now.annotations, now.owner_references, now.finalizers, now.deletion_timestamp,
    )  # fmt: skip


def _later(seconds: float, call: Callable[[], None]) -> object:
    return asyncio.get_running_loop().call_later(seconds, call)
