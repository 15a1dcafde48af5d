"""Where layers come from: a cache that marks what changed, and makes layers of it when the picture is asked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Generic, NamedTuple, TypeVar

from hostler.explain.registry import Explanation
from hostler.host.facts import Fact
from hostler.inventory.model import Host, Layer
from hostler.inventory.operations import EsxiName, Operation
from hostler.kube.kinds import Kind
from hostler.kube.records import HasMetadata
from hostler.kube.store import Store

R = TypeVar("R", bound=HasMetadata)


class RecordedAs(NamedTuple):
    """About what the history records a write to an object that is no layer, and as part of which operation."""

    key: str
    operation: str = ""


class Source(ABC):
    """What one capability contributes to the picture."""

    @abstractmethod
    def listen(self, changed: Callable[[], None]) -> None:
        """Call `changed` whenever `take` would return something new. It must be quick."""

    @abstractmethod
    def take(self) -> Mapping[str, Layer | None]:
        """Layers that changed since the last call, by key; None: it is gone. The first call returns all."""

    def operations(self) -> Iterable[Operation]:
        """What it has under way. `hosts` are keys of layers; whose host each is, and what is late, is found here."""
        return ()

    def explain_esxi(self, hosts: Collection[EsxiName]) -> Mapping[EsxiName, Explanation]:
        """What it decides about each of these ESXi hosts, in one pass."""
        return {}

    def notes(self, host: Host) -> tuple[str, ...]:
        """What else it knows of a host, for whoever asks for that one."""
        return ()

    def recorded_as(self, kind: Kind, namespace: str, name: str) -> RecordedAs | None:
        """About which host a write to this object is recorded; None: not one of mine."""
        return None

    def history_keys(self, host: Host) -> tuple[str, ...]:
        """Where else something of a host is recorded, beside its layers."""
        return ()

    def running_vms(self, key: str) -> Fact[tuple[str, ...]] | None:
        """The VMs that run on an ESXi host; None: not one of mine."""
        return None

    def last_ingress_pods(self, node: str) -> Fact[tuple[str, ...]] | None:
        """The managed ingresses whose last ready pod is on a node; None: I manage none."""
        return None


class StoreSource(Source, Generic[R]):
    """Layers of the objects of one store, one each."""

    def __init__(self, store: Store[R], key_of: Callable[[str], str], layer_of: Callable[[R], Layer]) -> None:
        """`key_of`: the key of the layer, by the key of the object."""
        self._store, self._key_of, self._layer_of = store, key_of, layer_of
        self._changed = set(store.keys())
        self._listeners: list[Callable[[], None]] = []
        store.listen(lambda key, _before, _after: self.mark((key,)))

    def listen(self, changed: Callable[[], None]) -> None:
        self._listeners.append(changed)

    def mark(self, keys: Iterable[str]) -> None:
        """Look at these objects again, because something else changed that their layers show."""
        self._changed.update(keys)
        for listener in self._listeners:
            listener()

    def take(self) -> Mapping[str, Layer | None]:
        keys, self._changed = self._changed, set()
        return {self._key_of(key): self._layer(key) for key in keys}

    def _layer(self, key: str) -> Layer | None:
        record = self._store.get(key)
        return None if record is None else self._layer_of(record)
