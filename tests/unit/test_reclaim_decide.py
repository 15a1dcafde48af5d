"""The decision on one host: each refusal, each transition, whatever is not known, and stops after every action."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hostler.apis.assisted import Agent
from hostler.drain import model as emptying
from hostler.host.facts import Known
from hostler.reclaim import decision as actions
from hostler.reclaim import model
from hostler.reclaim.decide import decide
from hostler.reclaim.decision import (
    AddFinalizer,
    AnswerRetry,
    ClearCancel,
    Deploy,
    Enter,
    Evict,
    ForgetCluster,
    Hold,
    NoteCluster,
    Release,
    RemoveFinalizer,
    RemoveNode,
    Seen,
    SetCondition,
    WarnNotOneShot,
    Withdraw,
)
from hostler.reclaim.explain import rules_of
from hostler.reclaim.facts import FINALIZER, find_leaving, host_of
from hostler.reclaim.identity import control_plane_without
from hostler.reclaim.model import (
    Cluster,
    ControlPlane,
    Host,
    Leaving,
    Policy,
    Report,
    SpokeNode,
    SpokeObject,
    State,
    find_cause,
    pin_node,
    stage_key,
    step_id,
)
from hostler.reclaim.old_clusters import needs_spoke
from hostler.reclaim.rules import RULES
from tests.sizes import examples
from tests.unit.reclaim_world import (
    DAEMON_SET,
    GONE,
    NODE,
    NOW,
    PINNED,
    POLICY,
    PREVIOUS,
    host,
    hosts,
    in_control_plane,
    known,
    report,
    spoke,
)

ALLOWED = ("hosts", "spoke-ns")


def entered(found: Host, policy: Policy = POLICY, now: float = NOW) -> tuple[str, str]:
    """The transition and its reason; the decision is nothing but that."""
    (action,) = decide(found, policy, now).actions
    assert isinstance(action, Enter)
    assert found.state in action.transition.sources
    return action.transition.name, action.reason


def test_an_installed_host_that_is_unbound_is_reclaimed() -> None:
    assert entered(host()) == ("ReclaimHost", "Reclaiming")
    assert entered(host(State.ADDED)) == ("ReclaimHost", "Reclaiming")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"previous": None}, "PreviousClusterUnknown"),
        ({"bare_metal_host": "metal/bmh-1"}, "BMCManaged"),
        ({"spoke": spoke(kubeconfig=known(False))}, "NoKubeconfig"),
        ({"spoke": spoke(node=known(None))}, "NodeNotFound"),
        ({"system_uuid": "ffffffff-0001-4000-8000-000000000001"}, "AnotherMachine"),
        ({"spoke": spoke(node=known(replace(NODE, machine="a/b")))}, "ManagedByMachineProvider"),
        ({"spoke": spoke(node=known(replace(NODE, provider_id="aws:///i-1")))}, "ManagedByMachineProvider"),
        ({"spoke": spoke(node=known(replace(NODE, provider_id="agent://agent-2")))}, "ManagedByMachineProvider"),
        ({"spoke": in_control_plane(1, 0)}, "LastControlPlane"),
        ({"spoke": in_control_plane(2, 1)}, "QuorumLost"),
        ({"spoke": in_control_plane(3, 1)}, "QuorumLost"),
        ({"spoke": in_control_plane(5, 2)}, "QuorumLost"),
        ({"reason": "Registered"}, "PreviousClusterNotConfirmed"),
        ({"reason": "PreviousClusterNotConfirmed"}, "PreviousClusterNotConfirmed"),
        ({"artifacts": known(None)}, "ArtifactsUnavailable"),
    ],
)
def test_each_refusal_has_its_reason(change: dict[str, Any], reason: str) -> None:
    assert entered(host(**change)) == ("UnbindHost", reason)
    # Asked for again it is refused with the same words, once.
    asked = decide(host(State.PENDING, retry="1", **change), POLICY, NOW)
    if change.get("previous", PREVIOUS) is not None:
        assert [type(one) for one in asked.actions] == [SetCondition, AnswerRetry]


def test_without_a_hub_address_nothing_is_begun() -> None:
    assert entered(host(), Policy(hub_url="")) == ("UnbindHost", "HubNotConfigured")


def test_uuids_that_are_the_same_in_the_other_byte_order_are_the_same_machine() -> None:
    assert entered(host(system_uuid="3e9d1a0c-0100-0040-8000-000000000001"))[0] == "ReclaimHost"


@pytest.mark.parametrize(("total", "staying"), [(3, 2), (5, 4), (5, 3), (4, 3)])
def test_a_control_plane_node_goes_while_a_majority_stays(total: int, staying: int) -> None:
    assert entered(host(spoke=in_control_plane(total, staying))) == ("ReclaimHost", "Reclaiming")


@pytest.mark.parametrize(("total", "staying"), [(1, 0), (3, 1)])
def test_a_cluster_loses_its_control_plane_only_if_that_was_confirmed(total: int, staying: int) -> None:
    found = host(spoke=in_control_plane(total, staying), confirmed=True)
    assert entered(found) == ("ReclaimHost", "Reclaiming")
    assert "spoke-ns/spoke loses its control plane, as the annotation" in decide(found, POLICY, NOW).why


def test_a_control_plane_node_waits_for_the_workers_of_its_cluster() -> None:
    workers = tuple(f"worker-{number}" for number in range(2, 7))
    found = host(spoke=in_control_plane(3, 0, *workers), confirmed=True)
    waiting = decide(found, POLICY, NOW)
    (said,) = waiting.actions
    assert isinstance(said, SetCondition)
    assert (said.reason, waiting.wake) == ("WorkersFirst", NOW + 30)
    assert said.message.endswith("worker-2, worker-3, worker-4 and 2 more.")
    # However long that takes it is not refused, and a request to try again stays open.
    assert decide(replace(found, waiting_since=NOW - 7000), POLICY, NOW).actions == (said,)
    assert decide(replace(found, state=State.PENDING, retry="1"), POLICY, NOW).actions == (said,)
    # Workers do not wait for each other, nor for the control plane.
    assert entered(host(spoke=spoke(control_plane=known(ControlPlane(3, 0, workers)))))[0] == "ReclaimHost"


def test_the_node_of_this_very_agent_is_not_managed_by_a_stranger() -> None:
    """Cluster API's provider for Agents gives nodes agent://AGENT; the Machine is then this Agent's own."""
    own = replace(NODE, machine="ns/m-1", provider_id="agent://agent-1")
    assert entered(host(spoke=spoke(node=known(own))))[0] == "ReclaimHost"


@pytest.mark.parametrize(
    ("node", "manager"),
    [
        (replace(NODE, machine="ns/m-1", provider_id="vsphere://1"), "ns/m-1"),
        (replace(NODE, provider_id="vsphere://1"), "vsphere://1"),
    ],
)
def test_a_manager_that_the_owner_names_does_not_keep_the_node(node: SpokeNode, manager: str) -> None:
    managed = host(spoke=spoke(node=known(node)))
    assert f"annotate the Agent with reclaim.hostler.dev/managed-by={manager}." in decide(managed, POLICY, NOW).why
    assert entered(replace(managed, managed_by="another"))[1] == "ManagedByMachineProvider"
    accepted = replace(managed, managed_by=manager)
    assert entered(accepted) == ("ReclaimHost", "Reclaiming")
    assert f"{manager}, as the annotation reclaim.hostler.dev/managed-by accepts" in decide(accepted, POLICY, NOW).why


def test_what_is_not_known_is_waited_for_and_then_left_to_people() -> None:
    silent = host(spoke=spoke(node=GONE))
    first = decide(silent, POLICY, NOW)
    assert [type(one) for one in first.actions] == [SetCondition]
    assert first.wake == NOW + POLICY.patience
    assert entered(replace(silent, waiting_since=NOW - 600)) == ("UnbindHost", "SpokeUnreachable")


def test_a_bound_host_has_its_cluster_noted_once() -> None:
    fresh = host(bound=("spoke-ns", "spoke"), previous=None)
    assert decide(fresh, POLICY, NOW).actions == (NoteCluster(PREVIOUS),)
    assert decide(replace(fresh, previous=PREVIOUS), POLICY, NOW).actions == ()
    assert decide(replace(fresh, hostname=""), POLICY, NOW).actions == ()


def test_a_host_that_keeps_starting_discovery_is_warned_about_before_it_restarts() -> None:
    lasting = replace(report(State.RECLAIMING, 0), lasts="GRUB cannot write /boot/grub2/grubenv")
    moved, warned = decide(host(State.RECLAIMING, report=lasting), POLICY, NOW).actions
    assert isinstance(moved, Enter)
    assert moved.transition is model.REBOOT
    assert isinstance(warned, WarnNotOneShot)
    assert 'its agent says why: "GRUB cannot write /boot/grub2/grubenv"' in warned.message


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (host(State.RECLAIMING, report=report(State.RECLAIMING, 0)), ("RebootingForReclaim", "Rebooting")),
        (host(State.RECLAIMING, report=report(State.RECLAIMING, 1, "NoSpace")), ("ReclaimFailed", "NoSpace")),
        (host(State.RECLAIMING, report=report(State.RECLAIMING, 1)), ("ReclaimFailed", "StepFailed")),
        (host(State.RECLAIMING, since=NOW - 3600), ("Refresh", "TimedOut")),
        (host(State.RECLAIMING, since=None), ("Refresh", "TimedOut")),
        (host(State.RECLAIMING, cancelled=True), ("CancelReclaim", "Cancelled")),
        (host(State.RECLAIMING, bound=("spoke-ns", "spoke")), ("RebindHost", "Cancelled")),
        (host(State.RECLAIMING, bound=("x", "y")), ("CancelReclaim", "Cancelled")),
        (host(State.RECLAIMING, spoke=spoke(node=known(None))), ("ReclaimFailed", "NodeNotFound")),
        (host(State.REBOOTING, report=report(State.REBOOTING, 1, "BootedBack")), ("ReclaimFailed", "BootedBack")),
        (host(State.REBOOTING, since=NOW - 1800), ("Refresh", "TimedOut")),
        (host(State.REBOOTING, report=report(State.REBOOTING, 1, "Cancelled")), ("ReclaimFailed", "Cancelled")),
        (
            host(State.REBOOTING, report=report(State.REBOOTING, 1, "Cancelled"), bound=("spoke-ns", "spoke")),
            ("RebindHost", "Cancelled"),
        ),
        *(
            (host(state, registration=stage_key(state, "T0")), ("RegisterHost", "Registered"))
            for state in model.REGISTER.sources
        ),
    ],
)
def test_each_transition(found: Host, expected: tuple[str, str]) -> None:
    assert entered(found) == expected


@pytest.mark.parametrize(
    "found",
    [
        host(State.RECLAIMING, report=report(State.RECLAIMING, 0, stage="T-1")),
        host(State.RECLAIMING, report=report(State.REBOOTING, 0)),
        host(State.RECLAIMING, registration=stage_key(State.REBOOTING, "T0")),
        host(State.REBOOTING, report=report(State.RECLAIMING, 1, "NoSpace")),
        host(State.REBOOTING, report=report(State.REBOOTING, 0)),
        host(State.REBOOTING, cancelled=True),
    ],
)
def test_a_late_answer_changes_nothing(found: Host) -> None:
    found = replace(found, kept=True, pinned=PINNED)
    assert decide(found, POLICY, NOW).actions == ((Deploy(NODE),) if found.state == State.RECLAIMING else ())


def test_cancelled_in_the_reboot_is_said_to_be_too_late() -> None:
    assert "too late" in decide(host(State.REBOOTING, cancelled=True), POLICY, NOW).why
    down = host(State.REBOOTING, cancelled=True, report=report(State.REBOOTING, 0))
    assert decide(down, POLICY, NOW).why.endswith("It goes down already; it is too late to cancel.")


def test_a_registration_of_an_installed_host_is_none_of_ours() -> None:
    found = host(State.INSTALLED, registration=stage_key(State.INSTALLED, "T0"), bound=("spoke-ns", "spoke"))
    assert decide(found, POLICY, NOW).actions == ()


@pytest.mark.parametrize("state", [State.PENDING, State.DISCOVERING, State.KNOWN, State.DISCONNECTED])
def test_what_is_left_goes_before_the_note_of_it(state: State) -> None:
    found = {} if state is State.PENDING else {"reason": "Registered"}
    left = host(state, spoke=spoke(remains=known(frozenset({DAEMON_SET}))), **found)
    assert decide(left, POLICY, NOW).actions == (Withdraw(),)
    clean = host(state)
    assert decide(clean, POLICY, NOW).actions == (() if state is State.PENDING else (ForgetCluster(),))
    assert decide(host(state, spoke=spoke(remains=GONE), **found), POLICY, NOW).actions == ()


def test_the_node_goes_only_if_a_setting_asks_and_it_is_not_ready() -> None:
    asked = replace(POLICY, remove_node=True)
    gone = replace(NODE, ready=False)
    assert decide(host(State.DISCOVERING, spoke=spoke(node=known(gone))), POLICY, NOW).actions == (ForgetCluster(),)
    found = decide(host(State.DISCOVERING, spoke=spoke(node=known(gone))), asked, NOW)
    assert found.actions == (RemoveNode(gone), ForgetCluster())
    there = host(State.DISCOVERING, reason="Registered")
    assert decide(there, asked, NOW).actions == ()
    assert decide(replace(there, spoke=spoke(node=GONE)), asked, NOW).actions == ()
    # A cluster without a kubeconfig is never heard of again; the note must not wait for it.
    silent = spoke(kubeconfig=known(False), node=GONE, remains=GONE)
    assert decide(replace(there, spoke=silent), asked, NOW).actions == (ForgetCluster(),)


def test_control_plane_nodes_that_were_returned_still_count() -> None:
    """etcd keeps their members: of five control planes that are returned one by one, the third is refused."""
    asked = replace(POLICY, remove_node=True)
    nodes = {name: replace(NODE, name=name, control_plane=True) for name in ("m-1", "m-2", "m-3", "m-4", "m-5")}
    found = list[tuple[str, str]]()
    for name in ("m-1", "m-2", "m-3"):
        counted = known(control_plane_without(name, nodes.values(), Leaving()))
        out = host(previous=replace(PREVIOUS, node=name), spoke=spoke(node=known(nodes[name]), control_plane=counted))
        found.append(entered(out, asked))
        nodes[name] = replace(nodes[name], ready=False)
        returned = replace(out, state=State.DISCOVERING, spoke=spoke(node=known(nodes[name])))
        said, *others = decide(returned, asked, NOW).actions
        assert isinstance(said, SetCondition)
        assert (said.reason, f"Node {name} of its old cluster stays" in said.message) == ("Registered", True)
        assert others == [ForgetCluster()]
    assert found == [("ReclaimHost", "Reclaiming")] * 2 + [("UnbindHost", "QuorumLost")]


def test_an_edited_spec_does_not_choose_another_machine() -> None:
    """Bound to another cluster, or under another name, without having been in discovery: nothing is rewritten."""
    home = ("spoke-ns", "spoke")
    for edited in (host(bound=("spoke-ns", "other")), host(bound=home, hostname="worker-2")):
        (said,) = decide(edited, POLICY, NOW).actions
        assert isinstance(said, SetCondition)
        assert said.reason == "PreviousClusterNotConfirmed"
        unbound = replace(edited, bound=None, reason=said.reason)
        assert entered(unbound) == ("UnbindHost", "PreviousClusterNotConfirmed")
    # Set right again, the note is confirmed.
    right = host(bound=home, reason="PreviousClusterNotConfirmed")
    assert decide(right, POLICY, NOW).actions == (NoteCluster(PREVIOUS),)


def test_a_cluster_that_never_answers_again_is_not_decided_on() -> None:
    """In discovery, then installed elsewhere, while nobody knows what is left in the first cluster."""
    seen = decide(host(State.KNOWN, reason="TimedOut", spoke=spoke(remains=GONE)), POLICY, NOW)
    assert [one.reason for one in seen.actions if isinstance(one, SetCondition)] == ["Registered"]
    second = Cluster("spoke-ns", "second", "worker-1")
    kept = host(bound=("spoke-ns", "second"), reason="Registered", kept=True, spoke=spoke(remains=GONE))
    assert decide(kept, POLICY, NOW).actions == ()
    assert entered(replace(kept, bound=None)) == ("UnbindHost", "PreviousClusterNotConfirmed")
    assert decide(replace(kept, spoke=spoke()), POLICY, NOW).actions == (NoteCluster(second), RemoveFinalizer())
    assert decide(replace(kept, kept=False), POLICY, NOW).actions == (NoteCluster(second),)


def test_the_rules_hold_again_before_the_agent_is_put_there() -> None:
    last = in_control_plane(1, 0)
    assert entered(host(State.RECLAIMING, spoke=last)) == ("ReclaimFailed", "LastControlPlane")
    assert decide(host(State.RECLAIMING), POLICY, NOW).actions == (AddFinalizer(PINNED),)
    # Workers that are unbound after it began do not stop it.
    late = host(State.RECLAIMING, spoke=in_control_plane(3, 2, "worker-2"))
    assert decide(late, POLICY, NOW).actions == (AddFinalizer(PINNED),)
    # A pin of an earlier attempt is none.
    early = host(State.RECLAIMING, kept=True, pinned=pin_node("T-1", NODE))
    assert decide(early, POLICY, NOW).actions == (AddFinalizer(PINNED),)


@pytest.mark.parametrize("node", [replace(NODE, uid="uid-2"), replace(NODE, boot_id="boot-2")])
def test_a_node_that_was_replaced_or_restarted_since_is_not_touched(node: SpokeNode) -> None:
    found = host(State.RECLAIMING, kept=True, pinned=PINNED, spoke=spoke(node=known(node)))
    assert entered(found) == ("ReclaimFailed", "AnotherMachine")


def test_without_a_boot_id_nothing_is_begun() -> None:
    mute = spoke(node=known(replace(NODE, boot_id="")))
    assert [type(one) for one in decide(host(spoke=mute), POLICY, NOW).actions] == [SetCondition]
    assert decide(host(State.RECLAIMING, spoke=mute), POLICY, NOW).actions == ()


def test_a_boot_id_that_is_not_known_is_not_another_boot() -> None:
    mute = replace(NODE, boot_id="")
    found = host(State.RECLAIMING, kept=True, pinned=PINNED, spoke=spoke(node=known(mute)))
    waiting = decide(found, POLICY, NOW)
    assert (waiting.actions, "does not report its boot id" in waiting.why, waiting.wake is not None) == ((), True, True)
    another = replace(found, spoke=spoke(node=known(replace(mute, uid="uid-2"))))
    assert entered(another) == ("ReclaimFailed", "AnotherMachine")


def test_what_other_hosts_share_does_not_count_as_the_agent() -> None:
    """With a drain asked for: another host's namespace is there, and the node still has to be emptied."""
    asked = replace(POLICY, drain=emptying.Policy())
    shared = spoke(
        remains=known(
            frozenset({SpokeObject("namespaces", "assisted-installer"), SpokeObject("serviceaccounts", "node-reclaim")})
        )
    )
    found = host(State.RECLAIMING, kept=True, pinned=PINNED, spoke=shared)
    assert decide(found, asked, NOW).actions == (Hold(NODE),)
    there = replace(found, spoke=spoke(remains=known(frozenset({DAEMON_SET}))))
    assert decide(there, asked, NOW).actions == (Deploy(NODE),)


def test_control_plane_nodes_that_are_dead_or_leaving_do_not_count() -> None:
    one = replace(NODE, control_plane=True)
    nodes = [one, replace(one, name="dead", ready=False), replace(one, name="leaving"), replace(NODE, name="worker")]
    out = {"leaving": "hosts/agent-2", "worker": "hosts/agent-3", "dead": "hosts/agent-4"}
    found = control_plane_without("worker-1", nodes, Leaving(out, frozenset({"leaving", "worker"})))
    assert found == ControlPlane(3, 0, ("worker",), ("hosts/agent-2",))
    more = [*nodes, replace(one, name="stays")]
    assert control_plane_without("worker-1", more, Leaving(out)) == ControlPlane(4, 1, (), ("hosts/agent-2",))


def agent(
    node: str,
    state: str,
    *,
    bound: bool = False,
    cluster: str = "spoke",
    stage: str = "",
    created: str = "",
    reason: str = "",
    pinned: bool = False,
    asked: str = "",
) -> Agent:
    to = {"clusterDeploymentName": {"name": cluster, "namespace": "spoke-ns"}} if bound else {}
    was = {"cluster_name": cluster, "cluster_namespace": "spoke-ns", "node_name": node}
    said = [{"type": "Reclaimed", "status": "False", "reason": reason}] if reason else []
    status = {
        "debugInfo": {"state": state},
        "deprovision_info": was,
        "progress": {"stageStartTime": stage},
        "conditions": said,
    }
    meta: dict[str, Any] = {"name": node, "namespace": "hosts", "uid": node, "creationTimestamp": created}
    meta["annotations"] = {"reclaim.hostler.dev/retry": asked} if asked else {}
    if pinned:
        meta["annotations"] |= {"reclaim.hostler.dev/node": f"{stage} uid boot"}
        meta["finalizers"] = [FINALIZER]
    return msgspec.convert({"metadata": meta, "spec": to, "status": status}, Agent)


def test_hosts_leave_from_the_unbind_on() -> None:
    agents = [
        agent("stays", "installed", bound=True), agent("elsewhere", "reclaiming", cluster="other"),
        *(agent(state, state) for state in State),
    ]  # fmt: skip
    found = find_leaving(agents, host(), ALLOWED)
    assert found.agents == {str(state): f"hosts/{state}" for state in State}
    assert found.busy == {"installed", "added-to-existing-cluster", "reclaiming", "reclaiming-rebooting"}


EARLY, LATE = "2026-01-01T10:00:00Z", "2026-01-01T10:00:01Z"
INSTALLED_FIRST = agent("a", "installed", created=EARLY)
INSTALLED_SECOND = agent("b", "installed", created=LATE)
PINNED_EARLY = agent("a", "reclaiming", stage=EARLY, pinned=True)


@pytest.mark.parametrize(
    ("one", "other", "counted"),
    [
        # Two that are not decided on: the one that was created first goes, the other is refused.
        (INSTALLED_FIRST, INSTALLED_SECOND, False),
        (INSTALLED_SECOND, INSTALLED_FIRST, True),
        (agent("a", "installed", created=EARLY), agent("b", "installed", created=EARLY), False),
        # One that is under way goes on, whoever is unbound or refused meanwhile; who comes later counts it.
        (PINNED_EARLY, INSTALLED_FIRST, False),
        (agent("b", "reclaiming", stage=LATE), agent("a", "installed", created=EARLY), False),
        (PINNED_EARLY, agent("b", "unbinding-pending-user-action", stage=LATE, reason="QuorumLost"), False),
        (PINNED_EARLY, agent("b", "unbinding-pending-user-action", stage=LATE, reason="BMCManaged"), False),
        (PINNED_EARLY, agent("b", "reclaiming", stage=LATE, pinned=True), False),
        (INSTALLED_FIRST, agent("b", "reclaiming", stage=LATE), True),
        (agent("b", "reclaiming", stage=LATE), PINNED_EARLY, True),
        (agent("b", "reclaiming", stage=EARLY), agent("a", "reclaiming", stage=LATE, pinned=True), True),
        (agent("b", "reclaiming", stage=EARLY), agent("a", "reclaiming", stage=EARLY), True),
        (PINNED_EARLY, agent("b", "reclaiming-rebooting", stage=LATE), True),
        # Who was refused because of the others does not keep them; who failed may be booted by a person.
        (
            agent("a", "unbinding-pending-user-action", created=EARLY, reason="QuorumLost", asked="1"),
            agent("b", "unbinding-pending-user-action", created=LATE, reason="QuorumLost"),
            False,
        ),
        (INSTALLED_FIRST, agent("b", "unbinding-pending-user-action", created=LATE, reason="NoSpace"), True),
    ],
)
def test_who_leaves_a_cluster_first_is_not_kept_by_who_comes_later(one: Agent, other: Agent, counted: bool) -> None:
    found = find_leaving([one, other], host_of(one), ALLOWED)
    assert dict(found.agents) == ({other.metadata.name: f"hosts/{other.metadata.name}"} if counted else {})


@pytest.mark.parametrize(("first", "second"), [("m-1", "m-2"), ("m-2", "m-1")])
@pytest.mark.parametrize("together", [True, False])
def test_of_two_control_planes_one_goes_and_the_other_is_refused_by_its_name(
    first: str, second: str, together: bool
) -> None:
    """Of three, both unbound at once; or the second while the node of the first is being emptied."""
    nodes = {name: replace(NODE, name=name, control_plane=True) for name in ("m-1", "m-2", "m-3")}
    going = (
        agent(first, "installed", created=EARLY) if together else agent(first, "reclaiming", stage=EARLY, pinned=True)
    )
    agents = [going, agent(second, "installed", created=LATE)]

    def decided(number: int) -> actions.Decision:
        own = host_of(agents[number])
        assert own.previous is not None
        counted = control_plane_without(own.previous.node, nodes.values(), find_leaving(agents, own, ALLOWED))
        found = spoke(node=known(nodes[own.previous.node]), control_plane=known(counted))
        there = replace(own, since=NOW - 10, spoke=found, artifacts=host().artifacts, system_uuid=NODE.system_uuid)
        return decide(replace(there, pinned=pin_node(EARLY, NODE)), replace(POLICY, drain=emptying.Policy()), NOW)

    (goes,) = decided(0).actions
    if together:
        assert isinstance(goes, Enter)
        assert goes.reason == "Reclaiming"
    else:
        assert goes == Hold(nodes[first])
    (stays,) = decided(1).actions
    assert isinstance(stays, Enter)
    assert stays.reason == "QuorumLost"
    assert f"Before it leaves hosts/{first}." in stays.message


# -- whatever is not known


@settings(max_examples=examples(200))
@given(hosts, st.booleans())
def test_nothing_is_begun_removed_or_forgotten_on_what_is_not_known(found: Host, remove_node: bool) -> None:
    decision = decide(found, replace(POLICY, remove_node=remove_node), NOW)
    assert decision.why
    for action in decision.actions:
        if isinstance(action, Enter):
            assert found.state in action.transition.sources
            assert action.message
            if action.transition in (model.RECLAIM, model.RETRY):
                facts = (found.spoke.kubeconfig, found.spoke.node, found.artifacts)
                assert all(isinstance(fact, Known) and fact.value for fact in facts)
                assert found.previous is not None
                assert found.bound is None
                assert found.reason not in model.UNCONFIRMED
        if isinstance(action, Deploy):
            assert found.state == State.RECLAIMING
            assert found.pinned == pin_node(found.stage, action.node)
        if isinstance(action, NoteCluster):
            assert found.previous in (None, action.cluster) or found.reason == "Registered"
        if isinstance(action, Deploy | RemoveNode):
            assert found.spoke.node == known(action.node)
        if isinstance(action, RemoveNode):
            assert remove_node
            assert model.is_unbound(found.state)
            assert not action.node.ready
            assert not action.node.control_plane
        if isinstance(action, ForgetCluster):
            nothing_left = found.spoke.remains == known(frozenset()) or found.spoke.kubeconfig == known(False)
            assert nothing_left
            assert model.is_unbound(found.state)
        if isinstance(action, RemoveFinalizer):
            gone = found.spoke.remains == known(frozenset()) or found.spoke.kubeconfig == known(False)
            assert gone or found.previous is None
        if isinstance(action, Withdraw):
            assert found.state not in model.UNDER_WAY or found.deleted
            assert isinstance(found.spoke.remains, Known)


# -- stopped after every action


@dataclass
class World:
    """One Agent, one old cluster and one host, changed only by actions and by the host itself."""

    agent: Host
    deployed: bool = False
    node: SpokeNode | None = NODE
    now: float = NOW
    stages: int = 0
    pods: int = 2
    drains: bool = False

    def seen(self) -> Host:
        remains = frozenset({DAEMON_SET}) if self.deployed else frozenset()
        return replace(
            self.agent, spoke=replace(spoke(node=known(self.node), remains=known(remains)), drain=self._drain())
        )

    def _drain(self) -> emptying.Decision:
        if self.pods:
            pods = (emptying.Evict("apps", f"pod-{self.pods}", "u", "it has to go"),)
            return emptying.Decision(emptying.State.DRAINING, pods, f"{self.pods} pods are left.", None)
        return emptying.Decision(emptying.State.DRAINED, (), "It is empty.", None)

    def act(self, action: actions.Action) -> bool:
        """Whether it changed anything."""
        before = (self.agent, self.deployed, self.node, self.pods)
        match action:
            case NoteCluster(cluster):
                self.agent = replace(self.agent, previous=cluster)
            case Enter(transition, reason, _):
                self.stages += 1
                stage = f"S{self.stages}"
                self.agent = replace(
                    self.agent, state=transition.target, stage=stage, since=self.now, reason=reason, waiting_since=None
                )
            case SetCondition(reason, _):
                self.agent = replace(self.agent, reason=reason)
            case Hold(node):
                self.node = replace(node, held=True)
            case Release(node):
                self.node = replace(node, held=False)
            case Evict(pods):
                self.pods -= len(pods)
            case AddFinalizer(pinned):
                self.agent = replace(self.agent, kept=True, pinned=pinned)
            case RemoveFinalizer():
                assert not self.deployed
                self.agent = replace(self.agent, kept=False)
            case ClearCancel():
                self.agent = replace(self.agent, cancelled=False)
            case Deploy():
                assert self.agent.kept
                assert self.pods == 0 or not self.drains
                self.deployed = True
            case Withdraw():
                self.deployed = False
            case RemoveNode():
                self.node = None
            case ForgetCluster():
                self.agent = replace(self.agent, previous=None)
            case AnswerRetry(request):
                self.agent = replace(self.agent, retried=request)
        return before != (self.agent, self.deployed, self.node, self.pods)

    def answer(self, exit_code: int, reason: str = "") -> None:
        """The agent on the node answers the step of this stage, if it is there to be asked."""
        if self.deployed:
            step = step_id(self.agent.uid, self.agent.state, self.agent.stage)
            self.agent = replace(self.agent, report=Report(step, exit_code, find_cause(reason), "said by the agent"))


def settle(world: World, policy: Policy, stop_after: int | None = None) -> None:
    """Passes until one changes nothing. With `stop_after`, the operator dies after so many actions and starts anew."""
    done = 0
    for _ in range(50):
        changed = False
        for action in decide(world.seen(), policy, world.now).actions:
            changed |= world.act(action)
            done += 1
            if done == stop_after:
                changed = True
                break
        if not changed:
            return
    raise AssertionError(f"it does not come to rest: {world}")


STORIES = (
    "registers",
    "deleted",
    "download fails",
    "boots back",
    "never comes back",
    "cancelled",
    "bound again",
    "silent",
)


@pytest.mark.parametrize("story", STORIES)
@pytest.mark.parametrize("stop", [None, 1, 2, 3])
@pytest.mark.parametrize("remove_node", [False, True])
@pytest.mark.parametrize("drains", [False, True])
def test_every_story_ends_and_leaves_nothing_behind(
    story: str, stop: int | None, remove_node: bool, drains: bool
) -> None:
    policy = replace(POLICY, remove_node=remove_node, drain=emptying.Policy() if drains else None)
    world = World(host(bound=("spoke-ns", "spoke"), previous=None), drains=drains)
    settle(world, policy, stop)
    world.agent = replace(world.agent, bound=None)
    settle(world, policy, stop)
    assert (world.agent.state, world.deployed) == (State.RECLAIMING, True)
    expected = State.PENDING
    if story == "cancelled":
        world.agent = replace(world.agent, cancelled=True)
    elif story == "bound again":
        world.agent = replace(world.agent, bound=("spoke-ns", "spoke"))
        expected = State.INSTALLED
    elif story == "deleted":
        world.agent = replace(world.agent, deleted=True)
        expected = State.RECLAIMING
    elif story == "silent":
        world.now += 3600
    elif story == "download fails":
        world.answer(1, "NoSpace")
    else:
        world.answer(0)
        settle(world, policy, stop)
        assert (world.agent.state, world.deployed) == (State.REBOOTING, True)
        if story == "boots back":
            world.answer(1, "BootedBack")
        elif story == "never comes back":
            world.now += 1800
        else:
            assert world.node is not None
            world.node = replace(world.node, ready=False)
            world.agent = replace(world.agent, registration=stage_key(world.agent.state, world.agent.stage))
            expected = State.DISCOVERING
    settle(world, policy, stop)
    assert (world.agent.state, world.deployed) == (expected, False)
    assert (world.agent.previous is None) == (expected is State.DISCOVERING)
    assert (world.node is None) == (remove_node and expected is State.DISCOVERING)
    assert world.node is None or not world.node.held
    assert not world.agent.cancelled
    assert not world.agent.kept
    # The second look writes nothing.
    assert not any(world.act(action) for action in decide(world.seen(), policy, world.now).actions)


@pytest.mark.parametrize(
    ("state", "transition"),
    [
        (emptying.State.DEADLINE_PASSED, ("ReclaimFailed", "DrainFailed")),
        (emptying.State.REFUSED, ("ReclaimFailed", "DrainFailed")),
    ],
)
def test_a_node_that_cannot_be_emptied_is_not_restarted(state: emptying.State, transition: tuple[str, str]) -> None:
    held = replace(NODE, held=True)
    stuck = replace(spoke(node=known(held)), drain=emptying.Decision(state, (), "web-1 does not go.", None))
    asked = replace(POLICY, drain=emptying.Policy())
    assert entered(host(State.RECLAIMING, kept=True, pinned=pin_node("T0", held), spoke=stuck), asked) == transition
    unknown = replace(stuck, drain=emptying.Decision(emptying.State.UNKNOWN, (), "The pods are not known.", None))
    assert (
        decide(host(State.RECLAIMING, kept=True, pinned=pin_node("T0", held), spoke=unknown), asked, NOW).actions == ()
    )
    assert (
        decide(
            host(State.RECLAIMING, kept=True, pinned=pin_node("T0", held), spoke=replace(stuck, drain=None)), asked, NOW
        ).actions
        == ()
    )


def test_cancelled_before_it_began_nothing_begins() -> None:
    assert entered(host(cancelled=True)) == ("UnbindHost", "Cancelled")
    heard = decide(host(State.PENDING, cancelled=True), POLICY, NOW)
    assert heard.actions == (ClearCancel(),)


def test_a_retry_begins_without_what_the_last_attempt_left() -> None:
    left = host(State.PENDING, retry="1", spoke=spoke(remains=known(frozenset({DAEMON_SET}))))
    assert decide(left, POLICY, NOW).actions == (Withdraw(),)


def test_what_was_not_verified_is_on_the_condition() -> None:
    done = replace(report(State.RECLAIMING, 0), message="Not verified: kernel.")
    assert decide(host(State.RECLAIMING, report=done), POLICY, NOW).why.endswith(
        'restarted into it. Its agent reports: "Not verified: kernel."'
    )
    done = replace(done, message="")
    assert decide(host(State.RECLAIMING, report=done), POLICY, NOW).why.endswith("restarted into it.")


def test_a_failed_reclaim_is_tried_again_once_per_request() -> None:
    world = World(host(State.PENDING, reason="NoSpace", retry="first"))
    settle(world, POLICY)
    assert (world.agent.state, world.deployed) == (State.RECLAIMING, True)
    world.answer(1, "NoSpace")
    settle(world, POLICY)
    assert (world.agent.state, world.deployed) == (State.PENDING, False)


# -- what explain shows


def outcomes(found: Host) -> list[tuple[str, str]]:
    thought = Seen(found, decide(found, POLICY, NOW), NOW)
    return [(one.name, one.outcome) for one in rules_of(thought, POLICY)]


def test_every_rule_is_shown_until_one_does_not_hold() -> None:
    assert outcomes(host()) == [(rule.name, "holds") for rule in RULES]
    assert outcomes(host(spoke=in_control_plane(1, 0)))[-1] == ("the control plane keeps its quorum", "does not hold")
    assert outcomes(host(spoke=in_control_plane(3, 2, "w")))[-1] == ("workers first", "does not hold")
    assert outcomes(host(spoke=spoke(node=GONE)))[-1] == ("the node is there", "unknown")
    assert outcomes(host(previous=None))[-1] == ("the old cluster is known", "does not hold")


def test_the_old_cluster_is_asked_only_where_a_decision_needs_it() -> None:
    assert not needs_spoke(host(bound=("spoke-ns", "spoke")))
    assert not needs_spoke(host(State.REBOOTING))
    assert not needs_spoke(host(previous=None))
    assert needs_spoke(host())
    assert needs_spoke(host(bound=("spoke-ns", "spoke"), reason="Cancelled"))
    assert needs_spoke(host(bound=("spoke-ns", "spoke"), kept=True))
    assert needs_spoke(host(State.REBOOTING, deleted=True, kept=True))
    assert all(needs_spoke(host(state)) for state in (State.RECLAIMING, State.PENDING, State.DISCOVERING))


# -- the table


def test_the_table_has_one_target_for_each_name_and_the_published_words() -> None:
    assert len({one.name for one in model.TRANSITIONS}) == len(model.TRANSITIONS)
    assert {str(state) for state in State} == {
        "installed", "added-to-existing-cluster", "reclaiming", "reclaiming-rebooting",
        "unbinding-pending-user-action", "unbinding", "discovering-unbound", "known-unbound", "disconnected-unbound",
        "insufficient-unbound", "disabled-unbound",
    }  # fmt: skip


@pytest.mark.parametrize("state", ["insufficient-unbound", "disabled-unbound", "some-later-unbound"])
def test_a_host_in_any_unbound_state_is_in_discovery(state: str) -> None:
    """What assisted-service finds out about a host in discovery does not keep our objects in its old cluster."""
    at: Any = state
    left = decide(host(at, spoke=spoke(remains=known(frozenset({DAEMON_SET})))), POLICY, NOW)
    assert Withdraw() in left.actions
    assert ForgetCluster() in decide(host(at), POLICY, NOW).actions
    (action,) = decide(host(at, registration=stage_key(state, "T0")), POLICY, NOW).actions
    assert isinstance(action, Enter)
    assert action.transition == model.REGISTER
