"""The last looks before a VM is stopped: in which order, and what each of them may still prevent."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from hostler.host.facts import Known
from hostler.maintenance.hands import Changed, Hands
from hostler.maintenance.memory import Memory
from hostler.maintenance.model import ShutDown
from hostler.maintenance.rights import needs_of
from hostler.vsphere.inventory import Inventory
from hostler.vsphere.records import Host
from hostler.vsphere.vcenter import VCenter
from tests.unit.maintenance_world import NOW, Play, pair


@dataclass
class Asked:
    """A vCenter that answers from the small world and keeps what it was asked; `then` happens with each answer."""

    play: Play
    calls: list[str] = field(default_factory=list)
    then: Any = lambda call: None
    answers: Any = lambda objects: {one: [] for one in objects}
    name: str = "vc"

    @property
    def inventory(self) -> Inventory:
        return self.play.inventory

    async def lacking_privileges(self, objects: Any, wanted: Any) -> Any:
        return self._said("rights", Known(self.answers(objects), NOW))

    async def look(self, vms: Any) -> Any:
        return self._said("look", Known([self.play.inventory.vm(one) for one in vms], NOW))

    def _said(self, call: str, answer: Any) -> Any:
        self.calls.append(call)
        self.then(call)
        return answer


def last_look(vcenter: Asked) -> str:
    """Why the stop is not asked for; "" where it is."""
    nothing = cast(Any, None)
    hands = Hands(
        nothing, nothing, nothing, {}, nothing, nothing, Memory(), nothing, lambda: None, lambda: NOW, nothing, 0.0,
        set(),
    )  # fmt: skip
    vm = vcenter.play.vm("a")
    stop = ShutDown(vm.moref, vm.host, "", "it is stopped", needs_of(vm, moves=False))
    try:
        asyncio.run(hands._look(cast(VCenter, vcenter), stop))
    except Changed as changed:
        return str(changed)
    return ""


def entering() -> Asked:
    play = pair()
    play.enter("esx1")
    return Asked(play)


def test_the_vm_is_looked_at_after_our_rights() -> None:
    vcenter = entering()
    assert last_look(vcenter) == ""
    assert vcenter.calls == ["rights", "look"]


@pytest.mark.parametrize("call", ["rights", "look"])
def test_a_cancel_during_any_of_the_looks_keeps_it_running(call: str) -> None:
    vcenter = entering()
    vcenter.then = lambda now: vcenter.play.cancel("esx1") if now == call else None
    assert last_look(vcenter) == "esx1 does not go into maintenance any more"


def test_a_vm_that_went_off_while_our_rights_were_looked_at() -> None:
    vcenter = entering()
    vcenter.then = lambda now: vcenter.play.off("a") if now == "rights" else None
    assert last_look(vcenter) == "it is poweredOff"


def test_a_host_that_is_away_has_not_left_maintenance() -> None:
    vcenter = entering()
    vcenter.then = lambda _: vcenter.play.put(Host, "host-esx1", connection="notResponding")
    assert last_look(vcenter) == ("how esx1 stands is not known: vCenter has no connection to it (notResponding)")
