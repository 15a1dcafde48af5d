"""What an agent is told, and what its answers and registrations become. Pure: from the Agent object alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from hostler.reclaim.model import UNDER_WAY, State, stage_key, step_id
from hostler.reclaim.objects import (
    GROUP,
    INFRA_ENV_LABEL,
    PROGRESS,
    REGISTRATION,
    REPORT,
    Agent,
    InfraEnv,
    ReportNote,
    artifacts_of,
    dump,
)

# The agent's own words for them are in agent/steps.py, which imports nothing of ours; a test keeps them equal.
DOWNLOAD, REBOOT, PROGRESS_STEP = "download-boot-artifacts", "reboot-for-reclaim", "progress"
MOUNT = "/host"
MESSAGE_LIMIT, REASON_LIMIT = 800, 60
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


def instructions(
    agent: Agent, infra_env: InfraEnv, served: Mapping[str, str] | None = None, mount: str = MOUNT
) -> dict[str, Any]:
    """The answer to an agent that asks what to do: one step of its stage, or nothing and the end.

    `served` are the artifacts this hub has itself, by name; for others the InfraEnv's own addresses are given. Beside
    them may stand their hashes, as `kernel_sha256` and `initrd_sha256`.
    """
    state = agent.status.debug_info.state
    if state == State.RECLAIMING:
        found = artifacts_of(infra_env, served)
        if found is None:  # taken away meanwhile: ask again, the stage's time is bounded
            return {"next_instruction_seconds": 60, "post_step_action": "continue", "instructions": []}
        arguments: dict[str, Any] = {
            "kernel_url": found.kernel,
            "initrd_url": found.initrd,
            "rootfs_url": found.rootfs,
            "host_fs_mount_dir": mount,
        }
        arguments |= {name: value for name, value in (served or {}).items() if name.endswith("_sha256")}
        kernel_arguments = infra_env.spec.kernel_arguments
        if kernel_arguments:
            arguments["kernel_arguments"] = [
                {"operation": one.operation, "value": one.value} for one in kernel_arguments
            ]
        return _answer(60, "continue", _step(agent, DOWNLOAD, arguments))
    if state == State.REBOOTING:
        return _answer(120, "exit", _step(agent, REBOOT, {"host_fs_mount_dir": mount}))
    return _answer(60, "exit")


def noted(agent: Agent, reply: Reply) -> dict[str, str]:
    """Annotations that an agent's answer becomes; empty where it answers no step of this stage, or says nothing new."""
    state = agent.status.debug_info.state
    expected = step_id(agent.metadata.uid, state, agent.status.progress.stage_start_time)
    if state not in UNDER_WAY or reply.step_id != expected:
        return {}
    try:
        output = msgspec.json.decode(reply.output or "{}", type=_Output)
    except msgspec.DecodeError:
        output = _Output()
    if reply.step_type == PROGRESS_STEP:
        percent = min(100, max(0, output.percent))
        return _new(agent, {PROGRESS: f"{plain(output.stage, REASON_LIMIT)} {percent}%"})
    if reply.step_type != _STEPS[State(state)]:
        return {}
    if reply.exit_code == 0 and state == State.REBOOTING:
        return {}  # it is restarting: only a registration, a failure or the time says how that ended
    reason = plain(output.reason, REASON_LIMIT)
    reason = reason if reason.isalnum() else ""
    return _new(agent, {REPORT: dump(ReportNote(expected, reply.exit_code, reason, plain(reply.error)))})


def registered(agent: Agent) -> dict[str, str]:
    """The annotation a registration becomes: it counts for the stage in which it came."""
    return _new(agent, {REGISTRATION: stage_key(agent.status.debug_info.state, agent.status.progress.stage_start_time)})


def new_agent(host: str, infra_env: str) -> dict[str, Any]:
    """An Agent for a host nobody knew: in discovery, not approved; a person decides about it."""
    return {
        "metadata": {"name": host, "labels": {INFRA_ENV_LABEL: infra_env, f"{GROUP}/discovered": "true"}},
        "spec": {"approved": False},
    }


def plain(text: str, limit: int = MESSAGE_LIMIT) -> str:
    """One line of printable characters, bounded: it came over the network and goes into an object people read."""
    line = " ".join("".join(one if one.isprintable() else " " for one in text[: 4 * limit]).split())
    return line if len(line) <= limit else line[: limit - 3] + "..."


def _new(agent: Agent, annotations: dict[str, str]) -> dict[str, str]:
    """Only what is not there yet: an answer that comes twice is written once."""
    there = agent.metadata.annotations
    return {name: value for name, value in annotations.items() if there.get(name) != value}


def _step(agent: Agent, kind: str, arguments: dict[str, Any]) -> dict[str, Any]:
    status = agent.status
    return {
        "step_type": kind,
        "step_id": step_id(agent.metadata.uid, status.debug_info.state, status.progress.stage_start_time),
        "args": [dump(arguments)],
    }


def _answer(seconds: int, action: str, *steps: dict[str, Any]) -> dict[str, Any]:
    return {"next_instruction_seconds": seconds, "post_step_action": action, "instructions": list(steps)}
