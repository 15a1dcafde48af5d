"""What `hostler join csrs`, `approve` and `expect` do: the verdicts that the operator reaches, and writes by hand.

Further clusters are reached by their kubeconfigs, which the user must be allowed to read.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from hostler.apis import capi
from hostler.apis.assisted import CLUSTER_DEPLOYMENT, ClusterDeployment
from hostler.apis.capi import CLUSTER, Cluster
from hostler.apis.fleet import NAME, WHO_LIMIT, ExpectedHost, Fleet
from hostler.errors import Complaint, Exit
from hostler.host.conditions import cut
from hostler.host.facts import Fact
from hostler.install.admission import EXPECTED_HOSTS, find_problem
from hostler.install.apply import missing, read_policies
from hostler.instant import Instant, iso, parse
from hostler.join.decide import judge_requests
from hostler.join.executor import approval_body
from hostler.join.invitations import OLDER, SOURCES
from hostler.join.kubelet_request import Shape, shape_of
from hostler.join.model import CLIENT, OURS, SIGNING_REQUEST, USED, Live, Outcome, Policy, SigningRequest, Use, Verdict
from hostler.join.observe import Memory, Reading, clusters_of, facts_of_reading, line_of, pending_of
from hostler.join.rules import canonical
from hostler.join.served_certificate import (
    kubelets_to_ask,
    may_be_renewal,
    read_kubelet_authority,
    read_served_certificate,
)
from hostler.join.spoke_follower import MEMORY_NAMESPACE
from hostler.join.spoke_followers import TIMEOUT
from hostler.join.spokes import ClusterObject, Spoke, choose_spokes
from hostler.kube.client import Client
from hostler.kube.clusters import Clusters, Unavailable
from hostler.kube.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound, Unreachable
from hostler.kube.kinds import CONFIG_MAP, FLEET, NODE, SELF_REVIEW, Kind
from hostler.kube.records import Node, Object
from hostler.kube.self_review import who_am_i

T = TypeVar("T")
ATTEMPTS = 20
FORGET_SECONDS = 7 * 86400.0


@dataclass(frozen=True, slots=True)
class Asked:
    """Where and how to look. With a `spoke`, hosts and the Fleet are read on the `hub`, everything else there."""

    policy: Policy
    namespace: str
    kubelet_ca: str = ""
    spoke: Spoke | None = None
    hub: Client | None = None


async def verdicts(client: Client, asked: Asked) -> list[Verdict]:
    """A verdict for every pending request of a node."""
    now = time.time()
    hub = asked.hub or client
    reading = Reading(
        requests=await client.list(SIGNING_REQUEST, type=SigningRequest),
        nodes=await client.list(NODE, type=Node),
        hosts=[(kind, host) for kind in SOURCES for host in await _all(hub, kind)],
        fleet=await hub.find(FLEET, NAME, type=Fleet),
        memory=await client.find(CONFIG_MAP, USED, asked.namespace, type=Memory),
        spoke=asked.spoke,
    )
    live: dict[str, Fact[Live]] = {}
    for _ in range(2):
        facts = facts_of_reading(reading, asked.policy, now, live)
        judged = judge_requests(pending_of(reading.requests), facts, asked.policy, now)
        doubtful = [verdict for verdict in judged if may_be_renewal(verdict) and verdict.uid not in live]
        if not doubtful or asked.spoke is not None:  # as the operator: no kubelet of a spoke is asked
            break
        ca = await read_kubelet_authority(client, asked.kubelet_ca)
        served: dict[str, Fact[Live]] = {}
        while some := kubelets_to_ask([verdict for verdict in doubtful if verdict.node not in served], {}):
            answers = await asyncio.gather(*(read_served_certificate(client, node, ca, now) for node in some))
            served |= zip(some, answers, strict=True)
        live |= {verdict.uid: served[verdict.node] for verdict in doubtful}
    return judged


async def request_of(client: Client, name: str) -> SigningRequest:
    try:
        found = await client.get(SIGNING_REQUEST, name, type=SigningRequest)
    except NotFound:
        raise Complaint(
            f'There is no certificate request "{name}".', hint="`hostler join csrs` lists them.", code=Exit.REFUSED
        ) from None
    if found.spec.signer_name not in OURS:
        raise Complaint(
            f"{name} is for the signer {found.spec.signer_name}, which is not a node's.",
            hint="`kubectl certificate approve` is for those.",
            code=Exit.REFUSED,
        )
    return found


async def approve(client: Client, request: SigningRequest, verdict: Verdict, namespace: str) -> bool:
    """By hand: written down like any other, then approved with the version that was shown.

    False: the operator's namespace is not there, so it could not be written down.
    """
    who = cut(await who_am_i(client), WHO_LIMIT)
    noted = verdict.serving or await _write_down(client, namespace, verdict)
    failed = [rule.why for rule in verdict.rules if rule.outcome is not Outcome.HOLDS]
    why = f"Approved by hand by {who}." + (f" Not held: {'; '.join(failed)}." if failed else "")
    try:
        await client.patch(
            SIGNING_REQUEST, verdict.csr, approval_body(request, why, time.time()), type=Object, subresource="approval"
        )
    except Conflict:
        raise Complaint(
            f"{verdict.csr} changed meanwhile; it was not approved.", hint="Look again.", code=Exit.REFUSED
        ) from None
    return noted


async def _write_down(client: Client, namespace: str, verdict: Verdict) -> bool:
    line = {verdict.node: line_of(Use(verdict.csr, verdict.uid, verdict.created))}
    try:
        await client.patch(CONFIG_MAP, USED, {"data": line}, namespace, type=Object)
    except NotFound:
        try:
            await client.create(CONFIG_MAP, {"metadata": {"name": USED}, "data": line}, namespace, type=Object)
        except AlreadyExists:
            await client.patch(CONFIG_MAP, USED, {"data": line}, namespace, type=Object)
        except NotFound:
            return False
    return True


async def expected(client: Client) -> list[tuple[ExpectedHost, bool]]:
    """The hosts that are expected by name, by the Fleet; those whose time is over are among them for a while.

    With each: whether the API server compared its `by` with the user who wrote it. Nothing is decided by that name.
    """
    fleet = await client.find(FLEET, NAME, type=Fleet)
    since = await _compared_since(client)
    return [(entry, _is_compared(entry, since)) for entry in (fleet.spec.join.expected if fleet is not None else ())]


async def _compared_since(client: Client) -> Instant | None:
    """Since when the admission policy is there; None: it is not in force, or this user may not see it."""
    try:
        seen = await read_policies(client)
    except Forbidden:
        return None
    if seen is None or find_problem(EXPECTED_HOSTS, *seen):
        return None
    (policy,) = (found for found in seen[0] if found.metadata.name == EXPECTED_HOSTS.name)
    return parse(policy.metadata.creation_timestamp)


def _is_compared(entry: ExpectedHost, since: Instant | None) -> bool:
    """Entries from before the policy stayed as they were, whatever name they carry."""
    began = parse(entry.since)
    return bool(entry.by) and since is not None and began is not None and began >= since


async def expect(
    client: Client, name: str, addresses: tuple[str, ...], seconds: float, *, pending: bool = False
) -> tuple[ExpectedHost, list[str]]:
    """Add or renew an expected host in the Fleet; another user's entry of this moment is not lost.

    Also returns the requests for that node that are pending. With `pending` the host is expected since the first of
    them: a kubelet waits for the request it has made and makes no second one.
    """
    now = await server_time(client)
    by = (await who_am_i(client))[:WHO_LIMIT]  # as the admission policy cuts it
    try:
        waiting = _asking_for(name, await client.list(SIGNING_REQUEST, type=SigningRequest))
    except Forbidden:
        if pending:
            raise
        waiting = []  # a host can be expected without the right to see who asks
    asked = [at for request in waiting if (at := parse(request.metadata.creation_timestamp)) is not None]
    since = min([now, *asked]) if pending else now
    entry = ExpectedHost(name=name, since=iso(since), until=iso(now + seconds), addresses=addresses, by=by)
    # Hosts that were expected until long ago go with this, so that the list does not grow for ever.
    await _change(
        client, lambda those: [*(host for host in those if host.name != name and not _long_gone(host, now)), entry]
    )
    return entry, [request.metadata.name for request in waiting]


def _asking_for(node: str, requests: list[SigningRequest]) -> list[SigningRequest]:
    """Pending requests for a client certificate of that node, well-formed ones only."""
    shapes = (
        (request, shape_of(request.spec)) for request in pending_of(requests) if request.spec.signer_name == CLIENT
    )
    return [request for request, shape in shapes if isinstance(shape, Shape) and shape.node == node]


def _long_gone(entry: ExpectedHost, now: Instant) -> bool:
    until = parse(entry.until)
    return until is not None and now - until > FORGET_SECONDS


async def unexpect(client: Client, name: str) -> bool:
    """Take an expected host away; False: there was none."""
    found = False

    def without(those: tuple[ExpectedHost, ...]) -> list[ExpectedHost]:
        nonlocal found
        found = any(host.name == name for host in those)
        return [host for host in those if host.name != name]

    await _change(client, without)
    return found


async def _change(client: Client, change: Any) -> None:
    for _ in range(ATTEMPTS):
        fleet = await client.find(FLEET, NAME, type=Fleet)
        those = change(fleet.spec.join.expected if fleet is not None else ())
        spec = {"join": {"expected": msgspec.to_builtins(sorted(those, key=lambda host: host.name))}}
        try:
            if fleet is None:
                await client.create(FLEET, {"metadata": {"name": NAME}, "spec": spec}, type=Object)
            else:
                about = {"resourceVersion": fleet.metadata.resource_version}
                await client.patch(FLEET, NAME, {"metadata": about, "spec": spec}, type=Object)
            return
        except Conflict:
            continue
        except NotFound:
            raise missing("Expecting a host") from None
    raise Complaint("The Fleet changes all the time; nothing was written.", hint="Try again.", code=Exit.REFUSED)


async def server_time(client: Client) -> Instant:
    """The API server's clock: requests carry it too. Ours, where it does not say (to a second)."""
    answer = await client.create(SELF_REVIEW, {}, type=Object)
    return parse(answer.metadata.creation_timestamp) or time.time()


async def _all(client: Client, kind: Kind) -> list[Any]:
    return await list_served(client, kind, OLDER.get(kind, ()), SOURCES[kind])


async def list_served(client: Client, kind: Kind, older: Sequence[str], type: type[T]) -> list[T]:
    for version in (kind.version, *older):
        try:
            return await client.list(replace(kind, version=version), type=type)
        except NotFound:
            continue
    return []  # the kind is not installed here


def listed(verdict: Verdict, cluster: str = "") -> dict[str, Any]:
    """One verdict for machines. `cluster`: the NAMESPACE/NAME of a spoke; empty: the cluster that was asked."""
    return {
        "name": verdict.csr,
        "cluster": cluster,
        "node": verdict.node,
        "kind": "serving" if verdict.serving else "client",
        "verdict": str(verdict.act),
        "why": verdict.why,
        "created": iso(verdict.created) if verdict.created else "",
        "rules": [{"name": rule.name, "outcome": str(rule.outcome), "why": rule.why} for rule in verdict.rules],
    }


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
                return [(spoke.key, verdict) for verdict in await verdicts(there, how)], ""
        except Complaint as why:
            return [], str(why)
        except (ApiError, Unreachable, ValueError, RecursionError, msgspec.MsgspecError) as error:
            return [], f"{spoke} cannot be asked: {cut(str(error))}"

    found = [("", verdict) for verdict in await verdicts(hub, asked)]
    there = await list_spokes(hub, named, asked.policy) if named else []
    answers = await asyncio.gather(*(ask(spoke) for spoke in there))
    return found + [verdict for those, _ in answers for verdict in those], [why for _, why in answers if why]


async def list_spokes(hub: Client, named: Collection[str], policy: Policy) -> list[Spoke]:
    """The further clusters that are named and there, as the operator chooses them."""
    nodes = await hub.list(NODE, type=Node)
    clusters = await list_served(hub, CLUSTER, capi.OLDER, Cluster)
    deployments = await list_served(hub, CLUSTER_DEPLOYMENT, (), ClusterDeployment)
    found: list[tuple[Kind, ClusterObject]] = [
        *((CLUSTER, cluster) for cluster in clusters),
        *((CLUSTER_DEPLOYMENT, deployment) for deployment in deployments),
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
