"""What is to be recorded next: ids, durations, repeated refusals, gaps. Pure.

A decision never waits for the store and never reads it: entries queue here, bounded, until the store takes them. If it
refuses for long, the oldest are dropped and one `gap` entry says how many.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypedDict, Unpack

from msgspec.structs import replace

from hostler.history.model import GONE, Entry, What, id_order
from hostler.host.conditions import count, cut
from hostler.instant import Instant

PENDING_LIMIT = 10_000
TEXT_LIMIT = 300  # characters
ENDING_SECONDS = 2.0


class About(TypedDict, total=False):
    """What an entry may say besides what happened to which layer."""

    capability: str
    reason: str
    sentence: str
    operation: str
    result: str


@dataclass(frozen=True, slots=True)
class Stay:
    """The state a layer is in, as last recorded, the operation that it is part of, and the one that ended with it."""

    state: str
    since: Instant
    operation: str = ""
    ended: str = ""

    def operation_at(self, at: Instant) -> str:
        """Of an action at that moment: the write that ends an operation may be answered after its effect was seen."""
        return self.operation or (self.ended if at - self.since <= ENDING_SECONDS else "")


@dataclass(slots=True)
class Unsuccessful:
    """What was last recorded of one layer in one operation: by capability or action, why it did not go on."""

    operation: str
    reasons: dict[str, str] = field(default_factory=dict)


class Trail:
    """The recorder of one leader. `transitions` is the lease's count of leaders: it makes the ids unique."""

    def __init__(self, transitions: int, *, limit: int = PENDING_LIMIT) -> None:
        self._transitions = transitions
        self._counter = 0
        self._limit = limit
        self._pending = deque[Entry]()
        self._dropped = 0
        self.dropped_in_all = 0
        self._stays: dict[str, Stay] = {}
        self._unsuccessful: dict[str, Unsuccessful] = {}

    @property
    def stays(self) -> Mapping[str, Stay]:
        return self._stays

    def resume(self, stored: Iterable[Entry], passing: Collection[str] = ()) -> None:
        """Continue from what is stored: the last state of each layer, and ids that were not used yet.

        `passing`: the states that are part of an operation for as long as they last.
        """
        for entry in sorted(stored, key=lambda entry: id_order(entry.id)):
            # Never below what is stored: a lease that was made again counts from the beginning.
            self._transitions, self._counter = max((self._transitions, self._counter), id_order(entry.id))
            if entry.new == GONE:
                self._stays.pop(entry.key, None)
            elif entry.new:
                operation = entry.operation if entry.new in passing else ""
                self._stays[entry.key] = Stay(entry.new, entry.at, operation)

    def infer(self, states: Mapping[str, Stay], gone: Iterable[str] = (), now: Instant = 0.0) -> None:
        """After a start: a state that differs from the last entry was entered while nobody recorded."""
        for key in sorted(gone):
            self._enter(What.INFERRED, key, GONE, at=now, sentence="It is no longer reported.")
            self.forget(key)
        for key, stay in sorted(states.items()):
            known = self._stays.get(key)
            if known is None or known.state != stay.state:
                sentence = "It was not known before." if known is None else "The change was not observed."
                self._enter(What.INFERRED, key, stay.state, at=stay.since, sentence=sentence, operation=stay.operation)
            else:
                self._stays[key] = Stay(known.state, known.since, stay.operation)

    def transition(self, key: str, state: str, at: Instant, **about: Unpack[About]) -> None:
        """A layer is in a state now. Nothing is recorded where the last entry says so already."""
        known = self._stays.get(key)
        if known is None or known.state != state:
            self._enter(What.TRANSITION, key, state, at=at, **about)

    def action(self, key: str, at: Instant, **about: Unpack[About]) -> None:
        """Done. What was refused of it before may be refused again, and is recorded then."""
        if (known := self._unsuccessful.get(key)) is not None:
            known.reasons.pop(_source(about), None)
        self._add(Entry(self._next_id(), at, key, What.ACTION, **about))

    def failure(self, key: str, at: Instant, **about: Unpack[About]) -> None:
        """An action that came to nothing. It is tried again and again: recorded once, until its result is another."""
        if self._is_news(key, about.get("operation", ""), _source(about), about.get("result", "")):
            self._add(Entry(self._next_id(), at, key, What.ACTION, **about))

    def refusal(self, key: str, at: Instant, **about: Unpack[About]) -> None:
        """Recorded once, until the reason is another one for the same layer and operation."""
        if self._is_news(key, about.get("operation", ""), about.get("capability", ""), about.get("reason", "")):
            self._add(Entry(self._next_id(), at, key, What.REFUSAL, **about))

    def gap(self, at: Instant, **about: Unpack[About]) -> None:
        """Something may be missing here."""
        self._add(Entry(self._next_id(), at, "", What.GAP, **about))

    def _is_news(self, key: str, operation: str, source: str, reason: str) -> bool:
        known = self._unsuccessful.get(key)
        if known is None or known.operation != operation:
            known = self._unsuccessful[key] = Unsuccessful(operation)
        is_news = known.reasons.get(source) != reason
        known.reasons[source] = reason
        return is_news

    def forget(self, key: str) -> None:
        """The layer is gone; another one of this name begins anew."""
        self._stays.pop(key, None)
        self._unsuccessful.pop(key, None)

    def take(self, most: int, now: Instant) -> list[Entry]:
        """The next entries for the store; `done` says that it has them."""
        if self._dropped:
            sentence = f"{count(self._dropped, 'entry', 'entries')} dropped because the history could not be stored."
            gap = Entry(self._next_id(), now, "", What.GAP, reason="Dropped", sentence=sentence)
            self._pending.append(gap)
            self._dropped = 0
        return [self._pending[place] for place in range(min(most, len(self._pending)))]

    def done(self, entries: Iterable[Entry]) -> None:
        stored = {entry.id for entry in entries}
        while self._pending and self._pending[0].id in stored:
            self._pending.popleft()

    @property
    def waiting(self) -> tuple[Entry, ...]:
        return tuple(self._pending)

    def requeue(self, waiting: Iterable[Entry]) -> None:
        """What an earlier trail of this process could not store any more."""
        for entry in waiting:
            if entry.new == GONE:
                self._stays.pop(entry.key, None)
            elif entry.new:
                self._stays[entry.key] = Stay(entry.new, entry.at, entry.operation)
            self._add(entry)

    def __len__(self) -> int:
        return len(self._pending)

    def _enter(self, what: What, key: str, state: str, *, at: Instant, **about: Unpack[About]) -> None:
        known = self._stays.get(key)
        old, duration = (known.state, max(0.0, at - known.since)) if known is not None else ("", None)
        operation = about.get("operation", "")
        ended = known.operation if known is not None and not operation else ""
        self._stays[key] = Stay(state, at, operation, ended)
        if ended:
            about["operation"] = ended  # the step that ends an operation is part of it
        self._add(Entry(self._next_id(), at, key, what, old=old, new=state, duration=duration, **about))

    def _add(self, entry: Entry) -> None:
        """Texts are bounded: whoever may write a Node's status must not fill the store."""
        short = cut(entry.sentence, TEXT_LIMIT), cut(entry.reason, TEXT_LIMIT), cut(entry.operation, TEXT_LIMIT)
        self._pending.append(replace(entry, sentence=short[0], reason=short[1], operation=short[2]))
        if len(self._pending) > self._limit:
            self._pending.popleft()
            self._dropped += 1
            self.dropped_in_all += 1

    def _next_id(self) -> str:
        self._counter += 1
        return f"{self._transitions}.{self._counter}"


def _source(about: About) -> str:
    return f"{about.get('capability', '')}/{about.get('reason', '')}"
