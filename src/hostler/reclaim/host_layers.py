"""Agents as layers of the picture, and the reclaims that are under way.

State, sentence and next step come from the decision that `explain` shows. Which node an Agent is follows the rules by
which a reclaim proves it; which BareMetalHost, its label and a MAC address.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from hostler.apis.assisted import AGENT, Agent
from hostler.inventory.look import Looked, list_readable
from hostler.inventory.model import Layer, agent_key, node_key
from hostler.inventory.next_step import next_sentence
from hostler.inventory.operations import Operation, OperationKind
from hostler.inventory.sources import Source
from hostler.kube.client import Client
from hostler.kube.records import Node, key_of
from hostler.kube.store import Store
from hostler.reclaim.decision import Seen
from hostler.reclaim.explain import show_steps
from hostler.reclaim.facts import host_of
from hostler.reclaim.host_lines import (
    RECLAIM,
    RECLAIM_STEPS,
    Standing,
    agent_layer,
    agent_line,
    is_blocked,
    is_under_way,
    judge_node,
    node_of_agent,
    operation_of,
    steps_done,
)
from hostler.reclaim.identity import agent_names, spoke_node
from hostler.reclaim.model import Policy
from hostler.reclaim.simulate import simulate


class ReclaimSource(Source):
    def __init__(
        self,
        agents: Store[Agent],
        seen: Mapping[str, Seen],
        policy: Callable[[], Policy | None],
        nodes: Store[Node],
        cluster: str,
    ) -> None:
        """`seen`: what was last thought of each Agent. `cluster`: what this cluster is called in the picture."""
        self._agents, self._seen, self._policy, self._nodes, self._cluster = agents, seen, policy, nodes, cluster
        self._listeners: list[Callable[[], None]] = []
        self._changed = set(self._agents.keys())
        self._by_name = defaultdict[str, set[str]](set)  # of Agents, whatever their namespace
        # By name of a node, and by names that another Agent would have as the same machine: the Agents it concerns.
        self._by_identity = defaultdict[str, set[str]](set)
        self._identities: dict[str, tuple[str, ...]] = {}
        self._shown: dict[str, Seen | None] = {}  # of those that are under way: what was thought of them when shown
        for key in self._changed:
            self._by_name[key.rpartition("/")[2]].add(key)
        self._agents.listen(self._agent_changed)
        nodes.listen(self._node_changed)

    def listen(self, changed: Callable[[], None]) -> None:
        self._listeners.append(changed)

    def take(self) -> Mapping[str, Layer | None]:
        # A decision may change without its Agent: what the old cluster says is asked and not watched.
        self._changed |= {key for key, seen in self._shown.items() if self._seen.get(key) is not seen}
        keys, self._changed = self._changed, set()
        return {agent_key(*key.split("/", 1)): self._layer(key) for key in keys}

    def operations(self) -> Iterable[Operation]:
        for agent in self._agents:
            if is_under_way(host_of(agent)):
                yield self._reclaim(self._standing(key_of(agent.metadata), agent))

    # -- what changed

    def _agent_changed(self, key: str, before: Agent | None, after: Agent | None) -> None:
        concerned: Collection[str] = ()
        if before is None or after is None:
            name = key.rpartition("/")[2]
            (self._by_name[name].add if after is not None else self._by_name[name].discard)(key)
            if not self._by_name[name]:
                del self._by_name[name]
            concerned = self._by_identity.get(name, ())
        self._mark((key, *concerned))

    def _node_changed(self, name: str, before: Node | None, after: Node | None) -> None:
        if name in self._by_identity and (before is None or after is None or _identity(before) != _identity(after)):
            self._mark(self._by_identity[name])

    def _mark(self, keys: Iterable[str]) -> None:
        self._changed.update(keys)
        for listener in self._listeners:
            listener()

    # -- layers

    def _layer(self, key: str) -> Layer | None:
        agent = self._agents.get(key)
        if agent is None:
            self._recognise(key, ())
            self._shown.pop(key, None)
            return None
        standing = self._standing(key, agent)
        if is_under_way(standing.host):
            self._shown[key] = self._seen.get(key)
        else:
            self._shown.pop(key, None)
        name = node_of_agent(standing.host)
        node = self._nodes.get(name) if name else None
        if node is None:
            self._recognise(key, (name,) if name else ())
            return agent_layer(standing)
        found = spoke_node(node)
        called = sorted(agent_names(found.system_uuid))
        self._recognise(key, (name, *called))
        doubt = judge_node(standing.host, found, self._namesake(key, called))
        same = (node_key(self._cluster, name),) if doubt == "" else ()
        return agent_layer(standing, same, (doubt,) if doubt else ())

    def _namesake(self, own: str, called: Iterable[str]) -> str:
        """Another Agent that is named by the system UUID of the node."""
        found = (key for name in called for key in self._by_name.get(name, ()) if key != own)
        return min(found, default="")

    def _recognise(self, key: str, identities: tuple[str, ...]) -> None:
        """Remember by what changes of Nodes and of other Agents this one is concerned."""
        if self._identities.get(key, ()) == identities:
            return
        for name in self._identities.pop(key, ()):
            self._by_identity[name].discard(key)
            if not self._by_identity[name]:
                del self._by_identity[name]
        if identities:
            self._identities[key] = identities
        for name in identities:
            self._by_identity[name].add(key)

    def _standing(self, key: str, agent: Agent) -> Standing:
        """With what was thought of it last, if that was of the state it is in."""
        seen, policy = self._seen.get(key), self._policy()
        now = host_of(agent)
        if seen is None or policy is None or (seen.host.uid, seen.host.state) != (now.uid, now.state):
            return Standing(agent, now)
        after = ""
        if is_under_way(seen.host):
            forecast = simulate(seen.host, policy, seen.at)
            after = next_sentence(show_steps(seen.host, forecast, ""))
        return Standing(agent, seen.host, seen.decision, after)

    # -- reclaims

    def _reclaim(self, standing: Standing) -> Operation:
        line, host = agent_line(standing), standing.host
        key = agent_key(host.namespace, host.name)
        return Operation(
            id=operation_of(host), kind=OperationKind.RECLAIM, capability=RECLAIM, name=host.name, key=key,
            state=host.state, since=line.since, why=line.why, next=line.next,
            blocked_by=(line.why,) if is_blocked(standing) else (), hosts=(key,), done=steps_done(host),
            total=RECLAIM_STEPS, waiting=line.waiting,
        )  # fmt: skip


def _identity(node: Node) -> tuple[object, ...]:
    return node.status.node_info.system_uuid, node.status.addresses


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
