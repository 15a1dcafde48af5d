"""What a pass gets to see: nodes and VMs joined, marks, and who is left alone. The real caches and inventory."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import msgspec
import pytest

from hostler.host.facts import Known, Unknown
from hostler.kube.records import Condition, Metadata, Node, NodeStatus
from hostler.maintenance.decide import decide
from hostler.maintenance.decision import Blocked, BlockedBy, Decision, Phase, PowerOn
from hostler.maintenance.identities import ConfigMap, Found, key_of
from hostler.maintenance.memory import BACKOFF_MOST, Memory
from hostler.maintenance.model import (
    DRAIN_ENDED,
    HOST,
    POLICY,
    SHUTDOWN_SINCE,
    STATE,
    InDoubt,
    Mark,
    Marked,
    Policy,
    State,
)
from hostler.maintenance.status import conditions_of, patch_conditions
from hostler.vsphere.records import Fields, Vm
from hostler.vsphere.session import Link, Standing
from tests.unit.maintenance_yard import NOW, UUIDS, Yard


def test_a_node_in_service_is_no_subject_and_one_on_an_entering_host_is() -> None:
    yard = Yard()
    yard.host()
    yard.vm("a", UUIDS[0])
    yard.node("a", UUIDS[0])
    assert yard.seen() == []
    assert yard.seen(also="a") == ["a"]
    yard.enter()
    assert yard.seen() == ["a"]


def test_without_the_label_it_is_not_looked_after_unless_it_has_a_state_and_its_vm_is_ours() -> None:
    yard = Yard()
    yard.host()
    yard.enter()
    yard.vm("a", UUIDS[0])
    yard.node("a", UUIDS[0], labelled=False)
    assert yard.seen() == []
    yard.node("a", UUIDS[0], labelled=False, annotations={STATE: "draining"})
    assert yard.seen() == ["a"]
    yard.node("b", UUIDS[1], labelled=False, annotations={STATE: "draining"})
    assert yard.seen() == ["a"], "somebody else's vCenter"


def test_the_ceiling_counts_the_nodes_it_looks_after() -> None:
    yard = Yard()
    for name in "abcd":
        yard.node(name)
    for number in range(20):
        yard.node(f"n{number}", labelled=False)
    assert (yard.observer.world(NOW).room.total, yard.observer.world(NOW).room.left) == (4, 2)


def test_two_vms_with_one_uuid_are_refused_by_name() -> None:
    yard = Yard()
    yard.host()
    yard.put(Vm, "vm-1", name="one", uuid=UUIDS[0], host="h1", power="poweredOn")
    yard.put(Vm, "vm-2", name="two", uuid=UUIDS[0], host="h1", power="poweredOn")
    yard.node("a", UUIDS[0])
    found = yard.observer.found(yard.nodes.store.get("a") or Node())
    assert isinstance(found, InDoubt)
    assert "one (vm-1 in vc) and two (vm-2 in vc)" in found.why
    yard.put(Vm, "vm-2", uuid=UUIDS[1])
    yard.put(Vm, "vm-1", name="a")
    assert isinstance(yard.observer.found(yard.nodes.store.get("a") or Node()), Found), "it was looked at again"


def test_two_nodes_that_are_one_vm_are_both_left_alone() -> None:
    yard = Yard(by_uuid=True)
    yard.host()
    yard.enter()
    yard.vm("c", UUIDS[0])
    yard.node("a", UUIDS[0])
    yard.node("b", UUIDS[0])
    world = yard.observer.world(NOW)
    assert all(isinstance(one.vm, InDoubt) for one in world.subjects)
    assert [one.name for one in world.subjects] == ["a", "b"]


def test_the_swapped_byte_order_is_the_same_machine() -> None:
    yard = Yard()
    yard.host()
    yard.enter()
    yard.vm("A.example.com", "b5e40642-3a0d-0f1d-86a1-2c1b6d9a0000")
    yard.node("a", UUIDS[0])
    assert isinstance(yard.observer.world(NOW).subjects[0].vm, Known)


def test_not_found_while_a_vcenter_is_away_is_not_knowing() -> None:
    yard = Yard("vc", "vc2")
    yard.node("a", UUIDS[0])
    yard.vcenters["vc2"].link = Link(Standing.UNREACHABLE, "vc2 is away", NOW)
    found = yard.observer.found(yard.nodes.store.get("a") or Node())
    assert isinstance(found, Unknown)
    assert "cannot tell which VM backs node a, and it is in none of the others: vc2 is away" in found.why
    yard.vcenters["vc"].link = Link(Standing.UNREACHABLE, "vc is away", NOW)
    away = yard.observer.found(yard.nodes.store.get("a") or Node())
    assert isinstance(away, Unknown)
    assert away.why.startswith("cannot tell which VM backs node a: vc is away")
    yard.vcenters["vc2"].link = Link(Standing.CONNECTED, "", NOW)
    yard.host(vcenter="vc2")
    yard.vm("a", UUIDS[0], vcenter="vc2")
    assert yard.observer.found(yard.nodes.store.get("a") or Node()) == Found(
        "vc2", "vm-a-0", "its UUID and its name are those of VM a"
    )


def test_a_name_alone_is_not_enough_while_another_vcenter_is_away() -> None:
    """The machine with the node's UUID may be there; by UUID it is found whoever is away."""
    yard = Yard("vc", "vc2")
    yard.host()
    yard.vm("a")
    yard.node("a", UUIDS[0])
    assert isinstance(yard.observer.found(yard.nodes.store.get("a") or Node()), Found)
    yard.vcenters["vc2"].link = Link(Standing.UNREACHABLE, "vc2 cannot be reached.", NOW)
    found = yard.observer.found(yard.nodes.store.get("a") or Node())
    assert isinstance(found, Unknown)
    assert "has only the name of node a" in found.why
    assert "vc2 cannot be reached" in found.why


def test_one_vcenter_away_does_not_touch_the_other() -> None:
    yard = Yard("vc", "vc2")
    yard.vcenters["vc2"].link = Link(Standing.UNREACHABLE, "vc2 is away", NOW)
    yard.host()
    yard.enter()
    yard.vm("a", UUIDS[0])
    yard.node("a", UUIDS[0])
    world = yard.observer.world(NOW)
    assert isinstance(world.subjects[0].vm, Known)
    assert isinstance(world.sites["vc2"], Unknown)


def test_a_marked_vm_without_a_node_is_a_subject() -> None:
    yard = Yard()
    yard.host()
    mark = Mark("a", "h1", "2026-01-01T00:00:00Z", Marked.STOPPED, cluster="c1")
    yard.identities.name_cluster("c1")
    yard.put(Fields, "CustomFieldsManager", names=((7, "hostler"),))
    yard.vm("a", UUIDS[0], power="poweredOff", attributes=((7, mark.text()),))
    world = yard.observer.world(NOW)
    assert [(one.name, one.node, one.mark) for one in world.subjects] == [("vm/a", None, mark)]
    assert world.room.out == ("vm/a",), "and it counts against the ceiling"


def marked(yard: Yard, *vms: str) -> None:
    """These VMs are off and carry our mark for node a; the first of them has its UUID."""
    mark = Mark("a", "h1", "2026-01-01T00:00:00Z", Marked.STOPPED, cluster="c1")
    yard.host()
    yard.identities.name_cluster("c1")
    yard.put(Fields, "CustomFieldsManager", names=((7, "hostler"),))
    for number, name in enumerate(vms):
        yard.vm(name, UUIDS[number], power="poweredOff", attributes=((7, mark.text()),))


def doubts(yard: Yard) -> dict[str, str]:
    return {one.name: one.vm.why for one in yard.observer.world(NOW).subjects if isinstance(one.vm, Unknown)}


def test_a_copy_of_a_vm_that_we_stopped_is_not_started() -> None:
    """Its attributes were copied with it, our mark among them. Without the node, which one is the copy nobody knows."""
    yard = Yard()
    marked(yard, "a", "a-copy")
    assert sorted(doubts(yard)) == ["vm/a", "vm/a-copy"]
    assert "neither is started on a guess" in doubts(yard)["vm/a"]
    yard.node("a", UUIDS[0], annotations={STATE: "powered-off", HOST: "h1"})
    assert list(doubts(yard)) == ["vm/a-copy"], "the node says which one it is"
    one = decide(yard.observer.world(NOW), Policy(), NOW).of("vm/a-copy")
    assert one is not None
    assert (one.action, one.unknown) == (None, True)


@pytest.mark.parametrize("claim", ["rebuilt", "twins", "nobody"])
def test_what_nodes_claim_holds_back_no_vm_that_we_stopped(claim: str) -> None:
    """Another VM backs its node by now, two nodes claim it, or its node cannot be identified: its own mark counts."""
    yard = Yard()
    marked(yard, "a")
    if claim == "rebuilt":
        yard.vm("a-new", UUIDS[5], guest_name="a")
    for name, uuid in {"rebuilt": {"a": UUIDS[5]}, "twins": {"a": UUIDS[0], "b": UUIDS[0]}}.get(claim, {}).items():
        yard.node(name, uuid)
    if claim == "nobody":
        yard.node("a", UUIDS[7])
    name = "vm/a" if claim == "rebuilt" else "a"
    assert name not in doubts(yard)
    assert name in yard.seen()
    world = yard.observer.world(NOW)
    settled = replace(world, out_since=dict.fromkeys(world.out_since, NOW - 600))
    one = decide(settled, Policy(), NOW).of(name)
    assert one is not None
    assert isinstance(one.action, PowerOn), one
    if claim != "twins":
        yard.node("a", UUIDS[0], labelled=False)
        assert yard.seen() == ["vm/a"], "its own node, whether or not it has the label"


def test_a_policy_that_was_changed_on_the_node_counts_for_its_vm() -> None:
    yard = Yard()
    marked(yard, "a")
    yard.vm("a-new", UUIDS[5], guest_name="a")
    yard.node("a", UUIDS[5], annotations={POLICY: "stay-off"})
    one = decide(yard.observer.world(NOW), Policy(), NOW).of("vm/a")
    assert one is not None
    assert (one.action, "stay-off" in one.why) == (None, True), one


@pytest.mark.parametrize("theirs", ["c2", "-"])
def test_a_stopped_vm_of_another_cluster_is_not_ours(theirs: str) -> None:
    """One vCenter serves many Kubernetes clusters, each with an operator of its own."""
    yard = Yard()
    yard.host()
    yard.identities.name_cluster("c1" if theirs == "c2" else "-")
    mark = Mark("a", "h1", "2026-01-01T00:00:00Z", Marked.STOPPED, cluster=theirs)
    yard.put(Fields, "CustomFieldsManager", names=((7, "hostler"),))
    yard.vm("a", UUIDS[0], power="poweredOff", attributes=((7, mark.text()),))
    assert yard.seen() == []


def test_a_mark_in_the_config_map_is_as_good_and_goes_with_its_vm() -> None:
    yard = Yard("vc:8443")
    mark = Mark("a", "h1", "2026-01-01T00:00:00Z", Marked.STOPPED)
    yard.host(vcenter="vc:8443")
    yard.put(Vm, "vm-1", vcenter="vc:8443", name="a", host="h1", power="poweredOff")
    data = {key_of("vc:8443", "vm-1"): mark.text(), key_of("vc:8443", "vm-9"): mark.text(), "other": "x"}
    data[key_of("vc:8443.example", "vm-5")] = mark.text()  # another vCenter, whose name begins like ours
    yard.config.store.put(
        ConfigMap(metadata=Metadata(name="hostler-stopped-vms", namespace="hostler", resource_version="5"), data=data)
    )
    assert yard.seen() == ["vm/a"]
    marks = yard.observer.marks
    assert marks.gone("vc:8443", yard.vcenters["vc:8443"].inventory) == ("vm-9",)
    yard.vcenters["vc:8443"].inventory.missing["vm-9"] = "NoPermission"
    assert marks.gone("vc:8443", yard.vcenters["vc:8443"].inventory) == (), "it is there, and not to be seen by us"


def test_a_host_is_back_only_from_when_we_saw_it() -> None:
    yard = Yard()
    yard.host()
    yard.vm("a", UUIDS[0])
    yard.node("a", UUIDS[0], annotations={STATE: "powered-off", HOST: "h1"})
    assert yard.observer.world(NOW).out_since == {("vc", "h1"): NOW}
    assert yard.observer.world(NOW + 5).out_since == {("vc", "h1"): NOW}
    yard.vcenters["vc"].link = Link(Standing.EXPIRED, "expired", NOW)
    assert yard.observer.world(NOW + 6).out_since == {}


# -- conditions


@pytest.mark.parametrize(
    ("state", "ended", "drains", "drained"),
    [
        ("draining", "", "True", "False"),
        ("draining", "empty", "False", "True"),
        ("powered-off", "empty", "False", "True"),
        ("powered-off", "late", "False", "False"),
        ("powered-off", "", "False", "Unknown"),  # by hand, by HA, or by the controller before us
        ("migrated", "empty", "False", "True"),
        ("migrated", "", "False", "Unknown"),
    ],
)
def test_what_the_node_says(state: str, ended: str, drains: str, drained: str) -> None:
    stopping = {SHUTDOWN_SINCE: "now", DRAIN_ENDED: ended} if ended else {}
    node = Node(metadata=Metadata(name="a", annotations={STATE: state, HOST: "esx1", **stopping}))
    said = {"DrainInProgress": drains, "Drained": drained, "MaintenanceInProgress": "True"}
    assert {one.type: str(one.status) for one in conditions_of(node, None)} == said
    assert list(conditions_of(Node(metadata=Metadata(name="a")), None)) == []


def test_conditions_end_with_the_maintenance_and_then_rest() -> None:
    before = Node(
        metadata=Metadata(name="a"),
        status=NodeStatus(conditions=(Condition(type="MaintenanceInProgress", status="True", reason="Migrated"),)),
    )
    patch = patch_conditions(before, None, NOW)
    assert patch is not None
    (entry,) = patch["status"]["conditions"]
    assert (entry["type"], entry["status"]) == ("MaintenanceInProgress", "False")
    after = Node(
        status=NodeStatus(
            conditions=(
                Condition(type=entry["type"], status="False", reason=entry["reason"], message=entry["message"]),
            )
        )
    )
    assert patch_conditions(after, None, NOW) is None


def test_the_budget_that_blocks_is_named_and_pods_going_change_nothing() -> None:
    node = Node(metadata=Metadata(name="a", annotations={STATE: "draining", HOST: "esx1"}))
    blocked = Decision(
        "a",
        State.DRAINING,
        Phase.DRAINING,
        "2 pods left",
        blocked=Blocked(BlockedBy.BUDGET, "web/x: PodDisruptionBudget web/b"),
    )
    (drain, *_) = conditions_of(node, blocked)
    assert drain.reason == "Blocked"
    assert "PodDisruptionBudget web/b" in drain.message
    three, two = (Decision("a", State.DRAINING, Phase.DRAINING, f"{n} pods left") for n in (3, 2))
    assert list(conditions_of(node, three)) == list(conditions_of(node, two))


# -- back-off


def test_tries_come_later_and_later_and_a_return_every_ten_minutes() -> None:
    memory = Memory()
    waits = [memory.failed("a", "power", "no", NOW).not_before - NOW for _ in range(8)]
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]
    assert max(waits) == BACKOFF_MOST
    memory.keep_only(set())
    waits = [memory.failed("a", "power", "no", NOW, returns=True).not_before - NOW for _ in range(9)]
    assert waits == [1, 2, 4, 8, 16, 32, 60, 600, 600]
    memory.keep_only(set())
    assert memory.of("a").power.number == 0


# -- signs of life


def test_a_lease_must_be_renewed_twice_under_our_eyes() -> None:
    memory = Memory()
    assert [memory.renewed("a", at) for at in ("10", "10", "12", "12", "", "14", "16")] == [0, 0, 1, 1, 1, 1, 2]


def test_what_was_seen_of_a_kubelet_ends_with_its_machine() -> None:
    memory = Memory()
    memory.runs("a", "esx1", "beat-1", NOW)
    assert not memory.of("a").reported
    memory.runs("a", "esx1", "beat-2", NOW + 1)
    memory.note("a", alive=True)
    assert memory.of("a").reported
    assert memory.of("a").running_since == NOW
    memory.runs("a", "", "beat-2", NOW + 2)
    memory.runs("a", "esx1", "beat-2", NOW + 3)
    assert (memory.of("a").reported, memory.of("a").alive, memory.of("a").running_since) == (False, False, NOW + 3)


def test_what_was_seen_of_a_kubelet_does_not_outlive_a_restart_elsewhere() -> None:
    """HA starts a VM on another host, and vCenter never shows it off: its Ready is a dead machine's last word."""
    memory = Memory()
    memory.runs("a", "esx1 draining", "beat-1", NOW)
    memory.runs("a", "esx1 draining", "beat-2", NOW + 1)
    memory.note("a", alive=True)
    memory.renewed("a", "10")
    memory.runs("a", "esx2 draining", "beat-2", NOW + 2)
    assert (memory.of("a").reported, memory.of("a").alive) == (False, False)
    assert memory.renewed("a", "10") == 0
    memory.runs("a", "esx2 draining", "beat-3", NOW + 40)
    assert memory.of("a").reported
    memory.runs("a", "esx2 migrated", "beat-3", NOW + 41)
    assert not memory.of("a").reported


def test_a_label_that_no_node_has_is_said() -> None:
    yard = Yard()
    yard.node("a", UUIDS[0], labelled=False)
    assert "No node has the label gpu" in yard.observer.world(NOW).unlabelled
    yard.node("b", UUIDS[1])
    assert yard.observer.world(NOW).unlabelled == ""


OURS = {"DrainInProgress": "Ended", "Drained": "Ended", "MaintenanceInProgress": "Migrated"}


@pytest.mark.parametrize(
    ("reasons", "seen"), [(OURS, ["a"]), (OURS | {"Drained": "Done"}, []), ({"MaintenanceInProgress": "Migrated"}, [])]
)
def test_conditions_that_outlived_their_maintenance_are_mended_where_they_are_ours(
    reasons: dict[str, str], seen: list[str]
) -> None:
    """The release got through and the condition did not, or we were killed in between; nothing else is left to do."""
    yard = Yard()
    yard.host()
    yard.vm("a", UUIDS[0])
    yard.node("a", UUIDS[0])
    assert yard.seen() == []
    node = yard.nodes.store.get("a")
    assert node is not None
    said = tuple(Condition(type=type, status="True", reason=reason) for type, reason in reasons.items())
    status = msgspec.structs.replace(node.status, conditions=said)
    metadata = msgspec.structs.replace(node.metadata, resource_version="99")
    yard.nodes.store.put(msgspec.structs.replace(node, metadata=metadata, status=status))
    assert yard.seen() == seen
    world = yard.observer.world(NOW)
    for one in decide(world, Policy(), NOW).decisions:
        assert (one.phase, one.action) == (Phase.IN_SERVICE, None)
        node = world.subjects[0].node
        assert node is not None
        patch = patch_conditions(node, one, NOW)
        assert patch is not None
        assert [entry["status"] for entry in patch["status"]["conditions"]] == ["False"] * len(OURS)


def test_a_bug_beside_the_pass_is_counted() -> None:
    bugs: list[str] = []
    controller = Yard().controller(lambda: bugs.append("one"))

    async def go() -> None:
        async def fine() -> None: ...

        async def broken() -> None:
            raise KeyError("nobody foresaw it")

        for work in (fine(), broken(), asyncio.sleep(600)):
            controller._spawn(work)
        await controller.stop(within=0.1)

    asyncio.run(go())
    assert bugs == ["one"], "what is cut at the end is none"


def test_who_leads_again_believes_nothing_it_saw_before() -> None:
    """Another replica led meanwhile: it may have stopped the VM and started it again."""
    yard = Yard()
    controller, memory = yard.controller(), yard.memory
    memory.runs("a", "esx1", "beat-1", NOW)
    memory.runs("a", "esx1", "beat-2", NOW + 1)
    for at in ("1", "2", "3"):
        memory.renewed("a", at)
    memory.note("a", stop_noted="then", shutdown_asked="then", started=True, kept_volumes=frozenset({"pv"}))
    memory.out_since[("vc", "h1")] = NOW
    before = memory.of("a")
    controller.led(False)
    assert memory.of("a") == before
    controller.led(True)
    known = memory.of("a")
    assert (known.stop_noted, known.alive, known.reported, known.running_since) == ("", False, False, None)
    assert not known.started
    assert not memory.out_since
    assert (known.shutdown_asked, known.kept_volumes) == ("then", frozenset({"pv"})), "that was so, and stays so"
    memory.runs("a", "esx2", "beat-9", NOW + 100)
    assert (memory.of("a").reported, memory.of("a").running_since) == (False, NOW + 100)
    assert [memory.renewed("a", at) for at in ("7", "8")] == [0, 1]
