"""Normal waits raise no Warning and no alert; a worker that is off though its own host is back does."""

from __future__ import annotations

from collections import Counter
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from hostler.kube.events import Recorder
from hostler.maintenance.model import POLICY
from hostler.maintenance.status import EventReporter, MaintenanceMetrics
from hostler.vsphere.records import Host, Vm
from tests.unit.maintenance_world import Play, pair


class Watched(Play):
    """A world with the operator's Events and metrics."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self.registry = CollectorRegistry()
        self.metrics = MaintenanceMetrics(self.registry)
        self.events: list[tuple[str, str]] = []
        self.teller = EventReporter(cast(Recorder, self), self.metrics)

    def event(
        self, kind: Any, regarding: Any, type: str, reason: str, action: str, note: str, refusing: str = ""
    ) -> None:
        self.events.append((type, reason))

    def tick(self, seconds: float = 1.0, interrupt: bool = False) -> Any:
        world = self.world()
        found = super().tick(seconds, interrupt)
        self.metrics.passed(world, found, Counter(), 0.0)
        self.teller.tell(world, self.teller.lasting(world, found, self.now))
        return found

    def measured(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(f"hostler_maintenance_{name}", labels) or 0.0

    @property
    def warnings(self) -> list[str]:
        return [reason for type, reason in self.events if type == "Warning"]


def parked(policy: str = "wait") -> Watched:
    """A worker that is off and waits for its own host, which is in maintenance."""
    play = Watched()
    play.cluster()
    play.host("esx1")
    play.host("esx2")
    play.worker("a", "esx1", annotations={POLICY: policy})
    play.enter("esx1")
    play.run(30)
    assert play.state("a") == "powered-off"
    return play


def test_waiting_for_its_own_host_is_no_warning() -> None:
    play = parked()
    assert ("Normal", "NoHost") in play.events
    assert play.warnings == []
    assert (play.measured("blocked", reason="no host"), play.measured("not_back")) == (1.0, 0.0)


@pytest.mark.parametrize("vm", ["connected", "disconnected"])
def test_a_host_that_reboots_in_maintenance_freezes_nobody(vm: str) -> None:
    play = parked()
    play.put(Host, "host-esx1", connection="notResponding")
    play.put(Vm, "vm-a", connection=vm)
    found = play.run(60)
    assert play.warnings == []
    assert not found.decisions[0].unknown
    assert "esx1 is in maintenance, and vCenter has no connection to it" in found.decisions[0].why
    play.put(Host, "host-esx1", connection="connected")
    play.put(Vm, "vm-a", connection="connected")
    play.leave("esx1")
    play.run(30)
    assert play.in_service("a")


def test_a_host_that_is_away_and_was_not_in_maintenance_is_still_a_warning() -> None:
    play = parked()
    play.leave("esx1")
    play.put(Host, "host-esx1", connection="notResponding")
    play.run(30)
    assert "Frozen" in play.warnings


def test_off_though_its_own_host_is_in_service_is_counted() -> None:
    play = parked()
    play.failing["a"] = 1000
    play.leave("esx1")
    play.run(30)
    assert play.measured("not_back") == 1.0
    play.failing.clear()
    play.run(30)
    assert play.in_service("a")
    assert play.measured("not_back") == 0.0


def test_a_worker_that_is_to_stay_off_is_not_missed() -> None:
    play = parked("stay-off")
    play.leave("esx1")
    play.run(30)
    assert play.vm("a").power == "poweredOff"
    assert (play.measured("not_back"), play.warnings) == (0.0, [])


def test_that_our_rights_are_looked_at_is_counted_as_such() -> None:
    play = Watched(**{name: getattr(pair(), name) for name in ("inventory", "nodes", "pods")})
    play.stuck.add("a")
    play.enter("esx1")
    play.run(5)
    play.rights["vm-a"] = None
    play.tick()
    assert play.measured("blocked", reason="looking") == 1.0
