"""The leader records what happens to hosts, over changes of leader and while nothing can be stored."""

from __future__ import annotations

import asyncio

from hostler.history.actions import ActionFeed
from hostler.history.model import Entry, What
from hostler.history.recorder import INTERRUPTED, NOT_RECORDED, log_fields
from hostler.inventory.states import HostKind, HostState
from hostler.kube.kinds import EVENT, NODE, POD
from hostler.kube.records import Metadata, Pod, PodMetadata, PodSpec
from hostler.kube.writer import Write
from hostler.vsphere.outcomes import AlreadySo, Asked, Kind, Outcome, Refused, Started
from tests.unit.history_world import HistoryWorld

A = "node:prod/a"


def node_write(verb: str = "patch", *, reports: bool = False) -> Write:
    return Write("maintenance", verb, NODE, "a", None, "ESXi host esx1 enters maintenance.", reports)


def eviction(pod: str) -> Write:
    return Write("maintenance", "evict", POD, pod, "shop", "the node is emptied")


def shown(entries: list[Entry]) -> list[tuple[str, str, str]]:
    return [(str(entry.what), entry.reason or entry.new, entry.result) for entry in entries]


def test_an_action_is_recorded_with_result_and_operation() -> None:
    world = HistoryWorld()
    world.put("a", HostState.IN_SERVICE)
    world.step()
    world.put("a", HostState.DRAINING, operation="maintenance/1")
    world.feed.wrote(node_write(), "ok", "")
    world.step()
    world.feed.wrote(node_write(), "ok", "")
    world.put("a", HostState.IN_SERVICE)
    world.step()
    world.feed.wrote(node_write(), "ok", "")  # its answer came after its effect
    world.step()
    assert shown(world.stored(A)) == [
        ("inferred", "in service", ""),
        ("action", "PatchNode", "ok"),
        ("transition", "draining", ""),
        ("action", "PatchNode", "ok"),
        ("transition", "in service", ""),
        ("action", "PatchNode", "ok"),
    ]
    operations = [entry.operation for entry in world.stored(A)]
    assert operations == ["", *["maintenance/1"] * 5]  # the steps that begin and end it are part of it
    assert {entry.capability for entry in world.stored(A)[1:]} == {"maintenance"}


def test_evictions_of_one_moment_are_one_action() -> None:
    world = HistoryWorld()
    world.put("a", HostState.DRAINING)
    world.step()
    for pod in ("web-1", "web-2", "db-0"):
        world.feed.wrote(eviction(pod), "ok", "")
    world.feed.wrote(eviction("db-1"), "429", "Budget db allows none.")
    world.step()
    done, refused = world.stored(A)[1:]
    assert done.sentence == "3 pods: shop/db-0, shop/web-1 and shop/web-2; the node is emptied"
    assert (refused.result, refused.sentence) == (
        "429", "1 pod: shop/db-1; the node is emptied: Budget db allows none.",
    )  # fmt: skip


def test_a_pod_that_is_gone_before_the_answer_still_has_its_node() -> None:
    feed = ActionFeed("prod", lambda pod: "", lambda *_: None, lambda: 1.0)
    pod = Pod(metadata=PodMetadata(name="web-1", namespace="shop"), spec=PodSpec(node_name="a"))
    feed.pod_changed("shop/web-1", pod, None)
    feed.wrote(eviction("web-1"), "ok", "")
    feed.wrote(eviction("web-2"), "ok", "")  # nobody knows where that was
    assert [one.key for one in feed.take()] == [A]


def test_an_action_that_fails_again_is_recorded_once() -> None:
    world = HistoryWorld()
    world.put("a", HostState.DRAINING)
    world.step()
    for result in ("429", "429", "500", "500", "ok", "429"):
        world.feed.wrote(eviction("db-1"), result, "")
        world.step()
    assert [entry.result for entry in world.stored(A)[1:]] == ["429", "500", "ok", "429"]


def test_a_refusal_is_recorded_when_its_reason_changes() -> None:
    world = HistoryWorld()
    world.put("a", HostState.DRAINING, operation="maintenance/1")
    world.step()
    about = Metadata(name="a", uid="u1")
    for reason in ("DrainBlocked", "DrainBlocked", "NoHost"):
        world.feed.refused("maintenance", NODE, about, reason, "A sentence.")
        world.step()
    assert shown(world.stored(A)[1:]) == [("refusal", "DrainBlocked", ""), ("refusal", "NoHost", "")]
    assert {entry.operation for entry in world.stored(A)} == {"maintenance/1"}


def test_reports_conflicts_and_other_objects_are_no_entries() -> None:
    world = HistoryWorld()
    world.put("a", HostState.IN_SERVICE)
    world.step()
    world.feed.wrote(node_write(reports=True), "ok", "")
    world.feed.wrote(node_write(), "409", "")
    world.feed.wrote(Write("fleet", "create", EVENT, "x", "default", ""), "ok", "")
    world.step()
    assert len(world.stored()) == 1


def test_a_call_to_vcenter_is_an_action_of_its_vm() -> None:
    world = HistoryWorld()
    outcomes: list[Outcome] = [Started("task-7"), AlreadySo("It is on."), Refused(Kind.NO_RESOURCES, "No GPU is free.")]
    for outcome in outcomes:
        world.feed.asked(Asked("vc", "uuid-1", "power_on", "power on gpu-0 esx2", outcome))
        world.step()
    found = world.stored("vm:vc/uuid-1")
    assert [entry.result for entry in found] == ["started", "already", "no-resources"]
    assert {entry.reason for entry in found} == {"PowerOn"}
    assert found[2].sentence == "Power on gpu-0 esx2: No GPU is free."


def test_a_killed_leader_leaves_a_gap_and_inferred_states() -> None:
    world = HistoryWorld()
    world.put("a", HostState.IN_SERVICE)
    world.put("b", HostState.IN_SERVICE)
    world.step()
    world.put("a", HostState.DRAINING)  # killed before it is stored
    world.lead()
    world.step()
    gap, inferred = world.stored()[-2:]
    assert (gap.what, gap.key, gap.reason) == (What.GAP, "", INTERRUPTED)
    assert (inferred.what, inferred.key, inferred.old, inferred.new) == (What.INFERRED, A, "in service", "draining")
    assert inferred.id.startswith("2.")


def test_a_leader_that_stops_in_order_loses_nothing() -> None:
    world = HistoryWorld()
    world.put("a", HostState.IN_SERVICE)
    world.step()
    world.put("a", HostState.DRAINING)
    world.feed.wrote(node_write(), "ok", "")
    asyncio.run(world.recorder.finish())
    assert shown(world.stored(A))[1:] == [("action", "PatchNode", "ok"), ("transition", "draining", "")]
    world.lead()
    world.step()
    assert [entry.reason for entry in world.stored("")] == ["Stopped", NOT_RECORDED]
    assert [entry.new for entry in world.stored(A) if entry.new] == ["in service", "draining"]


def test_entries_wait_while_the_store_refuses() -> None:
    world = HistoryWorld()
    world.put("a", HostState.IN_SERVICE)
    world.step()
    world.store.trouble = "It is full."
    world.put("a", HostState.DRAINING)
    world.step()
    assert world.recorder.trouble == "The history cannot be stored: It is full."
    assert (world.value("hostler_history_waiting"), world.value("hostler_history_failing")) == (1.0, 1.0)
    world.store.trouble = ""
    world.step()
    assert world.stored(A)[-1].new == "draining"
    assert (world.value("hostler_history_waiting"), world.value("hostler_history_failing")) == (0.0, 0.0)
    assert world.recorder.trouble == ""


def test_a_host_that_goes_is_gone_and_begins_anew() -> None:
    world = HistoryWorld()
    world.put("a", HostState.IN_SERVICE)
    world.step()
    world.take_out("a")
    world.step()
    world.put("a", HostState.JOINING)
    world.step()
    assert [(entry.old, entry.new) for entry in world.stored(A)] == [
        ("", "in service"), ("in service", "gone"), ("", "joining"),
    ]  # fmt: skip


def test_completed_stays_are_metrics_and_set_what_is_overdue() -> None:
    world = HistoryWorld()
    world.put("a", HostState.IN_SERVICE)
    world.step()
    for _ in range(20):
        world.put("a", HostState.DRAINING)
        world.step()
        world.put("a", HostState.IN_SERVICE)
        world.step(3600.0)
    world.step(20.0)
    labels = {"state": "draining", "kind": "node-only"}
    assert world.value("hostler_host_stays", **labels) == 20
    for quantile in ("0.5", "0.9", "0.95"):
        assert world.value("hostler_host_stay_seconds", quantile=quantile, **labels) == 3600.0
    world.put("a", HostState.DRAINING)
    world.step(7100.0)
    assert world.inventory.hosts().hosts[0].overdue is None
    world.step(200.0)
    row = world.inventory.hosts().hosts[0]
    assert row.host.kind is HostKind.NODE_ONLY
    assert row.overdue is not None
    assert row.overdue.why == "twice the 95th percentile of 20 completed stays"
    assert world.value("hostler_hosts_overdue", **labels) == 1


def test_a_new_leader_knows_the_completed_stays() -> None:
    world = HistoryWorld()
    world.put("a", HostState.DRAINING)
    world.step()
    world.put("a", HostState.IN_SERVICE)
    world.step(50.0)
    world.lead()
    world.step()
    assert world.value("hostler_host_stay_seconds", quantile="0.5", state="draining", kind="node-only") == 51.0


def test_a_replica_that_does_not_lead_has_no_values() -> None:
    world = HistoryWorld()
    world.put("a", HostState.DRAINING)
    world.step(50.0)
    world.put("a", HostState.IN_SERVICE)
    world.step(50.0)
    world.step(50.0)
    world.recorder._rest()
    assert world.value("hostler_host_stays", state="draining", kind="node-only") is None


def test_every_field_of_an_entry_is_in_the_log() -> None:
    entry = Entry("1.2", 3.0, A, What.ACTION, "maintenance", "a", "b", "R", "S.", 4.0, "o", "ok")
    assert list(log_fields(entry).values()) == [
        "1.2", 3.0, A, "action", "maintenance", "a", "b", "R", "S.", 4.0, "o", "ok",
    ]  # fmt: skip


def test_a_host_that_went_while_nobody_recorded_is_gone() -> None:
    world = HistoryWorld()
    world.put("a", HostState.IN_SERVICE)
    world.put("b", HostState.IN_SERVICE)
    world.step()
    world.take_out("a")
    world.lead()
    world.step()
    assert [(str(entry.what), entry.new) for entry in world.stored(A)][1:] == [("inferred", "gone")]
    world.lead()
    world.put("a", HostState.JOINING)
    world.step()
    assert [(entry.old, entry.new) for entry in world.stored(A)][2:] == [("", "joining")]
