"""One look at further clusters, for the CLI: by their kubeconfigs, which the user must be allowed to read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import replace
from urllib.parse import urlsplit

import msgspec

from hostler.apis.assisted import CLUSTER_DEPLOYMENT, ClusterDeployment
from hostler.apis.capi import CLUSTER, OLDER, Cluster
from hostler.errors import Complaint, Exit
from hostler.host.conditions import cut
from hostler.join.addresses import canonical
from hostler.join.follower import MEMORY_NAMESPACE
from hostler.join.look import Asked, list_served, verdicts
from hostler.join.model import Policy, Verdict
from hostler.join.observe import clusters_of
from hostler.join.spoke import ClusterObject, Spoke, choose_spokes
from hostler.join.spokes import TIMEOUT
from hostler.kube.client import Client
from hostler.kube.clusters import Clusters, Unavailable
from hostler.kube.errors import ApiError, Unreachable
from hostler.kube.kinds import NODE, Kind
from hostler.kube.records import Node

AT_ONCE = 8  # spokes
LARGEST_ANSWER = 64 << 20  # bytes; a person's own machine has more room than the operator's pod


async def verdicts_everywhere(
    hub: Client, asked: Asked, named: Collection[str]
) -> tuple[list[tuple[str, Verdict]], list[str]]:
    """Of this cluster ("") and of each spoke by its name; and why any of them could not be asked."""
    limit = asyncio.Semaphore(AT_ONCE)

    async def ask(spoke: Spoke) -> tuple[list[tuple[str, Verdict]], str]:
        try:
            async with limit, in_spoke(hub, spoke, asked.policy) as (there, how):
                return [(spoke.key, one) for one in await verdicts(there, how)], ""
        except Complaint as why:
            return [], str(why)
        except (ApiError, Unreachable, ValueError, RecursionError, msgspec.MsgspecError) as error:
            return [], f"{spoke} cannot be asked: {cut(str(error))}"

    found = [("", one) for one in await verdicts(hub, asked)]
    there = await list_spokes(hub, named, asked.policy) if named else []
    answers = await asyncio.gather(*(ask(spoke) for spoke in there))
    return found + [one for those, _ in answers for one in those], [why for _, why in answers if why]


async def list_spokes(hub: Client, named: Collection[str], policy: Policy) -> list[Spoke]:
    """The further clusters that are named and there, as the operator chooses them."""
    nodes = await hub.list(NODE, type=Node)
    clusters = await list_served(hub, CLUSTER, OLDER, Cluster)
    deployments = await list_served(hub, CLUSTER_DEPLOYMENT, (), ClusterDeployment)
    found: list[tuple[Kind, ClusterObject]] = [
        *((CLUSTER, one) for one in clusters),
        *((CLUSTER_DEPLOYMENT, one) for one in deployments),
    ]
    return choose_spokes(found, named, clusters_of(nodes, policy))


async def find_spoke(hub: Client, cluster: str, policy: Policy) -> Spoke:
    """The one further cluster NAMESPACE/NAME; by hand it does not matter whether the operator follows it."""
    namespace, _, name = cluster.partition("/")
    found = await list_spokes(hub, (cluster,), policy) if namespace and name not in ("", "*") else []
    if len(found) == 1:
        return found[0]
    if found:
        raise Complaint(f"{cluster} is both a Cluster and a ClusterDeployment here.", code=Exit.REFUSED)
    raise Complaint(
        f'There is no cluster "{cluster}" here, or it is paused, being deleted, or this very cluster.',
        hint="--cluster wants NAMESPACE/NAME of a Cluster (Cluster API) or a ClusterDeployment.",
        code=Exit.REFUSED,
    )


@asynccontextmanager
async def in_spoke(hub: Client, spoke: Spoke, policy: Policy) -> AsyncIterator[tuple[Client, Asked]]:
    """A client of that cluster by its kubeconfig, and how to look there."""
    clusters = Clusters(hub, timeout=TIMEOUT, largest=LARGEST_ANSWER)
    try:
        async with clusters.client(spoke.namespace, spoke.secret) as client:
            if isinstance(client, Unavailable):
                raise Complaint(f"{spoke} cannot be asked: {client.why}", code=Exit.REFUSED)
            there = replace(policy, api_server=canonical(urlsplit(client.connection.server).hostname or ""))
            yield client, Asked(there, MEMORY_NAMESPACE, spoke=spoke, hub=hub)
    finally:
        await clusters.close()
