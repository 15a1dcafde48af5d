"""What our vCenter user must be allowed to do, and on which object, before a VM is emptied or stopped. Pure.

Invariant: nothing is stopped that our user may not start again. A missing right to move a VM holds no stop.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from hostler.host.facts import Fact, Unknown
from hostler.instant import Instant
from hostler.vsphere.records import Cluster, Vm

STOP = ("VirtualMachine.Interact.PowerOff", "VirtualMachine.Interact.PowerOn")
MOVE = "Resource.ColdMigrate"
POOL = "Resource.AssignVMToPool"  # on the pool it is put into; its own it keeps without asking
ON_VM = (*STOP, MOVE)
# Before pods are evicted or a VM is stopped, what we may do must have been looked at no longer ago than this.
RIGHTS_SECONDS = 60.0
EVER = float("inf")
# What vCenter will not say holds a VM for so long; the predecessor never asked.
UNANSWERED_SECONDS = 60.0

Object: TypeAlias = tuple[str, str]  # vCenter, id
Lacks: TypeAlias = Fact[tuple[str, ...]]  # what our user lacks on an object


@dataclass(frozen=True, slots=True)
class Unanswered(Unknown):
    """vCenter was asked in every way we know and would not say; `since` is by our clock."""

    since: Instant = 0.0


@dataclass(frozen=True, slots=True)
class Need:
    """Privileges that our user needs on one object."""

    on: str  # its id
    said: str  # how people call it: "VM gpu-1"
    privileges: tuple[str, ...]

    def __str__(self) -> str:
        return f"{' and '.join(self.privileges)} on {self.said}"


@dataclass(frozen=True, slots=True)
class Judged:
    """How our user stands with what is needed: something is lacking, or it is not known, or all is well."""

    lacking: tuple[Need, ...] = ()
    unknown: str = ""  # it was asked, and vCenter would not tell
    unseen: str = ""  # at which object nobody has looked (lately)
    since: Instant = 0.0  # since when `unknown` is so
    oldest: tuple[Instant, str] = (EVER, "")  # where all is well: the object that was looked at longest ago

    def within(self, max_age: float, now: Instant) -> Judged:
        """What is lacking counts however old it is; that all is well only if it was looked at lately."""
        return Judged(unseen=self.oldest[1]) if now - self.oldest[0] > max_age else self

    def holds(self, now: Instant, for_ever: bool) -> bool:
        """Whether this keeps a VM from being emptied or stopped; what vCenter will not say only for a time."""
        return bool(self.lacking) or (bool(self.unknown) and (for_ever or now < self.since + UNANSWERED_SECONDS))

    def __str__(self) -> str:
        return ", and ".join(str(one) for one in self.lacking)


def needs_of(vm: Vm) -> tuple[Need, ...]:
    """To stop a VM and start it again."""
    return (Need(vm.moref, f"VM {vm.name}", STOP),)


def moves_of(vm: Vm, into: Cluster | None = None) -> tuple[Need, ...]:
    """To move a VM that is off."""
    return (Need(vm.moref, f"VM {vm.name}", (MOVE,)), *_pool(into))


def _pool(into: Cluster | None) -> tuple[Need, ...]:
    return () if into is None else (Need(into.pool, f"the resource pool of cluster {into.name}", (POOL,)),)


def judge(needs: Iterable[Need], rights: Mapping[Object, Lacks], vcenter: str, now: Instant) -> Judged:
    """By what was last looked at, however long ago that is."""
    lacking: list[Need] = []
    unknown = unseen = ""
    since, oldest = 0.0, (EVER, "")
    for need in needs:
        fact = rights.get((vcenter, need.on))
        if isinstance(fact, Unknown):
            unknown = unknown or f"what our vCenter user may do with {need.said} is not known: {fact.why}"
            since = max(since, fact.since if isinstance(fact, Unanswered) else now)
        elif fact is not None and (found := tuple(one for one in need.privileges if one in fact.value)):
            lacking.append(Need(need.on, need.said, found))
        elif fact is None:
            unseen = unseen or need.said
        else:
            oldest = min(oldest, (fact.at, need.said))
    if lacking:
        return Judged(tuple(lacking))
    if unknown or unseen:
        return Judged(unknown=unknown, since=since) if unknown else Judged(unseen=unseen)
    return Judged(oldest=oldest)
