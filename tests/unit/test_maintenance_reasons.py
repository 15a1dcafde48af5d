"""Reasons are data: each has its text and its metric label, and no decision, count or Event depends on the text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from hostler.kube.events import Recorder
from hostler.maintenance import decision
from hostler.maintenance.decision import Blocked, BlockedBy, Decision, Pass, PatchNode, Phase
from hostler.maintenance.model import POLICY
from hostler.maintenance.placement import STOP
from hostler.maintenance.status import EventReporter, MaintenanceMetrics, conditions_of
from tests.unit.maintenance_world import Play, pair

BARE = {"slot", "ceiling", "policy", "drs", "holds", "uncordoned", "looking"}  # the decision's sentence says the rest
GIVEN = {
    BlockedBy.REFUSED: "a setting forbids evicting pods",
    BlockedBy.PRIVILEGES: "our vCenter user lacks the details",
}


@pytest.mark.parametrize("by", BlockedBy)
def test_each_reason_has_its_text_and_its_metric_label(by: BlockedBy) -> None:
    blocked = Blocked(by, "" if by.value in BARE else "the details")
    expected = "" if by.value in BARE else GIVEN.get(by, "the details")
    assert (blocked.sentence, blocked.text) == (expected, expected or by.value)
    registry = CollectorRegistry()
    one = Decision("a", None, Phase.WAITING, "why", blocked=blocked)
    MaintenanceMetrics(registry).passed(pair().world(), Pass((one,)), Counter(), 0.0)
    counted = {each: registry.get_sample_value("hostler_maintenance_blocked", {"reason": each}) for each in BlockedBy}
    assert counted == {each: float(each is by) for each in BlockedBy}


def test_every_phase_has_its_own_text() -> None:
    assert len({one.value for one in Phase}) == len(Phase)
    assert all(one.value for one in Phase)


# -- other words, the same behaviour


class Followed(Play):
    """A world with the operator's Events, metrics and conditions; it keeps all that is not text."""

    def watch(self) -> None:
        self.registry = CollectorRegistry()
        self.metrics = MaintenanceMetrics(self.registry)
        self.teller = EventReporter(cast(Recorder, self), self.metrics)
        self.kept: list[Any] = []

    def wish(self, name: str, policy: str) -> None:
        self.patch(name, {"metadata": {"resourceVersion": self.nodes[name].metadata.resource_version,
                                       "annotations": {POLICY: policy}}})  # fmt: skip

    def event(
        self, kind: Any, regarding: Any, type: str, reason: str, action: str, note: str, refusing: str = ""
    ) -> None:
        self.kept.append((type, reason))

    def tick(self, seconds: float = 1.0, interrupt: bool = False) -> Pass:
        world, before = self.world(), len(self.done)
        found = super().tick(seconds, interrupt)
        self.metrics.passed(world, found, Counter(), 0.0)
        self.teller.tell(world, self.teller.lasting(world, found, self.now))
        for sample in next(one for one in self.registry.collect() if one.name == "hostler_maintenance_blocked").samples:
            if sample.value:
                self.kept.append((sample.labels["reason"], sample.value))
        for name, node in self.nodes.items():
            shown = conditions_of(node, found.of(name))
            self.kept.append([(one.type, one.status, one.reason) for one in shown])
        for name, action in self.done[before:]:
            notes = action.body["metadata"].get("annotations", {}) if isinstance(action, PatchNode) else {}
            self.kept.append((name, type(action).__name__, getattr(action, "event", ""), sorted(notes)))
        return found


def lack_a_right_while_draining(play: Followed) -> None:
    play.stuck.add("a")
    play.run(5)
    play.lacks("a", *STOP)
    play.run(20)
    play.rights.clear()
    play.run(20)


def lose_vcenter_while_draining(play: Followed) -> None:
    play.stuck.add("a")
    play.run(5)
    play.unknown_site = "vCenter is away"
    play.run(25)
    play.unknown_site = ""
    play.run(20)


def wait_for_the_own_host(play: Followed) -> None:
    play.wish("a", "wait")
    play.run(30)
    play.leave("esx1")
    play.run(20)


def fail_to_start(play: Followed) -> None:
    play.failing["a"] = 2
    play.run(60)


def misspell_the_policy(play: Followed) -> None:
    play.wish("a", "odd")
    play.run(5)


STORIES = (
    lack_a_right_while_draining, lose_vcenter_while_draining, wait_for_the_own_host, fail_to_start,
    misspell_the_policy,
)  # fmt: skip


def followed(story: Callable[[Followed], None]) -> list[Any]:
    play = Followed(policy=replace(pair().policy, max_drains=1))
    play.watch()
    play.cluster()
    play.host("esx1", devices=2)
    play.host("esx2", devices=2)
    play.worker("a", "esx1")
    play.worker("b", "esx1")
    play.enter("esx1")
    story(play)
    return play.kept


@pytest.mark.parametrize("story", STORIES)
def test_other_words_change_nothing_but_words(
    story: Callable[[Followed], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = followed(story)
    assert {one[0] for one in before if one and one[0] in set(BlockedBy)}, "something blocked it"
    texts = {by: f"reworded: {decision._SENTENCES.get(by, '{}')}" for by in BlockedBy}
    monkeypatch.setattr(decision, "_SENTENCES", texts)
    for phase in Phase:
        monkeypatch.setattr(phase, "_value_", f"reworded {phase.name}")
    assert followed(story) == before
