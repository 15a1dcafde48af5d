"""What a decision becomes on the Agent: one status patch, one of metadata, and nothing the second time."""

from __future__ import annotations

from typing import Any

import msgspec

from hostler.apis.assisted import Agent
from hostler.instant import iso, parse
from hostler.reclaim import model
from hostler.reclaim.commands import line_of
from hostler.reclaim.decision import (
    AddFinalizer,
    AnswerRetry,
    ClearCancel,
    Enter,
    ForgetCluster,
    NoteCluster,
    RemoveFinalizer,
    SetCondition,
    WarnNotOneShot,
)
from hostler.reclaim.facts import FINALIZER, host_of
from hostler.reclaim.model import Cluster, Pin, Reason, StepFailure
from hostler.reclaim.status import notes_patch, status_patch

NOW = 1_700_000_000.0
FOREIGN = {"type": "Connected", "status": "True", "reason": "AgentIsConnected", "lastTransitionTime": iso(NOW - 900)}


def agent(status: dict[str, Any] | None = None, **metadata: Any) -> Agent:
    body = {"metadata": {"name": "a", "namespace": "ns", **metadata}, "status": status or {}}
    return msgspec.convert(body, Agent)


def merged(before: Agent, patch: dict[str, Any] | None) -> Agent:
    """As the API server merges it."""
    assert patch is not None
    body = msgspec.to_builtins(before)
    for name, value in patch["status"].items():
        there = body["status"].get(name)
        if isinstance(value, dict) and isinstance(there, dict):
            body["status"][name] = {**there, **value}
        else:
            body["status"][name] = value
    return msgspec.convert(body, Agent)


def test_a_transition_is_one_patch_with_its_start_and_leaves_other_conditions_alone() -> None:
    before = agent({"conditions": [FOREIGN], "debugInfo": {"state": "installed"}})
    patch = status_patch(before, [Enter(model.RECLAIM, Reason.RECLAIMING, "It goes.")], NOW)
    after = merged(before, patch)
    assert (after.status.debug_info.state, after.status.progress.stage_start_time) == ("reclaiming", iso(NOW))
    found = {one.type: (one.status, one.reason) for one in after.status.conditions}
    assert found == {
        "Connected": ("True", "AgentIsConnected"),
        "Reclaimed": ("False", "Reclaiming"),
        "Bound": ("False", "Unbinding"),
    }
    assert patch is not None
    assert patch["status"]["conditions"][0] == FOREIGN


def test_not_one_shot_stays_until_discovery_and_goes_with_another_attempt() -> None:
    before = agent({"debugInfo": {"state": "reclaiming"}})
    warned: list[Enter | WarnNotOneShot] = [
        Enter(model.REBOOT, Reason.REBOOTING, "It restarts."),
        WarnNotOneShot("Every boot is discovery."),
    ]
    there = merged(before, status_patch(before, warned, NOW))

    def kinds(action: Enter | NoteCluster) -> set[str]:
        return {one.type for one in merged(there, status_patch(there, [action], NOW)).status.conditions}

    assert ("NotOneShot", "True") in {(one.type, one.status) for one in there.status.conditions}
    assert "NotOneShot" in kinds(Enter(model.REGISTER, Reason.REGISTERED, "It is there."))
    assert "NotOneShot" not in kinds(Enter(model.FAIL, StepFailure.BOOTED_BACK, "It came back."))
    assert "NotOneShot" not in kinds(NoteCluster(Cluster("ns", "next", "node")))


def test_two_stages_never_begin_at_the_same_moment() -> None:
    before = agent({"progress": {"stageStartTime": iso(NOW)}, "debugInfo": {"state": "reclaiming"}})
    patch = status_patch(before, [Enter(model.FAIL, StepFailure.NO_SPACE, "It is full.")], NOW)
    assert merged(before, patch).status.progress.stage_start_time == iso(NOW + 1)


def test_what_is_waited_for_keeps_its_beginning_and_the_second_look_writes_nothing() -> None:
    say = SetCondition(Reason.DECIDING, "The cluster does not answer.")
    first = merged(agent(), status_patch(agent(), [say], NOW))
    assert host_of(first).waiting_since == parse(iso(NOW))
    assert status_patch(first, [say], NOW + 60) is None
    other = merged(first, status_patch(first, [SetCondition(Reason.DECIDING, "It answers 500.")], NOW + 60))
    assert host_of(other).waiting_since == parse(iso(NOW))


def test_the_old_cluster_is_noted_and_forgotten() -> None:
    cluster = Cluster("ns", "old", "worker-1")
    said = merged(agent(), status_patch(agent(), [SetCondition(Reason.NO_KUBECONFIG, "None.")], NOW))
    noted = merged(said, status_patch(said, [NoteCluster(cluster)], NOW))
    assert host_of(noted).previous == cluster
    assert noted.status.conditions == ()  # what was said of another cluster
    assert host_of(merged(noted, status_patch(noted, [ForgetCluster()], NOW))).previous is None


def test_wishes_are_answered_and_finalizers_of_others_stay() -> None:
    asked = agent(
        annotations={"reclaim.hostler.dev/retry": "7", "reclaim.hostler.dev/cancel": "yes"}, finalizers=["theirs"]
    )
    body = notes_patch(asked, [AnswerRetry("7"), ClearCancel(), AddFinalizer(Pin("T", "uid", "boot"))])
    assert body == {
        "metadata": {
            "annotations": {
                "reclaim.hostler.dev/retried": "7",
                "reclaim.hostler.dev/cancel": None,
                "reclaim.hostler.dev/node": "T uid boot",
            },
            "finalizers": ["theirs", FINALIZER],
        }
    }
    kept = agent(finalizers=["theirs", FINALIZER])
    assert notes_patch(kept, [RemoveFinalizer()]) == {"metadata": {"finalizers": ["theirs"]}}
    assert notes_patch(agent(), [RemoveFinalizer(), ClearCancel()]) is None


def test_a_confirmation_is_of_one_time_only() -> None:
    names = ("reclaim.hostler.dev/confirm", "reclaim.hostler.dev/managed-by")
    said = agent(annotations=dict.fromkeys(names, "ns/old"))
    for action in (
        ForgetCluster(),
        NoteCluster(Cluster("ns", "old", "w")),
        Enter(model.REBIND, Reason.CANCELLED, "It is back."),
    ):
        assert notes_patch(said, [action]) == {"metadata": {"annotations": dict.fromkeys(names)}}
    assert notes_patch(said, [Enter(model.FAIL, StepFailure.NO_SPACE, "It is full.")]) is None
    assert notes_patch(agent(), [ForgetCluster()]) is None


def test_a_confirmation_names_the_cluster_it_is_for() -> None:
    was = {"deprovision_info": {"cluster_name": "old", "cluster_namespace": "ns", "node_name": "worker-1"}}
    for word, confirmed in (("ns/old", True), ("ns/other", False), ("last-control-plane", False), ("", False)):
        assert host_of(agent(was, annotations={"reclaim.hostler.dev/confirm": word})).confirmed is confirmed
    assert not host_of(agent(annotations={"reclaim.hostler.dev/confirm": "/"})).confirmed


def test_a_vm_of_vsphere_is_known_by_its_serial_number() -> None:
    serial = "VMware-42 1b 2c 3d 4e 5f 60 71-82 93 a4 b5 c6 d7 e8 f9"
    found = agent({"inventory": {"systemVendor": {"serialNumber": serial}}})
    assert host_of(found).system_uuid.startswith("42 1b")
    assert host_of(agent({"inventory": {"systemVendor": {"serialNumber": "ABC123"}}})).system_uuid == ""


def test_a_line_for_people() -> None:
    found = agent(
        {"debugInfo": {"state": "reclaiming"}, "deprovision_info": {
            "cluster_name": "old", "cluster_namespace": "ns", "node_name": "worker-1"}},
        annotations={"reclaim.hostler.dev/progress": "initrd 40%"},
    )  # fmt: skip
    line = line_of(found)
    assert (line.agent, line.state, line.cluster, line.progress) == ("ns/a", "reclaiming", "ns/old", "initrd 40%")
