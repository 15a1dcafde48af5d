"""`hostler hold`, `release`, `drain`, `pause` and `crds` as a person types them, on the real control plane."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hostler.errors import Exit
from hostler.sandbox import Sandbox
from tests.real.conftest import Eventually
from tests.real.draining import workload
from tests.real.operating import environment, hostler, kubeconfig_as, operator

MakeNode = Callable[..., str]


@pytest.fixture
def fleet(sandbox: Sandbox) -> Iterator[None]:
    """The CRD is there, and no Fleet before and after."""
    assert hostler(sandbox.kubeconfig, "crds", "--apply").returncode == 0
    sandbox.kubectl("delete", "fleets,pauses", "--all")
    yield
    sandbox.kubectl("delete", "fleets,pauses", "--all")


def node(sandbox: Sandbox, name: str) -> dict[str, Any]:
    return sandbox.get("node", name)


def cordoned(sandbox: Sandbox, name: str) -> bool:
    return bool(node(sandbox, name)["spec"].get("unschedulable", False))


# -- hold and release


def test_hold_and_release(sandbox: Sandbox, make_node: MakeNode) -> None:
    name = make_node()
    done = hostler(sandbox.kubeconfig, "hold", name, "--why", "new disks")
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert f"{name} is held by sandbox-admin: new disks." in done.stderr
    assert cordoned(sandbox, name)
    again = hostler(sandbox.kubeconfig, "hold", name, "--why", "new disks", "-o", "json")
    assert json.loads(again.stdout)["nodes"][0]["changed"] is False
    done = hostler(sandbox.kubeconfig, "release", name)
    assert "it is schedulable again" in done.stderr
    assert not cordoned(sandbox, name)


def test_escape_characters_in_a_reason_reach_no_terminal(sandbox: Sandbox, make_node: MakeNode) -> None:
    name = make_node()
    done = hostler(sandbox.kubeconfig, "hold", name, "--why", "a\x1b[31mred\nline")
    assert f"{name} is held by sandbox-admin: a [31mred line." in done.stderr
    assert "\x1b" not in json.dumps(node(sandbox, name)["metadata"]["annotations"]).encode().decode("unicode_escape")


def test_somebody_else_s_hold_is_released_only_by_name(sandbox: Sandbox, make_node: MakeNode) -> None:
    name = make_node()
    hostler(sandbox.kubeconfig, "hold", name, "--why", "theirs", "--holder", "ada")
    refused = hostler(sandbox.kubeconfig, "release", name)
    assert refused.returncode == Exit.REFUSED
    assert f"{name} is held by ada (theirs), not by sandbox-admin." in refused.stderr
    assert cordoned(sandbox, name)
    assert hostler(sandbox.kubeconfig, "release", name, "--holder", "ada").returncode == 0
    assert not cordoned(sandbox, name)


def test_a_dry_run_writes_nothing(sandbox: Sandbox, make_node: MakeNode) -> None:
    name = make_node()
    before = node(sandbox, name)["metadata"]["annotations"]
    done = hostler(sandbox.kubeconfig, "hold", name, "--why", "x", "--dry-run")
    assert done.stderr.splitlines()[-1].startswith(f"Would be: {name} is held by")
    assert not cordoned(sandbox, name)
    assert node(sandbox, name)["metadata"]["annotations"] == before


def test_a_node_that_is_not_there(sandbox: Sandbox) -> None:
    for words in (("hold", "nope", "--why", "x"), ("release", "nope"), ("drain", "nope")):
        done = hostler(sandbox.kubeconfig, *words)
        assert done.returncode == Exit.REFUSED
        assert "There is no node nope in this cluster." in done.stderr


def test_a_name_never_reaches_another_resource(sandbox: Sandbox, make_node: MakeNode) -> None:
    """The API server reads an escaped slash as a slash: this once patched the status and reported a hold."""
    name = make_node()
    for words in (("hold", f"{name}/status", "--why", "x"), ("release", f"{name}/status"), ("drain", f"{name}/status")):
        done = hostler(sandbox.kubeconfig, *words)
        assert done.returncode == Exit.REFUSED, done.stderr
        assert f"There is no node {name}/status in this cluster." in done.stderr


def test_somebody_without_rights_is_told_which(sandbox: Sandbox, make_node: MakeNode, tmp_path: Path) -> None:
    name = make_node()
    done = hostler(kubeconfig_as(sandbox, tmp_path, "nobody"), "hold", name, "--why", "x", "--beyond-ceiling")
    assert done.returncode == Exit.REFUSED
    assert f'nodes "{name}" is forbidden' in done.stderr
    assert "Ask whoever runs the cluster for that right" in done.stderr


def test_the_ceiling_binds_people_too_unless_they_insist(sandbox: Sandbox, make_node: MakeNode) -> None:
    name = make_node()
    held_back = hostler(sandbox.kubeconfig, "hold", name, "--why", "x", "--max-unavailable", "0")
    assert held_back.returncode == Exit.REFUSED
    assert f"{name} stays in service: MAX_UNAVAILABLE (0) allows none of" in held_back.stderr
    assert "--beyond-ceiling" in held_back.stderr
    assert not cordoned(sandbox, name)
    insisted = hostler(sandbox.kubeconfig, "hold", name, "--why", "x", "--max-unavailable", "0", "--beyond-ceiling")
    assert insisted.returncode == 0
    assert cordoned(sandbox, name)


# -- drain


def pods_on(sandbox: Sandbox, namespace: str, name: str) -> list[str]:
    found = sandbox.get("pods", "-n", namespace, f"--field-selector=spec.nodeName={name}")["items"]
    return [pod["metadata"]["name"] for pod in found]


def running_on(sandbox: Sandbox, namespace: str, name: str, replicas: int, eventually: Eventually) -> None:
    here = {"kubernetes.io/hostname": name}
    sandbox.apply(workload("Deployment", namespace, "web", replicas, nodeSelector=here))
    eventually(lambda: len(pods_on(sandbox, namespace, name)) == replicas, 60, "the pods are placed")


def test_drain_empties_the_node_and_keeps_it_held(
    sandbox: Sandbox, make_node: MakeNode, namespace: str, eventually: Eventually
) -> None:
    name = make_node()
    running_on(sandbox, namespace, name, 3, eventually)
    dry = hostler(sandbox.kubeconfig, "drain", name, "--dry-run")
    assert dry.returncode == 0, dry.stderr
    assert dry.stdout.count("  evict  ") == 3
    assert "  stay   DaemonSet " in dry.stdout
    assert not cordoned(sandbox, name)
    done = hostler(sandbox.kubeconfig, "drain", name, "--why", "new disks", "--timeout", "60")
    assert done.returncode == 0, done.stderr
    assert f"{name} is drained" in done.stderr
    assert f"hostler release {name}" in done.stderr
    assert pods_on(sandbox, namespace, name) == []
    assert cordoned(sandbox, name)


def keep_all(sandbox: Sandbox, namespace: str, eventually: Eventually) -> None:
    """A budget that lets no pod go."""
    sandbox.apply(
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "keep", "namespace": namespace},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
        }
    )

    def seen() -> bool:
        return bool(sandbox.get("pdb", "keep", "-n", namespace).get("status", {}).get("expectedPods") == 1)

    eventually(seen, 60, "the budget")


def test_ctrl_c_in_a_drain_says_that_the_node_stays_held(
    sandbox: Sandbox, make_node: MakeNode, namespace: str, eventually: Eventually
) -> None:
    name = make_node()
    running_on(sandbox, namespace, name, 1, eventually)
    keep_all(sandbox, namespace, eventually)
    process = subprocess.Popen(
        [sys.executable, "-m", "hostler", "drain", name],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(sandbox.kubeconfig),
    )  # fmt: skip
    assert process.stderr is not None
    while "keep" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == Exit.INTERRUPTED
    assert f"{name} stays held: to put it back into service: hostler release {name}" in said
    assert cordoned(sandbox, name)


def test_explain_and_plan_name_the_budget_that_would_block(
    sandbox: Sandbox, make_node: MakeNode, namespace: str, tmp_path: Path, eventually: Eventually
) -> None:
    name = make_node()
    running_on(sandbox, namespace, name, 1, eventually)
    keep_all(sandbox, namespace, eventually)
    with operator(sandbox, tmp_path, namespace) as running:
        running.ready()
        for word in ("explain", "plan"):
            said = hostler(sandbox.kubeconfig, word, f"node/{name}", "--operator", running.url)
            assert said.returncode == 0, said.stderr
            assert f"{namespace}/keep" in said.stdout, "the budget that lets no pod go"


def test_drain_names_the_budget_that_blocks_it_and_gives_up_in_time(
    sandbox: Sandbox, make_node: MakeNode, namespace: str, eventually: Eventually
) -> None:
    name = make_node()
    running_on(sandbox, namespace, name, 1, eventually)
    keep_all(sandbox, namespace, eventually)
    done = hostler(sandbox.kubeconfig, "drain", name, "--timeout", "8", "-o", "json")
    assert done.returncode == Exit.FAILED, done.stderr
    ended = json.loads(done.stdout)["nodes"][0]
    assert ended["state"] == "deadline-passed"
    assert len(ended["left"]) == 1
    assert "keep" in done.stderr
    assert cordoned(sandbox, name)


def test_drain_refuses_what_the_policy_forbids_and_evicts_nothing(
    sandbox: Sandbox, make_node: MakeNode, namespace: str, eventually: Eventually
) -> None:
    name = make_node()
    running_on(sandbox, namespace, name, 1, eventually)
    sandbox.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "alone", "namespace": namespace},
            "spec": {
                "nodeName": name,
                "containers": [{"name": "c", "image": "example.org/none:1"}],
                "tolerations": [{"operator": "Exists"}],
            },
        }
    )
    done = hostler(sandbox.kubeconfig, "drain", name, "--drain-refuse-unmanaged", "--timeout", "30")
    assert done.returncode == Exit.REFUSED, done.stderr
    assert f"{namespace}/alone" in done.stderr
    assert len(pods_on(sandbox, namespace, name)) == 2


@pytest.mark.usefixtures("fleet")
def test_drain_respects_the_stop_button(sandbox: Sandbox, make_node: MakeNode) -> None:
    name = make_node()
    assert hostler(sandbox.kubeconfig, "pause", "--why", "fire", "--wait", "0").returncode == 0
    held_back = hostler(sandbox.kubeconfig, "drain", name)
    assert held_back.returncode == Exit.REFUSED
    assert "(claims to be sandbox-admin): fire." in held_back.stderr
    assert not cordoned(sandbox, name)
    assert hostler(sandbox.kubeconfig, "drain", name, "--even-if-paused").returncode == 0


# -- pause and resume without an operator


@pytest.mark.usefixtures("fleet")
def test_pause_creates_one_pause_and_resume_deletes_it(sandbox: Sandbox) -> None:
    done = hostler(sandbox.kubeconfig, "pause", "--why", "storage is on fire", "--wait", "0.5", "-o", "json")
    assert done.returncode == Exit.UNREACHABLE, "nobody confirmed it"
    answer = json.loads(done.stdout)
    assert (answer["paused"], answer["confirmed"]) == (True, False)
    assert "No operator has confirmed it within 0.5 s" in answer["why"]
    assert answer["name"].startswith("sandbox-admin-")
    assert sandbox.get("pause", answer["name"])["spec"] == {"why": "storage is on fire", "by": "sandbox-admin"}
    done = hostler(sandbox.kubeconfig, "resume", "--wait", "0")
    assert (done.returncode, done.stdout) == (0, "")
    assert f"Deleted Pause {answer['name']}." in done.stderr
    assert "Nothing was paused." in hostler(sandbox.kubeconfig, "resume").stderr


@pytest.mark.usefixtures("fleet")
def test_a_pause_in_deletion_does_not_count_as_the_next(sandbox: Sandbox) -> None:
    """It would be gone a moment later, and with it the pause that the person asked for."""
    name = json.loads(hostler(sandbox.kubeconfig, "pause", "--why", "x", "--wait", "0", "-o", "json").stdout)["name"]
    finalizers = '{"metadata":{"finalizers":["example.org/wait"]}}'
    sandbox.kubectl("patch", "pause", name, "--type=merge", "-p", finalizers)
    try:
        assert "which is being deleted" in hostler(sandbox.kubeconfig, "resume", "--wait", "0").stderr
        second = json.loads(hostler(sandbox.kubeconfig, "pause", "--why", "y", "--wait", "0", "-o", "json").stdout)
        assert second["name"].startswith(f"{name}.")
    finally:  # else nobody could delete it
        sandbox.kubectl("patch", "pause", name, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    done = hostler(sandbox.kubeconfig, "resume", "--wait", "0", "-o", "json")
    assert json.loads(done.stdout)["paused"] is False, done.stdout


def test_without_the_crd_pausing_says_how_to_get_it(sandbox: Sandbox) -> None:
    sandbox.kubectl("delete", "crd", "fleets.hostler.dev", "pauses.hostler.dev", "--ignore-not-found")
    done = hostler(sandbox.kubeconfig, "pause", "--why", "x")
    assert done.returncode == Exit.REFUSED
    assert "this cluster does not know that kind" in done.stderr
    assert "hostler crds --apply" in done.stderr
    assert "Nothing is paused" in hostler(sandbox.kubeconfig, "resume").stderr
    installed = hostler(sandbox.kubeconfig, "crds", "--apply")
    assert installed.returncode == 0
    assert "fleets.hostler.dev and pauses.hostler.dev are installed." in installed.stderr


def test_version_of_the_server(sandbox: Sandbox) -> None:
    done = hostler(sandbox.kubeconfig, "version", "--server", "-o", "json")
    assert json.loads(done.stdout)["kubernetes"].startswith("v1.")
