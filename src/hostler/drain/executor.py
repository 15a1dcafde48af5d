"""Performs what a drain decided: evictions, side by side, each for one very pod; and remembers the answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from hostler.drain.model import Answer, Evict, Memory, Outcome, Policy
from hostler.instant import Instant
from hostler.kube.errors import ApiError, Conflict, NotFound, TooManyRequests, Unreachable, WriteRefused
from hostler.kube.writer import Writer

AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Performed:
    """The memory after the answers. `stopped` says why we were not allowed to write, if we were not."""

    memory: Memory
    stopped: str = ""


class Executor:
    """Sends evictions through one Writer. Shared by all drains of a capability; the memory is each drain's own."""

    def __init__(self, writer: Writer, clock: Callable[[], Instant], at_once: int = AT_ONCE) -> None:
        self.writer = writer
        self._clock = clock
        self._slots = asyncio.Semaphore(at_once)

    async def perform(self, actions: Iterable[Evict], memory: Memory, policy: Policy) -> Performed:
        """Ask for every eviction and wait for the answers, not for the pods.

        In a dry run nothing is sent and nothing is remembered.
        """
        asked = list(actions)
        answers = await asyncio.gather(*(self._evict(evict, policy) for evict in asked))
        stopped = ""
        for evict, answer in zip(asked, answers, strict=True):
            if isinstance(answer, WriteRefused):
                stopped = answer.why  # nothing was sent: the pod has not been asked
            elif not self.writer.dry_run:
                memory = memory.after(evict, answer, policy, self._clock())
        return Performed(memory, stopped)

    async def _evict(self, evict: Evict, policy: Policy) -> Answer | WriteRefused:
        async with self._slots:
            try:
                await self.writer.evict(
                    evict.name, evict.namespace, uid=evict.uid, why=evict.why, grace_seconds=policy.grace_seconds
                )
            except WriteRefused as refusal:
                return refusal
            except (ApiError, Unreachable) as error:
                return answer_to(evict, error)
        return Answer(Outcome.ACCEPTED)


def answer_to(evict: Evict, error: ApiError | Unreachable) -> Answer:
    """What a refusal means for the pod."""
    match error:
        case NotFound():
            return Answer(Outcome.GONE)
        case Conflict():
            # The UID precondition failed: a new pod under the old name. It gets a turn of its own, by its own UID.
            return Answer(Outcome.MOVED, error.message)
        case TooManyRequests() if any(cause.get("reason") == "DisruptionBudget" for cause in error.causes):
            said = "; ".join(cause.get("message", "").rstrip(".") for cause in error.causes)
            return Answer(Outcome.REFUSED, said, error.retry_after)
        case ApiError() if error.code == 500 and _several(evict, error):
            return Answer(Outcome.SEVERAL_BUDGETS, error.message, error.retry_after)
        case ApiError():
            return Answer(Outcome.FAILED, error.message or str(error), error.retry_after)
        case Unreachable():
            # Whether it arrived is not known. If it did, the pod is terminating and the watch will say so first.
            return Answer(Outcome.FAILED, "there was no answer")


def _several(evict: Evict, error: ApiError) -> bool:
    """This 500 carries no reason and no cause, so there is nothing but the budgets we saw, and its text."""
    return len(evict.budgets) > 1 or "more than one PodDisruptionBudget" in error.message
