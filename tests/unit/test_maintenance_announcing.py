"""Other controllers are told of a maintenance before the first eviction, and of its end with the release."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from hostler.maintenance.decision import SCALE_DOWN_DISABLED, Evictions, PatchNode, TellMachine
from hostler.maintenance.model import TOLD
from tests.unit.maintenance_world import Play, pair

OF_MACHINE = {"cluster.x-k8s.io/machine": "gpu-1", "cluster.x-k8s.io/cluster-namespace": "team"}


def notes_on(play: Play) -> dict[str, str]:
    return dict(play.nodes["a"].metadata.annotations)


def release(play: Play) -> PatchNode:
    found: list[PatchNode] = [
        one for one in play.did(PatchNode) if one.event in ("BackInService", "MaintenanceCancelled")
    ]
    return found[-1]


@pytest.mark.parametrize("end", ["back", "cancelled", "restarted"])
def test_the_autoscaler_is_told_before_the_first_eviction_and_with_the_release(end: str) -> None:
    play = pair(pods=5)
    play.enter("esx1")
    while not play.did(Evictions):
        play.tick(interrupt=end == "restarted")
        assert not play.did(Evictions) or notes_on(play).get(SCALE_DOWN_DISABLED) == "true"
    if end == "cancelled":
        play.cancel("esx1")
    play.run(60, interrupt=range(60) if end == "restarted" else ())
    assert play.in_service("a")
    assert SCALE_DOWN_DISABLED not in notes_on(play)
    assert TOLD not in notes_on(play)
    assert release(play).body["metadata"]["annotations"][SCALE_DOWN_DISABLED] is None


@pytest.mark.parametrize("before", ["true", "false"])
def test_what_the_owner_had_said_stays(before: str) -> None:
    play = pair(annotations={SCALE_DOWN_DISABLED: before})
    play.enter("esx1")
    play.run(40)
    assert play.in_service("a")
    assert notes_on(play) == {SCALE_DOWN_DISABLED: before}


def test_what_the_owner_says_meanwhile_stays() -> None:
    play = pair(pods=5)
    play.enter("esx1")
    while not play.did(Evictions):
        play.tick()
    node = play.nodes["a"]
    metadata = msgspec.structs.replace(node.metadata, annotations={**notes_on(play), SCALE_DOWN_DISABLED: "false"})
    play.nodes["a"] = msgspec.structs.replace(node, metadata=metadata)
    play.run(60)
    assert play.in_service("a")
    assert notes_on(play) == {SCALE_DOWN_DISABLED: "false"}


@pytest.mark.parametrize("allowed", [False, True])
def test_the_machine_is_told_where_a_setting_allows_it(allowed: bool) -> None:
    """Before the first eviction, again after a restart, and of the end before the node is released."""
    play = pair(annotations=OF_MACHINE, pods=5)
    play.policy = replace(play.policy, skip_remediation=allowed)
    play.enter("esx1")
    while not play.did(Evictions):
        play.tick()
    assert [one.machine for one in play.did(TellMachine)] == (["team/gpu-1"] if allowed else [])
    play.forget()
    play.run(60)
    assert play.in_service("a")
    assert notes_on(play) == OF_MACHINE
    assert release(play).frees == ("team/gpu-1" if allowed else "")
