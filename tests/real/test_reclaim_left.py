"""What reclaim left on a hub, as `hostler doctor` looks for it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from hostler.explain.doctor import Level, left_behind
from hostler.host.facts import Known
from hostler.kube.client import Client
from hostler.kube.config import load
from hostler.kube.errors import Forbidden
from hostler.reclaim.facts import FINALIZER
from hostler.reclaim.findings import find_kept_agents
from hostler.sandbox import Sandbox
from hostler.sandbox.build import Silent
from hostler.sandbox.crds import install_crds
from tests.real.runtime.test_connection import with_user

GROUP = "agent-install.openshift.io"
THEIRS = f"agent.{GROUP}/ai-deprovision"
AGENTS = {"free": [], "ours": [THEIRS, FINALIZER], "theirs": [THEIRS], "alike": [f"{FINALIZER}-x"]}


def found(kubeconfig: str) -> tuple[str, ...]:
    async def go() -> tuple[str, ...]:
        async with Client(load(kubeconfig, None)) as client:
            return await find_kept_agents(client)

    return asyncio.run(go())


@pytest.fixture
def agents(sandbox: Sandbox, namespace: str) -> Iterator[None]:
    install_crds(sandbox, ["agents"], Silent())
    made = [
        {
            "apiVersion": f"{GROUP}/v1beta1", "kind": "Agent", "spec": {"approved": True, "role": "worker"},
            "metadata": {"name": name, "namespace": namespace, "finalizers": finalizers},
        }
        for name, finalizers in AGENTS.items()
    ]  # fmt: skip
    sandbox.apply(*made)
    yield
    for name in AGENTS:
        sandbox.kubectl("patch", f"agents.{GROUP}", name, "-n", namespace, "--type=merge", "-p",
                        '{"metadata": {"finalizers": null}}')  # fmt: skip


@pytest.mark.usefixtures("agents")
def test_agents_that_we_hold_are_named_and_the_doctor_says_how_to_finish(
    sandbox: Sandbox, namespace: str, tmp_path: Path
) -> None:
    here = tuple(one for one in found(str(sandbox.kubeconfig)) if f" {namespace}/" in one)
    assert here == (f"Agent {namespace}/ours",)
    (seen,) = left_behind("reclaim", Known(here, 0.0), on=Known(False, 0.0))
    assert (seen.level, here[0] in seen.why) == (Level.PROBLEM, True)
    assert "hostler reclaim cancel" in seen.fix
    assert list(left_behind("reclaim", Known(here, 0.0), on=Known(True, 0.0))) == []

    sandbox.kubectl("-n", namespace, "create", "serviceaccount", "visitor")
    token = sandbox.kubectl("-n", namespace, "create", "token", "visitor").strip()
    with pytest.raises(Forbidden):  # what could not be looked at is not nothing
        found(with_user(sandbox, tmp_path, {"token": token}))
