"""A recorder of the history with hosts that are put in by hand, a store in memory that can refuse, and a clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence

from prometheus_client import CollectorRegistry

from hostler.drain.observe import ATTACHMENT_INDEXES, POD_INDEXES, Sources
from hostler.history.actions import ActionFeed
from hostler.history.metrics import HistoryMetrics
from hostler.history.model import STAYS_LIMIT, Entry, Stored, id_order, stay_of
from hostler.history.recorder import Recorder, StoreFailed
from hostler.host.facts import Unknown
from hostler.inventory.model import Layer, LayerKind, Line, node_key
from hostler.inventory.service import InventoryService
from hostler.inventory.sources import Source
from hostler.inventory.states import HostState
from hostler.inventory.stopping import StopSources
from hostler.kube import kinds
from hostler.kube.client import Client
from hostler.kube.metrics import Metrics
from hostler.kube.records import Node, Pod, PodDisruptionBudget, VolumeAttachment, Workload
from hostler.kube.watch import Watch
from tests.unit.nowhere import Nowhere

BEGIN = 1_000_000.0


class MemoryStore:
    """Keeps entries for as long as the test lasts. `trouble`: why it refuses now."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.trouble = ""
        self.loaded = False
        self.unreadable: dict[str, str] = {}

    async def load(self, stays_since: float) -> Stored:
        self._may()
        self.loaded = True
        ordered = sorted(self.entries.values(), key=lambda entry: id_order(entry.id))
        last = {entry.key: entry for entry in ordered if entry.new}
        stays = [stay for entry in ordered if (stay := stay_of(entry)) is not None and stay.at >= stays_since]
        return Stored((*last.values(), *ordered[-1:]), tuple(stays[-STAYS_LIMIT:]))

    async def append(self, entries: Sequence[Entry]) -> None:
        self._may()
        for entry in entries:
            assert self.entries.setdefault(entry.id, entry) == entry

    async def prune(self, now: float) -> int:
        return 0

    async def find(self, keys: Collection[str], since: float, most: int, capability: str = "") -> list[Entry]:
        return list(self.entries.values())

    async def after(self, id: str, since: float, most: int) -> list[Entry]:
        return list(self.entries.values())

    async def close(self) -> None: ...

    def _may(self) -> None:
        if self.trouble:
            raise StoreFailed(self.trouble)


class ByHand(Source):
    """Layers as a test puts them."""

    def __init__(self) -> None:
        self.changed: dict[str, Layer | None] = {}

    def listen(self, changed: Callable[[], None]) -> None: ...

    def take(self) -> Mapping[str, Layer | None]:
        changed, self.changed = self.changed, {}
        return changed


class HistoryWorld:
    """One replica after the other over one store; `lead` makes the next leader."""

    def __init__(self) -> None:
        self.now = BEGIN
        self.term: int | None = 0
        self.store, self.source = MemoryStore(), ByHand()
        self.layers: dict[str, Layer | None] = {}
        self.registry = CollectorRegistry()
        self.lead()

    def lead(self) -> None:
        """A new process leads, with nothing in memory."""
        assert self.term is not None
        self.term += 1
        client, metrics = Client(Nowhere()), Metrics()
        nodes = Watch(client, kinds.NODE, Node, metrics=metrics)
        sources = Sources(
            Watch(client, kinds.POD, Pod, metrics=metrics, indexes=POD_INDEXES),
            Watch(client, kinds.POD_DISRUPTION_BUDGET, PodDisruptionBudget, metrics=metrics),
            Watch(client, kinds.VOLUME_ATTACHMENT, VolumeAttachment, metrics=metrics, indexes=ATTACHMENT_INDEXES),
            Watch(client, kinds.DAEMON_SET, Workload, metrics=metrics),
        )
        self.registry = CollectorRegistry()
        stopping = StopSources(nodes, sources, (), lambda: Unknown("nobody leads here"))
        self.source = ByHand()
        self.source.changed = dict(self.layers)
        self.inventory = InventoryService(f"boot-{self.term}", (self.source,), stopping, lambda: self.now)
        self.feed = ActionFeed("prod", lambda pod: "a", lambda *_: None, lambda: self.now)
        self.recorder = Recorder(
            self.store, self.inventory, self.feed, HistoryMetrics(self.registry), lambda: self.term, lambda: True
        )

    def put(self, name: str, state: HostState, *, operation: str = "", since: float | None = None) -> None:
        began = self.now if since is None else since
        line = Line("maintenance", state, f"{name} is {state}.", began, operation=operation)
        layer = Layer(node_key("prod", name), LayerKind.NODE, name, (line,), cluster="prod", node=name)
        self.layers[layer.key] = self.source.changed[layer.key] = layer

    def take_out(self, name: str) -> None:
        self.source.changed[node_key("prod", name)] = None
        del self.layers[node_key("prod", name)]

    def step(self, seconds: float = 1.0) -> None:
        self.now += seconds
        assert self.term is not None
        asyncio.run(self.recorder._step(self.term, store=True))

    def stored(self, key: str | None = None) -> list[Entry]:
        ordered = sorted(self.store.entries.values(), key=lambda entry: id_order(entry.id))
        return [entry for entry in ordered if key is None or entry.key == key]

    def value(self, metric: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(metric, labels)
