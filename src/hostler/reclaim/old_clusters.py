"""The old clusters: their kubeconfigs, whether they answer, and what they say of a host."""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from hostler.apis.assisted import CLUSTER_DEPLOYMENT, ClusterDeployment
from hostler.drain import model as drain_model
from hostler.drain.decide import decide
from hostler.drain.filters import controller_of
from hostler.drain.model import Memory
from hostler.drain.observe import volumes_of_staying
from hostler.drain.order import is_helper, replicas_of
from hostler.host.facts import Fact, Known, Unknown
from hostler.instant import Instant
from hostler.kube.client import Client
from hostler.kube.clusters import Clusters, Unavailable
from hostler.kube.errors import ApiError, NotFound, Unreachable
from hostler.kube.foreign import FAILURES, describe_failure
from hostler.kube.kinds import DAEMON_SET, POD, POD_DISRUPTION_BUDGET, SECRET, VOLUME_ATTACHMENT
from hostler.kube.records import Object, Pod, PodDisruptionBudget, VolumeAttachment, key_of
from hostler.kube.writer import Writer
from hostler.reclaim.agent_manifests import has_own_objects, is_deployed
from hostler.reclaim.executor import SpokeExecutor
from hostler.reclaim.facts import AGENTS_FROM, default_kubeconfig
from hostler.reclaim.identity import allowed_namespaces
from hostler.reclaim.model import (
    IN_A_CLUSTER,
    UNASKED,
    Cluster,
    Host,
    Leaving,
    Policy,
    Reason,
    Spoke,
    SpokeNode,
    SpokeObject,
    State,
    is_held_for,
)

TIMEOUT = 10.0  # seconds for one answer of an old cluster
SILENT = 10.0  # after it did not answer, it is not asked again for so long: its other hosts would only wait too


@dataclass(frozen=True, slots=True)
class OpenSpoke:
    """One old cluster for the length of one look. `executor` is None where it cannot be reached; `why` says why."""

    kubeconfig: Fact[bool]
    allowed: Fact[frozenset[str]]  # namespaces whose Agents may act in it
    executor: SpokeExecutor | None = None
    why: str = ""
    client: Client | None = None

    def reach(self, namespace: str) -> Fact[bool]:
        """Whether Agents of a namespace may act in this cluster."""
        match self.allowed:
            case Known(allowed, at):
                return Known(namespace in allowed, at)
        return self.allowed


def needs_spoke(host: Host) -> bool:
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


class SpokeClusters:
    """Clients of the old clusters, each from the admin kubeconfig Secret its ClusterDeployment names."""

    def __init__(
        self,
        hub: Client,
        writer_for: Callable[[Client], Writer],
        clock: Callable[[], Instant] = time.time,
        inventories: frozenset[str] = frozenset(),
    ) -> None:
        """`inventories`: namespaces whose Agents may act in every cluster."""
        self._hub, self._writer_for, self._clock, self._inventories = hub, writer_for, clock, inventories
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
    async def open(self, cluster: Cluster) -> AsyncIterator[OpenSpoke]:
        name, there = (cluster.namespace, cluster.name), Known(True, self._clock())
        deployment = await self._deployment(cluster)
        allowed = self._allowed(cluster, deployment)
        until, why = self._silent.get(name, (0.0, ""))
        if self._clock() < until:
            yield OpenSpoke(there, allowed, why=why)
            return
        secret = await self._secret(cluster, deployment)
        if not isinstance(secret, str):
            yield OpenSpoke(
                secret, allowed, why=secret.why if isinstance(secret, Unknown) else "there is no kubeconfig"
            )
            return
        async with self._clusters.client(cluster.namespace, secret) as client:
            if isinstance(client, Unavailable):
                yield OpenSpoke(there, allowed, why=client.discreet or client.why)
                return
            yield OpenSpoke(there, allowed, SpokeExecutor(client, self._writer_for(client), self._clock), client=client)

    async def look(
        self,
        host: Host,
        spoke: OpenSpoke,
        policy: Policy,
        leaving: Callable[[frozenset[str]], Leaving] = lambda _: Leaving(),
    ) -> Spoke:
        """What the old cluster says of this host now; `leaving` finds the nodes of hosts that leave it too.

        An Agent that may not act there learns nothing of it: only what was put there for that very Agent while it
        might is looked for, and the node that was cordoned for it, to be taken back.
        """
        assert host.previous is not None
        reach = spoke.reach(host.namespace)
        if spoke.executor is None or spoke.client is None:
            unknown = Unknown(spoke.why)
            return Spoke(spoke.kubeconfig, unknown, unknown, unknown, reach=reach)
        executor = spoke.executor
        if not (isinstance(reach, Known) and reach.value and isinstance(spoke.allowed, Known)):
            none: Fact[frozenset[SpokeObject]] = Known(frozenset(), self._clock())
            left = await executor.remains(host.uid) if host.kept else none
            left = left if isinstance(left, Unknown) or has_own_objects(left) else none
            held = await self._held_node(host, executor) if isinstance(left, Known) else UNASKED
            left = held if isinstance(held, Unknown) and held is not UNASKED else left
            return Spoke(spoke.kubeconfig, held, UNASKED, left, reach=reach)
        node = await executor.node(host.previous.node)
        if isinstance(node, Unknown):
            self._silent[(host.previous.namespace, host.previous.name)] = (self._clock() + SILENT, node.why)
            return Spoke(spoke.kubeconfig, node, node, node, reach=reach)
        self._silent.pop((host.previous.namespace, host.previous.name), None)
        deciding = host.state in (*IN_A_CLUSTER, State.PENDING, State.RECLAIMING) and host.bound is None
        counts = deciding and node.value is not None and node.value.control_plane
        drains = policy.drain is not None and host.state == State.RECLAIMING
        found = Spoke(
            spoke.kubeconfig,
            node,
            await executor.control_plane(host.previous.node, leaving(spoke.allowed.value)) if counts else UNASKED,
            await executor.remains(host.uid) if host.state != State.RECLAIMING or drains or host.deleted else UNASKED,
            reach=reach,
        )
        if drains and node.value is not None and node.value.held:
            return await self._drain(host, spoke.client, found, node.value, policy)
        return found

    async def _held_node(self, host: Host, executor: SpokeExecutor) -> Fact[SpokeNode | None]:
        """The node that is cordoned for an Agent which may not act there any more. Any other one is not looked at."""
        if host.previous is None or not (host.kept and host.pinned):
            return UNASKED
        node = await executor.node(host.previous.node)
        if isinstance(node, Known) and not (node.value is not None and is_held_for(host, node.value)):
            return UNASKED
        return node

    async def _drain(self, host: Host, client: Client, found: Spoke, node: SpokeNode, policy: Policy) -> Spoke:
        assert policy.drain is not None
        if host.since is None or is_deployed(found.remains, node.name):
            self._memories.pop(host.uid, None)
            return found
        memory = self._memories.get(host.uid, Memory())
        decision, memory = await look_at_drain(client, node.name, host.since, memory, policy.drain, self._clock())
        self._memories[host.uid] = memory
        return replace(found, drain=decision)

    def memory(self, host: Host) -> Memory:
        return self._memories.get(host.uid, Memory())

    def remember(self, host: Host, memory: Memory) -> None:
        self._memories[host.uid] = memory

    def forget(self, uid: str) -> None:
        self._memories.pop(uid, None)

    async def _deployment(self, cluster: Cluster) -> Fact[ClusterDeployment | None]:
        try:
            found = await self._hub.get(CLUSTER_DEPLOYMENT, cluster.name, cluster.namespace, type=ClusterDeployment)
        except NotFound:
            return Known(None, self._clock())
        except (ApiError, Unreachable) as error:
            return Unknown(str(error))
        return Known(found, self._clock())

    def _allowed(self, cluster: Cluster, deployment: Fact[ClusterDeployment | None]) -> Fact[frozenset[str]]:
        match deployment:
            case Known(found, at):
                agents_from = found.metadata.annotations.get(AGENTS_FROM, "") if found is not None else ""
                return Known(allowed_namespaces(cluster.namespace, agents_from, self._inventories), at)
        return deployment

    async def _secret(self, cluster: Cluster, deployment: Fact[ClusterDeployment | None]) -> str | Fact[bool]:
        """The Secret with the admin kubeconfig: the one it names; where it names none, assisted-service's own."""
        if isinstance(deployment, Unknown):
            return deployment
        if deployment.value is None:
            return Known(False, self._clock())
        metadata = deployment.value.spec.cluster_metadata
        reference = metadata.admin_kubeconfig_secret_ref if metadata is not None else None
        name = (reference.name if reference is not None else "") or default_kubeconfig(cluster.name)
        try:
            return name if await self._is_there(name, cluster.namespace) else Known(False, self._clock())
        except (ApiError, Unreachable) as error:
            return Unknown(str(error))

    async def _is_there(self, secret: str, namespace: str) -> bool:
        try:
            await self._hub.get(SECRET, secret, namespace, type=Object)
        except NotFound:
            return False
        return True


async def look_at_drain(
    client: Client, node: str, started: Instant, memory: Memory, policy: drain_model.Policy, now: Instant
) -> tuple[drain_model.Decision, Memory]:
    """The drain's decision on what that cluster says now, and the memory to go on with."""
    try:
        facts = await _drain_facts(client, node, started, memory, now)
        decision = decide(facts, policy, now)
        if decision.state is drain_model.State.WAITING_FOR_VOLUMES:
            kept = await volumes_of_staying(client, decision.verdicts)
            decision = decide(await _drain_facts(client, node, started, facts.memory, now, kept), policy, now)
    except FAILURES as error:
        return drain_model.Decision(
            drain_model.State.UNKNOWN, (), f"Cannot read the pods of {node}: {describe_failure(error)}.", None
        ), memory
    return decision, facts.memory


async def _drain_facts(
    client: Client, node: str, started: Instant, memory: Memory, now: Instant, kept: frozenset[str] = frozenset()
) -> drain_model.Facts:
    pods, attachments, daemon_sets = await asyncio.gather(
        client.list(POD, type=Pod, fields=f"spec.nodeName={node}"),
        client.list(VOLUME_ATTACHMENT, type=VolumeAttachment),
        client.list(DAEMON_SET, type=Object),
    )
    budgets = [
        budget
        for namespace in sorted({pod.metadata.namespace for pod in pods})
        for budget in await client.list(POD_DISRUPTION_BUDGET, namespace, type=PodDisruptionBudget)
    ]
    peers = await _helper_peers(client, pods, node)
    return drain_model.Facts(
        node=node,
        started=started,
        pods=Known(tuple(pods), now),
        attachments=Known(tuple(attachment for attachment in attachments if attachment.spec.node_name == node), now),
        budgets=Known(tuple(budgets), now),
        daemon_sets=Known(frozenset(key_of(daemon_set.metadata) for daemon_set in daemon_sets), now),
        peers=peers,
        kept_volumes=kept,
        memory=memory.seen(tuple(pods), now, replicas_of((*pods, *peers))),
    )


async def _helper_peers(client: Client, pods: list[Pod], node: str) -> tuple[Pod, ...]:
    """Replicas elsewhere of the cluster helpers here; no other namespace is read."""
    owners = {
        owner.uid: pod.metadata.namespace
        for pod in pods
        if is_helper(pod) and (owner := controller_of(pod)) is not None
    }
    found: list[Pod] = []
    for namespace in sorted(set(owners.values())):
        for pod in await client.list(POD, namespace, type=Pod):
            owner = controller_of(pod)
            if owner is not None and owner.uid in owners and pod.spec.node_name != node:
                found.append(pod)
    return tuple(found)
