"""For the CLI: hosts as a person wants to see them, and requests annotated on them. Looking needs no operator."""

from __future__ import annotations

import time
import uuid

import msgspec

from hostler.apis.assisted import AGENT, BMH_LABEL, INFRA_ENV, Agent, InfraEnv
from hostler.errors import Complaint, Exit
from hostler.instant import iso
from hostler.kube.client import Client
from hostler.kube.errors import Conflict, NotFound
from hostler.kube.kinds import SECRET
from hostler.kube.records import Secret, key_of
from hostler.reclaim.facts import CANCEL, CONFIRM, PROGRESS, RECLAIMED, RETRY, host_of
from hostler.reclaim.hub import keyring
from hostler.reclaim.hub.tokens import Keys
from hostler.reclaim.model import IN_A_CLUSTER, UNDER_WAY, State


class Line(msgspec.Struct, rename="camel", frozen=True):
    """One host."""

    agent: str
    hostname: str
    state: str
    since: str
    cluster: str  # the one it is in, or was in
    reason: str
    progress: str
    message: str


async def list_lines(client: Client, namespace: str | None = None, labels: str = "") -> list[Line]:
    """Every Agent that reclaim has to do with: in a cluster, on its way out of one, or back in discovery."""
    found = await _list_agents(client, namespace, labels)
    return [line_of(one) for one in sorted(found, key=lambda one: key_of(one.metadata))]


async def _list_agents(client: Client, namespace: str | None, labels: str = "") -> list[Agent]:
    try:
        return await client.list(AGENT, namespace, type=Agent, labels=labels)
    except NotFound:
        raise Complaint(
            "There are no Agents in this cluster: the kind is not installed.",
            hint="This is not the hub, or its CRDs are missing.",
            code=Exit.REFUSED,
        ) from None


def line_of(agent: Agent) -> Line:
    host = host_of(agent)
    condition = next((condition for condition in agent.status.conditions if condition.type == RECLAIMED), None)
    previous = f"{host.previous.namespace}/{host.previous.name}" if host.previous is not None else ""
    under_way = host.state in UNDER_WAY
    return Line(
        agent=key_of(agent.metadata),
        hostname=host.hostname,
        state=host.state,
        since=host.stage,
        cluster="/".join(host.bound) if host.bound is not None else previous,
        reason=condition.reason if condition is not None else "",
        progress=agent.metadata.annotations.get(PROGRESS, "") if under_way else "",
        message=condition.message if condition is not None else "",
    )


async def find_agent(client: Client, name: str, within: str = "") -> Agent:
    """The Agent of this name, NAMESPACE/NAME or a name that is unique, everywhere or `within` one namespace."""
    namespace, slash, rest = name.partition("/")
    if slash:
        try:
            return await client.get(AGENT, rest, namespace, type=Agent)
        except NotFound:
            raise Complaint(f"There is no Agent {name}.", hint=_LIST, code=Exit.REFUSED) from None
    agents = await _list_agents(client, within or None)
    found = [agent for agent in agents if name in (agent.metadata.name, agent.spec.hostname)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise Complaint(f"There is no Agent {name}.", hint=_LIST, code=Exit.REFUSED)
    several = ", ".join(sorted(key_of(agent.metadata) for agent in found))
    raise Complaint(
        f"Several Agents are named {name}: {several}.", hint="Say which, as NAMESPACE/NAME.", code=Exit.USAGE
    )


_LIST = "`hostler reclaim status -A` lists them."


async def start_reclaim(client: Client, agent: Agent, *, whole_cluster: str = "") -> str:
    """Unbind an installed host; the operator does the rest."""
    state, name = agent.status.debug_info.state, key_of(agent.metadata)
    if state not in IN_A_CLUSTER:
        raise Complaint(f"{name} is {state or 'without a state'}, so there is nothing to return.", code=Exit.REFUSED)
    if agent.metadata.labels.get(BMH_LABEL):
        host = agent.metadata.labels[BMH_LABEL]
        raise Complaint(f"BareMetalHost {host} boots {name}; unbind it there.", code=Exit.REFUSED)
    notes: dict[str, str | None] = {CANCEL: None}
    if whole_cluster:
        cluster = line_of(agent).cluster
        if whole_cluster != cluster:
            hint = f"If that is meant: --whole-cluster {cluster}"
            raise Complaint(f"{name} is in cluster {cluster}, not {whole_cluster}.", hint=hint, code=Exit.REFUSED)
        notes[CONFIRM] = whole_cluster
    await _change_agent(client, agent, {"metadata": {"annotations": notes}, "spec": {"clusterDeploymentName": None}})
    return f"{name} is unbound. An operator with --only reclaim returns it to discovery: hostler reclaim status {name}"


async def cancel_reclaim(client: Client, agent: Agent) -> str:
    state, name = agent.status.debug_info.state, key_of(agent.metadata)
    if state == State.REBOOTING:
        raise Complaint(f"{name} is being restarted already; it is too late to cancel.", code=Exit.REFUSED)
    if state != State.RECLAIMING:
        raise Complaint(f"{name} is {state or 'without a state'}; there is nothing to cancel.", code=Exit.REFUSED)
    await _change_agent(client, agent, {"metadata": {"annotations": {CANCEL: iso(time.time())}}})
    return f"{name} is cancelled; its installed system goes on. `hostler reclaim retry {name}` starts again."


async def retry_reclaim(client: Client, agent: Agent) -> str:
    state, name = agent.status.debug_info.state, key_of(agent.metadata)
    if state != State.PENDING:
        raise Complaint(f"{name} is {state or 'without a state'}; there is nothing to try again.", code=Exit.REFUSED)
    notes = {RETRY: f"{iso(time.time())} {uuid.uuid4().hex[:8]}", CANCEL: None}
    await _change_agent(client, agent, {"metadata": {"annotations": notes}})
    return f"{name} is tried again: hostler reclaim status {name}"


async def _change_agent(client: Client, agent: Agent, body: dict[str, dict[str, object]]) -> None:
    """On the version that was looked at, so that no change made meanwhile is overwritten."""
    meta = agent.metadata
    body["metadata"]["resourceVersion"] = meta.resource_version
    try:
        await client.patch(AGENT, meta.name, body, meta.namespace, type=Agent)
    except Conflict:
        raise Complaint(f"{key_of(meta)} changed meanwhile; ask again.", code=Exit.REFUSED) from None


async def issue_token(client: Client, infra_env: str, namespace: str, seconds: float) -> str:
    """A token with which discovery systems of one InfraEnv register; it goes into their ignition."""
    where, slash, name = infra_env.partition("/")
    if not (where and slash and name):
        hint = "For example: hostler reclaim token hosts/rack-7"
        raise Complaint(f'"{infra_env}" is not NAMESPACE/INFRAENV.', hint=hint, code=Exit.USAGE)
    try:
        found = await client.get(INFRA_ENV, name, where, type=InfraEnv)
    except NotFound:
        raise Complaint(f"There is no InfraEnv {infra_env}.", code=Exit.REFUSED) from None
    try:
        secret = await client.get(SECRET, keyring.NAME, namespace, type=Secret)
    except NotFound:
        raise Complaint(
            f"There is no signing key yet (Secret {namespace}/{keyring.NAME}).",
            hint="An operator with --only reclaim makes it; --operator-namespace says where.",
            code=Exit.REFUSED,
        ) from None
    try:
        keys = Keys(secret.data.get(keyring.FIELD, b""))
    except ValueError:
        raise Complaint(f"The key in Secret {namespace}/{keyring.NAME} cannot be read.", code=Exit.REFUSED) from None
    return keys.for_infra_env(where, found.metadata.uid, name, now=time.time(), seconds=seconds)
