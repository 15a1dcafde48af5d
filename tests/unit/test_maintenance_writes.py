"""What a maintenance writes to the API server: once per change, and nothing for looking again."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import msgspec
import pytest

from hostler.host.ceiling import Limit, room
from hostler.kube.records import Condition
from hostler.maintenance.decide import decide
from hostler.maintenance.decision import Blocked, BlockedBy, Decision, Evictions, PatchNode
from hostler.maintenance.model import DRAIN_HELD
from hostler.maintenance.placement import STOP
from hostler.maintenance.status import patch_conditions
from tests.unit.maintenance_world import Play


class Counting(Play):
    """As `ActionExecutor` writes: the patch, its Event, the conditions that follow, one POST for each eviction."""

    writes: Counter[tuple[str, str]]

    def look(self, seconds: int = 1) -> Counter[tuple[str, str]]:
        """So many passes, and what they wrote, by node and kind."""
        self.writes = Counter()
        for _ in range(seconds):
            for one in self.tick().decisions:
                self._show(one)
        return self.writes

    def cordon(self, name: str, on: bool) -> None:
        node = self.nodes[name]
        self.nodes[name] = msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, unschedulable=on))

    def act(self, one: Decision) -> None:
        if isinstance(one.action, PatchNode):
            self.writes[one.subject, "patch"] += 1
            self.writes[one.subject, "event"] += bool(one.action.event)
        if isinstance(one.action, Evictions) and one.subject not in self.stuck:
            self.writes[one.subject, "evict"] += 1
        super().act(one)

    def _show(self, one: Decision) -> None:
        node = self.nodes[one.subject]
        patch = patch_conditions(node, one, self.now)
        if patch is None:
            return
        self.writes[one.subject, "status"] += 1
        told = [msgspec.convert(entry, Condition) for entry in patch["status"]["conditions"]]
        others = [was for was in node.status.conditions if was.type not in {new.type for new in told}]
        status = msgspec.structs.replace(node.status, conditions=(*others, *told))
        self.nodes[one.subject] = msgspec.structs.replace(node, status=status)


def yard(names: str, pods: int, max_drains: int) -> Counting:
    """All on one host, with as many devices elsewhere."""
    play = Counting()
    play.policy = replace(play.policy, max_drains=max_drains, drain=replace(play.policy.drain, timeout=600.0))
    play.cluster()
    for host in ("esx1", "esx2"):
        play.host(host, len(names))
    for name in names:
        play.worker(name, "esx1", pods=pods)
    play.enter("esx1")
    return play


def of(writes: Counter[tuple[str, str]], name: str) -> dict[str, int]:
    return {what: number for (who, what), number in writes.items() if who == name and number}


def test_waiting_for_its_turn_writes_nothing() -> None:
    play = yard("ab", pods=9, max_drains=1)
    play.stuck.add("a")
    assert of(play.look(50), "a") == {"patch": 1, "event": 1, "status": 1}
    assert of(play.writes, "b") == {}


def test_waiting_under_the_ceiling_writes_nothing() -> None:
    play = yard("ab", pods=9, max_drains=2)
    play.stuck.add("a")
    play.look(3)
    play.worker("c", "esx1")
    for _ in range(5):
        world = play.world()
        full = replace(world, room=room(play.nodes.values(), Limit(2, percent=False, at_least=0)))
        one = decide(full, play.policy, play.now).of("c")
        assert one is not None
        assert (one.blocked, one.action, patch_conditions(play.nodes["c"], one, play.now)) == (
            Blocked(BlockedBy.CEILING),
            None,
            None,
        )


@pytest.mark.parametrize("how", ["slot", "right", "vCenter", "uncordoned"])
def test_a_standstill_is_written_when_it_begins_and_when_it_ends(how: str) -> None:
    """However often it is looked at meanwhile, and also by an operator that starts anew in it."""
    play = yard("ab", pods=99, max_drains=2)
    play.look(15)
    match how:
        case "slot":
            play.policy = replace(play.policy, max_drains=1)
        case "right":
            play.lacks("b", STOP[1])
        case "vCenter":
            play.unknown_site = "vCenter is away"
        case "uncordoned":
            play.cordon("b", False)
    begins = of(play.look(30), "b")
    assert begins.pop("status", 0) <= 1, "why it stands, on the node, where somebody can do something about it"
    assert begins == {"patch": 1}
    held = play.nodes["b"].metadata.annotations[DRAIN_HELD]
    play.forget()
    assert of(play.look(30), "b") == {}
    assert play.nodes["b"].metadata.annotations[DRAIN_HELD] == held
    play.policy, play.unknown_site = replace(play.policy, max_drains=2), ""
    play.rights.clear()
    play.cordon("b", True)
    ends = of(play.look(30), "b")
    assert ends.pop("evict") > 20
    assert ends.pop("status", 0) <= 1
    assert ends == {"patch": 1, "event": 1}


def test_writes_per_evicted_pod() -> None:
    """Some wait for a slot: until its node is empty each pod costs its eviction, and a tenth of what the node says."""
    names, pods = "abcdefghij", 30
    play = yard(names, pods, max_drains=3)
    play.stubborn.update(names)
    written: Counter[tuple[str, str]] = Counter()
    for _ in range(1000):
        busy = {name for name in names if play.pods[name]}
        if not busy:
            break
        written.update({key: number for key, number in play.look().items() if key[0] in busy})
    assert sum(number for (_, what), number in written.items() if what == "evict") == len(names) * pods
    assert written.total() <= 1.1 * len(names) * pods, written
