"""MAX_UNAVAILABLE: how many nodes may be out of service by us at a time, over all causes. Pure.

The limit is a number (`3`) or a percentage (`25%`), of all nodes and of those a capability may touch. A percentage is
rounded down, fewer nodes out being the careful side, but to no less than 1, or a small fleet could never be maintained.
`0` and `0%` mean what they say: nothing goes. Unset means 50 percent, but at least 2.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from hostler.errors import Complaint, Exit
from hostler.host.conditions import count, names
from hostler.host.facts import Unknown
from hostler.host.holds import holds_of
from hostler.host.taints import OUT_OF_SERVICE_BY
from hostler.kube.records import Node
from hostler.kube.store import Store

SETTING = "MAX_UNAVAILABLE"
_LIMIT = re.compile(r"(?P<amount>[0-9]{1,9})(?P<percent>%?)")


@dataclass(frozen=True, slots=True)
class Limit:
    amount: int
    percent: bool
    at_least: int

    def of(self, total: int) -> int:
        """How many of `total` nodes may be out; never more than there are."""
        if not self.percent:
            return min(self.amount, total)
        share = total * self.amount // 100
        return min(max(share, self.at_least if self.amount else 0), total)

    def __str__(self) -> str:
        if not self.percent:
            return str(self.amount)
        return f"{self.amount}%, at least {self.at_least}" if self.at_least > 1 else f"{self.amount}%"


DEFAULT = Limit(50, percent=True, at_least=2)


def parse_limit(text: str) -> Limit:
    """The limit a setting's text means; empty is the default. A Complaint names the setting."""
    stripped = text.strip()
    if not stripped:
        return DEFAULT
    read = _LIMIT.fullmatch(stripped)
    if read is None or (read["percent"] and int(read["amount"]) > 100):
        raise Complaint(
            f"{SETTING} is {text!r}, which is neither a number of nodes nor a percentage up to 100%.",
            hint="Write for example 3 or 25%; leave it out for 50%, but at least 2.",
            code=Exit.SETTING,
        )
    return Limit(int(read["amount"]), bool(read["percent"]), at_least=1)


@dataclass(frozen=True, slots=True)
class Room:
    """What the ceiling leaves: `left` more nodes may go. `out` are those that are gone already.

    `few`: counted over the nodes a capability may touch, not over all.
    """

    left: int
    allowed: int
    total: int
    out: tuple[str, ...]
    limit: Limit
    few: bool = False

    def admits(self, node: str) -> bool:
        """Whether this node may be taken out. One that is out already may stay out."""
        return node in self.out or self.left > 0

    def after(self, node: str) -> Room:
        """The room once this node is taken too, so that one pass over many nodes counts each once."""
        if node in self.out:
            return self
        return replace(self, left=max(0, self.left - 1), out=tuple(sorted((*self.out, node))))

    def why_not(self, node: str) -> str:
        """The sentence for a node that is held back."""
        of = count(self.total, "node") + (" like it" if self.few else "")
        if self.allowed == 0:
            return f"{node} stays in service: {SETTING} ({self.limit}) allows none of {of} out."
        return (
            f"{node} waits: {SETTING} ({self.limit}) allows {self.allowed} of {of} out of "
            f"service at a time, and {len(self.out)} {'is' if len(self.out) == 1 else 'are'} out: {names(self.out)}."
        )


@dataclass(frozen=True, slots=True)
class Counted:
    """Some nodes: their names, and which of them are out of service."""

    nodes: Collection[str]
    out: Collection[str]


class OutOfService:
    """The names of the nodes that are out of service, kept up to date change by change."""

    def __init__(self, store: Store[Node]) -> None:
        self._store = store
        self._out = {node.metadata.name for node in store.values() if is_out(node)}
        store.listen(self._changed)

    def count(self) -> Counted:
        return Counted(self._store.keys(), self._out)

    def _changed(self, name: str, _: Node | None, node: Node | None) -> None:
        if node is not None and is_out(node):
            self._out.add(name)
        else:
            self._out.discard(name)


def room(
    nodes: Iterable[Node], limit: Limit, also_out: Iterable[str] = (), touched: Iterable[Node] | None = None
) -> Room:
    """As `room_of`, for nodes that were just listed."""
    known = {node.metadata.name: node for node in nodes}
    counted = Counted(known.keys(), [name for name, node in known.items() if is_out(node)])
    few = {node.metadata.name for node in touched} if touched is not None else None
    return room_of(counted, limit, also_out, few)


def room_of(nodes: Counted, limit: Limit, also_out: Iterable[str] = (), touched: Collection[str] | None = None) -> Room:
    """How many more nodes may go out of service: over all `nodes`, and over those a capability may touch, whichever
    leaves less. Else half of a big cluster could be all of its few special nodes.

    A node is out if anybody holds it through us, whatever the cause, if its holds cannot be read, or while a
    remediation reboots it (which asks nobody: it was out of service before). `also_out` names what is out without a
    Node to show it (a stopped VM whose Node is deleted): it counts against the limit and into the total.
    """
    unseen = frozenset(also_out)
    everywhere = _count_room(nodes, limit, unseen)
    if touched is None:
        return everywhere
    few = Counted(touched, [name for name in nodes.out if name in touched])
    return min(everywhere, replace(_count_room(few, limit, unseen), few=True), key=lambda found: found.left)


def _count_room(counted: Counted, limit: Limit, also_out: frozenset[str]) -> Room:
    total = len(counted.nodes) + sum(name not in counted.nodes for name in also_out)
    out = also_out.union(counted.out)
    allowed = limit.of(total)
    return Room(max(0, allowed - len(out)), allowed, total, tuple(sorted(out)), limit)


def overrun(nodes: Iterable[Node], limit: Limit, node: str) -> str | None:
    """After `node` was taken: why it must go back, because others were taken at the same moment; None: all is well."""
    left = room(nodes, limit)
    if len(left.out) <= left.allowed:
        return None
    return f"{node} was released again: others were held at the same moment, and {left.why_not(node)}"


def is_out(node: Node) -> bool:
    """Held by anybody through us, or rebooted by a remediation of ours; holds that cannot be read count as held."""
    holds = holds_of(node)
    return isinstance(holds, Unknown) or bool(holds) or OUT_OF_SERVICE_BY in node.metadata.annotations
