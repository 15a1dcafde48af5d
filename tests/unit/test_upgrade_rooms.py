"""A new version goes on from what an older one wrote on Agents, remediations and their hosts, and of whom it let in.

As in test_upgrade, tests/unit/upgrade/ is only ever added to; `python -m tests.unit.test_upgrade_rooms` writes that of
today's version, once, before its release.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hostler import __version__
from hostler.apis.assisted import Agent
from hostler.host.facts import Fact, Known, value_or
from hostler.join.model import Use
from hostler.join.observe import Memory, line_of, uses_in
from hostler.metal.remediation.model import WAITING
from hostler.reclaim.artifacts import Artifacts
from hostler.reclaim.decide import decide
from hostler.reclaim.decision import Deploy, Withdraw
from hostler.reclaim.facts import FINALIZER, host_of
from hostler.reclaim.hub.instructions import DOWNLOAD, Reply, note_registration, note_reply
from hostler.reclaim.model import ControlPlane, Policy, Spoke, SpokeNode, SpokeObject, State, step_id
from hostler.reclaim.status import notes_patch, status_patch
from tests.unit.test_metal_remediation import OFF, Rack, merged

FOLDER = Path(__file__).parent / "upgrade"
NOW = 1_700_000_000.0
Json = dict[str, Any]


def kept(what: str) -> list[Any]:
    """Every step that any version wrote, with its version as the test's name."""
    return [
        pytest.param(step, id=f"{path.stem}-{number}")
        for path in sorted(FOLDER.glob(f"{what}-*.json"))
        for number, step in enumerate(json.loads(path.read_text()))
    ]


def words(body: Any) -> Any:
    """The names of all fields, without what is in them."""
    if isinstance(body, dict):
        return {key: words(value) for key, value in sorted(body.items())}
    return [words(one) for one in body] if isinstance(body, list) else None


# -- reclaim


class Return:
    """One host on its way back to discovery: decisions take effect on its Agent, and its own agent answers."""

    POLICY = Policy(hub_url="https://hub.example", image="agent:1")
    ADDRESS = "192.0.2.1"  # in the Agent's inventory, which every version reads
    NODE = SpokeNode("worker-1", "uid-1", "", "boot-1", False, "", True, addresses=frozenset({ADDRESS}))

    def __init__(self, body: Json | None = None, after: float = 0.0) -> None:
        unbound: Json = {
            "metadata": {"name": "agent-1", "namespace": "ns", "uid": "u-1"},
            "spec": {"approved": True, "hostname": "worker-1"},
            "status": {
                "debugInfo": {"state": "installed"},
                "deprovision_info": {"cluster_name": "old", "cluster_namespace": "ns", "node_name": "worker-1"},
            },
        }
        self.body = copy.deepcopy(body or unbound)
        self.now = NOW + after
        self.deployed = FINALIZER in self.body["metadata"].get("finalizers", ())

    @property
    def agent(self) -> Agent:
        return msgspec.convert(self.body, Agent)

    @property
    def state(self) -> str:
        return self.agent.status.debug_info.state

    def look(self) -> None:
        there = frozenset({SpokeObject("daemonsets", "worker-1-reclaim")} if self.deployed else ())
        plane = Known(ControlPlane(3, 2), self.now)
        yes = Known(True, self.now)
        spoke = Spoke(yes, Known(self.NODE, self.now), plane, Known(there, self.now), reach=yes)
        artifacts: Fact[Artifacts | None] = Known(Artifacts("https://a/k", "https://a/i", "https://a/r"), self.now)
        agent = self.agent
        host = replace(host_of(agent), spoke=spoke, artifacts=artifacts, addresses=frozenset({self.ADDRESS}))
        decision = decide(host, self.POLICY, self.now)
        for patch in (notes_patch(agent, decision.actions), status_patch(agent, decision.actions, self.now)):
            self.body = merged(self.body, patch or {})
        for action in decision.actions:
            self.deployed = isinstance(action, Deploy) or (self.deployed and not isinstance(action, Withdraw))
        self.now += 5

    def hear(self) -> None:
        """What the hub writes down: the download is done, the discovery system is up."""
        agent, notes = self.agent, dict[str, str]()
        if self.state == State.RECLAIMING and self.deployed:
            step = step_id("u-1", self.state, agent.status.progress.stage_start_time)
            notes = note_reply(agent, Reply(DOWNLOAD, step))
        elif self.state == State.REBOOTING:
            notes = note_registration(agent)
        self.body = merged(self.body, {"metadata": {"annotations": notes}} if notes else {})

    def run(self, looks: int = 24) -> list[Json]:
        """What was on the Agent after every write."""
        found: list[Json] = []
        for number in range(looks):
            self.hear() if number % 2 else self.look()
            if not found or found[-1]["agent"] != self.body:
                found.append({"agent": copy.deepcopy(self.body), "after": self.now - NOW})
        return found


@pytest.mark.parametrize("step", kept("reclaim"))
def test_a_host_goes_on_its_way_from_wherever_an_older_version_left_it(step: Json) -> None:
    way = Return(step["agent"], step["after"])
    way.run()
    assert way.state == "discovering-unbound"
    assert not way.deployed, "nothing is left in the old cluster"
    assert not way.body["metadata"].get("finalizers")
    assert "deprovision_info" not in way.body["status"]


# -- metal: remediation


PARTS = ("remediation", "host", "node", "machine")


def remediated() -> list[Json]:
    """What was on the objects after every write of a remediation that ends well."""
    rack, found = Rack(), list[Json]()
    for _ in range(40):
        rack.step()
        now = {part: copy.deepcopy(getattr(rack, part)) for part in PARTS}
        if not found or any(found[-1][part] != now[part] for part in PARTS):
            found.append({**now, "pods": list(rack.pods), "after": rack.now - Rack().now})
        rack.pass_time()
        if rack.phase == WAITING and not rack.remediation["metadata"].get("finalizers"):
            break
    return found


@pytest.mark.parametrize("step", kept("remediation"))
def test_a_remediation_goes_on_from_wherever_an_older_version_left_it(step: Json) -> None:
    rack = Rack()
    for part in PARTS:
        setattr(rack, part, copy.deepcopy(step[part]))
    rack.pods, rack.now = tuple(step["pods"]), rack.now + step["after"]
    rack.run()
    assert rack.remediation["metadata"].get("deletionTimestamp"), "the health check is content"
    assert not rack.tainted
    assert OFF not in rack.host["metadata"]["annotations"]
    assert not rack.remediation["metadata"].get("finalizers")


# -- join

USES = {"worker-1": Use("csr-1", "uid-1", NOW), "w.example.com": Use("csr-2", "uid-2", NOW + 0.5)}


@pytest.mark.parametrize("lines", kept("join"))
def test_whom_an_older_version_let_in_is_not_let_in_again(lines: dict[str, str]) -> None:
    assert value_or(uses_in(Memory(data=lines), NOW), {}) == USES


# -- today


TODAY: dict[str, Callable[[], list[Any]]] = {
    "reclaim": lambda: Return().run(),
    "remediation": remediated,
    "join": lambda: [{name: line_of(use) for name, use in USES.items()}],
}


@pytest.mark.parametrize("what", TODAY)
def test_today_writes_the_fields_that_are_kept_of_this_version(what: str) -> None:
    """Another name of a field is what an older version could not read after a downgrade."""
    kept = words(json.loads((FOLDER / f"{what}-{__version__}.json").read_text()))
    assert kept == words(TODAY[what]()), f"until {__version__} is released: python -m tests.unit.test_upgrade_rooms"


if __name__ == "__main__":
    for what, record in TODAY.items():
        (FOLDER / f"{what}-{__version__}.json").write_text(json.dumps(record(), indent=1) + "\n")
