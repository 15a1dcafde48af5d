"""Do no harm: the one object that says whether a capability may write now, from facts already in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from hostler.apis.fleet import NAME, Fleet
from hostler.kube.client import Gate
from hostler.kube.store import Store
from hostler.kube.watch import FRESH_SECONDS
from hostler.safety.incumbents import State, Verdict
from hostler.safety.pause_state import PauseReason, PauseState
from hostler.safety.pauses import PauseWatch, read_pauses
from hostler.safety.switches import Choice


class FleetWatch(Protocol):
    """What we need of the watch on Fleet: `kube.watch.Watch[Fleet]` is the real one."""

    @property
    def store(self) -> Store[Fleet]: ...
    @property
    def absent(self) -> bool: ...
    @property
    def problem(self) -> str: ...
    def age(self) -> float | None: ...


def read_stop(pauses: PauseWatch, fleet: FleetWatch) -> PauseState:
    """Whether writes are stopped: by a Pause, or because pauses or the owner's decisions are not known."""
    state = read_pauses(pauses)
    if not state.stopped and (why := fleet_unknown(fleet)) is not None:
        return PauseState(PauseReason.FLEET_UNKNOWN, why)
    return state


def fleet_unknown(watch: FleetWatch) -> str | None:
    """Why the owner's decisions are not known; None: the Fleet was read, or is known not to exist."""
    age, detail = watch.age(), f": {watch.problem}" if watch.problem else ""
    if age is None or not watch.store.synced:
        return f"The Fleet has not been read yet, so nothing is written{detail}."
    if age > FRESH_SECONDS:
        return f"The API server said nothing of the Fleet for {age:.0f} s, so nothing is written{detail}."
    if not watch.absent and NAME in watch.store.unreadable:
        return f"The Fleet cannot be decoded ({watch.store.unreadable[NAME]}), so nothing is written."
    return None


class Guard:
    """Answers `gate(capability)` at once, without waiting for anything; asked before and while each write leaves.

    Invariant: a gate opens only on known facts. The Fleet's own status is the one thing written while paused: it is
    what says that it is paused.
    """

    def __init__(
        self,
        pauses: PauseWatch,
        fleet: FleetWatch,
        *,
        leader: Gate,
        choices: Iterable[Choice],
        dry_run: bool = False,
        ignore_incumbent: Iterable[str] = (),
    ) -> None:
        self._pauses = pauses
        self._fleet = fleet
        self._leader = leader
        self._dry_run = dry_run
        self._choices: Mapping[str, Choice] = {choice.capability.name: choice for choice in choices}
        self._ignored = frozenset(ignore_incumbent)
        self._verdicts: dict[str, Verdict] = {}

    @property
    def choices(self) -> list[Choice]:
        return list(self._choices.values())

    def pause(self) -> PauseState:
        return read_stop(self._pauses, self._fleet)

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
        if capability not in self._choices:
            raise ValueError(f"no capability named {capability!r}; add it to hostler.capabilities")
        return lambda: self.gate(capability)

    def giving_back(self, capability: str) -> Gate:
        """The gate for giving back to an incumbent what is its own: that it is at work does not close this one."""
        return lambda: self._said() or self._stopped(capability) or self._leader()

    def displaced(self, capability: str) -> bool:
        """The incumbent is known to be at work and nobody said to write beside it: what was taken from it goes back."""
        verdict = self._verdicts.get(capability)
        return not self.ignores(capability) and verdict is not None and verdict.state is State.FOUND

    def _incumbent(self, capability: str) -> str | None:
        choice = self._choices.get(capability)
        if choice is None or not choice.capability.incumbents or capability in self._ignored:
            return None
        verdict = self._verdicts.get(capability)
        if verdict is None:
            return f"Whether {choice.capability.incumbents[0].name} is still at work has not been looked at yet."
        if verdict.state is State.ABSENT:
            return None
        return f"{verdict.why} To write all the same: --ignore-incumbent {capability}."
