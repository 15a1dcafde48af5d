"""Keeps Metal3DataClaims, Metal3Datas and Metal3DataTemplates: an index, addresses, two secrets; and takes it all back.

Keys: `claim:NS/NAME`, `data:NS/NAME`, `template:NS/NAME`. What a machine sees of it is `rendered`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import structlog

from hostler.apis import capi, metal3
from hostler.apis.metal3 import Metal3Machine, OwnedMetadata
from hostler.apis.metal3_data import Data, DataClaim, DataTemplate
from hostler.kube.cache import Cache
from hostler.kube.errors import Invalid
from hostler.kube.records import Metadata, key_of
from hostler.metal import names
from hostler.metal.caches import UNREAD_SECONDS
from hostler.metal.data.addresses import Addresses
from hostler.metal.data.decide import is_rendered_for, why_in_use, why_unfit
from hostler.metal.data.rendering import LONGEST, DataRenderer, InTheWay
from hostler.metal.model import ClaimSeen, Facts, Rendered, owner_reference
from hostler.metal.toolbox import Toolbox, delete, drop_finalizers

log = structlog.get_logger("hostler.metal")


class Indexes:
    """Which indexes of each template are taken; the smallest free one is found without looking at them all."""

    def __init__(self) -> None:
        self._taken: dict[str, set[int]] = {}
        self._low: dict[str, int] = {}  # below this, every index is taken

    def take(self, template: str) -> int:
        """The smallest index nobody has; it is taken from now on."""
        taken, index = self._taken.setdefault(template, set()), self._low.get(template, 0)
        while index in taken:
            index += 1
        taken.add(index)
        self._low[template] = index + 1
        return index

    def give_back(self, template: str, index: int) -> None:
        self._taken.get(template, set()).discard(index)
        self._low[template] = min(index, self._low.get(template, 0))

    def changed(self, _: str, before: Data | None, after: Data | None) -> None:
        """Follows the cache of Metal3Datas."""
        data = after or before
        if data is None:
            return
        template = names.key(data.metadata.namespace, data.spec.template.name)
        if after is not None:
            self._taken.setdefault(template, set()).add(data.spec.index)
        else:
            self.give_back(template, data.spec.index)


CLAIM, DATA, TEMPLATE = "claim:", "data:", "template:"
# We put one finalizer on each; the Go provider puts a second one, and nobody else would take it off.
CLAIM_FINALIZERS = (names.DATA_CLAIM_FINALIZER, names.MACHINE_FINALIZER)
DATA_FINALIZERS = (names.DATA_FINALIZER, names.DATA_CLAIM_FINALIZER)
# Secrets of others are not watched: whether one that is in the way has gone is seen soon at first, then so often.
IN_THE_WAY_FIRST, IN_THE_WAY_SECONDS = 1.0, 15.0

# Refused by the API server's schema, say a name that becomes too long: who mends it changes an object that wakes it.
REFUSED_SECONDS = 300.0


class DataReconciler:
    """Reconciles data, and answers what a machine needs to know of its own."""

    def __init__(self, tools: Toolbox, *, by_host_name: bool = False) -> None:
        self._caches, self._data, self._writer = tools.caches, tools.data, tools.writer
        self._addresses = Addresses(tools, by_host_name=by_host_name)
        self._renderer = DataRenderer(tools, self._addresses)
        self._indexes = Indexes()
        self._in_the_way: dict[str, float] = {}  # data -> how long its last pause was
        tools.data.datas.store.listen(self._indexes.changed)

    # -- for machines

    def add_facts(self, facts: Facts) -> Facts:
        """The facts with those about the machine's data."""
        machine, wanted = facts.machine, facts.machine.spec.data_template is not None
        claim = self._data.claims.store.get(key_of(machine.metadata))
        if claim is None and not wanted:
            return facts
        # That there is none is known only once all is read.
        known = claim is not None or not self._data.unread()
        seen = ClaimSeen(claim, self._caches.scope.labels) if known else None
        return replace(facts, rendered=self.rendered(machine) if wanted else None, data_claim=seen)

    def rendered(self, machine: Metal3Machine) -> Rendered:
        """How far the data of this machine is. What is ready is ready for the host it has, and for no other."""
        key = key_of(machine.metadata)
        claim, host = self._data.claims.store.get(key), self._caches.own_host(machine)
        if claim is None:
            return Rendered(False, "its data has not been asked for yet.")
        if why := why_unfit(claim, machine) if host is None or not host.imaged else "":
            return Rendered(False, why)
        if claim.status.error_message:
            return Rendered(False, claim.status.error_message)
        data = self._of_claim(key)
        if data is None:
            return Rendered(False, "its data has no index yet.")
        name = data.metadata.name
        if not data.status.ready:
            return Rendered(False, data.status.error_message or "its data is being rendered.", name)
        if host is None or not (host.imaged or is_rendered_for(data, host)):
            return Rendered(False, "its data is rendered again, for the host it has now.", name)
        for field, secret in (("metaData", data.spec.meta_data), ("networkData", data.spec.network_data)):
            if secret is not None and secret.namespace not in ("", data.metadata.namespace):
                return Rendered(False, f"spec.{field} of Metal3Data {name} is in namespace {secret.namespace}.", name)
        return Rendered(True, "", name, data.spec.meta_data, data.spec.network_data)

    def unfinished(self, machine: str) -> list[str]:
        """The keys of data that a change of this machine or its host may bring further."""
        host = next(iter(self._caches.hosts.store.by("consumer", machine)), None)
        claim = self._data.claims.store.get(machine)
        going = [f"{CLAIM}{machine}"] if claim is not None and claim.metadata.deletion_timestamp else []
        return going + [
            f"{DATA}{key_of(one.metadata)}"
            for one in self._data.datas.store.by("claim", machine)
            if not one.status.ready
            or one.metadata.deletion_timestamp
            or (host is not None and not host.imaged and not is_rendered_for(one, host))
            or (host is not None and names.RENDERED_FOR not in one.metadata.annotations)
        ]

    def _of_claim(self, key: str) -> Data | None:
        return next(iter(self._data.datas.store.by("claim", key)), None)

    # -- reconciling

    async def reconcile(self, key: str) -> float | None:
        if self._caches.unread() or self._data.unread():
            return UNREAD_SECONDS
        kind, _, name = key.partition(":")
        if kind == "claim" and (claim := self._data.claims.store.get(name)) is not None:
            return await self._look_at_claim(claim)
        if kind == "data" and name not in self._data.datas.store.unreadable:
            data = self._data.datas.store.get(name)
            if data is not None:
                return await self._look_at_data(data)
            await self._addresses.forsaken(name, self._paused)
        template = self._data.templates.store.get(name) if kind == "template" else None
        if template is not None and not self._paused(template.metadata, template.spec.cluster_name):
            await self._keep_template(template)
        return None

    def _paused(self, meta: Metadata | OwnedMetadata, cluster: str = "") -> bool:
        cluster = cluster or meta.labels.get(capi.CLUSTER_NAME, "")
        return capi.PAUSED in meta.annotations or self._caches.paused(meta.namespace, cluster)

    async def _look_at_claim(self, claim: DataClaim) -> float | None:
        if self._paused(claim.metadata):
            return None
        try:
            await (self._end_claim(claim) if claim.metadata.deletion_timestamp else self._serve_claim(claim))
        except Invalid as why:
            await self._claim_says(claim, f"The API server refuses it: {why}")
            return REFUSED_SECONDS
        return None

    async def _look_at_data(self, data: Data) -> float | None:
        if self._paused(data.metadata):
            return None
        pause = self._in_the_way.pop(data.metadata.uid, IN_THE_WAY_FIRST / 2)
        try:
            await (self._end_data(data) if data.metadata.deletion_timestamp else self._renderer.render(data))
        except InTheWay as why:
            await self._renderer.report_error(data, f"{why}.")
            self._in_the_way[data.metadata.uid] = pause = min(pause * 2, IN_THE_WAY_SECONDS)
            return pause
        except Invalid as why:
            await self._renderer.report_error(data, f"The API server refuses it: {why}")
            return REFUSED_SECONDS
        return None

    # -- claims

    async def _serve_claim(self, claim: DataClaim) -> None:
        namespace, key = claim.metadata.namespace, key_of(claim.metadata)
        template = self._data.templates.store.get(names.key(namespace, claim.spec.template.name))
        if template is None or template.metadata.deletion_timestamp:
            gone = "is being deleted" if template is not None else "does not exist"
            await self._claim_says(claim, f"Metal3DataTemplate {claim.spec.template.name} {gone}.")
            return
        data = self._of_claim(key)
        if data is None:
            data = await self._give_index(claim, template)
        if data is not None:
            await self._claim_says(claim, "", data.metadata.name)

    async def _give_index(self, claim: DataClaim, template: DataTemplate) -> Data | None:
        """The smallest index nobody has. The name of the Metal3Data is the lock: it can be made once."""
        where, namespace = key_of(template.metadata), claim.metadata.namespace
        index, made = self._indexes.take(where), None
        name = f"{template.metadata.name}-{index}"
        try:
            cluster = template.spec.cluster_name or claim.metadata.labels.get(capi.CLUSTER_NAME, "")
            reference = {"name": template.metadata.name, "namespace": namespace}
            body = {
                "metadata": {
                    "name": name, "namespace": namespace,
                    "labels": {capi.CLUSTER_NAME: cluster, **self._caches.scope.labels},
                    "finalizers": [names.DATA_FINALIZER],
                    "ownerReferences": [owner_reference(metal3.METAL3_DATA_CLAIM, claim.metadata)],
                },
                "spec": {
                    "index": index, "template": reference,
                    "claim": {"name": claim.metadata.name, "namespace": namespace},
                },
            }  # fmt: skip
            why = f"index {index} of {template.metadata.name} for {claim.metadata.name}"
            made = await self._data.datas.create(self._writer, body, namespace, why=why)
            return made
        finally:
            if made is None and self._data.datas.store.get(names.key(namespace, name)) is None:
                self._indexes.give_back(where, index)

    async def _claim_says(self, claim: DataClaim, error: str, rendered: str = "") -> None:
        status: dict[str, Any] = {}
        error = error[:LONGEST]
        if claim.status.error_message != error:
            status["errorMessage"] = error or None
        if rendered and claim.status.rendered_data.name != rendered:
            status["renderedData"] = {"name": rendered, "namespace": claim.metadata.namespace}
        if status:
            why = error or f"its data is {rendered}"
            await self._patch(self._data.claims, claim.metadata, {"status": status}, why, "status")

    def _in_use(self, key: str) -> str:
        """Why the data of this claim, which has its machine's key, is not taken back; empty: it may be."""
        claim, machine = self._data.claims.store.get(key), self._caches.machines.store.get(key)
        if claim is None or machine is None:
            return f"Metal3Machine {key} cannot be read." if key in self._caches.machines.store.unreadable else ""
        return why_in_use(claim, machine, self._caches.own_host(machine), self._caches.unreadable_host(machine))

    async def _end_claim(self, claim: DataClaim) -> None:
        if why := self._in_use(key_of(claim.metadata)):
            await self._claim_says(claim, why)
            return
        data = self._of_claim(key_of(claim.metadata))
        if data is not None:
            if not data.metadata.deletion_timestamp:
                await delete(self._writer, metal3.METAL3_DATA, data.metadata, f"its claim {claim.metadata.name} goes")
            return
        await drop_finalizers(self._writer, metal3.METAL3_DATA_CLAIM, claim.metadata, *CLAIM_FINALIZERS)

    async def _end_data(self, data: Data) -> None:
        """Addresses go back first; the secrets follow their owner by themselves."""
        if why := self._in_use(names.key(data.metadata.namespace, data.spec.claim.name)):
            await self._renderer.report_error(data, why)
            return
        if await self._addresses.give_back(data):
            await drop_finalizers(self._writer, metal3.METAL3_DATA, data.metadata, *DATA_FINALIZERS)

    # -- templates

    async def _keep_template(self, template: DataTemplate) -> None:
        """Its status lists who has which index; it stays while anybody has one."""
        meta, key = template.metadata, key_of(template.metadata)
        datas = self._data.datas.store.by("template", key)
        if meta.deletion_timestamp:
            if not datas:
                await drop_finalizers(self._writer, metal3.METAL3_DATA_TEMPLATE, meta, names.DATA_TEMPLATE_FINALIZER)
            return
        if datas and names.DATA_TEMPLATE_FINALIZER not in meta.finalizers:
            finalizers = [*meta.finalizers, names.DATA_TEMPLATE_FINALIZER]
            finalized = {"metadata": {"finalizers": finalizers, "resourceVersion": meta.resource_version}}
            await self._patch(self._data.templates, meta, finalized, "machines use it")
        wanted = sorted((one.spec.index, one.spec.claim.name) for one in datas)
        if wanted != sorted((one.index, one.name) for one in template.status.indexes):
            indexes = [{"name": name, "index": index} for index, name in wanted] or None
            change: dict[str, Any] = {"status": {"indexes": indexes}}
            await self._patch(self._data.templates, meta, change, "who has which", "status")

    # -- small change

    async def _patch(
        self, cache: Cache[Any], meta: Metadata, change: dict[str, Any], why: str, subresource: str | None = None
    ) -> None:
        await cache.patch(self._writer, meta.name, change, meta.namespace, why=why, subresource=subresource)
