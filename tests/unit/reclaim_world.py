"""Hosts on their way back to discovery: one that nothing speaks against, and any others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from hostler.host.facts import Fact, Known, Unknown
from hostler.reclaim.artifacts import Artifacts
from hostler.reclaim.model import (
    Cluster,
    ControlPlane,
    Host,
    Policy,
    Reason,
    Report,
    Spoke,
    SpokeNode,
    SpokeObject,
    State,
    find_cause,
    pin_node,
    stage_key,
    step_id,
)

NOW = 1_000_000.0
POLICY = Policy(hub_url="https://hub.example", image="agent:1")
NODE = SpokeNode("worker-1", "uid-1", "0c1a9d3e-0001-4000-8000-000000000001", "boot-1", False, "", True)
DAEMON_SET = SpokeObject("daemonsets", "worker-1-reclaim")
PREVIOUS = Cluster("spoke-ns", "spoke", "worker-1")
PINNED = pin_node("T0", NODE)
GONE = Unknown("the cluster does not answer")


def known(value: Any) -> Known[Any]:
    return Known(value, NOW)


def spoke(
    kubeconfig: Fact[bool] = known(True),
    node: Fact[SpokeNode | None] = known(NODE),
    control_plane: Fact[ControlPlane] = known(ControlPlane(3, 2)),
    remains: Fact[frozenset[SpokeObject]] = known(frozenset()),
    reach: Fact[bool] = known(True),
) -> Spoke:
    return Spoke(kubeconfig, node, control_plane, remains, reach=reach)


def in_control_plane(total: int, staying: int, *workers: str) -> Spoke:
    return spoke(
        node=known(replace(NODE, control_plane=True)), control_plane=known(ControlPlane(total, staying, workers))
    )


def host(state: State = State.INSTALLED, **more: Any) -> Host:
    fields: dict[str, Any] = {
        "name": "agent-1",
        "uid": "u-1",
        "state": state,
        "stage": "T0",
        "since": NOW - 10,
        "bound": None,
        "previous": PREVIOUS,
        "hostname": "worker-1",
        "namespace": "spoke-ns",
        "system_uuid": NODE.system_uuid,
        "artifacts": known(Artifacts("https://a/k", "https://a/i", "https://a/r")),
        "spoke": spoke(),
        **more,
    }
    return Host(**fields)


def report(state: State, exit_code: int, reason: str = "", stage: str = "T0") -> Report:
    return Report(step_id("u-1", state, stage), exit_code, find_cause(reason), "a sentence")


facts_of_nodes = st.sampled_from(
    [
        GONE,
        known(None),
        known(NODE),
        known(replace(NODE, held=True)),
        known(replace(NODE, control_plane=True)),
        known(replace(NODE, ready=False)),
        known(replace(NODE, control_plane=True, ready=False)),
    ]
)
hosts = st.builds(
    host,
    state=st.sampled_from([*State]),
    stage=st.sampled_from(["T0", "T1", ""]),
    since=st.sampled_from([None, NOW, NOW - 4000]),
    bound=st.sampled_from([None, ("spoke-ns", "spoke"), ("x", "y")]),
    previous=st.sampled_from([None, PREVIOUS]),
    hostname=st.sampled_from(["", "worker-1"]),
    cancelled=st.booleans(),
    kept=st.booleans(),
    deleted=st.booleans(),
    retry=st.sampled_from(["", "1"]),
    reason=st.sampled_from([None, Reason.CANCELLED, Reason.DECIDING, Reason.REGISTERED, Reason.NOTE_NOT_CONFIRMED]),
    pinned=st.sampled_from([None, PINNED]),
    registration=st.sampled_from(["", *(stage_key(state, "T0") for state in State)]),
    report=st.sampled_from([None, *(report(s, c) for s in (State.RECLAIMING, State.REBOOTING) for c in (0, 1))]),
    waiting_since=st.sampled_from([None, NOW, NOW - 700]),
    artifacts=st.sampled_from([GONE, known(None), known(Artifacts("https://a/k", "https://a/i", "https://a/r"))]),
    spoke=st.builds(
        spoke,
        kubeconfig=st.sampled_from([GONE, known(True), known(False)]),
        node=facts_of_nodes,
        control_plane=st.sampled_from([GONE, known(ControlPlane(1, 0)), known(ControlPlane(3, 2))]),
        remains=st.sampled_from([GONE, known(frozenset()), known(frozenset({SpokeObject("secrets", "x")}))]),
    ),
)
