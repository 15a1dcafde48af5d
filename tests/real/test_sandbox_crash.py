"""`hostler sandbox crash`, `recover` and `fault`: a host that loses its power takes its nodes along."""

from __future__ import annotations

from typing import Any

import pytest

from hostler.errors import Exit
from hostler.sandbox import Sandbox
from hostler.sandbox.parts import OFF_LABEL
from tests.real.conftest import Eventually
from tests.real.test_sandbox_cli import answer, hostler
from tests.real.test_sandbox_power import boot_id, lease


def silent(sandbox: Sandbox, node: str) -> bool:
    return bool(sandbox.read(f"/api/v1/nodes/{node}")["metadata"]["labels"].get(OFF_LABEL) == "off")


@pytest.mark.usefixtures("vcenter")
def test_a_crashed_host_silences_its_nodes_until_its_vms_start_again(sandbox: Sandbox, eventually: Eventually) -> None:
    where = ("--dir", str(sandbox.layout.root))
    before, nodes = boot_id(sandbox, "gpu-2"), ("cp-2", "gpu-2")
    assert answer("crash", "esx3", *where) == {"host": "esx3", "connection": "notResponding"}
    try:
        eventually(lambda: all(silent(sandbox, node) for node in nodes), what="silent nodes")
        assert not silent(sandbox, "gpu-1")
        vms: dict[str, Any] = {vm["name"]: vm for vm in sandbox.control("GET", "/state")["vms"]}
        assert vms["gpu-2"]["power"] == "poweredOn", "vCenter knows nothing better"
        again = hostler("crash", "esx3", *where)
        assert again.returncode == Exit.REFUSED
        assert "crashed already" in again.stderr
    finally:
        done = hostler("recover", "esx3", "--power-on", *where)
    assert done.returncode == 0, done.stderr
    eventually(lambda: not any(silent(sandbox, node) for node in nodes), what="nodes that are back")
    assert boot_id(sandbox, "gpu-2") != before
    last = lease(sandbox, "gpu-2")
    eventually(lambda: lease(sandbox, "gpu-2") != last, what="a new heartbeat")


@pytest.mark.usefixtures("vcenter")
def test_faults_are_listed_and_taken_back(sandbox: Sandbox) -> None:
    where = ("--dir", str(sandbox.layout.root))
    assert hostler("fault", *where).stderr == "No call will fail.\n"
    asked = answer("fault", "PowerOnVM_Task", "InsufficientResourcesFault", "--vm", "gpu-0", "--times", "3", *where)
    try:
        assert [(f["method"], f["vm"], f["left"], f["asTask"]) for f in asked["faults"]] == [
            ("PowerOnVM_Task", "gpu-0", 3, True)
        ]
        assert "in the task" in hostler("fault", *where).stdout
        wrong = hostler("fault", "PowerOnVM_Task", "Nonsense", *where)
        assert wrong.returncode == Exit.REFUSED
        assert "is no fault of the vSphere API" in wrong.stderr
    finally:
        assert answer("fault", "--clear", *where) == {"faults": []}
