"""How emptying a node of another cluster stands: its pods and budgets are asked for, not watched: it is one drain."""

from __future__ import annotations

import asyncio

from hostler.drain.decide import decide
from hostler.drain.filters import controller_of
from hostler.drain.model import Decision, Facts, Memory, Policy, State
from hostler.drain.observe import volumes_of_staying
from hostler.drain.order import is_helper, replicas_of
from hostler.host.facts import Known
from hostler.instant import Instant
from hostler.kube.client import Client
from hostler.kube.foreign import FAILURES, describe_failure
from hostler.kube.kinds import DAEMON_SET, POD, POD_DISRUPTION_BUDGET, VOLUME_ATTACHMENT
from hostler.kube.records import Object, Pod, PodDisruptionBudget, VolumeAttachment, key_of


async def look(
    client: Client, node: str, started: Instant, memory: Memory, policy: Policy, now: Instant
) -> tuple[Decision, Memory]:
    """The drain's decision on what that cluster says now, and the memory to go on with."""
    try:
        facts = await _facts(client, node, started, memory, now)
        decision = decide(facts, policy, now)
        if decision.state is State.WAITING_FOR_VOLUMES:
            kept = await volumes_of_staying(client, decision.verdicts)
            decision = decide(await _facts(client, node, started, facts.memory, now, kept), policy, now)
    except FAILURES as error:
        return Decision(
            State.UNKNOWN, (), f"The pods of {node} are not known: {describe_failure(error)}.", None
        ), memory
    return decision, facts.memory


async def _facts(
    client: Client, node: str, started: Instant, memory: Memory, now: Instant, kept: frozenset[str] = frozenset()
) -> Facts:
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
    peers = await _peers(client, pods, node)
    return Facts(
        node=node,
        started=started,
        pods=Known(tuple(pods), now),
        attachments=Known(tuple(one for one in attachments if one.spec.node_name == node), now),
        budgets=Known(tuple(budgets), now),
        daemon_sets=Known(frozenset(key_of(one.metadata) for one in daemon_sets), now),
        peers=peers,
        kept_volumes=kept,
        memory=memory.seen(tuple(pods), now, replicas_of((*pods, *peers))),
    )


async def _peers(client: Client, pods: list[Pod], node: str) -> tuple[Pod, ...]:
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
