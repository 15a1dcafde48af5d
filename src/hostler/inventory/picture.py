"""The picture of all hosts, kept up to date: what one change costs does not grow with the fleet. Pure.

Sources put layers in and take them out by key; only the hosts that share a link with a changed layer are joined again.
Each change has a number. A reader that knows a number of this process asks for what changed since; with a number of
another process, or one that is too old, it gets everything.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hostler.inventory.joining import join_layers
from hostler.inventory.model import Host, Layer

CHANGES_KEPT = 20_000  # ids of hosts that changed or went, for readers that ask what changed


@dataclass(frozen=True, slots=True)
class Changes:
    """What a reader does not know yet. `complete`: these are all hosts, and whatever else it knows is gone."""

    version: str
    hosts: tuple[Host, ...]
    gone: tuple[str, ...] = ()
    complete: bool = False


class Picture:
    def __init__(self, boot_id: str) -> None:
        self._boot_id = boot_id
        self._number = 0
        self._layers: dict[str, Layer] = {}
        self._links = defaultdict[str, set[str]](set)  # both directions, also to layers that are not there yet
        self._hosts: dict[str, Host] = {}
        self._host_of: dict[str, str] = {}
        self._changed = OrderedDict[str, int]()  # by id of a host: the number of its last change
        self._forgotten = 0  # changes up to this number are not kept

    @property
    def version(self) -> str:
        return f"{self._boot_id}.{self._number}"

    @property
    def hosts(self) -> Mapping[str, Host]:
        return self._hosts

    def layer(self, key: str) -> Layer | None:
        return self._layers.get(key)

    def host_of(self, key: str) -> Host | None:
        """The host that a layer belongs to."""
        return self._hosts.get(self._host_of.get(key, ""))

    def update(self, changed: Mapping[str, Layer | None]) -> frozenset[str]:
        """Put layers in, or take them out (None). Returns the ids of hosts that changed, came or went."""
        touched = set[str]()
        for key, layer in changed.items():
            old = self._layers.get(key)
            if old == layer:
                continue
            touched |= self._reach(key)
            self._unlink(old)
            if layer is None:
                del self._layers[key]
            else:
                self._layers[key] = layer
                for other in _leads_to(layer):
                    self._links[key].add(other)
                    self._links[other].add(key)
            touched |= self._reach(key)
        return self._join_again(touched)

    def since(self, version: str) -> Changes:
        boot_id, _, number = version.rpartition(".")
        at = int(number) if number.isdecimal() and len(number) <= 18 else -1
        if boot_id != self._boot_id or not self._forgotten <= at <= self._number:
            return Changes(self.version, tuple(self._hosts.values()), complete=True)
        changed = self._changed_since(at)
        hosts = tuple(self._hosts[id] for id in changed if id in self._hosts)
        return Changes(self.version, hosts, tuple(id for id in changed if id not in self._hosts))

    def _changed_since(self, number: int) -> list[str]:
        found = []
        for id, at in reversed(self._changed.items()):
            if at <= number:
                break
            found.append(id)
        return found

    def _reach(self, key: str) -> set[str]:
        """The key and whatever a link leads to from it."""
        group, ahead = {key}, [key]
        while ahead:
            for other in self._links.get(ahead.pop(), ()):
                if other not in group:
                    group.add(other)
                    ahead.append(other)
        return group

    def _unlink(self, layer: Layer | None) -> None:
        if layer is None:
            return
        for other in _leads_to(layer):
            there = self._layers.get(other)
            if there is not None and layer.key in _leads_to(there):
                continue  # the other end still says so
            for one, two in ((layer.key, other), (other, layer.key)):
                self._links[one].discard(two)
                if not self._links[one]:
                    del self._links[one]

    def _join_again(self, keys: Iterable[str]) -> frozenset[str]:
        keys = set(keys)
        before = {id: self._hosts.pop(id) for key in keys if (id := self._host_of.pop(key, "")) in self._hosts}
        for host in join_layers(layer for key in keys if (layer := self._layers.get(key)) is not None):
            self._hosts[host.id] = host
            for key in host.layers:
                self._host_of[key] = host.id
        changed = frozenset(
            id
            for id in before.keys() | {self._host_of[key] for key in keys if key in self._host_of}
            if before.get(id) != self._hosts.get(id)
        )
        if changed:
            self._remember(changed)
        return changed

    def _remember(self, changed: Iterable[str]) -> None:
        self._number += 1
        for id in changed:
            self._changed[id] = self._number
            self._changed.move_to_end(id)
        while len(self._changed) > CHANGES_KEPT:
            _, self._forgotten = self._changed.popitem(last=False)


def _leads_to(layer: Layer) -> tuple[str, ...]:
    """Layers to look at again with this one: those that it is, and those that it may be."""
    return (*layer.same_as, *(suspect.key for suspect in layer.suspects)) if layer.suspects else layer.same_as
