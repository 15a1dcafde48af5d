"""Holds, case by case: the table of docs/holds.md."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from hostler.host.facts import Unknown
from hostler.host.holds import (
    HOLDS,
    MAINTENANCE,
    Change,
    Hold,
    Nothing,
    Patch,
    Refusal,
    held_by,
    holds_of,
    keep,
    lost,
    may_release,
    place,
    release,
)
from hostler.host.maintenance import SINCE, STATE
from hostler.instant import iso
from hostler.kube.records import Metadata, Node, NodeSpec

NOW = 1_700_000_000.0


def node(cordoned: bool = False, annotations: dict[str, str] | None = None, version: int = 1) -> Node:
    return Node(
        metadata=Metadata(name="w1", resource_version=str(version), annotations=annotations or {}),
        spec=NodeSpec(unschedulable=cordoned),
    )


def applied(before: Node, change: Change) -> Node:
    """The node after a merge patch, as the API server does it."""
    assert isinstance(change, Patch), change
    return merged(before, change.body)


def merged(before: Node, body: dict[str, Any]) -> Node:
    metadata = body["metadata"]
    assert metadata["resourceVersion"] == before.metadata.resource_version
    annotations = {**before.metadata.annotations, **metadata["annotations"]}
    spec = body.get("spec", {})
    return node(
        bool(spec["unschedulable"]) if "unschedulable" in spec else before.spec.unschedulable,
        {key: value for key, value in annotations.items() if value is not None},
        int(before.metadata.resource_version) + 1,
    )


def by_hand(before: Node, cordoned: bool) -> Node:
    return node(cordoned, before.metadata.annotations, int(before.metadata.resource_version) + 1)


def holds(found: Node) -> tuple[Hold, ...]:
    read = holds_of(found)
    assert not isinstance(read, Unknown), read
    return read


def held(before: Node, holder: str = "alice", why: str = "disk") -> Node:
    return applied(before, place(before, holder, why, NOW))


# -- one holder


def test_a_hold_cordons_and_its_end_uncordons_and_leaves_no_trace() -> None:
    kept = held(node())
    assert kept.spec.unschedulable
    assert holds(kept) == (Hold("alice", "disk", iso(NOW), False),)
    free = applied(kept, release(kept, "alice"))
    assert not free.spec.unschedulable
    assert free.metadata.annotations == {}


def test_the_patch_changes_list_and_cordon_together_on_the_version_it_was_decided_on() -> None:
    change = place(node(version=7), "alice", "disk", NOW)
    assert isinstance(change, Patch)
    assert change.body["metadata"]["resourceVersion"] == "7"
    assert change.body["spec"] == {"unschedulable": True}
    assert msgspec.json.decode(change.body["metadata"]["annotations"][HOLDS]) == [
        {"holder": "alice", "why": "disk", "since": iso(NOW), "cordonedBefore": False}
    ]


def test_a_cordon_that_stood_before_us_stays() -> None:
    kept = held(node(cordoned=True))
    assert holds(kept)[0].cordoned_before
    free = applied(kept, release(kept, "alice"))
    assert free.spec.unschedulable
    assert free.metadata.annotations == {}


def test_asking_again_changes_nothing_and_a_new_reason_keeps_the_time() -> None:
    kept = held(node())
    assert isinstance(place(kept, "alice", "disk", NOW + 60), Nothing)
    again = applied(kept, place(kept, "alice", "disk and fan", NOW + 60))
    assert holds(again) == (Hold("alice", "disk and fan", iso(NOW), False),)
    free = applied(kept, release(kept, "alice"))
    assert isinstance(release(free, "alice"), Nothing)


@pytest.mark.parametrize("holder", ["", "  ", "x" * 200])
def test_a_hold_needs_a_holder(holder: str) -> None:
    assert isinstance(place(node(), holder, "disk", NOW), Refusal)


# -- two holders


@pytest.mark.parametrize("cordoned_before", [False, True])
@pytest.mark.parametrize("first", ["alice", "maintenance"])
def test_only_the_last_to_leave_uncordons_whoever_it_is(cordoned_before: bool, first: str) -> None:
    both = held(held(node(cordoned=cordoned_before)), "maintenance", "host enters maintenance")
    second = {"alice": "maintenance", "maintenance": "alice"}[first]
    one = applied(both, release(both, first))
    assert one.spec.unschedulable
    assert [hold.holder for hold in holds(one)] == [second]
    none = applied(one, release(one, second))
    assert none.spec.unschedulable is cordoned_before


def test_everybody_at_once() -> None:
    both = held(held(node()), "bob")
    free = applied(both, release(both, None))
    assert not free.spec.unschedulable
    assert free.metadata.annotations == {}


def test_a_person_releases_their_own_hold_and_somebody_elses_only_by_name() -> None:
    kept = held(node())
    assert may_release(kept, "alice") is None
    refusal = may_release(kept, "bob")
    assert refusal == Refusal(
        "w1 is held by alice (disk), not by bob. Release that hold with --holder alice, or every hold with --all."
    )
    assert may_release(kept, "bob", holder="alice") is None
    assert may_release(kept, "bob", everybody=True) is None
    assert may_release(node(), "bob") is None


# -- people's hands


def test_uncordoned_by_hand_each_hold_insists_once_and_then_yields() -> None:
    kept = held(node())
    assert isinstance(keep(kept, NOW), Nothing)
    lifted = by_hand(kept, False)
    again = applied(lifted, keep(lifted, NOW + 10))
    assert again.spec.unschedulable
    assert holds(again)[0].recordoned == iso(NOW + 10)
    lifted = by_hand(again, False)
    left = applied(lifted, keep(lifted, NOW + 20))
    assert not left.spec.unschedulable
    assert holds(left)[0].yielded == iso(NOW + 20)
    assert isinstance(keep(left, NOW + 30), Nothing)
    free = applied(left, release(left, "alice"))
    assert not free.spec.unschedulable


def test_a_cordon_put_after_we_yielded_is_the_peoples() -> None:
    node_ = held(node())
    for at in (10, 20):
        lifted = by_hand(node_, False)
        node_ = applied(lifted, keep(lifted, NOW + at))
    theirs = by_hand(node_, True)
    assert isinstance(keep(theirs, NOW + 30), Nothing)
    free = applied(theirs, release(theirs, "alice"))
    assert free.spec.unschedulable


def test_a_foreign_cordon_lifted_by_hand_is_gone_and_what_we_put_back_is_ours() -> None:
    lifted = by_hand(held(node(cordoned=True)), False)
    again = applied(lifted, keep(lifted, NOW))
    assert not holds(again)[0].cordoned_before
    free = applied(again, release(again, "alice"))
    assert not free.spec.unschedulable


@pytest.mark.parametrize("last", ["alice", "bob"])
def test_a_second_hold_on_a_held_node_uncordoned_by_hand_starts_from_schedulable(last: str) -> None:
    lifted = by_hand(held(node(cordoned=True)), False)
    both = held(lifted, "bob")
    first = {"alice": "bob", "bob": "alice"}[last]
    one = applied(both, release(both, first))
    assert one.spec.unschedulable
    free = applied(one, release(one, last))
    assert not free.spec.unschedulable


def test_a_new_hold_beside_one_that_yielded_answers_for_its_own_cordon() -> None:
    node_ = held(node())
    for at in (10, 20):
        lifted = by_hand(node_, False)
        node_ = applied(lifted, keep(lifted, NOW + at))
    both = held(node_, "maintenance")
    assert both.spec.unschedulable
    one = applied(both, release(both, "maintenance"))
    assert not one.spec.unschedulable
    assert [hold.holder for hold in holds(one)] == ["alice"]


def test_released_while_uncordoned_by_hand_stays_schedulable() -> None:
    lifted = by_hand(held(node()), False)
    change = release(lifted, "alice")
    assert isinstance(change, Patch)
    assert "spec" not in change.body


# -- the seed's controller


def test_a_seed_state_without_holds_is_ours_so_the_cordon_ends_with_it() -> None:
    seed = node(cordoned=True, annotations={STATE: "draining", SINCE: "2024-01-01T00:00:00Z"})
    found = held_by(seed, MAINTENANCE)
    assert isinstance(found, Hold)
    assert found.implied
    assert not found.cordoned_before
    taken = applied(seed, place(seed, MAINTENANCE, "host esx-1 enters maintenance", NOW))
    assert holds(taken) == (Hold(MAINTENANCE, "host esx-1 enters maintenance", "2024-01-01T00:00:00Z", False),)
    free = applied(taken, release(taken, MAINTENANCE, also={STATE: None, SINCE: None}))
    assert not free.spec.unschedulable
    assert free.metadata.annotations == {}


def test_a_persons_release_does_not_uncordon_under_the_seeds_maintenance() -> None:
    seed = node(cordoned=True, annotations={STATE: "powered-off"})
    both = held(seed)
    one = applied(both, release(both, "alice"))
    assert one.spec.unschedulable
    refused = release(one, MAINTENANCE)
    assert isinstance(refused, Refusal)
    assert "is in maintenance (state powered-off)" in refused.why
    assert isinstance(release(one, None), Refusal)


def test_an_implied_hold_is_not_insisted_on() -> None:
    assert isinstance(keep(node(annotations={STATE: "draining"}), NOW), Nothing)


def test_other_annotations_go_in_the_same_patch_and_only_when_they_change() -> None:
    change = place(node(), MAINTENANCE, "x", NOW, also={STATE: "draining"})
    assert isinstance(change, Patch)
    assert change.body["metadata"]["annotations"][STATE] == "draining"
    kept = applied(node(), change)
    assert isinstance(place(kept, MAINTENANCE, "x", NOW, also={STATE: "draining"}), Nothing)
    assert isinstance(place(kept, MAINTENANCE, "x", NOW, also={STATE: "powered-off"}), Patch)
    cleared = release(node(annotations={"old": "x"}), MAINTENANCE, also={"old": None})
    assert isinstance(cleared, Patch)
    assert isinstance(release(node(), MAINTENANCE, also={"old": None}), Nothing)


# -- what cannot be read


@pytest.mark.parametrize(
    "text",
    [
        "not json", "{}", "null", "[1]", '[{"why": "x", "cordonedBefore": true}]', '[{"holder": "a"}]',
        '[{"holder": "a", "cordonedBefore": "no"}]', '[{"holder": "", "cordonedBefore": false}]',
    ],
)  # fmt: skip
@pytest.mark.parametrize("cordoned", [False, True])
def test_on_an_unreadable_list_nothing_is_done_and_the_sentence_says_what_to_do(text: str, cordoned: bool) -> None:
    bad = node(cordoned, {HOLDS: text})
    read = holds_of(bad)
    assert isinstance(read, Unknown)
    assert "annotation hostler.dev/holds of node w1 cannot be read" in read.why
    for change in (place(bad, "a", "x", NOW), release(bad, "a"), release(bad, None), keep(bad, NOW)):
        assert isinstance(change, Refusal)
        assert "mend it, or remove it" in change.why


@pytest.mark.parametrize("text", ["", " ", "[]"])
def test_an_empty_list_is_no_hold(text: str) -> None:
    assert holds(node(annotations={HOLDS: text})) == ()


def test_keys_we_do_not_know_are_kept() -> None:
    newer = '[{"holder":"a","why":"x","since":"s","cordonedBefore":false,"ticket":{"id":7}}]'
    both = held(node(True, {HOLDS: newer}), "bob")
    assert '"ticket":{"id":7}' in both.metadata.annotations[HOLDS]


def test_a_long_reason_is_cut() -> None:
    kept = held(node(), why="x" * 10_000)
    assert len(holds(kept)[0].why) == 256
    assert isinstance(place(kept, "alice", "x" * 10_000, NOW), Nothing)


def test_a_node_is_lost_to_who_empties_it_once_it_is_gone_released_or_uncordoned() -> None:
    mine = held(node(), "alice")
    assert lost(mine, "w1", "alice") is None
    assert lost(None, "w1", "alice") == "There is no node w1 any more; nothing more is evicted."
    assert "no longer held by bob" in (lost(mine, "w1", "bob") or "")
    assert "uncordoned by hand" in (lost(by_hand(mine, cordoned=False), "w1", "alice") or "")
    assert "nothing more is evicted" in (lost(node(annotations={HOLDS: "not json"}), "w1", "alice") or "")
