"""How each action of a decision is done in the old cluster, and what the agent's pod is told there."""

from __future__ import annotations

from hostler.apis.assisted import AGENT, Agent, InfraEnv
from hostler.host.facts import Known
from hostler.instant import parse
from hostler.kube.client import Client
from hostler.kube.errors import NotFound
from hostler.kube.events import Recorder
from hostler.kube.kinds import SECRET
from hostler.kube.records import Secret
from hostler.reclaim.agent_manifests import Order
from hostler.reclaim.decision import Action, Deploy, Evict, Hold, Release, RemoveNode, Withdraw
from hostler.reclaim.executor import SpokeExecutor
from hostler.reclaim.facts import PROGRESS, REPORT
from hostler.reclaim.hub.keyring import Keyring
from hostler.reclaim.model import Host, Policy, is_unbound
from hostler.reclaim.observe import Observer

FETCHING = 0.75  # of the stage; the rest is for what the agent does with it, and for reporting why not
AGENT_BACK = 600.0  # so long a killed agent may take to be started again, when it is to be taken off its node
SLACK = 600.0  # a token outlives the stages it is for by so much
NOT_COPIED = (
    "The pull secret of its InfraEnv is not copied there, because the ClusterDeployment is in another namespace: the "
    "node must be able to pull the agent's image without it."
)


class ActionExecutor:
    """Carries out actions that change the old cluster; those on the Agent are the controller's."""

    def __init__(
        self, client: Client, observer: Observer, keyring: Keyring, recorder: Recorder, certificates: str
    ) -> None:
        """`certificates`: what agents trust for the hub, as PEM."""
        self._client, self._observer, self._keyring = client, observer, keyring
        self._recorder, self._certificates = recorder, certificates

    async def perform(self, action: Action, agent: Agent, host: Host, policy: Policy, executor: SpokeExecutor) -> None:
        match action:
            case Deploy():
                await self._deploy(action, agent, host, policy, executor)
            case Withdraw():
                await self._withdraw(agent, host, executor)
            case Hold(node):
                await executor.hold(node.name, f"its host {host.name} is returned to discovery")
            case Release(node):
                await executor.release(node.name)
            case Evict(pods) if policy.drain is not None:
                spokes = self._observer.spokes
                spokes.remember(host, await executor.evict(pods, spokes.memory(host), policy.drain))
            case RemoveNode(node):
                await executor.remove_node(node)
                note = f"Node {node.name} was deleted from its old cluster."
                self._recorder.event(AGENT, agent.metadata, "Normal", "NodeRemoved", "RemoveNode", note)

    async def _deploy(self, deploy: Deploy, agent: Agent, host: Host, policy: Policy, executor: SpokeExecutor) -> None:
        infra_env, keys = self._observer.infra_env_of(agent), self._keyring.keys()
        if infra_env is None or keys is None or not isinstance(host.artifacts, Known) or host.artifacts.value is None:
            return  # taken away since it began; the stage's time is bounded
        namespace = agent.metadata.namespace
        pull_secret = await self.read_pull_secret(infra_env, host)
        order = Order(
            host=host.name, host_uid=host.uid, node=deploy.node, infra_env=infra_env.metadata.uid,
            artifacts=host.artifacts.value, hub_url=policy.hub_url, image=policy.image, key=self._keyring.name,
            patience=policy.reclaiming * FETCHING, rebooting=policy.rebooting,
            require_one_shot=policy.require_one_shot, clean_boot=policy.clean_boot,
            token=keys.for_host(
                namespace, infra_env.metadata.uid, infra_env.metadata.name, host.name,
                now=self._observer.clock(), seconds=policy.reclaiming + policy.rebooting + SLACK,
            ),
            ca=self._certificates, pull_secret=pull_secret or b"", proxy=infra_env.spec.proxy,
            security_context_constraints=await executor.is_openshift(),
        )  # fmt: skip
        done = await executor.deploy(order)
        if done.wrote:
            left_out = f" {NOT_COPIED}" if pull_secret is None else ""
            note = f"The agent is put on node {deploy.node.name} of the old cluster.{left_out}{done.remark}"
            self._recorder.event(AGENT, agent.metadata, "Normal", "AgentDeployed", "Deploy", note)

    async def _withdraw(self, agent: Agent, host: Host, executor: SpokeExecutor) -> None:
        # A deleted host's stage may have begun long ago: what is taken back here began with the deletion.
        since = parse(agent.metadata.deletion_timestamp) if host.deleted else host.since
        patient = self._observer.clock() - (since if since is not None else 0.0) < AGENT_BACK
        heard = any(note in agent.metadata.annotations for note in (REPORT, PROGRESS))
        if await executor.withdraw(host.uid, gone=has_no_kubelet(host), patient=patient, heard=heard):
            note = "What this reclaim put into the old cluster was taken off it."
            self._recorder.event(AGENT, agent.metadata, "Normal", "Withdrawn", "Withdraw", note)

    async def read_pull_secret(self, infra_env: InfraEnv, host: Host) -> bytes | None:
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


def has_no_kubelet(host: Host) -> bool:
    """Whether no kubelet runs the node's pods any more. If one does all the same, the hub tells its agent to end."""
    node = host.spoke.node
    return is_unbound(host.state) or (isinstance(node, Known) and (node.value is None or not node.value.ready))
