"""`hostler sandbox` as a person and a script meet it: words, exit codes, JSON, and coming back after a crash."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hostler.errors import Exit
from hostler.sandbox import Options, Sandbox
from hostler.sandbox.model import Layout, read_state
from tests.real.conftest import Eventually


def hostler(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hostler", "sandbox", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def answer(*words: str) -> Any:
    done = hostler(*words, "--output", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_status_as_data(sandbox: Sandbox) -> None:
    found = answer("status", "--dir", str(sandbox.layout.root))
    assert found["kubeconfig"] == str(sandbox.kubeconfig)
    assert all(part["alive"] for part in found["parts"])


def test_kubectl(sandbox: Sandbox) -> None:
    done = hostler("kubectl", "--dir", str(sandbox.layout.root), "get", "node", "gpu-0", "-o", "name")
    assert done.stdout == "node/gpu-0\n"


def test_maintenance_hangs_on_a_gpu_and_is_cancelled(sandbox: Sandbox, vcenter: dict[str, Any]) -> None:
    where = ("--dir", str(sandbox.layout.root))
    assert answer("maintenance", "enter", "esx2", *where)["task"]
    hosts = {host["name"]: host for host in sandbox.control("GET", "/state")["hosts"]}
    assert hosts["esx2"]["entering"]
    assert not hosts["esx2"]["inMaintenance"]
    assert answer("maintenance", "cancel", "esx2", *where)["tasks"]
    done = hostler("power", "on", "gpu-9", *where)
    assert done.returncode == Exit.REFUSED
    assert "gpu-9" in done.stderr


def test_a_demo_leaves_somebody_s_sandbox_alone(sandbox: Sandbox) -> None:
    folder = str(sandbox.layout.root)
    env = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
    words = [sys.executable, "-m", "hostler", "demo", "--once", "--dir", folder]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == Exit.REFUSED, done.stderr
    assert "A sandbox runs already" in done.stderr
    assert sandbox.alive("kube-apiserver")


def test_a_demo_plays_its_story_and_leaves_nothing_behind_when_it_is_ended(
    tmp_path: Path, eventually: Eventually
) -> None:
    folder, log = tmp_path / "demo", tmp_path / "demo.log"
    ours = ("KUBECONFIG", "HOSTLER_")  # what this run is told, and no operator understands
    env = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    with log.open("w") as out:
        words = [sys.executable, "-m", "hostler", "demo", "--dir", str(folder)]
        demo = subprocess.Popen(words, env=env, stdout=out, stderr=out, cwd=tmp_path)
    try:
        told = "Ctrl-C ends the operator and the sandbox."
        eventually(lambda: told in log.read_text() or demo.poll() is not None, 300, "it has told its story")
        demo.send_signal(signal.SIGHUP)  # the terminal is closed
        eventually(lambda: "Ending the sandbox." in log.read_text(), 60, "it ends")
        demo.send_signal(signal.SIGINT)  # somebody is impatient
        assert demo.wait(timeout=120) == Exit.OK, log.read_text()[-2000:]
        assert "BackInService" in log.read_text()
        operator = tmp_path / "demo-operator.log"
        assert f"Its log is in {operator}" in log.read_text()
        assert "It is off until named" not in operator.read_text(), "every capability is on"
        assert "[warning" not in log.read_text(), "the log is in its file"
        assert hostler("status", "--dir", str(folder)).returncode == Exit.UNREACHABLE
    finally:
        demo.kill()
        demo.wait()
        hostler("down", "--dir", str(folder))


def test_no_sandbox_here(tmp_path: Path) -> None:
    done = hostler("status", "--dir", str(tmp_path))
    assert done.returncode == Exit.UNREACHABLE
    assert "There is no sandbox in" in done.stderr
    assert "hostler sandbox up" in done.stderr


def test_a_folder_with_other_things_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    done = hostler("up", "--dir", str(tmp_path))
    assert done.returncode == Exit.SETTING
    assert "thesis.txt" in done.stderr


def test_wrong_input_is_found_before_anything_starts(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text("nodes: [{name: a, taints: [{key: k, effect: Nope}]}]")
    done = hostler("up", "--dir", str(tmp_path / "d"), "--fleet", str(fleet))
    assert done.returncode == Exit.SETTING
    assert "nodes[0].taints[0].effect" in done.stderr
    done = hostler("up", "--dir", str(tmp_path / "d"), "--crds", "metal4")
    assert done.returncode == Exit.USAGE
    assert "metal3" in done.stderr


def test_a_part_that_dies_at_start_is_named_with_its_words(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.yaml"
    host = "{name: h, devices: [{id: nonsense, vendor: '8086', device: '56c0'}]}"
    fleet.write_text(f"vcenters: [{{datacenters: [{{name: d, clusters: [{{name: c, hosts: [{host}]}}]}}]}}]")
    done = hostler("up", "--dir", str(tmp_path / "d"), "--fleet", str(fleet))
    assert done.returncode == Exit.FAILED
    assert "vcenter is dead" in done.stderr
    assert "nonsense" in done.stderr, "the end of its log"
    left = json.loads((tmp_path / "d" / "sandbox.json").read_text())
    assert left["parts"] == {}, "nothing is left running"
    assert hostler("down", "--dir", str(tmp_path / "d")).returncode == 0
    assert not (tmp_path / "d").exists()


def test_a_start_that_is_ended_leaves_nothing_running(tmp_path: Path, eventually: Eventually) -> None:
    folder, words = tmp_path / "d", [sys.executable, "-m", "hostler", "sandbox", "up", "--dir"]
    with subprocess.Popen([*words, str(folder)]) as starting:
        try:
            eventually(lambda: read_state(Layout(folder)) is not None, 60, "a part was started")
            starting.terminate()
            assert starting.wait(timeout=60) == Exit.INTERRUPTED
            assert not any(part.alive for part in Sandbox.open(folder).status())
        finally:
            starting.kill()
            hostler("down", "--dir", str(folder))


def test_after_a_crash_the_data_is_still_there(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    box = Sandbox.up(folder, Options(kwok=False, vcenter=False))
    try:
        box.kubectl("create", "namespace", "kept")
        for part in box.status():
            os.kill(part.pid, signal.SIGKILL)
        dead = hostler("status", "--dir", str(folder))
        assert dead.returncode == Exit.FAILED
        assert "etcd is dead" in dead.stderr
        words = ("--dir", str(folder), "--no-kwok", "--no-vcenter")
        as_it_was = answer("up", "--dir", str(folder))["news"]
        assert as_it_was.startswith("Brought back etcd, kube-apiserver"), "its options need not be given again"
        assert answer("up", *words)["news"] == "The sandbox runs already."
        other = hostler("up", *words, "--audit")
        assert other.returncode == Exit.REFUSED
        assert "audit is False, not True" in other.stderr
        assert "deletes its data" in other.stderr
        box = Sandbox.open(folder)
        box.kubectl("get", "namespace", "kept")

        assert answer("down", "--dir", str(folder), "--keep")["kept"] is True
        box = Sandbox.up(folder, Options(kwok=False, vcenter=False))
        box.kubectl("get", "namespace", "kept")
    finally:
        box.down()
    assert not folder.exists()


@pytest.mark.full
def test_five_thousand_nodes(tmp_path: Path) -> None:
    """Loads, and all are Ready; how long it takes is bench/'s business."""
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(
        "nodes: [{name: 'n{i:04}', count: 5000}]\nworkloads: [{kind: Pod, name: p, replicas: 5000, spread: true}]"
    )
    times = Options(fleet=str(fleet), node_lease_duration_seconds=400, node_monitor_grace_seconds=1000)
    box = Sandbox.up(tmp_path / "d", times)
    try:
        nodes = box.read("/api/v1/nodes")["items"]
        ready = [n for n in nodes for c in n["status"]["conditions"] if c["type"] == "Ready" and c["status"] == "True"]
        assert len(ready) == 5000
        assert len(box.read("/api/v1/namespaces/default/pods")["items"]) == 5000
    finally:
        box.down()
