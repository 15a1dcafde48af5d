"""Whether the controller that a capability takes the place of is at work, asked once for a command."""

from __future__ import annotations

import asyncio

from hostler.kube.client import Client
from hostler.kube.clock import boottime
from hostler.safety.incumbent_watch import look
from hostler.safety.incumbents import Incumbent, Memory, State, Verdict, judge, remember

LOOK_SECONDS = 2.0
LONGEST_SECONDS = 90.0  # a lease that says it lasts longer is not waited for


async def judge_incumbent(client: Client, incumbent: Incumbent) -> Verdict:
    """The verdict, once it no longer depends on a lease that may or may not be renewed."""
    memory, end = Memory(), boottime() + LONGEST_SECONDS
    while True:
        sighting, now = await look(client, incumbent), boottime()
        memory = remember(memory, sighting, now)
        verdict = judge(incumbent, sighting, memory, now)
        if verdict.state is not State.UNKNOWN or verdict.wake is None or now >= end:
            return verdict
        await asyncio.sleep(min(verdict.wake, LOOK_SECONDS))
