"""Keeps Metal3DataClaims, Metal3Datas and Metal3DataTemplates: an index, addresses, two secrets; and takes it all back.

Keys: `claim:NS/NAME`, `data:NS/NAME`, `template:NS/NAME`. What a machine sees of it is `rendered`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import structlog

from hostler.kube.client import Client
from hostler.kube.errors import AlreadyExists, NotFound
from hostler.kube.kinds import SECRET, Kind
from hostler.kube.metrics import Metrics
from hostler.kube.records import Metadata, Object, key_of
from hostler.kube.watch import Watch
from hostler.kube.writer import Writer
from hostler.metal import names
from hostler.metal.caches import Caches, owner_key
from hostler.metal.data_model import Data, DataClaim, DataTemplate, IpAddress, IpAddressSpec, IpClaim, PoolRef
from hostler.metal.decide import Facts, Rendered
from hostler.metal.model import Host, Metal3Machine
from hostler.metal.render import CannotRender, Context, pools_of, render_meta_data, render_network_data

log = structlog.get_logger("hostler.metal")

CLAIM, DATA, TEMPLATE = "claim:", "data:", "template:"
LONGEST = 512  # of an error message, by the CRD


def owner_datas(claim: IpClaim) -> list[str]:
    """The Metal3Data an address was claimed for, as a key."""
    name = next((one.name for one in claim.metadata.owner_references if one.kind == names.METAL3_DATA.kind), "")
    return [names.key(claim.metadata.namespace, name)] if name else []


@dataclass(frozen=True, slots=True)
class DataCaches:
    templates: Watch[DataTemplate]
    claims: Watch[DataClaim]
    datas: Watch[Data]
    pools: Watch[Object]
    ip_claims: Watch[IpClaim]
    ip_addresses: Watch[IpAddress]
    capi_claims: Watch[IpClaim]
    capi_addresses: Watch[IpAddress]

    @classmethod
    def make(cls, client: Client, metrics: Metrics) -> DataCaches:
        def watch(kind: Kind, record: Any, **indexes: Any) -> Watch[Any]:
            return Watch(client, kind, record, metrics=metrics, indexes=indexes)

        pools = Kind(names.METAL3_IPAM, "v1alpha1", "ippools", "IPPool", True)
        return cls(
            templates=watch(names.METAL3_DATA_TEMPLATE, DataTemplate),
            claims=watch(
                names.METAL3_DATA_CLAIM, DataClaim,
                template=lambda one: (names.key(one.metadata.namespace, one.spec.template.name),),
            ),
            datas=watch(
                names.METAL3_DATA, Data,
                claim=lambda one: (names.key(one.metadata.namespace, one.spec.claim.name),),
                template=lambda one: (names.key(one.metadata.namespace, one.spec.template.name),),
            ),
            pools=watch(pools, Object),
            ip_claims=watch(names.METAL3_IP_CLAIM, IpClaim, data=owner_datas),
            ip_addresses=watch(names.METAL3_IP_ADDRESS, IpAddress),
            capi_claims=watch(names.IP_ADDRESS_CLAIM, IpClaim, data=owner_datas),
            capi_addresses=watch(names.IP_ADDRESS, IpAddress),
        )  # fmt: skip

    def all(self) -> Iterator[Watch[Any]]:
        yield from (self.templates, self.claims, self.datas, self.pools)
        yield from (self.ip_claims, self.ip_addresses, self.capi_claims, self.capi_addresses)

    def unread(self) -> str:
        for watch in self.all():
            if not watch.store.synced:
                return watch.problem or f"{watch.kind.resource} are still being read"
        return ""


class DataDesk:
    """Reconciles data, and answers what a machine needs to know of its own."""

    def __init__(self, caches: Caches, data: DataCaches, writer: Writer, *, by_host_name: bool = False) -> None:
        self._caches, self._data, self._writer, self._by_host_name = caches, data, writer, by_host_name
        self._taken: set[tuple[str, int]] = set()  # template and index, while a Metal3Data is being made

    # -- for machines

    def rendered(self, machine: Metal3Machine) -> Rendered:
        """How far the data of this machine is."""
        key = key_of(machine.metadata)
        claim = self._data.claims.store.get(key)
        if claim is None:
            return Rendered(False, "its data has not been asked for yet.")
        if claim.status.error_message:
            return Rendered(False, claim.status.error_message)
        data = self._of_claim(key)
        if data is None:
            return Rendered(False, "its data has no index yet.")
        if not data.status.ready:
            return Rendered(False, data.status.error_message or "its data is being rendered.", data.metadata.name)
        return Rendered(True, "", data.metadata.name, data.spec.meta_data, data.spec.network_data)

    def _of_claim(self, key: str) -> Data | None:
        return next(iter(self._data.datas.store.by("claim", key)), None)

    async def ask(self, facts: Facts) -> None:
        """Make the machine's claim, once it has a host: only then is known what is to be rendered."""
        meta, template = facts.machine.metadata, facts.machine.spec.data_template
        if template is None or self._data.claims.store.get(key_of(meta)) is not None or self._data.unread():
            return
        body = {
            "metadata": {
                "name": meta.name, "namespace": meta.namespace,
                "labels": {names.CLUSTER_NAME: facts.cluster_name},
                "finalizers": [names.DATA_CLAIM_FINALIZER],
                "ownerReferences": [_owner(names.METAL3_MACHINE, meta)],
            },
            "spec": {"template": {"name": template.name, "namespace": meta.namespace}},
        }  # fmt: skip
        why = f"data for Metal3Machine {meta.name}"
        try:
            made = await self._writer.create(names.METAL3_DATA_CLAIM, body, meta.namespace, type=DataClaim, why=why)
        except AlreadyExists:
            return
        if made is not None:
            self._data.claims.store.overlay(made)

    async def let_go(self, machine: Metal3Machine) -> None:
        """The machine goes, and its data with it."""
        claim = self._data.claims.store.get(key_of(machine.metadata))
        if claim is None or claim.metadata.deletion_timestamp:
            return
        await self._delete(names.METAL3_DATA_CLAIM, claim.metadata, f"Metal3Machine {machine.metadata.name} goes")

    # -- reconciling

    async def reconcile(self, key: str) -> float | None:
        if self._caches.unread() or self._data.unread():
            return 15.0
        kind, _, name = key.partition(":")
        if kind == "claim" and (claim := self._data.claims.store.get(name)) is not None:
            await (self._end_claim(claim) if claim.metadata.deletion_timestamp else self._serve_claim(claim))
        elif kind == "data" and (data := self._data.datas.store.get(name)) is not None:
            await (self._end_data(data) if data.metadata.deletion_timestamp else self._render(data))
        elif kind == "template" and (template := self._data.templates.store.get(name)) is not None:
            await self._keep_template(template)
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
        used = {one.spec.index for one in self._data.datas.store.by("template", where)}
        used |= {index for name, index in self._taken if name == where}
        index = next(number for number in range(len(used) + 1) if number not in used)
        self._taken.add((where, index))
        try:
            cluster = template.spec.cluster_name or claim.metadata.labels.get(names.CLUSTER_NAME, "")
            reference = {"name": template.metadata.name, "namespace": namespace}
            body = {
                "metadata": {
                    "name": f"{template.metadata.name}-{index}", "namespace": namespace,
                    "labels": {names.CLUSTER_NAME: cluster}, "finalizers": [names.DATA_FINALIZER],
                    "ownerReferences": [_owner(names.METAL3_DATA_CLAIM, claim.metadata)],
                },
                "spec": {
                    "index": index, "template": reference,
                    "claim": {"name": claim.metadata.name, "namespace": namespace},
                },
            }  # fmt: skip
            why = f"index {index} of {template.metadata.name} for {claim.metadata.name}"
            made = await self._writer.create(names.METAL3_DATA, body, namespace, type=Data, why=why)
            if made is not None:
                self._data.datas.store.overlay(made)
            return made
        finally:
            self._taken.discard((where, index))

    async def _claim_says(self, claim: DataClaim, error: str, rendered: str = "") -> None:
        status: dict[str, Any] = {}
        if claim.status.error_message != error:
            status["errorMessage"] = error[:LONGEST] or None
        if rendered and claim.status.rendered_data.name != rendered:
            status["renderedData"] = {"name": rendered, "namespace": claim.metadata.namespace}
        if status:
            why = error or f"its data is {rendered}"
            after = await self._patch(
                names.METAL3_DATA_CLAIM, claim.metadata, {"status": status}, DataClaim, why, "status"
            )
            if after is not None:
                self._data.claims.store.overlay(after)

    async def _end_claim(self, claim: DataClaim) -> None:
        data = self._of_claim(key_of(claim.metadata))
        if data is not None:
            if not data.metadata.deletion_timestamp:
                await self._delete(names.METAL3_DATA, data.metadata, f"its claim {claim.metadata.name} goes")
            return
        await self._drop_finalizer(names.METAL3_DATA_CLAIM, claim.metadata, names.DATA_CLAIM_FINALIZER)

    # -- rendering

    def context(self, data: Data) -> Context | str:
        """Everything the rendering needs; a sentence where something is not there yet."""
        namespace = data.metadata.namespace
        claim = self._data.claims.store.get(names.key(namespace, data.spec.claim.name))
        if claim is None:
            return f"Metal3DataClaim {data.spec.claim.name} does not exist."
        machine = self._caches.machines.store.get(owner_key(claim.metadata, names.METAL3_MACHINE.kind))
        if machine is None:
            return f"the Metal3Machine of claim {claim.metadata.name} does not exist."
        owner = self._caches.capi_machines.store.get(owner_key(machine.metadata, "Machine"))
        if owner is None:
            return f"Metal3Machine {machine.metadata.name} has no Machine."
        host = self._caches.host_of(machine)
        consumer = host.spec.consumer_ref if host is not None else None
        if host is None or consumer is None or not consumer.is_machine(machine):
            return f"Metal3Machine {machine.metadata.name} has no host yet."
        return Context(owner.metadata, machine.metadata, host, data.spec.index, namespace)

    async def _render(self, data: Data) -> None:
        """Once: what was rendered stays as it is, whatever changes around it."""
        if data.status.ready:
            return
        template = self._data.templates.store.get(names.key(data.metadata.namespace, data.spec.template.name))
        if template is None:
            await self._data_says(data, f"Metal3DataTemplate {data.spec.template.name} does not exist.")
            return
        context = self.context(data)
        if isinstance(context, str):
            await self._data_says(data, context)
            return
        try:
            addresses = await self._addresses(data, template, context)
            if isinstance(addresses, str):
                await self._data_says(data, addresses)
                return
            context = Context(
                context.machine, context.metal3_machine, context.host, context.index, context.namespace, addresses
            )
            await self._secrets(data, template, context)
        except CannotRender as why:
            await self._data_says(data, f"It cannot be rendered: {why}.")

    async def _secrets(self, data: Data, template: DataTemplate, context: Context) -> None:
        meta, network = template.spec.meta_data, template.spec.network_data
        name, namespace = context.metal3_machine.name, data.metadata.namespace
        spec: dict[str, Any] = {}
        if meta is not None:
            content = render_meta_data(meta, context)
            spec["metaData"] = await self._secret(data, f"{name}-metadata", "metaData", content)
        if network is not None:
            content = render_network_data(network, context)
            spec["networkData"] = await self._secret(data, f"{name}-networkdata", "networkData", content)
        if spec:
            after = await self._patch(names.METAL3_DATA, data.metadata, {"spec": spec}, Data, "its secrets are made")
            if after is not None:
                self._data.datas.store.overlay(after)
        ready = {"status": {"ready": True, "errorMessage": None}}
        after = await self._patch(names.METAL3_DATA, data.metadata, ready, Data, "it is rendered", "status")
        if after is not None:
            self._data.datas.store.overlay(after)
        log.debug("rendered", data=names.key(namespace, data.metadata.name))

    async def _secret(self, data: Data, name: str, field: str, content: bytes) -> dict[str, str]:
        namespace = data.metadata.namespace
        labels = {names.CLUSTER_NAME: data.metadata.labels.get(names.CLUSTER_NAME, "")}
        owners = [_owner(names.METAL3_DATA, data.metadata)]
        body = {
            "metadata": {"name": name, "namespace": namespace, "labels": labels, "ownerReferences": owners},
            "type": names.SECRET_TYPE,
            "data": {field: content},  # bytes are written as base64
        }
        try:
            await self._writer.create(SECRET, body, namespace, type=Object, why=f"rendered for {data.metadata.name}")
        except AlreadyExists:
            # Of an earlier try of ours, or of a machine of the same name: what is rendered now counts.
            change = {"metadata": {"labels": labels, "ownerReferences": owners}, "data": {field: content}}
            await self._writer.patch(
                SECRET, name, change, namespace, type=Object, why=f"rendered anew for {data.metadata.name}"
            )
        return {"name": name, "namespace": namespace}

    # -- addresses

    def _claim_name(self, data: Data, pool: PoolRef, host: Host) -> str:
        return f"{host.metadata.name if self._by_host_name and pool.metal3 else data.metadata.name}-{pool.name}"

    async def _addresses(
        self, data: Data, template: DataTemplate, context: Context
    ) -> dict[PoolRef, IpAddressSpec] | str:
        """The address of every pool; a sentence while one is missing. All claims are made before any is waited for."""
        found: dict[PoolRef, IpAddressSpec] = {}
        missing = ""
        for pool in pools_of(template, context):
            address = await self._address(data, pool, context)
            if isinstance(address, str):
                missing = missing or address
            else:
                found[pool] = address
        return missing or found

    async def _address(self, data: Data, pool: PoolRef, context: Context) -> IpAddressSpec | str:
        namespace, name = data.metadata.namespace, self._claim_name(data, pool, context.host)
        claims, addresses = (
            (self._data.ip_claims, self._data.ip_addresses)
            if pool.metal3
            else (self._data.capi_claims, self._data.capi_addresses)
        )
        claim = claims.store.get(names.key(namespace, name))
        if pool.metal3 and self._data.pools.store.get(names.key(namespace, pool.name)) is None:
            return f"IPPool {pool.name} does not exist."
        if claim is None:
            await self._claim_address(data, pool, name)
            return f"It waits for an address from {pool}."
        if claim.metadata.deletion_timestamp or owner_datas(claim) != [key_of(data.metadata)]:
            return f"It waits until the claim {name} of the machine before is gone."
        if claim.status.error_message:
            return f"{pool} gives no address: {claim.status.error_message}."
        address = addresses.store.get(names.key(namespace, claim.address)) if claim.address else None
        return address.spec if address is not None else f"It waits for an address from {pool}."

    async def _claim_address(self, data: Data, pool: PoolRef, name: str) -> None:
        meta = data.metadata
        labels = {names.CLUSTER_NAME: meta.labels.get(names.CLUSTER_NAME, "")}
        if self._by_host_name:
            labels |= {names.DATA_NAME: meta.name, names.POOL_NAME: pool.name}
        body: dict[str, Any] = {
            "metadata": {
                "name": name, "namespace": meta.namespace, "labels": labels, "finalizers": [names.DATA_FINALIZER],
                "ownerReferences": [_owner(names.METAL3_DATA, meta)],
            }
        }  # fmt: skip
        if pool.metal3:
            kind = names.METAL3_IP_CLAIM
            body["spec"] = {"pool": {"name": pool.name, "namespace": meta.namespace}}
        else:
            kind = names.IP_ADDRESS_CLAIM
            cluster = labels[names.CLUSTER_NAME]
            body["spec"] = {"poolRef": {"apiGroup": pool.group, "kind": pool.kind, "name": pool.name}}
            body["spec"] |= {"clusterName": cluster} if cluster else {}
        try:
            made = await self._writer.create(kind, body, meta.namespace, type=IpClaim, why=f"for {meta.name}")
        except AlreadyExists:
            return
        if made is not None:
            (self._data.ip_claims if pool.metal3 else self._data.capi_claims).store.overlay(made)

    async def _data_says(self, data: Data, error: str) -> None:
        if data.status.error_message == error[:LONGEST]:
            return
        change = {"status": {"errorMessage": error[:LONGEST], "ready": False}}
        after = await self._patch(names.METAL3_DATA, data.metadata, change, Data, error, "status")
        if after is not None:
            self._data.datas.store.overlay(after)

    async def _end_data(self, data: Data) -> None:
        """Addresses go back first; the secrets follow their owner by themselves."""
        left = False
        for kind, watch in (
            (names.METAL3_IP_CLAIM, self._data.ip_claims),
            (names.IP_ADDRESS_CLAIM, self._data.capi_claims),
        ):
            for claim in watch.store.by("data", key_of(data.metadata)):
                left = True
                meta = claim.metadata
                # One after the other: the deletion changes the version, and the watch brings the new one.
                if meta.deletion_timestamp:
                    await self._drop_finalizer(kind, meta, names.DATA_FINALIZER)
                else:
                    await self._delete(kind, meta, f"Metal3Data {data.metadata.name} goes")
        if not left:
            await self._drop_finalizer(names.METAL3_DATA, data.metadata, names.DATA_FINALIZER)

    # -- templates

    async def _keep_template(self, template: DataTemplate) -> None:
        """Its status lists who has which index; it stays while anybody has one."""
        meta, key = template.metadata, key_of(template.metadata)
        datas = self._data.datas.store.by("template", key)
        if meta.deletion_timestamp:
            if not datas:
                await self._drop_finalizer(names.METAL3_DATA_TEMPLATE, meta, names.DATA_TEMPLATE_FINALIZER)
            return
        if datas and names.DATA_TEMPLATE_FINALIZER not in meta.finalizers:
            finalizers = [*meta.finalizers, names.DATA_TEMPLATE_FINALIZER]
            finalized = {"metadata": {"finalizers": finalizers, "resourceVersion": meta.resource_version}}
            after = await self._patch(names.METAL3_DATA_TEMPLATE, meta, finalized, DataTemplate, "machines use it")
            if after is not None:
                self._data.templates.store.overlay(after)
        wanted = sorted((one.spec.index, one.spec.claim.name) for one in datas)
        if wanted != sorted((one.index, one.name) for one in template.status.indexes):
            indexes = [{"name": name, "index": index} for index, name in wanted] or None
            change: dict[str, Any] = {"status": {"indexes": indexes}}
            after = await self._patch(names.METAL3_DATA_TEMPLATE, meta, change, DataTemplate, "who has which", "status")
            if after is not None:
                self._data.templates.store.overlay(after)

    # -- small change

    async def _patch(
        self,
        kind: Kind,
        meta: Metadata,
        change: dict[str, Any],
        type: type[Any],
        why: str,
        subresource: str | None = None,
    ) -> Any:
        return await self._writer.patch(
            kind, meta.name, change, meta.namespace, type=type, why=why, subresource=subresource
        )

    async def _delete(self, kind: Kind, meta: Any, why: str) -> None:
        try:
            await self._writer.delete(kind, meta.name, meta.namespace, uid=meta.uid, why=why)
        except NotFound:
            return

    async def _drop_finalizer(self, kind: Kind, meta: Any, finalizer: str) -> None:
        if finalizer not in meta.finalizers:
            return
        kept = [one for one in meta.finalizers if one != finalizer]
        # Under its version: the list is written whole, and somebody else's finalizer must not get lost.
        body = {"metadata": {"finalizers": kept, "resourceVersion": meta.resource_version}}
        try:
            await self._writer.patch(kind, meta.name, body, meta.namespace, type=Object, why="nothing is left of it")
        except NotFound:
            return


def _owner(kind: Kind, meta: Metadata) -> dict[str, Any]:
    return {"apiVersion": kind.api_version, "kind": kind.kind, "name": meta.name, "uid": meta.uid, "controller": True}
