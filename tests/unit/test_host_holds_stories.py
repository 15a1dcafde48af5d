"""Holds under any interleaving of holders, people, stale readers and crashes.

The machine below plays a Node with the API server's rules (one atomic merge patch, refused on a stale version). A
crash needs no rule of its own: a change is one patch, so it has happened or it has not; a stale copy stands for every
process that decided long ago.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hostler.host.facts import Unknown
from hostler.host.holds import Change, Hold, Nothing, Patch, active, holds_of, keep, place, release
from hostler.kube.records import Node
from tests.sizes import examples
from tests.unit.test_host_holds import by_hand, merged, node

HOLDERS = st.sampled_from(["alice", "bob", "maintenance", "reclaim"])


def known(found: Node) -> tuple[Hold, ...]:
    holds = holds_of(found)
    assert not isinstance(holds, Unknown)
    return holds


class Story(RuleBasedStateMachine):
    """`theirs` is the truth no one in the program can see: the cordon that stands was put there by a person.

    `joined` is whose cordon the holds found when they began to answer for it.
    """

    @initialize(cordoned=st.booleans())
    def begin(self, cordoned: bool) -> None:
        self.node = node(cordoned)
        self.theirs = self.joined = cordoned
        self.copies = [self.node]
        self.now = 1_700_000_000.0

    def holds(self) -> tuple[Hold, ...]:
        return known(self.node)

    def write(self, seen: Node, change: Change) -> None:
        """The API server's side of a patch decided on `seen`."""
        self.now += 1
        if not isinstance(change, Patch):
            return
        if seen.metadata.resource_version != self.node.metadata.resource_version:
            return  # 409; whoever asked reads again, which is just another rule
        before, self.node = self.node, merged(self.node, change.body)
        if before.spec.unschedulable and not self.node.spec.unschedulable:
            assert not self.theirs, "we undid a person's cordon"
        if not self.node.spec.unschedulable:
            self.theirs = False
        if not before.spec.unschedulable and self.node.spec.unschedulable:
            self.joined = False
        elif not active(known(before)):
            self.joined = self.theirs
        self.copies = [*self.copies[-3:], self.node]

    @rule(holder=HOLDERS, why=st.sampled_from(["x", "y"]), back=st.integers(1, 4))
    def somebody_holds(self, holder: str, why: str, back: int) -> None:
        seen = self.copies[-min(back, len(self.copies))]
        self.write(seen, place(seen, holder, why, self.now))

    @rule(holder=HOLDERS | st.none(), back=st.integers(1, 4))
    def somebody_releases(self, holder: str | None, back: int) -> None:
        seen = self.copies[-min(back, len(self.copies))]
        answered = bool(active(self.holds()))
        self.write(seen, release(seen, holder))
        if answered and not self.holds():
            assert self.node.spec.unschedulable is self.theirs, "the last hold left, and the cordon is not as before"

    @rule(back=st.integers(1, 4))
    def the_keeper_looks(self, back: int) -> None:
        seen = self.copies[-min(back, len(self.copies))]
        self.write(seen, keep(seen, self.now))

    @rule()
    def a_person_uncordons(self) -> None:
        self.node, self.theirs = by_hand(self.node, False), False
        self.copies = [*self.copies[-3:], self.node]

    @precondition(lambda self: not self.node.spec.unschedulable)
    @rule()
    def a_person_cordons(self) -> None:
        # Before the keeper has seen the uncordon, a cordon by hand cannot be told from the one that stood: it takes
        # that one's place (docs/holds.md). `kubectl cordon` on a cordoned node writes nothing at all.
        self.theirs = self.joined if active(self.holds()) else True
        self.node = by_hand(self.node, True)
        self.copies = [*self.copies[-3:], self.node]

    @rule()
    def the_kubelet_writes_its_status(self) -> None:
        self.node = by_hand(self.node, self.node.spec.unschedulable)
        self.copies = [*self.copies[-3:], self.node]

    @invariant()
    def everything_is_idempotent(self) -> None:
        for change in (keep(self.node, self.now), *(release(self.node, h) for h in ("alice", None))):
            if isinstance(change, Patch):
                after = merged(self.node, change.body)
                again = keep(after, self.now) if change == keep(self.node, self.now) else release(after, "alice")
                assert isinstance(again, Nothing)
        for hold in self.holds():
            assert isinstance(place(self.node, hold.holder, hold.why, self.now), Nothing)

    @invariant()
    def each_hold_insists_at_most_once(self) -> None:
        if all(hold.recordoned for hold in active(self.holds())):
            change = keep(self.node, self.now)
            assert not isinstance(change, Patch) or "spec" not in change.body

    def teardown(self) -> None:
        """However the story went, releasing everything gives the node back as the people want it."""
        if not hasattr(self, "node"):
            return
        answered = bool(active(self.holds()))
        self.write(self.node, release(self.node, None))
        assert self.holds() == ()
        if answered:
            assert self.node.spec.unschedulable is self.theirs


TestStory = Story.TestCase
TestStory.settings = settings(max_examples=examples(150), stateful_step_count=30, deadline=None)
