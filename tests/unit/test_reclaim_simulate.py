"""What `hostler plan agent/NAME` shows is the operator's own decision, run forward until nothing is left to do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from hostler.apis.assisted import Agent
from hostler.drain import model as drain
from hostler.reclaim import model
from hostler.reclaim.decide import decide
from hostler.reclaim.decision import Enter, Seen
from hostler.reclaim.explain import render_ending, show_actions, show_steps
from hostler.reclaim.facts import CANCEL, CONFIRM, FINALIZER, MANAGED_BY, REGISTRATION, RETRIED, RETRY, host_of
from hostler.reclaim.facts import (
    PINNED as NODE_NOTE,
)
from hostler.reclaim.model import UNASKED, Cluster, Host, Policy, Reason, State, is_unbound
from hostler.reclaim.simulate import Ending, Forecast, Happening, apply_to_agent, simulate
from hostler.reclaim.status import notes_patch, status_patch
from tests.sizes import examples
from tests.unit.reclaim_world import (
    DAEMON_SET,
    GONE,
    NODE,
    NOW,
    PINNED,
    POLICY,
    host,
    hosts,
    in_control_plane,
    known,
    report,
    spoke,
)

DRAIN = drain.Policy()
policies = st.builds(
    replace,
    st.just(POLICY),
    remove_node=st.booleans(),
    drain=st.sampled_from([None, DRAIN, replace(DRAIN, timeout=None)]),
    hub_url=st.sampled_from(["", "https://hub.example"]),
)
drains = st.sampled_from(
    [None, *(drain.Decision(state, (), "It is so.", None) for state in drain.State)],
)


# Hosts that nothing but one of these speaks against: they get further than most of the others.
LASTING = replace(report(State.RECLAIMING, 0), lasts="GRUB cannot write")
likely = st.builds(
    host,
    state=st.sampled_from([*State]),
    bound=st.sampled_from([None, None, ("spoke-ns", "spoke")]),
    kept=st.booleans(),
    pinned=st.sampled_from([None, PINNED]),
    report=st.sampled_from([None, None, LASTING, report(State.REBOOTING, 0)]),
    reason=st.sampled_from([None, *Reason]),
)


@st.composite
def worlds(draw: st.DrawFn) -> Host:
    """Any host, with any drain under way."""
    found: Host = draw(st.one_of(hosts, likely))
    return replace(found, spoke=replace(found.spoke, drain=draw(drains)))


def course(forecast: Forecast) -> list[str]:
    """Its steps, each by one word."""
    found = []
    for step in forecast.steps:
        what = step.what
        found.append(
            what.transition.name if isinstance(what, Enter)
            else str(what) if isinstance(what, Happening) else type(what).__name__
        )  # fmt: skip
    return found


BEGUN = ["ReclaimHost", "AddFinalizer"]
RETURNED = ["Deploy", "agent-downloads", "RebootingForReclaim", "host-restarts", "host-registers", "RegisterHost"]
DONE = ["ForgetCluster", "RemoveFinalizer"]
STUCK = drain.Decision(drain.State.BLOCKED, (), "A budget keeps web-1.", None)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (POLICY, [*BEGUN, *RETURNED, "Withdraw", *DONE]),
        (
            replace(POLICY, remove_node=True),
            [*BEGUN, *RETURNED, "Withdraw", "RemoveNode", *DONE],
        ),
        (
            replace(POLICY, drain=DRAIN),
            [*BEGUN, "Hold", "pods-end", *RETURNED, "Withdraw", "Release", *DONE],
        ),
    ],
)
def test_a_plan_shows_every_step_to_discovery(policy: Policy, expected: list[str]) -> None:
    forecast = simulate(host(), policy, NOW)
    assert course(forecast) == expected
    assert (forecast.ending, forecast.cause) == (Ending.DISCOVERED, Reason.REGISTERED)
    assert forecast.last.actions == ()


@pytest.mark.parametrize(
    ("found", "policy", "ending", "cause"),
    [
        (host(spoke=in_control_plane(1, 0)), POLICY, Ending.LEFT_TO_PEOPLE, Reason.LAST_CONTROL_PLANE),
        (host(spoke=spoke(node=GONE)), POLICY, Ending.LEFT_TO_PEOPLE, Reason.SPOKE_UNREACHABLE),
        (host(spoke=in_control_plane(3, 2, "worker-2")), POLICY, Ending.DISCOVERED, Reason.REGISTERED),
        (host(bound=("spoke-ns", "spoke")), POLICY, Ending.IN_ITS_CLUSTER, None),
        (host(State.RECLAIMING, spoke=spoke(node=GONE)), POLICY, Ending.LEFT_TO_PEOPLE, Reason.TIMED_OUT),
        (host(State.RECLAIMING, bound=("spoke-ns", "spoke")), POLICY, Ending.IN_ITS_CLUSTER, Reason.REBOUND),
        (host(State.REBOOTING, cancelled=True), POLICY, Ending.LEFT_TO_PEOPLE, Reason.CANCELLED),
        (host(State.UNBINDING), POLICY, Ending.NOT_OURS, None),
        (host(State.RECLAIMING, kept=True, deleted=True), POLICY, Ending.DELETED, None),
        (
            host(
                State.RECLAIMING, kept=True, pinned=PINNED,
                spoke=replace(spoke(node=known(replace(NODE, held=True))), drain=STUCK),
            ),
            replace(POLICY, drain=DRAIN), Ending.LEFT_TO_PEOPLE, Reason.DRAIN_FAILED,
        ),
    ],
)  # fmt: skip
def test_a_plan_ends_where_the_facts_lead(found: Host, policy: Policy, ending: Ending, cause: Reason | None) -> None:
    forecast = simulate(found, policy, NOW)
    assert (forecast.ending, forecast.cause) == (ending, cause), course(forecast)
    assert (str(cause) in render_ending(forecast)) == (ending is Ending.LEFT_TO_PEOPLE)


def test_a_restart_that_nobody_looked_behind_ends_well() -> None:
    """While a host restarts its old cluster is not asked: what was put there is taken back afterwards."""
    blank = model.Spoke(UNASKED, UNASKED, UNASKED, UNASKED)
    found = host(State.REBOOTING, kept=True, pinned=PINNED, spoke=blank)
    forecast = simulate(found, replace(POLICY, remove_node=True), NOW)
    assert course(forecast) == [*RETURNED[3:], "Withdraw", "RemoveNode", *DONE]


@settings(max_examples=examples(300))
@given(worlds(), policies)
@example(host(State.RECLAIMING, report=LASTING), POLICY)
def test_explain_and_plan_begin_with_what_is_decided(found: Host, policy: Policy) -> None:
    decision = decide(found, policy, NOW)
    forecast = simulate(found, policy, NOW)
    assert tuple(step.what for step in forecast.steps[: len(decision.actions)]) == decision.actions
    explained, planned = show_actions(Seen(found, decision, NOW), "paused"), show_steps(found, forecast, "paused")
    assert planned[: len(explained)] == explained
    assert len(explained) == len(decision.actions)
    assert all(one.held_back == "paused" for one in explained)


@settings(max_examples=examples(300))
@given(worlds(), policies)
def test_a_simulated_reclaim_ends_in_discovery_or_with_a_reason(found: Host, policy: Policy) -> None:
    forecast = simulate(found, policy, NOW)
    event(forecast.ending)
    assert forecast.ending is not Ending.OPEN, course(forecast)
    assert render_ending(forecast)
    moved = any(isinstance(step.what, Enter) for step in forecast.steps)
    if forecast.ending is Ending.LEFT_TO_PEOPLE:
        assert forecast.cause is not None or not moved
    if forecast.ending is Ending.DISCOVERED:
        assert is_unbound(found.state) or "RegisterHost" in course(forecast)
    if forecast.ending is Ending.IN_ITS_CLUSTER:
        assert found.bound is not None
    if forecast.ending is Ending.NOT_OURS:
        assert found.state == State.UNBINDING
    for step in forecast.steps:
        assert isinstance(step.what, Happening) or step.what in step.decision.actions


# -- what is written on the Agent


def agent_from(found: Host) -> Agent:
    """An Agent that reads like this host."""
    annotations = {
        CONFIRM: f"{found.previous.namespace}/{found.previous.name}" if found.previous is not None else "x/y",
        MANAGED_BY: "machine-1", CANCEL: "yes" if found.cancelled else "", RETRY: found.retry, RETRIED: found.retried,
        NODE_NOTE: str(found.pinned) if found.pinned is not None else "", REGISTRATION: found.registration,
    }  # fmt: skip
    was: Cluster | None = found.previous
    status: dict[str, Any] = {"debugInfo": {"state": found.state}, "progress": {"stageStartTime": found.stage}}
    if was is not None:
        status["deprovision_info"] = {
            "cluster_namespace": was.namespace, "cluster_name": was.name, "node_name": was.node,
        }  # fmt: skip
    if found.reason is not None:
        waiting = "Unknown" if found.reason == Reason.DECIDING else "False"
        since = "1970-01-10T00:00:00Z"
        condition = {"type": "Reclaimed", "status": waiting, "reason": found.reason, "lastTransitionTime": since}
        status["conditions"] = [condition]
    body = {
        "metadata": {
            "name": found.name, "namespace": found.namespace, "uid": found.uid,
            "annotations": {name: value for name, value in annotations.items() if value},
            "finalizers": [FINALIZER] if found.kept else [],
            "deletionTimestamp": "2026-01-01T00:00:00Z" if found.deleted else "",
        },
        "spec": {"hostname": found.hostname},
        "status": status,
    }  # fmt: skip
    if found.bound is not None:
        body["spec"] = {
            "hostname": found.hostname,
            "clusterDeploymentName": {"namespace": found.bound[0], "name": found.bound[1]},
        }
    return msgspec.convert(body, Agent)


def merged(before: Any, patch: Any) -> Any:
    """As the API server merges a patch."""
    if not isinstance(patch, dict):
        return patch
    found = dict(before) if isinstance(before, dict) else {}
    for name, value in patch.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = merged(found.get(name), value)
    return found


@settings(max_examples=examples(300))
@given(worlds(), policies)
@example(host(bound=("spoke-ns", "spoke"), reason=Reason.NOTE_NOT_CONFIRMED), POLICY)
def test_what_is_simulated_on_the_agent_is_what_is_written(found: Host, policy: Policy) -> None:
    before = agent_from(found)
    read = replace(host_of(before), spoke=found.spoke, artifacts=found.artifacts, system_uuid=found.system_uuid)
    actions = decide(read, policy, NOW).actions
    body = msgspec.to_builtins(before)
    for patch in (status_patch(before, actions, NOW), notes_patch(before, actions)):
        body = merged(body, patch or {})
    after = read
    for action in actions:
        event(type(action).__name__)
        after = apply_to_agent(after, action, NOW)
    written = host_of(msgspec.convert(body, Agent))
    assert replace(written, spoke=read.spoke, artifacts=read.artifacts, system_uuid=read.system_uuid) == after


def test_an_agent_that_is_deployed_is_not_put_there_twice() -> None:
    there = spoke(remains=known(frozenset({DAEMON_SET})))
    found = host(State.RECLAIMING, kept=True, pinned=PINNED, spoke=there)
    assert course(simulate(found, POLICY, NOW)).count("Deploy") == 1
