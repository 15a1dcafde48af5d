"""The last looks before a VM is stopped, and what our user may do: in which order, and what each may still prevent."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyVmomi import vim

from hostler.host.facts import Known
from hostler.kube.events import Recorder
from hostler.maintenance.decision import ShutDown
from hostler.maintenance.executor import ActionExecutor, Changed
from hostler.maintenance.memory import Memory
from hostler.maintenance.model import HOST, STATE, Lacks, Policy, Subject, Unanswered
from hostler.maintenance.observe import Privileges, look_at
from hostler.maintenance.placement import ON_VM, POOL, STOP, needs_of
from hostler.vsphere.bulk import NEEDED, lacking_on
from hostler.vsphere.inventory import Inventory
from hostler.vsphere.outcomes import Kind, Refused
from hostler.vsphere.records import POWER_ON, Cluster, Host, Task
from hostler.vsphere.vcenter import VCenter
from tests.unit.maintenance_world import NOW, Play, pair
from tests.unit.maintenance_yard import UUIDS, Yard

VIM: Any = vim  # its types say nothing


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


def executor_of(vcenter: Asked) -> ActionExecutor:
    """One that asks this vCenter and writes nowhere."""
    yard = Yard(vcenter.name)
    yard.vcenters[vcenter.name] = cast(VCenter, vcenter)
    return yard.executor()


def last_look(vcenter: Asked) -> str:
    """Why the stop is not asked for; "" where it is."""
    vm = vcenter.play.vm("a")
    stop = ShutDown(vm.moref, vm.host, "", "it is stopped", needs_of(vm))
    try:
        subject = Subject("a", None, vcenter.name, Known(vm, NOW))
        asyncio.run(executor_of(vcenter)._look(subject, cast(VCenter, vcenter), stop))
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
    assert last_look(vcenter) == "esx1 no longer goes into maintenance"


def test_a_vm_that_went_off_while_our_rights_were_looked_at() -> None:
    vcenter = entering()
    vcenter.then = lambda now: vcenter.play.off("a") if now == "rights" else None
    assert last_look(vcenter) == "it is poweredOff"


def test_a_host_that_is_away_has_not_left_maintenance() -> None:
    vcenter = entering()
    vcenter.then = lambda _: vcenter.play.put(Host, "host-esx1", connection="notResponding")
    assert last_look(vcenter) == (
        "cannot tell whether esx1 is in maintenance: vCenter has no connection to it (notResponding)"
    )


@pytest.mark.parametrize("what", ["", "runs", "starts"])
def test_nothing_is_called_out_of_service_that_is_not_plainly_off(what: str) -> None:
    vcenter = Asked(pair())
    if what != "runs":
        vcenter.play.off("a")
    if what == "starts":
        vcenter.play.put(Task, "task-on", kind=POWER_ON, state="running", entity="vm-a")
    said = ""
    try:
        asyncio.run(executor_of(vcenter)._must_be_off(cast(VCenter, vcenter), "vm-a"))
    except Changed as changed:
        said = str(changed)
    assert said == {"": "", "runs": "it is poweredOn", "starts": "it is being powered on"}[what]


@pytest.mark.parametrize("starting", [False, True])
def test_a_guest_whose_tools_are_starting_is_asked_again(starting: bool) -> None:
    """Refused for want of Tools: at once the end of asking where they do not run, and a try where they are starting."""
    play = pair()
    hands, subject = executor_of(Asked(play)), play.world().subjects[0]
    ask = ShutDown("vm-a", "host-esx1", "since", "it is stopped")
    hands._shut_down(subject, ask, Refused(Kind.NO_TOOLS, "no tools"), starting)
    known = hands.observer.memory.of("a")
    assert (known.power.number, bool(known.shutdown_refused)) == ((1, False) if starting else (0, True))


# -- what our user may do


def looked(vcenter: Asked, *objects: str) -> Memory:
    memory = Memory()
    asyncio.run(look_at(cast(VCenter, vcenter), memory, objects, NOW))
    return memory


def test_what_vcenter_leaves_out_of_its_answer_is_not_known() -> None:
    vcenter = entering()
    vcenter.answers = lambda objects: {}
    assert looked(vcenter, "vm-a").rights == {("vc", "vm-a"): Unanswered("vCenter did not answer for it", NOW)}
    assert last_look(vcenter) == ("cannot tell what our vCenter user may do with VM a: vCenter did not answer for it")


def test_without_an_answer_for_a_minute_the_last_look_lets_it_go_on() -> None:
    """What was lacking when vCenter last answered is still lacking."""
    vcenter = entering()
    vcenter.answers = lambda objects: {}
    hands = executor_of(vcenter)
    key = ("vc", "vm-a")
    cases: list[tuple[Lacks, bool]] = [
        (Unanswered("no answer", NOW - 59), False),
        (Unanswered("no answer", NOW - 60), True),
        (Known((STOP[1],), NOW - 600), False),
    ]
    for before, goes_on in cases:
        hands.observer.memory.rights[key] = before
        said = asyncio.run(hands._not_allowed(cast(VCenter, vcenter), needs_of(vcenter.play.vm("a"))))
        assert (said == "") is goes_on, (before, said)


def test_a_right_counts_only_on_what_it_is_needed_on() -> None:
    vcenter = entering()
    vcenter.play.put(Cluster, "domain-2", name="spare", pool="pool-2")
    vcenter.answers = lambda objects: {one: list(NEEDED) for one in objects}
    found = looked(vcenter, "vm-a", "pool-2").rights
    assert found[("vc", "pool-2")] == Known((POOL,), NOW)
    assert found[("vc", "vm-a")] == Known(ON_VM, NOW)


class Answers:
    """The outermost edge of a session with vCenter: it answers for some of the entities."""

    def InvokeMethod(self, mo: Any, info: Any, args: Any) -> Any:
        if info.wsdlName == "FetchUserPrivilegeOnEntities":
            return []
        return [self._said(one) for one in args[0] if one._moId != "vm-left-out"]

    def _said(self, entity: Any) -> Any:
        right = VIM.AuthorizationManager.PrivilegeAvailability(privId=STOP[0], isGranted=entity._moId != "vm-b")
        return VIM.AuthorizationManager.EntityPrivilege(entity=entity, privAvailability=[right])


def test_who_lacks_nothing_is_told_from_who_was_left_out() -> None:
    calls = Answers()
    content = SimpleNamespace(
        authorizationManager=SimpleNamespace(_moId="auth"), rootFolder=VIM.Folder("group-d1", calls),
        sessionManager=SimpleNamespace(currentSession=SimpleNamespace(key="k", userName="us")),
    )  # fmt: skip
    session = cast(Any, SimpleNamespace(content=content, calls=calls))
    found = lacking_on(session, ["vm-a", "vm-b", "vm-left-out"], [], NEEDED)
    assert {name: [one.id for one in lacks] for name, lacks in found.items()} == {"vm-a": [], "vm-b": [STOP[0]]}


def test_a_pool_that_a_vm_which_is_off_waits_for_is_looked_at_soon() -> None:
    yard = Yard()
    yard.host()
    yard.vm("a", UUIDS[0], power="poweredOff")
    yard.node("a", UUIDS[0], annotations={STATE: "powered-off", HOST: "h1"})
    yard.put(Cluster, "domain-2", name="spare", pool="pool-2")
    policy, nobody = Policy(clusters=("spare",)), cast(Recorder, None)
    privileges = Privileges(yard.observer, policy, nobody, lambda _: None, lambda _: None)
    vcenter, world = yard.vcenters["vc"], yard.observer.world(NOW)
    yard.memory.rights[("vc", "vm-a-0")] = Known((), NOW)
    yard.memory.rights[("vc", "pool-2")] = Known((), NOW)
    assert privileges._at_hand(vcenter, world) == frozenset()
    yard.memory.rights[("vc", "pool-2")] = Known((POOL,), NOW)
    assert privileges._at_hand(vcenter, world) == {"pool-2"}
