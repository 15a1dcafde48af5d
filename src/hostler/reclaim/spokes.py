"""The old clusters: their kubeconfigs, whether they answer, and what they say of a host."""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from hostler.drain.model import Memory
from hostler.host.facts import Fact, Known, Unknown
from hostler.instant import Instant
from hostler.kube.client import Client
from hostler.kube.clusters import Clusters, Unavailable
from hostler.kube.errors import ApiError, NotFound, Unreachable
from hostler.kube.kinds import SECRET
from hostler.kube.records import Object
from hostler.kube.writer import Writer
from hostler.reclaim import emptying
from hostler.reclaim.hands import Hands
from hostler.reclaim.model import IN_A_CLUSTER, Cluster, Host, Leaving, Policy, Reason, Spoke, SpokeNode, State
from hostler.reclaim.objects import CLUSTER_DEPLOYMENT, ClusterDeployment, default_kubeconfig
from hostler.reclaim.spoke import deployed

TIMEOUT = 10.0  # seconds for one answer of an old cluster
SILENT = 10.0  # after it did not answer, it is not asked again for so long: its other hosts would only wait too
_UNASKED = Unknown("it was not looked at")


@dataclass(frozen=True, slots=True)
class Open:
    """One old cluster for the length of one look. `hands` is None where it cannot be reached; `kubeconfig` says why."""

    kubeconfig: Fact[bool]
    hands: Hands | None = None
    why: str = ""
    client: Client | None = None


def asks(host: Host) -> bool:
    """Whether a decision on this host needs its old cluster at all."""
    if host.previous is None:
        return False
    if host.deleted:
        return host.kept
    if host.state == State.REBOOTING:
        return False
    settled = (
        host.state in IN_A_CLUSTER and host.bound is not None and host.reason != Reason.CANCELLED and not host.kept
    )
    return not settled


class Spokes:
    """Clients of the old clusters, each from the admin kubeconfig Secret its ClusterDeployment names."""

    def __init__(
        self, hub: Client, writer_for: Callable[[Client], Writer], clock: Callable[[], Instant] = time.time
    ) -> None:
        self._hub, self._writer_for, self._clock = hub, writer_for, clock
        self._clusters = Clusters(hub, timeout=TIMEOUT)
        self._silent: dict[tuple[str, str], tuple[Instant, str]] = {}
        self._turns: weakref.WeakValueDictionary[tuple[str, str], asyncio.Lock] = weakref.WeakValueDictionary()
        self._memories: dict[str, Memory] = {}

    async def sweep(self) -> None:
        await self._clusters.sweep()

    async def close(self) -> None:
        await self._clusters.close()

    def turn(self, cluster: Cluster) -> asyncio.Lock:
        """One host of a cluster at a time puts things there or takes them off: they share some of them."""
        name = (cluster.namespace, cluster.name)
        lock = self._turns.get(name)
        if lock is None:
            lock = self._turns[name] = asyncio.Lock()
        return lock

    @asynccontextmanager
    async def open(self, cluster: Cluster) -> AsyncIterator[Open]:
        name = (cluster.namespace, cluster.name)
        until, why = self._silent.get(name, (0.0, ""))
        if self._clock() < until:
            yield Open(Known(True, self._clock()), why=why)
            return
        secret = await self._secret(cluster)
        if not isinstance(secret, str):
            yield Open(secret, why=secret.why if isinstance(secret, Unknown) else "there is no kubeconfig")
            return
        async with self._clusters.client(cluster.namespace, secret) as client:
            if isinstance(client, Unavailable):
                yield Open(Known(True, self._clock()), why=client.why)
                return
            yield Open(Known(True, self._clock()), Hands(client, self._writer_for(client), self._clock), client=client)

    async def look(self, host: Host, spoke: Open, policy: Policy, leaving: Callable[[], Leaving] = Leaving) -> Spoke:
        """What the old cluster says of this host now; `leaving` finds the nodes of hosts that leave it too."""
        assert host.previous is not None
        if spoke.hands is None or spoke.client is None:
            unknown = Unknown(spoke.why)
            return Spoke(spoke.kubeconfig, unknown, unknown, unknown)
        hands = spoke.hands
        node = await hands.node(host.previous.node)
        if isinstance(node, Unknown):
            self._silent[(host.previous.namespace, host.previous.name)] = (self._clock() + SILENT, node.why)
            return Spoke(spoke.kubeconfig, node, node, node)
        self._silent.pop((host.previous.namespace, host.previous.name), None)
        deciding = host.state in (*IN_A_CLUSTER, State.PENDING, State.RECLAIMING) and host.bound is None
        counts = deciding and node.value is not None and node.value.control_plane
        drains = policy.drain is not None and host.state == State.RECLAIMING
        found = Spoke(
            spoke.kubeconfig,
            node,
            await hands.control_plane(host.previous.node, leaving()) if counts else _UNASKED,
            await hands.remains(host.uid) if host.state != State.RECLAIMING or drains or host.deleted else _UNASKED,
        )
        if drains and node.value is not None and node.value.held:
            return await self._drain(host, spoke.client, found, node.value, policy)
        return found

    async def _drain(self, host: Host, client: Client, found: Spoke, node: SpokeNode, policy: Policy) -> Spoke:
        assert policy.drain is not None
        if host.since is None or deployed(found.remains, node.name):
            self._memories.pop(host.uid, None)
            return found
        memory = self._memories.get(host.uid, Memory())
        decision, memory = await emptying.look(client, node.name, host.since, memory, policy.drain, self._clock())
        self._memories[host.uid] = memory
        return replace(found, drain=decision)

    def memory(self, host: Host) -> Memory:
        return self._memories.get(host.uid, Memory())

    def remember(self, host: Host, memory: Memory) -> None:
        self._memories[host.uid] = memory

    def forget(self, uid: str) -> None:
        self._memories.pop(uid, None)

    async def _secret(self, cluster: Cluster) -> str | Fact[bool]:
        """The Secret with the admin kubeconfig: the one it names; where it names none, assisted-service's own."""
        try:
            deployment = await self._hub.get(
                CLUSTER_DEPLOYMENT, cluster.name, cluster.namespace, type=ClusterDeployment
            )
            metadata = deployment.spec.cluster_metadata
            reference = metadata.admin_kubeconfig_secret_ref if metadata is not None else None
            named = reference.name if reference is not None else ""
            name = named or default_kubeconfig(cluster.name)
            if await self._is_there(name, cluster.namespace):
                return name
        except NotFound:
            pass  # the ClusterDeployment is gone
        except (ApiError, Unreachable) as error:
            return Unknown(str(error))
        return Known(False, self._clock())

    async def _is_there(self, secret: str, namespace: str) -> bool:
        try:
            await self._hub.get(SECRET, secret, namespace, type=Object)
        except NotFound:
            return False
        return True
