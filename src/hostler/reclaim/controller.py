"""Looks at one Agent: observe, decide, act. What is done in the old cluster goes first, then one status patch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hostler.apis.assisted import AGENT, Agent
from hostler.host.facts import Known, Unknown
from hostler.instant import Instant
from hostler.kube.cache import UNREAD_SECONDS
from hostler.kube.errors import ApiError, Unreachable
from hostler.kube.foreign import FAILURES, describe_failure
from hostler.kube.writer import Writer
from hostler.reclaim.action_executor import ActionExecutor
from hostler.reclaim.decide import decide
from hostler.reclaim.decision import AddFinalizer, Decision, Evict, Hold, Release, Seen, SetCondition, Withdraw
from hostler.reclaim.executor import NotYet, Occupied, SpokeExecutor
from hostler.reclaim.model import UNCONFIRMED, Host, Policy, Reason, State, is_unbound
from hostler.reclaim.observe import Observer
from hostler.reclaim.old_clusters import needs_spoke
from hostler.reclaim.status import EventReporter, notes_patch, status_patch

# Old clusters are asked, not watched. So often while something is under way there:
SOON, UNKNOWN_AGAIN, AT_WORK = 1.0, 10.0, 30.0
DRAINING = 5.0


class ReclaimController:
    """Reconciles Agents."""

    def __init__(
        self,
        observer: Observer,
        executor: ActionExecutor,
        writer: Writer,
        reporter: EventReporter,
        policy: Callable[[], Policy | None],
    ) -> None:
        """`policy` is None until it is known which image agents have."""
        self.seen: dict[str, Seen] = {}
        self.observer, self.policy = observer, policy
        self._executor, self._writer, self._reporter = executor, writer, reporter

    async def reconcile(self, key: str) -> float | None:
        policy, agents = self.policy(), self.observer.agents.store
        if policy is None or not agents.synced:
            return UNREAD_SECONDS
        agent = agents.get(key)
        if agent is None:
            gone = self.seen.pop(key, None)
            if gone is not None:
                self.observer.spokes.forget(gone.host.uid)
            return None
        async with self.observer.look(agent, policy) as (host, executor):
            return await self._pass(key, agent, host, policy, executor)

    async def _pass(
        self, key: str, agent: Agent, host: Host, policy: Policy, executor: SpokeExecutor | None
    ) -> float | None:
        now = self.observer.clock()
        decision = decide(host, policy, now)
        self.seen[key] = Seen(host, decision, now)
        if executor is not None and host.previous is not None:
            try:
                async with self.observer.spokes.turn(host.previous):
                    for action in decision.actions:
                        await self._executor.perform(action, agent, host, policy, executor)
            except NotYet as later:
                return later.seconds
            except Occupied as occupied:
                # A note that is not confirmed stays one: the reason is how that is known.
                condition = () if host.reason in UNCONFIRMED else (SetCondition(Reason.OCCUPIED, str(occupied)),)
                decision = replace(decision, actions=condition, why=str(occupied))
            except FAILURES as error:
                note = f"The old cluster did not take a change: {describe_failure(error)}."
                about, recorder = agent.metadata, self._reporter.recorder
                recorder.event(AGENT, about, "Warning", "SpokeRefused", "Reclaim", note, refusing="reclaim")
                if isinstance(error, ApiError | Unreachable):
                    raise
                raise Unreachable(note) from error  # what answers there is its owner's mistake, not a bug of ours
        await self._write(agent, decision, now)
        return seconds_until_next_look(host, decision, now)

    async def _write(self, agent: Agent, decision: Decision, now: Instant) -> None:
        body = status_patch(agent, decision.actions, now)
        if body is not None:
            written = await self._patch(agent, body, decision.why, status=True)
            self._reporter.report(agent, decision.actions)
            agent = written or agent
        notes = notes_patch(agent, decision.actions)
        if notes is not None:
            await self._patch(agent, notes, decision.why)

    async def _patch(self, agent: Agent, body: dict[str, Any], why: str, *, status: bool = False) -> Agent | None:
        """With the version it was decided on as precondition: a change by another party is looked at first."""
        meta = agent.metadata
        body = {**body, "metadata": {**body.get("metadata", {}), "resourceVersion": meta.resource_version}}
        return await self.observer.agents.patch(
            self._writer, meta.name, body, meta.namespace, why=why, subresource="status" if status else None
        )


def seconds_until_next_look(host: Host, decision: Decision, now: Instant) -> float | None:
    """None where only a change of ours is a reason to look again."""
    waits = [] if decision.wake is None else [decision.wake - now]
    if any(isinstance(action, AddFinalizer | Withdraw | Release | Hold | Evict) for action in decision.actions):
        waits.append(SOON)
    if host.state == State.RECLAIMING:
        drains = host.spoke.drain is not None
        waits.append(DRAINING if drains else AT_WORK)
    # A cluster that this Agent does not reach is asked only what is to be taken back there.
    reached = host.kept or not (isinstance(host.spoke.reach, Known) and not host.spoke.reach.value)
    missing = (host.spoke.node, host.spoke.kubeconfig, host.artifacts)
    if reached and needs_spoke(host) and any(isinstance(fact, Unknown) for fact in missing):
        waits.append(UNKNOWN_AGAIN)
    if is_unbound(host.state) and host.previous is not None:
        waits.append(UNKNOWN_AGAIN)
    return max(0.0, min(waits)) if waits else None
