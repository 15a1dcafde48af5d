"""What the black-box stories leave out: our own node, what people see, a host that crashes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hostler.sandbox import Sandbox
from tests.real.conftest import Eventually
from tests.real.maintaining import until
from tests.real.maintenance_stories import PAIR, blocked
from tests.real.operating import Running, hostler, operator
from tests.real.story import on_its_own

NODE, HOST = "gpu-0", "esx1"
STATE = "vsphere-maintenance.boeye.net/state"
POLICY = "hostler.dev/maintenance-policy"


def look(sandbox: Sandbox) -> dict[str, Any]:
    return sandbox.get("node", NODE)


def state(sandbox: Sandbox) -> str:
    return str(look(sandbox)["metadata"].get("annotations", {}).get(STATE, ""))


@pytest.fixture
def flags(sandbox: Sandbox, vcenter: dict[str, Any], tmp_path: Path) -> Iterator[tuple[str, ...]]:
    """Only this node, which waits for its own host: the shared sandbox is left as it was."""
    password = tmp_path / "password"
    password.write_text(vcenter["password"])
    sandbox.kubectl("annotate", "node", NODE, f"{POLICY}=wait", "--overwrite")
    sandbox.control("POST", "/settings", {"vm": NODE, "guestShutdownSeconds": 0.3})
    yield (
        "--vcenter-host", f"{vcenter['host']}:{vcenter['port']}", "--vcenter-user", vcenter["user"],
        "--vcenter-password-file", str(password), "--vcenter-ca-bundle", vcenter["ca_bundle"],
        "--gpu-node-label", f"kubernetes.io/hostname={NODE}", "--drain-timeout-seconds", "15",
    )  # fmt: skip
    sandbox.kubectl("annotate", "node", NODE, f"{POLICY}-")
    sandbox.control("POST", "/settings", {"vm": NODE})


def test_the_leader_hands_over_before_its_own_node_is_emptied(
    sandbox: Sandbox, namespace: str, tmp_path: Path, eventually: Eventually, flags: tuple[str, ...]
) -> None:
    with operator(sandbox, tmp_path, namespace, *flags, "--node-name", NODE, name="here") as here:
        here.said("leading")  # before the other one is there to lead
        with operator(sandbox, tmp_path, namespace, *flags, name="there") as there:
            here.said(f"vCenter {flags[1]} is connected.")
            asked(sandbox, here, "plan", HOST, wants=f"{NODE} would be emptied and stopped")
            there.said(f"vCenter {flags[1]} is connected.")
            sandbox.maintenance(HOST, "enter")
            eventually(lambda: state(sandbox) == "powered-off", 120, "the node is emptied and its VM off")
            assert here.said("our own node goes out of service; handing the lease over")
            assert not evictions(here), "not by the one that would be evicted"
            assert evictions(there)
            asked(sandbox, there, "status", wants="powered-off")
            explain = ("explain", f"node/{NODE}", "--operator", there.url)
            eventually(lambda: f"waits for {HOST}" in hostler(sandbox.kubeconfig, *explain).stdout, 180, "it says so")
            sandbox.maintenance(HOST, "cancel")
            eventually(lambda: state(sandbox) == "", 180, "it is back in service on its own host")
            node = look(sandbox)
            assert not node["spec"].get("unschedulable")
            assert "hostler.dev/holds" not in node["metadata"]["annotations"]
            assert not [taint for taint in node["spec"].get("taints", []) if "out-of-service" in taint["key"]]


def evictions(running: Running) -> list[str]:
    return [line["name"] for line in running.lines() if line.get("event") == "wrote" and line.get("verb") == "evict"]


def asked(sandbox: Sandbox, running: Running, *words: str, wants: str) -> None:
    def answer() -> str:
        done = hostler(sandbox.kubeconfig, "maintenance", *words, "--operator", running.url)
        assert done.returncode == 0, done.stderr
        return done.stdout

    until(lambda: wants in answer(), f"it answers {wants!r}", seen=answer)


@pytest.mark.full
def test_the_host_crashes_while_its_worker_is_emptied_and_nobody_starts_it_elsewhere(
    sandbox: Sandbox, namespace: str, tmp_path: Path
) -> None:
    with on_its_own(sandbox, tmp_path, namespace, PAIR) as (_, story):
        story.nodes()
        blocked(story, "a")
        story.enter("esx1")
        story.reaches("a", "draining")
        story.site.control("POST", f"/hosts/{story.full('esx1')}/crash", {"ha": False})
        time.sleep(3)
        assert story.state("a") == "draining", "nothing is done while its host is away"
        story.site.control("POST", f"/hosts/{story.full('esx1')}/recover", {})
        until(lambda: story.state("a") == "" and story.ready("a") and not story.cordoned("a"), "it serves again", 200)
        assert story.vm("a")["power"] == "poweredOn"
