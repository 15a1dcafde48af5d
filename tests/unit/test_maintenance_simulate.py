"""The course that `hostler plan` shows is the one that `decide` takes: both are run, step by step, and compared."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby, product
from typing import Any

import msgspec
import pytest

from hostler.drain import model as drain
from hostler.host.facts import Known, Unknown
from hostler.kube.records import BudgetSpec, BudgetStatus, Metadata, PodDisruptionBudget, Selector
from hostler.maintenance.decision import Evictions, PatchNode, PowerOff, PowerOn, Relocate, SetMark, ShutDown
from hostler.maintenance.model import POLICY
from hostler.maintenance.simulate import Forecast, HostLeaves, LiveMove, simulate
from hostler.vsphere.records import POWER_ON, Backing, Task, Vm, VmDevice
from tests.unit.maintenance_world import DYNAMIC, VC, Play, fixed

VGPU = VmDevice(Backing.VGPU, profile="grid_a100-40c")
DEVICES: dict[str, tuple[VmDevice, ...]] = {
    "none": (),
    "dynamic": (DYNAMIC,),
    "fixed": (fixed(),),
    "vgpu": (VGPU,),
    "other": (VmDevice(Backing.OTHER),),
}
POLICIES = ("", "migrate", "wait", "stay-off", "ignore", "no-such-policy")
DRS = ("off", "manual", "partiallyAutomated", "fullyAutomated")
LEAVES = ("the host leaves maintenance",)


class Automated(Play):
    """A world whose DRS moves a running VM without devices from a host that enters maintenance to a spare one."""

    live_moves = False

    def live(self) -> None:
        if self.live_moves and self.inventory.entering("host-esx1"):
            for vm in self.inventory.vms_on("host-esx1"):
                if vm.power == "poweredOn" and vm.devices in ((), DEVICES["vgpu"]):  # vGPU vMotion is on
                    self.put(Vm, vm.moref, host="host-esx2")
                    self.done.append((vm.name, LiveMove("host-esx2", "")))
        super().live()


def world(policy: str, device: str, drs: str, spare: bool) -> Automated:
    play = Automated()
    play.live_moves = drs == "fullyAutomated" and spare
    play.cluster(drs)
    play.host("esx1", vgpu_profiles=(VGPU.profile,))
    play.host("esx2", vgpu_profiles=(VGPU.profile,), in_maintenance=not spare)
    play.worker("a", "esx1", devices=DEVICES[device], pods=1, annotations={POLICY: policy} if policy else {})
    return play


def pods_of(play: Play) -> dict[str, drain.Facts]:
    return {name: play.drain_facts(name, play.now) for name in play.nodes}


def foretold(play: Play, host: str = "esx1") -> Forecast:
    return simulate(play.world(), play.policy, play.now, VC, f"host-{host}", pods_of(play))


def told(action: Any) -> tuple[str, ...]:
    """An action by what it is and where, without times."""
    match action:
        case PatchNode(event=event):
            return ("patch", event)
        case PowerOn(host=host, drs=drs):
            return ("power on", host, str(drs))
        case Relocate(host=host):
            return ("relocate", host)
        case LiveMove(host=host):
            return ("moved live", host)
        case SetMark(mark=mark):
            return ("mark", mark.what if mark is not None else "")
        case HostLeaves():
            return LEAVES
        case _:
            return (type(action).__name__,)


def lived(play: Play) -> list[tuple[str, ...]]:
    """What is really decided and done: until nothing moves any more, then the host leaves, then until the end."""
    play.enter("esx1")
    for last in (False, True):
        quiet, before = 0, 0
        while quiet < 5:
            found = play.tick()
            seen = len(once_each(action for _, action in play.done))
            quiet, before = (quiet + 1 if seen == before else 0), seen
            if quiet and found.wake is not None and found.wake > play.now:
                play.now = found.wake  # nobody does anything before that
        if not last:
            play.leave("esx1")
            play.done.append(("a", HostLeaves("host-esx1", "")))
    return once_each(action for _, action in play.done)


def once_each(actions: Iterable[Any]) -> list[tuple[str, ...]]:
    """Without repeated tries of the same thing."""
    return [what for what, _ in groupby(map(told, actions))]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy or "unset")
def test_a_plan_is_what_decide_does_step_by_step(policy: str) -> None:
    """Every policy with every kind of device under every mode of DRS, with a spare host and without."""
    for device, drs, spare in product(DEVICES, DRS, (True, False)):
        where = f"{policy or 'unset'}, {device}, DRS {drs}, {'a' if spare else 'no'} spare"
        play = world(policy, device, drs, spare)
        before = play.world()
        forecast = foretold(play)
        assert play.world() == before, f"{where}: a plan changes nothing"
        assert once_each(one.what for one in forecast.steps) == lived(play), where
        assert forecast.power["a"] == play.vm("a").power, where
        last = forecast.last.of("a")
        assert last is not None
        assert last.why == play.decide().decisions[0].why, where


def test_without_vgpu_vmotion_no_plan_moves_a_vgpu_live() -> None:
    play = world("", "vgpu", "fullyAutomated", spare=True)
    play.live_moves, play.policy = False, replace(play.policy, vgpu_vmotion=False)
    forecast = foretold(play)
    assert once_each(one.what for one in forecast.steps) == lived(play)
    assert not any(isinstance(one.what, LiveMove) for one in forecast.steps)


def test_a_plan_goes_on_after_a_machine_is_told() -> None:
    play = world("", "dynamic", "off", spare=True)
    play.policy = replace(play.policy, skip_remediation=True)
    about = play.nodes["a"].metadata
    told_of = {"cluster.x-k8s.io/machine": "m", "cluster.x-k8s.io/cluster-namespace": "n"}
    annotations = {**about.annotations, **told_of}
    play.nodes["a"] = msgspec.structs.replace(
        play.nodes["a"], metadata=msgspec.structs.replace(about, annotations=annotations)
    )
    steps = [type(one.what).__name__ for one in foretold(play).steps]
    assert steps.count("TellMachine") == 1
    assert {"Evictions", "ShutDown", "PowerOn"} <= set(steps)


def test_two_workers_are_emptied_one_after_the_other() -> None:
    """One drain at a time: the second begins when the first is off, and no device is given to both."""
    play = world("", "dynamic", "off", spare=True)
    play.worker("b", "esx1", pods=1)
    play.host("esx1", devices=2)
    forecast = foretold(play)
    stops = [one.subject for one in forecast.steps if isinstance(one.what, (ShutDown, PowerOff))]
    assert stops == ["a", "b"]
    moved = [(one.subject, one.what.host) for one in forecast.steps if isinstance(one.what, Relocate)]
    assert moved == [("a", "host-esx2")]
    back = [one.subject for one in forecast.steps if isinstance(one.what, PowerOn)]
    assert back == ["a", "b"], "b when its own host is back"


def test_a_budget_that_lets_no_pod_go_costs_the_drain_its_time() -> None:
    play = world("", "dynamic", "off", spare=True)
    budget = PodDisruptionBudget(
        metadata=Metadata(name="keep", namespace="web"), spec=BudgetSpec(selector=Selector()),
        status=BudgetStatus(disruptions_allowed=0, current_healthy=0, desired_healthy=1, expected_pods=1),
    )  # fmt: skip
    facts = {name: replace(one, budgets=Known((budget,), play.now)) for name, one in pods_of(play).items()}
    forecast = simulate(play.world(), play.policy, play.now, VC, "host-esx1", facts)
    refused = {one.pod for step in forecast.steps for one in step.refused}
    assert refused == {"web/a-0"}
    events = [one.what.event for one in forecast.steps if isinstance(one.what, PatchNode) and one.what.event]
    assert events == [
        "Draining", "DrainTimeout", "PoweredOff", "OutOfService", "OutOfServiceEnded", "Relocating", "PoweringOn",
        "Migrated", "BackInService",
    ]  # fmt: skip


def test_a_host_that_is_in_maintenance_already_is_followed_to_its_end() -> None:
    play = world("wait", "dynamic", "off", spare=True)
    play.enter("esx1")
    play.run(20)
    assert play.state("a") == "powered-off"
    steps = foretold(play).of("a")
    assert [told(one.what) for one in steps if not isinstance(one.what, SetMark)] == [
        LEAVES, ("patch", "PoweringOn"), ("power on", "host-esx1", "False"), ("patch", "BackInService"),
    ]  # fmt: skip


def test_what_is_not_known_ends_the_plan_there() -> None:
    """Pods that cannot be read: nobody is stopped, and the plan does not run for ever."""
    play = world("", "dynamic", "off", spare=True)
    unread = replace(pods_of(play)["a"], pods=Unknown("pods are still being read"))
    forecast = simulate(play.world(), play.policy, play.now, VC, "host-esx1", {"a": unread})
    assert not any(isinstance(one.what, (Evictions, ShutDown, PowerOff)) for one in forecast.steps)
    assert forecast.hangs_for == ("a",)


def test_what_vcenter_is_doing_already_comes_to_its_end() -> None:
    """A start is under way when the plan is asked for: it is not asked for again."""
    play = world("wait", "dynamic", "off", spare=True)
    play.enter("esx1")
    play.run(20)
    play.leave("esx1")
    play.put(Task, "task-on", kind=POWER_ON, state="running", entity="vm-a")
    steps = foretold(play, "esx2").of("a")
    assert not [one for one in steps if isinstance(one.what, PowerOn)]
    assert ("patch", "BackInService") in [told(one.what) for one in steps]
