"""Plays Metal3's IP address manager: an IPClaim gets an address of its pool, a preallocated one by its own name."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Coroutine, Iterator
from typing import Any

import aiohttp
import msgspec

from hostler.sandbox.follow import follow, patch, say
from hostler.sandbox.hosts.model import Json

IPAM, CLUSTERS = "/apis/ipam.metal3.io/v1alpha1", "/apis/cluster.x-k8s.io/v1beta2"


def key_of(one: Json) -> str:
    return f"{one['metadata']['namespace']}/{one['metadata']['name']}"


def addresses_of(pool: Json) -> Iterator[tuple[str, Json]]:
    """Every address of a pool with the range it is from, in order."""
    for part in pool["spec"].get("pools") or []:
        if part.get("start"):
            first = ipaddress.ip_address(part["start"])
            last = ipaddress.ip_address(part.get("end") or part["start"])
        else:
            network = ipaddress.ip_network(part["subnet"])
            first, last = network[1], network[-2] if network.num_addresses > 2 else network[-1]
        for number in range(int(first), int(last) + 1):
            yield str(type(first)(number)), part


def choose(pool: Json, claim: str, taken: set[str]) -> tuple[str, Json] | None:
    """The address for this claim: its own if one is preallocated, else the first that is free and nobody's own."""
    reserved = pool["spec"].get("preAllocations") or {}
    if own := reserved.get(claim):
        parts = [part for address, part in addresses_of(pool) if address == own]
        return (own, parts[0] if parts else {}) if own not in taken else None
    free = (one for one in addresses_of(pool) if one[0] not in taken and one[0] not in reserved.values())
    return next(free, None)


class Pools:
    """One claim after the other, so that no address is given twice."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self._pools: dict[str, Json] = {}
        self._claims: dict[str, Json] = {}
        self._addresses: dict[str, Json] = {}
        self._wake = asyncio.Event()

    def tasks(self) -> list[Coroutine[Any, Any, None]]:
        kinds = (("ippools", self._pools), ("ipclaims", self._claims), ("ipaddresses", self._addresses))
        return [*(self._follow(plural, into) for plural, into in kinds), self._work()]

    def _follow(self, plural: str, into: dict[str, Json]) -> Coroutine[Any, Any, None]:
        def listed(found: list[Json]) -> None:
            into.clear()
            into.update({key_of(one): one for one in found})
            self._wake.set()

        def changed(what: str, one: Json) -> None:
            if what == "DELETED":
                into.pop(key_of(one), None)
            else:
                into[key_of(one)] = one
            self._wake.set()

        return follow(self._session, f"{IPAM}/{plural}", dict, listed, changed)

    async def _work(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            for pool in list(self._pools.values()):
                await self._own(pool)
            for claim in list(self._claims.values()):
                try:
                    await self._answer(claim)
                except (aiohttp.ClientError, TimeoutError, OSError) as error:
                    say(f"IPClaim {key_of(claim)} could not be answered: {error!r}; trying again")
                    await asyncio.sleep(0.5)
                    self._wake.set()

    async def _own(self, pool: Json) -> None:
        """A pool that names its Cluster belongs to it: by that `clusterctl move` takes it along."""
        meta, cluster = pool["metadata"], pool["spec"].get("clusterName")
        owners = meta.get("ownerReferences") or []
        if not cluster or meta.get("deletionTimestamp") or any(one["kind"] == "Cluster" for one in owners):
            return
        namespace = f"/namespaces/{meta['namespace']}"
        try:
            async with self._session.get(f"{CLUSTERS}{namespace}/clusters/{cluster}") as answer:
                if answer.status != 200:
                    return  # it is looked for again with the next change of a pool or a claim
                found: Json = msgspec.json.decode(await answer.read())
            owner = {
                "apiVersion": found["apiVersion"], "kind": "Cluster", "name": cluster, "uid": found["metadata"]["uid"],
            }  # fmt: skip
            change = {"metadata": {"ownerReferences": [*owners, owner], "resourceVersion": meta["resourceVersion"]}}
            await patch(self._session, f"{IPAM}{namespace}/ippools/{meta['name']}", change)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            say(f"IPPool {key_of(pool)} could not be given to its Cluster: {error!r}")

    async def _answer(self, claim: Json) -> None:
        meta, status = claim["metadata"], claim.get("status") or {}
        pool = self._pools.get(f"{meta['namespace']}/{claim['spec']['pool']['name']}")
        path = f"{IPAM}/namespaces/{meta['namespace']}/ipclaims/{meta['name']}"
        if meta.get("deletionTimestamp") or (status.get("address") or {}).get("name"):
            return
        if pool is None:
            return
        of_pool = (meta["namespace"], pool["metadata"]["name"])
        held = [
            one for one in self._addresses.values()
            if (one["metadata"]["namespace"], one["spec"]["pool"]["name"]) == of_pool
        ]  # fmt: skip
        given = next((one for one in held if one["spec"]["claim"]["name"] == meta["name"]), None)
        if given is None:
            chosen = choose(pool, meta["name"], {one["spec"]["address"] for one in held})
            if chosen is None:
                if status.get("errorMessage") != "Exhausted IP Pools":
                    await patch(self._session, f"{path}/status", {"status": {"errorMessage": "Exhausted IP Pools"}})
                return
            given = await self._make(claim, pool, *chosen)
        reference = {"name": given["metadata"]["name"], "namespace": meta["namespace"]}
        await patch(self._session, f"{path}/status", {"status": {"address": reference, "errorMessage": None}})

    async def _make(self, claim: Json, pool: Json, address: str, part: Json) -> Json:
        meta, spec = claim["metadata"], pool["spec"]
        name = f"{spec['namePrefix']}-{address.replace('.', '-').replace(':', '-')}"
        owner = {
            "apiVersion": "ipam.metal3.io/v1alpha1", "kind": "IPClaim", "name": meta["name"], "uid": meta["uid"],
        }  # fmt: skip
        body = {
            "apiVersion": "ipam.metal3.io/v1alpha1",
            "kind": "IPAddress",
            "metadata": {"name": name, "namespace": meta["namespace"], "ownerReferences": [owner]},
            "spec": {
                "address": address,
                "claim": {"name": meta["name"], "namespace": meta["namespace"]},
                "pool": {"name": pool["metadata"]["name"], "namespace": meta["namespace"]},
                "prefix": part.get("prefix") or spec.get("prefix") or 24,
                "dnsServers": part.get("dnsServers") or spec.get("dnsServers") or [],
                **({"gateway": gateway} if (gateway := part.get("gateway") or spec.get("gateway")) else {}),
            },
        }
        path = f"{IPAM}/namespaces/{meta['namespace']}/ipaddresses"
        async with self._session.post(path, data=msgspec.json.encode(body)) as answer:
            text = await answer.read()
            if answer.status != 409:
                answer.raise_for_status()
            else:
                return body
        made: Json = msgspec.json.decode(text)
        self._addresses[key_of(made)] = made
        return made
