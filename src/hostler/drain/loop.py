"""One node's drain from beginning to end, for `hostler drain NODE`: observe, decide, act, wait for a change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from hostler.drain.decide import decide
from hostler.drain.executor import Executor
from hostler.drain.model import Decision, Memory, Policy, State
from hostler.drain.observe import Sources, observe, volumes_of_staying
from hostler.drain.order import is_helper
from hostler.instant import Instant
from hostler.kube.client import Client
from hostler.kube.records import Pod

Progress: TypeAlias = Callable[[Decision], None]
# A cache grows old without an event to say so; this is how often the loop looks at its own memory, not at the server.
LOOK_AGAIN = 5.0


async def drain(
    client: Client,
    sources: Sources,
    executor: Executor,
    node: str,
    *,
    policy: Policy,
    started: Instant,
    clock: Callable[[], Instant],
    progress: Progress = lambda decision: None,
    lost: Callable[[], str | None] = lambda: None,
) -> Decision:
    """Empty a node and return how it ended. `progress` is called whenever the decision's words change.

    The node must be cordoned before. `lost` says why it no longer is ours to empty: then nothing more is evicted and
    the drain ends refused, or it would evict for ever what the scheduler goes on sending. In a dry run the first
    decision is said and returned.
    """
    changed = asyncio.Event()
    _listen(sources, node, changed)
    memory, kept, said = Memory(), frozenset[str](), None
    while True:
        changed.clear()  # before looking: a change during the look must not be lost
        facts = observe(sources, node, started, memory, clock(), kept)
        decision = decide(facts, policy, clock())
        if (why := lost()) is not None:
            return Decision(State.REFUSED, (), why, None, left=decision.left, verdicts=decision.verdicts)
        if decision.state is State.WAITING_FOR_VOLUMES and not kept:
            kept = await volumes_of_staying(client, decision.verdicts)
            if kept:
                continue
        performed = await executor.perform(decision.actions, facts.memory, policy)
        memory = performed.memory
        if performed.stopped:
            decision = replace(decision, why=f"{decision.why} Nothing is evicted now: {performed.stopped}")
        if (decision.state, decision.why) != said:
            said = decision.state, decision.why
            progress(decision)
        if executor.writer.dry_run or decision.over or _unknown_for_too_long(decision, policy, started, clock()):
            return decision
        if not decision.actions or performed.stopped:
            await _change(changed, decision.wake, clock())


def _listen(sources: Sources, node: str, changed: asyncio.Event) -> None:
    """Wake for what this drain looks at; the other pods of a big cluster change all the time."""

    def pod_changed(_: str, before: Pod | None, after: Pod | None) -> None:
        if any(pod is not None and (pod.spec.node_name == node or is_helper(pod)) for pod in (before, after)):
            changed.set()

    sources.pods.store.listen(pod_changed)
    sources.budgets.store.listen(lambda *_: changed.set())
    sources.attachments.store.listen(lambda *_: changed.set())
    sources.daemon_sets.store.listen(lambda *_: changed.set())


def _unknown_for_too_long(decision: Decision, policy: Policy, started: Instant, now: Instant) -> bool:
    deadline = policy.deadline(started)
    return decision.state is State.UNKNOWN and deadline is not None and now >= deadline


async def _change(changed: asyncio.Event, wake: Instant | None, now: Instant) -> None:
    """Until something changes in the caches, or the moment the decision named."""
    rest = LOOK_AGAIN if wake is None else min(LOOK_AGAIN, max(0.0, wake - now))
    try:
        async with asyncio.timeout(rest):
            await changed.wait()
    except TimeoutError:
        pass
