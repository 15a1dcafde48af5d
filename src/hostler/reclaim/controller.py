"""Looks at one Agent: observe, decide, act. What is done in the old cluster goes first, then one status patch."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

import structlog
from prometheus_client import Counter

from hostler.apis.assisted import AGENT, INFRA_ENV_LABEL, Agent, InfraEnv
from hostler.host.facts import Fact, Known, Unknown
from hostler.instant import Instant, parse
from hostler.kube.cache import UNREAD_SECONDS
from hostler.kube.client import Client
from hostler.kube.errors import ApiError, NotFound, Unreachable
from hostler.kube.events import EventType, Recorder
from hostler.kube.foreign import FAILURES, describe_failure
from hostler.kube.kinds import SECRET
from hostler.kube.metrics import Family, Metrics
from hostler.kube.records import Secret
from hostler.kube.watch import Watch
from hostler.kube.writer import Writer
from hostler.reclaim.agent_manifests import Order
from hostler.reclaim.artifacts import Artifacts
from hostler.reclaim.decide import decide
from hostler.reclaim.decision import (
    Action,
    AddFinalizer,
    Decision,
    Deploy,
    Enter,
    Evict,
    Hold,
    Release,
    RemoveNode,
    SetCondition,
    WarnNotOneShot,
    Withdraw,
)
from hostler.reclaim.executor import NotYet, Occupied, SpokeExecutor
from hostler.reclaim.hub.artifact_files import Unreadable
from hostler.reclaim.hub.keyring import Keyring
from hostler.reclaim.identity import agent_names
from hostler.reclaim.model import UNCONFIRMED, Host, Policy, Reason, Spoke, State, is_unbound
from hostler.reclaim.observe import PROGRESS, REPORT, artifacts_of, host_of, leaving
from hostler.reclaim.old_clusters import OpenSpoke, SpokeClusters, needs_spoke
from hostler.reclaim.status import notes_patch, status_patch

log = structlog.get_logger("hostler.reclaim")

KEY = "signing key"  # no Agent has such a key: theirs are namespace/name
# Old clusters are asked, not watched. So often while something is under way there:
SOON, UNKNOWN_AGAIN, AT_WORK = 1.0, 10.0, 30.0
DRAINING = 5.0
FETCHING = 0.75  # of the stage; the rest is for what the agent does with it, and for saying why not
AGENT_BACK = 600.0  # so long a killed agent may take to be started again, when it is to be taken off its node
NOT_COPIED = (
    "The pull secret of its InfraEnv is not copied there, because the ClusterDeployment is in another namespace: the "
    "node must be able to pull the agent's image without it."
)
SLACK = 600.0  # a token outlives the stages it is for by so much


@dataclass(frozen=True, slots=True)
class Seen:
    """What was last thought of a host, for `explain`."""

    host: Host
    decision: Decision
    at: Instant


@dataclass(frozen=True, slots=True)
class Terms:
    """What agents are given."""

    ca: str  # certificates to trust, as PEM
    served: Callable[[str], Awaitable[dict[str, str]]]  # artifacts the hub has itself


class ReclaimKeeper:
    """Reconciles Agents, and the one key of the hub's signing key."""

    def __init__(
        self,
        client: Client,
        writer: Writer,
        recorder: Recorder,
        *,
        agents: Watch[Agent],
        infra_envs: Watch[InfraEnv],
        spokes: SpokeClusters,
        keyring: Keyring,
        policy: Callable[[], Policy | None],
        terms: Terms,
        metrics: Metrics,
        clock: Callable[[], Instant] = time.time,
    ) -> None:
        """`policy` is None until it is known which image agents have."""
        self.seen: dict[str, Seen] = {}
        self.agents, self._infra_envs = agents, infra_envs
        self._client, self._writer, self._recorder = client, writer, recorder
        self._spokes, self._keyring, self._terms = spokes, keyring, terms
        self.policy, self._clock = policy, clock
        self._entered = Family(
            Counter(
                "hostler_reclaim_transitions", "Hosts that changed their state.", ("transition", "reason"),
                registry=metrics.registry,
            ),
            2,
        )  # fmt: skip

    async def reconcile(self, key: str) -> float | None:
        if key == KEY:
            return await self._keyring.keep()
        policy = self.policy()
        if policy is None or not self.agents.store.synced:
            return UNREAD_SECONDS
        agent = self.agents.store.get(key)
        if agent is None:
            gone = self.seen.pop(key, None)
            if gone is not None:
                self._spokes.forget(gone.host.uid)
            return None
        host = replace(host_of(agent), artifacts=await self._artifacts(agent))
        if host.previous is None or not needs_spoke(host):
            return await self._pass(key, agent, host, policy, None)
        async with self._spokes.open(host.previous) as spoke:
            found: Spoke = await self._spokes.look(
                host, spoke, policy, lambda allowed: leaving(self.agents.store.values(), host, allowed)
            )
            found = replace(found, namesake=self._namesake(host, found, spoke))
            return await self._pass(key, agent, replace(host, spoke=found), policy, spoke)

    async def _pass(self, key: str, agent: Agent, host: Host, policy: Policy, spoke: OpenSpoke | None) -> float | None:
        now = self._clock()
        decision = decide(host, policy, now)
        self.seen[key] = Seen(host, decision, now)
        if spoke is not None and spoke.executor is not None and host.previous is not None:
            try:
                async with self._spokes.turn(host.previous):
                    for action in decision.actions:
                        await self._there(action, agent, host, policy, spoke.executor)
            except NotYet as later:
                return later.seconds
            except Occupied as occupied:
                # A note that is not confirmed stays one: the reason is how that is known.
                said = () if host.reason in UNCONFIRMED else (SetCondition(Reason.OCCUPIED, str(occupied)),)
                decision = replace(decision, actions=said, why=str(occupied))
            except FAILURES as error:
                note = f"The old cluster did not take a change: {describe_failure(error)}."
                about = agent.metadata
                self._recorder.event(AGENT, about, "Warning", "SpokeRefused", "Reclaim", note, refusing="reclaim")
                if isinstance(error, ApiError | Unreachable):
                    raise
                raise Unreachable(note) from error  # what answers there is its owner's mistake, not a bug of ours
        await self._write(agent, decision, now)
        return _again(host, decision, now)

    # -- in the old cluster

    async def _there(self, action: Action, agent: Agent, host: Host, policy: Policy, executor: SpokeExecutor) -> None:
        match action:
            case Deploy():
                await self._deploy(action, agent, host, policy, executor)
            case Withdraw():
                # A deleted host's stage may have begun long ago: what is taken back here began with the deletion.
                since = parse(agent.metadata.deletion_timestamp) if host.deleted else host.since
                patient = self._clock() - (since if since is not None else 0.0) < AGENT_BACK
                heard = any(note in agent.metadata.annotations for note in (REPORT, PROGRESS))
                if await executor.withdraw(host.uid, gone=_no_kubelet(host), patient=patient, heard=heard):
                    note = "What this reclaim put into the old cluster was taken off it."
                    self._recorder.event(AGENT, agent.metadata, "Normal", "Withdrawn", "Withdraw", note)
            case Hold(node):
                await executor.hold(node.name, f"its host {host.name} is returned to discovery")
            case Release(node):
                await executor.release(node.name)
            case Evict(pods) if policy.drain is not None:
                memory = await executor.evict(pods, self._spokes.memory(host), policy.drain)
                self._spokes.remember(host, memory)
            case RemoveNode(node):
                await executor.remove_node(node)
                note = f"Node {node.name} was deleted from its old cluster."
                self._recorder.event(AGENT, agent.metadata, "Normal", "NodeRemoved", "RemoveNode", note)

    async def _deploy(self, deploy: Deploy, agent: Agent, host: Host, policy: Policy, executor: SpokeExecutor) -> None:
        infra_env, keys = self._infra_env(agent), self._keyring.keys()
        if infra_env is None or keys is None or not isinstance(host.artifacts, Known) or host.artifacts.value is None:
            return  # taken away since it began; the stage's time is bounded
        namespace = agent.metadata.namespace
        pull_secret = await self._pull_secret(infra_env, host)
        order = Order(
            host=host.name, host_uid=host.uid, node=deploy.node, infra_env=infra_env.metadata.uid,
            artifacts=host.artifacts.value, hub_url=policy.hub_url, image=policy.image, key=self._keyring.name,
            patience=policy.reclaiming * FETCHING, rebooting=policy.rebooting,
            require_one_shot=policy.require_one_shot, clean_boot=policy.clean_boot,
            token=keys.for_host(
                namespace, infra_env.metadata.uid, infra_env.metadata.name, host.name,
                now=self._clock(), seconds=policy.reclaiming + policy.rebooting + SLACK,
            ),
            ca=self._terms.ca, pull_secret=pull_secret or b"", proxy=infra_env.spec.proxy,
            security_context_constraints=await executor.is_openshift(),
        )  # fmt: skip
        done = await executor.deploy(order)
        if done.wrote:
            left_out = f" {NOT_COPIED}" if pull_secret is None else ""
            note = f"The agent is put on node {deploy.node.name} of the old cluster.{left_out}{done.remark}"
            self._recorder.event(AGENT, agent.metadata, "Normal", "AgentDeployed", "Deploy", note)

    async def _pull_secret(self, infra_env: InfraEnv, host: Host) -> bytes | None:
        """None where there is one that must not be copied: who runs the old cluster could read a Secret of others."""
        reference = infra_env.spec.pull_secret_ref
        if reference is None or not reference.name:
            return b""
        if host.previous is None or infra_env.metadata.namespace != host.previous.namespace:
            return None
        try:
            secret = await self._client.get(SECRET, reference.name, infra_env.metadata.namespace, type=Secret)
        except NotFound:
            return b""  # the image may need none; if it does, the pod says so
        return secret.data.get(".dockerconfigjson", b"")

    # -- on the Agent

    async def _write(self, agent: Agent, decision: Decision, now: Instant) -> None:
        body = status_patch(agent, decision.actions, now)
        if body is not None:
            written = await self._patch(agent, body, decision.why, status=True)
            self._tell(agent, decision.actions)
            agent = written or agent
        notes = notes_patch(agent, decision.actions)
        if notes is not None:
            await self._patch(agent, notes, decision.why)

    async def _patch(self, agent: Agent, body: dict[str, Any], why: str, *, status: bool = False) -> Agent | None:
        """With the version it was decided on as precondition: a change by another party is looked at first."""
        meta = agent.metadata
        body = {**body, "metadata": {**body.get("metadata", {}), "resourceVersion": meta.resource_version}}
        return await self.agents.patch(
            self._writer, meta.name, body, meta.namespace, why=why, subresource="status" if status else None
        )

    def _tell(self, agent: Agent, actions: tuple[Action, ...]) -> None:
        for action in actions:
            match action:
                case Enter(transition, reason, message):
                    kind: EventType = "Warning" if transition.target == State.PENDING else "Normal"
                    refusing = "reclaim" if transition.target == State.PENDING else ""
                    self._recorder.event(
                        AGENT, agent.metadata, kind, reason, transition.name, message, refusing=refusing
                    )
                    self._entered.of(transition.name, reason).inc()
                    log.info("host", agent=agent.metadata.name, transition=transition.name, reason=reason, why=message)
                case WarnNotOneShot(message):
                    self._recorder.event(
                        AGENT, agent.metadata, "Warning", Reason.NOT_ONE_SHOT, "Reclaim", message, refusing="reclaim"
                    )
                    log.warning("host", agent=agent.metadata.name, reason=str(Reason.NOT_ONE_SHOT), why=message)
                case SetCondition(reason, message):
                    self._recorder.event(
                        AGENT, agent.metadata, "Normal", reason, "Reclaim", message, refusing="reclaim"
                    )

    # -- what is known here

    def _namesake(self, host: Host, found: Spoke, spoke: OpenSpoke) -> str:
        """Another Agent, of those that may act in the old cluster, that is named by the system UUID of the node."""
        if not isinstance(found.node, Known) or found.node.value is None or not isinstance(spoke.allowed, Known):
            return ""
        names = agent_names(found.node.value.system_uuid)
        keys = (f"{namespace}/{name}" for namespace in sorted(spoke.allowed.value) for name in names)
        own = f"{host.namespace}/{host.name}"
        return next((key for key in keys if key != own and self.agents.store.get(key) is not None), "")

    def _infra_env(self, agent: Agent) -> InfraEnv | None:
        name = agent.metadata.labels.get(INFRA_ENV_LABEL, "")
        return self._infra_envs.store.get(f"{agent.metadata.namespace}/{name}")

    async def _artifacts(self, agent: Agent) -> Fact[Artifacts | None]:
        if not self._infra_envs.store.synced:
            return Unknown(self._infra_envs.problem or "InfraEnvs are still being read")
        found = self._infra_env(agent)
        if found is None:
            return Known(None, self._clock())
        try:
            served = await self._terms.served(found.metadata.uid)
        except TimeoutError:
            return Unknown("the directory of artifacts (HUB_ARTIFACTS) does not answer")
        except Unreadable as error:
            return Unknown(f"the directory of artifacts (HUB_ARTIFACTS) cannot be read: {error}")
        return Known(artifacts_of(found, served), self._clock())


def _no_kubelet(host: Host) -> bool:
    """Whether no kubelet runs the node's pods any more. If one does all the same, the hub tells its agent to end."""
    node = host.spoke.node
    return is_unbound(host.state) or (isinstance(node, Known) and (node.value is None or not node.value.ready))


def _again(host: Host, decision: Decision, now: Instant) -> float | None:
    """In how many seconds to look again, if nothing of ours changes before."""
    waits = [] if decision.wake is None else [decision.wake - now]
    if any(isinstance(one, AddFinalizer | Withdraw | Release | Hold | Evict) for one in decision.actions):
        waits.append(SOON)
    if host.state == State.RECLAIMING:
        drains = host.spoke.drain is not None
        waits.append(DRAINING if drains else AT_WORK)
    # A cluster that this Agent does not reach is asked only what is to be taken back there.
    reached = host.kept or not (isinstance(host.spoke.reach, Known) and not host.spoke.reach.value)
    missing = (host.spoke.node, host.spoke.kubeconfig, host.artifacts)
    if reached and needs_spoke(host) and any(isinstance(one, Unknown) for one in missing):
        waits.append(UNKNOWN_AGAIN)
    if is_unbound(host.state) and host.previous is not None:
        waits.append(UNKNOWN_AGAIN)
    return max(0.0, min(waits)) if waits else None
