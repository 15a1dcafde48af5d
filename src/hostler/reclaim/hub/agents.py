"""The hub keeps everything on the Agent objects: read for each request, written with a precondition.

An InfraEnv is taken as it is watched, where the watch is in step: it says where artifacts are, and decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hostler.apis.assisted import AGENT, INFRA_ENV, INFRA_ENV_LABEL, Agent, InfraEnv
from hostler.kube.client import Client
from hostler.kube.errors import AlreadyExists, ApiError, Conflict, NotFound, Unreachable, WriteRefused
from hostler.kube.writer import Writer
from hostler.reclaim.artifacts import BootPolicy
from hostler.reclaim.facts import artifacts_of
from hostler.reclaim.hub.instructions import (
    Reply,
    make_instructions,
    new_agent,
    note_registration,
    note_reply,
    note_withheld,
)
from hostler.reclaim.hub.tokens import Claims

ATTEMPTS = 4


@dataclass(frozen=True, slots=True)
class Trouble:
    """The request cannot be answered; a status for the one who asks and a sentence for the log."""

    status: int
    why: str


class HubAgents:
    """Reads and writes Agents for the step API. Any replica may do it: facts are recorded here, nothing is decided."""

    def __init__(
        self,
        client: Client,
        writer: Writer,
        boot: BootPolicy,
        watched: Callable[[str], InfraEnv | None] = lambda key: None,
    ) -> None:
        """`watched` is the InfraEnv of that key, if it is known as it is now."""
        self._client, self._writer, self._boot, self._watched = client, writer, boot, watched

    async def ask(self, claims: Claims, served: Mapping[str, str]) -> dict[str, object] | Trouble:
        """The instructions of the host a token opens; `served` are the artifacts this hub has itself."""
        try:
            agent = await self._agent(claims)
            if isinstance(agent, Trouble):
                return agent
            watched = self._watched(f"{claims.namespace}/{claims.infra_env_name}")
            fits = watched is not None and watched.metadata.uid == claims.infra_env
            infra_env = watched if watched is not None and fits else await self._infra_env(claims)
            if isinstance(infra_env, Trouble):
                return infra_env
            await self._annotate(agent, note_withheld(agent), "its restart was called off")
        except (ApiError, Unreachable, WriteRefused) as error:
            return Trouble(503, f"The API server does not answer: {error}")
        return make_instructions(agent, infra_env, self._boot, served)

    async def artifact(self, claims: Claims, name: str) -> str:
        """Where the InfraEnv says an artifact is; empty where it says nothing, or cannot be asked."""
        try:
            infra_env = await self._infra_env(claims)
        except (ApiError, Unreachable):
            return ""
        found = artifacts_of(infra_env) if isinstance(infra_env, InfraEnv) else None
        return str(getattr(found, name)) if found is not None else ""

    async def answer(self, claims: Claims, reply: Reply) -> Trouble | None:
        """Note how a step went. An answer of another stage is dropped silently: it is only late."""
        for _ in range(ATTEMPTS):
            try:
                agent = await self._agent(claims)
                if isinstance(agent, Trouble):
                    return agent
                changes = note_reply(agent, reply)
                return await self._annotate(agent, changes, f"the agent answered {reply.step_type}")
            except Conflict:
                continue
            except (ApiError, Unreachable, WriteRefused) as error:
                return Trouble(503, f"The answer could not be written down: {error}")
        return Trouble(503, "The Agent object changes too often; ask again.")

    async def register(self, claims: Claims, host: str) -> Trouble | None:
        """A discovery system is up on this host: one we know, or a new one."""
        try:
            infra_env = await self._infra_env(claims)
        except (ApiError, Unreachable) as error:
            return Trouble(503, f"The API server does not answer: {error}")
        if isinstance(infra_env, Trouble):
            return infra_env
        for _ in range(ATTEMPTS):
            try:
                agent = await self._client.get(AGENT, host, claims.namespace, type=Agent)
            except NotFound:
                try:
                    return await self._create(claims, host)
                except AlreadyExists:
                    continue
            except (ApiError, Unreachable) as error:
                return Trouble(503, f"The API server does not answer: {error}")
            if agent.metadata.labels.get(INFRA_ENV_LABEL) != claims.infra_env_name:
                return Trouble(403, "This host belongs to another InfraEnv.")
            try:
                if not agent.status.debug_info.state:  # it was made, and what it is did not get through
                    await self._discovering(host, claims.namespace)
                    return None
                return await self._annotate(agent, note_registration(agent), "its discovery system registered")
            except Conflict:
                continue
            except (ApiError, Unreachable, WriteRefused) as error:
                return Trouble(503, f"The registration could not be written down: {error}")
        return Trouble(503, "The Agent object changes too often; ask again.")

    async def _infra_env(self, claims: Claims) -> InfraEnv | Trouble:
        """The very one the token is of: another of its name has other hosts."""
        try:
            found = await self._client.get(INFRA_ENV, claims.infra_env_name, claims.namespace, type=InfraEnv)
        except NotFound:
            return Trouble(404, f"There is no InfraEnv {claims.namespace}/{claims.infra_env_name}.")
        if found.metadata.uid != claims.infra_env:
            return Trouble(404, "The InfraEnv of this token was deleted and recreated.")
        return found

    async def _agent(self, claims: Claims) -> Agent | Trouble:
        try:
            agent = await self._client.get(AGENT, claims.host, claims.namespace, type=Agent)
        except NotFound:
            return Trouble(404, f"There is no Agent {claims.namespace}/{claims.host}.")
        if agent.metadata.labels.get(INFRA_ENV_LABEL) != claims.infra_env_name:
            return Trouble(403, "This host belongs to another InfraEnv now.")
        return agent

    async def _annotate(self, agent: Agent, changes: dict[str, str], why: str) -> Trouble | None:
        if not changes:
            return None
        metadata = agent.metadata
        # The version is the precondition: the stage must not have changed since it was read.
        body = {"metadata": {"resourceVersion": metadata.resource_version, "annotations": changes}}
        await self._writer.patch(AGENT, metadata.name, body, metadata.namespace, type=Agent, why=why)
        return None

    async def _create(self, claims: Claims, host: str) -> Trouble | None:
        why = "an unknown host is in discovery"
        try:
            body = new_agent(host, claims.infra_env_name)
            await self._writer.create(AGENT, body, claims.namespace, type=Agent, why=why)
            await self._discovering(host, claims.namespace)
        except AlreadyExists:
            raise
        except (ApiError, Unreachable, WriteRefused) as error:
            return Trouble(503, f"The Agent could not be made: {error}")
        return None

    async def _discovering(self, host: str, namespace: str) -> None:
        state = {"status": {"debugInfo": {"state": "discovering-unbound", "stateInfo": "Waiting for approval."}}}
        why = "an unknown host is in discovery"
        await self._writer.patch(AGENT, host, state, namespace, type=Agent, why=why, subresource="status")
