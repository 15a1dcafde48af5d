"""Addresses from pools: Metal3's own by IPClaim, all others by Cluster API's IPAddressClaim."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hostler.apis import capi, metal3
from hostler.apis.metal3 import BareMetalHost, OwnedMetadata
from hostler.apis.metal3_data import Data, DataTemplate, IpAddressSpec, IpClaim, PoolRef
from hostler.kube.errors import AlreadyExists
from hostler.kube.kinds import Kind
from hostler.kube.records import key_of
from hostler.metal import names
from hostler.metal.caches import owner_datas
from hostler.metal.data.content import Context, pools_of
from hostler.metal.model import owner_reference
from hostler.metal.toolbox import Toolbox, delete, drop_finalizers

GONE = "the Metal3Data it was for is gone"
UNUSED = "no host is installed with its address"


class Addresses:
    """Claims addresses for a Metal3Data and gives them back."""

    def __init__(self, tools: Toolbox, *, by_host_name: bool = False) -> None:
        self._data, self._writer, self._by_host_name = tools.data, tools.writer, by_host_name
        self._labels = tools.caches.scope.labels  # of every claim that is made, beside those that say what it is for

    def _name_of(self, data: Data, pool: PoolRef, host: BareMetalHost) -> str:
        return f"{host.metadata.name if self._by_host_name and pool.metal3 else data.metadata.name}-{pool.name}"

    async def all(self, data: Data, template: DataTemplate, context: Context) -> dict[PoolRef, IpAddressSpec] | str:
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
        namespace, name = data.metadata.namespace, self._name_of(data, pool, context.host)
        claims, addresses = (
            (self._data.ip_claims, self._data.ip_addresses)
            if pool.metal3
            else (self._data.capi_claims, self._data.capi_addresses)
        )
        claim = claims.store.get(names.key(namespace, name))
        if claim is not None and (why := await self._unfit(claim, data, pool, context.host)):
            return why
        if pool.metal3 and self._data.pools.store.get(names.key(namespace, pool.name)) is None:
            return f"IPPool {pool.name} does not exist."
        if claim is None:
            await self._claim_address(data, pool, name)
            return f"It waits for an address from {pool}."
        if claim.status.error_message:
            return f"{pool} gives no address: {claim.status.error_message}."
        address = addresses.store.get(names.key(namespace, claim.address)) if claim.address else None
        return address.spec if address is not None else f"It waits for an address from {pool}."

    async def _unfit(self, claim: IpClaim, data: Data, pool: PoolRef, host: BareMetalHost) -> str:
        """Why a claim of the right name gives this data no address; empty: it may. One that goes unused is let go."""
        name = claim.metadata.name
        if owner_datas(claim) != [key_of(data.metadata)]:
            return f"It waits until the claim {name} of the machine before is gone."
        if not claim.metadata.deletion_timestamp:
            # It is named after its pool, and pools of two kinds, or a host and a pool, can make up one name.
            other = (
                f"The claim {name} is for {claim.pool} and not for {pool}: give that pool another name, or delete it."
            )
            return "" if claim.pool == pool else other
        # Its own, or of one that had its name, for an index is given again: what is installed may have the address.
        if host.imaged:
            return f"The claim {name} is being deleted, and host {host.metadata.name} may have its address."
        kind = metal3.METAL3_IP_CLAIM if pool.metal3 else capi.IP_ADDRESS_CLAIM
        await drop_finalizers(self._writer, kind, claim.metadata, names.DATA_FINALIZER, why=UNUSED)
        return f"It claims another address from {pool}: the claim {name} is being deleted."

    async def _claim_address(self, data: Data, pool: PoolRef, name: str) -> None:
        meta = data.metadata
        labels = {capi.CLUSTER_NAME: meta.labels.get(capi.CLUSTER_NAME, ""), **self._labels}
        if self._by_host_name:
            labels |= {names.DATA_NAME: meta.name, names.POOL_NAME: pool.name}
        body: dict[str, Any] = {
            "metadata": {
                "name": name, "namespace": meta.namespace, "labels": labels, "finalizers": [names.DATA_FINALIZER],
                "ownerReferences": [owner_reference(metal3.METAL3_DATA, meta)],
            }
        }  # fmt: skip
        if pool.metal3:
            body["spec"] = {"pool": {"name": pool.name, "namespace": meta.namespace}}
        else:
            cluster = labels[capi.CLUSTER_NAME]
            body["spec"] = {"poolRef": {"apiGroup": pool.group, "kind": pool.kind, "name": pool.name}}
            body["spec"] |= {"clusterName": cluster} if cluster else {}
        try:
            claims = self._data.ip_claims if pool.metal3 else self._data.capi_claims
            await claims.create(self._writer, body, meta.namespace, why=f"for {meta.name}")
        except AlreadyExists:
            return

    async def give_back_before(self, data: Data, host: BareMetalHost, *, begin: bool) -> None:
        """Let go of addresses by the name of a host this data was rendered for before: that host's next wants them.

        Not `begin`: only what was begun is ended. Which host a claim was for its name says, whatever the template says.
        """
        for claim in self._data.ip_claims.store.by("data", key_of(data.metadata)) if self._by_host_name else ():
            meta = claim.metadata
            pool = meta.labels.get(names.POOL_NAME, "")
            if not pool or meta.name == f"{host.metadata.name}-{pool}":
                continue
            if meta.deletion_timestamp:
                await drop_finalizers(self._writer, metal3.METAL3_IP_CLAIM, meta, names.DATA_FINALIZER)
            elif begin:
                why = f"Metal3Data {data.metadata.name} is rendered for host {host.metadata.name} now"
                await delete(self._writer, metal3.METAL3_IP_CLAIM, meta, why)

    async def give_back(self, data: Data) -> bool:
        """Let go of every address of a data that goes; True: none is left."""
        left = False
        for kind, claim in self._of(key_of(data.metadata)):
            left = True
            # One after the other: the deletion changes the version, and the watch brings the new one.
            if claim.metadata.deletion_timestamp:
                await drop_finalizers(self._writer, kind, claim.metadata, names.DATA_FINALIZER)
            else:
                await delete(self._writer, kind, claim.metadata, f"Metal3Data {data.metadata.name} goes")
        return not left

    async def forsaken(self, key: str, paused: Callable[[OwnedMetadata], bool]) -> None:
        """Let claims go that are being deleted and whose Metal3Data is gone, whoever removed it: nobody else would."""
        for kind, claim in self._of(key):
            if claim.metadata.deletion_timestamp and not paused(claim.metadata):
                await drop_finalizers(self._writer, kind, claim.metadata, names.DATA_FINALIZER, why=GONE)

    def _of(self, key: str) -> list[tuple[Kind, IpClaim]]:
        """Every claim that was made for the Metal3Data of this name."""
        return [
            *((metal3.METAL3_IP_CLAIM, one) for one in self._data.ip_claims.store.by("data", key)),
            *((capi.IP_ADDRESS_CLAIM, one) for one in self._data.capi_claims.store.by("data", key)),
        ]
