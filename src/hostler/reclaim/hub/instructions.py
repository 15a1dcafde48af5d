"""What an agent is told, and what its answers and registrations become. From the Agent object alone. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from hostler.apis.assisted import GROUP, INFRA_ENV_LABEL, Agent, InfraEnv
from hostler.reclaim.artifacts import HASHED, BootPolicy, is_accepted
from hostler.reclaim.facts import (
    PROGRESS,
    REGISTRATION,
    REPORT,
    ReportNote,
    artifacts_of,
    dump_json,
    hashes_of,
    host_of,
)
from hostler.reclaim.model import UNDER_WAY, CalledOff, Reason, State, StepFailure, find_called_off, stage_key, step_id
from hostler.reclaim.quoting import clean_text

# The agent's own names of them are in agent/steps.py, which imports nothing of ours; a test keeps them equal.
DOWNLOAD, REBOOT, PROGRESS_STEP = "download-boot-artifacts", "reboot-for-reclaim", "progress"
MOUNT = "/host"
STAGE_LIMIT = 60
_STEPS = {State.RECLAIMING: DOWNLOAD, State.REBOOTING: REBOOT}


class Reply(msgspec.Struct, frozen=True):
    """The body of an agent's POST. Anything else in it is ignored; anything wrong in it is refused."""

    step_type: str
    step_id: str
    exit_code: int = 0
    output: str = ""
    error: str = ""


class Registration(msgspec.Struct, frozen=True):
    host_id: str
    discovery_agent_version: str = ""


class _Output(msgspec.Struct, frozen=True):
    reason: str = ""
    stage: str = ""
    percent: int = 0
    unverified: tuple[str, ...] = ()  # artifacts whose hash is not known
    falls_back: bool = True  # the boot after discovery is the installed system's
    lasts: str = ""  # why not


def make_instructions(
    agent: Agent, infra_env: InfraEnv, boot: BootPolicy, served: Mapping[str, str] | None = None, mount: str = MOUNT
) -> dict[str, Any]:
    """The answer to an agent that asks what to do: one step of its stage, or nothing and the end.

    The InfraEnv may have changed since the reclaim began, so what it has its hosts boot is judged here once more.

    `served` are the artifacts this hub has itself, by name, and beside them their hashes, as `kernel_sha256` and
    `initrd_sha256`; for others the InfraEnv's own addresses are given, and hashes where its owner wrote them down.
    """
    state = agent.status.debug_info.state
    if state == State.RECLAIMING:
        found = artifacts_of(infra_env, served)
        if found is None or not is_accepted(found, boot):  # since it began: ask again, the stage's time is bounded
            return {"next_instruction_seconds": 60, "post_step_action": "continue", "instructions": []}
        arguments: dict[str, Any] = {
            "kernel_url": found.kernel,
            "initrd_url": found.initrd,
            "rootfs_url": found.rootfs,
            "host_fs_mount_dir": mount,
        }
        arguments |= hashes_of(infra_env, served)
        if found.arguments:
            arguments["kernel_arguments"] = [
                {"operation": argument.operation, "value": argument.value} for argument in found.arguments
            ]
        return _make_answer(60, "continue", _make_step(agent, DOWNLOAD, arguments))
    if state == State.REBOOTING and find_called_off(host_of(agent)) is None:
        return _make_answer(120, "exit", _make_step(agent, REBOOT, {"host_fs_mount_dir": mount}))
    return _make_answer(60, "exit")


def _render_called_off(agent: Agent, why: CalledOff) -> str:
    bound = agent.spec.cluster_deployment_name
    sentences = {
        CalledOff.DELETED: "The Agent is deleted",
        CalledOff.BOUND: f"It was bound to {bound.name if bound is not None else ''}",
        CalledOff.CANCELLED: "It was cancelled by annotation",
    }
    return f"{sentences[why]}; its agent was told to end and to take the discovery entry back."


def note_withheld(agent: Agent) -> dict[str, str]:
    """Annotations of a restart that its agent asked for and was not given: the stage ends with that."""
    state, why = agent.status.debug_info.state, find_called_off(host_of(agent))
    if state != State.REBOOTING or why is None:
        return {}
    step = step_id(agent.metadata.uid, state, agent.status.progress.stage_start_time)
    message = _render_called_off(agent, why)
    return _only_new(agent, {REPORT: dump_json(ReportNote(step, 1, Reason.CANCELLED, message))})


def note_reply(agent: Agent, reply: Reply) -> dict[str, str]:
    """Annotations that an agent's answer becomes; empty where it answers no step of this stage, or says nothing new."""
    state = agent.status.debug_info.state
    expected = step_id(agent.metadata.uid, state, agent.status.progress.stage_start_time)
    if state not in UNDER_WAY or reply.step_id != expected:
        return {}
    try:
        output = msgspec.json.decode(reply.output or "{}", type=_Output)
    except (msgspec.DecodeError, RecursionError):
        output = _Output()
    if reply.step_type == PROGRESS_STEP:
        percent = min(100, max(0, output.percent))
        return _only_new(agent, {PROGRESS: f"{clean_text(output.stage, STAGE_LIMIT)} {percent}%"})
    if reply.step_type != _STEPS[State(state)]:
        return {}
    # That a host restarts is no end, only too late to call it off: a registration, a failure or the time ends it.
    reason = output.reason if output.reason in tuple(StepFailure) else ""
    message = clean_text(reply.error) if reply.exit_code else _describe_unverified(output)
    lasts = "" if output.falls_back or reply.exit_code else clean_text(output.lasts) or "its agent did not say why"
    return _only_new(agent, {REPORT: dump_json(ReportNote(expected, reply.exit_code, reason, message, lasts))})


def _describe_unverified(output: _Output) -> str:
    """What there is to say of a step that went well."""
    names = " and ".join(name for name in HASHED if name in output.unverified)
    return f"Not verified: {names}, because no hash of it is known (docs/reclaim.md)." if names else ""


def note_registration(agent: Agent) -> dict[str, str]:
    """The annotation a registration becomes: it counts for the stage in which it came."""
    return _only_new(
        agent, {REGISTRATION: stage_key(agent.status.debug_info.state, agent.status.progress.stage_start_time)}
    )


def new_agent(host: str, infra_env: str) -> dict[str, Any]:
    """An Agent for an unknown host: in discovery, not approved. The published definition requires both fields."""
    return {
        "metadata": {"name": host, "labels": {INFRA_ENV_LABEL: infra_env, f"{GROUP}/discovered": "true"}},
        "spec": {"approved": False, "role": "auto-assign"},
    }


def _only_new(agent: Agent, annotations: dict[str, str]) -> dict[str, str]:
    """Only what is not there yet: an answer that comes twice is written once."""
    there = agent.metadata.annotations
    return {name: value for name, value in annotations.items() if there.get(name) != value}


def _make_step(agent: Agent, kind: str, arguments: dict[str, Any]) -> dict[str, Any]:
    status = agent.status
    return {
        "step_type": kind,
        "step_id": step_id(agent.metadata.uid, status.debug_info.state, status.progress.stage_start_time),
        "args": [dump_json(arguments)],
    }


def _make_answer(seconds: int, action: str, *steps: dict[str, Any]) -> dict[str, Any]:
    return {"next_instruction_seconds": seconds, "post_step_action": action, "instructions": list(steps)}
