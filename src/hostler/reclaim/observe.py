"""Everything that a decision on one host reads: its Agent and InfraEnv from the watches, and its old cluster."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

from hostler.apis.assisted import INFRA_ENV_LABEL, Agent, InfraEnv
from hostler.host.facts import Fact, Known, Unknown
from hostler.instant import Instant
from hostler.kube.watch import Watch
from hostler.reclaim.artifacts import Artifacts
from hostler.reclaim.executor import SpokeExecutor
from hostler.reclaim.facts import artifacts_of, find_leaving, host_of
from hostler.reclaim.hub.artifact_files import Unreadable
from hostler.reclaim.identity import agent_names
from hostler.reclaim.model import Host, Policy, Spoke
from hostler.reclaim.old_clusters import OpenSpoke, SpokeClusters, needs_spoke


class Observer:
    """`served` names the artifacts that the hub has itself for an InfraEnv."""

    def __init__(
        self,
        agents: Watch[Agent],
        infra_envs: Watch[InfraEnv],
        spokes: SpokeClusters,
        served: Callable[[str], Awaitable[dict[str, str]]],
        clock: Callable[[], Instant] = time.time,
    ) -> None:
        self.agents, self.spokes, self.clock = agents, spokes, clock
        self._infra_envs, self._served = infra_envs, served

    @asynccontextmanager
    async def look(self, agent: Agent, policy: Policy) -> AsyncIterator[tuple[Host, SpokeExecutor | None]]:
        """The host with every fact a decision needs, and what acts in its old cluster, for as long as this is open."""
        host = replace(host_of(agent), artifacts=await self.look_at_artifacts(agent))
        if host.previous is None or not needs_spoke(host):
            yield host, None
            return
        async with self.spokes.open(host.previous) as spoke:
            found = await self.spokes.look(
                host, spoke, policy, lambda allowed: find_leaving(self.agents.store.values(), host, allowed)
            )
            found = replace(found, namesake=self._find_namesake(host, found, spoke))
            yield replace(host, spoke=found), spoke.executor

    def infra_env_of(self, agent: Agent) -> InfraEnv | None:
        name = agent.metadata.labels.get(INFRA_ENV_LABEL, "")
        return self._infra_envs.store.get(f"{agent.metadata.namespace}/{name}")

    async def look_at_artifacts(self, agent: Agent) -> Fact[Artifacts | None]:
        if not self._infra_envs.store.synced:
            return Unknown(self._infra_envs.problem or "InfraEnvs are still being read")
        found = self.infra_env_of(agent)
        if found is None:
            return Known(None, self.clock())
        try:
            served = await self._served(found.metadata.uid)
        except TimeoutError:
            return Unknown("the directory of artifacts (HUB_ARTIFACTS) does not answer")
        except Unreadable as error:
            return Unknown(f"the directory of artifacts (HUB_ARTIFACTS) cannot be read: {error}")
        return Known(artifacts_of(found, served), self.clock())

    def _find_namesake(self, host: Host, found: Spoke, spoke: OpenSpoke) -> str:
        """Another Agent, of those that may act in the old cluster, that is named by the system UUID of the node."""
        if not isinstance(found.node, Known) or found.node.value is None or not isinstance(spoke.allowed, Known):
            return ""
        names = agent_names(found.node.value.system_uuid)
        keys = (f"{namespace}/{name}" for namespace in sorted(spoke.allowed.value) for name in names)
        own = f"{host.namespace}/{host.name}"
        return next((key for key in keys if key != own and self.agents.store.get(key) is not None), "")
