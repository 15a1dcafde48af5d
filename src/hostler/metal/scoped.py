"""Whether an object in the caches is in scope, by its own label or by that of what it belongs to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hostler.apis import capi
from hostler.apis.metal3 import BareMetalHost
from hostler.kube.controller import Reconcile
from hostler.kube.store import Store
from hostler.metal import names
from hostler.metal.caches import Caches, consumer_key, owner_key
from hostler.metal.data import CLAIM, DATA
from hostler.metal.data_caches import DataCaches

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
