"""Agents as they are shown without an operator: what the objects themselves tell."""

from __future__ import annotations

from collections.abc import Sequence

from hostler.apis.assisted import AGENT, Agent
from hostler.inventory.look import Looked, list_readable
from hostler.kube.client import Client
from hostler.kube.records import Node
from hostler.kube.store import Store
from hostler.reclaim.host_layers import ReclaimSource


async def look_at_agents(client: Client, nodes: Sequence[Node], cluster: str) -> Looked:
    """Every Agent, by the same rules as with an operator, but without what one last decided."""
    found = await list_readable(client, AGENT, Agent)
    agents, known = Store[Agent](), Store[Node]()
    for node in nodes:
        known.put(node)
    for agent in found.found:
        agents.put(agent)
    layers = ReclaimSource(agents, {}, lambda: None, known, cluster).take().values()
    return Looked(tuple(layer for layer in layers if layer is not None), found.notes)
