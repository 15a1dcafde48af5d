"""Do no harm: the one object that says whether a capability may write now, from facts already in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from hostler.fleet.capabilities import BY_NAME, Choice
from hostler.fleet.incumbents import State, Verdict
from hostler.fleet.model import NAME, Fleet
from hostler.kube.client import Gate
from hostler.kube.store import Store
from hostler.kube.watch import FRESH_SECONDS


class FleetWatch(Protocol):
    """What we need of the watch on Fleet: `kube.watch.Watch[Fleet]` is the real one."""

    @property
    def store(self) -> Store[Fleet]: ...
    @property
    def absent(self) -> bool: ...
    @property
    def problem(self) -> str: ...
    def age(self) -> float | None: ...


@dataclass(frozen=True, slots=True)
class Pause:
    """Whether writes are stopped. `known` False stops them too, but as something we do not know."""

    stopped: bool
    why: str
    known: bool = True


def pause_of(watch: FleetWatch) -> Pause:
    """Read the stop button. Unknown is not absent: only a Fleet seen, or known not to exist, lets writes go."""
    age = watch.age()
    if age is None or not watch.store.synced:
        why = f": {watch.problem}" if watch.problem else ""
        return Pause(True, f"It is not known yet whether the Fleet is paused{why}.", known=False)
    if age > FRESH_SECONDS:  # it may have missed the stop button
        why = f": {watch.problem}" if watch.problem else ""
        return Pause(True, f"Whether the Fleet is paused has not been heard for {age:.0f} s{why}.", known=False)
    if watch.absent:
        return Pause(False, "There is no Fleet kind in this cluster, so nothing is paused.")
    if NAME in watch.store.unreadable:
        why = watch.store.unreadable[NAME]
        return Pause(True, f"The Fleet object cannot be read ({why}), so it counts as paused.", known=False)
    fleet = watch.store.get(NAME)
    if fleet is None or not fleet.spec.paused:
        return Pause(False, "The Fleet is not paused.")
    by = f" by {fleet.spec.paused_by}" if fleet.spec.paused_by else ""
    reason = f": {fleet.spec.paused_reason}" if fleet.spec.paused_reason else ""
    return Pause(True, f"The Fleet is paused{by}{reason}. `hostler resume` lets it go on.")


class Guard:
    """Answers `gate(capability)` at once, without waiting for anything; asked before and while each write leaves.

    Invariant: a gate opens only on known facts. The Fleet's own status is the one thing written while paused: it is
    what says that it is paused.
    """

    def __init__(
        self,
        fleet: FleetWatch,
        *,
        leader: Gate,
        choices: Iterable[Choice],
        dry_run: bool = False,
        ignore_incumbent: Iterable[str] = (),
    ) -> None:
        self._fleet = fleet
        self._leader = leader
        self._dry_run = dry_run
        self._choices: Mapping[str, Choice] = {choice.capability.name: choice for choice in choices}
        self._ignored = frozenset(ignore_incumbent)
        self._verdicts: dict[str, Verdict] = {}

    @property
    def choices(self) -> list[Choice]:
        return list(self._choices.values())

    def pause(self) -> Pause:
        return pause_of(self._fleet)

    def judged(self, capability: str, verdict: Verdict) -> None:
        """The lookout has a new verdict on the incumbent of this capability."""
        self._verdicts[capability] = verdict

    def verdict(self, capability: str) -> Verdict | None:
        return self._verdicts.get(capability)

    def ignores(self, capability: str) -> bool:
        """Somebody said that this capability writes even beside its incumbent."""
        return capability in self._ignored

    def gate(self, capability: str) -> str | None:
        """None: write. A sentence: do not, and this is why. The reasons are ordered by who can mend them soonest."""
        return self._said() or self.blocked(capability) or self._leader()

    def blocked(self, capability: str) -> str | None:
        """As `gate`, but without what is different on each replica: dry run and leadership."""
        return self._stopped(capability) or self._incumbent(capability)

    def _said(self) -> str | None:
        return "This is a dry run: nothing is written." if self._dry_run else None

    def _stopped(self, capability: str) -> str | None:
        """Off, or paused."""
        choice = self._choices.get(capability)
        if choice is None or not choice.on:
            return f"{capability} is off. {choice.why if choice else 'It is not known here.'}"
        if capability != "fleet" and (pause := self.pause()).stopped:
            return pause.why
        return None

    def gate_for(self, capability: str) -> Gate:
        """The gate of one capability, as `Writer` wants it."""
        if capability not in BY_NAME:
            raise ValueError(f"no capability named {capability!r}; add it to fleet.capabilities")
        return lambda: self.gate(capability)

    def giving_back(self, capability: str) -> Gate:
        """The gate for giving back to an incumbent what is its own: that it is at work does not close this one."""
        return lambda: self._said() or self._stopped(capability) or self._leader()

    def displaced(self, capability: str) -> bool:
        """The incumbent is known to be at work and nobody said to write beside it: what was taken from it goes back."""
        verdict = self._verdicts.get(capability)
        return not self.ignores(capability) and verdict is not None and verdict.state is State.FOUND

    def _incumbent(self, capability: str) -> str | None:
        known = BY_NAME.get(capability)
        if known is None or not known.incumbents or capability in self._ignored:
            return None
        verdict = self._verdicts.get(capability)
        if verdict is None:
            return f"Whether {known.incumbents[0].name} is still at work has not been looked at yet."
        if verdict.state is State.ABSENT:
            return None
        return f"{verdict.why} To write all the same: --ignore-incumbent {capability}."
