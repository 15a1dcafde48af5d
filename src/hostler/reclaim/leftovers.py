"""What reclaim leaves on the hub when it is switched off in the middle: found for people, by `hostler doctor`."""

from __future__ import annotations

from hostler.apis.assisted import AGENT
from hostler.kube.client import Client
from hostler.kube.errors import NotFound
from hostler.kube.records import Object
from hostler.reclaim.objects import FINALIZER


async def find(client: Client) -> tuple[str, ...]:
    """Agents whose old cluster may still have something of ours. Where the kind is not installed there are none."""
    try:
        agents = await client.list(AGENT, type=Object)
    except NotFound:
        return ()
    kept = [one.metadata for one in agents if FINALIZER in one.metadata.finalizers]
    return tuple(f"Agent {about.namespace}/{about.name}" for about in kept)
