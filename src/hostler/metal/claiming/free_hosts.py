"""An index of free hosts that supplies candidates without a look at every host; and the machines that wait for one.

Nothing here decides: `choose.choose` decides among the candidates, and among all hosts where those do not settle it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from dataclasses import dataclass

from hostler.apis import capi
from hostler.apis.metal3 import BareMetalHost
from hostler.kube.records import key_of
from hostler.metal.claiming.choose import Wish, domain_of
from hostler.metal.claiming.refusal import why_not_free
from hostler.metal.names import NODE_REUSE

# Candidates in the first sample and in the second; then every host is looked at. The first is enough where most free
# hosts suit, the second where one in eight does.
SAMPLES = (4, 64)


@dataclass(frozen=True, slots=True)
class Sample:
    """Candidates for one machine, as keys; one may be in it twice."""

    hosts: tuple[str, ...]
    whole: bool  # no host is missing that the machine could be given
    whole_domain: bool  # none of its own failure domain is


class Bag:
    """Keys with a random draw, an add and a removal that cost the same however many there are."""

    def __init__(self) -> None:
        self._keys: list[str] = []
        self._places: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, key: str) -> None:
        if key not in self._places:
            self._places[key] = len(self._keys)
            self._keys.append(key)

    def remove(self, key: str) -> None:
        place = self._places.pop(key, None)
        if place is None:
            return
        last = self._keys.pop()
        if last != key:
            self._keys[place] = last
            self._places[last] = place

    def sample(self, dice: random.Random, most: int) -> list[str]:
        """So many keys at random, each once; all where they are not more."""
        return dice.sample(self._keys, min(most, len(self._keys)))


_EMPTY = Bag()


class FreeHosts:
    """Follows the host cache. `freed` is called with each host that has become free."""

    def __init__(self, dice: random.Random, freed: Callable[[BareMetalHost], None]) -> None:
        self._dice, self._freed = dice, freed
        self._bags: dict[tuple[str, str | None], Bag] = {}  # by namespace and failure domain; None: any
        self._reserved: dict[tuple[str, str], set[str]] = {}  # by namespace and node-reuse label: free or not
        self.reservations: dict[str, str] = {}  # host -> the machine that is taking it right now

    def changed(self, key: str, before: BareMetalHost | None, after: BareMetalHost | None) -> None:
        was, now = before is not None and is_free(before), after is not None and is_free(after)
        if before is not None:
            self._forget(key, before)
        if after is None:
            self.reservations.pop(key, None)
            return
        namespace, label = after.metadata.namespace, after.metadata.labels.get(NODE_REUSE)
        if label is not None:
            self._reserved.setdefault((namespace, label), set()).add(key)
        elif now:
            for domain in {None, domain_of(after)}:
                self._bags.setdefault((namespace, domain), Bag()).add(key)
        if now and (not was or before is None or _offers(before) != _offers(after)):
            self._freed(after)

    def _forget(self, key: str, host: BareMetalHost) -> None:
        namespace, label = host.metadata.namespace, host.metadata.labels.get(NODE_REUSE)
        if label is not None:
            found = self._reserved.get((namespace, label))
            if found is not None:
                found.discard(key)
                if not found:
                    del self._reserved[(namespace, label)]
            return
        for domain in {None, domain_of(host)}:
            bag = self._bags.get((namespace, domain))
            if bag is not None:
                bag.remove(key)

    def reserved(self, namespace: str, label: str) -> Collection[str]:
        """The hosts kept for this label, whatever their state; none for an empty one."""
        return self._reserved.get((namespace, label), ()) if label else ()

    def sample(self, wish: Wish, *, strict: bool, most: int) -> Sample:
        """Every host reserved for this machine's kind, and at most so many free ones of its domain and of any.

        `strict`: no host of another domain could be chosen.
        """
        namespace, domain = wish.machine.metadata.namespace, wish.domain
        near = self._bags.get((namespace, domain), _EMPTY) if domain else _EMPTY
        anywhere = self._bags.get((namespace, None), _EMPTY) if not (domain and strict) else _EMPTY
        hosts = (
            *self.reserved(namespace, wish.reuse),
            *near.sample(self._dice, most),
            *anywhere.sample(self._dice, most),
        )
        whole_domain = len(near) <= most
        return Sample(hosts, whole_domain and len(anywhere) <= most, whole_domain)

    def taken(self, key: str, by: str) -> str:
        """Who else is taking this host right now; empty: no other machine."""
        who = self.reservations.get(key)
        return f"Metal3Machine {who}" if who is not None and who != by else ""


def _offers(host: BareMetalHost) -> tuple[object, ...]:
    """What of a free host decides whom it suits."""
    return host.metadata.labels, host.spec.consumer_ref


def is_free(host: BareMetalHost) -> bool:
    """Whether some machine could take it: nobody's, or only kept by its cluster."""
    consumer = host.spec.consumer_ref
    return (consumer is None or consumer.kind == capi.CLUSTER.kind) and why_not_free(host) is None


class Waiting:
    """Machines without a host, in the order they began to wait. A freed host is offered to one of them, not to all."""

    def __init__(self, wake: Callable[[str], None], suits: Callable[[str, BareMetalHost], bool]) -> None:
        self._wake, self._suits = wake, suits
        self._machines: dict[str, dict[str, None]] = {}  # namespace -> machines, oldest first
        self._offers: dict[str, str] = {}  # machine -> the host it was woken for

    def __len__(self) -> int:
        return sum(len(found) for found in self._machines.values())

    def add(self, key: str) -> None:
        self._machines.setdefault(key.partition("/")[0], {}).setdefault(key)

    def of(self, namespace: str) -> list[str]:
        return list(self._machines.get(namespace, ()))

    def remove(self, key: str) -> None:
        found = self._machines.get(key.partition("/")[0])
        if found is not None:
            found.pop(key, None)

    def offer(self, host: BareMetalHost, after: str = "") -> None:
        """Wake the first machine that this host suits and that was not woken for another one already.

        `after`: who was offered it and goes on waiting, say for a kept one that is on its way. Only those behind are
        asked then: else it would be offered the same host again at once and for ever, and nobody else get their turn.
        """
        machines = self._machines.get(host.metadata.namespace, {})
        behind = after not in machines
        for key in machines:
            if behind and key not in self._offers and self._suits(key, host):
                self._offers[key] = key_of(host.metadata)
                self._wake(key)
                return
            behind = behind or key == after

    def looked(self, key: str) -> str | None:
        """A machine has looked: the host that was offered to it, to be offered on if it is still free."""
        return self._offers.pop(key, None)
