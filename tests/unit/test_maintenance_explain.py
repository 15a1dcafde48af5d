"""What people are told: plans, the status, explanations, and each piece of news once. Real caches, nothing running."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from hostler.cli.listing import View, show_list
from hostler.cli.maintenance import ROWS, listed
from hostler.explain.registry import Explanation
from hostler.host.facts import Known
from hostler.kube.events import Recorder
from hostler.kube.watch import Watch
from hostler.maintenance.decision import Blocked, BlockedBy, Decision, Hanging, Pass, Phase, Rejected
from hostler.maintenance.explain import MaintenanceExplainers
from hostler.maintenance.model import POLICY, Busy, State, World
from hostler.maintenance.placement import Placement
from hostler.maintenance.status import LASTS_SECONDS, EventReporter, MaintenanceMetrics, MaintenanceStatus
from hostler.vsphere.outcomes import AlreadySo, Kind, Refused, Started, said
from hostler.vsphere.records import Backing, Cluster, Pci, VmDevice
from hostler.vsphere.session import Link, Standing
from tests.unit.maintenance_world import Play, pair
from tests.unit.maintenance_yard import NOW, UUIDS, Yard

GPU = ("10de", "20b5")
DYNAMIC = VmDevice(Backing.DYNAMIC, allowed=(":".join(GPU),))
VGPU = VmDevice(Backing.VGPU, profile="grid_a100-40c")


class Notes:
    """An Events recorder that keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []

    def event(
        self, kind: Any, regarding: Any, type: str, reason: str, action: str, note: str, refusing: str = ""
    ) -> None:
        self.events.append((reason, note))


def explainers(yard: Yard, blocked: str | None = None) -> MaintenanceExplainers:
    return MaintenanceExplainers(yard.controller(), lambda: blocked, lambda: blocked)


def yard_of(gpus: dict[str, int], workers: dict[str, str], device: VmDevice = DYNAMIC) -> Yard:
    yard = Yard()
    for host, number in gpus.items():
        pci = tuple(Pci(f"0000:{n:02x}:00.0", *GPU) for n in range(number))
        yard.host(host, pci=pci, passthrough=tuple(one.id for one in pci), power="poweredOn", standby="none",
                  vgpu_profiles=(VGPU.profile,) if number else ())  # fmt: skip
    for number, (name, host) in enumerate(workers.items()):
        yard.vm(name, UUIDS[number], host=host, devices=(device,), tools="guestToolsRunning")
        yard.node(name, UUIDS[number])
    for number, name in enumerate(workers):
        yard.memory.rights[("vc", f"vm-{name}-{number}")] = Known((), NOW)
    for watch in (yard.sources.pods, yard.sources.budgets, yard.sources.attachments, yard.sources.daemon_sets):
        read_once(watch)
    return yard


def read_once(watch: Watch[Any]) -> None:
    """Its cache is complete and fresh, with nothing in it."""
    watch.store.begin_sync()
    watch.store.end_sync(0)
    watch.heard = watch._clock()


def steps(found: Explanation | None, verb: str) -> dict[str, str]:
    assert found is not None
    return {one.target: one.why for one in found.actions if one.verb == verb}


# -- the plan


def test_two_vms_that_want_one_device_are_planned_as_it_would_go() -> None:
    """One free GPU elsewhere: one moves there, the other waits; the device is not promised to both."""
    yard = yard_of({"h1": 2, "h2": 1, "h3": 0}, {"a": "h1", "b": "h1"})
    found = explainers(yard).plan("h1")
    assert steps(found, "move") == {"VM a": "to h2 (compute only)"}
    waits = steps(found, "wait for")
    assert list(waits) == ["h1"]
    assert "h2: no device 10de:20b5 is free: 1 there, taken by a" in waits["h1"]
    assert "h3: it has no device 10de:20b5" in waits["h1"]
    assert steps(found, "power on") == {"VM a": "on h2", "VM b": "on h1"}
    assert found is not None
    assert ("b to h2", "cannot take it") in [(one.name, one.outcome) for one in found.rules]


def test_two_vms_are_planned_to_two_devices_of_one_host() -> None:
    yard = yard_of({"h1": 2, "h2": 2}, {"a": "h1", "b": "h1"})
    assert steps(explainers(yard).plan("h1"), "move") == {
        "VM a": "to h2 (compute only)",
        "VM b": "to h2 (compute only)",
    }


def test_a_device_taken_there_by_somebody_is_not_planned_with() -> None:
    yard = yard_of({"h1": 2, "h2": 2}, {"a": "h1", "b": "h1", "c": "h2"})
    found = explainers(yard).plan("h1")
    assert steps(found, "move") == {"VM a": "to h2 (compute only)"}
    assert "taken by a and c" in steps(found, "wait for")["h1"]


def test_vgpus_are_planned_where_their_profile_is_offered() -> None:
    yard = yard_of({"h1": 1, "h2": 0, "h3": 1}, {"a": "h1", "b": "h1"}, VGPU)
    found = explainers(yard).plan("h1")
    assert steps(found, "move") == {"VM a": "to h3 (compute only)", "VM b": "to h3 (compute only)"}


def test_many_esxi_hosts_are_explained_as_each_alone() -> None:
    asked = explainers(yard_of({"h1": 1, "h2": 1, "h3": 0}, {"a": "h1", "b": "h2"}))
    names = [("vc", name) for name in ("h1", "h2", "h3")]
    together = asked.esxi_hosts([*names, ("vc", "gone"), ("elsewhere", "h1")])
    assert together == {name: asked.esxi(name[1]) for name in names}
    assert len({explanation.outcome for explanation in together.values()}) == 3


def plan_of(yard: Yard) -> tuple[str, list[str]]:
    """The outcome, and each step as the CLI prints it, without why."""
    found = explainers(yard).plan("h1")
    assert found is not None
    return found.outcome, [f"{one.verb} {one.target}" for one in found.actions]


def test_a_worker_to_be_ignored_is_planned_to_run_on() -> None:
    yard = yard_of({"h1": 1, "h2": 1}, {"a": "h1"})
    yard.node("a", UUIDS[0], annotations={POLICY: "ignore"})
    outcome, planned = plan_of(yard)
    assert planned == ["leave VM a running"]
    assert outcome == (
        "If h1 entered maintenance now: a would be left running. The task would hang: a would go on running there."
    )


def test_a_worker_that_is_to_stay_off_is_not_planned_to_start() -> None:
    yard = yard_of({"h1": 1, "h2": 1}, {"a": "h1"})
    yard.node("a", UUIDS[0], annotations={POLICY: "stay-off"})
    outcome, planned = plan_of(yard)
    assert planned == ["hold a", "shut down VM a", "leave VM a off"]
    assert outcome == "If h1 entered maintenance now: a would be emptied and stopped, and stay off."


def test_a_worker_that_drs_moves_live_is_not_planned_to_stop() -> None:
    yard = yard_of({"h1": 1, "h2": 1}, {"a": "h1"})
    yard.put(Cluster, "c1", name="compute", drs_enabled=True, drs_behaviour="fullyAutomated")
    yard.host("h1", cluster="c1")
    yard.host("h2", cluster="c1")
    yard.vm("a", UUIDS[0], devices=())
    assert plan_of(yard) == ("If h1 entered maintenance now: a would be moved live by DRS.", ["wait for DRS"])


def test_a_worker_that_is_off_is_in_the_plan() -> None:
    yard = yard_of({"h1": 1, "h2": 1}, {"a": "h1"})
    yard.vm("a", UUIDS[0], power="poweredOff")
    assert plan_of(yard) == ("If h1 entered maintenance now: a would stay off.", ["leave VM a off"])


# -- not known is not none


def shown(status: MaintenanceStatus, capsys: pytest.CaptureFixture[str]) -> str:
    show_list(View(), lambda: listed(status, status.rows), ROWS)
    captured = capsys.readouterr()
    return " ".join((captured.out + captured.err).split())


def test_the_status_says_that_it_is_not_known_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    yard = yard_of({"h1": 1}, {"a": "h1"})
    assert "no ESXi host under one is entering it" in shown(explainers(yard).status(()), capsys)
    yard.vcenters["vc"].link = Link(Standing.UNREACHABLE, "vCenter vc cannot be reached: refused.", NOW)
    said_now = shown(explainers(yard).status(()), capsys)
    assert "vCenter vc cannot be reached" in said_now
    assert "Cannot tell whether an ESXi host is entering maintenance" in said_now
    assert "no ESXi host under one is entering it" not in said_now


def test_a_vcenter_that_says_nothing_any_more_is_not_known_either(capsys: pytest.CaptureFixture[str]) -> None:
    yard = yard_of({"h1": 1}, {"a": "h1"})
    yard.vcenters["vc"].heard = NOW - 1000
    assert "vCenter vc was last seen 1000 s ago" in shown(explainers(yard).status(()), capsys)
    plan = explainers(yard).plan("h1")
    assert plan is not None
    assert "Cannot tell whether there is an ESXi host h1: vCenter vc was last seen" in plan.outcome


def test_a_node_whose_vcenter_was_never_read_is_not_said_to_have_no_machine() -> None:
    yard = Yard()
    yard.vcenters["vc"].link = Link(Standing.UNREACHABLE, "vCenter vc cannot be reached: refused.", NOW)
    yard.vcenters["vc"].inventory.complete = False
    yard.node("a", UUIDS[0])
    found = explainers(yard).node("a")
    assert found is not None
    assert "Cannot tell which VM backs node a: vCenter vc cannot be reached" in found.outcome
    assert "no machine" not in found.outcome


def test_a_label_on_no_node_is_in_the_status(capsys: pytest.CaptureFixture[str]) -> None:
    yard = Yard()
    yard.node("a", labelled=False)
    assert "No node has the label gpu" in shown(explainers(yard).status(()), capsys)


def test_the_status_beside_another_controller_does_not_say_that_it_begins(capsys: pytest.CaptureFixture[str]) -> None:
    yard = yard_of({"h1": 1, "h2": 1}, {"a": "h1"})
    yard.enter("h1")
    (row,) = explainers(yard).status(()).rows
    assert row.phase == "beginning"
    beside = explainers(yard, "The old controller is at work.").status(())
    assert (beside.rows[0].phase, beside.rows[0].blocked_by) == ("held back", "The old controller is at work.")
    assert beside.notes == ("The old controller is at work.",)


def test_a_labelled_worker_that_is_off_is_in_the_status(capsys: pytest.CaptureFixture[str]) -> None:
    yard = yard_of({"h1": 1}, {"a": "h1", "b": "h1"})
    yard.vm("a", UUIDS[0], power="poweredOff")
    (row,) = explainers(yard).status(()).rows
    assert (row.node, row.phase, row.why) == ("a", "off", "VM a is off, and not by us")


def test_hosts_beyond_those_shown_are_counted() -> None:
    rejected = tuple(Rejected(f"h{number:02}", "full") for number in range(30))
    assert Placement((), rejected).why_none().endswith("h05: full; and 24 more")


# -- news, once each


def teller() -> tuple[EventReporter, Notes]:
    notes = Notes()
    return EventReporter(cast(Recorder, notes), MaintenanceMetrics(CollectorRegistry())), notes


def told(
    one: EventReporter,
    play: Play,
    *decisions: Decision,
    unlabelled: str = "",
    hanging: tuple[Hanging, ...] = (),
    busy: Busy | None = None,
) -> list[str]:
    """What the log says in one pass."""
    world = play.world()
    subjects = tuple(replace(subject, busy=busy) for subject in world.subjects)
    world = World(subjects, world.sites, world.room, unlabelled=unlabelled)
    with capture_logs() as lines:
        one.tell(world, one.lasting(world, Pass(decisions, hanging), play.now))
    return [f"{line['log_level']}: {line['event']}" for line in lines]


def test_an_unknown_fact_is_news_only_when_it_lasts() -> None:
    """An operator that just started has not read vCenter yet: no Event, no condition, nothing in the log."""
    one, notes = teller()
    play = pair()
    frozen = Decision("a", State.DRAINING, Phase.NOT_KNOWN, "vCenter is away (since 1)", unknown=True)
    assert told(one, play, frozen) == []
    patient = one.lasting(play.world(), Pass((frozen,)), play.now)
    assert not patient.decisions[0].unknown, "so the node's condition does not speak of it either"
    assert patient.wake == play.now + LASTS_SECONDS
    play.now += LASTS_SECONDS
    assert told(one, play, frozen) == ["warning: Nothing is done to a: vCenter is away (since 1)."]
    assert told(one, play, frozen) == []
    assert notes.events == [("Frozen", "Nothing is done to a: vCenter is away (since 1).")]
    reading = Decision("a", State.DRAINING, Phase.NOT_KNOWN, "vCenter is being read (since 2)", unknown=True)
    assert told(one, play, reading) == [], "it is frozen still"
    going = Decision("a", State.DRAINING, Phase.DRAINING, "2 pods left")
    assert told(one, play, going) == ["info: No longer so: Nothing is done to a."]
    assert told(one, play, frozen) == [], "and a second one has its time too"


def test_while_something_is_written_what_was_said_stands() -> None:
    """The condition that says so is itself a write: a node at work is not one of which more is known."""
    one, notes = teller()
    play = pair()
    frozen = Decision("a", State.DRAINING, Phase.NOT_KNOWN, "vCenter is away", unknown=True)
    told(one, play, frozen)
    play.now += LASTS_SECONDS
    assert told(one, play, frozen) == ["warning: Nothing is done to a: vCenter is away."]
    at_work = Decision("a", State.DRAINING, Phase.AT_WORK, "its condition is written")
    assert told(one, play, at_work, busy=Busy(State.DRAINING)) == []
    play.now += 1
    assert one.lasting(play.world(), Pass((frozen,)), play.now).decisions[0].unknown, "it has been so all the time"
    assert told(one, play, frozen) == []
    assert len(notes.events) == 1


def test_a_node_that_is_late_is_said_once_whatever_each_try_says() -> None:
    one, notes = teller()
    play = pair()
    late = [Decision("a", State.POWERED_OFF, Phase.STARTING, "", overdue=f"a is not back: {why}") for why in ("x", "y")]
    assert [told(one, play, each) for each in late] == [["warning: a is not back: x."], []]
    assert [reason for reason, _ in notes.events] == ["PowerOnTimeout"]


def test_what_blocks_is_one_line_and_one_event_per_change() -> None:
    one, notes = teller()
    play = pair()

    def blocked(left: int, by: str) -> Decision:
        return Decision("a", State.DRAINING, Phase.DRAINING, f"{left} pods left", blocked=Blocked(BlockedBy.BUDGET, by))

    assert told(one, play, blocked(3, "web/x: budget web/b")) == ["warning: 3 pods left. web/x: budget web/b."]
    assert told(one, play, blocked(2, "web/x: budget web/b")) == [], "a pod that goes is no news"
    assert told(one, play, blocked(2, "web/y: budget web/c")) == ["warning: 2 pods left. web/y: budget web/c."]
    nowhere = Decision(
        "a",
        State.POWERED_OFF,
        Phase.WAITING,
        "VM a is off, and no host can take it",
        blocked=Blocked(BlockedBy.NO_HOST, "h2: full"),
    )
    assert told(one, play, nowhere) == [
        "info: VM a is off, and no host can take it. h2: full.",
        "info: No longer so: web/y: budget web/c.",
    ]
    assert [reason for reason, _ in notes.events] == ["DrainBlocked", "DrainBlocked", "NoHost"]


def test_strangers_and_a_label_nobody_has_are_said_once() -> None:
    one, notes = teller()
    play = pair()
    foreign = (Hanging("vc", "esx1", ("db (DRS does not move it)",), ("a",)),)
    assert told(one, play, unlabelled="No node has the label gpu.", hanging=foreign) == [
        "warning: No node has the label gpu.",
        "warning: ESXi host esx1 also waits for VMs that are not ours: db (DRS does not move it).",
    ]
    assert told(one, play, unlabelled="No node has the label gpu.", hanging=foreign) == []
    assert [reason for reason, _ in notes.events] == ["ForeignVMs"]


def test_what_vcenter_answered_reads_as_words() -> None:
    outcomes = (
        Started("task-7"),
        Started(),
        AlreadySo("it is off"),
        Refused(Kind.OTHER, "powering on vm-1 was refused."),
    )
    assert [said(one) for one in outcomes] == [
        "task-7 is under way", "done", "it is off", "powering on vm-1 was refused.",
    ]  # fmt: skip
