"""What `hostler doctor` finds: what reclaim will refuse as the hub is, and what it left when it was switched off."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hostler.apis.assisted import AGENT, CLUSTER_DEPLOYMENT, INFRA_ENV, Agent, ClusterDeployment, InfraEnv
from hostler.explain.doctor import Finding, Level
from hostler.host.conditions import names
from hostler.host.facts import Fact, Known, Unknown
from hostler.kube.client import Client
from hostler.kube.errors import NotFound
from hostler.kube.records import Object, key_of
from hostler.reclaim.artifacts import BootPolicy, Distrust, find_refused_argument, find_untrusted
from hostler.reclaim.facts import AGENTS_FROM, FINALIZER, artifacts_of, host_of
from hostler.reclaim.identity import allowed_namespaces

WHAT = "reclaim"


@dataclass(frozen=True, slots=True)
class HubObjects:
    """The objects a reclaim begins from."""

    agents: tuple[Agent, ...] = ()
    infra_envs: tuple[InfraEnv, ...] = ()
    clusters: tuple[ClusterDeployment, ...] = ()


async def read_hub_objects(client: Client) -> HubObjects:
    """Each kind, read once. Where they are not installed there is nothing to refuse."""
    try:
        return HubObjects(
            tuple(await client.list(AGENT, type=Agent)),
            tuple(await client.list(INFRA_ENV, type=InfraEnv)),
            tuple(await client.list(CLUSTER_DEPLOYMENT, type=ClusterDeployment)),
        )
    except NotFound:
        return HubObjects()


def list_findings(seen: Fact[HubObjects], told: Mapping[str, str], *, on: Fact[bool]) -> Iterator[Finding]:
    """`told` are the operator's settings, as it shows them. Nothing where reclaim is not known to be on."""
    if not (isinstance(on, Known) and on.value):
        return
    if isinstance(seen, Unknown):
        yield Finding(Level.WARNING, WHAT, f"Its objects cannot be read: {seen.why}", "You need `list` on them.")
        return
    if told.get("HUB_URL", "").lower().startswith("http://"):
        why = "HUB_URL is plain HTTP: anyone on the network path reads the tokens of hosts and chooses what they boot."
        yield Finding(Level.WARNING, WHAT, why, "Serve the hub with TLS, and unset HOSTLER_HUB_PLAIN_HTTP.")
    yield from _boot_findings(seen.value, told)
    yield from _namespace_findings(seen.value, _split_list(told, "HOSTLER_RECLAIM_INVENTORIES"))


def _boot_findings(seen: HubObjects, told: Mapping[str, str]) -> Iterator[Finding]:
    policy = BootPolicy(
        told.get("HUB_URL", ""),
        _split_list(told, "HOSTLER_RECLAIM_ARTIFACT_HOSTS"),
        _split_list(told, "HOSTLER_RECLAIM_KERNEL_ARGUMENTS"),
    )
    unless = " unless HOSTLER_HUB_ARTIFACTS has them" if told.get("HOSTLER_HUB_ARTIFACTS") else ""
    hosts = defaultdict[str, list[str]](list)
    for infra_env in seen.infra_envs:
        artifacts = artifacts_of(infra_env)
        found = find_untrusted(artifacts, policy) if artifacts is not None else None
        if found is not None and found.why is Distrust.PLAIN_HTTP:
            hosts[found.host].append(key_of(infra_env.metadata))
        if artifacts is not None and (refused := find_refused_argument(artifacts.arguments, policy.arguments)):
            why = (
                f"InfraEnv {key_of(infra_env.metadata)} has the kernel argument {refused}; its hosts are not returned."
            )
            yield Finding(Level.WARNING, WHAT, why, "Remove it, or add its name to HOSTLER_RECLAIM_KERNEL_ARGUMENTS.")
    for host, environments in sorted(hosts.items()):
        yield Finding(
            Level.WARNING,
            WHAT,
            f"Hosts of InfraEnv {names(environments)} boot from {host} by plain HTTP; they are not returned{unless}.",
            f"If {host} is your image service and you trust the network to it: HOSTLER_RECLAIM_ARTIFACT_HOSTS={host}. "
            "Else use https.",
        )


def _namespace_findings(seen: HubObjects, inventories: frozenset[str]) -> Iterator[Finding]:
    notes = {key_of(cluster.metadata): cluster.metadata.annotations.get(AGENTS_FROM, "") for cluster in seen.clusters}
    kept = defaultdict[str, set[str]](set)
    for agent in seen.agents:
        host = host_of(agent)
        cluster = host.bound or ((host.previous.namespace, host.previous.name) if host.previous is not None else None)
        if cluster is None:
            continue
        where = "/".join(cluster)
        if host.namespace not in allowed_namespaces(cluster[0], notes.get(where, ""), inventories):
            kept[host.namespace].add(where)
    for namespace, clusters in sorted(kept.items()):
        yield Finding(
            Level.WARNING,
            WHAT,
            f"Agents of namespace {namespace} are hosts of {names(sorted(clusters))}; they are not returned.",
            f"If only administrators write Agents there: HOSTLER_RECLAIM_INVENTORIES={namespace}. Else annotate those "
            f"ClusterDeployments with {AGENTS_FROM}={namespace}.",
        )


def _split_list(told: Mapping[str, str], name: str) -> frozenset[str]:
    return frozenset(item.strip() for item in told.get(name, "").split(",") if item.strip())


async def find_kept_agents(client: Client) -> tuple[str, ...]:
    """Agents whose old cluster may still have something of ours. Where the kind is not installed there are none."""
    try:
        agents = await client.list(AGENT, type=Object)
    except NotFound:
        return ()
    kept = [agent.metadata for agent in agents if FINALIZER in agent.metadata.finalizers]
    return tuple(f"Agent {about.namespace}/{about.name}" for about in kept)
